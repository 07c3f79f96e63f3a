use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus,
    FleetPullSecret,
};
use globalps_core::names::{
    REJECTED_ANNOTATION, REVISION_ANNOTATION, ROLLED_OUT_ANNOTATION, cluster_pull_secret,
};
use globalps_fake_api::{FakeApi, REFUSALS};
use globalps_planner::clusters::revision::FleetRevision;
use globalps_planner::content::secret::revision_of_test;
use globalps_planner::content::source::{Data, Source};
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::source::SourceState;
use super::views::{ClusterObject, Id, NamespaceLabels, revision};
use super::watches::HubEvent;
use super::{Hub, HubCli, HubCommand};
use crate::leader::fencing::FencingToken;
use crate::process::Process;
use crate::telemetry::clock;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

pub(super) const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;

pub(super) fn data(text: &str) -> Data {
    Data(Some(text.as_bytes().to_vec()))
}

fn object_name(cluster: &str) -> String {
    cluster_pull_secret(cluster, "ns", "shared")
}

pub(super) fn fleet_path() -> String {
    "/apis/globalps.io/v1alpha1/namespaces/ns/fleetpullsecrets/shared".to_owned()
}

pub(super) fn object_path(cluster: &str) -> String {
    let name = object_name(cluster);
    format!("/apis/globalps.io/v1alpha1/namespaces/ns/clusterpullsecrets/{name}")
}

fn revision_path(number: i64) -> String {
    format!("/api/v1/namespaces/ns/secrets/shared-revision-{number}")
}

fn process(api: &FakeApi) -> Process {
    Process {
        client: api.client(),
        health: Arc::new(Health::new()),
        metrics: Arc::new(Metrics::default()),
    }
}

pub(super) fn token() -> Arc<FencingToken> {
    let token = Arc::new(FencingToken::default());
    token.renewed(clock::now());
    token
}

pub(super) fn id(namespace: &str, name: &str) -> Id {
    Id {
        key: (namespace.to_owned(), name.to_owned()),
        uid: name.to_owned(),
        version: 1,
        created: None,
    }
}

/// The cluster's object with this revision, which it has.
fn object(cluster: &str, revision: i64) -> ClusterPullSecret {
    let pair = revision_of_test(revision);
    let spec = ClusterPullSecretSpec {
        fleet: "ns/shared".to_owned(),
        cluster: cluster.to_owned(),
        revision,
        revision_id: pair.id,
        ..ClusterPullSecretSpec::default()
    };
    let mut object = ClusterPullSecret::new(&object_name(cluster), spec);
    object.metadata.namespace = Some("ns".to_owned());
    object.metadata.generation = Some(1);
    object.metadata.uid = Some("u".to_owned());
    object.metadata.resource_version = Some("1".to_owned());
    object.metadata.owner_references = Some(vec![OwnerReference {
        uid: cluster.to_owned(),
        ..OwnerReference::default()
    }]);
    object.status = Some(status(cluster, revision, ClusterPhase::Synced));
    object
}

fn status(cluster: &str, revision: i64, phase: ClusterPhase) -> ClusterPullSecretStatus {
    ClusterPullSecretStatus {
        observed_generation: 1,
        phase,
        revision,
        revision_id: revision_of_test(revision).id,
        identity: Some(cluster.to_owned()),
        ..ClusterPullSecretStatus::default()
    }
}

/// Revision 2 is in the clusters a, b and c; then the source changed, cluster d was added, e is no longer selected, and
/// f no longer exists. Revision 1 is not needed. The session of c has something to report.
fn hub(api: &FakeApi) -> Hub {
    hub_of(api, &[])
}

