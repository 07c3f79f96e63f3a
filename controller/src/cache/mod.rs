//! The watched objects as plain data.

mod assignments;
mod clock;
mod cluster_merge;
mod cluster_secret;
mod configuration;
mod debounce;
mod event;
mod hosted;
pub(crate) mod kept;
mod namespaces;
mod node;
mod operators;
pub(crate) mod out_of_band;
mod own_secret;
pub(crate) mod own_specs;
mod pools;
mod pull_secrets;
mod record;
mod snapshot;
mod sources;
mod state;
pub(crate) mod store;
mod syncer_pods;
mod syncers;
mod unreadable;
pub(crate) mod versioned;
mod watches;

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{GlobalPullSecret, NodePullSecret, NodePullSecretSpec};
use globalps_core::names::{
    APPLIED_SECRET, GLOBAL_SECRET, RECORD_SECRET, ROLLED_OUT_SECRET, STATE_SECRET,
};
use globalps_core::rollout::Revision;
use globalps_planner::content::secret::{self, Global, RolledOutWrite};
use globalps_planner::nodes::clock::LeaderClock;
use globalps_planner::nodes::input::NodeView;
use globalps_planner::nodes::syncers::Syncers;
use globalps_planner::targets::namespace::NamespaceView;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;
use k8s_openapi::api::core::v1::Secret;
use tokio::time::Instant;

pub(crate) use clock::uptime;
use cluster_secret::ClusterSecret;
pub(crate) use event::{CacheEvent, OriginalRef};
pub(crate) use kept::Kept;
use namespaces::{Purpose, WatchedNamespaces};
pub(crate) use operators::OperatorObjects;
use out_of_band::{OutOfBandChange, out_of_band_changes};
use own_secret::OwnSecret;
use own_specs::OwnSpecs;
pub(crate) use pools::PoolView;
pub(crate) use pull_secrets::{PullSecrets, PullSecretsWatch};
use sources::Sources;
use state::KnownState;
use store::Store;
use syncer_pods::SyncerPods;

#[cfg(test)]
pub(crate) use watches::stripped;
pub(crate) use watches::{Watch, Watches};

use crate::objects::agents::Leftover;
use crate::objects::managed::{Fingerprints, LiveObject, ManagedObject, PerObject};

#[derive(Default)]
pub(crate) struct Cache {
    sources: Sources,
    namespaces: WatchedNamespaces,
    /// The pull secrets and service accounts in namespaces.
    pub(crate) pull_secrets: PullSecrets,
    /// Objects for the delivery to operators.
    pub(crate) operators: OperatorObjects,
    global: OwnSecret,
    record: OwnSecret,
    applied: OwnSecret,
    cluster_secret: ClusterSecret,
    pools: Store<PoolView>,
    rolled_out: OwnSecret,
    config: Store<GlobalPullSecret>,
    state: KnownState,
    managed: PerObject<Store<LiveObject>>,
    /// Changes by other clients that are not reported yet.
    out_of_band_changes: Vec<OutOfBandChange>,
    /// Nodes whose `NodePullSecret` another client deleted, until it is written again.
    deleted_out_of_band: BTreeSet<String>,
    own_specs: OwnSpecs<NodePullSecretSpec>,
    nodes: Store<Box<NodeView>>,
    pub(crate) node_pull_secrets: Store<Box<NodePullSecret>>,
    clock: LeaderClock,
    pods: SyncerPods,
    /// The deviations of the syncers' objects from the last plan.
    pub(crate) syncers: Syncers,
}

