#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use globalps_core::api::{
    Attach, GlobalPullSecret, GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec,
    NodePullSecretStatus, Phase,
};
use globalps_core::dockerconfig;
use globalps_core::names::{
    ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, ROLLED_OUT_SECRET, STATE_SECRET, history_secret,
};
use globalps_core::provider::Content;
use globalps_core::state::{Copies, State};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Cli, Command, Controller};
use crate::cache::list_watch::Update;
use crate::cache::object_watch::ObjectState;
use crate::cache::{CacheEvent, PullSecrets, PullSecretsWatch, uptime};
use crate::content::secret::{Global, GlobalWrite, encode, revision_of_test};
use crate::content::source::Data;
use crate::leader::fencing::FencingToken;
use crate::namespaces::summary::{NamespacesReport, Problem, Summary};
use crate::nodes::input::NodeView;
use crate::nodes::plan::{Aim, plan};
use crate::objects::fake_api::{FakeApi, REFUSALS, Refusal};
use crate::objects::managed::ManagedObject;
use crate::process::Process;
use crate::targets::namespace::NamespaceView;
use crate::telemetry::clock;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;

const CONFIG: &str =
    "/apis/globalps.io/v1alpha1/namespaces/kube-system/globalpullsecrets/global-pull-secret";

fn secret_path(name: &str) -> String {
    format!("/api/v1/namespaces/kube-system/secrets/{name}")
}

fn node_path(name: &str) -> String {
    format!("/apis/globalps.io/v1alpha1/namespaces/kube-system/nodepullsecrets/{name}")
}

fn data(text: &str) -> Data {
    Data(Some(text.as_bytes().to_vec()))
}

fn list<T>(objects: Vec<T>) -> impl Iterator<Item = Update<T>> {
    let objects = objects.into_iter().map(Event::InitApply);
    let events = [Event::Init].into_iter().chain(objects);
    events.chain([Event::InitDone]).map(Update::Event)
}

/// Revision 1 is on the nodes a, b and c; then the additional Secret changed, node d joined, and another client deleted the
/// `DaemonSet`s.
fn controller(api: &FakeApi) -> Controller {
    let health = Arc::new(Health::new());
    let process = Process {
        client: api.client(),
        health,
        metrics: Arc::new(Metrics::default()),
    };
    let args = ["globalps-controller", "run", "--syncer-image", "syncer"];
    let Command::Run(args) = Cli::parse_from(args).command;
    let token = Arc::new(FencingToken::default());
    token.renewed(clock::now());
    let mut controller = Controller::new(&process, &args, "me", &token);
    let now = Timestamp::now();
    let hour = now - SignedDuration::from_hours(1);
    let spec = GlobalPullSecretSpec::default();
    let global = Global {
        revision: revision_of_test(1),
        last_additional: Some(data(A)),
        canary_passed: true,
        rolled_out: Some(hour),
        config_file: Some(spec.kubelet.config_file.clone()),
        content_since: [(String::new(), revision_of_test(1))].into(),
        ..Global::default()
    };
    let content = Content {
        config: dockerconfig::parse(A.as_bytes()).unwrap(),
        ..Content::default()
    };
    let mut global = encode(&GlobalWrite { content, global });
    global.metadata.resource_version = Some("1".to_owned());
    let mut config = GlobalPullSecret::new(GLOBAL_SECRET, spec);
    config.metadata.generation = Some(1);
    config.metadata.resource_version = Some("1".to_owned());
    api.put(CONFIG, &config);
    api.put(&secret_path(GLOBAL_SECRET), &global);
    api.state().version = 10;
    let additional = Secret {
        data: Some([(DATA_KEY.to_owned(), ByteString(B.into()))].into()),
        metadata: kube::api::ObjectMeta {
            name: Some(ADDITIONAL_SECRET.to_owned()),
            resource_version: Some("2".to_owned()),
            ..kube::api::ObjectMeta::default()
        },
        ..Secret::default()
    };
    let object = |name: &&str| {
        let spec = NodePullSecretSpec {
            revision: 1,
            revision_id: revision_of_test(1).id,
            ..NodePullSecretSpec::default()
        };
        let mut object = NodePullSecret::new(name, spec);
        object.metadata.generation = Some(1);
        object.status = Some(NodePullSecretStatus {
            observed_generation: 1,
            revision: 1,
            revision_id: revision_of_test(1).id,
            phase: Phase::Synced,
            ..NodePullSecretStatus::default()
        });
        api.put(&node_path(name), &object);
        Box::new(object)
    };
    let mut events = vec![CacheEvent::Additional(ObjectState::Present(additional))];
    events.extend(list(vec![global]).map(CacheEvent::Global));
    events.extend(list(Vec::new()).map(CacheEvent::RolledOut));
    events.extend(list(vec![config]).map(CacheEvent::Config));
    events.extend(list(Vec::new()).map(CacheEvent::State));
    let nodes = ["a", "b", "c", "d"].map(|name| {
        let created = if name == "d" { now } else { hour };
        NodeView::of_test(name, created)
    });
    events.extend(list(nodes.into()).map(CacheEvent::Node));
    let objects = ["a", "b", "c"].iter().map(object).collect();
    events.extend(list(objects).map(CacheEvent::NodePullSecret));
    events.extend(list(Vec::new()).map(CacheEvent::Pod));
    for object in ManagedObject::all() {
        events.extend(list(Vec::new()).map(|update| CacheEvent::Managed(object, update)));
    }
    for event in events {
        controller.cache.handle(event, Instant::now());
    }
    assert!(controller.cache.caches_synced());
    controller
}

