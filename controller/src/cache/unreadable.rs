//! Objects that can't be decoded.

use globalps_core::decode::Unreadable;
use globalps_core::names::GLOBAL_SECRET;

use super::Cache;

impl Cache {
    /// Why the newest version of the `GlobalPullSecret` can't be decoded; [`Self::config`] is the last one that could.
    pub(crate) fn config_unreadable(&self) -> Option<&Unreadable> {
        self.config.unreadable.get(GLOBAL_SECRET).map(AsRef::as_ref)
    }

    /// Generation of the newest spec; 0: there is none.
    pub(crate) fn generation(&self) -> i64 {
        let unreadable = self.config_unreadable();
        let metadata = unreadable.map(|unreadable| &unreadable.metadata);
        let metadata = metadata.or(self.config().map(|config| &config.metadata));
        metadata
            .and_then(|metadata| metadata.generation)
            .unwrap_or_default()
    }

    /// Objects that can't be decoded: kind, namespace and name, and why.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let operators = &self.operators;
        let stores = [
            ("GlobalPullSecret", &self.config.unreadable),
            ("Secret", &self.global().store.unreadable),
            ("Secret", &self.rolled_out.store.unreadable),
            ("Node", &self.nodes.unreadable),
            ("Pod", self.pods.unreadable()),
            ("NodePullSecret", &self.node_pull_secrets.unreadable),
            ("Namespace", self.namespaces.unreadable()),
            ("Secret", &self.pull_secrets.secrets.unreadable),
            ("ServiceAccount", &self.pull_secrets.accounts.unreadable),
            ("Subscription", &operators.subscriptions.unreadable),
            ("CatalogSource", &operators.catalogs.unreadable),
            ("ClusterServiceVersion", &operators.csvs.unreadable),
            ("ServiceAccount", &operators.accounts.unreadable),
        ];
        let managed = self.managed.iter().map(|(object, store)| {
            let kind = object.kind.as_str();
            (kind, &store.unreadable)
        });
        let all = stores.into_iter().chain(managed);
        all.flat_map(|(kind, objects)| objects.values().map(move |object| object.titled(kind)))
            .collect()
    }
}
