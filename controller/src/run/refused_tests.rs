use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use globalps_core::api::{
    Attach, DeliveryType, GlobalPullSecret, GlobalPullSecretSpec, NodePullSecret,
    NodePullSecretSpec, NodePullSecretStatus, Phase,
};
use globalps_core::names::{
    ABANDON_ANNOTATION, ADDITIONAL_ROLLED_OUT_ANNOTATION, ADDITIONAL_SECRET, APPLIED_SECRET,
    CANARY_PASSED_ANNOTATION, CHECKSUM_KEY, CONTENT_SINCE_ANNOTATION, DATA_KEY,
    DELIVERY_ANNOTATION, FORGET_ANNOTATION, GLOBAL_SECRET, LAST_ADDITIONAL_KEY, LAST_ORIGINAL_KEY,
    LAST_SCOPES_KEY, LAST_SOURCE_KEY_PREFIX, PROVIDER_SINCE_ANNOTATION, RECORD_SECRET,
    REJECTED_ANNOTATION, REJECTED_KEY, RESTORING_ANNOTATION, REVISION_ANNOTATION,
    REVISION_ID_ANNOTATION, ROLLED_OUT_ANNOTATION, ROLLED_OUT_REVISION_ANNOTATION,
    ROLLED_OUT_SECRET, SCOPED_KEY, STATE_SECRET, history_secret,
};
use globalps_core::reasons::Reason;
use globalps_core::rollout::Revision;
use globalps_core::state::{Configuration, NODES_NOT_SERVED, NamespaceObjects, ProofKey, State};
use globalps_fake_api::{FakeApi, Fault, REFUSALS};
use globalps_manifests::Agent;
use globalps_planner::content::secret::{Global, GlobalWrite, encode, revision_of_test};
use globalps_planner::content::source::{Data, Source};
use globalps_planner::namespaces::report::{NamespacesReport, Problem};
use globalps_planner::namespaces::views::PullSecretView;
use globalps_planner::nodes::input::NodeView;
use globalps_planner::nodes::plan::{Aim, plan};
use globalps_planner::targets::namespace::NamespaceView;
use globalps_planner::targets::proof::Proof;
use globalps_planner::targets::summary::Summary;
use globalps_provider::Content;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::{Update, WatchError};
use globalps_runtime::object_watch::ObjectState;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Cli, Command, Controller};
use crate::cache::store::Store;
use crate::cache::{CacheEvent, PullSecretsWatch, Watch, stripped, uptime};
use crate::leader::fencing::FencingToken;
use crate::objects::managed::{LiveObject, ManagedKind, ManagedObject};
use crate::objects::views::DaemonSetView;
use crate::process::Process;
use crate::telemetry::clock;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

const KEY: ProofKey = ProofKey([1; 16]);
const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;

pub(super) const CONFIG: &str =
    "/apis/globalps.io/v1alpha1/namespaces/kube-system/globalpullsecrets/global-pull-secret";

/// Reads of `OpenShift`'s Secrets fail with this code.
fn hide_originals(api: &FakeApi, code: u16) {
    for verb in ["get", "list"] {
        let reads = format!("{verb} /api/v1/namespaces/openshift-config/secrets");
        api.fail(&reads, Fault::Code(code));
    }
}

pub(super) fn secret_path(name: &str) -> String {
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
    let mut controller = begun(api);
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
        config: globalps_dockerconfig::parse(A.as_bytes()).unwrap(),
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
    for name in ["a", "b", "c"] {
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
    }
    list_all(&mut controller, api, ObjectState::Present(additional(B, 2)));
    controller
}

pub(super) fn additional(text: &str, version: u64) -> Secret {
    Secret {
        data: Some([(DATA_KEY.to_owned(), ByteString(text.into()))].into()),
        metadata: kube::api::ObjectMeta {
            name: Some(ADDITIONAL_SECRET.to_owned()),
            resource_version: Some(version.to_string()),
            ..kube::api::ObjectMeta::default()
        },
        ..Secret::default()
    }
}

/// The objects of this kind at the API server.
fn stored<T: serde::de::DeserializeOwned>(api: &FakeApi, of: &str) -> Vec<T> {
    let state = api.state();
    let objects = state
        .objects
        .iter()
        .filter(|(path, _)| path.starts_with(of));
    objects
        .map(|(_, object)| serde_json::from_value(object.clone()).unwrap())
        .collect()
}

/// The cache gets complete lists of what the API server has. The nodes a, b and c are old, d is new.
pub(super) fn list_all(
    controller: &mut Controller,
    api: &FakeApi,
    additional: ObjectState<Secret>,
) {
    let now = Timestamp::now();
    let hour = now - SignedDuration::from_hours(1);
    let mut events = vec![CacheEvent::Additional(additional)];
    let secrets = |name: &str| stored::<Secret>(api, &secret_path(name));
    let mut global = secrets(GLOBAL_SECRET);
    global.retain(|it| it.metadata.name.as_deref() == Some(GLOBAL_SECRET));
    events.extend(list(global).map(CacheEvent::Global));
    events.extend(list(secrets(RECORD_SECRET)).map(CacheEvent::Record));
    events.extend(list(secrets(APPLIED_SECRET)).map(CacheEvent::Applied));
    events.extend(list(stored(api, &secret_path(ROLLED_OUT_SECRET))).map(CacheEvent::RolledOut));
    events.extend(list(stored(api, CONFIG)).map(CacheEvent::Config));
    events.extend(list(secrets(STATE_SECRET)).map(CacheEvent::State));
    let nodes = ["a", "b", "c", "d"].map(|name| {
        let created = if name == "d" { now } else { hour };
        Box::new(NodeView::of_test(name, created))
    });
    events.extend(list(nodes.into()).map(CacheEvent::Node));
    let objects = stored::<NodePullSecret>(api, &node_path(""));
    let objects = objects.into_iter().map(stripped).collect();
    events.extend(list(objects).map(CacheEvent::NodePullSecret));
    events.extend(list(Vec::new()).map(CacheEvent::Pod));
    for object in ManagedObject::all() {
        let live = stored::<DaemonSetView>(api, &managed_path(object));
        let live = live.into_iter().map(LiveObject::from).collect();
        events.extend(list(live).map(|update| CacheEvent::Managed(object, update)));
    }
    for event in events {
        controller.cache.handle(event, Instant::now());
    }
    let later = Instant::now() + Duration::from_mins(1);
    controller.cache.settle(later);
    assert!(controller.cache.caches_synced());
}

fn managed_path(object: ManagedObject) -> String {
    let (group, kinds) = match object.kind {
        ManagedKind::ServiceAccount => ("api/v1", "serviceaccounts"),
        ManagedKind::Role => ("apis/rbac.authorization.k8s.io/v1", "roles"),
        ManagedKind::RoleBinding => ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
        ManagedKind::DaemonSet => ("apis/apps/v1", "daemonsets"),
    };
    let name = object.agent.name();
    format!("/{group}/namespaces/kube-system/{kinds}/{name}")
}

