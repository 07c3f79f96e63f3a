//! Properties of every sequence of events: the limit on disrupted nodes is never exceeded, nothing is assigned when it must not
//! be, there is no revision that the controller did not write, no healthy node fails, and in the end every node reaches its goal.
//! The simulated nodes are as simple as possible, and one of them may lie; each has a clock of its own, as has each leader. The
//! plan is the real one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use globalps_core::api::{
    DeliveryType, MAX_REVISION, NodePullSecret, NodePullSecretSpec, NodePullSecretStatus,
    OnFailure, Phase,
};
use globalps_core::names::{ABANDON_ANNOTATION, EXCLUDE_LABEL, RETRY_ANNOTATION};
use globalps_core::rollout::{self, DEADLINE, Goal, Revision, RevisionId, UNREACHABLE_AFTER};
use globalps_core::virtual_nodes::VirtualMark;
use globalps_provider::Delivery;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use proptest::prelude::*;

use super::clock::Uptime;
use super::input::{NodeView, NotReady, Snapshot, is_selected};
use super::labels::NodeLabels;
use super::plan::tests::with_history;
use super::plan::{Aim, Hold, Plan, plan};
use super::syncers::{Cause, Down};
use crate::content::secret::Global;
use crate::content::source::{Data, Source};
use crate::properties::config;

const LIMIT: usize = 2;
/// One more than the number of liars.
const MAX_FAILURES: usize = 2;
/// Seconds by which a clock is ahead.
const OFFSETS: [i64; 8] = [0, 1, -1, 20, -3600, 3600, -86400, 86400];
const CANARY_MIN_READY: SignedDuration = SignedDuration::from_secs(90);
/// Only a node that joined more recently bootstraps.
const YOUNG: SignedDuration = SignedDuration::from_mins(10);
const BAD: &str = r#"{"auths":{"c":{"auth":"cGFudHM="}}}"#;

