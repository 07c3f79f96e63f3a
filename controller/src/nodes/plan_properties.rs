//! What holds in every run of events: never more nodes at work than may be, nothing granted once too many failed, and in
//! the end every node is where it belongs. The nodes here are as simple as they can be; the plan is the real one.

#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{NodePullSecret, NodePullSecretSpec, NodePullSecretStatus, Phase};
use globalps_core::names::{EXCLUDE_LABEL, RETRY_ANNOTATION};
use globalps_core::rollout::Goal;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::input::{NodeView, NotReady, Snapshot, is_selected};
use super::labels::Labels;
use super::plan::{Aim, Plan, plan};
use crate::content::secret::Global;
use crate::content::source::{Data, Source};

const LIMIT: usize = 2;
const MAX_FAILURES: u32 = 2;

#[derive(Clone, Debug)]
enum Event {
    Joins,
    Leaves(u8),
    NotReady(u8),
    Ready(u8),
    /// Every change of the node fails from now on.
    Breaks(u8),
    Mends(u8),
    /// Its syncer does nothing from now on.
    Silent(u8),
    Speaks(u8),
    Excluded(u8),
    Included(u8),
    Retried(u8),
    Rotated,
    Deleted,
    Paused,
    Resumed,
    Minutes(u8),
    /// Somebody deletes the object of a node that is not new.
    ObjectDeleted(u8),
    /// A syncer does one thing.
    Steps(u8),
    /// The controller plans, and is killed after so many writes.
    Reconciles(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => Just(Event::Joins),
        1 => any::<u8>().prop_map(Event::Leaves),
        1 => any::<u8>().prop_map(Event::NotReady),
        2 => any::<u8>().prop_map(Event::Ready),
        1 => any::<u8>().prop_map(Event::Breaks),
        2 => any::<u8>().prop_map(Event::Mends),
        1 => any::<u8>().prop_map(Event::Silent),
        2 => any::<u8>().prop_map(Event::Speaks),
        1 => any::<u8>().prop_map(Event::Excluded),
        2 => any::<u8>().prop_map(Event::Included),
        1 => any::<u8>().prop_map(Event::Retried),
        1 => any::<u8>().prop_map(Event::ObjectDeleted),
        2 => Just(Event::Rotated),
        1 => Just(Event::Deleted),
        1 => Just(Event::Paused),
        2 => Just(Event::Resumed),
        2 => (1..8_u8).prop_map(Event::Minutes),
        20 => any::<u8>().prop_map(Event::Steps),
        12 => prop_oneof![Just(u8::MAX), 0..6_u8].prop_map(Event::Reconciles),
    ];
    proptest::collection::vec(event, 0..160)
}

#[derive(Default)]
struct SimulatedNode {
    in_force: i64,
    is_broken: bool,
    is_silent: bool,
}

const LINUX: (&str, &str) = ("kubernetes.io/os", "linux");

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    let owned = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Labels::from(&owned.collect::<BTreeMap<_, _>>())
}

struct Cluster {
    snapshot: Snapshot<'static>,
    nodes: BTreeMap<String, SimulatedNode>,
    contents: u32,
    joined: u32,
    retries: u32,
    /// Nodes that were asked for something before they had ever said anything: nobody waits for them until they rest.
    newcomers: BTreeSet<String>,
}

impl Cluster {
    fn new() -> Self {
        let mut spec = globalps_core::api::GlobalPullSecretSpec::default();
        spec.rollout.max_unavailable = IntOrString::Int(i32::try_from(LIMIT).unwrap());
        spec.rollout.max_failures = MAX_FAILURES;
        let mut cluster = Self {
            snapshot: Snapshot {
                spec,
                additional: Source::Absent,
                additional_type: None,
                original: Source::Absent,
                sources: Vec::new(),
                global: None,
                global_deleted_out_of_band: false,
                last_rolled_out: None,
                daemon_set: false,
                nodes: Cow::default(),
                deleted_out_of_band: Cow::default(),
                node_pull_secrets: Cow::default(),
                now: Timestamp::UNIX_EPOCH,
            },
            nodes: BTreeMap::new(),
            contents: 0,
            joined: 0,
            retries: 0,
            newcomers: BTreeSet::new(),
        };
        for _ in 0..4 {
            cluster.handle(&Event::Joins);
        }
        cluster.handle(&Event::Rotated);
        cluster
    }

