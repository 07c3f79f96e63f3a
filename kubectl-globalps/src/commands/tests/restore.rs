//! Executes the printed advice for a deleted configuration, and for one that no longer names a source.

use globalps_core::api::{GlobalPullSecret, GlobalPullSecretSpec};
use globalps_core::state::{
    Configuration, RESTORE_CONFIGURATION, State, is_restore_meant, sources_removed,
};

use super::*;
use crate::testing::fake_api::Fault;
use crate::view::status::REMOVAL_HELD;

/// The commands in the text, without `kubectl globalps`.
fn commands(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let own = quoted.filter_map(|command| command.strip_prefix("kubectl globalps "));
    own.map(str::to_owned).collect()
}

/// The configuration that the controller remembers.
fn last() -> Configuration {
    let mut spec: GlobalPullSecretSpec = serde_json::from_value(json!({
        "sources": [{"name": "team"}], "kubelet": {"delivery": "None"}, "imagePullSecrets": {"enabled": true},
    }))
    .expect("a spec");
    spec.rollout.paused = true;
    Configuration {
        labels: [("app.kubernetes.io/managed-by".to_owned(), "Helm".to_owned())].into(),
        annotations: [("meta.helm.sh/release-name".to_owned(), "g".to_owned())].into(),
        spec,
    }
}