#[derive(Clone, Debug)]
enum Event {
    Joins,
    /// A virtual node joins, known as one, or not: no syncer ever runs there.
    JoinsWithoutSyncer(bool),
    Leaves(u8),
    NotReady(u8),
    Ready(u8),
    /// It is lost for a moment, between two plans.
    Flaps(u8),
    /// Every change of the node fails from now on.
    Breaks(u8),
    /// Its disk is full from now on.
    Fills(u8),
    Mends(u8),
    /// Its syncer is unresponsive from now on.
    Unresponsive(u8),
    /// Its syncer's pod doesn't run from now on, and the leader sees that.
    Down(u8),
    Responds(u8),
    /// A user gives it the label of a virtual node, which its syncer leaves.
    Marked(u8),
    Unmarked(u8),
    Excluded(u8),
    Included(u8),
    Retried(u8),
    Rotated,
    SourceRotated,
    SourceDeleted,
    Invalid,
    Deleted,
    ConfigDeleted,
    ConfigApplied,
    Paused,
    Resumed,
    /// The delivery changes to the other one.
    DeliversOtherwise,
    Minutes(u8),
    /// The clock of a node is set to this one of [`OFFSETS`].
    ClockSet(u8, u8),
    /// Another leader, whose clock has this offset.
    LeaderChanges(u8),
    /// Another client deletes the object of a node.
    ObjectDeleted(u8),
    /// Another client assigns this revision to a node, or restores it (0).
    Forged(u8, i64),
    /// The same while no controller runs.
    ForgedUnseen(u8, i64),
    /// The node's disk is the one of another node, or of another cluster.
    Cloned(u8),
    /// `global-pull-secret` is lost while no controller runs, and the other Secrets, too.
    SecretLost,
    AllSecretsLost,
    /// Another client changes `global-pull-secret`; the same while no controller runs.
    SecretEdited,
    SecretEditedUnseen,
    AllObjectsDeleted,
    /// The lying node reports this phase, for this generation of its spec, with this revision.
    Lies(u8, u8, i64),
    /// A syncer takes one step.
    Steps(u8),
    /// The controller plans, and is killed after this many writes.
    Reconciles(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let revision = prop_oneof![0..9_i64, Just(i64::MAX), Just(i64::MIN), Just(i64::MAX - 1)];
    let forged = prop_oneof![0..9_i64, Just(99), Just(MAX_REVISION)];
    let event = prop_oneof![
        2 => Just(Event::Joins),
        1 => any::<bool>().prop_map(Event::JoinsWithoutSyncer),
        1 => any::<u8>().prop_map(Event::Leaves),
        1 => any::<u8>().prop_map(Event::NotReady),
        2 => any::<u8>().prop_map(Event::Ready),
        1 => any::<u8>().prop_map(Event::Flaps),
        1 => any::<u8>().prop_map(Event::Breaks),
        1 => any::<u8>().prop_map(Event::Fills),
        2 => any::<u8>().prop_map(Event::Mends),
        1 => any::<u8>().prop_map(Event::Unresponsive),
        1 => any::<u8>().prop_map(Event::Down),
        1 => any::<u8>().prop_map(Event::Marked),
        2 => any::<u8>().prop_map(Event::Unmarked),
        2 => any::<u8>().prop_map(Event::Responds),
        1 => any::<u8>().prop_map(Event::Excluded),
        2 => any::<u8>().prop_map(Event::Included),
        1 => any::<u8>().prop_map(Event::Retried),
        1 => any::<u8>().prop_map(Event::ObjectDeleted),
        2 => (any::<u8>(), forged.clone()).prop_map(|(at, revision)| Event::Forged(at, revision)),
        1 => (any::<u8>(), forged).prop_map(|(at, revision)| Event::ForgedUnseen(at, revision)),
        1 => any::<u8>().prop_map(Event::Cloned),
        1 => prop_oneof![Just(Event::SecretLost), Just(Event::AllSecretsLost)],
        1 => prop_oneof![Just(Event::SecretEdited), Just(Event::SecretEditedUnseen)],
        1 => Just(Event::AllObjectsDeleted),
        2 => Just(Event::Rotated),
        1 => prop_oneof![Just(Event::SourceRotated), Just(Event::SourceDeleted)],
        1 => prop_oneof![Just(Event::Invalid), Just(Event::Deleted)],
        1 => Just(Event::ConfigDeleted),
        2 => Just(Event::ConfigApplied),
        1 => Just(Event::Paused),
        1 => Just(Event::DeliversOtherwise),
        2 => Just(Event::Resumed),
        2 => (1..12_u8).prop_map(Event::Minutes),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(at, offset)| Event::ClockSet(at, offset)),
        1 => any::<u8>().prop_map(Event::LeaderChanges),
        3 => (any::<u8>(), any::<u8>(), revision).prop_map(|(p, g, r)| Event::Lies(p, g, r)),
        20 => any::<u8>().prop_map(Event::Steps),
        12 => prop_oneof![Just(u8::MAX), 0..6_u8].prop_map(Event::Reconciles),
    ];
    proptest::collection::vec(event, 0..160)
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct SimulatedNode {
    /// The revision on its disk; without an id its journal is another node's.
    in_force: Revision,
    /// What its object really assigns: another client wrote it, and the controller has seen that.
    forged: Option<NodePullSecretSpec>,
    /// The same, unseen: it looks like an assignment of the controller that its syncer may be following.
    was_forged: bool,
    /// Another client restored it: what follows is not the controller's doing.
    is_disturbed: bool,
    /// What it is changing to.
    target: Revision,
    /// How far its clock is ahead, in seconds.
    offset: i64,
    joined: Uptime,
    /// Its disk was replaced, and its syncer has not reported since. The controller can't know that it needs a restart.
    is_replaced: bool,
    /// Its last assignment, and whether its Node was `NotReady` since.
    assigned: Uptime,
    was_not_ready: bool,
    not_ready_since: Option<Uptime>,
    /// When it last reported a phase for a generation.
    reported: (Uptime, (i64, Phase)),
    /// It is in the middle of a change: when that was assigned, which starts the deadline, and for which generation.
    changing: Option<(Uptime, i64)>,
    /// It was new and empty when the change was assigned: nothing ran there.
    bootstraps: bool,
    /// Delivery of the revision in force; or, during a change, whether that needs no restart.
    delivery: Delivery,
    in_place: bool,
    is_broken: bool,
    is_full: bool,
    is_unresponsive: bool,
    is_down: bool,
    /// No syncer ever runs there.
    is_without_syncer: bool,
    lies: bool,
    /// Its object was deleted while no controller ran and the node was new, and its syncer has not reported since: it looks like
    /// a node that never had anything. A restore waits for it for only two minutes.
    is_unknowable: bool,
}

const MARK: VirtualMark = VirtualMark::Label("type", "kwok");

const LINUX: (&str, &str) = ("kubernetes.io/os", "linux");

fn labels(pairs: &[(&str, &str)]) -> NodeLabels {
    let pairs = pairs.iter();
    let owned = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    NodeLabels::from(&owned.collect::<BTreeMap<_, _>>())
}

fn content(number: u32) -> Source {
    // Some need another configuration of the provider.
    let port = if number.is_multiple_of(3) {
        format!(":{number}")
    } else {
        String::new()
    };
    let auth = format!(r#"{{"auths":{{"r{number}{port}":{{"auth":"dTpw"}}}}}}"#);
    Source::Found(Data(Some(auth.into_bytes())))
}

struct Cluster {
    snapshot: Snapshot<'static>,
    /// The last additional Secret that was rolled out, if it can be read.
    history: Option<Source>,
    nodes: BTreeMap<String, SimulatedNode>,
    /// Delivery of every revision that was ever written.
    deliveries: BTreeMap<Revision, Delivery>,
    /// How often a Secret was lost.
    losses: i64,
    ids: u64,
    contents: u32,
    joined: u32,
    retries: u32,
    /// How far the leader's clock is ahead.
    leader_offset: i64,
}

impl Cluster {
    fn new() -> Self {
        let mut spec = globalps_core::api::GlobalPullSecretSpec::default();
        spec.rollout.max_unavailable = IntOrString::Int(i32::try_from(LIMIT).unwrap());
        spec.rollout.max_failures = IntOrString::Int(i32::try_from(MAX_FAILURES).unwrap());
        spec.rollout.canary.min_ready_seconds = u32::try_from(CANARY_MIN_READY.as_secs()).unwrap();
        let mut cluster = Self {
            snapshot: super::testing::snapshot(Source::Absent, None, ""),
            history: None,
            nodes: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            losses: 0,
            ids: 0,
            contents: 0,
            joined: 0,
            retries: 0,
            leader_offset: 0,
        };
        cluster.snapshot.config.spec = spec;
        cluster.snapshot.secrets.sources = vec![("one".to_owned(), Source::Absent)];
        for _ in 0..5 {
            cluster.handle(&Event::Joins);
        }
        cluster.nodes.values_mut().next().unwrap().lies = true;
        cluster.handle(&Event::Rotated);
        cluster
    }

    fn plan(&self) -> Plan {
        match &self.history {
            Some(last) => with_history(&self.snapshot, last),
            None => plan(&self.snapshot),
        }
    }

    fn name(&self, at: u8) -> Option<String> {
        let at = usize::from(at) % self.nodes.len().max(1);
        self.nodes.keys().nth(at).cloned()
    }

    fn objects(&mut self) -> &mut BTreeMap<String, Box<NodePullSecret>> {
        self.snapshot.nodes.objects.to_mut()
    }

    /// The true time.
    fn time(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.snapshot.clock.uptime
    }

    fn by_node(&self, name: &str) -> Timestamp {
        self.time() + SignedDuration::from_secs(self.nodes[name].offset)
    }

    fn passes(&mut self, time: SignedDuration) {
        self.snapshot.clock.uptime += time;
        self.snapshot.clock.now = self.time() + SignedDuration::from_secs(self.leader_offset);
    }

    /// Its kubelet posts its status.
    fn post(&mut self, name: &str) {
        let heartbeat = self.by_node(name);
        let view = self.snapshot.nodes.views.to_mut().get_mut(name).unwrap();
        if view.ready.is_ok() {
            view.heartbeat = heartbeat;
        }
    }

    fn is_young(&self, name: &str) -> bool {
        self.snapshot.clock.uptime - self.nodes[name].joined < YOUNG
    }

    /// To a new leader whose clock is behind a node is younger than it is.
    fn seems_young(&self, name: &str) -> bool {
        let age = self.snapshot.clock.uptime - self.nodes[name].joined;
        let by_leader = age + SignedDuration::from_secs(self.leader_offset);
        self.is_young(name) || (SignedDuration::from_mins(-1)..YOUNG).contains(&by_leader)
    }

    fn handle(&mut self, event: &Event) {
        let now = self.time();
        match *event {
            Event::Joins => drop(self.join()),
            Event::JoinsWithoutSyncer(is_known) => {
                let name = self.join();
                let node = self.nodes.get_mut(&name).unwrap();
                node.is_without_syncer = true;
                node.is_down = true;
                let view = self.snapshot.nodes.views.to_mut().get_mut(&name).unwrap();
                view.virtual_by = is_known.then_some(MARK);
            }
            Event::Rotated => {
                self.contents += 1;
                self.snapshot.secrets.additional = content(self.contents);
            }
            Event::SourceRotated => {
                self.contents += 1;
                self.snapshot.secrets.sources[0].1 = content(self.contents);
            }
            Event::SourceDeleted => self.snapshot.secrets.sources[0].1 = Source::Absent,
            Event::Invalid => {
                self.snapshot.secrets.additional = Source::Found(Data(Some(BAD.into())));
            }
            Event::Deleted => self.snapshot.secrets.additional = Source::Absent,
            Event::ConfigDeleted => self.snapshot.config.is_missing = true,
            Event::ConfigApplied => self.snapshot.config.is_missing = false,
            Event::DeliversOtherwise => {
                self.contents += 1;
                let delivery = &mut self.snapshot.config.spec.kubelet.delivery;
                *delivery = match *delivery {
                    DeliveryType::ConfigFile => DeliveryType::CredentialProvider,
                    DeliveryType::CredentialProvider
                    | DeliveryType::None
                    | DeliveryType::Observe
                    | DeliveryType::OpenShift => DeliveryType::ConfigFile,
                };
            }
            Event::Paused => self.snapshot.config.spec.rollout.paused = true,
            Event::Resumed => self.snapshot.config.spec.rollout.paused = false,
            Event::Minutes(minutes) => {
                // A running syncer responds within a minute.
                for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
                    self.step(&name);
                }
                self.observe_reports();
                let objects = &self.snapshot.nodes.objects;
                for (name, node) in &mut self.nodes {
                    let object = objects.get(name);
                    node.is_unknowable |= node.in_force != Revision::NONE
                        && object.is_some_and(|o| o.status.is_none() && !o.spec.revoked);
                }
                for _ in 0..minutes {
                    self.passes(SignedDuration::from_mins(1));
                    if self.snapshot.clock.uptime.as_secs() % 300 < 60 {
                        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
                            self.post(&name);
                        }
                    }
                }
            }
            Event::ClockSet(at, offset) => self.node(at, |node| {
                node.offset = OFFSETS[usize::from(offset) % OFFSETS.len()];
            }),
            Event::LeaderChanges(offset) => {
                self.leader_offset = OFFSETS[usize::from(offset) % OFFSETS.len()];
                self.passes(SignedDuration::ZERO);
                self.snapshot.clock.leader = Cow::default();
                self.snapshot.agents.syncers = Cow::default();
                for name in &*std::mem::take(&mut self.snapshot.nodes.deleted_out_of_band) {
                    self.nodes.get_mut(name).unwrap().is_unknowable = true;
                }
            }
            Event::Reconciles(writes) => self.reconcile(writes),
            Event::Leaves(at) => {
                if let Some(name) = self.name(at) {
                    self.nodes.remove(&name);
                    self.snapshot.nodes.views.to_mut().remove(&name);
                    self.snapshot
                        .nodes
                        .deleted_out_of_band
                        .to_mut()
                        .remove(&name);
                    self.objects().remove(&name);
                }
            }
            Event::ObjectDeleted(at) => {
                if let Some(name) = self.name(at) {
                    self.delete_object(&name);
                }
            }
            Event::Forged(at, revision) => self.forge(at, revision, true),
            Event::ForgedUnseen(at, revision) => self.forge(at, revision, false),
            Event::Cloned(at) => self.clone_disk(at),
            Event::SecretLost => self.lose_secret(),
            Event::SecretEdited => {
                self.snapshot.recorded.global_is_lost = self.snapshot.recorded.global.is_some();
            }
            Event::SecretEditedUnseen => {
                if let Some(edited) = self.snapshot.recorded.global.clone() {
                    self.lose_secret();
                    // As it is decoded.
                    self.snapshot.recorded.global_is_lost = self.snapshot.recorded.global.is_none();
                    self.snapshot
                        .recorded
                        .global
                        .get_or_insert(edited.unconfirmed());
                }
            }
            Event::AllSecretsLost => {
                self.lose_secret();
                self.snapshot.recorded.rolled_out_revision = None;
                self.snapshot.recorded.reported_revision = 0;
            }
            Event::AllObjectsDeleted => {
                for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
                    self.delete_object(&name);
                }
            }
            Event::Lies(phase, generation, revision) => self.lie(phase, generation, revision),
            Event::Steps(at) => {
                if let Some(name) = self.name(at) {
                    self.step(&name);
                }
            }
            Event::Retried(at) => {
                self.retries += 1;
                let asked = self.retries.to_string();
                let name = self.name(at);
                if let Some(object) = name.and_then(|name| self.objects().get_mut(&name)) {
                    object
                        .annotations_mut()
                        .insert(RETRY_ANNOTATION.to_owned(), asked);
                }
            }
            Event::NotReady(at) => {
                self.view(at, |view| {
                    view.ready = Err(NotReady {
                        since: now,
                        unknown: true,
                    });
                });
                let now = self.snapshot.clock.uptime;
                self.node(at, |node| {
                    node.was_not_ready = true;
                    node.not_ready_since.get_or_insert(now);
                });
            }
            Event::Ready(at) => {
                if let Some(name) = self.name(at) {
                    let now = self.by_node(&name);
                    self.view(at, |view| view.ready = Ok(now));
                    self.node(at, |node| node.not_ready_since = None);
                    self.post(&name);
                }
            }
            Event::Flaps(at) => {
                for event in [Event::NotReady(at), Event::Ready(at)] {
                    self.handle(&event);
                    self.observe();
                }
            }
            Event::Excluded(at) => self.view(at, |view| {
                view.labels = labels(&[LINUX, (EXCLUDE_LABEL, "true")]);
            }),
            Event::Included(at) => self.view(at, |view| view.labels = labels(&[LINUX])),
            Event::Breaks(at) => self.node(at, |node| node.is_broken = true),
            Event::Fills(at) => self.node(at, |node| node.is_full = true),
            Event::Mends(at) => self.node(at, |node| {
                node.is_broken = false;
                node.is_full = false;
            }),
            Event::Unresponsive(at) => self.node(at, |node| node.is_unresponsive = true),
            Event::Responds(at) => self.node(at, |node| {
                node.is_unresponsive = false;
                node.is_down = node.is_without_syncer;
            }),
            Event::Down(at) => self.node(at, |node| node.is_down = true),
            Event::Marked(at) => {
                self.view(at, |view| view.virtual_by = Some(MARK));
                self.node(at, |node| node.is_down = true);
                if let Some(name) = self.name(at) {
                    self.see_deletion(&name);
                }
            }
            Event::Unmarked(at) => {
                let name = self.name(at);
                if name.is_some_and(|name| !self.nodes[&name].is_without_syncer) {
                    self.view(at, |view| view.virtual_by = None);
                    self.node(at, |node| node.is_down = false);
                }
            }
        }
        self.observe_reports();
        self.assert_limit(event);
    }

    /// When each node began to report what it reports now.
    fn observe_reports(&mut self) {
        let now = self.snapshot.clock.uptime;
        for (name, node) in &mut self.nodes {
            let object = self.snapshot.nodes.objects.get(name);
            let status = object.and_then(|object| object.status.as_ref());
            let report = status.map_or((0, Phase::Pending), |status| {
                (status.observed_generation, status.phase.clone())
            });
            if node.reported.1 != report {
                node.reported = (now, report);
            }
        }
    }

    /// Except that of a new node whose syncer is unresponsive: it looks like one that never had anything. That of a node with the
    /// mark of a virtual one is known only to a controller that saw it.
    fn delete_object(&mut self, name: &str) {
        let node = &self.nodes[name];
        let is_silent = node.is_unresponsive || node.is_down;
        if !node.is_without_syncer && (!is_silent || !self.is_young(name)) {
            self.objects().remove(name);
            self.see_deletion(name);
        }
    }

    fn see_deletion(&mut self, name: &str) {
        let has_something = self.nodes[name].in_force != Revision::NONE;
        let is_deleted = !self.snapshot.nodes.objects.contains_key(name);
        if has_something && is_deleted && self.snapshot.nodes.views[name].virtual_by.is_some() {
            let deleted = self.snapshot.nodes.deleted_out_of_band.to_mut();
            deleted.insert(name.to_owned());
        }
    }

    /// The syncer that starts there reports again.
    fn clone_disk(&mut self, at: u8) {
        let Some(name) = self.name(at) else { return };
        let node = self.nodes.get_mut(&name).unwrap();
        let object = self.snapshot.nodes.objects.to_mut().get_mut(&name);
        if let Some(status) = object.and_then(|object| object.status.as_mut())
            && node.changing.is_none()
            && !node.lies
        {
            status.observed_generation = 0;
            node.is_replaced = true;
            node.in_force = Revision::new(3, RevisionId::UNKNOWN);
            node.delivery = Delivery::ConfigFile;
        }
    }

    fn lose_secret(&mut self) {
        // A restore without the Secret ends with the objects alone.
        if self
            .snapshot
            .recorded
            .global
            .as_ref()
            .is_some_and(|it| !it.restoring)
        {
            self.losses += 1;
            self.snapshot.recorded.global = None;
        }
    }

    fn forge(&mut self, at: u8, revision: i64, is_seen: bool) {
        let Some(name) = self
            .name(at)
            .filter(|name| !self.nodes[name].is_without_syncer)
        else {
            return;
        };
        self.ids += 1;
        let id = RevisionId::from_random(self.ids);
        let Some(object) = self.objects().get_mut(&name) else {
            return;
        };
        let forged = NodePullSecretSpec {
            revision: if revision == 0 {
                object.spec.revision
            } else {
                revision
            },
            revision_id: if revision == 0 {
                object.spec.revision_id
            } else {
                id
            },
            restore: revision == 0,
            ..object.spec.clone()
        };
        *object.metadata.generation.as_mut().unwrap() += 1;
        if is_seen {
            self.snapshot
                .nodes
                .changed_out_of_band
                .to_mut()
                .insert(name.clone());
            let node = self.nodes.get_mut(&name).unwrap();
            node.is_disturbed |= forged.restore;
            node.forged = Some(forged);
        } else if revision > 0 {
            // A restoration by another client looks like one of the controller.
            object.spec = forged;
            self.nodes.get_mut(&name).unwrap().was_forged = true;
        }
    }

    fn view(&mut self, at: u8, change: impl FnOnce(&mut NodeView)) {
        let name = self.name(at);
        if let Some(view) = name.and_then(|name| self.snapshot.nodes.views.to_mut().get_mut(&name))
        {
            change(view);
        }
    }

    fn node(&mut self, at: u8, change: impl FnOnce(&mut SimulatedNode)) {
        let name = self.name(at);
        if let Some(node) = name.and_then(|name| self.nodes.get_mut(&name)) {
            change(node);
        }
    }

    fn join(&mut self) -> String {
        self.joined += 1;
        let name = format!("n{:03}", self.joined);
        let view = NodeView::of_test(&name, self.time());
        let clock = self.snapshot.clock.leader.to_mut();
        clock.observe_node(&view, self.snapshot.clock.uptime);
        self.snapshot
            .nodes
            .views
            .to_mut()
            .insert(name.clone(), Box::new(view));
        let node = SimulatedNode {
            joined: self.snapshot.clock.uptime,
            ..SimulatedNode::default()
        };
        self.nodes.insert(name.clone(), node);
        name
    }

    /// Whatever a compromised node may write into its status, valid by the schema or not.
    fn lie(&mut self, phase: u8, generation: u8, revision: i64) {
        let liar = self.nodes.iter().find(|(_, node)| node.lies);
        let Some(name) = liar.map(|(name, _)| name.clone()) else {
            return;
        };
        let newest = self
            .snapshot
            .recorded
            .global
            .as_ref()
            .map(|global| global.revision.id);
        let id = newest
            .filter(|_| generation.is_multiple_of(3))
            .unwrap_or_default();
        let phase = Phase::ALL[usize::from(phase) % Phase::ALL.len()].clone();
        if let Some(object) = self.objects().get_mut(&name) {
            let current = object.metadata.generation.unwrap();
            object.status = Some(NodePullSecretStatus {
                observed_generation: if generation < 200 {
                    current
                } else {
                    i64::from(generation)
                },
                revision,
                revision_id: id,
                restored: phase == Phase::Restored,
                phase,
                reason: if generation.is_multiple_of(2) {
                    String::new()
                } else {
                    "DiskFull".to_owned()
                },
                ..NodePullSecretStatus::default()
            });
        }
    }

    /// The next step of a syncer.
    fn step(&mut self, name: &str) {
        if !self.nodes.contains_key(name) {
            return;
        }
        let by_node = self.by_node(name);
        let node = self.nodes.get_mut(name).unwrap();
        let was_young = node.assigned - node.joined < YOUNG;
        if !self.snapshot.agents.daemon_set || node.is_unresponsive || node.is_down || node.lies {
            return;
        }
        let global = self.snapshot.recorded.global.as_ref();
        let newest = global.map(|global| global.revision);
        let available = [newest, self.snapshot.recorded.rolled_out_revision];
        let Some(object) = self.snapshot.nodes.objects.to_mut().get_mut(name) else {
            return;
        };
        // Otherwise its syncer only restores.
        let is_selected = is_selected(&self.snapshot.config.spec, &self.snapshot.nodes.views[name]);
        let generation = object.metadata.generation.unwrap();
        let status = object.status.clone().unwrap_or_default();
        let spec = node.forged.clone().unwrap_or_else(|| object.spec.clone());
        let assigned = node.assigned;
        let phase;
        let mut reason = String::new();
        match node.changing.take() {
            Some((_, begun)) if node.is_broken => {
                phase = Phase::RolledBack;
                object.status.get_or_insert_default().observed_generation = begun;
            }
            Some((_, begun)) if status.phase == Phase::Syncing => {
                node.in_force = node.target;
                node.is_disturbed = false;
                phase = Phase::Synced;
                object.status.get_or_insert_default().observed_generation = begun;
            }
            Some(_) => {
                node.in_force = Revision::NONE;
                phase = Phase::Restored;
            }
            None if status.observed_generation == generation => return,
            None if spec.restore && node.in_force == Revision::NONE => phase = Phase::Restored,
            None if node.is_full && spec.restore => {
                phase = Phase::Failed;
                reason = "DiskFull".to_owned();
            }
            None if spec.restore => {
                phase = Phase::Restoring;
                node.changing = Some((assigned, generation));
            }
            None if spec.revision == 0 || !is_selected => phase = Phase::Pending,
            None if spec.assigned() == node.in_force => phase = Phase::Synced,
            None if !available.contains(&Some(spec.assigned())) => {
                phase = Phase::Syncing;
                reason = "Superseded".to_owned();
            }
            None if node.is_full => {
                phase = Phase::Failed;
                reason = "DiskFull".to_owned();
            }
            None => {
                phase = Phase::Syncing;
                node.changing = Some((assigned, generation));
            }
        }
        node.is_replaced &= node.changing.is_some();
        if node.changing.is_some() {
            node.bootstraps = !node.in_force.is_identified() && was_young;
            node.target = spec.assigned();
            let delivery = if spec.restore {
                Delivery::ConfigFile
            } else {
                self.deliveries[&spec.assigned()].clone()
            };
            node.in_place =
                node.is_disturbed || delivery != Delivery::ConfigFile && delivery == node.delivery;
            node.delivery = delivery;
        }
        let has_finished = matches!(phase, Phase::RolledBack | Phase::Synced | Phase::Restored)
            && matches!(status.phase, Phase::Syncing | Phase::Restoring);
        let provider = matches!(node.delivery, Delivery::CredentialProvider(_));
        let delivery = if provider {
            DeliveryType::CredentialProvider
        } else {
            DeliveryType::ConfigFile
        };
        let reported = Some(node.in_force).filter(|revision| revision.is_identified());
        let reported = reported.unwrap_or_default();
        object.status = Some(NodePullSecretStatus {
            observed_generation: if has_finished {
                status.observed_generation
            } else {
                generation
            },
            revision: reported.number,
            revision_id: reported.id,
            restored: node.in_force == Revision::NONE
                && (phase == Phase::Restored || phase == Phase::Pending),
            phase,
            reason,
            delivery: delivery.as_str().to_owned(),
            kubelet_restarted_at: if has_finished && !node.in_place {
                Some(Time(by_node))
            } else {
                status.kubelet_restarted_at
            },
            last_transition_time: Some(Time(by_node)),
            ..NodePullSecretStatus::default()
        });
        if has_finished {
            self.post(name);
        }
    }

    /// A node gets what it has or was assigned, or it is new.
    fn assert_changes_no_node(&self, node: &str, spec: &NodePullSecretSpec) {
        let Some(object) = self.snapshot.nodes.objects.get(node) else {
            assert_eq!(spec.revision, 0, "{node}");
            return;
        };
        let status = object.status.as_ref();
        let has = status.is_some_and(|it| it.in_force() == spec.assigned());
        let has_nothing = status.is_some_and(|it| it.revision == 0);
        let was_assigned =
            object.spec.assigned() == spec.assigned() && object.spec.restore == spec.restore;
        assert!(
            was_assigned || !spec.restore && (has || has_nothing),
            "without a GlobalPullSecret no node changes: {node} {spec:?}"
        );
    }

    fn reconcile(&mut self, writes: u8) {
        self.observe();
        self.ids += 1;
        self.snapshot.new_id = RevisionId::from_random(self.ids);
        let plan = self.plan();
        self.assert_no_healthy_node_failed(&plan);
        if plan.aim == Aim::Hold(Hold::ConfigMissing) {
            let current = self.snapshot.recorded.global.as_ref().map(|it| it.revision);
            let written = plan.global.as_ref().map(|write| write.global.revision);
            assert!(
                written.is_none() || written == current,
                "without a GlobalPullSecret no revision is written"
            );
            for (node, spec) in &plan.assignments {
                self.assert_changes_no_node(node, spec);
            }
        }
        let before = self
            .snapshot
            .recorded
            .global
            .as_ref()
            .map_or(Revision::NONE, |global| global.revision);
        let was_halted = self.has_too_many_failures(&plan);
        let mut writes = usize::from(writes);
        if let Some(write) = &plan.rolled_out {
            if writes == 0 {
                return;
            }
            writes -= 1;
            self.snapshot.recorded.rolled_out_revision = Some(write.revision);
        }
        if let Some(write) = plan.global.clone() {
            if writes == 0 {
                return;
            }
            writes -= 1;
            let revision = write.global.revision;
            assert!(
                revision == before
                    || revision.number == before.number + 1
                    || before == Revision::NONE,
                "{before:?} -> {revision:?}"
            );
            assert!(
                revision.number <= i64::from(self.contents) * 2 + 1 + self.losses,
                "{revision:?} of {} contents",
                self.contents
            );
            self.assert_soaked(&write.global);
            self.assert_kept_for_new_nodes(&write.global);
            self.snapshot
                .recorded
                .first_written
                .get_or_insert(Timestamp::UNIX_EPOCH + self.snapshot.clock.uptime);
            let delivery = write.content.delivery.clone();
            self.deliveries.insert(revision, delivery);
            self.snapshot.recorded.global = Some(Global {
                content: Some(write.content),
                ..write.global
            });
            self.snapshot.recorded.global_is_lost = false;
        }
        for (name, spec) in plan.assignments.iter().take(writes) {
            self.assert_allowed(name, spec, was_halted);
            self.write(name, spec.clone());
        }
        match plan.aim {
            Aim::Reach(_) => self.snapshot.agents.daemon_set = true,
            Aim::CleanUp => {
                self.snapshot.agents.daemon_set = false;
                self.objects().clear();
                self.snapshot.recorded.global = None;
                self.snapshot.recorded.global_is_lost = false;
                self.snapshot.recorded.first_written = None;
                self.snapshot.recorded.rolled_out_revision = None;
            }
            _ => {}
        }
    }

    /// Only a node that was `NotReady` since its assignment may count as broken by a change that it reports as done.
    fn assert_no_healthy_node_failed(&self, plan: &Plan) {
        for member in plan.members.iter().filter(|member| member.has_failed()) {
            let node = &self.nodes[&member.name];
            let object = &self.snapshot.nodes.objects[&member.name];
            let phase = object.status.as_ref().map(|status| &status.phase);
            let is_done = matches!(phase, Some(Phase::Synced | Phase::Restored));
            assert!(
                !is_done || node.lies || node.was_not_ready,
                "{}: failed though healthy: {object:?}",
                member.name
            );
        }
    }

    /// A canary has passed only if some node has reported the revision for long enough, by the true time.
    fn assert_soaked(&self, global: &Global) {
        let before = self.snapshot.recorded.global.as_ref();
        let had_passed =
            before.is_some_and(|before| before.canary_passed && before.revision == global.revision);
        if !global.canary_passed || had_passed {
            return;
        }
        let has_soaked = self.nodes.iter().any(|(name, node)| {
            let object = self.snapshot.nodes.objects.get(name);
            let is_synced = object.is_some_and(|object| {
                let status = object.status.as_ref();
                status.is_some_and(|status| {
                    status.phase == Phase::Synced
                        && status.in_force() == global.revision
                        && Some(status.observed_generation) == object.metadata.generation
                })
            });
            is_synced && self.snapshot.clock.uptime - node.reported.0 >= CANARY_MIN_READY
        });
        let number = global.revision.number;
        assert!(has_soaked, "revision {number} passed too early");
    }

    /// What passed its canary is kept before another revision replaces it, unless nodes failed with it.
    fn assert_kept_for_new_nodes(&self, next: &Global) {
        let before = self.snapshot.recorded.global.as_ref();
        let Some(before) = before.filter(|it| it.canary_passed && !it.restoring) else {
            return;
        };
        let mut objects = self.snapshot.nodes.objects.values();
        let has_failed = objects.any(|object| {
            let phase = object.status.as_ref().map(|status| &status.phase);
            matches!(phase, Some(Phase::RolledBack | Phase::Failed))
        });
        let is_replaced = next.revision != before.revision && !next.restoring;
        assert!(
            !is_replaced || has_failed || self.snapshot.recorded.rolled_out_revision.is_some(),
            "{:?} passed its canary, and a new node gets nothing",
            before.revision
        );
    }

    fn observe(&mut self) {
        let objects = self.snapshot.nodes.objects.values();
        let objects = objects.map(|object| &**object);
        let nodes = self.snapshot.nodes.views.values().map(|node| &**node);
        let now = self.snapshot.clock.uptime;
        self.snapshot
            .clock
            .leader
            .to_mut()
            .observe(objects, nodes, now);
        let before = std::mem::take(&mut self.snapshot.agents.syncers.to_mut().down);
        let is_down = |name: &&String| {
            self.nodes[*name].is_down && self.snapshot.nodes.views[*name].ready.is_ok()
        };
        let names = self.nodes.keys().filter(is_down);
        let down = names.map(|name| {
            let since = before.get(name).map_or(now, |down| down.since);
            let cause = Cause::NotTaken("Unschedulable".into());
            (name.clone(), Down { since, cause })
        });
        let down = down.collect();
        self.snapshot.agents.syncers.to_mut().down = down;
        let down = &self.snapshot.agents.syncers.down;
        let is_unable = |node: &&NodeView| node.ready.is_err() || down.contains_key(&node.name);
        let nodes = self.snapshot.nodes.views.values().map(|node| &**node);
        let unable = nodes.filter(is_unable).map(|node| node.name.as_str());
        self.snapshot
            .clock
            .leader
            .to_mut()
            .observe_unable(unable, now);
    }

    /// Asserts that an assignment disrupts no node when it must not.
    fn assert_allowed(&self, name: &str, spec: &NodePullSecretSpec, was_halted: bool) {
        let node = &self.nodes[name];
        assert!(
            !node.is_without_syncer || !spec.restore && spec.revision == 0,
            "{name}: assigned without a syncer"
        );
        let wants = if spec.restore {
            Revision::NONE
        } else {
            spec.assigned()
        };
        let is_empty_and_new = !node.in_force.is_identified() && self.seems_young(name);
        let disturbs = wants != node.in_force
            && (wants != Revision::NONE || spec.restore)
            && !spec.revoked
            && !self.snapshot.nodes.changed_out_of_band.contains(name);
        if node.lies || !disturbs || is_empty_and_new {
            return;
        }
        assert!(
            !self.snapshot.config.spec.rollout.paused,
            "{name}: assigned while paused"
        );
        assert!(
            !was_halted || spec.restore,
            "{name}: assigned though halted"
        );
        let object = self.snapshot.nodes.objects.get(name);
        let has_reported = object.is_some_and(|object| object.status.is_some());
        assert!(
            has_reported || node.was_forged,
            "{name}: assigned before its syncer reported anything"
        );
    }

    fn write(&mut self, name: &str, spec: NodePullSecretSpec) {
        let now = self.snapshot.clock.uptime;
        if let Some(node) = self.nodes.get_mut(name) {
            node.assigned = now;
            node.was_not_ready = node.not_ready_since.is_some();
        }
        let object = self.objects().entry(name.to_owned()).or_insert_with(|| {
            let mut object = NodePullSecret::new(name, NodePullSecretSpec::default());
            object.metadata.generation = Some(0);
            Box::new(object)
        });
        object.spec = spec;
        self.snapshot
            .nodes
            .changed_out_of_band
            .to_mut()
            .remove(name);
        self.snapshot
            .nodes
            .deleted_out_of_band
            .to_mut()
            .remove(name);
        if let Some(node) = self.nodes.get_mut(name) {
            node.forged = None;
        }
        let object = self.objects().get_mut(name).unwrap();
        *object.metadata.generation.as_mut().unwrap() += 1;
    }

    /// The limit applies to nodes that really are in the middle of a change, whatever their objects say. Only a node that was
    /// given up, dead or past its deadline, may exceed it.
    fn assert_limit(&self, event: &Event) {
        let now = self.snapshot.clock.uptime;
        let disturbed: Vec<&String> = self
            .nodes
            .iter()
            .filter(|(name, node)| {
                let Some((since, _)) = node.changing else {
                    return false;
                };
                let not_ready = node.not_ready_since.map(|since| now - since);
                // Only with the provider the controller can take it for one that needs no restart.
                let object = self.snapshot.nodes.objects.get(*name);
                let status = object.and_then(|object| object.status.as_ref());
                let provider = DeliveryType::CredentialProvider.as_str();
                let is_misjudged =
                    node.is_replaced && status.is_some_and(|status| status.delivery == provider);
                !node.bootstraps
                    && !is_misjudged
                    && !node.in_place
                    && now - since < DEADLINE
                    && not_ready.is_none_or(|time| time < UNREACHABLE_AFTER)
            })
            .map(|(name, _)| name)
            .collect();
        assert!(disturbed.len() <= LIMIT, "{disturbed:?} after {event:?}");
    }

    fn has_too_many_failures(&self, plan: &Plan) -> bool {
        let Aim::Reach(Goal::Revision(revision)) = plan.aim else {
            return false;
        };
        let failed = self.snapshot.nodes.objects.iter();
        let failed = failed.filter(|(name, object)| {
            let status = object.status.clone().unwrap_or_default();
            let node = &self.snapshot.nodes.views[*name];
            let asked = object.annotations().get(RETRY_ANNOTATION);
            let is_retried = asked.is_some_and(|asked| *asked != object.spec.retry);
            is_selected(&self.snapshot.config.spec, node)
                && object.spec.assigned() == revision
                && !object.spec.restore
                && [Revision::NONE, revision].contains(&object.spec.failed())
                && status.phase == Phase::RolledBack
                && Some(status.observed_generation) == object.metadata.generation
                // A retry that can't start is none.
                && (!is_retried || node.ready.is_err())
        });
        let limit = match self.snapshot.config.spec.rollout.max_failures {
            IntOrString::Int(number) => usize::try_from(number).unwrap(),
            IntOrString::String(_) => unreachable!("a number in every test"),
        };
        failed.count() >= limit
    }

    /// Everything works and is allowed for as long as needed. The liar continues.
    fn calm_down(&mut self, lies: &[(u8, u8, i64)]) {
        self.handle(&Event::Resumed);
        self.handle(&Event::ConfigApplied);
        if self.snapshot.secrets.additional == Source::Found(Data(Some(BAD.into()))) {
            self.handle(&Event::Rotated);
        }
        let all: Vec<u8> = (0..u8::try_from(self.nodes.len()).unwrap()).collect();
        for at in &all {
            for event in [
                Event::Ready(*at),
                Event::Mends(*at),
                Event::Responds(*at),
                Event::Unmarked(*at),
                Event::Retried(*at),
            ] {
                self.handle(&event);
            }
        }
        self.run(120, |cluster, round| {
            if let Some((phase, generation, revision)) = lies.get(round % lies.len().max(1)) {
                cluster.handle(&Event::Lies(*phase, *generation, *revision));
            }
        });
    }

    /// The controller plans and every syncer takes two steps, each minute.
    fn run(&mut self, minutes: usize, mut lie: impl FnMut(&mut Self, usize)) {
        let all: Vec<u8> = (0..u8::try_from(self.nodes.len()).unwrap()).collect();
        for round in 0..minutes {
            self.handle(&Event::Reconciles(u8::MAX));
            for at in &all {
                self.handle(&Event::Steps(*at));
                self.handle(&Event::Steps(*at));
            }
            lie(self, round);
            self.handle(&Event::Minutes(1));
        }
    }

    /// The lying node reports that whatever it was assigned failed.
    fn always_fails(&mut self, is_kubelet_down: bool) {
        let liar = self.nodes.iter().find(|(_, node)| node.lies);
        let name = liar.map(|(name, _)| name.clone()).unwrap();
        if let Some(object) = self.objects().get_mut(&name) {
            object.status = Some(NodePullSecretStatus {
                observed_generation: object.metadata.generation.unwrap(),
                phase: if is_kubelet_down {
                    Phase::Failed
                } else {
                    Phase::RolledBack
                },
                reason: if is_kubelet_down {
                    "KubeletDown".to_owned()
                } else {
                    String::new()
                },
                ..NodePullSecretStatus::default()
            });
        }
    }

    /// Every node that does not lie has the newest revision.
    fn assert_others_have_it(&self, case: &str) {
        let global = self.snapshot.recorded.global.as_ref().unwrap();
        for (name, node) in self.nodes.iter().filter(|(_, node)| !node.lies) {
            assert_eq!(node.in_force, global.revision, "{name}: {case}");
        }
        assert!(
            global.rejected.is_none() && global.rolled_out.is_some(),
            "{case}"
        );
    }

    fn assert_settled(&self) {
        let is_asked = self.snapshot.secrets.additional != Source::Absent
            || self
                .snapshot
                .secrets
                .sources
                .iter()
                .any(|(_, source)| *source != Source::Absent);
        let global = self.snapshot.recorded.global.as_ref();
        let liar = self.nodes.values().any(|node| node.lies);
        if !is_asked && !liar {
            let is_clean = global.is_none() && self.snapshot.nodes.objects.is_empty();
            let members = self.plan().members.into_iter();
            let left: Vec<_> = members.filter(|member| !member.is_done()).collect();
            // Without a syncer, a node may have had content by an object that was deleted. Only an admin can say that it hasn't.
            let is_excused =
                !left.is_empty() && left.iter().all(|it| self.nodes[&it.name].is_without_syncer);
            assert!(is_clean || is_excused, "{left:?}");
        }
        let revision = global
            .filter(|_| is_asked)
            .map_or(Revision::NONE, |global| global.revision);
        for (name, view) in self.snapshot.nodes.views.iter().filter(|(name, _)| {
            let node = &self.nodes[*name];
            // A node that had reported to have nothing: the removal may end before it reports what its new disk has.
            let is_missed = node.is_replaced && !is_asked;
            !node.lies && !node.is_unknowable && !is_missed
        }) {
            let is_without_syncer = self.nodes[name].is_without_syncer;
            let is_selected = is_selected(&self.snapshot.config.spec, view) && !is_without_syncer;
            let expected = if is_selected {
                revision
            } else {
                Revision::NONE
            };
            assert_eq!(self.nodes[name].in_force, expected, "{name}");
        }
        if !liar {
            let plan = self.plan();
            assert!(
                plan.global.is_none() && plan.assignments.is_empty(),
                "nothing is left to do"
            );
        }
    }
}

