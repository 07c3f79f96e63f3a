//! Builds the input of the plan for nodes from the cache.

use std::borrow::Cow;

use globalps_core::names::{DATA_KEY, RETRY_ANNOTATION, ROLLED_OUT_SECRET};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Cache;
use crate::content::secret::revision;
use crate::content::source::{Data, Source};
use crate::nodes::clock::Uptime;
use crate::nodes::input::Snapshot;
use crate::nodes::provider_paths::{fit, is_on_nodes};

impl Cache {
    pub(crate) fn snapshot(&self, uptime: Uptime, now: Timestamp) -> Snapshot<'_> {
        let additional = self.additional().map_or(Source::Absent, |secret| {
            Source::Found(Data::of(secret, DATA_KEY))
        });
        let config = self.config();
        let status = config.and_then(|config| config.status.as_ref());
        let global = self.decoded_global();
        let mut spec = config.map(|config| config.spec.clone()).unwrap_or_default();
        let objects = self.node_pull_secrets.live.values();
        let is_on_nodes = is_on_nodes(global.as_ref(), objects.map(|object| &**object));
        let deviation = fit(&mut spec, self.provider_pods(), is_on_nodes);
        Snapshot {
            spec,
            deviation,
            config_missing: config.is_none(),
            additional,
            additional_type: self.additional().and_then(|secret| secret.type_.clone()),
            additional_retry: self
                .additional()
                .and_then(|secret| secret.annotations().get(RETRY_ANNOTATION).cloned()),
            original: match &self.original_ref {
                None => Source::Absent,
                // `caches_synced` holds, so it is known.
                Some(_) => self.original.clone().unwrap_or(Source::Absent),
            },
            sources: self
                .sources
                .iter()
                .map(|(name, known)| (name.clone(), known.get().cloned().unwrap_or(Source::Absent)))
                .collect(),
            namespaces: self.namespaces.get().map(Cow::Borrowed),
            global,
            global_deleted_out_of_band: self.deleted_global.is_some(),
            first_written: self.first_written(),
            rolled_out_revision: self.rolled_out.get(ROLLED_OUT_SECRET).map(revision),
            reported_revision: status.map_or(0, |status| status.revision),
            last_rolled_out: None,
            namespaces_have: self.namespaces_have,
            syncers: self.syncers(uptime),
            clock: Cow::Borrowed(&self.clock),
            uptime,
            daemon_set: self.agents().next().is_some(),
            nodes: Cow::Borrowed(&self.nodes.live),
            deleted_out_of_band: Cow::Borrowed(&self.deleted_out_of_band),
            node_pull_secrets: Cow::Borrowed(&self.node_pull_secrets.live),
            now,
        }
    }
}
