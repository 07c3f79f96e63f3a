//! A user who may write objects in one namespace, and a member cluster, can't fill the hub's memory.
use std::collections::BTreeMap;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus,
    FleetPullSecret, GlobalPullSecret,
};
use globalps_core::names::{FLEET_LABEL, cluster_pull_secret, fleet_revision};
use globalps_core::reasons::Reason;
use globalps_planner::clusters::desired::Desired;
use globalps_planner::clusters::input::ClusterKey;
use globalps_planner::clusters::member_report::MemberStatus;
use globalps_planner::clusters::revision::FleetRevision;
use globalps_planner::clusters::target::TargetView;
use globalps_planner::content::secret::revision_of_test;
use globalps_planner::content::source::{Data, Source};
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::cache::HubCache;
use super::messages::Observations;
use super::source::SourceState;
use super::statuses::due;
use super::views::{Kubeconfig, MAX_KUBECONFIG, kubeconfig, revision};
use super::watches::HubEvent;

/// A cluster of the fleet.
const KNOWN: &str = "m";

fn fleet(uid: &str) -> FleetPullSecret {
    let spec = json!({"secretRef": {"name": "shared"}, "registered": {}});
    let mut fleet = FleetPullSecret::new("shared", serde_json::from_value(spec).unwrap());
    fleet.metadata.namespace = Some("ns".to_owned());
    fleet.metadata.uid = Some(uid.to_owned());
    fleet
}

fn secret(fields: Value) -> Secret {
    serde_json::from_value(fields).unwrap()
}

fn registered(name: &str, kubeconfig: usize) -> Secret {
    secret(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"globalps.io/cluster": "true"}},
        "data": {"kubeconfig": ByteString(vec![b'x'; kubeconfig])},
    }))
}

fn see(cache: &mut HubCache, event: HubEvent) {
    cache.handle((String::new(), event));
}

/// The cache with the fleet `shared` and its cluster, and complete lists.
fn cache() -> HubCache {
    let mut cache = HubCache::new(&[], "0/1".parse().unwrap());
    let fleet = Box::new(fleet("fleet"));
    see(&mut cache, HubEvent::Fleet(applied(fleet)));
    let cluster = kubeconfig(&registered(KNOWN, 1));
    see(&mut cache, HubEvent::Registered(applied(cluster)));
    see(&mut cache, HubEvent::Object(Update::Event(Event::Init)));
    see(&mut cache, HubEvent::Object(Update::Event(Event::InitDone)));
    cache
}

fn applied<T>(object: T) -> Update<T> {
    Update::Event(Event::Apply(object))
}

/// The object of this cluster, in which another client assigned and reported a revision.
fn object(cluster: &str, version: u64) -> Box<ClusterPullSecret> {
    let spec = ClusterPullSecretSpec {
        fleet: "ns/shared".to_owned(),
        cluster: cluster.to_owned(),
        revision: 1,
        revision_id: revision_of_test(1).id,
        ..ClusterPullSecretSpec::default()
    };
    let name = cluster_pull_secret(cluster, "ns", "shared");
    let mut object = ClusterPullSecret::new(&name, spec);
    object.metadata.namespace = Some("ns".to_owned());
    object.metadata.uid = Some(format!("{cluster}-{version}"));
    object.metadata.resource_version = Some(version.to_string());
    object.metadata.owner_references = Some(vec![OwnerReference {
        uid: cluster.to_owned(),
        ..OwnerReference::default()
    }]);
    object.status = Some(ClusterPullSecretStatus {
        phase: ClusterPhase::Synced,
        identity: Some("another".to_owned()),
        ..ClusterPullSecretStatus::default()
    });
    Box::new(object)
}

fn found(cache: &HubCache) -> &ClusterPullSecret {
    let key: ClusterKey = ("ns".to_owned(), KNOWN.to_owned());
    cache.object(&key, &fleet("fleet")).unwrap()
}