/// Like [`hub`], with `--namespaces`, of which the first one is `ns`.
pub(super) fn hub_of(api: &FakeApi, namespaces: &[&str]) -> Hub {
    let flag = format!("--namespaces={}", namespaces.join(","));
    let flag = (!namespaces.is_empty()).then_some(flag);
    let args = ["globalps-hub".to_owned(), "run".to_owned()];
    let HubCommand::Run(args) = HubCli::parse_from(args.into_iter().chain(flag)).command;
    let scope = namespaces.first().copied().unwrap_or_default();
    let mut hub = Hub::new(&process(api), &args, &token());
    let spec = json!({
        "secretRef": {"name": "shared"}, "historyLimit": 0,
        "clusterSelector": {"matchLabels": {"env": "prod"}},
        "rollout": {"maxUnavailable": 2},
    });
    let mut fleet = FleetPullSecret::new("shared", serde_json::from_value(spec).unwrap());
    fleet.metadata.namespace = Some("ns".to_owned());
    fleet.metadata.uid = Some("u".to_owned());
    fleet.metadata.generation = Some(1);
    fleet.metadata.resource_version = Some("1".to_owned());
    api.put(&fleet_path(), &fleet);
    let mut events = vec![HubEvent::Namespace(applied(NamespaceLabels {
        id: id("", "kube-system"),
        labels: BTreeMap::new(),
        is_deleting: false,
    }))];
    for (number, content) in [(1, B), (2, A)] {
        let mut revision =
            FleetRevision::new(revision_of_test(number), Arc::new(data(content)), None);
        revision.canary_passed = true;
        revision.rolled_out = Some(Timestamp::now());
        let mut secret = revision.encode(&fleet);
        secret.metadata.namespace = Some("ns".to_owned());
        secret.metadata.resource_version = Some("1".to_owned());
        let owner = OwnerReference {
            uid: "u".to_owned(),
            ..OwnerReference::default()
        };
        secret.metadata.owner_references = Some(vec![owner]);
        api.put(&revision_path(number), &secret);
        hub.cache.put_revision(&secret);
    }
    events.push(HubEvent::Fleet(applied(Box::new(fleet))));
    for cluster in ["a", "b", "c", "d", "e"] {
        let env = if cluster == "e" { "test" } else { "prod" };
        events.push(HubEvent::Cluster(applied(ClusterObject {
            kubeconfig: None,
            id: id("ns", cluster),
            api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
            labels: [("env".to_owned(), env.to_owned())].into(),
            is_deleting: false,
        })));
    }
    for cluster in ["a", "b", "c", "e", "f"] {
        let object = object(cluster, 2);
        api.put(&object_path(cluster), &object);
        events.push(HubEvent::Object(applied(Box::new(object))));
    }
    for event in events {
        hub.cache.handle((scope.to_owned(), event));
    }
    let source = ("ns", "shared", ".dockerconfigjson");
    let source = (
        source.0.to_owned(),
        source.1.to_owned(),
        source.2.to_owned(),
    );
    let found = SourceState {
        source: Source::Found(data(B)),
        version: "7".to_owned(),
    };
    hub.sources.insert(source, Some(found));
    let pair = ("ns/shared".to_owned(), ("ns".to_owned(), "c".to_owned()));
    let unreachable = status("c", 2, ClusterPhase::Unreachable);
    hub.observed.insert(pair, unreachable);
    api.state().version = 10;
    hub
}

pub(super) fn applied<T>(object: T) -> Update<T> {
    Update::Event(Event::Apply(object))
}

/// The hub's loop, until it has nothing more to do at once. Each reconcile is bounded.
pub(super) async fn reconcile(hub: &mut Hub, case: &str) {
    for _ in 0..4 {
        let begun = Instant::now();
        Box::pin(hub.reconcile()).await;
        assert!(begun.elapsed() <= Duration::from_secs(13), "{case}");
    }
}

/// How the write is called in messages.
fn title(write: &str) -> String {
    let path = write.trim_start_matches("DELETE ");
    let (path, status) = match path.strip_suffix("/status") {
        Some(path) => (path, "status of "),
        None => (path, ""),
    };
    let mut words = path.rsplit('/');
    let name = words.next().unwrap();
    let kind = match words.next().unwrap() {
        "secrets" => "Secret",
        "clusterpullsecrets" => "ClusterPullSecret",
        "fleetpullsecrets" => "FleetPullSecret",
        other => other,
    };
    format!("{status}{kind} `ns/{name}`")
}

pub(super) fn ready(api: &FakeApi) -> String {
    let fleet = api.object(&fleet_path()).unwrap();
    let conditions = fleet["status"]["conditions"].as_array().cloned();
    let conditions = conditions.unwrap_or_default();
    let ready = conditions.iter().find(|it| it["type"] == "Ready");
    ready.map_or(String::new(), |it| {
        it["message"].as_str().unwrap().to_owned()
    })
}

