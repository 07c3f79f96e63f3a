//! Property: whatever other clients do to `ClusterPullSecret`s, and whichever clusters are behind the kubeconfigs, the rollout continues
//! within its limits, nothing is written into a cluster with another identity than the pinned one, and each cluster has the newest
//! revision in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus,
    FleetPullSecret,
};
use globalps_core::names::{
    ACCEPTED_IDENTITY_ANNOTATION, CANARY_PASSED_ANNOTATION, DATA_KEY, HUB, REJECTED_ANNOTATION,
    REVISION_ANNOTATION, REVISION_ID_ANNOTATION, ROLLED_OUT_ANNOTATION, cluster_pull_secret,
    fleet_revision,
};
use globalps_core::rollout::{Revision, RevisionId};
use globalps_planner::clusters::clock::ClusterClock;
use globalps_planner::clusters::desired::Desired;
use globalps_planner::clusters::input::{ClusterKey, FleetInput};
use globalps_planner::clusters::plan::{FleetPlan, plan};
use globalps_planner::clusters::revision::FleetRevision;
use globalps_planner::clusters::trust::Trust;
use globalps_planner::content::source::{Data, Source};
use globalps_planner::properties::config;
use globalps_planner::refused::Failures;
use globalps_runtime::list_events::Event as WatchEvent;
use globalps_runtime::list_watch::Update;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference, Time};
use kube::ResourceExt as _;
use proptest::prelude::*;
use serde_json::json;

use super::cache::HubCache;
use super::desired::member_specs;
use super::messages::{MemberSpec, Pair};
use super::pins::Pins;
use super::reconcile::with_obstacles;
use super::statuses::{dated, due};
use super::views::{self, ClusterObject, Id, NamespaceLabels, pair};
use super::watches::HubEvent;

const CLUSTERS: usize = 4;
/// Behind no kubeconfig at first.
const ATTACKER: usize = CLUSTERS;
const MAX_UNAVAILABLE: usize = 2;
const FOLLOWER: &str = "1/2";

/// A spec that another client writes.
#[derive(Clone, Copy, Debug)]
enum HandMade {
    Revision(i64),
    /// The first revision, with its id.
    First,
    Remove,
    Revoke,
    Nothing,
    AnotherFleet,
    /// A time this many minutes from now; `None`: no time.
    AnotherTime(Option<i64>),
}

/// A change that another client makes to a status.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Phase(ClusterPhase),
    /// The identity of another cluster.
    Identity(usize),
    Revision(i64),
    Nothing,
}

/// A change that another client makes to a revision's annotations.
#[derive(Clone, Copy, Debug)]
enum Mark {
    Rejected,
    CanaryPassed,
    RolledOut,
    /// Another number.
    Number,
    /// No marks.
    None,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Rotate,
    Pause(bool),
    Change(usize, HandMade),
    Delete(usize),
    /// Another client deletes the object, and creates it with this spec.
    Replace(usize, HandMade),
    /// The hub starts again. Before that, while no hub runs, another client writes this.
    Restart(Option<(usize, HandMade)>),
    /// A restart, and another client deletes these objects, one bit for each.
    RestartWithout(u8),
    /// The cluster is installed again, with nothing, behind the same kubeconfig.
    Reinstall(usize),
    /// Makes the cluster a clone of another one, with its content, or gives it its own identity again.
    Clone(usize, Option<usize>),
    /// Makes the cluster report the identity of another one.
    Lie(usize, usize),
    /// Makes the kubeconfig lead to another cluster, to an attacker's cluster, or to its own again.
    Redirect(usize, usize),
    /// An admin accepts the identity that the hub has found.
    Accept(usize),
    Reachable(usize, bool),
    /// Another client creates a Secret that is named like a revision.
    Foreign(i64),
    /// Another client annotates a revision.
    Annotate(i64, Mark),
    /// Deletes the revision, and creates it with other content.
    Falsify(i64),
    /// The cluster fails with the content that the source has now.
    Break(usize),
    EditStatus(usize, Edit),
    /// Writes take effect, but their responses are lost.
    Lose(bool),
    /// The hub's clock is set by this many minutes.
    ClockSet(i64),
    Plan,
    /// The session with the cluster does what the spec says, and reports.
    Session(usize),
}

fn hand_made() -> impl Strategy<Value = HandMade> {
    prop_oneof![
        prop_oneof![Just(99), Just(9_007_199_254_740_991), 1..4_i64].prop_map(HandMade::Revision),
        Just(HandMade::First),
        Just(HandMade::Remove),
        Just(HandMade::Revoke),
        Just(HandMade::Nothing),
        Just(HandMade::AnotherFleet),
        prop_oneof![Just(None), Just(Some(-100_000)), Just(Some(100_000))]
            .prop_map(HandMade::AnotherTime),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        prop_oneof![
            Just(ClusterPhase::Failed),
            Just(ClusterPhase::Unreachable),
            Just(ClusterPhase::Blocked),
            Just(ClusterPhase::Synced),
            Just(ClusterPhase::Removed),
        ]
        .prop_map(Edit::Phase),
        (0..CLUSTERS).prop_map(Edit::Identity),
        prop_oneof![Just(99), 0..4_i64].prop_map(Edit::Revision),
        Just(Edit::Nothing),
    ]
}

