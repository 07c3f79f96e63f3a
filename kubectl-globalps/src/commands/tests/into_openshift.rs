//! Changes with the delivery `OpenShift`: `add`, `diff` and `undo` name what does not come into force, and no command waits for it.

use super::*;
use crate::testing::fake_api::Fault;

const PULL_SECRET: &str = "/api/v1/namespaces/openshift-config/secrets/pull-secret";

/// One registry is delivered; the platform and another program have one each.
fn delivering() -> FakeApi {
    let delivered = || secret(&[("ghcr.io", AUTH)]);
    let secret_path = |name: &str| path("secrets", name);
    rolled_out_with(&json!({"kubelet": {"delivery": "OpenShift"}}))
        .with_object(&secret_path(names::ADDITIONAL_SECRET), delivered())
        .with_object(
            &secret_path(names::RECORD_SECRET),
            in_force(&[("ghcr.io", AUTH)], &[]),
        )
        .with_object(&secret_path(names::GLOBAL_SECRET), delivered())
        .with_object(&secret_path(names::APPLIED_SECRET), delivered())
        .with_object(
            &secret_path(&names::history_secret(0)),
            kept("2", &[("theirs.io", AUTH)]),
        )
        .with_object(
            PULL_SECRET,
            secret(&[
                ("quay.io", OTHER_AUTH),
                ("theirs.io", OTHER_AUTH),
                ("ghcr.io", AUTH),
            ]),
        )
}

const PLATFORM: &str = "`quay.io` is not delivered (PlatformKey)";
const THEIRS: &str = "`theirs.io` is not delivered (AnotherWriter)";
const HIDDEN: &str = "you may not read `openshift-config/pull-secret`";

fn hidden(api: FakeApi) -> FakeApi {
    api.with_fault(&format!("get {PULL_SECRET}"), Fault::Code(403), usize::MAX)
}

#[test]
fn add_warns_before_it_writes_what_is_not_delivered() {
    for (registry, expected) in [
        ("quay.io", &[PLATFORM][..]),
        ("theirs.io", &[THEIRS]),
        ("quay.io/org", &[]),
        ("new.io", &[]),
    ] {
        let api = delivering();
        let line = format!("add {registry} -u robot -p p --skip-check --force");
        let (ran, [_, err]) = api.printed(&line);
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        let all = [PLATFORM, THEIRS, HIDDEN];
        let found: Vec<&str> = all.into_iter().filter(|it| err.contains(it)).collect();
        assert_eq!(found, expected, "{registry}: {err}");
    }
    let (ran, [_, err]) =
        hidden(delivering()).printed("add quay.io -u robot -p p --skip-check --force");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains(PLATFORM) && err.contains(HIDDEN), "{err}");
}

#[test]
fn what_nobody_has_checked_reaches_no_node() {
    let api = delivering();
    let line = "add new.io -u robot -p p --skip-check";
    let failure = refused(api.run(line));
    assert!(failure.message.contains("no canary"), "{failure:?}");
    assert!(failure.hint.contains("--force"), "{failure:?}");
    assert_eq!(api.writes(), [""; 0]);
    assert_eq!(api.run(&format!("{line} --dry-run")), Ok(Exit::Done));
    assert_eq!(rolled_out().run(line), Ok(Exit::Done), "another delivery");
}

#[test]
fn diff_and_undo_name_what_is_not_delivered() {
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    let wanted = [("quay.io", AUTH), ("theirs.io", AUTH), ("new.io", AUTH)];
    let api = delivering().with_object(&additional, secret(&wanted));
    let (ran, [out, err]) = api.printed("diff");
    assert_eq!(ran, Ok(Exit::No), "{err}");
    assert!(err.contains(PLATFORM) && err.contains(THEIRS), "{err}");
    assert!(out.contains("+new.io: ***"), "{out}");
    let (_, [out, _]) = api.printed("diff -o json");
    let found: Value = serde_json::from_str(&out).expect("JSON");
    let expected = json!({
        "written": ["new.io"], "removed": ["ghcr.io"],
        "notWritten": [
            {"registry": "quay.io", "reason": "PlatformKey"}, {"registry": "theirs.io", "reason": "AnotherWriter"},
        ],
    });
    assert_eq!(found["pullSecret"], expected);
    let (_, [out, err]) = hidden(api).printed("diff -o json");
    assert!(out.contains(HIDDEN) && !err.contains(THEIRS), "{out}{err}");
    let (_, [out, _]) = rolled_out().printed("diff -o json");
    assert!(!out.contains("pullSecret"), "{out}");

    let (ran, [_, err]) = delivering().printed("undo --to-revision 2 --yes");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains(THEIRS), "{err}");
}

#[test]
fn nodes_are_not_credited_with_what_is_not_written() {
    let record = path("secrets", names::RECORD_SECRET);
    let merged = [("ghcr.io", AUTH), ("theirs.io", AUTH)];
    let api = delivering().with_object(&record, in_force(&merged, &[]));
    for (image, expected) in [("theirs.io/a:1", Exit::No), ("ghcr.io/a:1", Exit::Done)] {
        let (ran, [out, err]) = api.printed(&format!("explain {image}"));
        assert_eq!(ran, Ok(expected), "{out}{err}");
        let is_named = format!("{out}{err}").contains(THEIRS);
        assert_eq!(is_named, expected == Exit::No, "{out}{err}");
    }
}

/// Its time limit would end the test.
#[test]
fn a_wait_names_what_another_program_keeps_and_ends() {
    let api = delivering();
    let additional = api.object(&path("secrets", names::ADDITIONAL_SECRET));
    let version = additional.expect("one")["metadata"]["resourceVersion"].clone();
    let spec = json!({"kubelet": {"delivery": "OpenShift"}});
    let conditions = [
        ("Ready", "False", "AnotherWriter"),
        ("PullSecretSynced", "False", "AnotherWriter"),
    ];
    let mut config = gps(version.as_str().expect("a version"), &spec, &conditions);
    config["status"]["conditions"][1]["message"] = json!("another program has its own entry");
    let api = api.with_object(&path("globalpullsecrets", names::GLOBAL_SECRET), config);
    let (ran, [out, err]) = api.printed("status --wait --timeout 1h");
    let failure = refused(ran);
    assert!(
        failure
            .message
            .contains("another program has its own entry"),
        "{failure:?} {out} {err}"
    );
    let (_, [out, err]) = api.printed("status");
    let mode = "OpenShift: into the cluster's own pull secret";
    assert!(out.contains(mode), "{out}");
    assert!(
        format!("{out}{err}").contains("another program has its own entry"),
        "{out}{err}"
    );
}

#[test]
fn no_command_promises_what_the_machine_config_operator_does() {
    let (ran, [_, err]) = delivering().printed("pause");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("nodes still get what it has"), "{err}");
    let (ran, [out, err]) = delivering().printed("uninstall --dry-run");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(!out.contains("kubelet restart"), "{out}");
}
