//! Distribution of the clusters over several processes. Pure.

use std::str::FromStr;

use globalps_core::names::MAX_SHARDS;

use super::limits::MOST_CONNECTIONS;

/// One of several processes that lead at the same time. Each one connects to its share of the clusters; the first one plans for
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0 on.
    pub index: u32,
    of: u32,
}

impl Shard {
    /// Whether it plans for all.
    pub fn plans(self) -> bool {
        self.index == 0
    }

    /// Whether it plans for the cluster or connects to it.
    pub fn concerns(self, namespace: &str, name: &str) -> bool {
        self.plans() || self.has(namespace, name)
    }

    /// Clusters of a namespace that all processes together connect to.
    pub fn connections(self) -> usize {
        let processes = usize::try_from(self.of).unwrap_or(1);
        processes.saturating_mul(MOST_CONNECTIONS)
    }

    /// Whether it connects to the cluster.
    /// The result must not change between releases. Otherwise two processes could connect to one cluster during an upgrade.
    pub fn has(self, namespace: &str, name: &str) -> bool {
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
                "is not a shard: write `0/3` for the first of three; at most {MAX_SHARDS} shards are possible"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_is_in_one_shard_and_shards_are_similar_in_size() {
        let shards: Vec<Shard> = (0..5)
            .map(|index| format!("{index}/5").parse().unwrap())
            .collect();
        let mut counts = [0; 5];
        for number in 0..1000 {
            let name = format!("cluster-{number}");
            let of: Vec<usize> = (0..5)
                .filter(|at| shards[*at].has("fleet", &name))
                .collect();
            assert_eq!(of.len(), 1, "{name}");
            counts[of[0]] += 1;
        }
        assert!(
            counts.iter().all(|count| (150..250).contains(count)),
            "{counts:?}"
        );
        // Another release must not move it.
        assert!(shards[FIRST].has("fleet", "cluster-1"));
    }

    /// The shard of `fleet/cluster-1` since the first release with shards.
    const FIRST: usize = 4;

    #[test]
    fn an_invalid_shard_is_rejected() {
        for text in ["", "1", "1/1", "2/1", "-1/2", "0/0", "0/33", "a/b", "0/1/2"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        let only: Shard = "0/1".parse().unwrap();
        assert!(only.plans() && only.has("a", "b"));
        assert!(!"1/2".parse::<Shard>().unwrap().plans());
    }
}
