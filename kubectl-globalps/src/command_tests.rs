//! Whole commands against a fake API server.

use globalps_core::names;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::error::{Exit, Failure};
use crate::fake_api::{FakeApi, path};

const AUTH: &str = "dTpw";
const OTHER_AUTH: &str = "dTpx";

fn config(auths: &[(&str, &str)]) -> Value {
    let auths = auths
        .iter()
        .map(|(key, auth)| ((*key).to_owned(), json!({"auth": auth})));
    let auths: serde_json::Map<String, Value> = auths.collect();
    json!(ByteString(json!({"auths": auths}).to_string().into_bytes()))
}

fn secret(auths: &[(&str, &str)]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {}, "type": names::SECRET_TYPE,
        "data": {names::DATA_KEY: config(auths)},
    })
}

/// An additional pull secret that was rolled out.
fn kept(revision: &str, auths: &[(&str, &str)]) -> Value {
    let mut secret = secret(auths);
    secret["metadata"]["annotations"] = json!({
        names::REVISION_ANNOTATION: revision, names::ROLLED_OUT_ANNOTATION: "2026-01-01T00:00:00Z",
    });
    secret
}

/// What is in force: of the additional pull secret, and of the original.
fn in_force(additional: &[(&str, &str)], original: &[(&str, &str)]) -> Value {
    let merged: Vec<(&str, &str)> = original.iter().chain(additional).copied().collect();
    let mut global = kept("3", &merged);
    global["data"][names::LAST_ADDITIONAL_KEY] = config(additional);
    global["data"][names::LAST_ORIGINAL_KEY] = config(original);
    global
}

/// `observed`: resource version of the additional pull secret that the controller has seen.
fn gps(observed: &str, spec: &Value, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(type_, status, reason)| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret", "metadata": {"generation": 1},
        "spec": spec,
        "status": {
            "observedGeneration": 1, "observedAdditional": observed, "revision": 3, "conditions": conditions,
        },
    })
}

fn node(phase: &str) -> Value {
    json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "metadata": {"generation": 1},
        "spec": {"revision": 3},
        "status": {"observedGeneration": 1, "revision": 3, "phase": phase},
    })
}

fn deployment(namespace: &str, replicas: i32, available: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
        "spec": {
            "replicas": replicas, "selector": {},
            "template": {"spec": {"containers": [{
                "name": "controller", "image": "r/c:1",
                "args": [format!("--namespace={namespace}"), "--syncer-image=r/s:1"],
            }]}},
        },
        "status": {"availableReplicas": available},
    })
}

fn refused(ran: Result<Exit, Failure>) -> Failure {
    match ran {
        Ok(exit) => unreachable!("not refused: {exit:?}"),
        Err(failure) => failure,
    }
}

const ADD: &str = "add --registry quay.io -u robot -p p --skip-check";

#[test]
fn an_installation_stays_in_its_namespace() {
    for (flags, asked) in [("", "kube-system"), ("-n other", "other")] {
        let api = FakeApi::new(&[(
            &path("deployments", names::CONTROLLER),
            deployment("team", 1, 1),
        )]);
        let line =
            format!("install --apply --controller-image c --syncer-image s --timeout 1s {flags}");
        let failure = refused(api.run(&line));
        let expected = format!("globalps is installed for namespace `team`, not for `{asked}`");
        assert_eq!(failure.message, expected);
        assert!(failure.hint.contains("-n team"), "{failure:?}");
        assert_eq!(api.writes(), [""; 0], "{flags}");
    }
}

#[test]
fn nothing_is_written_where_no_controller_watches() {
    for line in [ADD, "undo --yes", "pause"] {
        let api = FakeApi::new(&[(
            &path("deployments", names::CONTROLLER),
            deployment("team", 1, 1),
        )]);
        let failure = refused(api.run(line));
        let expected = "the controller watches namespace `team`, not `kube-system`";
        assert_eq!(failure.message, expected, "{line}");
        assert!(failure.hint.contains("-n team"), "{failure:?}");
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
}

#[test]
fn explain_looks_where_the_credentials_are() {
    let objects = [
        (
            path("secrets", names::GLOBAL_SECRET),
            in_force(&[("quay.io", AUTH)], &[]),
        ),
        (
            path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("", &json!({}), &[]),
        ),
        (
            "/api/v1/namespaces/a/pods/b".to_owned(),
            json!({"metadata": {"namespace": "a"}, "spec": {"containers": [], "serviceAccountName": "default"}}),
        ),
    ];
    let objects: Vec<(&str, Value)> = objects
        .iter()
        .map(|(path, object)| (path.as_str(), object.clone()))
        .collect();
    let installed = (
        path("deployments", names::CONTROLLER),
        deployment(names::NAMESPACE, 1, 1),
    );
    for is_readable in [true, false] {
        let mut objects = objects.clone();
        if is_readable {
            objects.push((&installed.0, installed.1.clone()));
        }
        let api = FakeApi::new(&objects);
        let ran = api.run("explain quay.io/org/app:1 --pod a/b -n a");
        assert_eq!(ran, Ok(Exit::Done), "{is_readable}");
    }
}