/// A new leader, whose caches are empty.
pub(super) fn begun(api: &FakeApi) -> Controller {
    let health = Arc::new(Health::new());
    let process = Process {
        client: api.client(),
        health,
        metrics: Arc::new(Metrics::default()),
    };
    let args = ["globalps-controller", "run", "--syncer-image", "syncer"];
    let Command::Run(args) = Cli::parse_from(args).command else {
        unreachable!("the command is `run`");
    };
    let token = Arc::new(FencingToken::default());
    token.renewed(clock::now());
    Controller::new(&process, &args, "me", &token)
}

/// After that the controller tries refused writes again, and reports those that still fail.
fn a_while_passes(controller: &mut Controller) {
    let failures = &mut controller.refusals.failures;
    failures.age(SignedDuration::from_secs(40));
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
    let config = api.object(CONFIG).unwrap();
    let conditions = config["status"]["conditions"].as_array().unwrap().clone();
    ["Ready", "Degraded", "SyncersHealthy"].map(|type_| {
        let found = conditions.iter().find(|it| it["type"] == type_);
        found.map_or(String::new(), |it| {
            it["message"].as_str().unwrap().to_owned()
        })
    })
}

#[tokio::test(start_paused = true)]
async fn the_permission_to_leave_a_node_ends_with_its_cleanup() {
    // The plugin gives it when the Secret is deleted, which the controller believes later.
    for (case, seconds, is_over) in [("its cleanup begins", 29, false), ("it is over", 30, true)] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let found = controller.cache.node_pull_secrets.get("c").unwrap();
        let mut object = NodePullSecret::clone(found);
        let annotation = (ABANDON_ANNOTATION.to_owned(), "true".to_owned());
        object.metadata.annotations = Some([annotation].into());
        controller.cache.put_node_pull_secret(object);
        let absent = CacheEvent::Additional(ObjectState::Absent);
        controller.cache.handle(absent, Instant::now());
        let since = uptime() - SignedDuration::from_secs(seconds);
        controller.cache.observe_clock(since);
        let path = node_path("c");
        for is_written in [is_over, false] {
            Box::pin(controller.reconcile()).await;
            assert_eq!(api.written().contains(&path), is_written, "{case}");
        }
        let object = api.object(&path).unwrap();
        let annotation = &object["metadata"]["annotations"][ABANDON_ANNOTATION];
        assert_eq!(annotation == "false", is_over, "{case}: {object:#}");
        assert_eq!(
            object["spec"]["revision"], 1,
            "{case}: nothing else changes"
        );
    }
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
            api.fail(path, refusal);
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
            a_while_passes(&mut controller);
            Box::pin(controller.reconcile()).await;
            let [ready, degraded, syncers] = messages(&api);
            for message in [&ready, &degraded] {
                assert!(message.contains(&title(path)), "{case}: {message}");
                for other in all.iter().filter(|other| *other != path) {
                    assert!(!message.contains(&title(other)), "{case}: {message}");
                }
            }
            if *path == canary {
                let gets = api.object(&node_path("b")).unwrap();
                assert_eq!(gets["spec"]["revision"], 2, "{case}: b goes instead");
            }
            if path.contains("daemonsets/") && path.ends_with("syncer") {
                assert!(syncers.contains(&title(path)), "{case}: {syncers}");
            }
            let status = api.object(CONFIG).unwrap()["status"].clone();
            let revision = if *path == global { 1 } else { 2 };
            assert_eq!(status["revision"], revision, "{case}");

            if *path == canary {
                // It waits for the new one.
                continue;
            }
            // Then it is allowed.
            api.heal();
            a_while_passes(&mut controller);
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
async fn a_refused_status_costs_nothing_else_and_keeps_no_old_answer() {
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
        api.fail(&path, refusal);
        Box::pin(controller.reconcile()).await;
        assert_eq!(api.written(), others, "{refusal:?}");
        assert!(!controller.at_rest(), "{refusal:?}");
    }
}

/// What is left in a namespace can't be removed.
#[tokio::test(start_paused = true)]
async fn a_cleanup_continues_and_remembers_a_secret_that_stays() {
    for is_over in [false, true] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let objects = NamespaceObjects {
            secret_name: "s".to_owned(),
            references: false,
        };
        let state = State {
            namespaces: Some(objects),
            ..State::default()
        };
        let mut secret = state.secret();
        secret.metadata.resource_version = Some("5".to_owned());
        api.put(&secret_path(STATE_SECRET), &secret);
        controller.cache.put_state(secret);
        controller.namespaces.report = Some(NamespacesReport {
            secret_name: "s".to_owned(),
            attach: Attach::Admission,
            note: None,
            is_forbidden: false,
            problem: None,
            summary: Some(Summary {
                is_over,
                ..Summary::default()
            }),
            is_stuck: false,
        });
        let spec = GlobalPullSecretSpec::default();
        let mut plan = plan(&controller.cache.snapshot(uptime(), Timestamp::now()));
        plan.aim = Aim::CleanUp;
        Box::pin(controller.manage(&plan, &spec, false, false)).await;
        let is_there = |name| api.object(&secret_path(name)).is_some();
        assert_eq!(is_there(GLOBAL_SECRET), !is_over);
        assert!(is_there(STATE_SECRET));
        assert_eq!(api.object(&node_path("a")).is_some(), !is_over);
    }
}

/// Namespaces may have what this state says.
fn watch_namespaces(controller: &mut Controller, state: &State, watches_accounts: bool) {
    let mut secret = state.secret();
    secret.metadata.resource_version = Some("5".to_owned());
    controller.cache.put_state(secret);
    let pull_secrets = PullSecretsWatch {
        secret_name: GLOBAL_SECRET.to_owned(),
        accounts: watches_accounts.then(Vec::new),
    };
    let watches = [Watch::Namespaces, Watch::PullSecrets(pull_secrets)];
    controller.cache.set_watches(&watches);
}

/// Namespaces get pull secrets: these, of which some have these Secrets. Service accounts are not listed.
fn deliver_to(
    controller: &mut Controller,
    namespaces: &[&str],
    secrets: Vec<PullSecretView>,
    state: &State,
    attach: Attach,
) {
    let mut config = controller.cache.config().unwrap().clone();
    config.spec.image_pull_secrets.enabled = true;
    config.spec.image_pull_secrets.attach = Some(attach);
    controller.cache.put_config(config);
    watch_namespaces(controller, state, attach == Attach::ServiceAccounts);
    let namespaces = namespaces.iter().map(|name| NamespaceView {
        name: (*name).to_owned(),
        version: 1,
        labels: (&std::collections::BTreeMap::new()).into(),
        is_marked_excluded: false,
        is_terminating: false,
    });
    let namespaces = list(namespaces.collect()).map(CacheEvent::Namespace);
    for event in namespaces.chain(list(secrets).map(CacheEvent::PullSecret)) {
        controller.cache.handle(event, Instant::now());
    }
}

