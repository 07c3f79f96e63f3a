//! Builds the input of the plan for nodes from the cache.

use std::borrow::Cow;
use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, MachineConfigState, SecretRef};
use globalps_core::names::{DATA_KEY, RETRY_ANNOTATION, forget_up_to, is_own_secret};
use globalps_core::rollout::RevisionId;
use globalps_core::state::is_restore_meant;
use globalps_planner::content::secret::{Global, revision};
use globalps_planner::content::source::{Data, Source};
use globalps_planner::nodes::absence::{Absence, absence};
use globalps_planner::nodes::clock::Uptime;
use globalps_planner::nodes::input::{
    Agents, Clock, Configuration, NodeView, Nodes, PullSecrets, Recorded, Snapshot,
};
use globalps_planner::nodes::provider_paths::{fit, is_on_nodes};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::debounce::Debounced;
use super::{Cache, OriginalRef};

/// Names and contents.
type NamedSources = Vec<(String, Source)>;

impl Cache {
    pub(crate) fn snapshot(&self, uptime: Uptime, now: Timestamp) -> Snapshot<'_> {
        let additional = match (&self.sources.additional_unreadable, self.additional()) {
            (Some(reason), _) => Source::Unreadable(reason.clone()),
            (None, Some(secret)) => Source::Found(Data::of(secret, DATA_KEY)),
            (None, None) => Source::Absent,
        };
        let config = self.config();
        let status = config.and_then(|config| config.status.as_ref());
        let global = self.decoded_global();
        let (sources, unnamed_sources) = self.sources();
        let restore_is_meant = config.is_some_and(is_restore_meant);
        let is_restoring = global.as_ref().is_some_and(|global| global.restoring);
        let is_of_sources = global.as_ref().is_some_and(Global::is_of_sources);
        let absence = absence(
            &additional,
            is_of_sources,
            &sources,
            &unnamed_sources,
            restore_is_meant,
        );
        let is_kept = !is_restoring && matches!(absence, Absence::OnlyUnnamed(_));
        let last = self.state().configuration.as_ref().filter(|_| is_kept);
        let last = last.map(|configuration| &configuration.spec);
        let mut spec = last.or(self.configured()).cloned().unwrap_or_default();
        let objects = self.node_pull_secrets.live.values();
        let are_nodes_known = !self.node_pull_secrets.is_not_served;
        let is_on_nodes =
            !are_nodes_known || is_on_nodes(global.as_ref(), objects.map(|object| &**object));
        let deviation = fit(&mut spec, self.provider_pods(), is_on_nodes);
        // Revisions begin with 1 again once everything was removed.
        let forgotten = status
            .map(|status| status.forgotten_revision)
            .filter(|forgotten| {
                global
                    .as_ref()
                    .is_some_and(|it| it.revision.number > *forgotten)
            });
        Snapshot {
            config: Configuration {
                spec,
                deviation,
                is_missing: config.is_none() && self.config_unreadable().is_none(),
                unreadable: self.why_not_in_force(),
                is_known: self.configured().is_some(),
                restore_is_meant,
                forget_request: config.and_then(|config| forget_up_to(config.annotations())),
            },
            secrets: PullSecrets {
                additional,
                additional_type: self.additional().and_then(|secret| secret.type_.clone()),
                retry: self
                    .additional()
                    .and_then(|secret| secret.annotations().get(RETRY_ANNOTATION).cloned()),
                original: match self.original_ref() {
                    None => Source::Absent,
                    Some(OriginalRef::Secret(secret)) if self.is_own(secret) => Source::Unreadable(
                        "globalps writes it, so it can't be the original".to_owned(),
                    ),
                    // `caches_synced` holds, so it is known.
                    Some(_) => self.sources.original.clone().unwrap_or(Source::Absent),
                },
                sources,
                unnamed_sources,
                namespaces: self.namespaces.get().map(Cow::Borrowed),
            },
            recorded: Recorded {
                global,
                global_is_lost: self.global().is_lost,
                first_written: self.first_written(),
                rolled_out_revision: self.rolled_out.get().map(revision),
                reported_revision: status.map_or(0, |status| status.revision),
                forgotten: forgotten.unwrap_or_default(),
                is_content_back: false,
                namespaces_have: None,
                has_copies: self.state().has_copies() || self.applied.get().is_some(),
            },
            agents: Agents {
                syncers: Cow::Borrowed(&self.syncers),
                daemon_set: self.has_agents(),
                has_leftovers: self.has_leftovers(),
                are_cleaned_up: false,
            },
            nodes: Nodes {
                views: self.node_views(),
                objects: Cow::Borrowed(&self.node_pull_secrets.live),
                are_known: are_nodes_known,
                unreadable: Cow::Borrowed(&self.node_pull_secrets.unreadable),
                merged: self.merged(),
                of_others: self.registries_of_others(),
                deleted_out_of_band: Cow::Borrowed(&self.deleted_out_of_band),
                changed_out_of_band: Cow::Borrowed(self.own_specs.changed()),
            },
            clock: Clock {
                leader: Cow::Borrowed(&self.clock),
                uptime,
                now,
            },
            refused: Cow::default(),
            unreadable_objects: self.unreadable(),
            new_id: RevisionId::UNKNOWN,
        }
    }

    /// Why the newest configuration is not in force, as a clause.
    fn why_not_in_force(&self) -> Option<String> {
        let unreadable = self.config_unreadable().map(ToString::to_string);
        unreadable.or_else(|| self.refused_delivery().map(str::to_owned))
    }

    /// Who else writes a node's file doesn't matter where it is only read.
    fn node_views(&self) -> Cow<'_, BTreeMap<String, Box<NodeView>>> {
        let live = &self.nodes.live;
        let is_marked =
            |node: &NodeView| !node.file_owner.is_empty() || node.machine_config.is_some();
        let delivery = self.delivery();
        if !delivery.is_observed() || !live.values().any(|node| is_marked(node)) {
            return Cow::Borrowed(live);
        }
        let mut views = live.clone();
        for node in views.values_mut() {
            node.file_owner = "";
            if delivery != DeliveryType::OpenShift {
                node.machine_config = None;
            } else if let Some(machine_config) = &mut node.machine_config
                && machine_config.state == MachineConfigState::Applies
                && self.is_paused(&machine_config.pool)
            {
                machine_config.state = MachineConfigState::Paused;
            }
        }
        Cow::Owned(views)
    }

    fn is_paused(&self, pool: &str) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.is_paused)
    }

    /// Whether globalps itself wrote the Secret. As a source, it would keep every credential that it ever contained.
    fn is_own(&self, secret: &SecretRef) -> bool {
        let namespace = self.config().and_then(kube::ResourceExt::namespace);
        namespace.as_ref() == Some(&secret.namespace) && is_own_secret(&secret.name)
    }

    /// The sources that the configuration names, and the others that are watched.
    fn sources(&self) -> (NamedSources, NamedSources) {
        let named = self.configured().map_or(&[][..], |spec| &spec.sources);
        let content = |known: &Debounced<Source>| known.get().cloned().unwrap_or(Source::Absent);
        let sources = self.sources.named.iter();
        sources
            .map(|(name, known)| (name.clone(), content(known)))
            .partition(|(name, _)| named.iter().any(|source| source.name == *name))
    }
}
