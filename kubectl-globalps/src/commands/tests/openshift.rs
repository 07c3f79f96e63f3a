//! Standalone `OpenShift`, where the Machine Config Operator brings the cluster's own pull secret to the nodes.

use super::install::{IMAGES, empty, spec};
use super::*;
use crate::testing::fake_api::Fault;

const PULL_SECRET: &str = "/api/v1/namespaces/openshift-config/secrets/pull-secret";
const OPENSHIFT: [&str; 2] = ["security.openshift.io", "machineconfiguration.openshift.io"];

/// Serves these API groups.
fn serving(api: FakeApi, groups: &'static [&'static str]) -> FakeApi {
    api.with_rule(move |request, _| {
        let group = |name: &&str| json!({"name": name, "versions": []});
        let machines = "/apis/machineconfiguration.openshift.io/v1";
        match request.path.as_str() {
            "/apis" => {
                let groups: Vec<Value> = groups.iter().map(group).collect();
                Some((200, json!({"kind": "APIGroupList", "groups": groups})))
            }
            path if path == machines => {
                let pools = json!({
                    "name": "machineconfigpools", "singularName": "machineconfigpool",
                    "namespaced": false, "kind": "MachineConfigPool", "verbs": ["list"],
                });
                let version = "machineconfiguration.openshift.io/v1";
                Some((200, json!({"groupVersion": version, "resources": [pools]})))
            }
            _ => None,
        }
    })
}

/// Without anything of globalps.
fn standalone() -> FakeApi {
    serving(empty(), &OPENSHIFT).with_object(PULL_SECRET, secret(&[("quay.io", AUTH)]))
}

/// The `RoleBindings` to constraints, and what is in the platform's namespace.
fn granted(api: &FakeApi) -> Vec<String> {
    let state = api.state();
    let paths = state.objects.keys();
    let found = paths.filter(|path| {
        path.ends_with("-scc") || path.contains("rbac.authorization.k8s.io/v1/namespaces/openshift")
    });
    let short = found.filter_map(|path| path.split("/namespaces/").nth(1));
    short.map(str::to_owned).collect()
}

const CONTROLLER: &str = "globalps-system/rolebindings/globalps-controller-scc";
const OBSERVER: &str = "kube-system/rolebindings/globalps-observer-scc";
const WRITES: [&str; 2] = [
    "openshift-config/rolebindings/globalps-controller-pull-secret",
    "openshift-config/roles/globalps-controller-pull-secret",
];
const SYNCERS: [&str; 2] = [
    "kube-system/rolebindings/global-pull-secret-restorer-scc",
    "kube-system/rolebindings/global-pull-secret-syncer-scc",
];

#[test]
fn a_standalone_openshift_gets_the_delivery_that_reaches_its_nodes() {
    let api = standalone();
    let (ran, [out, err]) = api.printed("install --controller-image c --syncer-image s --dry-run");
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("this is a standalone OpenShift"), "{err}");
    assert!(out.contains("openshift-config"), "{out}");
    let (ran, [_, err]) = api.printed(IMAGES);
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("this is a standalone OpenShift"), "{err}");
    assert!(err.contains("delivery by OpenShift: credentials"), "{err}");
    assert!(!err.contains("warning"), "{err}");
    let expected = json!({"kubelet": {"delivery": "OpenShift"}});
    assert_eq!(spec(&api), expected);
    let all = [&[CONTROLLER, OBSERVER][..], &WRITES].concat();
    assert_eq!(granted(&api), all);
    for line in [IMAGES, "install --yes", "install --yes --source team-a"] {
        let (ran, [_, err]) = api.printed(line);
        assert_eq!(ran, Ok(Exit::Done), "{line}: {err}");
        assert!(!err.contains("standalone"), "{line}: it is known: {err}");
        let kept = spec(&api);
        assert_eq!(kept["kubelet"], expected["kubelet"], "{line}");
        assert_eq!(kept["original"], Value::Null, "{line}");
        assert_eq!(granted(&api), all, "{line}");
    }
}

/// Where nothing says that the Secret is not there.
#[test]
fn a_pull_secret_that_may_not_be_read_is_one() {
    let api = standalone().with_fault(&format!("get {PULL_SECRET}"), Fault::Code(403), 9);
    assert_eq!(api.run(IMAGES), Ok(Exit::Done));
    assert_eq!(spec(&api)["kubelet"]["delivery"], "OpenShift");
}

#[test]
fn a_requested_delivery_and_one_in_force_stay_with_a_warning() {
    let original = "--original ns/orig";
    let stays = "they stay as they are (`ForeignOwner`)";
    for (flags, expected) in [
        ("--delivery ConfigFile", json!({"delivery": "ConfigFile"})),
        (
            "--delivery CredentialProvider",
            json!({"delivery": "CredentialProvider"}),
        ),
        (original, Value::Null),
    ] {
        let api = standalone();
        for line in [format!("{IMAGES} {flags}"), IMAGES.to_owned()] {
            let (ran, [_, err]) = api.printed(&line);
            assert_eq!(ran, Ok(Exit::Done), "{line}: {err}");
            assert!(err.contains(stays), "{line}: {err}");
            assert_eq!(spec(&api)["kubelet"], expected, "{line}");
            let all = [&[CONTROLLER][..], &SYNCERS].concat();
            let mut found = granted(&api);
            found.sort_by_key(|it| !it.starts_with("globalps-system"));
            assert_eq!(found, all, "{line}");
        }
    }
    let api = standalone();
    let (ran, [_, err]) = api.printed(&format!("{IMAGES} --delivery None"));
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(!err.contains(stays), "{err}");
}

#[test]
fn elsewhere_nothing_is_chosen() {
    // Not OpenShift at all.
    let api = empty();
    assert_eq!(api.run(IMAGES), Ok(Exit::Done));
    assert_eq!(granted(&api), [""; 0]);
    let config = path("globalpullsecrets", names::GLOBAL_SECRET);
    assert_eq!(api.object(&config), None);
    // A hosted cluster: pods need constraints.
    let api = serving(empty(), &OPENSHIFT[..1]);
    let api = api.with_object(PULL_SECRET, secret(&[("quay.io", AUTH)]));
    assert_eq!(api.run(IMAGES), Ok(Exit::Done));
    assert_eq!(granted(&api).len(), 3);
    assert_eq!(api.object(&config), None);
    // Asked for, where nobody brings it to the nodes.
    let (ran, [_, err]) = api.printed(&format!("{IMAGES} --delivery OpenShift"));
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("no Machine Config Operator"), "{err}");
    let without = standalone().without(PULL_SECRET);
    let (ran, [_, err]) = without.printed(&format!("{IMAGES} --delivery OpenShift"));
    assert_eq!(ran, Ok(Exit::Done), "{err}");
    assert!(err.contains("there is no Secret"), "{err}");
}

#[test]
fn uninstall_leaves_nothing_in_the_platforms_namespace() {
    for delivery in ["OpenShift", "ConfigFile"] {
        let api = standalone();
        assert_eq!(
            api.run(&format!("{IMAGES} --delivery {delivery}")),
            Ok(Exit::Done)
        );
        assert!(!granted(&api).is_empty());
        let before = api.object(PULL_SECRET);
        let (ran, [_, err]) = api.printed("uninstall --yes --timeout 20s");
        assert_eq!(ran, Ok(Exit::Done), "{err}");
        assert_eq!(granted(&api), [""; 0], "{delivery}");
        assert_eq!(api.object(PULL_SECRET), before);
    }
}
