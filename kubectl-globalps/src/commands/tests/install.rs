//! What `install` keeps, and which namespaces it accepts.

use globalps_core::api::GlobalPullSecret;
use globalps_core::state::{Configuration, State};

use super::*;
use crate::install::installer::Installer;

pub(super) const IMAGES: &str =
    "install --controller-image r/c:1 --syncer-image r/s:1 --apply --yes";

/// Every applied workload runs at once.
pub(super) fn empty() -> FakeApi {
    let crd = |name: &str| {
        let api = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        format!("{api}/{name}.{}", names::GROUP)
    };
    let established = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    });
    FakeApi::new(&[
        (&crd("globalpullsecrets"), established.clone()),
        (&crd("nodepullsecrets"), established),
        (
            &path("deployments", names::CONTROLLER),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
                "status": {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
            }),
        ),
    ])
}

fn config_path() -> String {
    path("globalpullsecrets", names::GLOBAL_SECRET)
}

/// Installed with a pull secret for the images, a source with a scope, another delivery, and an original with its own key.
fn configured() -> FakeApi {
    let api = empty();
    let flags =
        "--pull-secret images --source team-a --delivery CredentialProvider --original ns/orig";
    assert_eq!(api.run(&format!("{IMAGES} {flags}")), Ok(Exit::Done));
    let mut config = api.object(&config_path()).expect("one");
    config["spec"]["sources"][0]["scope"] = json!({"namespaces": ["n"]});
    config["spec"]["original"]["secretRef"]["key"] = json!("own.json");
    api.with_object(&config_path(), config)
}

pub(super) fn spec(api: &FakeApi) -> Value {
    api.object(&config_path()).expect("one")["spec"].clone()
}

/// Number of objects applied since, without the `GlobalPullSecret`.
fn applied(api: &FakeApi, before: usize) -> usize {
    let writes = api.writes().split_off(before);
    let is_config = |write: &&String| write.contains("/globalpullsecrets/");
    assert_eq!(writes.iter().find(is_config), None);
    writes.len()
}

#[test]
fn install_takes_nothing_back_that_it_is_not_asked_for() {
    for flags in [
        "",
        "--syncer-image r/s:2",
        "--pull-secret images",
        "--original ns/orig",
        "--source team-a",
    ] {
        let api = configured();
        let before = spec(&api);
        let ran = api.run(&format!("install --apply --yes {flags}"));
        assert_eq!(ran, Ok(Exit::Done), "{flags}");
        assert_eq!(spec(&api), before, "{flags}");
    }
    // The syncer's image may have another pull secret.
    let api = configured();
    let mut config = api.object(&config_path()).expect("one");
    config["spec"]["syncer"]["imagePullSecret"] = json!("others");
    let api = api.with_object(&config_path(), config);
    let ran = api.run("install --apply --yes --source team-b");
    assert_eq!(ran, Ok(Exit::Done));
    assert_eq!(spec(&api)["syncer"]["imagePullSecret"], "others");
    assert_eq!(spec(&api)["sources"].as_array().map(Vec::len), Some(2));
    // Nothing is in force yet.
    let api = configured().without(&config_path());
    assert_eq!(api.run("install --apply --yes"), Ok(Exit::Done));
    assert_eq!(spec(&api), json!({"syncer": {"imagePullSecret": "images"}}));
    // Without it, syncers of another configuration could not start.
    let mut config = configured().object(&config_path()).expect("one");
    config["spec"]["syncer"] = json!({});
    let api = configured().with_object(&config_path(), config);
    assert_eq!(api.run("install --apply --yes"), Ok(Exit::Done));
    assert_eq!(spec(&api), spec(&configured()));
}

