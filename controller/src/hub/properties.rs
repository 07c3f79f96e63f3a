//! Property: whatever other clients do to `ClusterPullSecret`s, and whichever clusters are behind the kubeconfigs, the rollout continues
//! within its limits, and each cluster has the newest revision in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus,
    FleetPullSecret,
};
use globalps_core::names::{cluster_pull_secret, fleet_revision};
use globalps_core::rollout::{Revision, RevisionId};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event as WatchEvent;
use proptest::prelude::*;
use serde_json::json;

use super::cache::HubCache;
use super::desired::member_specs;
use super::messages::MemberSpec;
use super::reconcile::with_obstacles;
use super::statuses::dated;
use super::views::{ClusterObject, Id, NamespaceLabels, pair};
use super::watches::HubEvent;
use crate::cache::list_watch::Update;
use crate::clusters::input::{ClusterKey, Input, fleet_title};
use crate::clusters::member::Desired;
use crate::clusters::plan::{FleetPlan, plan};
use crate::clusters::revision;
use crate::content::source::{Data, Source};
use crate::refused::Failures;

const CLUSTERS: usize = 4;
const MAX_UNAVAILABLE: usize = 2;

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
    AnotherTime(i64),
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
    /// The cluster is installed again, with nothing, behind the same kubeconfig.
    Reinstall(usize),
    /// It is a clone of another one, with its content, or has its own identity again.
    Clone(usize, Option<usize>),
    Reachable(usize, bool),
    /// Another client creates a Secret that is named like a revision.
    Foreign(i64),
    /// Writes take effect, but their responses are lost.
    Lose(bool),
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
        prop_oneof![Just(-100_000), Just(100_000)].prop_map(HandMade::AnotherTime),
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
        1 => at.clone().prop_map(Event::Reinstall),
        1 => (at.clone(), proptest::option::of(at.clone())).prop_map(|(at, of)| Event::Clone(at, of)),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, is)| Event::Reachable(at, is)),
        1 => prop_oneof![Just(9_007_199_254_740_991), 1..9_i64].prop_map(Event::Foreign),
        1 => any::<bool>().prop_map(Event::Lose),
        10 => Just(Event::Plan),
        12 => at.prop_map(Event::Session),
    ]
}

struct Member {
    identity: String,
    is_reachable: bool,
    content: Option<Revision>,
    /// Its identity when it got that. With another one it is a new cluster, whose content is not the hub's.
    content_as: String,
    /// The last number that the hub has written there.
    written: i64,
}

