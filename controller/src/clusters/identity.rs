//! Which clusters are the same one under two names, or the management cluster itself. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{ClusterKey, title};
use super::member::Reason;

/// What the object about a cluster says of it.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub(crate) cluster: ClusterKey,
    /// uid of its `kube-system`; empty: it may not be asked, and is taken for itself.
    pub(crate) identity: String,
    /// A revision is in force there.
    pub(crate) has_content: bool,
}

/// Why nothing may be written into some of these clusters. `own`: uid of the management cluster's `kube-system`.
///
/// Of several with one identity the only one that has content goes on: a member that claims to be another one stops itself.
pub(crate) fn obstacles(found: &[Identified], own: Option<&str>) -> BTreeMap<ClusterKey, Reason> {
    let mut same: BTreeMap<&str, BTreeMap<&ClusterKey, bool>> = BTreeMap::new();
    for it in found.iter().filter(|it| !it.identity.is_empty()) {
        let names = same.entry(&it.identity).or_default();
        *names.entry(&it.cluster).or_default() |= it.has_content;
    }
    let mut obstacles = BTreeMap::new();
    for (identity, names) in same {
        if own == Some(identity) {
            let message = "its kubeconfig is of the management cluster itself";
            let all = names.into_keys().cloned();
            obstacles.extend(all.map(|key| (key, ("IsHub", message.to_owned()))));
            continue;
        }
        let mut first = names.iter().filter(|(_, has_content)| **has_content);
        let first = match (first.next(), first.next()) {
            (Some((key, _)), None) => Some(*key),
            _ => None,
        };
        let names: BTreeSet<&ClusterKey> = names.keys().copied().collect();
        for key in names.iter().filter(|key| Some(**key) != first) {
            let Some(other) = first.or_else(|| names.iter().find(|it| it != &key).copied()) else {
                continue;
            };
            let why = match first {
                Some(_) => "which had its content before",
                None => "and it is not known which one is right: none of them is written",
            };
            let message = format!(
                "its kubeconfig is of the same cluster as that of `{}`, {why}",
                title(other)
            );
            obstacles.insert((*key).clone(), ("DuplicateCluster", message));
        }
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ClusterKey {
        ("fleet".to_owned(), name.to_owned())
    }

    #[test]
    fn who_is_the_same_as_another_or_the_hub_is_not_written_but_for_the_one_that_had_content_before()
     {
        let found = |all: &[(&str, &str, bool)]| -> Vec<(String, &'static str, bool)> {
            let found = all.iter().map(|(name, identity, has_content)| Identified {
                cluster: key(name),
                identity: (*identity).to_owned(),
                has_content: *has_content,
            });
            let found: Vec<Identified> = found.collect();
            let obstacles = obstacles(&found, Some("hub"));
            let one = |((_, name), (reason, message)): (ClusterKey, Reason)| {
                (name, reason, message.contains("had its content before"))
            };
            obstacles.into_iter().map(one).collect()
        };
        let duplicate = |name: &str, is_late| (name.to_owned(), "DuplicateCluster", is_late);
        assert_eq!(found(&[("a", "1", true), ("b", "2", false)]), []);
        assert_eq!(
            found(&[("a", "", false), ("b", "", false)]),
            [],
            "nobody knows"
        );
        assert_eq!(
            found(&[("a", "1", false), ("a", "1", true)]),
            [],
            "one cluster of two fleets"
        );
        assert_eq!(
            found(&[("a", "1", false), ("b", "1", false), ("c", "2", false)]),
            [duplicate("a", false), duplicate("b", false)]
        );
        assert_eq!(
            found(&[("a", "1", false), ("b", "1", true)]),
            [duplicate("a", true)],
            "b goes on"
        );
        assert_eq!(
            found(&[("a", "1", true), ("b", "1", true)]),
            [duplicate("a", false), duplicate("b", false)],
            "both had content"
        );
        assert_eq!(
            found(&[("a", "hub", true)]),
            [("a".to_owned(), "IsHub", false)]
        );
    }
}