fn mark() -> impl Strategy<Value = Mark> {
    prop_oneof![
        Just(Mark::Rejected),
        Just(Mark::CanaryPassed),
        Just(Mark::RolledOut),
        Just(Mark::Number),
        Just(Mark::None),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let at = 0..CLUSTERS;
    let change = || (0..CLUSTERS, hand_made());
    // A hub that starts can't tell who assigned a revision that the fleet has.
    let unknown = change().prop_filter("the hub knows it", |(_, spec)| {
        !matches!(spec, HandMade::First)
    });
    prop_oneof![
        3 => Just(Event::Rotate),
        1 => any::<bool>().prop_map(Event::Pause),
        3 => change().prop_map(|(at, spec)| Event::Change(at, spec)),
        2 => at.clone().prop_map(Event::Delete),
        1 => change().prop_map(|(at, spec)| Event::Replace(at, spec)),
        1 => proptest::option::of(unknown).prop_map(Event::Restart),
        1 => (1..1_u8 << CLUSTERS).prop_map(Event::RestartWithout),
        1 => at.clone().prop_map(Event::Reinstall),
        1 => (at.clone(), proptest::option::of(at.clone())).prop_map(|(at, of)| Event::Clone(at, of)),
        1 => (at.clone(), at.clone()).prop_map(|(at, of)| Event::Lie(at, of)),
        2 => (at.clone(), 0..=ATTACKER).prop_map(|(at, to)| Event::Redirect(at, to)),
        1 => at.clone().prop_map(Event::Accept),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, is)| Event::Reachable(at, is)),
        1 => prop_oneof![Just(9_007_199_254_740_991), 1..9_i64].prop_map(Event::Foreign),
        2 => (1..6_i64, mark()).prop_map(|(number, mark)| Event::Annotate(number, mark)),
        1 => (1..6_i64).prop_map(Event::Falsify),
        2 => at.clone().prop_map(Event::Break),
        3 => (at.clone(), edit()).prop_map(|(at, edit)| Event::EditStatus(at, edit)),
        1 => any::<bool>().prop_map(Event::Lose),
        1 => (-1440..1440_i64).prop_map(Event::ClockSet),
        10 => Just(Event::Plan),
        12 => at.prop_map(Event::Session),
    ]
}

struct Member {
    identity: String,
    is_reachable: bool,
    content: Option<Revision>,
    /// The cluster that it was written for, by its name on the hub.
    written_for: usize,
    /// The cluster's identity when it got the content. With another identity it is a new cluster, whose content is not the hub's.
    content_as: String,
    /// The last number that the hub has written there.
    written: i64,
}

struct Simulation {
    fleet: FleetPullSecret,
    source: String,
    rotations: i64,
    /// The objects of the API server, by name.
    objects: BTreeMap<String, ClusterPullSecret>,
    revisions: BTreeMap<i64, Secret>,
    /// The revisions as the hub wrote them last.
    written: BTreeMap<i64, FleetRevision>,
    /// The rotation and the content of each revision that the hub has written.
    rolled_out: BTreeSet<(i64, Vec<u8>)>,
    /// How many of them another client has replaced.
    falsified: i64,
    /// Clusters, and content with which they fail.
    broken: BTreeSet<(usize, Vec<u8>)>,
    /// Fields of each object's spec that the hub owns.
    owned: BTreeMap<String, BTreeSet<String>>,
    /// Secrets of other clients that are named like revisions.
    foreign: BTreeMap<i64, Secret>,
    members: Vec<Member>,
    /// The member that each kubeconfig leads to.
    places: Vec<usize>,
    /// The identity of each cluster at first contact, or the accepted one.
    pinned: Vec<Option<String>>,
    is_settling: bool,
    cache: HubCache,
    pins: Pins,
    /// The cache of another process, which only connects.
    follower: HubCache,
    follower_pins: Pins,
    /// The hub's last assignments, by name of the object.
    planned: BTreeMap<String, ClusterPullSecretSpec>,
    /// The statuses that the hub wrote last, by name of the object.
    reported: BTreeMap<String, ClusterPullSecretStatus>,
    loses: bool,
    version: u64,
    /// By the hub's clock, which events set.
    now: Timestamp,
    uptime: SignedDuration,
    clock: ClusterClock,
}

fn name(at: usize) -> String {
    format!("c{at}")
}

fn key(at: usize) -> ClusterKey {
    ("ns".to_owned(), name(at))
}

fn object_name(at: usize) -> String {
    cluster_pull_secret(&name(at), "ns", "shared")
}

impl Simulation {
    fn new() -> Self {
        let spec = json!({
            "secretRef": {"name": "shared"}, "clusterSelector": {},
            "rollout": {"maxUnavailable": MAX_UNAVAILABLE, "onFailure": "Rollback"},
        });
        let mut fleet = FleetPullSecret::new("shared", serde_json::from_value(spec).unwrap());
        fleet.metadata.namespace = Some("ns".to_owned());
        fleet.metadata.uid = Some("fleet".to_owned());
        let member = |at| Member {
            identity: name(at),
            is_reachable: true,
            content: None,
            written_for: at,
            content_as: String::new(),
            written: 0,
        };
        let mut simulation = Self {
            fleet,
            source: String::new(),
            rotations: 0,
            objects: BTreeMap::new(),
            revisions: BTreeMap::new(),
            written: BTreeMap::new(),
            rolled_out: BTreeSet::new(),
            falsified: 0,
            broken: BTreeSet::new(),
            owned: BTreeMap::new(),
            foreign: BTreeMap::new(),
            members: (0..=ATTACKER).map(member).collect(),
            places: (0..CLUSTERS).collect(),
            pinned: vec![None; CLUSTERS],
            is_settling: false,
            cache: HubCache::new(&[], "0/1".parse().unwrap()),
            pins: Pins::default(),
            follower: HubCache::new(&[], FOLLOWER.parse().unwrap()),
            follower_pins: Pins::default(),
            planned: BTreeMap::new(),
            reported: BTreeMap::new(),
            loses: false,
            version: 1,
            now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(10_000),
            uptime: SignedDuration::ZERO,
            clock: ClusterClock::default(),
        };
        simulation.rotate();
        simulation.restart();
        simulation
    }

