//! A session with a member cluster: what it writes there, also if writes are refused, and what it reports.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus, Target,
};
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_core::rollout::{Revision, RevisionId};
use globalps_fake_api::{FakeApi, Fault, REFUSALS};
use globalps_planner::clusters::desired::{Desired, Release};
use globalps_planner::clusters::identity::Pin;
use globalps_planner::clusters::installation::Installation;
use globalps_planner::clusters::known::Known;
use globalps_planner::clusters::member_report::MemberReport;
use globalps_planner::content::secret::revision_of_test;
use globalps_planner::content::source::Data;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{Semaphore, watch};

use super::messages::{Connecting, MemberOutcome, MemberSpec, Shared};
use super::refused_tests::{A, data, token};
use super::session::Session;
use super::statuses::dated;
use crate::leader::fencing::Fence;
use crate::remote::bounds::Bounds;
use crate::telemetry::health::Health;

/// A session with a member that gets revision 1, and globalps itself.
fn session() -> (Session, MemberSpec, watch::Sender<MemberSpec>) {
    let installation = Installation {
        controller_image: "c:1".to_owned(),
        syncer_image: "s:1".to_owned(),
        pull_secret: Some(data(A)),
    };
    let release = Release {
        revision: revision_of_test(1),
        content: Arc::new(data(A)),
        install: Some(Arc::new(installation)),
        retry: String::new(),
    };
    let spec = MemberSpec {
        uid: "u".to_owned(),
        kubeconfig: Err(no_kubeconfig()),
        generation: 1,
        desired: Desired::Revision(release),
        target: Target::default(),
        fleet: "ns/shared".to_owned(),
        cluster: "ns/m".to_owned(),
        known: Arc::default(),
        require_nodes: false,
        pin: Pin {
            identity: Some("m".to_owned()),
            accepted: None,
        },
        may_write: true,
        ignores_secret: false,
        revision: revision_of_test(0),
        outcome: MemberOutcome::Open,
    };
    let (sender, specs) = watch::channel(spec.clone());
    let shared = Shared {
        fence: Fence {
            token: token(),
            health: Arc::new(Health::new()),
        },
        manager: "globalps-hub-own".into(),
        observations: Arc::default(),
        connecting: Connecting {
            of_namespace: Arc::new(Semaphore::new(1)),
            of_all: Arc::new(Semaphore::new(1)),
        },
        bounds: Bounds::default(),
    };
    let mut session = Session::new(("ns".to_owned(), "m".to_owned()), shared, specs);
    session.identity = spec.pin.identity.clone();
    (session, spec, sender)
}

/// A pod of the installed controller runs; the other one has no node.
fn starts(api: &FakeApi) {
    let mut state = api.state();
    let deployments = state.objects.iter_mut();
    for (_, object) in deployments.filter(|(path, _)| path.contains("/deployments/")) {
        let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
        object["status"] = json!({
            "observedGeneration": object["metadata"]["generation"],
            "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": 1,
        });
    }
}