impl Cache {
    /// Whether the event may change the plan.
    pub(crate) fn handle(&mut self, event: CacheEvent, now: Instant) -> bool {
        match event {
            CacheEvent::Additional(state) => self.sources.handle_additional(state, now),
            CacheEvent::Original(source) => self.sources.handle_original(source),
            CacheEvent::Source(name, source) => self.sources.handle_named(&name, source, now),
            CacheEvent::Global(event) => {
                let (changed, lost) = self.global.handle(GLOBAL_SECRET, event);
                let is_own = !self.has_record();
                self.out_of_band_changes.extend(lost.filter(|_| is_own));
                changed
            }
            CacheEvent::Record(event) => {
                let (changed, lost) = self.record.handle(RECORD_SECRET, event);
                self.out_of_band_changes.extend(lost);
                changed
            }
            CacheEvent::Applied(event) => {
                let (changed, _) = self.applied.handle(APPLIED_SECRET, event);
                changed
            }
            CacheEvent::ClusterSecret(state) => self.cluster_secret.handle(state),
            CacheEvent::Pool(event) => self.pools.handle(event),
            CacheEvent::RolledOut(event) => {
                let (changed, lost) = self.rolled_out.handle(ROLLED_OUT_SECRET, event);
                self.out_of_band_changes.extend(lost);
                changed
            }
            CacheEvent::State(event) => self.state.handle(event),
            CacheEvent::Config(event) => {
                // The user may change its spec.
                let changes =
                    out_of_band_changes("GlobalPullSecret", &self.config, &event, |_, _| false);
                self.out_of_band_changes.extend(changes);
                // Without its CustomResourceDefinition there is no configuration.
                self.config.handle_optional(event)
            }
            CacheEvent::Managed(object, event) => self.managed.get_mut(object).handle(event),
            CacheEvent::Node(event) => {
                let (applied, is_awaited) = match &event {
                    Update::Event(Event::Apply(node)) => {
                        (Some(node.name.clone()), self.is_awaited(node))
                    }
                    _ => (None, false),
                };
                let changed = self.nodes.handle(event) || is_awaited;
                // Another Node of that name had nothing.
                self.deleted_out_of_band
                    .retain(|name| self.nodes.get(name).is_some());
                if let Some(node) = applied.and_then(|name| self.nodes.get(&name)) {
                    self.clock.observe_node(node, uptime());
                }
                changed
            }
            CacheEvent::NodePullSecret(event) => self.handle_assignment(event),
            CacheEvent::Pod(event) => self.pods.handle(event),
            CacheEvent::Namespace(event) => self.namespaces.handle(event, now),
            CacheEvent::PullSecret(event) => self.pull_secrets.handle_secret(event),
            CacheEvent::ServiceAccount(event) => self.pull_secrets.handle_account(event),
            CacheEvent::Operators(event) => self.operators.handle(event),
        }
    }

    /// When the absence of a Secret or a change of namespaces takes effect; call [`Self::settle`] then.
    pub(crate) fn settles_at(&self) -> Option<Instant> {
        let times = [self.sources.settles_at(), self.namespaces.settles_at()];
        times.into_iter().flatten().min()
    }