struct Simulation {
    fleet: FleetPullSecret,
    source: String,
    rotations: i64,
    /// As the API server has them, by name.
    objects: BTreeMap<String, ClusterPullSecret>,
    revisions: BTreeMap<i64, Secret>,
    /// Secrets of other clients that are named like revisions.
    foreign: BTreeMap<i64, Secret>,
    members: Vec<Member>,
    cache: HubCache,
    loses: bool,
    version: u64,
    now: Timestamp,
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
            "rollout": {"maxUnavailable": MAX_UNAVAILABLE},
        });
        let mut fleet = FleetPullSecret::new("shared", serde_json::from_value(spec).unwrap());
        fleet.metadata.namespace = Some("ns".to_owned());
        fleet.metadata.uid = Some("fleet".to_owned());
        let member = |at| Member {
            identity: name(at),
            is_reachable: true,
            content: None,
            content_as: String::new(),
            written: 0,
        };
        let mut simulation = Self {
            fleet,
            source: String::new(),
            rotations: 0,
            objects: BTreeMap::new(),
            revisions: BTreeMap::new(),
            foreign: BTreeMap::new(),
            members: (0..CLUSTERS).map(member).collect(),
            cache: HubCache::new(&[], "0/1".parse().unwrap()),
            loses: false,
            version: 1,
            now: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1000),
        };
        simulation.rotate();
        simulation.restart();
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
        self.cache.handle((String::new(), event));
    }

    /// A new hub lists everything.
    fn restart(&mut self) {
        self.cache = HubCache::new(&[], "0/1".parse().unwrap());
        let id = |namespace: &str, name: &str| Id {
            key: (namespace.to_owned(), name.to_owned()),
            uid: name.to_owned(),
            version: 1,
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
                labels: BTreeMap::new(),
                is_deleting: false,
            };
            self.watch(HubEvent::Cluster(applied(cluster)));
        }
        for secret in self.revisions.values().chain(self.foreign.values()) {
            self.cache.put_revision(secret);
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
                let time = self.now + SignedDuration::from_mins(minutes);
                ClusterPullSecretSpec {
                    assigned_at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time)),
                    ..spec
                }
            }
        })
    }

    /// Writes a spec as any client can, and returns the object.
    fn write(&mut self, at: usize, spec: ClusterPullSecretSpec) -> ClusterPullSecret {
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
        object.spec = spec;
        object.metadata.resource_version = Some(version.to_string());
        object.clone()
    }

    fn change(&mut self, at: usize, hand_made: HandMade) -> Option<ClusterPullSecret> {
        let spec = self.spec(at, hand_made)?;
        Some(self.write(at, spec))
    }

    fn delete(&mut self, at: usize) {
        let version = self.next_version();
        if let Some(mut object) = self.objects.remove(&object_name(at)) {
            object.metadata.resource_version = Some(version.to_string());
            let event = Update::Event(WatchEvent::Delete(Box::new(object)));
            self.watch(HubEvent::Object(event));
        }
    }

    fn happen(&mut self, event: Event) {
        self.now += SignedDuration::from_secs(1);
        match event {
            Event::Rotate => self.rotate(),
            Event::Pause(paused) => {
                self.fleet.spec.rollout.paused = paused;
                self.cache.put_fleet(self.fleet.clone());
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
                    let object = self.write(at, spec);
                    self.watch(HubEvent::Object(applied(Box::new(object))));
                }
            }
            Event::Restart(change) => {
                // What the hub has not reverted yet, the next one can't tell from its own. A new revision comes before that.
                for _ in 0..2 {
                    self.plan();
                }
                if let Some((at, hand_made)) = change {
                    self.change(at, hand_made);
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
                let identity = if of == at {
                    format!("{}-{}", name(at), self.next_version())
                } else {
                    self.members[of].identity.clone()
                };
                self.members[at].identity = identity;
                self.members[at].content = content;
                self.members[at].content_as = content_as;
                self.members[at].written = 0;
            }
            Event::Reachable(at, is_reachable) => self.members[at].is_reachable = is_reachable,
            Event::Foreign(number) => self.create_foreign(number),
            Event::Lose(loses) => self.loses = loses,
            Event::Plan => {
                self.plan();
            }
            Event::Session(at) => self.session(at),
        }
    }

    /// Plans, and writes. Returns whether there was something to write.
    fn plan(&mut self) -> bool {
        let plan = self.planned();
        for revision in &plan.revisions {
            assert!(!self.foreign.contains_key(&revision.number), "of another");
            let secret = self.secret_of(revision, "fleet");
            self.cache.put_revision(&secret);
            self.revisions.insert(revision.number, secret);
        }
        for ((_, cluster), spec) in &plan.assignments {
            let at = (0..CLUSTERS).find(|at| name(*at) == *cluster).unwrap();
            let object = self.write(at, spec.clone());
            if self.loses {
                self.cache
                    .wrote_without_response("ns", &object_name(at), spec.clone());
            } else {
                self.cache.put_object(object.clone());
            }
            self.watch(HubEvent::Object(applied(Box::new(object))));
        }
        assert!(plan.released.is_empty(), "every cluster is selected");
        assert!(!plan.revisions.iter().any(|it| it.rejected.is_some()));
        !plan.assignments.is_empty() || !plan.revisions.is_empty()
    }

    /// The Secret of a revision, with this owner.
    fn secret_of(&mut self, revision: &revision::Revision, owner: &str) -> Secret {
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

    fn create_foreign(&mut self, number: i64) {
        if self.revisions.contains_key(&number) {
            return;
        }
        let content = Arc::new(Data(Some(b"{}".to_vec())));
        let id = RevisionId::from_random(0xbad);
        let revision = revision::Revision::new(Revision::new(number, id), content, None);
        let secret = self.secret_of(&revision, "another");
        self.cache.put_revision(&secret);
        self.foreign.insert(number, secret);
    }

    fn planned(&self) -> FleetPlan {
        let clusters = with_obstacles(&self.cache);
        let objects = self.cache.objects();
        let objects = objects.filter_map(|object| {
            let (fleet, key) = pair(object)?;
            (fleet == fleet_title(&self.fleet)).then_some((key, object))
        });
        let source = Source::Found(Data(Some(self.source.clone().into_bytes())));
        let revisions = self.cache.revisions(&self.fleet);
        let last = revisions.last().map_or(0, |it| it.number);
        plan(&Input {
            fleet: &self.fleet,
            unreadable: None,
            source: &source,
            install: Ok(None),
            revisions,
            new_id: id_of(last + 1),
            foreign: self.cache.foreign_revisions(&self.fleet),
            clusters: &clusters,
            namespaces: &BTreeMap::new(),
            objects: objects.collect(),
            drift: self.cache.drift(&fleet_title(&self.fleet)),
            taken: BTreeMap::new(),
            hidden: self.cache.hidden(),
            refused: &Failures::default(),
            now: self.now,
        })
    }

    fn specs(&self) -> BTreeMap<ClusterKey, MemberSpec> {
        let specs = member_specs(&self.cache, &with_obstacles(&self.cache)).into_iter();
        specs.map(|((_, key), spec)| (key, spec)).collect()
    }

    fn session(&mut self, at: usize) {
        let Some(spec) = self.specs().remove(&key(at)) else {
            return;
        };
        let member = &mut self.members[at];
        let identity = Some(member.identity.clone());
        let is_accepted = spec.accepts(identity.as_ref());
        let (phase, in_force) = match &spec.desired {
            _ if !member.is_reachable => (ClusterPhase::Unreachable, spec.revision),
            Desired::Nothing => (ClusterPhase::Pending, spec.revision),
            _ if !is_accepted => (ClusterPhase::Syncing, spec.revision),
            Desired::Revision(release) => {
                let number = release.revision.number;
                let had = std::mem::replace(&mut member.written, number);
                assert!(number >= had, "c{at} goes back from {had} to {number}");
                member.content = Some(release.revision);
                member.content_as.clone_from(&member.identity);
                (ClusterPhase::Synced, release.revision)
            }
            Desired::Removed => panic!("c{at} is selected"),
        };
        let mut status = ClusterPullSecretStatus {
            phase,
            observed_generation: spec.generation,
            identity: identity.filter(|_| member.is_reachable),
            ..ClusterPullSecretStatus::default()
        };
        status.set_in_force(in_force);
        let dated = {
            let mut known = self.cache.objects();
            let known = known.find(|it| pair(it).is_some_and(|(_, it)| it == key(at)));
            known.and_then(|object| dated(object, &status, self.now))
        };
        let version = self.next_version();
        let object = self.objects.get_mut(&object_name(at));
        if let (Some(object), Some(dated)) = (object, dated) {
            object.status = Some(dated);
            object.metadata.resource_version = Some(version.to_string());
            let object = object.clone();
            self.cache.put_status(object.clone());
            self.watch(HubEvent::Object(applied(Box::new(object))));
        }
    }

    /// How many clusters with content get other content now.
    fn in_flight(&self) -> usize {
        let specs = self.specs();
        let changes = |at: &usize| {
            let member = &self.members[*at];
            let Some(spec) = specs.get(&key(*at)) else {
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

    fn check(&self) {
        assert!(self.in_flight() <= MAX_UNAVAILABLE, "{}", self.in_flight());
        let last = self.revisions.keys().last().copied().unwrap_or_default();
        let skipped = self.foreign.range(..last).count();
        let most = self.rotations + i64::try_from(skipped).unwrap();
        assert!(last <= most, "nobody's number is raised to");
    }

    /// No more disturbances, and time passes.
    fn settle(&mut self) {
        self.happen(Event::Pause(false));
        self.loses = false;
        for at in 0..CLUSTERS {
            self.members[at].is_reachable = true;
            self.members[at].identity = format!("{}-{}", name(at), self.next_version());
            self.members[at].written = 0;
        }
        for _ in 0..40 {
            self.now += SignedDuration::from_secs(61);
            self.plan();
            self.check();
            for at in 0..CLUSTERS {
                self.session(at);
            }
        }
        assert!(!self.plan(), "it converges");
        let newest = self.cache.revisions(&self.fleet).pop().unwrap();
        assert!(newest.rolled_out.is_some());
        assert_eq!(
            self.revisions[&newest.number].name_any(),
            fleet_revision("shared", newest.number)
        );
        for (at, member) in self.members.iter().enumerate() {
            assert_eq!(member.content, Some(newest.revision()), "c{at}");
            let object = &self.objects[&object_name(at)];
            let spec = &object.spec;
            assert_eq!(spec.assigned(), newest.revision(), "c{at}");
            assert!(!spec.remove && !spec.revoked, "c{at}");
            let status = object.status.as_ref().unwrap();
            assert_eq!(status.in_force(), newest.revision(), "c{at}");
        }
    }
}

fn id_of(number: i64) -> RevisionId {
    RevisionId::from_random(number.unsigned_abs() + 1000)
}

fn applied<T>(object: T) -> Update<T> {
    Update::Event(WatchEvent::Apply(object))
}

#[test]
fn a_cluster_whose_object_was_deleted_takes_a_slot_until_it_reports_what_it_has() {
    let mut simulation = Simulation::new();
    let rollout = [0, 1, 2, 3].into_iter().cycle().take(3 * CLUSTERS);
    for event in rollout.flat_map(|at| [Event::Plan, Event::Session(at)]) {
        simulation.happen(event);
    }
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

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn clusters_get_the_newest_revision_after_anything_that_others_do(
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
