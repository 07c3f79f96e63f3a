//! Properties of every sequence of deletions, recreations and edits: nodes restore only when the Secrets in force are deleted, or
//! when their removal is meant; the last configuration is known until then; in the end nothing is left. Cache, plan and state are
//! the real ones; the only node does what it is assigned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use globalps_core::api::{
    DeliveryType, GlobalPullSecret, GlobalPullSecretSpec, NodePullSecret, NodePullSecretStatus,
    Phase, SourceRef,
};
use globalps_core::names::{
    ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, RESTORE_ANNOTATION, STATE_SECRET,
};
use globalps_core::rollout::Goal;
use globalps_core::state::{NamespaceObjects, State, restore_meant};
use globalps_planner::content::secret::{self, encode};
use globalps_planner::content::source::{Data, Source};
use globalps_planner::nodes::clock::Uptime;
use globalps_planner::nodes::input::NodeView;
use globalps_planner::nodes::plan::{Aim, Hold, Plan, plan};
use globalps_planner::properties::config;
use globalps_runtime::list_events::Event as Watch;
use globalps_runtime::list_watch::Update;
use globalps_runtime::object_watch::ObjectState;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use proptest::prelude::*;

use tokio::time::Instant;

use super::state::{needless, remembered};
use crate::cache::{self, Cache, CacheEvent};
use crate::objects::agents::Leftover;
use crate::objects::managed::ManagedObject;

const NAMES: [&str; 3] = [ADDITIONAL_SECRET, "a", "b"];
const NODE: &str = "node";

#[derive(Clone, Debug)]
enum Event {
    Written(usize),
    Deleted(usize),
    /// The controller may not read this source any more, or again.
    Forbidden(usize),
    Allowed(usize),
    /// Creates or changes the configuration: which sources it names (4: its selector has a typo), its delivery, and whether it is
    /// paused.
    Configured(u8, u8, bool),
    ConfigDeleted,
    /// `remove` records that the current spec restores on purpose.
    Meant,
    /// Operators and namespaces get copies, or nothing is left there.
    Copies(bool, bool),
    StateDeleted,
    StateDamaged,
    NewLeader,
    Passes(u8),
    Reconciles,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..3_usize).prop_map(Event::Written),
        2 => (0..3_usize).prop_map(Event::Deleted),
        1 => (1..3_usize).prop_map(Event::Forbidden),
        1 => (1..3_usize).prop_map(Event::Allowed),
        4 => (0..8_u8, 0..3_u8, any::<bool>()).prop_map(|(n, d, p)| Event::Configured(n, d, p)),
        2 => Just(Event::ConfigDeleted),
        1 => Just(Event::Meant),
        1 => any::<(bool, bool)>().prop_map(|(o, n)| Event::Copies(o, n)),
        1 => Just(Event::StateDeleted),
        1 => Just(Event::StateDamaged),
        1 => Just(Event::NewLeader),
        3 => (0..4_u8).prop_map(Event::Passes),
        12 => Just(Event::Reconciles),
    ];
    proptest::collection::vec(event, 0..80)
}

