//! A deleted pull secret that still exists, because another program's finalizer keeps it.

use super::*;

const WAITS: &str = "is being deleted and waits for the finalizer `example.com/backup`";

fn with_finalizer(mut secret: Value) -> Value {
    secret["metadata"]["finalizers"] = json!(["example.com/backup"]);
    secret
}

fn deleted() -> FakeApi {
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    let mut secret = with_finalizer(secret(&[("quay.io", OTHER_AUTH), ("ghcr.io", AUTH)]));
    secret["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    rolled_out().with_object(&additional, secret)
}

/// The controller restores the nodes even if the Secret still exists.
fn restore(objects: &mut Objects) {
    objects.retain(|path, _| !path.contains("/nodepullsecrets/"));
    objects.remove(&path("secrets", names::GLOBAL_SECRET));
    let config = objects.get_mut(&path("globalpullsecrets", names::GLOBAL_SECRET));
    config.expect("a GlobalPullSecret")["status"]["observedAdditional"] = json!("");
}

#[test]
fn nothing_is_written_into_a_secret_that_is_being_deleted() {
    for line in [
        ADD,
        "add ghcr.io -u u -p p --skip-check",
        "undo --yes",
        "undo --to-revision 2 --yes",
        "remove quay.io --yes",
        "remove quay.io ghcr.io --yes",
    ] {
        let api = deleted();
        let failure = refused(api.run(line));
        let expected = format!("Secret `additional-pull-secret` {WAITS}");
        assert_eq!(failure.message, expected, "{line}");
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
}

#[test]
fn a_removal_ends_with_restored_nodes_and_names_what_keeps_it() {
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    let kept = with_finalizer(secret(&[("quay.io", OTHER_AUTH)]));
    for api in [
        deleted(),
        rolled_out().with_object(&additional, kept.clone()),
    ] {
        let api = api.with_controller(restore);
        let (ran, [_, err]) = api.printed("remove --all --yes --wait --timeout 20s");
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        assert!(err.contains(WAITS), "{err}");
        let (_, [_, err]) = api.printed("status");
        assert!(err.contains(WAITS), "{err}");
    }
    let api = rolled_out().with_object(&additional, kept);
    let api = api.with_controller(restore);
    let (ran, [_, err]) = api.printed("uninstall --yes --timeout 20s");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    let expected = format!("warning: Secret `kube-system/additional-pull-secret` {WAITS}");
    assert!(err.contains(&expected), "{err}");
    assert_eq!(api.object(&path("deployments", names::CONTROLLER)), None);
}

#[test]
fn uninstall_leaves_what_is_hypershifts() {
    let (place, set) = install::of_hypershift();
    let api = rolled_out().with_object(&place, set.clone());
    let (ran, [out, err]) = api.printed("uninstall --dry-run");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(!out.contains(names::SYNCER), "{out}");
    let api = api.with_controller(restore);
    let (ran, [_, err]) = api.printed("uninstall --yes --timeout 20s");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    let left = api.object(&place).expect("HyperShift's");
    assert_eq!(left["spec"], set["spec"]);
}

/// A deletion by mistake, while the controller restores the first nodes.
#[test]
fn undo_brings_the_newest_of_the_history_back() {
    let [old, new] = [[("docker.io", AUTH)], [("quay.io", AUTH)]];
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    let mut restoring = in_force(&new, &[]);
    restoring["metadata"]["annotations"] =
        json!({names::REVISION_ANNOTATION: "2", names::RESTORING_ANNOTATION: "2"});
    let mut without_last = restoring.clone();
    without_last["data"] = json!({names::DATA_KEY: config(&new)});
    for global in [restoring, without_last] {
        let api = rolled_out()
            .without(&additional)
            .with_object(&path("secrets", names::GLOBAL_SECRET), global)
            .with_object(
                &path("secrets", &names::history_secret(0)),
                self::kept("1", &old),
            )
            .with_object(
                &path("secrets", &names::history_secret(1)),
                self::kept("2", &new),
            );
        assert_eq!(api.run("undo --yes"), Ok(Exit::Done));
        let secret = api.object(&additional).expect("one");
        assert_eq!(secret["data"][names::DATA_KEY], config(&new));
    }
}