fn pull_secret_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{GLOBAL_SECRET}")
}

/// A webhook chooses the code of its denials.
#[tokio::test(start_paused = true)]
async fn a_webhook_denying_with_404_is_named_and_stops_no_other() {
    let api = FakeApi::default();
    let mut controller = controller(&api);
    let state = State {
        namespaces: Some(NamespaceObjects {
            secret_name: GLOBAL_SECRET.to_owned(),
            references: false,
        }),
        ..State::default()
    };
    let attach = Attach::Admission;
    deliver_to(&mut controller, &["a", "b"], Vec::new(), &state, attach);
    let denial = "admission webhook \"gate.example.com\" denied the request: not found";
    api.fail(&pull_secret_path("a"), Fault::Answer(404, denial));
    let plan = plan(&controller.cache.snapshot(uptime(), Timestamp::now()));
    for _ in 0..20 {
        Box::pin(controller.deliver_to_namespaces(&plan)).await;
    }
    assert!(api.object(&pull_secret_path("b")).is_some());
    let writes = api.writes();
    let refusals = writes
        .iter()
        .filter(|it| it.contains("/namespaces/a/"))
        .count();
    assert!((1..=3).contains(&refusals), "{refusals} writes");
    let summary = controller.namespaces.report.unwrap().summary.unwrap();
    let mut failures = summary.failures.iter();
    let mut of_a = failures.find(|it| it.namespace == "a").into_iter();
    assert!(
        of_a.any(|it| it.reason == Reason::Rejected && it.message.contains("gate.example.com"))
    );
}

/// As after the loss of this permission.
#[tokio::test(start_paused = true)]
async fn unlistable_accounts_stop_neither_rotation_nor_removal() {
    for (removes, references) in [(false, true), (true, true), (true, false)] {
        let case = format!("removes: {removes}, references: {references}");
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let state = State {
            namespaces: Some(NamespaceObjects {
                secret_name: GLOBAL_SECRET.to_owned(),
                references,
            }),
            proof_key: Some(KEY),
            ..State::default()
        };
        let secret = PullSecretView {
            proof: Some(Proof::new(&KEY, "a", GLOBAL_SECRET)),
            ..PullSecretView::of_test("a")
        };
        let path = pull_secret_path("a");
        let metadata = json!({"name": GLOBAL_SECRET, "resourceVersion": "1"});
        api.put(&path, &json!({"metadata": metadata}));
        let attach = Attach::ServiceAccounts;
        deliver_to(&mut controller, &["a"], vec![secret], &state, attach);
        let error = WatchError {
            message: "forbidden".to_owned(),
            is_forbidden: true,
            is_not_served: false,
        };
        let event = CacheEvent::ServiceAccount(Update::Failed(error));
        controller.cache.handle(event, Instant::now());
        let mut plan = plan(&controller.cache.snapshot(uptime(), Timestamp::now()));
        if removes {
            plan.aim = Aim::CleanUp;
        }
        let is_done = |api: &FakeApi| {
            let is_written = api.written().contains(&path);
            is_written || removes && api.object(&path).is_none()
        };
        if references {
            let again = Box::pin(controller.deliver_to_namespaces(&plan)).await;
            assert!(!is_done(&api), "{case}: references come first");
            tokio::time::advance(again.unwrap()).await;
        }
        Box::pin(controller.deliver_to_namespaces(&plan)).await;
        assert!(is_done(&api), "{case}");
        assert_eq!(controller.are_namespaces_over(), removes, "{case}");
        let objects = controller.cache.state().namespaces.clone();
        let remembered = objects.map(|objects| objects.references);
        let expected = Some(true).filter(|_| references);
        assert_eq!(remembered, expected, "{case}: what may be left");
    }
}

/// A selector that nobody can use, or a list that is forbidden, while namespaces have Secrets.
#[tokio::test(start_paused = true)]
async fn a_removal_ends_despite_bad_selector_or_unlisted_namespaces() {
    for (restores, is_forbidden) in [(true, false), (false, false), (true, true), (false, true)] {
        let case = format!("restores: {restores}, forbidden: {is_forbidden}");
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let mut config = controller.cache.config().unwrap().clone();
        let settings = json!({
            "enabled": restores,
            "attach": "Admission",
            "namespaceSelector": {"matchLabels": {"team a": "x"}},
        });
        config.spec.image_pull_secrets = serde_json::from_value(settings).unwrap();
        controller.cache.put_config(config);
        let state = State {
            namespaces: Some(NamespaceObjects {
                secret_name: GLOBAL_SECRET.to_owned(),
                references: false,
            }),
            ..State::default()
        };
        watch_namespaces(&mut controller, &state, false);
        let namespaces = list(Vec::new()).map(CacheEvent::Namespace);
        for event in namespaces {
            controller.cache.handle(event, Instant::now());
        }
        let mut events: Vec<CacheEvent> = list(Vec::new()).map(CacheEvent::PullSecret).collect();
        if is_forbidden {
            let error = WatchError {
                message: "forbidden".to_owned(),
                is_forbidden: true,
                is_not_served: false,
            };
            events = vec![CacheEvent::PullSecret(Update::Failed(error))];
        }
        for event in events {
            controller.cache.handle(event, Instant::now());
        }
        let mut plan = plan(&controller.cache.snapshot(uptime(), Timestamp::now()));
        if restores {
            plan.aim = Aim::CleanUp;
        }
        let again = Box::pin(controller.deliver_to_namespaces(&plan)).await;
        let has_copies = |controller: &Controller| controller.cache.state().namespaces.is_some();
        assert_eq!(controller.are_namespaces_over(), !is_forbidden, "{case}");
        assert_eq!(has_copies(&controller), is_forbidden, "{case}");
        if !is_forbidden {
            continue;
        }
        tokio::time::advance(again.unwrap()).await;
        Box::pin(controller.deliver_to_namespaces(&plan)).await;
        assert!(controller.are_namespaces_over(), "{case}: after a while");
        assert!(
            controller.namespaces.report.is_some(),
            "{case}: it is named"
        );
        assert!(has_copies(&controller), "{case}: it is not forgotten");
    }
}