    fn name(&self, at: u8) -> Option<String> {
        let at = usize::from(at) % self.nodes.len().max(1);
        self.nodes.keys().nth(at).cloned()
    }

    fn handle(&mut self, event: &Event) {
        let now = self.snapshot.now;
        match *event {
            Event::Joins => self.join(),
            Event::Rotated => {
                self.contents += 1;
                let auth = format!(r#"{{"auths":{{"r{}":{{"auth":"dTpw"}}}}}}"#, self.contents);
                self.snapshot.additional = Source::Found(Data(Some(auth.into_bytes())));
            }
            Event::Deleted => self.snapshot.additional = Source::Absent,
            Event::Paused => self.snapshot.spec.rollout.paused = true,
            Event::Resumed => self.snapshot.spec.rollout.paused = false,
            Event::Minutes(minutes) => {
                self.snapshot.now = now + SignedDuration::from_mins(minutes.into());
            }
            Event::Reconciles(writes) => self.reconcile(writes),
            Event::Leaves(at) => {
                if let Some(name) = self.name(at) {
                    self.nodes.remove(&name);
                    self.snapshot.nodes.to_mut().remove(&name);
                    self.snapshot.node_pull_secrets.to_mut().remove(&name);
                }
            }
            Event::ObjectDeleted(at) => {
                let is_old = |view: &NodeView| now.duration_since(view.created).as_mins() >= 10;
                if let Some(name) = self.name(at)
                    && is_old(&self.snapshot.nodes[&name])
                {
                    self.snapshot.node_pull_secrets.to_mut().remove(&name);
                }
            }
            Event::Steps(at) => {
                if let Some(name) = self.name(at) {
                    self.step(&name);
                }
            }
            Event::Retried(at) => {
                let name = self.name(at);
                self.retries += 1;
                let asked = self.retries.to_string();
                if let Some(object) =
                    name.and_then(|name| self.snapshot.node_pull_secrets.to_mut().get_mut(&name))
                {
                    object
                        .annotations_mut()
                        .insert(RETRY_ANNOTATION.to_owned(), asked);
                }
            }
            Event::NotReady(at) => self.view(at, |view| {
                view.ready = Err(NotReady {
                    since: now,
                    unknown: false,
                });
            }),
            Event::Ready(at) => self.view(at, |view| view.ready = Ok(now)),
            Event::Excluded(at) => self.view(at, |view| {
                view.labels = labels(&[LINUX, (EXCLUDE_LABEL, "true")]);
            }),
            Event::Included(at) => self.view(at, |view| {
                view.labels = labels(&[LINUX]);
            }),
            Event::Breaks(at) => self.node(at, |node| node.is_broken = true),
            Event::Mends(at) => self.node(at, |node| node.is_broken = false),
            Event::Silent(at) => self.node(at, |node| node.is_silent = true),
            Event::Speaks(at) => self.node(at, |node| node.is_silent = false),
        }
    }

    fn view(&mut self, at: u8, change: impl FnOnce(&mut NodeView)) {
        let name = self.name(at);
        if let Some(view) = name.and_then(|name| self.snapshot.nodes.to_mut().get_mut(&name)) {
            change(view);
        }
    }

    fn node(&mut self, at: u8, change: impl FnOnce(&mut SimulatedNode)) {
        let name = self.name(at);
        if let Some(node) = name.and_then(|name| self.nodes.get_mut(&name)) {
            change(node);
        }
    }

    fn join(&mut self) {
        self.joined += 1;
        let name = format!("n{:03}", self.joined);
        self.snapshot.nodes.to_mut().insert(
            name.clone(),
            NodeView {
                name: name.clone(),
                uid: name.clone(),
                version: 0,
                labels: labels(&[LINUX]),
                ready: Ok(self.snapshot.now),
                heartbeat: self.snapshot.now,
                unschedulable: false,
                is_being_deleted: false,
                is_foreign: false,
                created: self.snapshot.now,
            },
        );
        self.nodes.insert(name, SimulatedNode::default());
    }

    /// What a syncer does next.
    fn step(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name).filter(|node| !node.is_silent) else {
            return;
        };
        if !self.snapshot.daemon_set {
            return;
        }
        let global = self.snapshot.global.as_ref();
        let available = global.map_or(0, |global| global.revision);
        let Some(object) = self.snapshot.node_pull_secrets.to_mut().get_mut(name) else {
            let canary_passed = global.map_or(0, |global| global.canary_passed);
            if node.in_force == 0 && canary_passed == available {
                node.in_force = canary_passed;
            }
            return;
        };
        let generation = object.metadata.generation.unwrap();
        let told = object.status.clone().unwrap_or_default();
        let spec = &object.spec;
        let phase = if told.observed_generation == generation {
            match told.phase {
                Phase::Syncing if spec.revision == available && node.is_broken => Phase::RolledBack,
                Phase::Syncing if spec.revision == available => {
                    node.in_force = available;
                    Phase::Synced
                }
                Phase::Restoring => {
                    node.in_force = 0;
                    Phase::Restored
                }
                _ => return,
            }
        } else if spec.restore {
            Phase::Restoring
        } else if spec.revision == 0 {
            Phase::Pending
        } else if spec.revision == node.in_force {
            Phase::Synced
        } else {
            Phase::Syncing
        };
        object.status = Some(NodePullSecretStatus {
            observed_generation: generation,
            revision: node.in_force,
            phase,
            ..NodePullSecretStatus::default()
        });
    }

