//! `add --source`: whether the source reaches pods.

use super::*;

const LINE: &str =
    "add --registry quay.io -u robot -p p --skip-check --source team --only-namespaces a";
const WHY: &str = "a source with a scope needs a provider";

/// The controller's report of source `team`.
fn with_source(delivery: &str, valid: bool, kubelet: &str) -> FakeApi {
    let spec = json!({
        "sources": [{"name": "team", "scope": {"namespaces": ["a"]}}],
        "kubelet": {"delivery": kubelet},
    });
    let mut gps = gps("101", &spec, &[("Ready", "True", "Synced")]);
    gps["status"]["sources"] = json!([{
        "name": "team", "valid": valid, "message": WHY, "registries": ["quay.io"], "total": 1,
        "delivery": delivery,
    }]);
    FakeApi::new(&[
        (
            &path("secrets", names::ADDITIONAL_SECRET),
            secret(&[("ghcr.io", AUTH)]),
        ),
        (
            &path("secrets", names::GLOBAL_SECRET),
            in_force(&[("ghcr.io", AUTH)], &[]),
        ),
        (&path("globalpullsecrets", names::GLOBAL_SECRET), gps),
        (&path("nodepullsecrets", "node-1"), node("Synced")),
        (
            &path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
    ])
}

/// `global-pull-secret` after the controller has read what `add` wrote.
fn taken_up(api: FakeApi) -> FakeApi {
    let (ran, [out, err]) = api.printed(&format!("{LINE} --dry-run=client -o json"));
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    let written: Value = serde_json::from_str(&out).expect("a Secret");
    let mut global = in_force(&[("ghcr.io", AUTH)], &[]);
    let key = format!("{}team", names::LAST_SOURCE_KEY_PREFIX);
    global["data"][key] = written["data"][names::DATA_KEY].clone();
    api.with_object(&path("secrets", names::GLOBAL_SECRET), global)
}

#[test]
fn a_wait_for_a_source_that_nobody_reads_says_no() {
    let known = |replicas: i32| {
        with_source("Nodes", true, "CredentialProvider")
            .with_object(
                &path("secrets", "team"),
                secret(&[("quay.io", OTHER_AUTH), ("ghcr.io", AUTH)]),
            )
            .with_object(
                &path("deployments", names::CONTROLLER),
                deployment(names::NAMESPACE, replicas, replicas),
            )
    };
    let says_no = |line: &str, replicas, expected: &str| {
        let line = format!("{line} --wait --timeout 2s");
        let failure = refused(known(replicas).run(&line));
        assert_eq!(failure.exit, Exit::No, "{line}");
        let message = &failure.message;
        assert!(message.starts_with(expected), "{line}: {message}");
    };
    // Each takes seconds.
    std::thread::scope(|scope| {
        for line in [LINE, "remove ghcr.io --source team --yes"] {
            for (replicas, expected) in [
                (0, "the controller is not running"),
                (
                    1,
                    "the controller has not reported the change of Secret `team` within 2 s",
                ),
            ] {
                scope.spawn(move || says_no(line, replicas, expected));
            }
        }
    });
    // The second run writes nothing, and knows whether the source was read.
    let api = known(0);
    assert_eq!(api.run(LINE), Ok(Exit::Done));
    let again = format!("{LINE} --wait --timeout 2s");
    let failure = refused(api.run(&again));
    assert_eq!(failure.exit, Exit::No, "{failure:?}");
    let api = taken_up(with_source("Nodes", true, "CredentialProvider"));
    assert_eq!(api.run(LINE), Ok(Exit::Done));
    let api = api.with_controller(act);
    assert_eq!(api.run(&again), Ok(Exit::Done), "it was read");
}

#[test]
fn a_wait_for_a_source_that_reaches_no_pod_says_no() {
    let none = "source `team` reaches no node and no namespace: ";
    let invalid = "source `team` is not valid: ";
    let cases = [
        ("NotDeliverable", true, "ConfigFile", Some(none)),
        // The rollout of the provider may be unfinished, so the source is judged afterwards.
        ("NotDeliverable", true, "CredentialProvider", Some(none)),
        ("Nodes", false, "CredentialProvider", Some(invalid)),
        ("Nodes", true, "CredentialProvider", None),
        ("Namespaces", true, "ConfigFile", None),
    ];
    // Each takes seconds.
    std::thread::scope(|scope| {
        for (delivery, valid, kubelet, expected) in cases {
            scope.spawn(move || {
                let api = taken_up(with_source(delivery, valid, kubelet)).with_controller(act);
                let (ran, [out, _]) = api.printed(&format!("{LINE} --force --wait --timeout 20s"));
                assert!(out.contains("secret/team created"), "{out}");
                let Some(expected) = expected else {
                    assert_eq!(ran, Ok(Exit::Done), "{delivery}");
                    return;
                };
                let failure = refused(ran);
                assert_eq!(failure.exit, Exit::No, "{failure:?}");
                assert_eq!(failure.message, format!("{expected}{WHY}"));
            });
        }
    });
}

#[test]
fn without_a_wait_the_warning_of_such_a_source_comes_last() {
    for flags in ["", "--dry-run=server"] {
        let api = with_source("NotDeliverable", true, "ConfigFile");
        let (ran, [_, err]) = api.printed(&format!("{LINE} --force {flags}"));
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        let last = err.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("warning: no pod would get the credentials"),
            "{err}"
        );
    }
}

#[test]
fn without_force_such_a_source_is_not_written() {
    for flags in ["", "--dry-run=server"] {
        let api = with_source("NotDeliverable", true, "ConfigFile");
        let before = api.writes().len();
        let failure = refused(api.run(&format!("{LINE} {flags}")));
        assert!(
            failure.message.starts_with("no pod would get"),
            "{failure:?}"
        );
        assert_eq!(api.writes().len(), before, "{flags}");
    }
}

#[test]
fn list_shows_such_a_source() {
    let (ran, [out, _]) = with_source("NotDeliverable", true, "ConfigFile").printed("list");
    assert_eq!(ran, Ok(Exit::Done));
    assert!(out.contains("NotDeliverable"), "{out}");
}
