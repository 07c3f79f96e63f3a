//! Messages for an invalid Secret, for another namespace, and if there is nothing to do.

use globalps_core::names;
use serde_json::{Value, json};

use super::unfinished::rolling_out;
use super::{AUTH, deployment, gps, in_force, kept, node, refused, secret};
use crate::error::Exit;
use crate::testing::examples::sample;
use crate::testing::fake_api::{CommandLine as _, FakeApi, Fault, path};

const INVALID: &str = "!!!";
const NOT_INSTALLED: &str = "globalps is not installed in this cluster";

/// 10.0.0.1:5000 is in force, and the Secret has an invalid entry since.
fn invalid(entries: &[(&str, &str)]) -> FakeApi {
    let registry = [("10.0.0.1:5000", AUTH)];
    FakeApi::new(&[
        (&path("secrets", names::ADDITIONAL_SECRET), secret(entries)),
        (
            &path("secrets", names::GLOBAL_SECRET),
            in_force(&registry, &[]),
        ),
        (
            &path("secrets", &names::history_secret(0)),
            kept("3", &registry),
        ),
        (
            &path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("101", &json!({}), &[("Ready", "True", "Synced")]),
        ),
        (&path("nodepullsecrets", "node-1"), node("Synced")),
        (
            &path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
    ])
}

#[test]
fn for_an_invalid_secret_a_preview_compares_with_what_is_active() {
    for (line, expected) in [
        ("remove quay.io --dry-run", "-10.0.0.1:5000: ***\n"),
        ("remove --all --dry-run", "-10.0.0.1:5000: ***\n"),
        ("undo --dry-run", "no credential on the nodes changes\n"),
    ] {
        let (ran, [out, err]) = invalid(&[("quay.io", INVALID)]).printed(line);
        assert_eq!(ran, Ok(Exit::Done), "{line}: {err}");
        assert_eq!(out, expected, "{line}: {err}");
    }
    // The remaining entry is valid.
    let (_, [out, _]) =
        invalid(&[("quay.io", INVALID), ("ghcr.io", AUTH)]).printed("remove quay.io --dry-run");
    assert_eq!(out, "-10.0.0.1:5000: ***\n+ghcr.io: ***\n");
    // The remaining entry is invalid.
    let (_, [out, _]) =
        invalid(&[("quay.io", INVALID), ("ghcr.io", AUTH)]).printed("remove ghcr.io --dry-run");
    assert_eq!(out, "no credential on the nodes changes\n");
}

#[test]
fn a_preview_of_a_scoped_source_compares_with_what_is_in_force() {
    let team = "team-a";
    let source = json!({"name": team, "scope": {"namespaces": ["a"]}});
    let mut global = in_force(&[], &[]);
    let scoped = json!([{
        "source": team, "scope": {"namespaces": ["a"]},
        "config": {"auths": {"ghcr.io": {"auth": AUTH}}},
    }]);
    let bytes = k8s_openapi::ByteString(scoped.to_string().into_bytes());
    global["data"][names::SCOPED_KEY] = json!(bytes);
    let api = FakeApi::new(&[
        (&path("secrets", team), secret(&[("quay.io", INVALID)])),
        (&path("secrets", names::GLOBAL_SECRET), global),
        (
            &path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("", &json!({"sources": [source]}), &[]),
        ),
        (&path("nodepullsecrets", "node-1"), node("Synced")),
    ]);
    let (ran, [out, err]) = api.printed("remove quay.io --source team-a --dry-run");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(out.contains("-ghcr.io: ***"), "{out} {err}");
}

#[test]
fn emptying_an_invalid_secret_says_what_nodes_lose() {
    for line in [
        "remove quay.io --yes",
        "remove quay.io --dry-run",
        "remove --all --yes",
    ] {
        let (ran, [_, err]) = invalid(&[("quay.io", INVALID)]).printed(line);
        assert_eq!(ran, Ok(Exit::Done), "{line}: {err}");
        for expected in [
            "without the Secret every node is restored",
            "`kubectl globalps undo` goes back to the last valid Secret",
        ] {
            assert!(err.contains(expected), "{line}: {err}");
        }
    }
    let (_, [_, err]) = invalid(&[("quay.io", AUTH)]).printed("remove quay.io --dry-run");
    assert!(!err.contains("not valid"), "{err}");
    assert!(err.contains("revisions start at 1 again"), "{err}");
}

#[test]
fn add_replaces_the_only_invalid_entry() {
    let api = invalid(&[("https://quay.io/v1/", INVALID), ("10.0.0.1:5000", AUTH)]);
    let (ran, [_, err]) = api.printed("add quay.io -u robot -p p --skip-check");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("+quay.io: ***"), "{err}");
    assert!(!err.contains("(before)"), "{err}");
    let found = api.object(&path("secrets", names::ADDITIONAL_SECRET));
    let bytes: k8s_openapi::ByteString =
        serde_json::from_value(found.expect("one")["data"][names::DATA_KEY].clone())
            .expect("bytes");
    let found = globalps_dockerconfig::validate_bytes(&bytes.0).0;
    assert_eq!(found.expect("valid").entries().len(), 2);
    let failure =
        refused(invalid(&[("quay.io", INVALID)]).run("add ghcr.io -u robot -p p --skip-check"));
    assert!(failure.message.contains("`quay.io`"), "{failure:?}");
    assert!(
        failure.hint.contains("kubectl globalps undo"),
        "{failure:?}"
    );
}