#[tokio::test(start_paused = true)]
async fn one_refused_write_of_the_hub_costs_only_this_write() {
    let api = FakeApi::default();
    let mut all_right = hub(&api);
    reconcile(&mut all_right, "").await;
    let all = api.written();
    let fleet_status = format!("{}/status", fleet_path());
    let expected: BTreeSet<String> = [
        fleet_path(),
        fleet_status.clone(),
        revision_path(3),
        object_path("a"),
        format!("{}/status", object_path("c")),
        object_path("d"),
        object_path("e"),
        format!("DELETE {}", object_path("f")),
        format!("DELETE {}", revision_path(1)),
    ]
    .into();
    assert_eq!(all, expected);
    for write in &all {
        for refusal in REFUSALS {
            let case = format!("{write}: {refusal:?}");
            let api = FakeApi::default();
            let mut hub = hub(&api);
            api.fail(write, refusal);
            reconcile(&mut hub, &case).await;
            let mut expected = all.clone();
            expected.remove(write);
            if *write == revision_path(3) {
                // The content comes before its assignments.
                expected.remove(&object_path("a"));
            }
            let written = api.written();
            let missing: Vec<_> = expected.difference(&written).collect();
            assert!(missing.is_empty(), "{case}: {missing:?}");

            // It still fails after a while.
            hub.refusals.failures.age(SignedDuration::from_secs(40));
            reconcile(&mut hub, &case).await;
            if *write != fleet_status {
                let ready = ready(&api);
                assert!(ready.contains(&title(write)), "{case}: {ready}");
                for other in all.iter().map(|other| title(other)) {
                    let is_other = !title(write).contains(&other);
                    assert!(!is_other || !ready.contains(&other), "{case}: {ready}");
                }
            }

            if *write == object_path("a") {
                // It waits for the new canary.
                let b = api.object(&object_path("b")).unwrap();
                assert_eq!(b["spec"]["revision"], 3, "{case}: b goes instead");
                continue;
            }
            // Then it is allowed.
            api.heal();
            hub.refusals.failures.age(SignedDuration::from_secs(40));
            reconcile(&mut hub, &case).await;
            assert!(api.written().contains(write), "{case}");
            let failures = &hub.refusals.failures;
            assert!(failures.is_empty(), "{case}: {failures:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_secret_named_like_the_next_revision_stays() {
    let api = FakeApi::default();
    let mut of_others = hub(&api);
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"a": "Yg=="},
        "metadata": {"name": "shared-revision-3", "namespace": "ns", "uid": "theirs"}});
    api.put(&revision_path(3), &theirs);
    reconcile(&mut of_others, "").await;
    assert_eq!(api.object(&revision_path(3)), Some(theirs));
    assert!(!api.written().contains(&revision_path(3)));
    let a = api.object(&object_path("a")).unwrap();
    assert_eq!(a["spec"]["revision"], 4, "the number is skipped");
    assert!(of_others.refusals.failures.is_empty());

    // The fleet's own, without its label.
    let api = FakeApi::default();
    let mut of_fleet = hub(&api);
    let own = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
        "name": "shared-revision-3", "namespace": "ns", "uid": "u",
        "ownerReferences": [{"apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret", "name": "shared", "uid": "u"}],
    }});
    api.put(&revision_path(3), &own);
    reconcile(&mut of_fleet, "").await;
    let written = api.object(&revision_path(3)).unwrap();
    assert_eq!(written["metadata"]["labels"]["globalps.io/fleet"], "shared");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_change_of_a_revision_is_reverted_alone() {
    for (number, key, value) in [
        (3, REJECTED_ANNOTATION, "x"),
        (3, ROLLED_OUT_ANNOTATION, "2026-01-01T00:00:00Z"),
        (2, REJECTED_ANNOTATION, "x"),
        (2, REVISION_ANNOTATION, "99"),
    ] {
        let api = FakeApi::default();
        let mut hub = hub(&api);
        reconcile(&mut hub, "").await;
        api.written();
        let path = revision_path(number);
        let before = api.object(&path).unwrap();
        let mut changed = before.clone();
        changed["metadata"]["annotations"][key] = json!(value);
        let changed = api.state().store(&path, changed);
        let secret: Secret = serde_json::from_value(changed).unwrap();
        let event = HubEvent::Revision(applied(revision(&secret)));
        hub.cache.handle((String::new(), event));
        reconcile(&mut hub, key).await;
        let after = api.object(&path).unwrap();
        let annotations = |secret: &Value| secret["metadata"]["annotations"].clone();
        assert_eq!(annotations(&after), annotations(&before), "{number} {key}");
        assert_eq!(api.written(), [path].into(), "{number} {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_status_is_overwritten_and_has_no_effect() {
    for change in [
        json!({"phase": "Failed", "message": "x"}),
        json!({"phase": "Unreachable"}),
        json!({"identity": "a"}),
        json!({"revision": 1, "observedGeneration": 7}),
        json!({"lastTransitionTime": "2026-01-01T00:00:00Z"}),
        json!({"phase": null, "revision": null, "identity": null}),
    ] {
        let api = FakeApi::default();
        let mut hub = hub(&api);
        reconcile(&mut hub, "").await;
        api.written();
        let path = object_path("b");
        let before = api.object(&path).unwrap();
        let mut changed = before.clone();
        for (key, value) in change.as_object().unwrap() {
            changed["status"][key] = value.clone();
        }
        changed["metadata"]["resourceVersion"] = json!("1000");
        changed["status"]
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        api.state().version = 1000;
        api.put(&path, &changed);
        let object: ClusterPullSecret = serde_json::from_value(changed).unwrap();
        let event = HubEvent::Object(applied(Box::new(object)));
        hub.cache.handle((String::new(), event));
        reconcile(&mut hub, "").await;
        let status = |object: &Value| -> ClusterPullSecretStatus {
            serde_json::from_value(object["status"].clone()).unwrap()
        };
        let after = api.object(&path).unwrap();
        assert_eq!(status(&after), status(&before), "{change}");
        let expected = format!("{path}/status");
        assert_eq!(api.written(), [expected].into(), "{change}");
        reconcile(&mut hub, "").await;
        assert_eq!(api.written(), BTreeSet::new(), "{change}: once");
    }
}