    fn reconcile(&mut self, writes: u8) {
        let before = self.at_work();
        let plan = plan(&self.snapshot);
        let was_halted = self.has_too_many_failures(&plan);
        let mut writes = usize::from(writes);
        if let Some(write) = plan.global.clone() {
            if writes == 0 {
                return;
            }
            writes -= 1;
            let merged = Some(write.merged);
            self.snapshot.global = Some(Global {
                merged,
                ..write.global
            });
        }
        let mut granted = 0;
        for (name, spec) in plan.assignments.iter().take(writes) {
            let is_new = !self.snapshot.node_pull_secrets.contains_key(name);
            self.write(name, spec.clone());
            let works = self.at_work().contains(name);
            if works && !before.contains(name) {
                granted += 1;
                assert!(
                    !self.snapshot.spec.rollout.paused,
                    "{name}: granted while paused"
                );
                assert!(!was_halted || spec.restore, "{name}: granted though halted");
                assert!(!is_new, "{name}: granted before its syncer said anything");
            }
            if granted > 0 {
                let at_work = self.at_work();
                assert!(at_work.len() <= LIMIT, "{at_work:?} at work after {spec:?}");
            }
        }
        match plan.aim {
            Aim::Reach(Goal::Revision(_)) => self.snapshot.daemon_set = true,
            Aim::CleanUp => {
                self.snapshot.daemon_set = false;
                self.snapshot.node_pull_secrets.to_mut().clear();
                self.snapshot.global = None;
            }
            _ => {}
        }
    }

    fn write(&mut self, name: &str, spec: NodePullSecretSpec) {
        let objects = self.snapshot.node_pull_secrets.to_mut();
        let in_force = self.nodes[name].in_force;
        match objects.get(name) {
            Some(object) if object.status.is_some() => {
                if !is_at_work(object, in_force) {
                    self.newcomers.remove(name);
                }
            }
            _ => {
                self.newcomers.insert(name.to_owned());
            }
        }
        let object = objects.entry(name.to_owned()).or_insert_with(|| {
            let mut object = NodePullSecret::new(name, NodePullSecretSpec::default());
            object.metadata.generation = Some(0);
            Box::new(object)
        });
        object.spec = spec;
        *object.metadata.generation.as_mut().unwrap() += 1;
    }