    /// Every cluster has the first revision.
    fn rolled_out() -> Self {
        let mut simulation = Self::new();
        let rollout = [0, 1, 2, 3].into_iter().cycle().take(3 * CLUSTERS);
        for event in rollout.flat_map(|at| [Event::Plan, Event::Session(at)]) {
            simulation.happen(event);
        }
        simulation
    }

    fn rotate(&mut self) {
        self.rotations += 1;
        let auth = format!(
            r#"{{"auths":{{"r{}.io":{{"auth":"dTpw"}}}}}}"#,
            self.rotations
        );
        self.source = auth;
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn watch(&mut self, event: HubEvent) {
        let copy = match &event {
            HubEvent::Namespace(Update::Event(WatchEvent::Apply(it))) => {
                Some(HubEvent::Namespace(applied(it.clone())))
            }
            HubEvent::Fleet(Update::Event(WatchEvent::Apply(it))) => {
                Some(HubEvent::Fleet(applied(it.clone())))
            }
            HubEvent::Cluster(Update::Event(WatchEvent::Apply(it))) => {
                Some(HubEvent::Cluster(applied(it.clone())))
            }
            HubEvent::Revision(Update::Event(WatchEvent::Apply(it))) => {
                Some(HubEvent::Revision(applied(it.clone())))
            }
            HubEvent::Object(Update::Event(it)) => {
                Some(HubEvent::Object(Update::Event(it.clone())))
            }
            HubEvent::Revision(Update::Event(WatchEvent::Delete(it))) => Some(HubEvent::Revision(
                Update::Event(WatchEvent::Delete(it.clone())),
            )),
            _ => None,
        };
        if let Some(copy) = copy {
            self.follower.handle((String::new(), copy));
        }
        self.cache.handle((String::new(), event));
    }

    /// A new hub lists everything.
    fn restart(&mut self) {
        self.clock = ClusterClock::default();
        self.cache = HubCache::new(&[], "0/1".parse().unwrap());
        self.follower = HubCache::new(&[], FOLLOWER.parse().unwrap());
        (self.pins, self.follower_pins) = (Pins::default(), Pins::default());
        // It only knows what the objects contain.
        for at in 0..CLUSTERS {
            let object = self.objects.get(&object_name(at));
            // It doesn't believe one that another client has made that of another fleet.
            let object = object.filter(|it| pair(it).is_some());
            let status = object.and_then(|it| it.status.as_ref());
            self.pinned[at] = status.and_then(|it| it.identity.clone());
        }
        let id = |namespace: &str, name: &str| Id {
            key: (namespace.to_owned(), name.to_owned()),
            uid: name.to_owned(),
            version: 1,
            created: None,
        };
        let namespace = NamespaceLabels {
            id: id("", "kube-system"),
            labels: BTreeMap::new(),
            is_deleting: false,
        };
        self.watch(HubEvent::Namespace(applied(namespace)));
        self.watch(HubEvent::Fleet(applied(Box::new(self.fleet.clone()))));
        for at in 0..CLUSTERS {
            let cluster = ClusterObject {
                id: id("ns", &name(at)),
                api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
                labels: BTreeMap::new(),
                is_deleting: false,
                kubeconfig: None,
            };
            self.watch(HubEvent::Cluster(applied(cluster)));
        }
        for secret in self.revisions.values().chain(self.foreign.values()) {
            self.cache.put_revision(secret);
            self.follower.put_revision(secret);
        }
        for object in self.objects.clone().into_values() {
            self.watch(HubEvent::Object(applied(Box::new(object))));
        }
    }

    fn spec(&self, at: usize, hand_made: HandMade) -> Option<ClusterPullSecretSpec> {
        let spec = self.objects.get(&object_name(at))?.spec.clone();
        let id = RevisionId::from_random(0xbad);
        Some(match hand_made {
            HandMade::Revision(revision) => ClusterPullSecretSpec {
                revision,
                revision_id: id,
                ..spec
            },
            HandMade::First => ClusterPullSecretSpec {
                revision: 1,
                revision_id: id_of(1),
                ..spec
            },
            HandMade::Remove => ClusterPullSecretSpec {
                remove: true,
                ..spec
            },
            HandMade::Revoke => ClusterPullSecretSpec {
                revoked: true,
                ..spec
            },
            HandMade::Nothing => ClusterPullSecretSpec {
                fleet: spec.fleet,
                cluster: spec.cluster,
                ..ClusterPullSecretSpec::default()
            },
            HandMade::AnotherFleet => ClusterPullSecretSpec {
                fleet: "ns/other".to_owned(),
                ..spec
            },
            HandMade::AnotherTime(minutes) => {
                let time = |minutes| Time(self.now + SignedDuration::from_mins(minutes));
                ClusterPullSecretSpec {
                    assigned_at: minutes.map(time),
                    ..spec
                }
            }
        })
    }

    /// Writes a spec as any client can, and returns the object. Each field is of the client that changed it last.
    fn write(
        &mut self,
        at: usize,
        spec: ClusterPullSecretSpec,
        manager: &str,
    ) -> ClusterPullSecret {
        let version = self.next_version();
        let name = object_name(at);
        let object = self.objects.entry(name.clone()).or_insert_with(|| {
            let mut object = ClusterPullSecret::new(&name, ClusterPullSecretSpec::default());
            object.metadata.namespace = Some("ns".to_owned());
            object.metadata.uid = Some(format!("u{version}"));
            object.metadata.generation = Some(0);
            object.metadata.owner_references = Some(vec![OwnerReference {
                uid: super::properties::name(at),
                ..OwnerReference::default()
            }]);
            object
        });
        if object.spec != spec || object.metadata.generation == Some(0) {
            *object.metadata.generation.get_or_insert_default() += 1;
        }
        let is_hub = manager == HUB;
        let fields = |spec: &ClusterPullSecretSpec| serde_json::to_value(spec).unwrap();
        let (before, after) = (fields(&object.spec), fields(&spec));
        let all: BTreeSet<String> = after.as_object().unwrap().keys().cloned().collect();
        let changed = all.iter().filter(|key| before.get(*key) != after.get(*key));
        let changed: BTreeSet<String> = changed.cloned().collect();
        let entry = |manager: &str, keys: &BTreeSet<String>| {
            let keys = keys.iter().map(|key| (format!("f:{key}"), json!({})));
            let fields = json!({"f:spec": keys.collect::<serde_json::Map<_, _>>()});
            let operation = if manager == HUB { "Apply" } else { "Update" };
            let entry = json!({"manager": manager, "operation": operation, "fieldsV1": fields});
            serde_json::from_value::<ManagedFieldsEntry>(entry).unwrap()
        };
        let owned = self.owned.entry(name).or_default();
        *owned = if is_hub {
            all
        } else {
            owned.difference(&changed).cloned().collect()
        };
        let other = (!is_hub).then(|| entry(manager, &changed));
        let entries = other.into_iter().chain([entry(HUB, owned)]);
        object.metadata.managed_fields = Some(entries.collect());
        object.spec = spec;
        object.metadata.resource_version = Some(version.to_string());
        object.clone()
    }

    fn change(&mut self, at: usize, hand_made: HandMade) -> Option<ClusterPullSecret> {
        let spec = self.spec(at, hand_made)?;
        Some(self.write(at, spec, "kubectl"))
    }

    fn delete(&mut self, at: usize) {
        let version = self.next_version();
        self.owned.remove(&object_name(at));
        self.reported.remove(&object_name(at));
        if let Some(mut object) = self.objects.remove(&object_name(at)) {
            object.metadata.resource_version = Some(version.to_string());
            let event = Update::Event(WatchEvent::Delete(Box::new(object)));
            self.watch(HubEvent::Object(event));
        }
    }

    fn pass(&mut self, seconds: i64) {
        let time = SignedDuration::from_secs(seconds);
        self.now += time;
        self.uptime += time;
    }

    fn happen(&mut self, event: Event) {
        self.pass(1);
        match event {
            Event::ClockSet(minutes) => self.now += SignedDuration::from_mins(minutes),
            Event::Rotate => self.rotate(),
            Event::Pause(paused) => {
                self.fleet.spec.rollout.paused = paused;
                self.cache.put_fleet(self.fleet.clone());
                self.follower.put_fleet(self.fleet.clone());
            }
            Event::Change(at, hand_made) => {
                if let Some(object) = self.change(at, hand_made) {
                    self.watch(HubEvent::Object(applied(Box::new(object))));
                }
            }
            Event::Delete(at) => self.delete(at),
            Event::Replace(at, hand_made) => {
                if let Some(spec) = self.spec(at, hand_made) {
                    self.delete(at);
                    let object = self.write(at, spec, "kubectl");
                    self.watch(HubEvent::Object(applied(Box::new(object))));
                }
            }
            Event::Restart(change) => {
                // The next hub can't distinguish changes that this one has not reverted yet from its own. A new
                // revision comes before that.
                for _ in 0..2 {
                    self.plan();
                }
                if let Some((at, hand_made)) = change {
                    self.change(at, hand_made);
                }
                self.restart();
            }
            Event::RestartWithout(objects) => {
                for _ in 0..2 {
                    self.plan();
                }
                for at in (0..CLUSTERS).filter(|at| objects & (1 << at) != 0) {
                    self.delete(at);
                    self.planned.remove(&object_name(at));
                }
                self.restart();
            }
            Event::Reinstall(at) => {
                let identity = format!("{}-{}", name(at), self.next_version());
                self.members[at].identity = identity;
                self.members[at].content = None;
                self.members[at].written = 0;
            }
            Event::Clone(at, of) => {
                let of = of.unwrap_or(at);
                let content = self.members[of].content;
                let content_as = self.members[of].content_as.clone();
                let written_for = self.members[of].written_for;
                let identity = if of == at {
                    format!("{}-{}", name(at), self.next_version())
                } else {
                    self.members[of].identity.clone()
                };
                self.members[at].identity = identity;
                self.members[at].content = content;
                self.members[at].content_as = content_as;
                self.members[at].written_for = written_for;
                self.members[at].written = 0;
            }
            Event::Lie(at, of) => {
                self.members[at].identity = self.members[of].identity.clone();
                self.members[at].written = 0;
            }
            Event::Redirect(at, to) => {
                self.places[at] = to;
                self.members[to].written = 0;
            }
            Event::Accept(at) => self.accept(at),
            Event::Reachable(at, is_reachable) => self.members[at].is_reachable = is_reachable,
            Event::Foreign(number) => self.create_foreign(number),
            Event::Annotate(number, mark) => self.annotate(number, mark),
            Event::Falsify(number) => self.falsify(number),
            Event::Break(at) => {
                self.broken.insert((at, self.source.clone().into_bytes()));
            }
            Event::EditStatus(at, edit) => self.edit_status(at, edit),
            Event::Lose(loses) => self.loses = loses,
            Event::Plan => {
                self.plan();
            }
            Event::Session(at) => self.session(at),
        }
    }

    fn edit_status(&mut self, at: usize, edit: Edit) {
        let version = self.next_version();
        let identity = |of: usize| self.members[of].identity.clone();
        let Some(object) = self.objects.get_mut(&object_name(at)) else {
            return;
        };
        let status = object.status.get_or_insert_default();
        status.observed_generation = object.metadata.generation.unwrap_or_default();
        match edit {
            Edit::Phase(phase) => status.phase = phase,
            Edit::Identity(of) => status.identity = Some(identity(of)),
            Edit::Revision(number) => status.set_in_force(Revision::new(number, id_of(number))),
            Edit::Nothing => object.status = None,
        }
        object.metadata.resource_version = Some(version.to_string());
        let object = object.clone();
        self.watch(HubEvent::Object(applied(Box::new(object))));
    }

    fn accept(&mut self, at: usize) {
        let version = self.next_version();
        let Some(object) = self.objects.get_mut(&object_name(at)) else {
            return;
        };
        let status = object.status.as_ref();
        let Some(found) = status.and_then(|it| it.found_identity.clone()) else {
            return;
        };
        object
            .annotations_mut()
            .insert(ACCEPTED_IDENTITY_ANNOTATION.to_owned(), found);
        object.metadata.resource_version = Some(version.to_string());
        let object = object.clone();
        self.watch(HubEvent::Object(applied(Box::new(object))));
        self.members[self.places[at]].written = 0;
    }

    /// The hub writes the status of the object with this name.
    fn write_status(&mut self, name: &str, status: ClusterPullSecretStatus) {
        let version = self.next_version();
        let Some(object) = self.objects.get_mut(name) else {
            return;
        };
        object.status = Some(status.clone());
        object.metadata.resource_version = Some(version.to_string());
        let object = object.clone();
        self.reported.insert(name.to_owned(), status);
        self.cache.put_status(object.clone());
        self.follower.put_status(object.clone());
        self.watch(HubEvent::Object(applied(Box::new(object))));
        self.pins.observe(&self.cache);
        self.follower_pins.observe(&self.follower);
    }

    /// Plans, and writes. Returns whether there was something to write.
    fn plan(&mut self) -> bool {
        for (object, status) in due(&self.cache, &BTreeMap::new(), self.now) {
            self.write_status(&object.name_any(), status);
        }
        let plan = self.planned();
        for revision in &plan.revisions {
            assert!(!self.foreign.contains_key(&revision.number), "of another");
            if !self.revisions.contains_key(&revision.number) {
                let content = revision.content.0.clone().unwrap_or_default();
                let is_source = content == self.source.as_bytes();
                let mut broken = self.broken.iter();
                let has_failed = broken.any(|(_, with)| with == self.source.as_bytes());
                assert!(is_source || has_failed, "only what fails is rolled back");
                let is_first = self.rolled_out.insert((self.rotations, content));
                assert!(is_first, "a source's content is rolled out once");
            }
            self.cache.expect_revision(&self.fleet, revision);
            let secret = self.secret_of(revision, "fleet");
            let written = views::revision(&secret).revision;
            self.written.insert(revision.number, written);
            self.cache.put_revision(&secret);
            self.follower.put_revision(&secret);
            self.revisions.insert(revision.number, secret);
        }
        for ((_, cluster), spec) in &plan.assignments {
            let at = (0..CLUSTERS).find(|at| name(*at) == *cluster).unwrap();
            let object = self.write(at, spec.clone(), HUB);
            self.planned.insert(object_name(at), spec.clone());
            if self.loses {
                self.cache
                    .wrote_without_response("ns", &object_name(at), spec.clone());
            } else {
                self.cache.put_object(object.clone());
            }
            self.watch(HubEvent::Object(applied(Box::new(object))));
        }
        assert!(plan.released.is_empty(), "every cluster is selected");
        !plan.assignments.is_empty() || !plan.revisions.is_empty()
    }

    /// The Secret of a revision, with this owner.
    fn secret_of(&mut self, revision: &FleetRevision, owner: &str) -> Secret {
        let mut secret = revision.encode(&self.fleet);
        secret.metadata.namespace = Some("ns".to_owned());
        secret.metadata.resource_version = Some(self.next_version().to_string());
        let owner = OwnerReference {
            uid: owner.to_owned(),
            ..OwnerReference::default()
        };
        secret.metadata.owner_references = Some(vec![owner]);
        secret
    }

    /// The watch reports it.
    fn annotate(&mut self, number: i64, mark: Mark) {
        let version = self.next_version();
        let Some(secret) = self.revisions.get_mut(&number) else {
            return;
        };
        secret.metadata.resource_version = Some(version.to_string());
        let annotations = secret.annotations_mut();
        let (key, value) = match mark {
            Mark::Rejected => (REJECTED_ANNOTATION, "x"),
            Mark::CanaryPassed => (CANARY_PASSED_ANNOTATION, "true"),
            Mark::RolledOut => (ROLLED_OUT_ANNOTATION, "2026-01-01T00:00:00Z"),
            Mark::Number => (REVISION_ANNOTATION, "99"),
            Mark::None => {
                for key in [
                    REJECTED_ANNOTATION,
                    CANARY_PASSED_ANNOTATION,
                    ROLLED_OUT_ANNOTATION,
                ] {
                    annotations.remove(key);
                }
                (REVISION_ID_ANNOTATION, "x")
            }
        };
        annotations.insert(key.to_owned(), value.to_owned());
        let found = views::revision(secret);
        self.watch(HubEvent::Revision(applied(found)));
    }

    /// The watch reports both.
    fn falsify(&mut self, number: i64) {
        let versions = [self.next_version(), self.next_version()];
        let Some(secret) = self.revisions.get_mut(&number) else {
            return;
        };
        self.falsified += 1;
        self.rolled_out.clear();
        let deleted = views::revision(secret);
        let content = ByteString(br#"{"auths":{"false.io":{"auth":"dTpw"}}}"#.to_vec());
        secret
            .data
            .get_or_insert_default()
            .insert(DATA_KEY.to_owned(), content);
        secret.metadata.uid = Some(format!("u{}", versions[0]));
        secret.metadata.resource_version = Some(versions[1].to_string());
        let created = views::revision(secret);
        self.written.insert(number, created.revision.clone());
        self.watch(HubEvent::Revision(Update::Event(WatchEvent::Delete(
            deleted,
        ))));
        self.watch(HubEvent::Revision(applied(created)));
    }

    fn create_foreign(&mut self, number: i64) {
        if self.revisions.contains_key(&number) {
            return;
        }
        let content = Arc::new(Data(Some(b"{}".to_vec())));
        let id = RevisionId::from_random(0xbad);
        let revision = FleetRevision::new(Revision::new(number, id), content, None);
        let secret = self.secret_of(&revision, "another");
        self.cache.put_revision(&secret);
        self.follower.put_revision(&secret);
        self.foreign.insert(number, secret);
    }

    fn planned(&mut self) -> FleetPlan {
        self.cache.forget_foreign();
        self.clock.observe(self.cache.objects(), self.uptime);
        let clusters = with_obstacles(&self.cache);
        let source = Source::Found(Data(Some(self.source.clone().into_bytes())));
        let revisions = self.cache.revisions(&self.fleet);
        let last = revisions.last().map_or(0, |it| it.number);
        plan(&FleetInput {
            fleet: &self.fleet,
            unreadable: None,
            source: &source,
            install: Ok(None),
            revisions,
            new_id: id_of(last + 1),
            foreign: self.cache.foreign_revisions(&self.fleet),
            clusters: &clusters,
            namespaces: &BTreeMap::new(),
            objects: self.cache.objects_of(&self.fleet).collect(),
            drift: self.cache.drift(&self.fleet),
            taken: BTreeMap::new(),
            hidden: self.cache.hidden(),
            room: &self.cache.room(&clusters),
            left_out: self.cache.left_out(&self.fleet),
            trust: &Trust::default(),
            refused: &Failures::default(),
            clock: &self.clock,
            now: self.now,
        })
    }

    fn specs(&mut self) -> BTreeMap<ClusterKey, MemberSpec> {
        let specs = specs_of(&self.cache, &mut self.pins).into_iter();
        specs.map(|((_, key), spec)| (key, spec)).collect()
    }

    fn session(&mut self, at: usize) {
        let Some(spec) = self.specs().remove(&key(at)) else {
            return;
        };
        let annotations = self.objects[&object_name(at)].annotations();
        let accepted = annotations.get(ACCEPTED_IDENTITY_ANNOTATION).cloned();
        let member = &mut self.members[self.places[at]];
        let identity = Some(member.identity.clone());
        let pinned = &mut self.pinned[at];
        if member.is_reachable && (pinned.is_none() || accepted == identity) {
            pinned.clone_from(&identity);
        }
        let is_pinned = *pinned == identity;
        let is_accepted = spec.accepts(identity.as_ref());
        let is_of_another = member.content.is_some() && member.written_for != at;
        let (phase, in_force) = match &spec.desired {
            _ if !member.is_reachable => (ClusterPhase::Unreachable, spec.revision),
            _ if !spec.pin.allows(identity.as_deref()) => (ClusterPhase::Blocked, spec.revision),
            Desired::Nothing => {
                let is_unknown = spec.revision == Revision::NONE && !is_of_another;
                let has_it = member.content.filter(|_| is_unknown);
                let unknown = has_it.map(|it| Revision::new(it.number, RevisionId::UNKNOWN));
                (ClusterPhase::Pending, unknown.unwrap_or(spec.revision))
            }
            _ if !is_accepted => (ClusterPhase::Syncing, spec.revision),
            _ if is_of_another => (ClusterPhase::Blocked, spec.revision),
            Desired::Revision(release) => {
                assert!(is_pinned, "c{at} is not the pinned cluster");
                member.written_for = at;
                let number = release.revision.number;
                let had = std::mem::replace(&mut member.written, number);
                assert!(number >= had, "c{at} goes back from {had} to {number}");
                let is_false = release
                    .content
                    .0
                    .as_ref()
                    .is_some_and(|it| it.starts_with(br#"{"auths":{"false"#));
                assert!(!is_false, "c{at} gets what is no revision of the hub");
                member.content = Some(release.revision);
                member.content_as.clone_from(&member.identity);
                let content = release.content.0.clone().unwrap_or_default();
                if self.broken.contains(&(at, content)) {
                    (ClusterPhase::Failed, spec.revision)
                } else {
                    (ClusterPhase::Synced, release.revision)
                }
            }
            Desired::Removed => panic!("c{at} is selected"),
        };
        let mut status = ClusterPullSecretStatus {
            phase,
            observed_generation: spec.generation,
            ..ClusterPullSecretStatus::default()
        };
        let found = identity.filter(|_| member.is_reachable);
        spec.pin.report(found.as_deref(), &mut status);
        status.set_in_force(in_force);
        let dated = {
            let mut known = self.cache.objects();
            let known = known.find(|it| pair(it).is_some_and(|(_, it)| it == key(at)));
            known.and_then(|object| dated(object, &status, self.now))
        };
        if let Some(dated) = dated {
            self.write_status(&object_name(at), dated);
        }
    }

    /// Another process believes only what the hub assigned.
    fn check_follower(&mut self) {
        for ((_, (_, cluster)), spec) in specs_of(&self.follower, &mut self.follower_pins) {
            let planned = self
                .planned
                .get(&cluster_pull_secret(&cluster, "ns", "shared"));
            match (spec.desired, planned) {
                (Desired::Revision(release), Some(planned)) => {
                    assert!(!planned.revoked && !planned.remove, "{cluster}");
                    assert_eq!(release.revision, planned.assigned(), "{cluster}");
                }
                (Desired::Nothing, _) => {}
                (desired, _) => panic!("{cluster}: {desired:?}"),
            }
        }
    }

    /// Whatever others have made of them.
    fn check_statuses(&self) {
        for cache in [&self.cache, &self.follower] {
            for object in cache.own_objects() {
                let name = object.name_any();
                assert_eq!(object.status.as_ref(), self.reported.get(&name), "{name}");
            }
        }
    }

    /// How many clusters with content get other content now.
    fn in_flight(&mut self) -> usize {
        let specs = self.specs();
        let changes = |at: &usize| {
            let member = &self.members[self.places[*at]];
            let Some(spec) = specs.get(&key(*at)).filter(|_| member.written_for == *at) else {
                return false;
            };
            let is_accepted = spec.accepts(Some(&member.identity)) && member.is_reachable;
            match &spec.desired {
                Desired::Revision(release) if is_accepted => member
                    .content
                    .filter(|_| member.content_as == member.identity)
                    .is_some_and(|content| content != release.revision),
                _ => false,
            }
        };
        (0..CLUSTERS).filter(changes).count()
    }

    /// The revisions must be as the hub wrote them, whatever other clients changed.
    fn check_revisions(&self) {
        for found in self.cache.revisions(&self.fleet) {
            let is_own = self.written.get(&found.number) == Some(&found);
            assert!(is_own, "{found:?}");
        }
    }

    fn check(&mut self) {
        self.check_follower();
        self.check_revisions();
        self.check_statuses();
        let in_flight = self.in_flight();
        assert!(in_flight <= MAX_UNAVAILABLE, "{in_flight}");
        let last = self.revisions.keys().last().copied().unwrap_or_default();
        let skipped = self.foreign.range(..last).count();
        // For each content, and for the one that replaces it if it fails.
        let most = 2 * (self.rotations + self.falsified) + i64::try_from(skipped).unwrap();
        assert!(last <= most, "nobody's number is raised to");
    }

    fn rest(&mut self) {
        for _ in 0..40 {
            self.pass(61);
            self.plan();
            self.check();
            for at in 0..CLUSTERS {
                self.session(at);
                if self.is_settling {
                    self.accept(at);
                }
            }
        }
        assert!(!self.plan(), "it converges");
    }

    /// No more disturbances, and time passes.
    fn settle(&mut self) {
        self.happen(Event::Pause(false));
        self.loses = false;
        self.is_settling = true;
        for at in 0..CLUSTERS {
            self.places[at] = at;
            self.members[at].is_reachable = true;
            // The owner of the copy deletes the Secret.
            if self.members[at].written_for != at {
                self.members[at].content = None;
            }
            self.members[at].identity = format!("{}-{}", name(at), self.next_version());
            self.members[at].written = 0;
        }
        self.rest();
        // Content that fails in too many clusters is rolled back, or halts.
        self.happen(Event::Rotate);
        self.rest();
        let newest = self.cache.revisions(&self.fleet).pop().unwrap();
        assert!(newest.rolled_out.is_some());
        assert_eq!(
            self.revisions[&newest.number].name_any(),
            fleet_revision("shared", newest.number)
        );
        for (at, member) in self.members.iter().take(CLUSTERS).enumerate() {
            assert_eq!(member.content, Some(newest.revision()), "c{at}");
            let object = &self.objects[&object_name(at)];
            let spec = &object.spec;
            assert_eq!(spec.assigned(), newest.revision(), "c{at}");
            assert!(!spec.remove && !spec.revoked, "c{at}");
            let status = object.status.as_ref().unwrap();
            assert_eq!(status.in_force(), newest.revision(), "c{at}");
        }
        let followed = specs_of(&self.follower, &mut self.follower_pins);
        assert!(!followed.is_empty(), "it has some of the clusters");
        for ((_, (_, cluster)), spec) in followed {
            let is_newest =
                matches!(&spec.desired, Desired::Revision(it) if it.revision == newest.revision());
            assert!(is_newest, "{cluster}: {:?}", spec.desired);
        }
    }
}

fn specs_of(cache: &HubCache, pins: &mut Pins) -> Vec<(Pair, MemberSpec)> {
    pins.observe(cache);
    let clusters = with_obstacles(cache);
    let known = Arc::new(cache.known());
    member_specs(cache, &clusters, (&Trust::default(), pins), &known)
}

fn id_of(number: i64) -> RevisionId {
    RevisionId::from_random(number.unsigned_abs() + 1000)
}

fn applied<T>(object: T) -> Update<T> {
    Update::Event(WatchEvent::Apply(object))
}

#[test]
fn a_cluster_without_its_object_takes_a_slot_until_it_reports() {
    let mut simulation = Simulation::rolled_out();
    simulation.happen(Event::Rotate);
    simulation.happen(Event::Replace(1, HandMade::Revision(99)));
    simulation.plan();
    for at in [1, 0, 2, 3] {
        // The first report after the recreation says only which cluster it is.
        for event in [Event::Plan, Event::Session(at), Event::Plan] {
            simulation.happen(event);
            simulation.check();
        }
    }
    simulation.settle();
}

#[test]
fn objects_deleted_while_no_hub_ran_make_no_cluster_new() {
    let mut simulation = Simulation::rolled_out();
    simulation.happen(Event::Rotate);
    let canary = [0, 1, 2, 3].map(Event::Session);
    let canary = [Event::Plan, Event::Plan].into_iter().chain(canary);
    let deleted = Event::RestartWithout(0b1111);
    for event in canary.chain([Event::Plan, deleted]) {
        simulation.happen(event);
        simulation.check();
    }
    simulation.happen(Event::Plan);
    for at in 0..CLUSTERS {
        simulation.happen(Event::Session(at));
    }
    simulation.happen(Event::Plan);
    simulation.check();
    simulation.settle();
}

/// The first member reports the identity of the second one.
#[test]
fn a_member_with_anothers_identity_stops_at_most_itself() {
    let mut before_content = Simulation::new();
    before_content.happen(Event::Lie(0, 1));
    before_content.rest();
    let newest = before_content.cache.revisions(&before_content.fleet).pop();
    let newest = Some(newest.unwrap().revision());
    for member in &before_content.members[..CLUSTERS] {
        assert_eq!(member.content, newest, "an equal identity stops no cluster");
    }

    let mut after_content = Simulation::rolled_out();
    let first = after_content.members[0].content;
    after_content.happen(Event::Lie(0, 1));
    after_content.happen(Event::Rotate);
    after_content.rest();
    let newest = after_content.cache.revisions(&after_content.fleet).pop();
    let newest = Some(newest.unwrap().revision());
    assert_eq!(after_content.members[0].content, first);
    for member in &after_content.members[1..CLUSTERS] {
        assert_eq!(member.content, newest);
    }
    after_content.settle();
}

#[test]
fn a_kubeconfig_to_another_cluster_is_used_once_accepted() {
    let status = |simulation: &Simulation| {
        let object = &simulation.objects[&object_name(0)];
        object.status.clone().unwrap()
    };
    for deletes_object in [false, true] {
        let mut simulation = Simulation::rolled_out();
        let first = simulation.members[0].content;
        simulation.happen(Event::Redirect(0, ATTACKER));
        if deletes_object {
            simulation.happen(Event::Delete(0));
        }
        simulation.happen(Event::Rotate);
        simulation.rest();
        assert_eq!(simulation.members[ATTACKER].content, None);
        assert_eq!(status(&simulation).phase, ClusterPhase::Blocked);
        assert_eq!(status(&simulation).identity, Some(name(0)));
        assert_eq!(status(&simulation).found_identity, Some(name(ATTACKER)));
        for member in &simulation.members[1..CLUSTERS] {
            assert_ne!(member.content, first, "the others continue");
        }
        // A third identity is not the accepted one.
        simulation.happen(Event::Accept(0));
        simulation.members[ATTACKER].identity = "third".to_owned();
        simulation.rest();
        assert_eq!(simulation.members[ATTACKER].content, None);
        simulation.happen(Event::Accept(0));
        simulation.rest();
        assert_ne!(simulation.members[ATTACKER].content, None);
        assert_eq!(status(&simulation).identity.as_deref(), Some("third"));
        // Another cluster of the hub keeps its Secret.
        simulation.happen(Event::Redirect(0, 1));
        for _ in 0..2 {
            simulation.rest();
            simulation.happen(Event::Accept(0));
        }
        simulation.rest();
        assert_eq!(simulation.members[1].written_for, 1);
        assert_eq!(status(&simulation).phase, ClusterPhase::Blocked);
        simulation.settle();
    }
}

proptest! {
    // More such events happen to real hubs in `make soak-hub`.
    #![proptest_config(config(128))]

    #[test]
    fn clusters_get_the_newest_revision_whatever_others_do(
        events in proptest::collection::vec(event(), 0..80)
    ) {
        let mut simulation = Simulation::new();
        for event in events {
            simulation.happen(event);
            simulation.check();
        }
        simulation.settle();
    }
}
