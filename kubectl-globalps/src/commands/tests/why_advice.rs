//! `why`: what a kubelet reads of the pod's Secrets, and commands without an effect.

use super::why::{pod, registry, with_pods};
use super::*;

#[test]
fn why_reads_a_secret_of_the_pod_as_the_kubelet_does() {
    let registry = registry();
    let image = format!("{registry}/team/app:1");
    let old = |text: String| json!({".dockercfg": k8s_openapi::ByteString(text.into_bytes())});
    let new = json!({names::DATA_KEY: config(&[(&registry, AUTH)])});
    let of_old = old(format!(r#"{{"{registry}":{{"auth":"{AUTH}"}}}}"#));
    let unreadable = json!({names::DATA_KEY: config(&[(&registry, "x")])});
    let edit = "kubectl -n a edit secret own";
    for (type_, data, code, command, note) in [
        (names::SECRET_TYPE, &new, "WaitsForRetry", "", ""),
        ("kubernetes.io/dockercfg", &of_old, "WaitsForRetry", "", ""),
        (
            "Opaque",
            &new,
            "CredentialsRefused",
            "add",
            "Secret a/own has type `Opaque`: the kubelet ignores it",
        ),
        (
            "kubernetes.io/dockercfg",
            &new,
            "CredentialsRefused",
            "add",
            "Secret a/own has nothing under the key `.dockercfg`: the kubelet ignores it",
        ),
        (
            names::SECRET_TYPE,
            &unreadable,
            "SecretUnreadable",
            edit,
            "can't be read by a kubelet",
        ),
    ] {
        let mut own = secret(&[]);
        own["type"] = json!(type_);
        own["data"] = data.clone();
        let pod = pod(&image, &json!({}));
        let api = with_pods(&[(&registry, OTHER_AUTH)], &[("p", pod)])
            .with_object("/api/v1/namespaces/a/secrets/own", own);
        let (ran, [out, err]) = api.printed("why a/p --insecure -o json");
        assert_eq!(ran, Ok(Exit::No), "{err}");
        let answer: Value = serde_json::from_str(&out).expect("JSON");
        let cause = &answer["cause"];
        assert_eq!(cause["code"], code, "{type_} {data}: {out}");
        let printed = cause["command"].as_str().unwrap_or_default();
        assert_eq!(printed.is_empty(), command.is_empty(), "{out}");
        assert!(printed.contains(command), "{out}");
        assert!(out.contains(note), "{out}");
        if code == "SecretUnreadable" {
            let tries = &answer["containers"][0]["tries"];
            assert_eq!(tries, &json!([]), "the kubelet tries nothing: {out}");
        }
    }
}

#[test]
fn why_prints_no_command_that_changes_nothing() {
    let image = "quay.io/team/app:1";
    let api = || with_pods(&[], &[("p", pod(image, &json!({})))]);
    let deployment_path = path("deployments", names::CONTROLLER);
    for (api, expected) in [
        (api(), ""),
        (
            api().with_object(&deployment_path, deployment(names::NAMESPACE, 0, 0)),
            "start globalps first: the controller is not running",
        ),
        (
            api().without(&path("globalpullsecrets", names::GLOBAL_SECRET)),
            "install --restore-configuration",
        ),
        (
            api()
                .without(&path("globalpullsecrets", names::GLOBAL_SECRET))
                .without(&path("secrets", names::GLOBAL_SECRET)),
            "",
        ),
        (
            api()
                .without(&path("globalpullsecrets", names::GLOBAL_SECRET))
                .without(&path("secrets", names::GLOBAL_SECRET))
                .without(&deployment_path),
            "globalps is not installed",
        ),
    ] {
        for line in ["why a/p --no-ask", "why -A --no-ask"] {
            let (ran, [out, err]) = api.printed(line);
            assert_eq!(ran, Ok(Exit::No), "{line}: {err}");
            assert_eq!(out.contains("to fix it:"), expected.is_empty(), "{out}");
            assert!(out.contains(expected), "{out}");
        }
    }
}

/// The user's clock is ahead of the API server's, which set the times in the objects.
#[test]
fn by_the_clusters_clock_a_controller_just_gone_is_waited_for() {
    let ahead = 300;
    let there = Timestamp::now() - SignedDuration::from_secs(ahead + 5);
    let mut starting = deployment(names::NAMESPACE, 1, 0);
    starting["status"]["conditions"] =
        json!([{"type": "Available", "status": "False", "lastTransitionTime": there}]);
    let mut rolled_out = in_force(&[("ghcr.io", AUTH)], &[]);
    rolled_out["metadata"]["annotations"][names::ROLLED_OUT_ANNOTATION] = json!(there);
    let api = with_pods(&[], &[("p", pod("quay.io/team/app:1", &json!({})))])
        .with_object(&path("deployments", names::CONTROLLER), starting)
        .with_object(&path("secrets", names::GLOBAL_SECRET), rolled_out)
        .with_clock_behind(ahead);
    let (_, [out, err]) = api.printed("why a/p --no-ask");
    assert!(!out.contains("is not running"), "{out}{err}");
    assert!(out.contains("to fix it:"), "{out}{err}");
    let (_, [out, err]) = api.printed("history");
    assert!(out.contains("3 ") && !out.contains("5m"), "{out}{err}");
}
