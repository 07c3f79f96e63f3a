//! Which `FleetPullSecret`s and clusters may exist. What one that is gone has left in a cluster belongs to nobody. Pure.

use std::collections::BTreeSet;

/// What the hub knows to exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// `NAMESPACE/NAME` of each `FleetPullSecret`.
    pub titles: BTreeSet<String>,
    /// `NAMESPACE/NAME` of each cluster.
    pub clusters: BTreeSet<String>,
    /// Namespaces of which the hub knows all; `None`: every one.
    pub namespaces: Option<BTreeSet<String>>,
    /// Namespaces of which it knows nothing.
    pub hidden: BTreeSet<String>,
}

impl Known {
    /// `title`: of a `FleetPullSecret`, as another client may have written it.
    pub fn may_exist(&self, title: &str) -> bool {
        let Some((namespace, _)) = title.split_once('/') else {
            return true;
        };
        let all = self.namespaces.as_ref();
        let is_known =
            all.is_none_or(|all| all.contains(namespace)) && !self.hidden.contains(namespace);
        !is_known || self.titles.contains(title)
    }

    /// The same of a cluster of this hub: one in a namespace that is not the hub's is gone.
    pub fn may_have_cluster(&self, title: &str) -> bool {
        let namespace = title.split_once('/').map(|(namespace, _)| namespace);
        self.clusters.contains(title) || namespace.is_some_and(|it| self.hidden.contains(it))
    }
}
