//! Which of several processes is connected to a cluster. Pure.

use std::str::FromStr;

use globalps_core::names::MAX_SHARDS;

use super::input::ClusterKey;

/// One of some processes that lead at the same time, each connected to its part of the clusters. The first plans for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) index: u32,
    of: u32,
}

impl Shard {
    pub(crate) fn plans(self) -> bool {
        self.index == 0
    }

    /// The same in each release: while one is replaced, nobody else is connected to its clusters.
    pub(crate) fn has(self, (namespace, name): &ClusterKey) -> bool {
        let bytes = namespace.bytes().chain([b'/']).chain(name.bytes());
        // FNV-1a.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash % u64::from(self.of) == u64::from(self.index)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((index, of)) if index < of && of <= MAX_SHARDS => Ok(Self { index, of }),
            _ => Err(format!(
                "is not a shard: `0/3` is the first of three, and there are {MAX_SHARDS} at most"
            )),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_is_of_one_shard_and_all_have_about_as_many() {
        let shards: Vec<Shard> = (0..5)
            .map(|index| format!("{index}/5").parse().unwrap())
            .collect();
        let mut counts = [0; 5];
        for number in 0..1000 {
            let key = ("fleet".to_owned(), format!("cluster-{number}"));
            let of: Vec<usize> = (0..5).filter(|at| shards[*at].has(&key)).collect();
            assert_eq!(of.len(), 1, "{key:?}");
            counts[of[0]] += 1;
        }
        assert!(
            counts.iter().all(|count| (150..250).contains(count)),
            "{counts:?}"
        );
        // Another release must not move it.
        let key = ("fleet".to_owned(), "cluster-1".to_owned());
        assert!(shards[FIRST].has(&key));
    }

    /// Of `fleet/cluster-1`, since the first release with shards.
    const FIRST: usize = 4;

    #[test]
    fn what_is_no_shard_is_refused() {
        for text in ["", "1", "1/1", "2/1", "-1/2", "0/0", "0/33", "a/b", "0/1/2"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        let only: Shard = "0/1".parse().unwrap();
        assert!(only.plans() && only.has(&("a".to_owned(), "b".to_owned())));
        assert!(!"1/2".parse::<Shard>().unwrap().plans());
    }
}