#[test]
fn what_another_client_creates_is_not_believed() {
    let mut cache = cache();
    see(&mut cache, HubEvent::Object(applied(object(KNOWN, 2))));
    assert_eq!(found(&cache).spec.revision, 0);
    assert_eq!(found(&cache).spec.cluster, KNOWN);
    assert_eq!(found(&cache).status, None);
    assert_eq!(cache.drift(&fleet("fleet")).changed.len(), 1);
    let due = due(&cache, &BTreeMap::new(), Timestamp::UNIX_EPOCH);
    assert_eq!(due[0].1, ClusterPullSecretStatus::default());
}

#[test]
fn an_unseen_replacement_counts_as_what_the_hub_wrote() {
    let mut cache = cache();
    let mut written = object(KNOWN, 2);
    written.status = None;
    cache.put_object(*written);
    for event in [
        Event::Init,
        Event::InitApply({
            let mut other = object(KNOWN, 3);
            other.spec.revision = 7;
            other
        }),
        Event::InitDone,
    ] {
        see(&mut cache, HubEvent::Object(Update::Event(event)));
    }
    assert_eq!(found(&cache).spec.revision, 1);
    assert_eq!(found(&cache).status, None);
}

#[test]
fn a_hub_believes_what_it_finds_at_start_and_what_it_wrote() {
    let mut cache = HubCache::new(&[], "0/1".parse().unwrap());
    for event in [
        Event::Init,
        Event::InitApply(object(KNOWN, 2)),
        Event::InitDone,
    ] {
        see(&mut cache, HubEvent::Object(Update::Event(event)));
    }
    assert_eq!(found(&cache).spec.revision, 1);
    assert!(found(&cache).status.is_some());
    let mut cache = super::bounds_tests::cache();
    let written = object(KNOWN, 2);
    cache.wrote_without_response("ns", &written.name_any(), written.spec.clone());
    cache.forget_foreign();
    see(&mut cache, HubEvent::Object(applied(written)));
    assert_eq!(found(&cache).spec.revision, 1);
    assert!(cache.drift(&fleet("fleet")).changed.is_empty());
}

#[test]
fn deleted_objects_of_no_cluster_or_fleet_are_not_remembered() {
    let mut cache = cache();
    let mut version = 2;
    let mut pass =
        |cache: &mut HubCache, change: &dyn Fn(&mut ClusterPullSecret), cluster: &str| {
            let mut object = object(cluster, version);
            change(&mut object);
            see(cache, HubEvent::Object(applied(object.clone())));
            object.metadata.resource_version = Some((version + 1).to_string());
            see(
                cache,
                HubEvent::Object(Update::Event(Event::Delete(object))),
            );
            version += 2;
        };
    for number in 0..100 {
        pass(&mut cache, &|_| {}, &format!("none-{number}"));
        let no_fleet = |it: &mut ClusterPullSecret| {
            it.spec.fleet = format!("ns/none-{number}");
            it.metadata.name = Some(cluster_pull_secret(KNOWN, "ns", &format!("none-{number}")));
        };
        pass(&mut cache, &no_fleet, KNOWN);
        let no_pair = |it: &mut ClusterPullSecret| it.metadata.name = Some(number.to_string());
        pass(&mut cache, &no_pair, KNOWN);
    }
    let known = object(KNOWN, 1000);
    cache.put_object(*known.clone());
    let mut gone = known;
    gone.metadata.resource_version = Some("1001".to_owned());
    see(
        &mut cache,
        HubEvent::Object(Update::Event(Event::Delete(gone))),
    );
    cache.forget_foreign();
    let objects = &cache.scopes[""].objects;
    let names: Vec<&str> = objects
        .deleted()
        .map(|it| it.spec.cluster.as_str())
        .collect();
    assert_eq!(names, [KNOWN]);
    assert_eq!(objects.remembered(), 1);
}

#[test]
fn of_many_objects_only_those_of_the_hub_are_kept() {
    let mut cache = cache();
    let mut own = object(KNOWN, 2);
    own.status = None;
    cache.put_object(*own);
    for number in 0..2000 {
        let mut foreign = object(&format!("none-{number}"), 3 + number);
        foreign.metadata.annotations = Some([("x".to_owned(), "y".repeat(100))].into());
        foreign.metadata.labels = foreign.metadata.annotations.clone();
        see(&mut cache, HubEvent::Object(applied(foreign)));
    }
    let is_slim = |it: &ClusterPullSecret| it.annotations().is_empty() && it.labels().is_empty();
    assert!(cache.objects().all(is_slim));
    cache.forget_foreign();
    assert_eq!(cache.objects().count(), 1);
    assert_eq!(cache.scopes[""].objects.remembered(), 0);
}