    /// Nodes that were granted something that they neither have nor failed at, but those that nobody waits for.
    fn at_work(&self) -> Vec<String> {
        let objects = self.snapshot.node_pull_secrets.iter();
        let counted = objects.filter(|(name, object)| {
            !self.newcomers.contains(*name) && is_at_work(object, self.nodes[*name].in_force)
        });
        counted.map(|(name, _)| name.clone()).collect()
    }

    fn has_too_many_failures(&self, plan: &Plan) -> bool {
        let Aim::Reach(Goal::Revision(revision)) = plan.aim else {
            return false;
        };
        let failed = self
            .snapshot
            .node_pull_secrets
            .iter()
            .filter(|(name, object)| {
                let status = object.status.clone().unwrap_or_default();
                is_selected(&self.snapshot.spec, &self.snapshot.nodes[*name])
                    && object.spec.revision == revision
                    && !object.spec.restore
                    && status.phase == Phase::RolledBack
                    && Some(status.observed_generation) == object.metadata.generation
                    && object
                        .annotations()
                        .get(RETRY_ANNOTATION)
                        .is_none_or(|asked| *asked == object.spec.retry)
            });
        failed.count() >= MAX_FAILURES as usize
    }

    /// Everybody works and everything is allowed, for as long as it takes.
    fn calm_down(&mut self) {
        self.handle(&Event::Resumed);
        let all: Vec<u8> = (0..u8::try_from(self.nodes.len()).unwrap()).collect();
        for at in &all {
            for event in [
                Event::Ready(*at),
                Event::Mends(*at),
                Event::Speaks(*at),
                Event::Retried(*at),
            ] {
                self.handle(&event);
            }
        }
        for _ in 0..40 {
            self.handle(&Event::Reconciles(u8::MAX));
            for at in &all {
                self.handle(&Event::Steps(*at));
                self.handle(&Event::Steps(*at));
            }
            self.handle(&Event::Minutes(1));
        }
    }

    fn assert_settled(&self) {
        if self.snapshot.additional == Source::Absent {
            assert!(self.snapshot.global.is_none() && self.snapshot.node_pull_secrets.is_empty());
        }
        let revision = self
            .snapshot
            .global
            .as_ref()
            .map_or(0, |global| global.revision);
        for (name, view) in self.snapshot.nodes.iter() {
            let is_selected = is_selected(&self.snapshot.spec, view);
            let expected = if is_selected { revision } else { 0 };
            assert_eq!(self.nodes[name].in_force, expected, "{name}");
        }
        let plan = plan(&self.snapshot);
        assert!(
            plan.global.is_none() && plan.assignments.is_empty(),
            "nothing is left to do"
        );
    }
}

fn is_at_work(object: &NodePullSecret, in_force: i64) -> bool {
    let Some(status) = &object.status else {
        return false;
    };
    let is_over = Some(status.observed_generation) == object.metadata.generation
        && matches!(
            status.phase,
            Phase::RolledBack | Phase::Synced | Phase::Restored
        );
    let wants_other = if object.spec.restore {
        in_force != 0
    } else {
        object.spec.revision > in_force
    };
    wants_other && !is_over
}

/// Of a fixed seed, so that a change is judged by what it changes. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` look further.
fn config() -> ProptestConfig {
    let given = ProptestConfig::default();
    let is_given = |name: &str| std::env::var_os(name).is_some();
    ProptestConfig {
        cases: if is_given("PROPTEST_CASES") {
            given.cases
        } else {
            1000
        },
        rng_seed: if is_given("PROPTEST_RNG_SEED") {
            given.rng_seed
        } else {
            RngSeed::Fixed(1)
        },
        failure_persistence: None,
        ..given
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_the_limits_hold_and_every_node_ends_where_it_belongs(events in events()) {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.handle(event);
        }
        cluster.calm_down();
        cluster.assert_settled();
    }
}