#[test]
fn reading_commands_refuse_a_namespace_that_none_watches() {
    for line in [
        "status",
        "status --watch",
        "status --wait",
        "status --namespaces",
        "check",
        "diff",
        "history",
        "list",
        "remove --all --yes",
        "retry",
        "bundle --file target/never.tar.gz",
    ] {
        let failure = refused(
            invalid(&[("quay.io", AUTH)]).run(&format!("{line} --pull-secret-namespace default")),
        );
        let expected = "the controller watches namespace `kube-system`, not `default`";
        assert_eq!(failure.message, expected, "{line}");
        assert_eq!(
            failure.hint, "run the command with `--pull-secret-namespace kube-system`",
            "{line}"
        );
    }
}

#[test]
fn a_fleets_invalid_source_is_compared_with_what_clusters_keep() {
    let source = "/api/v1/namespaces/clusters/secrets/team-a-source";
    let api = sample().with_object(source, secret(&[("quay.io", INVALID)]));
    for (flags, expected) in [
        ("", "no credential in the clusters changes\n"),
        ("--to-revision 2", "+docker.io: ***\n-quay.io: ***\n"),
    ] {
        let line = format!("fleet undo team-a {flags} -n clusters --dry-run");
        let (ran, [out, err]) = api.printed(&line);
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        assert_eq!(out, expected, "{err}");
    }
}

#[test]
fn what_changes_nothing_on_nodes_says_nothing_of_images_there() {
    let said = "images that are already on the nodes stay usable";
    let (ran, [_, err]) = invalid(&[("10.0.0.1:5000", AUTH), ("quay.io", INVALID)])
        .printed("remove 10.0.0.1:5000 --yes");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(!err.contains(said), "{err}");
    let (_, [_, err]) = invalid(&[("10.0.0.1:5000", AUTH)]).printed("remove --all --yes");
    assert!(err.contains(said), "{err}");
}

#[test]
fn diff_says_what_the_controller_would_not_put_into_force() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.json");
    let text = r#"{"auths":{"quay.io":{}}}"#;
    std::fs::write(&file, text).expect("written");
    let mut empty = secret(&[]);
    empty["data"][names::DATA_KEY] = json!(k8s_openapi::ByteString(text.into()));
    let works = invalid(&[("quay.io", AUTH)]);
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    let in_cluster = invalid(&[("quay.io", AUTH)]).with_object(&additional, empty);
    for (api, line) in [
        (works, format!("diff -f {}", file.display())),
        (in_cluster, "diff".to_owned()),
    ] {
        let failure = refused(api.run(&line));
        let expected = "the last valid content stays in force";
        assert!(failure.message.contains(expected), "{line}: {failure:?}");
    }
    let deleted = invalid(&[("quay.io", AUTH)]).without(&additional);
    let (ran, [out, err]) = deleted.printed("diff");
    assert_eq!(ran, Ok(Exit::No), "a deleted Secret removes: {err}");
    assert!(out.contains("-10.0.0.1:5000"), "{out}");
}

#[test]
fn validate_takes_its_file_as_diff_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config.json");
    let text = r#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#;
    std::fs::write(&file, text).expect("written");
    let file = file.display();
    let api = FakeApi::new(&[]);
    for line in [
        format!("validate {file}"),
        format!("validate -f {file}"),
        format!("validate --filename {file}"),
    ] {
        let (ran, [out, err]) = api.printed(&line);
        assert_eq!(ran, Ok(Exit::Done), "{line}: {err}");
        assert_eq!(out, "valid: 1 registry\n", "{line}");
    }
}