#[test]
fn deleted_definitions_come_back_before_the_configuration() {
    let global = path("secrets", names::GLOBAL_SECRET);
    let api = configured().without(&config_path());
    let api = api.with_object(&global, in_force(&[("quay.io", AUTH)], &[]));
    let before = api.writes().len();
    assert_eq!(api.run("install --apply --yes"), Ok(Exit::Done));
    assert!(applied(&api, before) > 5);
    let failure = refused(api.run("install --apply --yes --pull-secret images"));
    assert!(
        failure.message.contains("no GlobalPullSecret"),
        "{failure:?}"
    );
}

#[test]
fn an_unreadable_configuration_stays_until_restored() {
    let config: GlobalPullSecret =
        serde_json::from_value(configured().object(&config_path()).expect("one")).expect("one");
    let last = Configuration::of(&config);
    let state = State {
        configuration: Some(last.clone()),
        ..State::default()
    };
    let mut state = json!(state.secret());
    state["metadata"] = json!({});
    let mut config = json!(config);
    config["spec"]["rollout"] = json!({"maxUnavailable": 3_000_000_000_u32, "paused": true});
    let api = configured()
        .with_object(&path("secrets", names::STATE_SECRET), state)
        .with_object(&config_path(), config);
    let before = api.writes().len();
    let (ran, [_, err]) = api.printed("install --apply --yes");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("`spec.rollout.maxUnavailable`"), "{err}");
    assert!(applied(&api, before) > 5);
    let writes = api.writes().len();
    let failure = refused(api.run("install --apply --yes --source team-b"));
    assert!(failure.message.contains("maxUnavailable"), "{failure:?}");
    assert_eq!(api.writes().len(), writes);

    let ran = api.run("install --restore-configuration");
    assert_eq!(ran, Ok(Exit::Done));
    let mut expected = last.spec;
    expected.rollout.paused = true;
    assert_eq!(spec(&api), json!(expected));
}

#[test]
fn without_a_controller_its_objects_say_which_namespace() {
    let of_creds = |path: String| path.replace(names::NAMESPACE, "creds");
    let config = gps("", &json!({}), &[("Ready", "True", "Synced")]);
    for has_config in [false, true] {
        let api = FakeApi::new(&[(&of_creds(path("nodepullsecrets", "node-1")), node("Synced"))]);
        let api = if has_config {
            api.with_object(&of_creds(config_path()), config.clone())
        } else {
            api
        };
        for line in ["uninstall --yes", IMAGES, ADD] {
            let failure = refused(api.run(line));
            assert!(failure.message.contains("`creds`"), "{line}: {failure:?}");
            assert!(
                failure.hint.contains("--pull-secret-namespace creds"),
                "{line}: {failure:?}"
            );
            assert_eq!(api.writes(), [""; 0], "{line}");
        }
        let ran = api.run("status --pull-secret-namespace creds");
        assert_eq!(ran, Ok(Exit::No), "it is the right one");
    }
    // Both namespaces have objects, so that of `-n` counts.
    let api = rolled_out()
        .without(&path("deployments", names::CONTROLLER))
        .with_object(&of_creds(path("nodepullsecrets", "node-1")), node("Synced"));
    assert_eq!(api.run("list"), Ok(Exit::Done));
    for namespace in ["", " --pull-secret-namespace creds"] {
        let (_, [out, _]) = FakeApi::new(&[]).printed(&format!("check{namespace}"));
        let command = format!("kubectl globalps install{namespace} --controller-image IMAGE");
        assert!(out.contains(&command), "{out}");
    }
}

