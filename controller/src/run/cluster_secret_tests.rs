use globalps_core::api::{DeliveryType, GlobalPullSecret, GlobalPullSecretSpec};
use globalps_core::names::{APPLIED_SECRET, DATA_KEY, GLOBAL_SECRET};
use globalps_fake_api::{FakeApi, Fault};
use globalps_runtime::object_watch::ObjectState;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use tokio::time::Instant;

use super::Controller;
use super::refused_tests::{CONFIG, additional, begun, list_all, secret_path};
use crate::cache::CacheEvent;

const PULL_SECRET: &str = "/api/v1/namespaces/openshift-config/secrets/pull-secret";
const PLATFORM: &str = "{ \"auths\": {\n \"quay.io\" : {\"auth\":\"cGxhdGZvcm06cA==\"} } }";
const OURS: &str = r#"{"auths":{"r.io":{"auth":"dTpw"}}}"#;
const ROTATED: &str = r#"{"auths":{"r.io":{"auth":"dTpx"}}}"#;

fn cluster() -> FakeApi {
    let api = FakeApi::default();
    let mut spec = GlobalPullSecretSpec::default();
    spec.kubelet.delivery = DeliveryType::OpenShift;
    let mut config = GlobalPullSecret::new(GLOBAL_SECRET, spec);
    config.metadata.generation = Some(1);
    config.metadata.resource_version = Some("1".to_owned());
    api.put(CONFIG, &config);
    write(&api, PLATFORM);
    api
}

/// Another program writes the whole Secret.
fn write(api: &FakeApi, document: &str) {
    let data = json!({DATA_KEY: ByteString(document.into())});
    let metadata = json!({"name": "pull-secret", "namespace": "openshift-config"});
    let secret =
        json!({"metadata": metadata, "type": "kubernetes.io/dockerconfigjson", "data": data});
    api.state().store(PULL_SECRET, secret);
}

fn content(api: &FakeApi, path: &str) -> Option<String> {
    let secret: Secret = serde_json::from_value(api.object(path)?).unwrap();
    let data = secret.data.unwrap_or_default();
    Some(String::from_utf8(data[DATA_KEY].0.clone()).unwrap())
}

/// A leader whose caches have what the API server has.
fn leader(api: &FakeApi, pull_secret: Option<&str>) -> Controller {
    let mut controller = begun(api);
    let additional = pull_secret.map(|text| ObjectState::Present(additional(text, 2)));
    list_all(
        &mut controller,
        api,
        additional.unwrap_or(ObjectState::Absent),
    );
    controller
}

async fn settle(controller: &mut Controller, api: &FakeApi) {
    for _ in 0..6 {
        let secret = api.object(PULL_SECRET).unwrap();
        let secret = serde_json::from_value(secret).unwrap();
        let event = CacheEvent::ClusterSecret(ObjectState::Present(secret));
        controller.cache.handle(event, Instant::now());
        Box::pin(controller.reconcile()).await;
    }
}

fn verdict(api: &FakeApi) -> (String, String) {
    let config = api.object(CONFIG).unwrap();
    let conditions = config["status"]["conditions"].as_array().unwrap().clone();
    let of = |type_: &str| {
        let found = conditions.iter().find(|it| it["type"] == type_);
        found.map_or(String::new(), |it| {
            it["reason"].as_str().unwrap().to_owned()
        })
    };
    (of("PullSecretSynced"), of("Ready"))
}

#[tokio::test(start_paused = true)]
async fn entries_are_merged_and_removed_without_a_trace() {
    let api = cluster();
    let mut controller = leader(&api, Some(OURS));
    settle(&mut controller, &api).await;
    let merged = PLATFORM.replace(" } }", ",\"r.io\":{\"auth\":\"dTpw\"} } }");
    assert_eq!(content(&api, PULL_SECRET).unwrap(), merged);
    assert_eq!(content(&api, &secret_path(GLOBAL_SECRET)).unwrap(), OURS);
    assert_eq!(verdict(&api).0, "Synced");
    let writes = api.writes();
    let first = |path: &str| {
        writes
            .iter()
            .position(|write| write.ends_with(path))
            .unwrap()
    };
    assert!(
        first(APPLIED_SECRET) < first(PULL_SECRET),
        "the record first: {writes:#?}"
    );

    // The next leader knows what is its own.
    let mut controller = leader(&api, Some(ROTATED));
    settle(&mut controller, &api).await;
    assert_eq!(
        content(&api, PULL_SECRET).unwrap(),
        merged.replace("dTpw", "dTpx")
    );
    let mut controller = leader(&api, None);
    settle(&mut controller, &api).await;
    assert_eq!(content(&api, PULL_SECRET).unwrap(), PLATFORM);
    assert_eq!(api.object(&secret_path(APPLIED_SECRET)), None);
    assert_eq!(api.object(&secret_path(GLOBAL_SECRET)), None);
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_loses_nothing_of_anyone() {
    for (path, is_recorded) in [
        (secret_path(APPLIED_SECRET), false),
        (PULL_SECRET.to_owned(), true),
    ] {
        for code in [403, 409, 500] {
            let api = cluster();
            api.fail(&path, Fault::Code(code));
            let mut controller = leader(&api, Some(OURS));
            settle(&mut controller, &api).await;
            assert_eq!(content(&api, PULL_SECRET).unwrap(), PLATFORM);
            assert_eq!(
                api.object(&secret_path(APPLIED_SECRET)).is_some(),
                is_recorded
            );
            assert_eq!(
                verdict(&api),
                ("WriteFailed".to_owned(), "WriteFailed".to_owned())
            );
            api.heal();
            let mut controller = leader(&api, Some(OURS));
            settle(&mut controller, &api).await;
            assert!(content(&api, PULL_SECRET).unwrap().contains("r.io"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_is_distinguished_from_another_owner() {
    let api = cluster();
    let mut controller = leader(&api, Some(OURS));
    settle(&mut controller, &api).await;
    let merged = content(&api, PULL_SECRET).unwrap();
    write(&api, PLATFORM);
    settle(&mut controller, &api).await;
    assert_eq!(
        content(&api, PULL_SECRET).unwrap(),
        merged,
        "another client put the old file back"
    );

    let theirs = merged.replace("dTpw", "dTp0aGVpcnM=");
    write(&api, &theirs);
    settle(&mut controller, &api).await;
    assert_eq!(content(&api, PULL_SECRET).unwrap(), theirs);
    assert_eq!(verdict(&api).0, "AnotherWriter");

    // MCO #1718: the platform's entries are deleted. Those of globalps are there, and nothing is made up.
    write(&api, r#"{"auths":{}}"#);
    settle(&mut controller, &api).await;
    assert_eq!(content(&api, PULL_SECRET).unwrap(), OURS);
    for invalid in ["{", "{}", r#"{"auths":{},"auths":{}}"#] {
        write(&api, invalid);
        settle(&mut controller, &api).await;
        assert_eq!(content(&api, PULL_SECRET).unwrap(), invalid);
        assert_eq!(verdict(&api).0, "Unreadable");
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_undoes_each_write_is_not_fought() {
    let api = cluster();
    let mut controller = leader(&api, Some(OURS));
    for _ in 0..20 {
        settle(&mut controller, &api).await;
        write(&api, PLATFORM);
    }
    settle(&mut controller, &api).await;
    let all = api.writes();
    let writes = all.iter().filter(|write| write.ends_with(PULL_SECRET));
    assert_eq!(writes.count(), 3, "{all:#?}");
    assert_eq!(content(&api, PULL_SECRET).unwrap(), PLATFORM);
    assert_eq!(verdict(&api).0, "AnotherWriter");
}