struct World {
    now: Instant,
    version: u64,
    /// The API server's objects.
    secrets: BTreeMap<&'static str, Secret>,
    forbidden: BTreeSet<&'static str>,
    config: Option<GlobalPullSecret>,
    global: Option<Secret>,
    state: Option<Secret>,
    node: Option<NodePullSecret>,
    cache: Cache,
    watches: Vec<cache::Watch>,
    /// The last configuration that was in force, as far as the controller can know it.
    last: Option<GlobalPullSecretSpec>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now: Instant::now(),
            version: 1,
            secrets: BTreeMap::new(),
            forbidden: BTreeSet::new(),
            config: None,
            global: None,
            state: None,
            node: None,
            cache: Cache::default(),
            watches: Vec::new(),
            last: None,
        };
        world.lead();
        world
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// A new leader lists everything.
    fn lead(&mut self) {
        fn list<T>(object: Option<T>) -> impl Iterator<Item = Update<T>> {
            let objects = object.into_iter().map(Watch::InitApply);
            let events = [Watch::Init].into_iter().chain(objects);
            events.chain([Watch::InitDone]).map(Update::Event)
        }
        (self.cache, self.watches) = Default::default();
        let view = NodeView::of_test(NODE, Timestamp::UNIX_EPOCH);
        let node = self.node.clone().map(Box::new);
        let additional = self.secrets.get(ADDITIONAL_SECRET).cloned();
        let mut events = vec![CacheEvent::Additional(
            additional.map_or(ObjectState::Absent, ObjectState::Present),
        )];
        events.extend(list(self.global.clone()).map(CacheEvent::Global));
        events.extend(list(None).map(CacheEvent::Record));
        events.extend(list(None).map(CacheEvent::Applied));
        events.extend(list(None).map(CacheEvent::RolledOut));
        events.extend(list(self.config.clone()).map(CacheEvent::Config));
        events.extend(list(self.state.clone()).map(CacheEvent::State));
        events.extend(list(Some(Box::new(view))).map(CacheEvent::Node));
        events.extend(list(node).map(CacheEvent::NodePullSecret));
        events.extend(list(None).map(CacheEvent::Pod));
        for object in ManagedObject::all() {
            events.extend(list(None).map(|update| CacheEvent::Managed(object, update)));
        }
        for event in events {
            self.cache.handle(event, self.now);
        }
    }

    fn source(&self, name: &str) -> Source {
        match self.secrets.get(name) {
            _ if self.forbidden.contains(name) => Source::Forbidden,
            Some(secret) => Source::Found(Data::of(secret, DATA_KEY)),
            None => Source::Absent,
        }
    }

    /// The watch reports the Secret.
    fn report(&mut self, name: &'static str) {
        let event = if name == ADDITIONAL_SECRET {
            let found = self.secrets.get(name).cloned();
            CacheEvent::Additional(found.map_or(ObjectState::Absent, ObjectState::Present))
        } else {
            CacheEvent::Source(name.to_owned(), self.source(name))
        };
        self.cache.handle(event, self.now);
    }

    fn handle(&mut self, event: &Event) {
        match *event {
            Event::Written(at) => {
                let version = Some(self.next_version());
                let auth = format!(r#"{{"auths":{{"r{}":{{"auth":"dTpw"}}}}}}"#, self.version);
                let mut secret = Secret {
                    data: Some([(DATA_KEY.to_owned(), ByteString(auth.into()))].into()),
                    ..Secret::default()
                };
                secret.metadata.name = Some(NAMES[at].to_owned());
                secret.metadata.resource_version = version;
                self.secrets.insert(NAMES[at], secret);
                self.report(NAMES[at]);
            }
            Event::Deleted(at) => {
                self.secrets.remove(NAMES[at]);
                self.report(NAMES[at]);
            }
            Event::Forbidden(at) => {
                self.forbidden.insert(NAMES[at]);
                self.report(NAMES[at]);
            }
            Event::Allowed(at) => {
                self.forbidden.remove(NAMES[at]);
                self.report(NAMES[at]);
            }
            Event::Configured(named, delivery, paused) => self.configure(named, delivery, paused),
            Event::ConfigDeleted => {
                if let Some(mut config) = self.config.take() {
                    config.metadata.resource_version = Some(self.next_version());
                    let event = CacheEvent::Config(Update::Event(Watch::Delete(config)));
                    self.cache.handle(event, self.now);
                }
            }
            Event::Meant => {
                if let Some(mut config) = self.config.clone() {
                    let uid = config.metadata.uid.clone().unwrap();
                    let meant = restore_meant(&uid, config.metadata.generation.unwrap());
                    let annotations = config.annotations_mut();
                    annotations.insert(RESTORE_ANNOTATION.to_owned(), meant);
                    self.apply_config(config);
                }
            }
            Event::Copies(operators, namespaces) => {
                if self.cache.caches_synced() {
                    let before = self.cache.state().clone();
                    self.store(State {
                        operators,
                        namespaces: namespaces.then(|| NamespaceObjects {
                            secret_name: GLOBAL_SECRET.to_owned(),
                            references: operators,
                        }),
                        ..before
                    });
                }
            }
            Event::StateDeleted => {
                if let Some(mut secret) = self.state.take() {
                    secret.metadata.resource_version = Some(self.next_version());
                    let event = CacheEvent::State(Update::Event(Watch::Delete(secret)));
                    self.cache.handle(event, self.now);
                }
            }
            Event::StateDamaged => {
                if let Some(mut secret) = self.state.clone() {
                    secret.data = None;
                    secret.metadata.resource_version = Some(self.next_version());
                    self.state = Some(secret.clone());
                    let event = CacheEvent::State(Update::Event(Watch::Apply(secret)));
                    self.cache.handle(event, self.now);
                }
            }
            Event::NewLeader => {
                let stored = self.state.as_ref().and_then(State::of);
                if stored.is_none() {
                    self.last = None;
                }
                self.lead();
            }
            Event::Passes(seconds) => {
                self.now += Duration::from_secs(seconds.into());
                self.cache.settle(self.now);
            }
            Event::Reconciles => self.reconcile(),
        }
    }

    fn configure(&mut self, named: u8, delivery: u8, paused: bool) {
        let mut spec = GlobalPullSecretSpec::default();
        spec.rollout.paused = paused;
        spec.kubelet.delivery = [
            DeliveryType::ConfigFile,
            DeliveryType::CredentialProvider,
            DeliveryType::None,
        ][usize::from(delivery)];
        if named & 4 > 0 {
            spec.node_selector = [("typo".to_owned(), String::new())].into();
        }
        for (bit, name) in [(1, "a"), (2, "b")] {
            if named & bit > 0 {
                spec.sources.push(SourceRef {
                    name: name.to_owned(),
                    scope: None,
                });
            }
        }
        let mut config = GlobalPullSecret::new(GLOBAL_SECRET, spec);
        let known = self.config.as_ref();
        let uid = known.and_then(|known| known.metadata.uid.clone());
        config.metadata.uid = uid.or_else(|| Some(format!("created at {}", self.version)));
        let generation = known.and_then(|known| known.metadata.generation);
        config.metadata.generation = Some(generation.unwrap_or_default() + 1);
        let uid = known.and_then(|known| known.metadata.uid.clone());
        config.metadata.uid = Some(uid.unwrap_or_else(|| format!("u{}", self.version)));
        config.metadata.annotations = known.and_then(|known| known.metadata.annotations.clone());
        self.apply_config(config);
    }

    fn apply_config(&mut self, mut config: GlobalPullSecret) {
        config.metadata.resource_version = Some(self.next_version());
        self.config = Some(config.clone());
        let event = CacheEvent::Config(Update::Event(Watch::Apply(config)));
        self.cache.handle(event, self.now);
    }

    /// Names of the Secrets that gave the content in force; `None`: none is in force, or a restore has begun.
    fn in_force(&self) -> Option<Vec<String>> {
        let global = self.global.as_ref().map(secret::decode)?;
        let additional = global.last_additional.iter();
        let additional = additional.map(|_| ADDITIONAL_SECRET.to_owned());
        let names = additional.chain(global.last_sources.into_keys()).collect();
        (!global.restoring).then_some(names)
    }

    fn reconcile(&mut self) {
        let names = self.cache.wanted_sources();
        let names = names.into_iter();
        let watches: Vec<_> = names.map(cache::Watch::Source).collect();
        if watches != self.watches {
            self.cache.set_watches(&watches);
            self.watches = watches;
            for name in NAMES.into_iter().filter(|name| *name != ADDITIONAL_SECRET) {
                self.report(name);
            }
        }
        if !self.cache.caches_synced() {
            return;
        }
        let now = Timestamp::UNIX_EPOCH;
        let snapshot = self.cache.snapshot(Uptime::ZERO, now);
        let plan = plan(&snapshot);
        let is_needed = snapshot.needs_configuration() || plan.global.is_some();
        if plan.aim == Aim::Hold(Hold::SourcesRemoved)
            && let Some(last) = &self.last
        {
            assert_eq!(snapshot.config.spec, *last, "the last one is in force");
        }
        let mut live = snapshot.secrets.sources.iter();
        let is_one_named = live.any(|(_, found)| *found != Source::Absent);
        drop(snapshot);
        self.assert_only_deleted_secrets_restore(&plan);
        self.assert_sources_stay(&plan, is_one_named);
        self.remember(&plan, is_needed);
        self.carry_out(plan);
    }

    fn assert_only_deleted_secrets_restore(&self, plan: &Plan) {
        let begins = matches!(plan.aim, Aim::Reach(Goal::Restore) | Aim::CleanUp);
        let Some(in_force) = self.in_force().filter(|_| begins) else {
            return;
        };
        let config = self.config.as_ref().expect("defaults restore nothing");
        let is_meant = globalps_core::state::is_restore_meant(config);
        let last = self.last.iter().flat_map(|spec| &spec.sources);
        let named = last.map(|source| source.name.clone());
        for name in in_force.into_iter().chain(named) {
            let exists = self.secrets.contains_key(&*name);
            assert!(!exists || is_meant, "restores although `{name}` exists");
        }
    }

    /// Where sources gave everything, a configuration without a source takes none of them away, whatever else there is by now.
    fn assert_sources_stay(&self, plan: &Plan, is_one_named: bool) {
        let (Some(write), Some(in_force)) = (&plan.global, self.in_force()) else {
            return;
        };
        let config = self.config.as_ref();
        let is_meant = config.is_some_and(globalps_core::state::is_restore_meant);
        if is_one_named || is_meant || in_force.iter().any(|name| name == ADDITIONAL_SECRET) {
            return;
        }
        for name in in_force {
            let stays = write.global.last_sources.contains_key(&name);
            let exists = self.secrets.contains_key(&*name);
            assert!(stays || !exists, "`{name}` goes without a word");
        }
    }

    fn remember(&mut self, plan: &Plan, is_needed: bool) {
        let is_kept = plan.aim == Aim::Hold(Hold::SourcesRemoved);
        self.cache.keep_configuration(is_kept);
        let before = self.cache.state().clone();
        let config = self.cache.config().filter(|_| !is_kept).cloned();
        if let Some(config) = &config
            && is_needed
        {
            let selector = self.last.as_ref().map(|last| last.node_selector.clone());
            let mut spec = config.spec.clone();
            if let Some(selector) = selector.filter(|_| plan.keeps_selector) {
                spec.node_selector = selector;
            }
            self.last = Some(spec);
        }
        let next = remembered(&before, config.as_ref(), is_needed, plan.keeps_selector);
        self.store(next);
        if !is_needed && self.state.is_none() {
            // Nothing is in force, and nobody has anything of it.
            self.last = None;
        }
    }

    fn store(&mut self, next: State) {
        let next = Some(next).filter(|state| !state.is_empty());
        if self.cache.is_stored(next.as_ref()) {
            return;
        }
        if let Some(state) = next {
            let mut secret = state.secret();
            secret.metadata.resource_version = Some(self.next_version());
            self.state = Some(secret.clone());
            self.cache.put_state(secret);
        } else {
            self.state = None;
            self.cache.forget_state();
        }
    }

    fn carry_out(&mut self, plan: Plan) {
        if let Some(write) = &plan.global {
            assert!(!matches!(plan.aim, Aim::Hold(_)));
            let mut secret = encode(write);
            secret.metadata.resource_version = Some(self.next_version());
            self.global = Some(secret.clone());
            self.cache.put_global(secret);
        }
        for (_, spec) in plan.assignments {
            assert!(!spec.restore || !matches!(plan.aim, Aim::Hold(_)));
            let mut object = NodePullSecret::new(NODE, spec.clone());
            let generation = self.node.as_ref().and_then(|n| n.metadata.generation);
            let generation = generation.unwrap_or_default() + 1;
            object.metadata.generation = Some(generation);
            object.metadata.resource_version = Some(self.next_version());
            let restored = spec.restore || spec.revision == 0;
            object.status = Some(NodePullSecretStatus {
                observed_generation: generation,
                revision: if restored { 0 } else { spec.revision },
                restored,
                phase: if restored {
                    Phase::Restored
                } else {
                    Phase::Synced
                },
                ..NodePullSecretStatus::default()
            });
            self.node = Some(object.clone());
            self.cache.put_node_pull_secret(object);
        }
        if plan.removes_agents {
            self.node = None;
            self.forget(&[]);
        }
        if plan.aim == Aim::CleanUp {
            (self.global, self.node) = (None, None);
            let has_copies = self.cache.state().has_copies();
            let needless = needless(self.cache.state());
            if needless.contains(&STATE_SECRET) {
                self.state = None;
            }
            self.last = None;
            self.forget(&needless);
            self.forget(&[GLOBAL_SECRET]);
            let is_known = self.cache.state().has_copies();
            assert_eq!(is_known, has_copies, "what operators and namespaces have");
        }
    }

    /// The controller deleted the agents' objects and these Secrets.
    fn forget(&mut self, secrets: &[&str]) {
        let managed = ManagedObject::all().map(Leftover::Managed);
        let nodes = self.cache.node_pull_secrets.names().into_iter();
        let secrets = secrets
            .iter()
            .map(|name| Leftover::Secret((*name).to_owned()));
        let all = managed
            .chain(nodes.map(Leftover::NodePullSecret))
            .chain(secrets);
        for object in all {
            self.cache.forget(&object);
        }
    }

    fn pass(&mut self) {
        for _ in 0..12 {
            self.handle(&Event::Passes(3));
            self.handle(&Event::Reconciles);
        }
    }

    /// Every Secret is deleted, and there is a configuration that lets nodes change.
    fn calm_down(&mut self) {
        for at in 0..NAMES.len() {
            self.handle(&Event::Allowed(at));
            self.handle(&Event::Deleted(at));
        }
        self.handle(&Event::Configured(0, 0, false));
        self.pass();
        let has_copies = self.cache.state().has_copies();
        assert_eq!(self.state.is_some(), has_copies, "the state says so");
        self.handle(&Event::Copies(false, false));
        self.pass();
        let left = [
            self.global.is_some(),
            self.state.is_some(),
            self.node.is_some(),
        ];
        assert_eq!(left, [false; 3], "global-pull-secret, state, node");
    }
}