/// A revision of the fleet with this uid, as a hub writes it, in this namespace.
fn revision_in(namespace: &str, uid: &str, number: i64, size: usize) -> Secret {
    let content = Data(Some(vec![b'x'; size]));
    let mut secret =
        FleetRevision::new(revision_of_test(number), content.into(), None).encode(&fleet(uid));
    secret.metadata.namespace = Some(namespace.to_owned());
    secret.metadata.resource_version = Some("5".to_owned());
    secret
}

#[test]
fn only_revisions_of_a_fleet_in_their_namespace_have_content() {
    let mut cache = cache();
    let mut misnamed = revision_in("ns", "fleet", 4, 1);
    misnamed.metadata.name = Some(fleet_revision("other", 4));
    misnamed
        .labels_mut()
        .insert(FLEET_LABEL.to_owned(), "other".to_owned());
    for secret in [
        revision_in("ns", "fleet", 1, 1),
        revision_in("elsewhere", "fleet", 2, 1),
        revision_in("ns", "another", 3, 1),
        misnamed,
    ] {
        see(&mut cache, HubEvent::Revision(applied(revision(&secret))));
    }
    let of = |cache: &HubCache| -> Vec<i64> {
        let revisions = cache.revisions(&fleet("fleet"));
        revisions.iter().map(|it| it.number).collect()
    };
    assert_eq!(of(&cache), [1]);
    cache.forget_foreign();
    let all = cache.scopes[""].revisions.store.live.values();
    let with_content = all.filter(|it| it.has_content());
    let with_content: Vec<i64> = with_content.map(|it| it.revision.number).collect();
    assert_eq!(with_content, [1]);
    assert_eq!(cache.left_out(&fleet("fleet")), None);
}

#[test]
fn a_fleet_without_all_revisions_says_so_and_reverts_nothing() {
    let mut cache = cache();
    let megabyte = 1 << 20;
    for number in 1..=100 {
        let mut secret = revision_in("ns", "fleet", number, megabyte);
        // The first one is the youngest.
        let second = 1000 - number;
        secret.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                Timestamp::from_second(second).unwrap(),
            ));
        see(&mut cache, HubEvent::Revision(applied(revision(&secret))));
    }
    let kept = cache.scopes[""].revisions.store.live.values();
    let kept = kept.filter(|it| it.has_content()).count();
    assert!((20..=32).contains(&kept), "{kept}");
    let reason = cache.left_out(&fleet("fleet")).unwrap();
    assert!(reason.contains("namespace `ns`"), "{reason}");
    let revisions = cache.revisions(&fleet("fleet"));
    assert!(!revisions[0].revision().is_identified());
    assert!(cache.is_full());
    // Its event arrives again, with another client's mark.
    let mut secret = revision_in("ns", "fleet", 1, megabyte);
    secret.metadata.resource_version = Some("6".to_owned());
    see(&mut cache, HubEvent::Revision(applied(revision(&secret))));
    assert!(cache.drift(&fleet("fleet")).revisions.is_empty());
}

#[test]
fn a_large_kubeconfig_is_named_and_not_kept() {
    let mut cache = cache();
    let key = |name: &str| ("ns".to_owned(), name.to_owned());
    for (name, size) in [("fits", MAX_KUBECONFIG), ("large", MAX_KUBECONFIG + 1)] {
        let secret = kubeconfig(&registered(name, size));
        see(&mut cache, HubEvent::Registered(applied(secret)));
    }
    assert!(cache.kubeconfig(&key("fits")).is_ok());
    let (reason, message) = cache.kubeconfig(&key("large")).unwrap_err();
    assert_eq!(reason, Reason::KubeconfigTooLarge);
    assert!(
        message.contains("131073 bytes, more than 131072"),
        "{message}"
    );
    assert_eq!(
        cache.kubeconfig(&key("none")).unwrap_err().0,
        Reason::NoKubeconfig
    );
    for number in 0..500 {
        let secret = kubeconfig(&registered(&format!("x-{number}"), MAX_KUBECONFIG));
        see(&mut cache, HubEvent::Registered(applied(secret)));
    }
    let registered = cache.scopes[""].registered.live.values();
    let (kept, dropped): (Vec<_>, Vec<_>) =
        registered.partition(|it| matches!(it.kubeconfig, Kubeconfig::Found(_)));
    assert!((200..=260).contains(&kept.len()), "{}", kept.len());
    let (reason, message) = cache
        .kubeconfig(&dropped.last().unwrap().id.key)
        .unwrap_err();
    assert_eq!(reason, Reason::KubeconfigTooLarge);
    assert!(message.contains("more than 32 MiB"), "{message}");
}