/// How the object at the path is called in messages.
fn title(path: &str) -> String {
    let mut words = path.rsplit('/');
    let name = words.next().unwrap();
    let kind = match words.next().unwrap() {
        "secrets" => "Secret",
        "nodepullsecrets" => "NodePullSecret",
        "daemonsets" => "DaemonSet",
        "serviceaccounts" => "ServiceAccount",
        "roles" => "Role",
        "rolebindings" => "RoleBinding",
        other => other,
    };
    format!("{kind} `{name}`")
}

/// The messages of Ready and Degraded, and the message about syncers.
fn messages(api: &FakeApi) -> [String; 3] {
    let config = api.get(CONFIG).unwrap();
    let conditions = config["status"]["conditions"].as_array().unwrap().clone();
    ["Ready", "Degraded", "SyncersHealthy"].map(|type_| {
        let found = conditions.iter().find(|it| it["type"] == type_);
        found.map_or(String::new(), |it| {
            it["message"].as_str().unwrap().to_owned()
        })
    })
}

#[tokio::test(start_paused = true)]
async fn one_refused_write_costs_only_this_write() {
    let api = FakeApi::default();
    Box::pin(controller(&api).reconcile()).await;
    let all = api.written();
    let of = |kind: &str| all.iter().filter(|path| path.contains(kind)).count();
    let kinds = [
        "/secrets/",
        "nodepullsecrets/",
        "daemonsets/",
        "roles/",
        "rolebindings/",
        "serviceaccounts/",
    ];
    assert_eq!(kinds.map(of), [4, 2, 2, 2, 2, 2], "{all:#?}");
    assert!(all.contains(&format!("{CONFIG}/status")));
    let global = secret_path(GLOBAL_SECRET);
    let canary = node_path("a");
    assert!(all.contains(&canary) && all.contains(&node_path("d")));
    for path in all.iter().filter(|path| !path.ends_with("/status")) {
        for refusal in REFUSALS {
            let case = format!("{path}: {refusal:?}");
            let api = FakeApi::default();
            let mut controller = controller(&api);
            api.state().refused = Some((path.clone(), refusal));
            let begun = Instant::now();
            Box::pin(controller.reconcile()).await;
            assert!(begun.elapsed() <= Duration::from_secs(11), "{case}");
            let mut expected = all.clone();
            expected.remove(path);
            if *path == global {
                // The content comes before its assignments.
                expected.remove(&canary);
            }
            assert_eq!(api.written(), expected, "{case}");
            let [ready, degraded, _] = messages(&api);
            assert!(!ready.contains("4 of 4"), "{case}: {ready}");
            assert_eq!(
                (ready.matches("fail").count(), &*degraded),
                (0, ""),
                "{case}: not lasting"
            );

            // It still fails after a while.
            controller
                .refusals
                .failures
                .age(SignedDuration::from_secs(40));
            Box::pin(controller.reconcile()).await;
            let [ready, degraded, syncers] = messages(&api);
            for message in [&ready, &degraded] {
                assert!(message.contains(&title(path)), "{case}: {message}");
                for other in all.iter().filter(|other| *other != path) {
                    assert!(!message.contains(&title(other)), "{case}: {message}");
                }
            }
            if *path == canary {
                let gets = api.get(&node_path("b")).unwrap();
                assert_eq!(gets["spec"]["revision"], 2, "{case}: b goes instead");
            }
            if path.contains("daemonsets/") && path.ends_with("syncer") {
                assert!(syncers.contains(&title(path)), "{case}: {syncers}");
            }
            let status = api.get(CONFIG).unwrap()["status"].clone();
            let revision = if *path == global { 1 } else { 2 };
            assert_eq!(status["revision"], revision, "{case}");

            if *path == canary {
                // It waits for the new one.
                continue;
            }
            // Then it is allowed.
            api.state().refused = None;
            controller
                .refusals
                .failures
                .age(SignedDuration::from_secs(40));
            Box::pin(controller.reconcile()).await;
            Box::pin(controller.reconcile()).await;
            assert!(api.written().contains(path), "{case}");
            let failures = &controller.refusals.failures;
            assert!(failures.is_empty(), "{case}: {failures:?}");
        }
    }
}