    /// Whether the absence of a Secret or a change of namespaces takes effect now.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        self.sources.settle(now) | self.namespaces.settle(now)
    }

    /// Every watch has delivered its first list, and no later list is overdue. So a missing object is known to be absent.
    pub(crate) fn caches_synced(&self) -> bool {
        // If nothing is in force, no Secret needs to come back.
        let is_in_force = self.global().get().is_some();
        self.sources.are_synced()
            && !(is_in_force && self.sources.are_pending())
            && self.global.store.synced
            && self.record.store.synced
            && self.applied.store.synced
            && self.rolled_out.store.synced
            && self.config.synced
            && self.state.secret.synced
            && self.managed.iter().all(|(_, store)| store.synced)
            // While they aren't served, only nodes wait for them.
            && (self.node_pull_secrets.synced || self.node_pull_secrets.is_not_served)
            && self.nodes.synced
            && self.pods.are_settled()
            && self.namespaces.is_synced()
    }

    /// The API server knows the kind `GlobalPullSecret`.
    pub(crate) fn is_config_served(&self) -> bool {
        !self.config.is_not_served
    }

    /// These are watched from now on. Forgets the objects of others, and keeps the content of those that stay.
    pub(crate) fn set_watches(&mut self, watches: &[Watch]) {
        let (mut original, mut sources, mut catalog_secrets) = (None, Vec::new(), BTreeSet::new());
        let (mut pull_secrets, mut operators, mut namespaces) = (None, false, false);
        let (mut cluster_secret, mut pools) = (false, false);
        for watch in watches {
            match watch.clone() {
                Watch::Original(reference) => original = Some(reference),
                Watch::Source(name) => sources.push(name),
                Watch::ClusterSecret => cluster_secret = true,
                Watch::Pools => pools = true,
                Watch::Namespaces => namespaces = true,
                Watch::PullSecrets(watch) => pull_secrets = Some(watch),
                Watch::Operators => operators = true,
                Watch::CatalogSecret(id) => {
                    catalog_secrets.insert(id);
                }
            }
        }
        self.cluster_secret.set_watched(cluster_secret);
        if !pools {
            self.pools = Store::default();
        }
        self.sources.set_original(original);
        self.sources.set_named(&sources);
        let secrets = pull_secrets.is_some() || operators;
        if pull_secrets.as_ref() != self.pull_secrets.watch() {
            self.pull_secrets = PullSecrets::new(pull_secrets);
        }
        if operators != self.operators.is_watched {
            self.operators = OperatorObjects::new(operators);
        }
        self.operators.set_watched(catalog_secrets);
        if namespaces != self.namespaces.is_watched {
            self.namespaces = WatchedNamespaces::new(namespaces);
        }
        let scopes = self.selects_namespaces();
        self.namespaces.set_purpose(Purpose { scopes, secrets });
    }

    pub(crate) fn original_ref(&self) -> Option<&OriginalRef> {
        self.sources.original_ref.as_ref()
    }

    pub(crate) fn live_namespaces(&self) -> &BTreeMap<String, NamespaceView> {
        self.namespaces.live()
    }

    pub(crate) fn are_namespaces_synced(&self) -> bool {
        self.namespaces.is_listed()
    }

    pub(crate) fn decoded_global(&self) -> Option<Global> {
        self.global().get().map(secret::decode)
    }

    pub(crate) fn global_revision(&self) -> Option<Revision> {
        self.global().get().map(secret::revision)
    }

    /// `resourceVersion` of the current `global-pull-secret`.
    pub(crate) fn global_version(&self) -> Option<&str> {
        self.global().get()?.metadata.resource_version.as_deref()
    }

    /// The content of `global-pull-secret-rolled-out`; `None` if the Secret does not exist, or another client changed it first.
    pub(crate) fn rolled_out(&self) -> Option<RolledOutWrite> {
        self.rolled_out.get().and_then(secret::decode_rolled_out)
    }

    /// Another client deleted or changed `global-pull-secret-rolled-out`, and it is not written again yet.
    pub(crate) fn is_rolled_out_lost(&self) -> bool {
        self.rolled_out.is_lost
    }

    pub(crate) fn config(&self) -> Option<&GlobalPullSecret> {
        self.config.get(GLOBAL_SECRET)
    }

    pub(crate) fn additional(&self) -> Option<&Secret> {
        self.sources.additional.get()
    }

    fn managed(&self, object: ManagedObject) -> Option<&LiveObject> {
        self.managed.get(object).get("")
    }

    /// The syncer's objects as the API server has them.
    pub(crate) fn fingerprints(&self) -> Fingerprints {
        PerObject::of(|object| {
            let live = self.managed(object).filter(|live| !live.is_being_deleted);
            live.map(|live| live.fingerprint.clone())
        })
    }

    pub(crate) fn put_managed(&mut self, object: ManagedObject, live: LiveObject) {
        self.managed.get_mut(object).put(live);
    }

    pub(crate) fn take_out_of_band_changes(&mut self) -> Vec<OutOfBandChange> {
        std::mem::take(&mut self.out_of_band_changes)
    }

    pub(crate) fn node_uid(&self, name: &str) -> Option<&str> {
        self.nodes.get(name).map(|node| node.uid.as_str())
    }

    /// Removes an object that the controller just deleted, before the watch reports it.
    pub(crate) fn forget(&mut self, object: &Leftover) {
        match object {
            Leftover::Managed(object) => self.managed.get_mut(*object).forget_all(),
            Leftover::NodePullSecret(name) => {
                self.node_pull_secrets.forget(name);
                self.own_specs.forget(name);
            }
            Leftover::Secret(name) if name == STATE_SECRET => self.forget_state(),
            Leftover::Secret(name) if name == GLOBAL_SECRET => self.global.forget(),
            Leftover::Secret(name) if name == RECORD_SECRET => self.record.forget(),
            Leftover::Secret(name) if name == APPLIED_SECRET => self.applied.forget(),
            Leftover::Secret(name) if name == ROLLED_OUT_SECRET => self.rolled_out.forget(),
            Leftover::Secret(_) => {}
        }
    }

    /// uid of a managed object, if it exists.
    pub(crate) fn managed_uid(&self, object: ManagedObject) -> Option<&str> {
        Some(self.managed(object)?.fingerprint.uid())
    }

    pub(crate) fn put_global(&mut self, secret: Secret) {
        self.global_mut().put(secret);
    }

    pub(crate) fn put_rolled_out(&mut self, secret: Secret) {
        self.rolled_out.put(secret);
    }

    /// Stores the response to a write of this controller. Returns whether its spec differs from the known one, which
    /// means that another client wrote it at the same time; the later watch event is then no change.
    pub(crate) fn put_config(&mut self, config: GlobalPullSecret) -> bool {
        let generation = |config: &GlobalPullSecret| config.metadata.generation;
        let is_other = self.config().and_then(generation) != generation(&config);
        self.config.put(config);
        is_other
    }
}

#[cfg(test)]
mod tests;