#[test]
fn of_the_secrets_of_cluster_api_only_kubeconfigs_are_kept() {
    let mut cache = cache();
    let of = |name: &str, label: &str| {
        kubeconfig(&secret(json!({
            "metadata": {"name": name, "namespace": "ns", "labels": {"cluster.x-k8s.io/cluster-name": label}},
            "data": {"value": "eA=="},
        })))
    };
    let long = "a".repeat(64);
    for (name, label) in [
        ("m-kubeconfig", "m"),
        ("m-ca", "m"),
        ("n-kubeconfig", "m"),
        ("-kubeconfig", "m"),
        (&format!("{long}-kubeconfig"), "hash"),
    ] {
        see(&mut cache, HubEvent::Kubeconfig(applied(of(name, label))));
    }
    let kept = cache.scopes[""].kubeconfigs.live.keys();
    let kept: Vec<&str> = kept.map(String::as_str).collect();
    assert_eq!(kept, [&format!("ns/{long}-kubeconfig"), "ns/m-kubeconfig"]);
    see(
        &mut cache,
        HubEvent::Kubeconfig(applied(of("m-kubeconfig", "x"))),
    );
    assert_eq!(cache.scopes[""].kubeconfigs.live.len(), 1, "another label");
}

#[test]
fn the_sources_of_a_namespace_are_limited_together() {
    let state = |size| SourceState {
        source: Source::Found(Data(Some(vec![b'x'; size]))),
        version: String::new(),
    };
    let is_kept = |size, others| {
        let kept = state(size).within(others, "ns");
        matches!(kept.source, Source::Found(_))
    };
    assert!(is_kept(1 << 20, 15 << 20) && is_kept(0, 99 << 20));
    assert!(!is_kept(1 << 20, (15 << 20) + 1));
}

#[test]
fn of_a_session_only_the_newest_status_waits() {
    let observations = Observations::default();
    let pair = || ("ns/shared".to_owned(), ("ns".to_owned(), KNOWN.to_owned()));
    for generation in 0..1000 {
        let status = ClusterPullSecretStatus {
            observed_generation: generation,
            ..ClusterPullSecretStatus::default()
        };
        observations.send(pair(), status);
    }
    let taken = observations.take();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[&pair()].observed_generation, 999);
    assert!(observations.take().is_empty());
}

#[test]
fn nothing_that_a_member_says_is_kept_at_any_length() {
    let long = "x".repeat(1 << 20);
    let object: GlobalPullSecret = serde_json::from_value(json!({
        "metadata": {"name": "global-pull-secret", "generation": 1}, "spec": {},
        "status": {
            "observedGeneration": 1, "observedAdditional": long,
            "conditions": [{
                "type": "Ready", "status": "False", "reason": long, "message": long,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    }))
    .unwrap();
    let status = MemberStatus::of(&object).unwrap();
    assert!(format!("{status:?}").len() < 3000);
    let found = secret(json!({
        "type": long,
        "metadata": {
            "uid": long, "resourceVersion": long,
            "annotations": {
                "globalps.io/fleet": long, "globalps.io/cluster": long, "globalps.io/retry": long,
            },
            "managedFields": [{
                "manager": long, "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}},
            }],
        },
        "data": {".dockerconfigjson": ByteString(long.clone().into_bytes())},
    }));
    let view = TargetView::new(&found, "hub", &Desired::Nothing);
    assert!(format!("{view:?}").len() < 8000);
}