#[test]
fn a_registry_with_a_port_is_no_image() {
    let api = invalid(&[("quay.io", AUTH)]);
    for (image, hints) in [
        ("10.201.0.1:5051", true),
        ("localhost:5000", true),
        ("registry.example.com:443", true),
        ("10.201.0.1:5051/app:1", false),
        ("app:1", false),
        ("registry.example.com:v1", false),
    ] {
        let (ran, [_, err]) = api.printed(&format!("explain {image}"));
        assert!(ran.is_ok(), "{image}: {ran:?}");
        let expected = format!("name an image of it: `{image}/REPOSITORY`");
        assert_eq!(err.contains(&expected), hints, "{image}: {err}");
    }
}

#[test]
fn commands_look_before_they_ask() {
    let nothing = || {
        FakeApi::new(&[(
            &path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        )])
    };
    let failure = refused(nothing().run("undo"));
    assert_eq!(failure.message, "there is nothing to go back to");
    let failure = refused(nothing().run("remove quay.io"));
    assert!(
        failure.message.starts_with("there is no Secret"),
        "{failure:?}"
    );
    assert_eq!(
        nothing().run("remove quay.io --ignore-not-found"),
        Ok(Exit::Done)
    );
    for line in ["undo", "remove quay.io"] {
        let api = invalid(&[("quay.io", INVALID)]);
        let failure = refused(api.run(line));
        assert_eq!(failure.message, "confirmation needs a terminal", "{line}");
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
}

#[test]
fn pause_and_resume_say_what_was_so_already() {
    let name = "globalpullsecret.globalps.io/global-pull-secret";
    for (paused, line, expected, writes) in [
        (false, "pause", "paused", 1),
        (true, "pause", "already paused", 0),
        (true, "resume", "resumed", 1),
        (false, "resume", "is not paused", 0),
    ] {
        let api = rolling_out(paused, false, 0);
        let (ran, [out, err]) = api.printed(line);
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        assert_eq!(out, format!("{name} {expected}\n"), "{line}");
        assert_eq!(api.writes().len(), writes, "{line}");
    }
}

#[test]
fn a_change_while_the_rollout_is_paused_says_so() {
    for (paused, expected, other) in [
        (true, "kubectl globalps resume", "status --watch"),
        (false, "status --watch", "the rollout is paused"),
    ] {
        for line in ["add ghcr.io -u u -p p --skip-check", "undo --yes"] {
            let (ran, [_, err]) = rolling_out(paused, false, 0).printed(line);
            assert_eq!(ran, Ok(Exit::Done), "{err}");
            assert!(err.contains(expected) && !err.contains(other), "{err}");
        }
    }
}

#[test]
fn uninstall_says_what_else_is_deleted_or_that_nothing_is_there() {
    let (ran, [_, err]) = invalid(&[("quay.io", AUTH)]).printed("uninstall --dry-run");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    for expected in [
        "Secret `kube-system/additional-pull-secret` and its history are deleted too",
        "kubectl get secret additional-pull-secret -n kube-system -o yaml",
    ] {
        assert!(err.contains(expected), "{err}");
    }
    // Without a terminal there is no prompt either.
    for line in ["uninstall", "uninstall --yes"] {
        let api = without_kinds(&[]);
        let (ran, [_, err]) = api.printed(line);
        assert_eq!(ran, Ok(Exit::Done), "{line}: {err}");
        let expected = "globalps is not installed: there is nothing to delete\n";
        assert_eq!(err, expected, "{line}");
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
}

/// Without the custom resources.
fn without_kinds(objects: &[(&str, Value)]) -> FakeApi {
    let mut api = FakeApi::new(objects);
    for verb in ["get /apis/globalps.io", "list /apis/globalps.io"] {
        api = api.with_fault(verb, Fault::Code(404), usize::MAX);
    }
    api
}

#[test]
fn commands_say_that_globalps_is_not_installed() {
    for line in ["list", "history", "undo --yes", "retry"] {
        let failure = refused(without_kinds(&[]).run(line));
        assert_eq!(failure.message, NOT_INSTALLED, "{line}");
        assert!(failure.hint.contains("kubectl globalps install"), "{line}");
    }
    for line in ["status", "diff"] {
        let (_, [_, err]) = without_kinds(&[]).printed(line);
        assert!(err.contains(NOT_INSTALLED), "{line}: {err}");
    }
}