/// The source `team` is in force.
fn cluster(configuration: Option<Configuration>) -> FakeApi {
    let state = State {
        configuration,
        ..State::default()
    };
    let mut state = json!(state.secret());
    state["metadata"] = json!({});
    let mut global = kept("3", &[("quay.io", AUTH)]);
    global["data"][format!("{}team", names::LAST_SOURCE_KEY_PREFIX)] = config(&[("quay.io", AUTH)]);
    FakeApi::new(&[
        (&path("secrets", names::STATE_SECRET), state),
        (&path("secrets", names::GLOBAL_SECRET), global),
        (&path("secrets", "team"), secret(&[("quay.io", AUTH)])),
        (&path("nodepullsecrets", "node-1"), node("Synced")),
        (
            &path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
    ])
}

/// Like [`cluster`], with a configuration that was recreated with an empty spec, as the controller reports it.
fn held() -> FakeApi {
    let mut gps = gps("", &json!({}), &[]);
    let message = sources_removed("`team`");
    let conditions = [
        ("Ready", "False"),
        ("Degraded", "True"),
        ("Progressing", "False"),
    ];
    let conditions = conditions.map(|(type_, status)| {
        json!({
            "type": type_, "status": status, "reason": "Held", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    });
    gps["status"]["conditions"] = json!(conditions);
    cluster(Some(last())).with_object(&path("globalpullsecrets", names::GLOBAL_SECRET), gps)
}

fn found(api: &FakeApi) -> GlobalPullSecret {
    let object = api.object(&path("globalpullsecrets", names::GLOBAL_SECRET));
    serde_json::from_value(object.expect("one")).expect("a GlobalPullSecret")
}

#[test]
fn a_deleted_configuration_is_created_again_as_it_was() {
    let api = cluster(Some(last()));
    let (ran, [_, err]) = api.printed("status");
    assert_eq!(ran, Ok(Exit::No));
    let advice = commands(&err);
    assert_eq!(advice, commands(RESTORE_CONFIGURATION), "{err}");
    assert_eq!(api.run(&advice[0]), Ok(Exit::Done));
    assert_eq!(Configuration::of(&found(&api)), last());
    let writes = api.writes();
    assert_eq!(
        api.run(&advice[0]),
        Ok(Exit::Done),
        "there is nothing to do"
    );
    assert_eq!(api.writes(), writes);

    let damaged = cluster(Some(last()));
    let state = path("secrets", names::STATE_SECRET);
    let mut object = damaged.object(&state).expect("one");
    object["data"][names::STATE_KEY] = json!("e30x");
    let damaged = damaged.with_object(&state, object);
    for api in [damaged, cluster(None)] {
        let failure = refused(api.run(&advice[0]));
        assert!(failure.message.contains("no configuration"), "{failure:?}");
        assert_eq!(api.writes(), [""; 0]);
    }
}

#[test]
fn no_command_replaces_a_deleted_configuration_by_an_empty_one() {
    for line in [
        "pause",
        "resume",
        "add quay.io -u robot -p p --skip-check --source team2",
        "add quay.io -u robot -p p --skip-check --source team2 --dry-run=client",
        "remove --source team --all --yes",
        "install --apply --source team2 --yes",
        "install --apply --delivery none --yes",
    ] {
        let without_state = cluster(None).without(&path("secrets", names::STATE_SECRET));
        let without_global = cluster(Some(last())).without(&path("secrets", names::GLOBAL_SECRET));
        for api in [cluster(Some(last())), without_state, without_global] {
            let failure = refused(api.run(line));
            assert_eq!(failure.hint, RESTORE_CONFIGURATION, "{line}: {failure:?}");
            // A missing configuration can't be changed.
            let mut writes = api.writes();
            writes.retain(|write| !write.starts_with("patch /apis/globalps.io/"));
            assert_eq!(writes, [""; 0], "{line}");
        }
    }
}

#[test]
fn what_another_object_replaced_is_restored() {
    let mut of_before = gps("", &json!({}), &[]);
    of_before["spec"]["rollout"] = json!({"paused": true});
    let now: GlobalPullSecret = serde_json::from_value(of_before.clone()).expect("one");
    let mut state = json!(
        State {
            configuration: Some(Configuration::of(&now)),
            replaced: Some(last()),
            ..State::default()
        }
        .secret()
    );
    state["metadata"] = json!({});
    let api = cluster(None)
        .with_object(&path("secrets", names::STATE_SECRET), state)
        .with_object(&path("globalpullsecrets", names::GLOBAL_SECRET), of_before);
    let line = "install --restore-configuration";
    let (ran, [_, err]) = api.printed(line);
    assert_eq!(ran, Ok(Exit::Done));
    assert!(err.contains("is in force"), "{err}");
    assert_eq!(found(&api).spec, last().spec);
    let writes = api.writes();
    assert_eq!(
        api.run(line),
        Ok(Exit::Done),
        "before the controller sees it"
    );
    assert_eq!(api.writes(), writes);
}

#[test]
fn a_held_removal_that_looks_like_what_was_replaced_is_undone() {
    let config = path("globalpullsecrets", names::GLOBAL_SECRET);
    let live: GlobalPullSecret =
        serde_json::from_value(held().object(&config).expect("one")).expect("one");
    let state = State {
        configuration: Some(last()),
        replaced: Some(Configuration::of(&live)),
        ..State::default()
    };
    let mut state = json!(state.secret());
    state["metadata"] = json!({});
    let api = held().with_object(&path("secrets", names::STATE_SECRET), state);
    let ran = api.run("install --restore-configuration");
    assert_eq!(ran, Ok(Exit::Done));
    assert_eq!(found(&api).spec, last().spec);
}

#[test]
fn nothing_is_deleted_that_can_not_be_created_again() {
    const UPDATE: &str =
        "update /apis/globalps.io/v1alpha1/namespaces/kube-system/globalpullsecrets";
    const CREATE: &str =
        "create /apis/globalps.io/v1alpha1/namespaces/kube-system/globalpullsecrets";
    let line = "install --restore-configuration";
    let api = held().with_fault(UPDATE, Fault::Code(422), 1);
    assert_eq!(api.run(line), Ok(Exit::Done));
    assert_eq!(found(&api).spec, last().spec);
    for code in [403, 422, 500] {
        let api = held().with_fault(UPDATE, Fault::Code(422), 1);
        let api = api.with_fault(CREATE, Fault::Code(code), usize::MAX);
        let failure = refused(api.run(line));
        assert!(failure.is(code), "{failure:?}");
        let mut writes = api.writes().into_iter();
        assert!(!writes.any(|write| write.starts_with("delete ")), "{code}");
        assert_ne!(found(&api).spec, last().spec, "it is still there");
    }
}

#[test]
fn a_removal_that_is_held_is_undone_or_meant() {
    let api = held();
    let (ran, [_, err]) = api.printed("status");
    assert_eq!(ran, Ok(Exit::No));
    let advice = commands(&err);
    assert_eq!(advice[..2], commands(&sources_removed("`team`")), "{err}");
    let (_, [out, _]) = api.printed("check");
    assert!(
        advice[..2].iter().all(|command| out.contains(command)),
        "{out}"
    );
    let stuck = refused(api.run("status --wait --timeout 5s"));
    assert!(stuck.message.contains(&advice[1]), "a wait ends: {stuck:?}");

    assert_eq!(api.run(&advice[0]), Ok(Exit::Done));
    let undone = found(&api);
    assert!(undone.spec == last().spec && !is_restore_meant(&undone));

    let api = held();
    assert_eq!(api.run(&format!("{} --dry-run", advice[1])), Ok(Exit::Done));
    assert_eq!(api.writes(), [""; 0]);
    assert_eq!(api.run(&format!("{} --yes", advice[1])), Ok(Exit::Done));
    let meant = found(&api);
    assert!(is_restore_meant(&meant), "{meant:?}");
    let (_, [_, err]) = api.printed("status");
    assert!(
        !err.contains("no longer names"),
        "it is no longer held: {err}"
    );
    let failure = refused(api.run(&advice[1]));
    assert!(
        failure.message.starts_with("there is no Secret"),
        "{failure:?}"
    );
}

#[test]
fn nothing_is_added_while_a_removal_is_held() {
    let additional = path("secrets", names::ADDITIONAL_SECRET);
    let earlier = path("secrets", &names::history_secret(0));
    for line in [
        ADD,
        "add quay.io -u robot -p p --skip-check --source team2",
        "add quay.io -u robot -p p --skip-check --dry-run=server",
        "undo --yes",
        "install --source team --apply",
        "install --delivery CredentialProvider --apply",
    ] {
        let api = held().with_object(&earlier, kept("2", &[("ghcr.io", AUTH)]));
        let failure = refused(api.run(line));
        assert_eq!(failure.message, REMOVAL_HELD.0, "{line}");
        for advice in commands(&sources_removed("`team`")) {
            let is_named = commands(&failure.hint).contains(&advice);
            assert!(is_named, "{line}: {failure:?}");
        }
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
    let other = held().with_object(&additional, secret(&[("ghcr.io", AUTH)]));
    let ran = other.run("remove --all --yes");
    assert_eq!(ran, Ok(Exit::Done), "it goes with the sources");
    assert!(is_restore_meant(&found(&other)) && other.object(&additional).is_none());
}

#[test]
fn a_pause_outlasts_a_restored_configuration() {
    let config = path("globalpullsecrets", names::GLOBAL_SECRET);
    let mut running = last();
    running.spec.rollout.paused = false;
    for is_paused in [false, true] {
        let mut now = held().object(&config).expect("one");
        now["spec"] = json!({"rollout": {"paused": is_paused}});
        let api = cluster(Some(running.clone())).with_object(&config, now);
        let ran = api.run("install --restore-configuration");
        assert_eq!(ran, Ok(Exit::Done));
        let restored = found(&api).spec;
        assert_eq!(restored.rollout.paused, is_paused);
        assert_eq!(restored.sources, running.spec.sources);
    }
}

#[test]
fn all_that_goes_with_a_held_removal_is_shown() {
    let (ran, [out, err]) = held().printed("remove --all --dry-run");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert_eq!(out, "-quay.io: ***\n", "{err}");
    assert!(err.contains("the history is deleted"), "{err}");
}

#[test]
fn the_last_source_is_removed_on_purpose() {
    for (line, annotation) in [
        ("remove --source team --all --yes", "gps-1/2"),
        ("remove quay.io --source team --yes", "gps-1/2"),
    ] {
        let api = cluster(None);
        let spec = json!({"sources": [{"name": "team"}]});
        let api = api.with_object(
            &path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("", &spec, &[("Ready", "True", "Synced")]),
        );
        assert_eq!(api.run(line), Ok(Exit::Done), "{line}");
        let config = found(&api);
        let meant = config.metadata.annotations.unwrap_or_default();
        let meant = meant.get(names::RESTORE_ANNOTATION).map(String::as_str);
        assert_eq!(meant, Some(annotation), "the generation after the change");
        assert!(config.spec.sources.is_empty());
        assert_eq!(api.object(&path("secrets", "team")), None);
    }
}