#[test]
fn a_source_that_never_gave_anything_counts_as_well() {
    let mut world = World::new();
    for event in [
        Event::Written(0),
        Event::Configured(0, 0, false),
        Event::Reconciles,
        Event::Written(1),
        Event::Forbidden(1),
        Event::Configured(1, 0, false),
        Event::Reconciles,
        Event::Deleted(0),
        Event::ConfigDeleted,
        Event::Passes(3),
        Event::Reconciles,
        Event::Configured(0, 0, false),
        Event::Passes(3),
        Event::Reconciles,
        Event::Passes(3),
        Event::Reconciles,
    ] {
        world.handle(&event);
    }
    assert_eq!(world.in_force(), Some(vec![ADDITIONAL_SECRET.to_owned()]));
}

#[test]
fn a_new_additional_secret_does_not_end_the_hold_of_a_removal() {
    let mut world = World::new();
    let events = [
        Event::Written(1),
        Event::Configured(1, 0, false),
        Event::Reconciles,
        Event::Configured(0, 0, false),
        Event::Passes(3),
        Event::Reconciles,
        Event::Written(0),
        Event::Passes(3),
        Event::Reconciles,
        Event::NewLeader,
        Event::Reconciles,
        Event::Passes(3),
        Event::Reconciles,
    ];
    for event in &events {
        world.handle(event);
    }
    assert_eq!(world.in_force(), Some(vec!["a".to_owned()]));
    let state = world.state.as_ref().and_then(State::of).unwrap();
    let last = state.configuration.unwrap().spec;
    assert_eq!(last.sources.len(), 1, "it can be restored");
    world.handle(&Event::Meant);
    world.handle(&Event::Reconciles);
    let delivered = Some(vec![ADDITIONAL_SECRET.to_owned()]);
    assert_eq!(world.in_force(), delivered, "once it is meant");
}

#[test]
fn what_an_empty_configuration_replaced_is_remembered() {
    let mut world = World::new();
    for event in [
        Event::Written(0),
        Event::Written(1),
        Event::Configured(1, 1, false),
        Event::Reconciles,
        Event::ConfigDeleted,
        Event::Passes(3),
        Event::Reconciles,
        Event::Configured(0, 0, true),
        Event::Passes(3),
        Event::Reconciles,
        Event::Configured(0, 0, false),
        Event::Reconciles,
    ] {
        world.handle(&event);
    }
    let state = world.state.as_ref().and_then(State::of).unwrap();
    let live = world.config.as_ref().map(|config| &config.spec);
    let last = state.to_restore(live).unwrap().spec;
    assert_eq!(last.kubelet.delivery, DeliveryType::CredentialProvider);
    assert_eq!(last.sources.len(), 1);
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn only_deleted_secrets_and_a_removal_that_is_meant_restore(events in events()) {
        let mut world = World::new();
        for event in &events {
            world.handle(event);
        }
        world.calm_down();
    }
}