/// Installs, then writes the Secret. Returns whether the cluster was reachable.
async fn write_member(session: &mut Session, spec: &MemberSpec, api: &FakeApi) -> bool {
    let client = api.client();
    let mut is_reached = true;
    for _ in 0..2 {
        is_reached &= session.write(&client, spec).await.is_ok();
        starts(api);
    }
    is_reached
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_to_a_member_is_named_and_caught_up_later() {
    let api = FakeApi::default();
    let (mut done, spec, _specs) = session();
    assert!(write_member(&mut done, &spec, &api).await);
    let all = api.written();
    let target = secret_of_member();
    assert!(all.len() > 10 && all.contains(&target), "{all:#?}");
    for (at, write) in all.iter().enumerate() {
        for (number, refusal) in REFUSALS.into_iter().enumerate() {
            // One function applies all objects of an installation: each of them gets a third of the refusals.
            if *write != target && (at + number) % 3 > 0 {
                continue;
            }
            let case = format!("{write}: {refusal:?}");
            let api = FakeApi::default();
            let (mut session, spec, _specs) = session();
            api.fail(write, refusal);
            let is_reached = write_member(&mut session, &spec, &api).await;
            let written = api.written();
            assert!(!written.contains(write), "{case}");
            let is_early = written.contains(&target);
            assert!(!is_early, "{case}: globalps runs before the Secret changes");
            match refusal {
                Fault::Answer(code, message) if code < 500 => {
                    assert!(is_reached, "{case}");
                    let (reason, said) = session.state.blocked.clone().unwrap();
                    let expected = match (*write == target, code) {
                        (true, 403) => Reason::Forbidden,
                        (true, 409) => Reason::Conflict,
                        (true, _) => Reason::Rejected,
                        (false, 403) => Reason::InstallForbidden,
                        (false, _) => Reason::NotInstalled,
                    };
                    assert_eq!(reason, expected, "{case}");
                    assert!(said.contains(message), "{case}: {said}");
                }
                _ => assert!(!is_reached, "{case}: as if it were unreachable"),
            }
            api.heal();
            for _ in 0..2 {
                assert!(write_member(&mut session, &spec, &api).await, "{case}");
            }
            assert!(session.state.blocked.is_none(), "{case}");
            let written: BTreeSet<String> = written.union(&api.written()).cloned().collect();
            assert_eq!(written, all, "{case}");
        }
    }
}

fn secret_of_member() -> String {
    let Target { namespace, name } = Target::default();
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

fn no_kubeconfig() -> ReasonAndMessage {
    (Reason::NoKubeconfig, String::new())
}

/// The status that the session has reported since the last call.
fn newest(session: &Session) -> Option<ClusterPullSecretStatus> {
    session.shared.observations.take().into_values().next()
}

/// Whether the session writes after the hub has sent it this kubeconfig, and the cluster behind it does not tell its identity.
async fn writes_with(kubeconfig: Result<Arc<Data>, ReasonAndMessage>) -> bool {
    let api = FakeApi::default();
    let (mut session, before, specs) = session();
    let spec = MemberSpec {
        kubeconfig,
        ..before.clone()
    };
    specs.send_replace(spec);
    let spec = session.next_spec(&before);
    session.identify(&api.client()).await.unwrap();
    write_member(&mut session, &spec, &api).await;
    !api.written().is_empty()
}

#[tokio::test(start_paused = true)]
async fn an_unknown_identity_of_a_new_kubeconfig_is_not_the_known_one() {
    let same = Err(no_kubeconfig());
    assert!(writes_with(same).await);
    let other = Ok(Arc::new(data("other")));
    assert!(!writes_with(other).await);
}

/// Whether a new session writes, and its status, if the cluster has this identity (`None`: the session may not read it).
async fn of_new_session(pin: Pin, found: Option<&str>) -> (bool, ClusterPullSecretStatus) {
    let api = FakeApi::default();
    if let Some(uid) = found {
        let namespace = json!({"metadata": {"name": "kube-system", "uid": uid}});
        api.put("/api/v1/namespaces/kube-system", &namespace);
    }
    let (mut session, spec, specs) = session();
    let spec = MemberSpec { pin, ..spec };
    specs.send_replace(spec.clone());
    session.identity = None;
    session.identify(&api.client()).await.unwrap();
    if session.recognize() {
        write_member(&mut session, &spec, &api).await;
    }
    session.report();
    let writes = api.written();
    let has_written = writes.contains(&secret_of_member());
    (has_written, newest(&session).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_another_identity_gets_nothing_until_accepted() {
    for (pinned, accepted, found, expected) in [
        (Some("m"), None, Some("m"), (true, Some("m"), None)),
        (
            Some("m"),
            None,
            Some("other"),
            (false, Some("m"), Some("other")),
        ),
        (
            Some("m"),
            Some("third"),
            Some("other"),
            (false, Some("m"), Some("other")),
        ),
        // The hub has not read which one it accepts.
        (Some("m"), None, None, (false, Some("m"), None)),
        // The status says so first.
        (
            Some("m"),
            Some("other"),
            Some("other"),
            (false, Some("other"), None),
        ),
        (None, None, Some("m"), (false, Some("m"), None)),
        (Some(""), None, None, (true, Some(""), None)),
    ] {
        let case = format!("{pinned:?} {accepted:?} {found:?}");
        let pin = Pin {
            identity: pinned.map(str::to_owned),
            accepted: accepted.map(str::to_owned),
        };
        let is_allowed = pin.allows(Some(found.unwrap_or_default()));
        let (has_written, status) = of_new_session(pin, found).await;
        let (identity, other) = (status.identity.as_deref(), status.found_identity.as_deref());
        assert_eq!((has_written, identity, other), expected, "{case}");
        let is_blocked =
            status.phase == ClusterPhase::Blocked && status.reason == Reason::IdentityChanged;
        assert_eq!(is_blocked, !is_allowed, "{case}: {status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_clusters_message_names_a_secret_without_effect() {
    let (mut session, spec, specs) = session();
    specs.send_replace(MemberSpec {
        ignores_secret: true,
        ..spec
    });
    session.report();
    let message = newest(&session).unwrap().message;
    let command = "kubectl annotate clusters.cluster.x-k8s.io m -n ns globalps.io/kubeconfig=m";
    assert!(message.contains(command), "{message}");
}

/// Another client has deleted the object, and the hub has created it again: with the same generation, and without a status.
#[tokio::test(start_paused = true)]
async fn a_new_object_gets_the_status_that_an_earlier_one_had() {
    let (mut session, spec, specs) = session();
    session.report();
    assert!(newest(&session).is_some());
    session.report();
    assert!(newest(&session).is_none(), "nothing new");
    let uid = "another".to_owned();
    specs.send_replace(MemberSpec { uid, ..spec });
    session.report();
    assert!(newest(&session).is_some());
}

/// An image that can't be pulled must not block one cluster after the other: the rollout halts.
#[tokio::test(start_paused = true)]
async fn an_installation_that_never_runs_has_failed_after_a_while() {
    let api = FakeApi::default();
    let (mut session, spec, _specs) = session();
    let client = api.client();
    for (minutes, expected) in [(0, false), (4, false), (1, true), (9, true)] {
        tokio::time::advance(Duration::from_mins(minutes)).await;
        session.write(&client, &spec).await.unwrap();
        assert!(session.state.is_installing);
        assert_eq!(session.state.is_install_late, expected, "{minutes}");
    }
    assert!(!api.written().contains(&secret_of_member()));
    starts(&api);
    session.write(&client, &spec).await.unwrap();
    assert!(!session.state.is_installing);
    assert!(api.written().contains(&secret_of_member()));
}

/// While no hub ran, another client has deleted the object, so the cluster's revision is unknown.
#[tokio::test(start_paused = true)]
async fn a_cluster_with_content_that_no_object_tells_of_is_not_new() {
    let api = FakeApi::default();
    let (mut session, spec, specs) = session();
    let secret = json!({
        "metadata": {
            "annotations": {"globalps.io/fleet": "ns/shared", "globalps.io/revision": "1"},
            "managedFields": [{
                "manager": &*session.shared.manager,
                "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}},
            }],
        },
    });
    api.put(&secret_of_member(), &secret);
    session.read_target(&api.client(), &spec).await.unwrap();
    let unknown = Revision::new(1, RevisionId::UNKNOWN);
    let known = |titles: &[&str]| Known {
        titles: titles.iter().map(|it| (*it).to_owned()).collect(),
        ..Known::default()
    };
    for (fleet, known, expected) in [
        ("ns/shared", known(&["ns/shared"]), unknown),
        (
            "ns/other",
            known(&["ns/shared", "ns/other"]),
            Revision::NONE,
        ),
        ("ns/other", known(&["ns/other"]), unknown),
    ] {
        specs.send_replace(MemberSpec {
            known: Arc::new(known),
            desired: Desired::Nothing,
            pin: Pin::default(),
            fleet: fleet.to_owned(),
            ..spec.clone()
        });
        session.report();
        let status = newest(&session).unwrap();
        assert_eq!(status.phase, ClusterPhase::Pending);
        assert_eq!(status.in_force(), expected, "{fleet}");
        let empty = ClusterPullSecret::new("m", ClusterPullSecretSpec::default());
        let dated = dated(&empty, &status, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(dated.in_force(), expected, "{fleet}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_global_pull_secret_blocks_after_a_while() {
    let (mut session, _, _specs) = session();
    assert_eq!(session.await_config(), None);
    session.state.report = MemberReport::NoConfig;
    let due = session.await_config().unwrap();
    assert!(!session.state.lacks_config, "it may be created in a moment");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(session.await_config(), Some(due));
    tokio::time::advance(Duration::from_secs(50)).await;
    assert_eq!(session.await_config(), None);
    assert!(session.state.lacks_config);
    session.state.report = MemberReport::NoStatus;
    assert_eq!(session.await_config(), None);
    assert!(!session.state.lacks_config);
}