/// The last status that could be written says that nothing is in progress; then a rollout begins.
#[tokio::test(start_paused = true)]
async fn a_refused_status_costs_nothing_else_and_keeps_no_earlier_answer() {
    let api = FakeApi::default();
    Box::pin(controller(&api).reconcile()).await;
    let path = format!("{CONFIG}/status");
    let mut others = api.written();
    assert!(others.remove(&path));
    for refusal in REFUSALS {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let mut config = controller.cache.config().unwrap().clone();
        let condition = json!({"type": "Progressing", "status": "False", "reason": "Done",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"conditions": [condition]});
        config.status = Some(serde_json::from_value(status).unwrap());
        controller.cache.put_config(config);
        assert!(controller.at_rest(), "as an earlier leader left it");
        api.state().refused = Some((path.clone(), refusal));
        Box::pin(controller.reconcile()).await;
        assert_eq!(api.written(), others, "{refusal:?}");
        assert!(!controller.at_rest(), "{refusal:?}");
    }
}

/// What is left in a namespace can't be removed.
#[tokio::test(start_paused = true)]
async fn the_cleanup_continues_while_a_namespace_keeps_its_secret_and_remembers_it() {
    for is_over in [false, true] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let copies = Copies {
            secret_name: "s".to_owned(),
            references: false,
        };
        let state = State {
            namespaces: Some(copies),
            ..State::default()
        };
        let mut secret = state.secret();
        secret.metadata.resource_version = Some("5".to_owned());
        api.put(&secret_path(STATE_SECRET), &secret);
        controller.cache.put_state(secret);
        controller.namespaces = Some(NamespacesReport {
            secret_name: "s".to_owned(),
            attach: Attach::Admission,
            note: None,
            is_forbidden: false,
            problem: None,
            summary: Some(Summary {
                is_over,
                ..Summary::default()
            }),
        });
        let spec = GlobalPullSecretSpec::default();
        let mut plan = plan(&controller.cache.snapshot(uptime(), Timestamp::now()));
        plan.aim = Aim::CleanUp;
        Box::pin(controller.manage(&plan, &spec, false)).await;
        let is_there = |name| api.get(&secret_path(name)).is_some();
        assert_eq!(is_there(GLOBAL_SECRET), !is_over);
        assert!(is_there(STATE_SECRET));
        assert_eq!(api.get(&node_path("a")).is_some(), !is_over);
    }
}

/// The stored state is of an earlier configuration, and can't be written.
#[tokio::test(start_paused = true)]
async fn a_refused_state_stops_only_namespaces_that_it_does_not_cover() {
    let copies = |secret_name: &str, references| Copies {
        secret_name: secret_name.to_owned(),
        references,
    };
    for (case, namespaces, expected) in [
        (
            "it names the Secrets",
            Some(copies(GLOBAL_SECRET, false)),
            true,
        ),
        ("and references", Some(copies(GLOBAL_SECRET, true)), true),
        ("it names nothing", None, false),
    ] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let mut config = controller.cache.config().unwrap().clone();
        config.spec.image_pull_secrets.enabled = true;
        config.spec.image_pull_secrets.attach = Some(Attach::Admission);
        controller.cache.put_config(config);
        let state = State {
            namespaces,
            operators: true,
            ..State::default()
        };
        let mut secret = state.secret();
        secret.metadata.resource_version = Some("5".to_owned());
        controller.cache.put_state(secret);
        controller.cache.pull_secrets = PullSecrets::new(Some(PullSecretsWatch {
            secret_name: GLOBAL_SECRET.to_owned(),
            accounts: None,
        }));
        controller.cache.set_namespaces_watched(true);
        controller.cache.set_use_of_namespaces(false, true);
        let namespace = NamespaceView {
            name: "t".to_owned(),
            version: 1,
            labels: (&std::collections::BTreeMap::new()).into(),
            is_marked_excluded: false,
            is_terminating: false,
        };
        let of_namespaces = list(vec![namespace]).map(CacheEvent::Namespace);
        for event in of_namespaces.chain(list(Vec::new()).map(CacheEvent::PullSecret)) {
            controller.cache.handle(event, Instant::now());
        }
        let refusal = Refusal::Answer(403, "exceeded quota: secrets");
        api.state().refused = Some((secret_path(STATE_SECRET), refusal));
        let plan = plan(&controller.cache.snapshot(uptime(), Timestamp::now()));
        controller.remember_configuration(&plan, true).await;
        Box::pin(controller.deliver_to_namespaces(&plan)).await;
        let path = format!("/api/v1/namespaces/t/secrets/{GLOBAL_SECRET}");
        assert_eq!(api.written().contains(&path), expected, "{case}");
        let report = controller.namespaces.unwrap();
        assert_eq!(report.summary.is_some(), expected, "{case}");
        let problem = match report.problem {
            Some(Problem::NotRemembered(message)) => message,
            _ => String::new(),
        };
        let is_named = problem.contains(&title(&secret_path(STATE_SECRET)))
            && problem.contains("exceeded quota");
        assert_eq!(is_named, !expected, "{case}: {problem}");
    }
}

