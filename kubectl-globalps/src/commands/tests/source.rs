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

#[test]
fn a_wait_for_a_source_that_reaches_no_pod_says_no() {
    let none = "source `team` reaches no node and no namespace: ";
    let invalid = "source `team` is not valid: ";
    let cases = [
        ("NotDeliverable", true, "ConfigFile", Some(none)),
        // The rollout of the provider may not be over: it is judged afterwards.
        ("NotDeliverable", true, "CredentialProvider", Some(none)),
        ("Nodes", false, "CredentialProvider", Some(invalid)),
        ("Nodes", true, "CredentialProvider", None),
        ("Namespaces", true, "ConfigFile", None),
    ];
    // They wait for seconds.
    std::thread::scope(|scope| {
        for (delivery, valid, kubelet, expected) in cases {
            scope.spawn(move || {
                let api = with_source(delivery, valid, kubelet).with_controller(act);
                let (ran, [out, _]) = api.printed(&format!("{LINE} --wait --timeout 20s"));
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
        let (ran, [_, err]) = api.printed(&format!("{LINE} {flags}"));
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        let last = err.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("warning: no pod gets the credentials"),
            "{err}"
        );
    }
}

#[test]
fn list_shows_such_a_source() {
    let (ran, [out, _]) = with_source("NotDeliverable", true, "ConfigFile").printed("list");
    assert_eq!(ran, Ok(Exit::Done));
    assert!(out.contains("NotDeliverable"), "{out}");
}
