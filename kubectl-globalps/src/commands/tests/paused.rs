//! Messages about a removal while the rollout is paused.

use super::*;

/// A removal that was requested while the rollout is paused: no node is restored yet.
fn paused_removal() -> FakeApi {
    let spec = json!({"rollout": {"paused": true}});
    FakeApi::new(&[
        (
            &path("secrets", names::GLOBAL_SECRET),
            in_force(&[("quay.io", AUTH)], &[]),
        ),
        (
            &path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("", &spec, &[("Ready", "False", "Restoring")]),
        ),
        (&path("nodepullsecrets", "node-1"), node("Synced")),
        (
            &path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
    ])
}

#[test]
fn a_paused_removal_resumes_and_no_advice_undoes_it() {
    let (ran, [out, err]) = paused_removal().printed("status");
    assert_eq!(ran, Ok(Exit::No), "{err}");
    assert!(err.contains("the rollout is paused"), "{out}{err}");
    assert!(err.contains("kubectl globalps resume"), "{err}");

    let api = paused_removal();
    let (ran, [out, err]) = api.printed("resume --wait --timeout 2s");
    let failure = refused(ran);
    let waited =
        "not done within 2 s: the additional pull secret was deleted; the nodes are being restored";
    assert_eq!(failure.message, waited, "{err}");
    assert!(out.contains("resumed"), "{out}");
}

#[test]
fn uninstall_deletes_nothing_while_no_node_would_be_restored() {
    let api = paused_removal();
    let failure = refused(api.run("uninstall --yes"));
    assert_eq!(
        failure.message,
        "the rollout is paused, so no node would be restored"
    );
    assert!(failure.hint.contains("kubectl globalps resume"));
    assert_eq!(api.writes(), [""; 0]);
}