/// A quota refuses one more `NodePullSecret`, for as long as it is there.
#[tokio::test(start_paused = true)]
async fn a_deleted_daemon_set_is_restored_while_a_quota_refuses_the_object_of_a_new_node() {
    let api = FakeApi::default();
    let mut controller = controller(&api);
    let quota = Refusal::Answer(403, "exceeded quota: objects");
    api.state().refused = Some((node_path("d"), quota));
    Box::pin(controller.reconcile()).await;
    let path = "/apis/apps/v1/namespaces/kube-system/daemonsets/global-pull-secret-syncer";
    assert!(api.written().contains(path));
    let syncer = ManagedObject::all()
        .find(|it| it.to_string().contains("DaemonSet"))
        .unwrap();
    let live = api.state().objects.remove(path).unwrap();
    let live: crate::objects::views::DaemonSetView = serde_json::from_value(live).unwrap();
    let event = CacheEvent::Managed(syncer, Update::Event(Event::Delete(live.into())));
    assert!(controller.cache.handle(event, Instant::now()));
    Box::pin(controller.reconcile()).await;
    assert!(api.written().contains(path), "at once");
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_another_client_made_immutable_is_recreated() {
    for name in [GLOBAL_SECRET, ROLLED_OUT_SECRET, &history_secret(0)] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let path = secret_path(name);
        if name != GLOBAL_SECRET {
            api.put(
                &path,
                &json!({"metadata": {"name": name, "uid": "old", "resourceVersion": "5",
                    "annotations": {"globalps.io/revision": "1"}}}),
            );
        }
        api.state().immutable.insert(path.clone());
        Box::pin(controller.reconcile()).await;
        let failures = &controller.refusals.failures;
        assert!(failures.is_empty(), "{name}: {failures:?}");
        assert!(api.written().contains(&path), "{name}");
        let rolled_out = api.get(&secret_path(ROLLED_OUT_SECRET)).unwrap();
        assert_eq!(rolled_out["metadata"]["ownerReferences"], Value::Null);
        let assigned = api.get(&node_path("a")).unwrap();
        assert_eq!(assigned["spec"]["revision"], 2, "{name}");
    }
}

/// Another client deletes the `GlobalPullSecret` and the syncer's `DaemonSet`, and a node joins.
#[tokio::test(start_paused = true)]
async fn without_a_global_pull_secret_the_last_configuration_applies() {
    let api = FakeApi::default();
    let mut controller = controller(&api);
    Box::pin(controller.reconcile()).await;
    api.written();
    let path = "/apis/apps/v1/namespaces/kube-system/daemonsets/global-pull-secret-syncer";
    let syncer = ManagedObject::all()
        .find(|it| it.to_string().contains("DaemonSet"))
        .unwrap();
    let live = api.state().objects.remove(path).unwrap();
    let live: crate::objects::views::DaemonSetView = serde_json::from_value(live).unwrap();
    let config = api.state().objects.remove(CONFIG).unwrap();
    let config: GlobalPullSecret = serde_json::from_value(config).unwrap();
    let state = secret_path(STATE_SECRET);
    let stored: Secret = serde_json::from_value(api.get(&state).unwrap()).unwrap();
    for event in [
        CacheEvent::Config(Update::Event(Event::Delete(config))),
        CacheEvent::State(Update::Event(Event::Delete(stored))),
        CacheEvent::Managed(syncer, Update::Event(Event::Delete(live.into()))),
        CacheEvent::Node(Update::Event(Event::Apply(NodeView::of_test(
            "e",
            Timestamp::now(),
        )))),
    ] {
        assert!(controller.cache.handle(event, Instant::now()));
    }
    Box::pin(controller.reconcile()).await;
    let written = api.written();
    for expected in [path.to_owned(), node_path("e"), state] {
        assert!(written.contains(&expected), "{expected}: {written:?}");
    }
    assert!(
        !written.iter().any(|it| it.starts_with(CONFIG)),
        "{written:?}"
    );
    assert_eq!(api.get(CONFIG), None, "the defaults are not the last ones");
}