/// The stored state is of an earlier configuration, and can't be written.
#[tokio::test(start_paused = true)]
async fn a_refused_state_stops_only_namespaces_that_it_does_not_cover() {
    let objects = |secret_name: &str, references| NamespaceObjects {
        secret_name: secret_name.to_owned(),
        references,
    };
    for (case, namespaces, expected) in [
        (
            "it names the Secrets",
            Some(objects(GLOBAL_SECRET, false)),
            true,
        ),
        ("and references", Some(objects(GLOBAL_SECRET, true)), true),
        ("it names nothing", None, false),
    ] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let state = State {
            namespaces,
            operators: true,
            proof_key: Some(KEY),
            ..State::default()
        };
        let attach = Attach::Admission;
        deliver_to(&mut controller, &["t"], Vec::new(), &state, attach);
        let refusal = Fault::Answer(403, "exceeded quota: secrets");
        api.fail(&secret_path(STATE_SECRET), refusal);
        let plan = plan(&controller.cache.snapshot(uptime(), Timestamp::now()));
        controller.remember_configuration(&plan, true).await;
        Box::pin(controller.deliver_to_namespaces(&plan)).await;
        let path = pull_secret_path("t");
        assert_eq!(api.written().contains(&path), expected, "{case}");
        let report = controller.namespaces.report.unwrap();
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
async fn a_deleted_daemon_set_returns_though_a_quota_refuses_a_node() {
    let api = FakeApi::default();
    let mut controller = controller(&api);
    let quota = Fault::Answer(403, "exceeded quota: objects");
    api.fail(&node_path("d"), quota);
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
        if let Some(object) = api.state().objects.get_mut(&path) {
            object["immutable"] = true.into();
        }
        Box::pin(controller.reconcile()).await;
        let failures = &controller.refusals.failures;
        assert!(failures.is_empty(), "{name}: {failures:?}");
        assert!(api.written().contains(&path), "{name}");
        let rolled_out = api.object(&secret_path(ROLLED_OUT_SECRET)).unwrap();
        assert_eq!(rolled_out["metadata"]["ownerReferences"], Value::Null);
        let assigned = api.object(&node_path("a")).unwrap();
        assert_eq!(assigned["spec"]["revision"], 2, "{name}");
    }
}

/// The newest one that is kept lies in a slot that a lower limit no longer has.
#[tokio::test(start_paused = true)]
async fn a_lower_history_limit_keeps_the_newest_despite_a_refusal() {
    let api = FakeApi::default();
    for (slot, revision) in [(0, "1"), (1, "2")] {
        let name = history_secret(slot);
        let annotations = json!({"globalps.io/revision": revision});
        let data = json!({DATA_KEY: ByteString(revision.into())});
        let metadata = json!({"name": name, "resourceVersion": "5", "annotations": annotations});
        api.put(
            &secret_path(&name),
            &json!({"metadata": metadata, "data": data}),
        );
    }
    let mut controller = controller(&api);
    let mut config = api.object(CONFIG).unwrap();
    config["spec"]["historyLimit"] = 1.into();
    config["metadata"]["generation"] = 2.into();
    config["metadata"]["resourceVersion"] = "9".into();
    api.put(CONFIG, &config);
    let slot = |slot| api.object(&secret_path(&history_secret(slot)));
    let revision = |found: Option<Value>| {
        found.map(|secret| secret["metadata"]["annotations"]["globalps.io/revision"].clone())
    };
    let refusal = Fault::Answer(403, "denied");
    api.fail(&secret_path(&history_secret(0)), refusal);
    list_all(
        &mut controller,
        &api,
        ObjectState::Present(additional(A, 2)),
    );
    Box::pin(controller.reconcile()).await;
    assert!(slot(1).is_some(), "nothing is deleted before it is kept");
    api.heal();
    a_while_passes(&mut controller);
    Box::pin(controller.reconcile()).await;
    assert_eq!(revision(slot(0)), Some("2".into()));
    assert_eq!(slot(1), None);
}

/// After a leak: the rest continues, and what the API server refused to delete is tried again.
#[tokio::test(start_paused = true)]
async fn old_content_is_not_forgotten_before_its_last_copy_is_deleted() {
    for refusal in REFUSALS {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let mut config: GlobalPullSecret = stored(&api, CONFIG).pop().unwrap();
        config.spec.rollout.min_ready_seconds = 0;
        config.metadata.annotations = Some([(FORGET_ANNOTATION.to_owned(), "1".to_owned())].into());
        config.metadata.resource_version = Some("1000".to_owned());
        api.state().version = 1000;
        api.put(CONFIG, &config);
        controller.cache.put_config(config);
        let kept = secret_path(&history_secret(0));
        api.fail(&format!("DELETE {kept}"), refusal);
        let annotations = json!({"globalps.io/revision": "1"});
        let metadata =
            json!({"name": history_secret(0), "resourceVersion": "5", "annotations": annotations});
        api.put(
            &kept,
            &json!({"metadata": metadata, "data": {DATA_KEY: ByteString(A.into())}}),
        );
        let forgotten = |api: &FakeApi| {
            let config = api.object(CONFIG).unwrap();
            let conditions = config["status"]["conditions"].as_array().unwrap().clone();
            let found = conditions.iter().find(|it| it["type"] == "OldForgotten");
            found.map(|it| it["reason"].as_str().unwrap().to_owned())
        };
        let asked = |api: &FakeApi| {
            let nodes = stored::<NodePullSecret>(api, &node_path(""));
            let asked = |node: &&NodePullSecret| {
                let annotations = node.metadata.annotations.as_ref();
                annotations.is_some_and(|all| all.contains_key(FORGET_ANNOTATION))
            };
            nodes.iter().filter(asked).count()
        };
        for _ in 0..8 {
            Box::pin(controller.reconcile()).await;
            obey(&mut controller, &api);
            a_while_passes(&mut controller);
        }
        let nodes = stored::<NodePullSecret>(&api, &node_path(""));
        assert!(
            nodes.iter().all(|node| node.spec.revision == 2),
            "{refusal:?}"
        );
        assert!(api.object(&kept).is_some());
        assert_eq!(forgotten(&api).as_deref(), Some("Deleting"), "{refusal:?}");
        assert_eq!(asked(&api), 0, "{refusal:?}: not before");
        let [_, degraded, _] = messages(&api);
        assert!(degraded.contains(&title(&kept)), "{refusal:?}: {degraded}");
        api.heal();
        for _ in 0..3 {
            Box::pin(controller.reconcile()).await;
            a_while_passes(&mut controller);
        }
        assert_eq!(api.object(&kept), None, "{refusal:?}");
        assert_eq!(asked(&api), 4, "{refusal:?}");
        assert_eq!(
            forgotten(&api).as_deref(),
            Some("NodesHaveOld"),
            "{refusal:?}"
        );
    }
}

