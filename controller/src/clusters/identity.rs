//! Detects kubeconfigs that lead to the same cluster, or to the management cluster itself. Pure.

use std::collections::BTreeMap;

use super::input::{ClusterKey, title};
use super::member::Reason;

/// A cluster's identity, from its `ClusterPullSecret`.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub(crate) cluster: ClusterKey,
    /// uid of its `kube-system`; empty: the hub can't read it, and treats the cluster as unique.
    pub(crate) identity: String,
    /// A revision is in force there.
    pub(crate) has_content: bool,
}

/// The clusters that the hub must not write into. `own`: uid of the management cluster's `kube-system`.
///
/// If several clusters report one identity and only one of them has content, that one continues. So a member that pretends to
/// be another one blocks only itself.
pub(crate) fn obstacles(found: &[Identified], own: Option<&str>) -> BTreeMap<ClusterKey, Reason> {
    let mut by_identity: BTreeMap<&str, BTreeMap<&ClusterKey, bool>> = BTreeMap::new();
    for it in found.iter().filter(|it| !it.identity.is_empty()) {
        let clusters = by_identity.entry(&it.identity).or_default();
        *clusters.entry(&it.cluster).or_default() |= it.has_content;
    }
    let mut obstacles = BTreeMap::new();
    for (identity, clusters) in by_identity {
        if own == Some(identity) {
            let message = "its kubeconfig leads to the management cluster itself";
            let all = clusters.into_keys().cloned();
            obstacles.extend(all.map(|key| (key, ("IsHub", message.to_owned()))));
            continue;
        }
        let mut with_content = clusters.iter().filter(|(_, has_content)| **has_content);
        let kept = match (with_content.next(), with_content.next()) {
            (Some((key, _)), None) => Some(*key),
            _ => None,
        };
        for key in clusters.keys().filter(|key| Some(**key) != kept) {
            let Some(other) = kept.or_else(|| clusters.keys().find(|it| it != &key).copied())
            else {
                continue;
            };
            let consequence = match kept {
                Some(_) => ", which already has content",
                None => "; the hub can't tell which one is right, and writes into neither",
            };
            let message = format!(
                "its kubeconfig leads to the same cluster as that of `{}`{consequence}",
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
    fn duplicates_and_the_hub_are_blocked_except_the_only_one_with_content() {
        let found = |all: &[(&str, &str, bool)]| -> Vec<(String, &'static str, bool)> {
            let found = all.iter().map(|(name, identity, has_content)| Identified {
                cluster: key(name),
                identity: (*identity).to_owned(),
                has_content: *has_content,
            });
            let found: Vec<Identified> = found.collect();
            let obstacles = obstacles(&found, Some("hub"));
            let one = |((_, name), (reason, message)): (ClusterKey, Reason)| {
                (name, reason, message.contains("already has content"))
            };
            obstacles.into_iter().map(one).collect()
        };
        let duplicate = |name: &str, is_late| (name.to_owned(), "DuplicateCluster", is_late);
        assert_eq!(found(&[("a", "1", true), ("b", "2", false)]), []);
        assert_eq!(
            found(&[("a", "", false), ("b", "", false)]),
            [],
            "unknown identities"
        );
        assert_eq!(
            found(&[("a", "1", false), ("a", "1", true)]),
            [],
            "one cluster in two fleets"
        );
        assert_eq!(
            found(&[("a", "1", false), ("b", "1", false), ("c", "2", false)]),
            [duplicate("a", false), duplicate("b", false)]
        );
        assert_eq!(
            found(&[("a", "1", false), ("b", "1", true)]),
            [duplicate("a", true)],
            "b continues"
        );
        assert_eq!(
            found(&[("a", "1", true), ("b", "1", true)]),
            [duplicate("a", false), duplicate("b", false)],
            "both have content"
        );
        assert_eq!(
            found(&[("a", "hub", true)]),
            [("a".to_owned(), "IsHub", false)]
        );
    }
}