proptest! {
    // More such events happen to real nodes in `make soak`.
    #![proptest_config(config(400))]

    #[test]
    fn limits_hold_and_every_node_reaches_its_goal_after_any_events(
        events in events(),
        lies in proptest::collection::vec((any::<u8>(), any::<u8>(), 0..9_i64), 0..4),
    ) {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.handle(event);
        }
        cluster.calm_down(&lies);
        cluster.assert_settled();
    }
}

/// These have few inputs, and long runs.
fn few() -> ProptestConfig {
    let all = config(400);
    ProptestConfig {
        cases: (all.cases / 8).max(1),
        ..all
    }
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn a_node_that_always_fails_halts_no_rollout_but_the_first(
        max_failures in 1..4_i32,
        liar in 0..5_u8,
        reports in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..4),
        rolls_back in any::<bool>(),
    ) {
        let mut cluster = Cluster::new();
        cluster.snapshot.config.spec.rollout.max_failures = IntOrString::Int(max_failures);
        if rolls_back {
            cluster.snapshot.config.spec.rollout.on_failure = OnFailure::Rollback;
        }
        cluster.nodes.values_mut().for_each(|node| node.lies = false);
        cluster.node(liar, |node| node.lies = true);
        let first = cluster.snapshot.secrets.additional.clone();
        cluster.run(20, |cluster, _| cluster.always_fails(false));
        if max_failures > 1 {
            // A failure below the limit keeps the revision from counting as rolled out, as before.
            for node in cluster.nodes.values().filter(|node| !node.lies) {
                assert!(node.in_force.is_identified());
            }
        }
        cluster.history = Some(first);
        for (is_kubelet_down, leader_changes) in reports {
            cluster.handle(&Event::Rotated);
            if leader_changes {
                cluster.handle(&Event::LeaderChanges(0));
            }
            cluster.run(40, |cluster, _| cluster.always_fails(is_kubelet_down));
            cluster.assert_others_have_it("a later rollout");
            // Nor does a retry of the liar change that.
            cluster.handle(&Event::Retried(liar));
            cluster.run(5, |cluster, _| cluster.always_fails(is_kubelet_down));
            cluster.assert_others_have_it("after a retry");
        }
        // A healthy node that fails still halts the next one.
        cluster.snapshot.config.spec.rollout.max_failures = IntOrString::Int(1);
        cluster.snapshot.config.spec.rollout.on_failure = OnFailure::Halt;
        for node in cluster.nodes.values_mut().filter(|node| !node.lies) {
            node.is_broken = true;
        }
        cluster.handle(&Event::Rotated);
        cluster.run(40, |cluster, _| cluster.always_fails(false));
        let failed = cluster.plan();
        let failed = failed.members.iter().filter(|member| member.has_failed());
        assert_eq!(failed.count(), 1, "the first healthy node that fails halts it");
    }

    #[test]
    fn a_node_that_flaps_delays_the_others_only_for_a_while(
        flapping in 0..5_u8,
        min_ready in 61..400_u32,
    ) {
        let mut cluster = Cluster::new();
        cluster.snapshot.config.spec.rollout.min_ready_seconds = min_ready;
        cluster.nodes.values_mut().for_each(|node| node.lies = false);
        cluster.run(120, |cluster, _| cluster.handle(&Event::Flaps(flapping)));
        cluster.assert_others_have_it("while one flaps");
        let name = cluster.name(flapping).unwrap();
        let found = cluster.plan();
        let member = found.members.iter().find(|member| member.name == name).unwrap();
        assert!(member.is_blocked(), "it is named");
        cluster.run(20, |_, _| ());
        let found = cluster.plan();
        assert!(found.members.iter().all(rollout::Member::is_done), "it stays Ready at last");
    }

    #[test]
    fn a_restoration_restores_all_nodes_and_names_those_that_refuse(
        refuses in proptest::collection::vec(0..3_u8, 5),
        is_deleted in any::<bool>(),
    ) {
        let mut cluster = Cluster::new();
        cluster.snapshot.config.spec.rollout.max_failures = IntOrString::Int(1);
        cluster.nodes.values_mut().for_each(|node| node.lies = false);
        cluster.run(30, |_, _| ());
        cluster.assert_others_have_it("before");
        for (node, refuses) in cluster.nodes.values_mut().zip(&refuses) {
            (node.is_broken, node.is_full) = (*refuses == 1, *refuses == 2);
        }
        if is_deleted {
            cluster.handle(&Event::Deleted);
        } else {
            // The last one stays selected, and gets one more revision.
            for at in 0..4 {
                cluster.handle(&Event::Excluded(at));
            }
            cluster.node(4, |node| (node.is_broken, node.is_full) = (false, false));
            cluster.handle(&Event::Rotated);
        }
        cluster.run(60, |_, _| ());
        let mut left: Vec<String> = Vec::new();
        for (at, (name, node)) in cluster.nodes.iter().enumerate() {
            if !is_deleted && at == 4 {
                let global = cluster.snapshot.recorded.global.as_ref().unwrap();
                assert_eq!(node.in_force, global.revision, "{name}");
            } else if node.is_broken || node.is_full {
                assert!(node.in_force.is_identified(), "{name}");
                left.push(name.clone());
            } else {
                assert_eq!(node.in_force, Revision::NONE, "{name}");
            }
        }
        let found = cluster.plan();
        let blocked = found.members.iter().filter(|member| member.is_blocked());
        let blocked: Vec<String> = blocked.map(|member| member.name.clone()).collect();
        assert_eq!(blocked, left);
        if is_deleted {
            let is_over = cluster.snapshot.nodes.objects.is_empty();
            assert_eq!(is_over, left.is_empty(), "their objects stay");
            for name in &left {
                let object = cluster.objects().get_mut(name).unwrap();
                let annotation = (ABANDON_ANNOTATION.to_owned(), "true".to_owned());
                object.annotations_mut().extend([annotation]);
            }
            cluster.run(2, |_, _| ());
            assert!(cluster.snapshot.nodes.objects.is_empty(), "they are abandoned");
        }
    }
}