/// Otherwise Helm would undo the change at its next upgrade, and `helm uninstall` would miss deleted objects.
#[test]
fn what_another_program_installed_is_left_to_it() {
    let with = |metadata: Value| {
        let mut api = rolled_out();
        let path = path("deployments", names::CONTROLLER);
        let mut deployment = api.object(&path).expect("one");
        deployment["metadata"] = metadata;
        api = api.with_object(&path, deployment);
        api
    };
    let manager = |name: &str| {
        json!({"managedFields": [
            {"manager": name, "fieldsV1": {"f:spec": {"f:template": {}, "f:replicas": {}}}},
            {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ]})
    };
    let helm = json!({
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "g", "meta.helm.sh/release-namespace": "ns"},
    });
    let owner = json!({"ownerReferences": [
        {"apiVersion": "v1", "kind": "ClusterServiceVersion", "name": "g.v1", "uid": "u", "controller": true},
    ]});
    for (metadata, name, command) in [
        (
            helm.clone(),
            "Helm (release `g`, namespace `ns`)",
            "helm upgrade g CHART -n ns",
        ),
        (manager("helm"), "Helm", "change it where Helm has it from"),
        (
            manager("argocd-controller"),
            "argocd-controller",
            "change it where",
        ),
        (owner, "ClusterServiceVersion/g.v1", "change it where"),
    ] {
        let api = with(metadata);
        for line in ["install --yes", IMAGES, "install --source team-a --yes"] {
            let failure = refused(api.run(line));
            assert!(
                failure.message.ends_with(&format!("with {name}")),
                "{failure:?}"
            );
            assert!(failure.hint.contains(command), "{failure:?}");
            assert_eq!(api.writes(), [""; 0], "{name}");
        }
        let failure =
            refused(api.run("install --force-conflicts --yes --pull-secret-namespace other"));
        assert!(
            !failure.message.contains("was installed with"),
            "{failure:?}"
        );
    }
    for own in [
        json!({}),
        manager("kubectl-client-side-apply"),
        manager("globalps-cli"),
    ] {
        assert!(
            Installer::of(
                serde_json::from_value(json!({"metadata": own}))
                    .ok()
                    .as_ref()
            )
            .is_none()
        );
    }
    let api = with(helm);
    let (ran, [out, err]) = api.printed("uninstall --dry-run");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("helm uninstall g -n ns"), "{err}");
    assert!(!out.contains("deployment"), "{out}");
}

fn daemon_set(labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": names::SYNCER},
        "spec": {
            "selector": {"matchLabels": {"name": names::SYNCER}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": []}},
        },
    })
}

/// Its path, and `HyperShift`'s.
pub(super) fn of_hypershift() -> (String, Value) {
    let place = format!(
        "/apis/apps/v1/namespaces/{}/daemonsets/{}",
        names::NAMESPACE,
        names::SYNCER
    );
    let labels = json!({
        "name": names::SYNCER, "hypershift.openshift.io/globalps-config-hash": "6f1ed002",
    });
    (place, daemon_set(&labels))
}

#[test]
fn nothing_delivers_beside_hypershifts_own_syncer() {
    let (place, set) = of_hypershift();
    let api = empty().with_object(&place, set);
    for line in [IMAGES.to_owned(), format!("{IMAGES} --force-conflicts")] {
        let failure = refused(api.run(&line));
        assert!(
            failure.message.contains("HyperShift delivers")
                && failure.hint.contains("--delivery Observe"),
            "{failure:?}"
        );
        assert_eq!(api.writes(), [""; 0], "{line}");
    }
    let observes = format!("{IMAGES} --delivery Observe");
    assert_eq!(api.run(&observes), Ok(Exit::Done));
    let expected = json!({
        "kubelet": {"delivery": "Observe"}, "precedence": "Original",
        "original": {"secretRef": {"namespace": "kube-system", "name": "original-pull-secret", "key": names::DATA_KEY}},
    });
    for line in [observes.as_str(), IMAGES] {
        assert_eq!(api.run(line), Ok(Exit::Done), "{line}");
        assert_eq!(spec(&api), expected, "{line}: an upgrade keeps it");
    }
    let failure = refused(empty().run(&observes));
    assert!(
        failure.message.contains("nobody would write"),
        "{failure:?}"
    );
    // As left over from an installation, or anybody's.
    let other = daemon_set(&json!({"name": names::SYNCER}));
    let api = empty().with_object(&place, other);
    assert_eq!(api.run(IMAGES), Ok(Exit::Done));
}
