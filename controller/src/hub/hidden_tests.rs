use globalps_core::api::FleetPullSecret;
use globalps_fake_api::FakeApi;
use globalps_planner::content::source::Source;
use globalps_runtime::list_watch::{Update, WatchError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;

use super::Hub;
use super::refused_tests::{
    A, applied, data, fleet_path, hub_of, id, object_path, ready, reconcile,
};
use super::source::SourceState;
use super::views::NamespaceLabels;
use super::watches::HubEvent;

/// The hub of the namespaces `ns` and `team-b`, which may not read `team-b`.
fn hub(api: &FakeApi) -> Hub {
    let mut hub = hub_of(api, &["ns", "team-b"]);
    let namespace = NamespaceLabels {
        id: id("", "team-b"),
        labels: [("kind".to_owned(), "edge".to_owned())].into(),
        is_deleting: false,
    };
    let mut handle = |event| hub.cache.handle(("team-b".to_owned(), event));
    handle(HubEvent::Namespace(applied(namespace)));
    for event in [
        HubEvent::Fleet(forbidden()),
        HubEvent::Object(forbidden()),
        HubEvent::Cluster(forbidden()),
        HubEvent::Kubeconfig(forbidden()),
        HubEvent::Registered(forbidden()),
        HubEvent::Revision(forbidden()),
    ] {
        handle(event);
    }
    hub
}

fn forbidden<T>() -> Update<T> {
    Update::Failed(WatchError {
        message: String::new(),
        is_forbidden: true,
        is_not_served: false,
    })
}

/// A younger fleet for the same Secret in the same clusters.
fn younger(hub: &mut Hub) -> FleetPullSecret {
    let mut fleet = hub.cache.fleets().pop().unwrap();
    fleet.metadata.name = Some("younger".to_owned());
    fleet.metadata.uid = Some("younger".to_owned());
    let source = (
        "ns".to_owned(),
        "shared".to_owned(),
        ".dockerconfigjson".to_owned(),
    );
    let found = SourceState {
        source: Source::Found(data(A)),
        version: "7".to_owned(),
    };
    hub.sources.insert(source, Some(found));
    fleet
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_namespace_harms_no_fleet_elsewhere() {
    let api = FakeApi::default();
    let mut hub = hub(&api);
    reconcile(&mut hub, "").await;
    let written = api.written();
    for expected in [
        object_path("a"),
        object_path("d"),
        object_path("e"),
        format!("DELETE {}", object_path("f")),
    ] {
        assert!(written.contains(&expected), "{expected}: {written:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_with_clusters_there_changes_nothing_and_says_so() {
    let api = FakeApi::default();
    let mut hub = hub(&api);
    let younger = younger(&mut hub);
    let younger_path = fleet_path().replace("/shared", "/younger");
    api.put(&younger_path, &younger);
    let mut fleet = hub.cache.fleets().pop().unwrap();
    fleet.spec.namespace_selector = Some(LabelSelector::default());
    fleet.status = serde_json::from_value(json!({"revision": 2, "counts": {"total": 9}})).ok();
    api.put(&fleet_path(), &fleet);
    hub.cache.put_fleet(fleet);
    hub.cache.put_fleet(younger);
    for _ in 0..2 {
        reconcile(&mut hub, "").await;
    }
    let written = api.written();
    for cluster in ["a", "b", "c", "d", "e", "f"] {
        let path = object_path(cluster);
        let deleted = format!("DELETE {path}");
        let is_kept = !written.contains(&path) && !written.contains(&deleted);
        assert!(is_kept, "{written:#?}");
    }
    let ready = ready(&api);
    assert!(ready.contains("namespace `team-b`"), "{ready}");
    assert!(
        ready.contains("`kubectl globalps fleet install`"),
        "{ready}"
    );
    let status = &api.object(&fleet_path()).unwrap()["status"];
    assert_eq!(status["revision"], 2, "{status}");
    assert_eq!(status["counts"]["total"], 9, "{status}");

    // The clusters of the older one are still its own.
    let younger = api.object(&younger_path).unwrap();
    let failures = younger["status"]["failures"].as_array().unwrap();
    let taken = failures.iter().filter(|it| it["reason"] == "TargetTaken");
    let taken: Vec<&str> = taken.map(|it| it["cluster"].as_str().unwrap()).collect();
    assert_eq!(taken, ["ns/a", "ns/b", "ns/c"], "{failures:#?}");
}