/// The user takes the paths back while the canary changes.
#[tokio::test(start_paused = true)]
async fn a_syncer_in_a_change_keeps_the_providers_directories() {
    let api = FakeApi::default();
    let mut controller = controller(&api);
    let configure = |generation: i64, paths: Value| {
        let mut config = api.object(CONFIG).unwrap();
        config["spec"]["kubelet"]["credentialProvider"] = paths;
        config["metadata"]["generation"] = generation.into();
        config["metadata"]["resourceVersion"] = (100 + generation).to_string().into();
        api.put(CONFIG, &config);
    };
    let path = "/apis/apps/v1/namespaces/kube-system/daemonsets/global-pull-secret-syncer";
    let has_paths = || {
        let live = api.object(path).unwrap();
        let live: DaemonSetView = serde_json::from_value(live).unwrap();
        LiveObject::from(live).provider.is_some()
    };
    let report = |phase: Phase| {
        let mut object = api.object(&node_path("a")).unwrap();
        let spec = object["spec"].clone();
        object["status"] = json!({
            "observedGeneration": object["metadata"]["generation"], "phase": phase,
            "revision": spec["revision"], "revisionId": spec["revisionId"],
        });
        api.put(&node_path("a"), &object);
    };
    let eks = json!({"configPath": "/etc/eks/config.json", "binDir": "/etc/eks"});
    for (generation, paths, phase, expected) in [
        (2, &eks, None, true),
        (3, &Value::Null, None, true),
        (3, &Value::Null, Some(Phase::Syncing), true),
        (3, &Value::Null, Some(Phase::Synced), false),
    ] {
        configure(generation, paths.clone());
        if let Some(phase) = &phase {
            report(phase.clone());
        }
        list_all(
            &mut controller,
            &api,
            ObjectState::Present(additional(B, 2)),
        );
        Box::pin(controller.reconcile()).await;
        assert_eq!(has_paths(), expected, "{generation} {phase:?}");
    }
}

/// Their definition was deleted, before or while this leader began, with the syncer's `DaemonSet`.
#[tokio::test(start_paused = true)]
async fn without_node_pull_secrets_only_nodes_wait() {
    for begins in [false, true] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        if begins {
            controller.cache.node_pull_secrets = Store::default();
        } else {
            for object in stored::<NodePullSecret>(&api, &node_path("")) {
                let deleted = Update::Event(Event::Delete(Box::new(object)));
                let event = CacheEvent::NodePullSecret(deleted);
                controller.cache.handle(event, Instant::now());
            }
        }
        let error = WatchError {
            message: "not found".to_owned(),
            is_forbidden: false,
            is_not_served: true,
        };
        for update in [Update::Failed(error), Update::Stale] {
            let event = CacheEvent::NodePullSecret(update);
            controller.cache.handle(event, Instant::now());
        }
        assert!(controller.cache.caches_synced());
        for additional in [ObjectState::Present(additional(B, 2)), ObjectState::Absent] {
            let event = CacheEvent::Additional(additional);
            controller.cache.handle(event, Instant::now());
            controller
                .cache
                .settle(Instant::now() + Duration::from_mins(1));
            Box::pin(controller.reconcile()).await;
            let [ready, degraded, _] = messages(&api);
            assert_eq!([&*ready, &*degraded], [NODES_NOT_SERVED; 2], "{begins}");
        }
        let written = api.written();
        let daemon_set =
            "/apis/apps/v1/namespaces/kube-system/daemonsets/global-pull-secret-syncer";
        assert!(written.contains(daemon_set), "{written:?}");
        let global = secret_path(GLOBAL_SECRET);
        let is_needless = |path: &String| *path == global || path.starts_with(&node_path(""));
        assert!(!written.iter().any(is_needless), "{written:?}");
        assert!(api.object(daemon_set).is_some() && api.object(&global).is_some());
    }
}

