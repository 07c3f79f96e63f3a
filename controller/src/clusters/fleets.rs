//! Which `FleetPullSecret`s may exist. What one that is gone has left in a cluster belongs to nobody. Pure.

use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownFleets {
    /// `NAMESPACE/NAME` of each.
    pub(crate) titles: BTreeSet<String>,
    /// Namespaces of which the hub knows all; `None`: every one.
    pub(crate) namespaces: Option<BTreeSet<String>>,
    /// Namespaces of which it knows nothing.
    pub(crate) hidden: BTreeSet<String>,
}

impl KnownFleets {
    /// `title`: as another client may have written it.
    pub(crate) fn may_exist(&self, title: &str) -> bool {
        let Some((namespace, _)) = title.split_once('/') else {
            return true;
        };
        let all = self.namespaces.as_ref();
        let is_known =
            all.is_none_or(|all| all.contains(namespace)) && !self.hidden.contains(namespace);
        !is_known || self.titles.contains(title)
    }
}
