//! The advice of a deleted configuration, and of one that names no source any more: run as it is printed.

use globalps_core::api::{GlobalPullSecret, GlobalPullSecretSpec};
use globalps_core::state::{
    Configuration, RESTORE_CONFIGURATION, State, is_restore_meant, sources_removed,
};

use super::*;

/// The commands in the text, without `kubectl globalps`.
fn commands(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let own = quoted.filter_map(|command| command.strip_prefix("kubectl globalps "));
    own.map(str::to_owned).collect()
}

/// What the controller remembers.
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

/// The same with a configuration that was created again with an empty spec, as the controller reports it.
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
fn the_last_source_is_removed_on_purpose() {
    for (line, annotation) in [
        ("remove --source team --all --yes", "2"),
        ("remove quay.io --source team --yes", "2"),
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