/// A typo, while another client deletes the `DaemonSet`s; also while another leader begins, or `NodePullSecret`s aren't served.
#[tokio::test(start_paused = true)]
async fn while_no_node_is_selected_the_syncers_stay_where_they_were() {
    for (begins, is_served) in [(false, true), (true, true), (false, false), (true, false)] {
        let case = format!("begins: {begins}, served: {is_served}");
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let configure = |generation: i64, selector: Value| {
            let mut config = api.object(CONFIG).unwrap();
            config["spec"]["nodeSelector"] = selector;
            config["metadata"]["generation"] = generation.into();
            config["metadata"]["resourceVersion"] = (100 + generation).to_string().into();
            api.put(CONFIG, &config);
        };
        let path = "/apis/apps/v1/namespaces/kube-system/daemonsets/global-pull-secret-syncer";
        let observe = |controller: &mut Controller| {
            list_all(controller, &api, ObjectState::Present(additional(B, 2)));
            if !is_served {
                controller.cache.node_pull_secrets = Store::default();
                let error = WatchError {
                    message: "not found".to_owned(),
                    is_forbidden: false,
                    is_not_served: true,
                };
                let event = CacheEvent::NodePullSecret(Update::Failed(error));
                controller.cache.handle(event, Instant::now());
            }
        };
        // The fifth: the selector was right, and a node gets the label.
        for (generation, selector, labeled, expected) in [
            (
                2,
                json!({"kubernetes.io/os": "linux"}),
                false,
                "kubernetes.io/os",
            ),
            (3, json!({"typo": "x"}), false, "kubernetes.io/os"),
            (4, json!({"typo": "y"}), false, "kubernetes.io/os"),
            (5, json!({"pool": "x"}), false, "kubernetes.io/os"),
            (5, json!({"pool": "x"}), true, "pool"),
        ] {
            configure(generation, selector);
            if begins {
                controller = begun(&api);
            }
            if generation == 3 {
                api.state().objects.remove(path);
            }
            observe(&mut controller);
            if labeled {
                let labels = [("kubernetes.io/os", "linux"), ("pool", "x")];
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                let node = NodeView {
                    labels: (&std::collections::BTreeMap::from(labels)).into(),
                    version: 2,
                    ..NodeView::of_test("c", Timestamp::now() - SignedDuration::from_hours(1))
                };
                let event = CacheEvent::Node(Update::Event(Event::Apply(Box::new(node))));
                controller.cache.handle(event, Instant::now());
            }
            Box::pin(controller.reconcile()).await;
            let terms = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
            let live = api.object(path).unwrap();
            let terms = live.pointer(terms).unwrap().to_string();
            for key in ["kubernetes.io/os", "typo", "pool"] {
                let is_there = terms.contains(&format!("\"{key}\""));
                assert_eq!(is_there, key == expected, "{case}, {generation}: {terms}");
            }
            let state: Secret =
                serde_json::from_value(api.object(&secret_path(STATE_SECRET)).unwrap()).unwrap();
            let last = State::of(&state).unwrap().configuration.unwrap().spec;
            assert!(
                last.node_selector.contains_key(expected),
                "{case}, {generation}"
            );
        }
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
    let stored: Secret = serde_json::from_value(api.object(&state).unwrap()).unwrap();
    for event in [
        CacheEvent::Config(Update::Event(Event::Delete(config))),
        CacheEvent::State(Update::Event(Event::Delete(stored))),
        CacheEvent::Managed(syncer, Update::Event(Event::Delete(live.into()))),
        CacheEvent::Node(Update::Event(Event::Apply(Box::new(NodeView::of_test(
            "e",
            Timestamp::now(),
        ))))),
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
    assert_eq!(
        api.object(CONFIG),
        None,
        "the defaults are not the last ones"
    );
}

/// Other clients set these fields of `global-pull-secret`, and own them.
fn set_by_others(controller: &mut Controller, api: &FakeApi, fields: &Value) {
    let path = secret_path(GLOBAL_SECRET);
    let mut state = api.state();
    state.version += 1;
    let version = state.version.to_string();
    let object = state.objects.get_mut(&path).unwrap();
    for of in [&["metadata", "annotations"][..], &["data"]] {
        let fields = of.iter().fold(fields, |fields, key| &fields[*key]);
        for (key, value) in fields.as_object().into_iter().flatten() {
            let target = of
                .iter()
                .fold(&mut *object, |object, key| &mut object[*key]);
            target[key] = value.clone();
        }
    }
    object["metadata"]["resourceVersion"] = version.into();
    let secret: Secret = serde_json::from_value(object.clone()).unwrap();
    drop(state);
    let event = CacheEvent::Global(Update::Event(Event::Apply(secret)));
    controller.cache.handle(event, Instant::now());
}

/// Whether it has none of these fields with these values.
fn is_without(stored: &Value, fields: &Value) -> bool {
    [&["metadata", "annotations"][..], &["data"]]
        .iter()
        .all(|of| {
            let [fields, stored] =
                [fields, stored].map(|object| of.iter().fold(object, |object, key| &object[*key]));
            let mut fields = fields.as_object().into_iter().flatten();
            fields.all(|(key, value)| stored[key] != *value)
        })
}

/// How often the object was written since the last call.
fn writes(api: &FakeApi, path: &str) -> usize {
    let all = std::mem::take(&mut api.state().changes);
    all.iter().filter(|it| *it == path).count()
}

/// As by `kubectl annotate`, `kubectl patch`, or a backup that is restored.
#[tokio::test(start_paused = true)]
async fn foreign_fields_in_the_state_are_removed_and_not_believed() {
    let annotation = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let key = |key: &str| json!({"data": {key: "e30="}});
    let time = "2026-01-01T00:00:00Z";
    let source = format!("{LAST_SOURCE_KEY_PREFIX}x");
    let path = secret_path(GLOBAL_SECRET);
    for fields in [
        annotation(REVISION_ANNOTATION, "9007199254740991"),
        annotation(REVISION_ID_ANNOTATION, "00000000000000ff"),
        annotation(CANARY_PASSED_ANNOTATION, "1"),
        annotation(ROLLED_OUT_ANNOTATION, time),
        annotation(ROLLED_OUT_REVISION_ANNOTATION, "2"),
        annotation(ADDITIONAL_ROLLED_OUT_ANNOTATION, "true"),
        annotation(REJECTED_ANNOTATION, "x"),
        annotation(RESTORING_ANNOTATION, "true"),
        annotation(CONTENT_SINCE_ANNOTATION, "x"),
        annotation(PROVIDER_SINCE_ANNOTATION, "1"),
        annotation("globalps.io/x", "x"),
        key(LAST_ADDITIONAL_KEY),
        key(LAST_ORIGINAL_KEY),
        key(LAST_SCOPES_KEY),
        key(&source),
        key(REJECTED_KEY),
        key("x"),
        annotation(DELIVERY_ANNOTATION, "x"),
        key(SCOPED_KEY),
        key(DATA_KEY),
        key(CHECKSUM_KEY),
    ] {
        let case = fields.to_string();
        let api = FakeApi::default();
        let mut controller = controller(&api);
        Box::pin(controller.reconcile()).await;
        let before = controller.cache.decoded_global().unwrap();
        assert_eq!(before.revision.number, 2, "{case}");
        writes(&api, &path);
        set_by_others(&mut controller, &api, &fields);
        for _ in 0..5 {
            Box::pin(controller.reconcile()).await;
            // It gave what was set in its name, as far as the controller knows.
            let source = CacheEvent::Source("x".to_owned(), Source::Absent);
            controller.cache.handle(source, Instant::now());
            let later = Instant::now() + Duration::from_mins(1);
            controller.cache.settle(later);
        }
        let count = writes(&api, &path);
        assert!(count <= 2, "{case}: {count} writes");
        let after = controller.cache.decoded_global().unwrap();
        assert!(after.has_same_state(&before), "{case}: {after:?}");
        let [now, then] = [&after, &before].map(|it| it.content.as_ref().unwrap());
        assert!(now.means_the_same(then), "{case}");
        assert!(is_without(&api.object(&path).unwrap(), &fields), "{case}");

        // A rotation.
        let event = CacheEvent::Additional(ObjectState::Present(additional(A, 99)));
        controller.cache.handle(event, Instant::now());
        for _ in 0..5 {
            Box::pin(controller.reconcile()).await;
        }
        let count = writes(&api, &path);
        assert!((1..=2).contains(&count), "{case}: {count} writes");
        assert!(is_without(&api.object(&path).unwrap(), &fields), "{case}");
        let after = controller.cache.decoded_global().unwrap();
        assert_eq!(after.revision.number, 3, "{case}");
        assert_eq!(after.rolled_out, None, "{case}");
        assert!(!after.canary_passed && !after.restoring, "{case}");
        let failures = &controller.refusals.failures;
        assert!(failures.is_empty(), "{case}: {failures:?}");
    }
}

/// Another client's change of the content that new nodes get while a rollout is paused: an edit, a renumbering, a deletion.
#[tokio::test(start_paused = true)]
async fn the_content_for_new_nodes_is_written_again_as_it_was() {
    let path = secret_path(ROLLED_OUT_SECRET);
    let empty = json!({"data": {DATA_KEY: "eyJhdXRocyI6e319"}});
    let number = json!({"metadata": {"annotations": {REVISION_ANNOTATION: "7"}}});
    for (edit, paused) in [(Some(empty), true), (Some(number), false), (None, true)] {
        let case = format!("{edit:?}, {paused}");
        let api = FakeApi::default();
        let mut controller = controller(&api);
        let mut config = controller.cache.config().unwrap().clone();
        config.spec.rollout.paused = paused;
        controller.cache.put_config(config);
        Box::pin(controller.reconcile()).await;
        let before = api.object(&path).unwrap();
        controller.cache.take_out_of_band_changes();
        let event = if let Some(edit) = &edit {
            let mut state = api.state();
            state.version += 1;
            let version = state.version.to_string();
            let object = state.objects.get_mut(&path).unwrap();
            for of in ["/data", "/metadata/annotations"] {
                let fields = edit.pointer(of).and_then(Value::as_object);
                for (key, value) in fields.into_iter().flatten() {
                    object.pointer_mut(of).unwrap()[key] = value.clone();
                }
            }
            object["metadata"]["resourceVersion"] = version.into();
            Event::Apply(serde_json::from_value(object.clone()).unwrap())
        } else {
            let object = api.state().objects.remove(&path).unwrap();
            Event::Delete(serde_json::from_value(object).unwrap())
        };
        api.written();
        let event = CacheEvent::RolledOut(Update::Event(event));
        assert!(controller.cache.handle(event, Instant::now()), "{case}");
        let snapshot = controller.cache.snapshot(uptime(), Timestamp::now());
        let kept = snapshot.recorded.rolled_out_revision;
        assert_eq!(kept, Some(revision_of_test(1)), "{case}");
        Box::pin(controller.reconcile()).await;
        let after = api.object(&path).unwrap();
        for of in ["/data", "/metadata/annotations"] {
            assert_eq!(after.pointer(of), before.pointer(of), "{case}");
        }
        assert!(!controller.cache.is_rolled_out_lost(), "{case}");
        api.written();
        Box::pin(controller.reconcile()).await;
        assert!(!api.written().contains(&path), "{case}: once");
    }
}

/// Another client changed the content while no controller ran.
#[tokio::test(start_paused = true)]
async fn a_new_leader_does_not_believe_an_edited_secret() {
    let path = secret_path(GLOBAL_SECRET);
    for edit in [
        json!({"data": {DATA_KEY: "eyJhdXRocyI6e319"}}),
        json!({"metadata": {"annotations": {REVISION_ANNOTATION: "9007199254740991"}}}),
        json!({"data": {REJECTED_KEY: ByteString(B.as_bytes().to_vec())},
            "metadata": {"annotations": {REJECTED_ANNOTATION: "reason"}}}),
    ] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        Box::pin(controller.reconcile()).await;
        let rolled_out = api.object(&secret_path(ROLLED_OUT_SECRET));
        assert!(rolled_out.is_some());
        set_by_others(&mut controller, &api, &edit);
        let mut controller = begun(&api);
        list_all(
            &mut controller,
            &api,
            ObjectState::Present(additional(B, 2)),
        );
        for _ in 0..2 {
            Box::pin(controller.reconcile()).await;
        }
        let after = controller.cache.decoded_global().unwrap();
        assert!(
            (2..=3).contains(&after.revision.number),
            "{edit}: {after:?}"
        );
        assert_eq!(after.last_additional, Some(data(B)), "{edit}");
        let content = after.content.unwrap().config.render();
        assert!(content.windows(3).any(|it| it == b"\"b\""), "{edit}");
        let kept = api.object(&secret_path(ROLLED_OUT_SECRET));
        assert_eq!(kept, rolled_out, "{edit}: never what was edited");
        assert!(is_without(&api.object(&path).unwrap(), &edit), "{edit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_changes_each_write_of_the_state_is_named() {
    let api = FakeApi::default();
    let mut controller = controller(&api);
    Box::pin(controller.reconcile()).await;
    let path = secret_path(GLOBAL_SECRET);
    writes(&api, &path);
    let fields = json!({"metadata": {"annotations": {DELIVERY_ANNOTATION: "x"}}});
    set_by_others(&mut controller, &api, &fields);
    api.state().insisted.insert(path.clone(), fields);
    for _ in 0..5 {
        Box::pin(controller.reconcile()).await;
        assert!(!controller.wrote);
    }
    let count = writes(&api, &path);
    assert!(count <= 4, "{count} writes");
    a_while_passes(&mut controller);
    Box::pin(controller.reconcile()).await;
    let [ready, degraded, _] = messages(&api);
    for message in [ready, degraded] {
        let is_named = message.contains(&title(&path)) && message.contains(DELIVERY_ANNOTATION);
        assert!(is_named, "{message}");
    }
}

/// Another client deletes the object while a finalizer keeps it: that of the garbage collector, which waits for the pods of a node that
/// is off, or its own.
#[tokio::test(start_paused = true)]
async fn a_syncers_object_in_deletion_is_created_again() {
    for object in ManagedObject::of(Agent::of(DeliveryType::ConfigFile)) {
        for (finalizer, is_kept) in [("foregroundDeletion", false), ("x.io/y", true)] {
            let path = managed_path(object);
            let case = format!("{path}: {finalizer}");
            let api = FakeApi::default();
            let mut controller = controller(&api);
            Box::pin(controller.reconcile()).await;
            let live = {
                let mut state = api.state();
                state.version += 1;
                let version = state.version.to_string();
                let live = state.objects.get_mut(&path).unwrap();
                live["metadata"]["finalizers"] = json!([finalizer]);
                live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                live["metadata"]["resourceVersion"] = version.into();
                live.clone()
            };
            let live: DaemonSetView = serde_json::from_value(live).unwrap();
            let event = |event| CacheEvent::Managed(object, Update::Event(event));
            let applied = event(Event::Apply(live.clone().into()));
            assert!(controller.cache.handle(applied, Instant::now()), "{case}");
            Box::pin(controller.reconcile()).await;
            let is_deleted = |api: &FakeApi| {
                let object = api.object(&path).unwrap();
                !object["metadata"]["deletionTimestamp"].is_null()
            };
            assert_eq!(is_deleted(&api), is_kept, "{case}");
            a_while_passes(&mut controller);
            Box::pin(controller.reconcile()).await;
            let [ready, degraded, _] = messages(&api);
            for message in [ready, degraded] {
                let is_named = message.contains(&title(&path)) && message.contains(finalizer);
                assert_eq!(is_named, is_kept, "{case}: {message}");
            }
            if is_kept {
                api.state().objects.remove(&path);
                let deleted = event(Event::Delete(live.into()));
                controller.cache.handle(deleted, Instant::now());
                a_while_passes(&mut controller);
                Box::pin(controller.reconcile()).await;
            }
            assert!(!is_deleted(&api), "{case}");
            let failures = &controller.refusals.failures;
            assert!(failures.is_empty(), "{case}: {failures:?}");
        }
    }
}

/// The syncers do what is assigned, and the watches report it.
fn obey(controller: &mut Controller, api: &FakeApi) {
    for mut object in stored::<NodePullSecret>(api, &node_path("")) {
        let (phase, revision) = match (object.spec.restore, object.spec.assigned()) {
            (true, _) => (Phase::Restored, Revision::NONE),
            (false, Revision::NONE) => (Phase::Pending, Revision::NONE),
            (false, revision) => (Phase::Synced, revision),
        };
        object.status = Some(NodePullSecretStatus {
            observed_generation: object.metadata.generation.unwrap_or_default(),
            revision: revision.number,
            revision_id: revision.id,
            phase,
            restored: object.spec.restore,
            ..NodePullSecretStatus::default()
        });
        let mut state = api.state();
        state.version += 1;
        object.metadata.resource_version = Some(state.version.to_string());
        drop(state);
        let name = object.metadata.name.clone().unwrap();
        api.put(&node_path(&name), &object);
        let event = CacheEvent::NodePullSecret(Update::Event(Event::Apply(stripped(object))));
        controller.cache.handle(event, Instant::now());
    }
}

/// A controller with content in force whose nodes don't soak.
async fn without_soak(api: &FakeApi) -> Controller {
    let mut controller = controller(api);
    Box::pin(controller.reconcile()).await;
    let mut config: GlobalPullSecret = stored(api, CONFIG).pop().unwrap();
    config.spec.rollout.min_ready_seconds = 0;
    config.metadata.resource_version = Some("1000".to_owned());
    api.state().version = 1000;
    api.put(CONFIG, &config);
    controller.cache.put_config(config);
    controller
}

/// Three times, with all objects as the API server has them, and every retry due.
async fn list_and_reconcile(controller: &mut Controller, api: &FakeApi) {
    for _ in 0..3 {
        list_all(controller, api, ObjectState::Absent);
        Box::pin(controller.reconcile()).await;
        a_while_passes(controller);
    }
}

/// The user deletes the additional Secret, for long enough that the controller believes it.
fn lose_the_secret(controller: &mut Controller) {
    let absent = CacheEvent::Additional(ObjectState::Absent);
    controller.cache.handle(absent, Instant::now());
    let later = Instant::now() + Duration::from_mins(1);
    assert!(controller.cache.settle(later));
}

/// Everything is removed while a finalizer of another program keeps one object.
#[tokio::test(start_paused = true)]
async fn a_cleanup_ends_despite_a_finalizer_and_restores_nothing() {
    let daemon_set = ManagedObject::all()
        .find(|it| it.kind == ManagedKind::DaemonSet)
        .unwrap();
    for path in [
        node_path("a"),
        managed_path(daemon_set),
        secret_path(GLOBAL_SECRET),
        secret_path(ROLLED_OUT_SECRET),
    ] {
        let api = FakeApi::default();
        let mut controller = without_soak(&api).await;
        let finalizers = json!(["x.io/y"]);
        api.state().objects.get_mut(&path).unwrap()["metadata"]["finalizers"] = finalizers;
        let is_deleted = || {
            let object = api.object(&path).unwrap();
            !object["metadata"]["deletionTimestamp"].is_null()
        };
        lose_the_secret(&mut controller);
        for _ in 0..20 {
            if is_deleted() && controller.agents.cleans_up {
                break;
            }
            Box::pin(controller.reconcile()).await;
            obey(&mut controller, &api);
        }
        assert!(is_deleted(), "{path}: {:#?}", api.state().objects);
        // The last one with credentials goes as well.
        let is_left = api.object(&secret_path(GLOBAL_SECRET)).is_some();
        assert_eq!(is_left, path == secret_path(GLOBAL_SECRET), "{path}");
        for is_new_leader in [false, true] {
            let case = format!("{path}: {is_new_leader}");
            api.written();
            if is_new_leader {
                controller = begun(&api);
            }
            list_and_reconcile(&mut controller, &api).await;
            let written = api.written();
            let mut back = written.iter().filter(|path| !path.starts_with(CONFIG));
            assert_eq!(back.next(), None, "{case}");
            let [ready, degraded, _] = messages(&api);
            for message in [ready, degraded] {
                let is_named = message.contains(&title(&path)) && message.contains("x.io/y");
                assert!(is_named, "{case}: {message}");
            }
        }
        api.state().objects.remove(&path);
        list_and_reconcile(&mut controller, &api).await;
        let left: Vec<String> = api.state().objects.keys().cloned().collect();
        assert_eq!(left, [CONFIG], "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_ends_though_the_state_can_only_be_deleted() {
    let api = FakeApi::default();
    let mut controller = without_soak(&api).await;
    let refusal = Fault::Answer(500, "failed calling webhook \"gate.example.com\"");
    api.fail(&secret_path(GLOBAL_SECRET), refusal);
    lose_the_secret(&mut controller);
    for _ in 0..30 {
        Box::pin(controller.reconcile()).await;
        obey(&mut controller, &api);
        a_while_passes(&mut controller);
    }
    let left: Vec<String> = api.state().objects.keys().cloned().collect();
    assert_eq!(left, [CONFIG]);
}

/// `OpenShift` manages a node's file, and the nodes have its pull secret.
fn has_openshifts_original(controller: &mut Controller, api: &FakeApi) {
    let global = Global {
        last_original: Some(data(A)),
        ..controller.cache.decoded_global().unwrap()
    };
    let content = global.content.clone().unwrap();
    let mut global = encode(&GlobalWrite { content, global });
    global.metadata.resource_version = Some("11".to_owned());
    api.put(&secret_path(GLOBAL_SECRET), &global);
    controller.cache.put_global(global);
    let node = NodeView {
        file_owner: globalps_core::names::MACHINE_CONFIG_OPERATOR,
        version: 2,
        ..NodeView::of_test("c", Timestamp::now() - SignedDuration::from_hours(1))
    };
    let event = CacheEvent::Node(Update::Event(Event::Apply(Box::new(node))));
    controller.cache.handle(event, Instant::now());
}

/// The API server can't read it, or says that the controller may not.
#[tokio::test(start_paused = true)]
async fn an_unreadable_openshift_original_costs_nothing_else() {
    for code in [500, 403] {
        let api = FakeApi::default();
        let mut controller = controller(&api);
        has_openshifts_original(&mut controller, &api);
        hide_originals(&api, code);
        Box::pin(controller.reconcile()).await;
        let event = loop {
            let event = controller.watches.next().await.unwrap();
            if matches!(event, CacheEvent::Original(_)) {
                break event;
            }
        };
        controller.cache.handle(event, Instant::now());
        Box::pin(controller.reconcile()).await;
        let written = api.written();
        let daemon_set = ManagedObject::all().find(|it| it.kind == ManagedKind::DaemonSet);
        for path in [managed_path(daemon_set.unwrap()), node_path("d")] {
            assert!(written.contains(&path), "{code}: {path}");
        }
        let after = controller.cache.decoded_global().unwrap();
        assert_eq!(after.last_original, Some(data(A)), "{code}");
        let registries = after.content.unwrap().config.render();
        assert!(registries.windows(3).any(|it| it == b"\"a\""), "{code}");
        let status = api.object(CONFIG).unwrap()["status"]["conditions"].to_string();
        assert!(
            status.contains("openshift-config/pull-secret"),
            "{code}: {status}"
        );
    }
}

/// The user removes the original of another namespace from the configuration, and the controller may not read `OpenShift`'s.
#[tokio::test(start_paused = true)]
async fn an_original_no_longer_named_is_not_openshifts() {
    let api = FakeApi::default();
    let mut controller = controller(&api);
    has_openshifts_original(&mut controller, &api);
    let mut last = controller.cache.config().unwrap().clone();
    let base = json!({"secretRef": {"namespace": "kube-system", "name": "base"}});
    last.spec.original = serde_json::from_value(base).unwrap();
    let state = State {
        configuration: Some(Configuration::of(&last)),
        ..State::default()
    };
    let mut secret = state.secret();
    secret.metadata.resource_version = Some("5".to_owned());
    controller.cache.put_state(secret);
    hide_originals(&api, 403);
    for _ in 0..2 {
        Box::pin(controller.reconcile()).await;
        let after = controller.cache.decoded_global().unwrap();
        assert_eq!(after.last_original, None);
        let registries = after.content.unwrap().config.render();
        assert!(!registries.windows(3).any(|it| it == b"\"a\""));
        let status = api.object(CONFIG).unwrap()["status"]["conditions"].to_string();
        assert!(!status.contains("openshift-config"), "{status}");
        tokio::time::advance(Duration::from_mins(10)).await;
    }
}
