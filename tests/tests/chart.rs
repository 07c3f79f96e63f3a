//! The Helm chart and the kustomize base: the objects of `install`, and a release from its installation to its removal by the
//! real Helm.

mod common;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::admin::Admin;
use common::{cluster, docker_config};
use globalps_core::api::{
    Attach, DeliveryType, HostedControlPlaneRef, KubeconfigRef, ProviderPaths, SecretRef, SourceRef,
};
use globalps_manifests::{Allowed, HubInstall, Manifests, NamespaceAccess, OperatorAccess};
use globalps_testkit::companions::{helm, helm3};
use globalps_testkit::product::{CONFIG, DEADLINE, NAMESPACE, Product, run};
use globalps_testkit::{Access, Cluster, Node, config_file, kubernetes, until};
use serde_json::{Value, json};
use xtask::release::{CHARTS, chart_name, chart_package};

const POLL: Duration = Duration::from_millis(100);
const REGISTRY: &str = "chart.example.com";
const NAMESPACES: &str = "--set=globalPullSecret.imagePullSecrets.enabled=true";
const RELEASE: &str = "globalps";
const DEFINITIONS: &str = "globalps-crds";
/// Namespace of the releases.
const SYSTEM: &str = "globalps-system";
/// Labels that only the chart sets.
const STANDARD: [&str; 4] = [
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn chart() -> PathBuf {
    workspace().join("charts/globalps")
}

fn definitions() -> PathBuf {
    workspace().join("charts/globalps-crds")
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let key = |object: &Value| {
        [
            &object["kind"],
            &object["metadata"]["namespace"],
            &object["metadata"]["name"],
        ]
        .map(|text| text.as_str().unwrap_or_default().to_owned())
    };
    objects
        .into_iter()
        .filter(|object| !object.is_null())
        .map(|object| (key(&object), object))
        .collect()
}

fn parsed(program: &mut Command) -> Objects {
    let ran = run(program, "").unwrap();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    by_name(serde_saphyr::from_multiple(&ran.stdout).unwrap())
}

/// Helm's output with these values, without its own labels and annotations, the name of the release and the test pod.
fn rendered(helm: &Path, values: &Value) -> Objects {
    rendered_from(&[definitions(), chart()], helm, values)
}

/// `charts`: directories, or archives.
fn rendered_from(charts: &[PathBuf], helm: &Path, values: &Value) -> Objects {
    let mut objects = Objects::new();
    for chart in charts {
        objects.extend(written(chart, helm, values, &[]));
    }
    objects.retain(|[kind, ..], _| kind != "Pod");
    for ([kind, ..], object) in &mut objects {
        let args = object.pointer_mut("/spec/template/spec/containers/0/args");
        if let Some(args) = args.and_then(Value::as_array_mut) {
            args.retain(|arg| *arg != "--helm-release=kube-system/globalps");
        }
        let Some(metadata) = object["metadata"].as_object_mut() else {
            continue;
        };
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            for name in STANDARD {
                assert!(labels.remove(name).is_some(), "{name} of {labels:?}");
            }
            assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm");
            labels["app.kubernetes.io/managed-by"] = json!("globalps");
        }
        if kind == "CustomResourceDefinition" || kind == "GlobalPullSecret" {
            metadata.remove("labels");
        }
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            let ours = ["helm.sh/", "argocd.argoproj.io/"];
            annotations.retain(|name, _| !ours.iter().any(|prefix| name.starts_with(prefix)));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    objects
}

/// Helm's output for a chart.
fn written(chart: &Path, helm: &Path, values: &Value, flags: &[&str]) -> Objects {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.yaml");
    fs::write(&file, values.to_string()).unwrap();
    let mut command = Command::new(helm);
    command
        .args(["template", RELEASE, "-n", NAMESPACE, "-f"])
        .arg(file)
        .arg(chart)
        .args(flags);
    parsed(&mut command)
}

fn image(name: &str) -> String {
    format!("registry.example.com/{name}:1")
}

fn plain() -> Manifests {
    Manifests::of_images(image("globalps-controller"), image("globalps-syncer"))
}

fn values(more: Value) -> Value {
    let tag = json!({"tag": "1"});
    let mut values = json!({"images": {
        "registry": "registry.example.com", "controller": tag, "syncer": tag, "hub": tag,
    }});
    merge(&mut values, more);
    values
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// Spec of the `GlobalPullSecret` among these objects; empty if there is none.
fn spec(objects: &[Value]) -> Value {
    let mut objects = objects.iter();
    let found = objects.find(|object| object["kind"] == "GlobalPullSecret");
    found.map_or_else(|| json!({}), |object| object["spec"].clone())
}

/// The values that produce the configuration of these objects.
fn with_spec(objects: &[Value], more: Value) -> Value {
    let mut values = values(json!({"globalPullSecret": spec(objects)}));
    merge(&mut values, more);
    values
}

fn secret(namespace: &str, name: &str) -> SecretRef {
    SecretRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: ".dockerconfigjson".to_owned(),
    }
}

fn source(name: &str) -> SourceRef {
    SourceRef {
        name: name.to_owned(),
        scope: None,
    }
}

fn in_namespaces(secret: &str, attach: Attach, detaches: bool) -> Option<NamespaceAccess> {
    Some(NamespaceAccess {
        secret_name: secret.to_owned(),
        attach,
        detaches,
    })
}

fn installations() -> Vec<(Manifests, Value)> {
    let catalogs = [("olm", "pull"), ("olm", "other"), ("team", "pull")];
    let catalogs = catalogs.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let provider = ProviderPaths {
        config_path: "/opt/providers/config.yaml".to_owned(),
        bin_dir: "/opt/providers/bin".to_owned(),
    };
    vec![
        (plain(), json!({})),
        (
            Manifests {
                namespace: "pull-secrets".to_owned(),
                sources: vec![source("team-a"), source("team-b")],
                delivery: Some(DeliveryType::CredentialProvider),
                original: Some(secret("team", "original")),
                images_pull_secret: Some("images".to_owned()),
                ..plain()
            },
            json!({"namespace": "pull-secrets", "images": {"pullSecret": "images"}}),
        ),
        (
            Manifests {
                original: Some(secret("openshift-config", "pull-secret")),
                image_pull_secrets: in_namespaces("global-pull-secret", Attach::Admission, false),
                ..plain()
            },
            json!({}),
        ),
        (
            Manifests {
                image_pull_secrets: in_namespaces("pull", Attach::ServiceAccounts, false),
                ..plain()
            },
            json!({}),
        ),
        (
            Manifests {
                is_openshift: true,
                ..plain()
            },
            json!({"openshift": {"scc": true}}),
        ),
        (
            Manifests {
                delivery: Some(DeliveryType::OpenShift),
                ..plain()
            },
            json!({}),
        ),
        (
            Manifests {
                delivery: Some(DeliveryType::Observe),
                is_openshift: true,
                ..plain()
            },
            json!({"openshift": {"scc": true}}),
        ),
        (
            Manifests {
                image_pull_secrets: in_namespaces("pull", Attach::Admission, true),
                operators: Some(OperatorAccess {
                    secrets: BTreeSet::from(catalogs),
                }),
                ..plain()
            },
            json!({"detachServiceAccounts": true, "operators": {"secrets": [
                {"namespace": "olm", "name": "other"}, {"namespace": "olm", "name": "pull"}, {"namespace": "team", "name": "pull"},
            ]}}),
        ),
        (
            Manifests {
                hosted_control_plane: Some(HostedControlPlaneRef {
                    namespace: "clusters".to_owned(),
                    name: "one".to_owned(),
                    kubeconfig_secret_ref: KubeconfigRef {
                        name: "management".to_owned(),
                        key: "kubeconfig".to_owned(),
                    },
                }),
                ..plain()
            },
            json!({}),
        ),
        (
            Manifests {
                allowed: Allowed::with(
                    &["my-kubelet.service".to_owned(), "other.service".to_owned()],
                    &["/data/kubelet/auth.json".to_owned()],
                    &[provider],
                ),
                ..plain()
            },
            json!({"allow": {
                "units": ["my-kubelet.service", "other.service"], "configFiles": ["/data/kubelet/auth.json"],
                "providers": [{"configPath": "/opt/providers/config.yaml", "binDir": "/opt/providers/bin"}],
            }}),
        ),
    ]
}

/// The texts with sorted lists and without duplicates: the chart appends values to the known ones, while the builders sort.
fn in_order(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let mut parts: Vec<&str> = text.split(['[', ']', ',']).collect();
            parts.sort_unstable();
            parts.dedup();
            json!(parts)
        }
        Value::Array(list) => list.iter().map(in_order).collect(),
        Value::Object(map) => {
            let fields = map
                .iter()
                .map(|(name, value)| (name.clone(), in_order(value)));
            Value::Object(fields.collect())
        }
        // So that `1.0` equals `1`.
        Value::Number(number) => json!(number.as_f64()),
        _ => value.clone(),
    }
}

fn assert_same(expected: &Objects, found: &Objects, values: &Value) {
    // The chart of the definitions has those of every program.
    let mut found = found.clone();
    found.retain(|[kind, _, name], _| {
        kind != "CustomResourceDefinition" || objects_have(expected, name)
    });
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(expected), names(&found), "{values}");
    for (name, expected) in expected {
        let differs = difference("", &in_order(expected), &in_order(&found[name]));
        assert_eq!(differs, None, "{name:?} with {values}");
    }
}

/// The first field that differs, with both values.
fn difference(path: &str, one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) if one.keys().eq(other.keys()) => one
            .iter()
            .find_map(|(name, value)| difference(&format!("{path}.{name}"), value, &other[name])),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .find_map(|(one, other)| difference(&format!("{path}[]"), one, other)),
        _ => (one != other).then(|| format!("{path}: {one} and {other}")),
    }
}

#[test]
fn the_chart_has_the_objects_of_install() {
    let helm = helm().unwrap();
    for (install, more) in installations() {
        let objects = install.objects();
        let values = with_spec(&objects, more);
        assert_same(&by_name(objects), &rendered(&helm, &values), &values);
    }
    for (namespaces, trusted, shards) in [
        (vec![], vec![], 1),
        (vec!["one", "two"], vec!["two"], 1),
        (vec!["one"], vec![], 3),
    ] {
        let hub = HubInstall {
            image: image("globalps-hub"),
            namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            trusted_namespaces: trusted.iter().map(|&name: &&str| name.to_owned()).collect(),
            shards,
        };
        let hub_values = json!({
            "enabled": true, "namespaces": namespaces, "trustedNamespaces": trusted, "shards": shards,
        });
        for with_controller in [true, false] {
            let mut objects = by_name(hub.objects());
            if with_controller {
                objects.extend(by_name(plain().objects()));
            }
            let values =
                values(json!({"controller": {"enabled": with_controller}, "hub": hub_values}));
            assert_same(&objects, &rendered(&helm, &values), &values);
        }
    }
}

#[test]
fn the_chart_of_a_release_names_its_images_by_digest() {
    let registry = "registry.example.com/team";
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let digests = [
        ("globalps-controller", digest("1")),
        ("globalps-hub", digest("2")),
        ("globalps-syncer", digest("3")),
    ];
    let image = |at: usize| {
        let (name, digest) = &digests[at];
        format!("{registry}/{name}@{digest}")
    };
    let directory = tempfile::tempdir().unwrap();
    let digests_of = digests.clone().into();
    let archives = CHARTS.map(|chart| {
        let name = chart_name(chart, env!("CARGO_PKG_VERSION"));
        let archive = directory.path().join(name);
        let package = chart_package(&workspace(), chart, registry, &digests_of).unwrap();
        fs::write(&archive, package).unwrap();
        archive
    });
    let install = Manifests::of_images(image(0), image(2)).objects();
    let values = json!({"globalPullSecret": spec(&install), "hub": {"enabled": true}});
    let hub = HubInstall {
        image: image(1),
        namespaces: Vec::new(),
        trusted_namespaces: Vec::new(),
        shards: 1,
    };
    let mut objects = by_name(hub.objects());
    objects.extend(by_name(install));
    let found = rendered_from(&archives, &helm().unwrap(), &values);
    assert_same(&objects, &found, &values);
}

fn objects_have(objects: &Objects, name: &str) -> bool {
    objects.keys().any(|[_, _, other]| other == name)
}

/// Both releases of Helm render the same objects.
#[test]
fn helm_3_and_offline_rendering_are_no_different() {
    let values = values(json!({
        "globalPullSecret": {"imagePullSecrets": {"enabled": true}}, "hub": {"enabled": true},
    }));
    let served = ["--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"];
    for chart in [definitions(), chart()] {
        let of = |helm: PathBuf, flags: &[&str]| written(&chart, &helm, &values, flags);
        let found = of(helm3().unwrap(), &[]);
        assert!(!found.is_empty());
        assert!(found == of(helm().unwrap(), &[]), "{}", chart.display());
        assert!(found == of(helm().unwrap(), &served), "{}", chart.display());
    }
}

#[test]
fn without_a_registry_a_sentence_says_what_to_set() {
    for helm in [helm().unwrap(), helm3().unwrap()] {
        let mut command = Command::new(helm);
        let ran = run(command.args(["template", RELEASE]).arg(chart()), "").unwrap();
        assert_ne!(ran.code, Some(0));
        let says = "for example --set images.registry=registry.example.com/platform";
        assert!(ran.stderr.contains(says), "{ran:?}");
    }
}

#[test]
fn the_syncers_pod_settings_are_values() {
    let syncer = json!({
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "resources": {"requests": {"cpu": "1m"}, "limits": {"memory": "96Mi", "cpu": 1}},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]},
        ]}}},
        "priorityClassName": "system-cluster-critical",
    });
    let values = values(json!({"globalPullSecret": {"syncer": syncer}}));
    for helm in [helm().unwrap(), helm3().unwrap()] {
        let objects = written(&chart(), &helm, &values, &[]);
        let mut objects = objects.into_values();
        let found = objects.find(|object| object["kind"] == "GlobalPullSecret");
        assert_eq!(found.unwrap()["spec"]["syncer"], syncer);
    }
}

#[test]
fn labels_budgets_and_a_service_monitor_are_rendered() {
    let budget = json!({"enabled": true, "maxUnavailable": 2});
    let values = values(json!({
        "commonLabels": {"team": "a", "app.kubernetes.io/name": "other"},
        "controller": {"podDisruptionBudget": budget, "podLabels": {"d": "e"}},
        "hub": {"enabled": true, "shards": 2, "podDisruptionBudget": budget},
        "monitoring": {"serviceMonitor": {"enabled": true, "labels": {"release": "x"}}},
        "globalPullSecret": {"historyLimit": 3},
        "registryAuthorities": "certificates",
    }));
    let objects = written(&chart(), &helm().unwrap(), &values, &[]);
    for (name, object) in
        objects
            .iter()
            .chain(&written(&definitions(), &helm().unwrap(), &values, &[]))
    {
        let labels = &object["metadata"]["labels"];
        for label in STANDARD {
            assert!(labels[label].is_string(), "{name:?}: {label}");
        }
        assert_eq!(labels["team"], "a", "{name:?}");
        assert_eq!(labels["app.kubernetes.io/name"], "globalps", "{name:?}");
    }
    let get = |kind: &str, name: &str| &objects[&[kind, SYSTEM, name].map(str::to_owned)];
    for name in ["globalps-controller", "globalps-hub", "globalps-hub-1"] {
        let pods = &get("Deployment", name)["spec"]["template"]["metadata"]["labels"];
        assert_eq!(pods["team"], "a");
        let budget = &get("PodDisruptionBudget", name)["spec"];
        assert_eq!(budget["maxUnavailable"], 2);
        let selected = &budget["selector"]["matchLabels"]["app.kubernetes.io/name"];
        assert_eq!(*selected, pods["app.kubernetes.io/name"]);
    }
    let deployment = get("Deployment", "globalps-controller");
    assert_eq!(
        deployment["spec"]["template"]["metadata"]["labels"]["d"],
        "e"
    );
    let service = get("Service", "globalps-controller");
    let monitor = get("ServiceMonitor", "globalps-controller");
    let selected = monitor["spec"]["selector"]["matchLabels"]
        .as_object()
        .unwrap();
    let labels = service["metadata"]["labels"].as_object().unwrap();
    assert!(
        selected
            .iter()
            .all(|(name, value)| labels.get(name) == Some(value))
    );
    assert_eq!(monitor["metadata"]["labels"]["release"], "x");
    let port = deployment.pointer("/spec/template/spec/containers/0/ports/0/name");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], *port.unwrap());
}

#[test]
fn options_of_the_pods_digests_and_monitoring_are_rendered() {
    let digest = format!("sha256:{}", "1".repeat(64));
    let values = values(json!({
        "images": {"controller": {"digest": digest}, "syncer": {"digest": digest}},
        "controller": {
            "replicas": 3, "resources": {"limits": {"memory": "1Gi"}}, "priorityClassName": "high",
            "tolerations": [{"key": "a", "operator": "Exists"}], "nodeSelector": {"b": "c"},
            "affinity": {"nodeAffinity": {}}, "podLabels": {"d": "e"}, "podAnnotations": {"f": "g"},
        },
        "networkPolicies": {"enabled": false},
        "registryAuthorities": "certificates",
        "monitoring": {
            "podMonitor": {"enabled": true, "labels": {"release": "x"}}, "rules": {"enabled": true},
            "dashboard": {"enabled": true},
        },
    }));
    let objects = rendered(&helm().unwrap(), &values);
    let get = |kind: &str, name: &str| {
        objects[&[
            kind.to_owned(),
            "globalps-system".to_owned(),
            name.to_owned(),
        ]]
            .clone()
    };
    let deployment = get("Deployment", "globalps-controller");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(
        container["image"],
        format!("registry.example.com/globalps-controller@{digest}")
    );
    let syncer = format!("--syncer-image=registry.example.com/globalps-syncer@{digest}");
    assert_eq!(container["args"][2], syncer);
    assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
    assert_eq!(pod["spec"]["priorityClassName"], "high");
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "a");
    assert_eq!(pod["spec"]["nodeSelector"]["b"], "c");
    assert!(pod["spec"]["affinity"]["nodeAffinity"].is_object());
    assert_eq!(pod["metadata"]["labels"]["d"], "e");
    assert_eq!(pod["metadata"]["annotations"]["f"], "g");
    assert!(objects.keys().all(|[kind, _, _]| kind != "NetworkPolicy"));
    let authorities = get("ConfigMap", "globalps-registry-authorities");
    assert_eq!(authorities["data"]["ca.crt"], "certificates");
    assert_eq!(
        get("PodMonitor", "globalps-controller")["metadata"]["labels"]["release"],
        "x"
    );
    let rules = get("PrometheusRule", "globalps");
    let alerts = fs::read_to_string(workspace().join("manifests/monitoring/alerts.yaml")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&alerts).unwrap();
    assert_eq!(rules["spec"], alerts);
    let dashboard = get("ConfigMap", "globalps-dashboard");
    let dashboard: Value =
        serde_json::from_str(dashboard["data"]["globalps.json"].as_str().unwrap()).unwrap();
    assert_eq!(dashboard["uid"], "globalps");
}

#[test]
fn the_kustomize_base_is_installs_and_an_overlay_sets_images() {
    let kubectl = kubernetes::bin_dir().join("kubectl");
    let built = |directory: &str| {
        parsed(
            Command::new(&kubectl)
                .arg("kustomize")
                .arg(workspace().join(directory)),
        )
    };
    let version = env!("CARGO_PKG_VERSION");
    let objects = |controller: &str, syncer: &str| {
        by_name(Manifests::of_images(controller, syncer).objects())
    };
    let base = objects(
        &format!("globalps-controller:{version}"),
        &format!("globalps-syncer:{version}"),
    );
    assert_same(&base, &built("manifests"), &Value::Null);

    let text = fs::read_to_string(workspace().join("kustomize/images.yaml")).unwrap();
    let images: Value = serde_saphyr::from_str(&text).unwrap();
    let image = |name: &str| images["data"][name].as_str().unwrap().to_owned();
    let mut overlay = built("kustomize");
    let monitor = ["PodMonitor", "globalps-system", "globalps-controller"].map(str::to_owned);
    assert!(overlay.remove(&monitor).is_some());
    assert_same(
        &objects(&image("controller"), &image("syncer")),
        &overlay,
        &Value::Null,
    );
}

struct World<'a> {
    cluster: &'a Cluster,
    product: Product<'a>,
    node: Node,
    helm: PathBuf,
    /// Values with the images.
    values: PathBuf,
}

#[test]
fn a_release_is_installed_upgraded_rolled_back_and_removed() {
    let cluster = cluster("chart", 1);
    let directory = tempfile::tempdir().unwrap();
    let push = |name: &str| {
        let archive = kubernetes::target_dir().join(format!("images/{name}.tar"));
        let registry = cluster.registry();
        let pushed = registry
            .push(&archive, Access::Open, &format!("{name}:chart"))
            .unwrap();
        let (repository, tag) = pushed.rsplit_once(':').unwrap();
        json!({"repository": repository, "tag": tag})
    };
    let images = json!({"images": {"controller": push("globalps-controller"), "syncer": push("globalps-syncer")}});
    let values = directory.path().join("values.yaml");
    fs::write(&values, images.to_string()).unwrap();
    let world = World {
        cluster: &cluster,
        product: Product::attach(&cluster),
        node: cluster.nodes().unwrap().remove(0),
        helm: helm().unwrap(),
        values,
    };
    let before = config_file::read(&world.node).unwrap();

    world.helm_of(
        DEFINITIONS,
        &["install", "--create-namespace"],
        &definitions(),
    );
    world.helm(&["install", "--wait"], &chart());
    world.in_force(0);
    // The controller owns the configuration until the values contain one.
    let set = "--set=globalPullSecret.historyLimit=3";
    world.helm(&["upgrade", "--wait", set], &chart());
    assert_eq!(
        world.product.get(CONFIG).unwrap()["spec"]["historyLimit"],
        3
    );
    world.in_force(1);
    let ran = world.run(&["test", RELEASE]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    world.an_upgrade_changes_definitions_and_a_rollback_leaves_them();
    world.values_are_validated();
    world.the_syncer_runs_where_and_how_the_values_say();
    world.pull_secrets_in_namespaces_have_their_permissions();
    world.removed_too_early_it_can_be_installed_again();

    world.product.delete().unwrap();
    world.product.wait_clean().unwrap();
    assert_eq!(config_file::read(&world.node).unwrap(), before);
    world.uninstall();
    let kinds = "namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                 mutatingadmissionpolicies";
    let left = cluster.types(&format!(
        "get {kinds} -o name -l app.kubernetes.io/name=globalps"
    ));
    let left: Vec<&str> = left
        .lines()
        .filter(|name| *name != "namespace/globalps-system")
        .collect();
    assert!(left.is_empty(), "{left:?}");

    world.what_the_plugin_installed_is_taken_over(images);
}

#[test]
fn the_commands_of_its_page_install_upgrade_and_remove_it() {
    const PAGE: &str = "../charts/globalps/README.md";
    let cluster = cluster("chart-page", 1);
    let product = Product::attach(&cluster);
    let node = cluster.nodes().unwrap().remove(0);
    let before = config_file::read(&node).unwrap();
    let mut admin = Admin::new(&cluster);
    admin.has("helm", &helm3().unwrap());
    symlink(workspace().join("charts"), admin.path("charts")).unwrap();
    let registry = cluster.registry();
    let version = env!("CARGO_PKG_VERSION");
    for name in ["globalps-controller", "globalps-syncer"] {
        let archive = kubernetes::target_dir().join(format!("images/{name}.tar"));
        let name = format!("{name}:{version}");
        registry.push(&archive, Access::Open, &name).unwrap();
    }
    admin.names = vec![("REGISTRY", registry.address(Access::Open))];

    admin.runs(PAGE, "chart-install");
    admin.runs(PAGE, "chart-credentials");
    product.wait_synced().unwrap();
    let tls = registry.address(Access::Tls);
    assert!(config_file::auth(&node, &tls).unwrap().is_some());
    admin.runs(PAGE, "chart-upgrade");
    product.wait_synced().unwrap();
    admin.runs(PAGE, "chart-uninstall");
    assert_eq!(config_file::read(&node).unwrap(), before);
    let left = ["get", "clusterroles,clusterrolebindings,crds", "-o", "name"];
    let left = cluster.kubectl(&left).unwrap();
    assert!(!left.contains("globalps"), "{left}");
}

impl World<'_> {
    fn an_upgrade_changes_definitions_and_a_rollback_leaves_them(&self) {
        let starts = self.starts();
        let next = tempfile::tempdir().unwrap();
        let copied = Command::new("cp")
            .arg("-r")
            .arg(definitions())
            .arg(next.path())
            .status()
            .unwrap();
        assert!(copied.success());
        let next = next.path().join(DEFINITIONS);
        let crds = next.join("templates/crds.yaml");
        let keep = "    helm.sh/resource-policy:";
        let text = fs::read_to_string(&crds).unwrap();
        fs::write(
            &crds,
            text.replace(keep, &format!("    of-a-test: next\n{keep}")),
        )
        .unwrap();

        self.helm_of(DEFINITIONS, &["upgrade"], &next);
        assert_eq!(self.definition()["of-a-test"], "next");
        self.helm(
            &["upgrade", "--wait", "--set=controller.replicas=1"],
            &chart(),
        );
        assert_eq!(self.replicas(), 1);
        self.in_force(2);
        assert_eq!(self.starts() - starts, 1, "only for the new content");
        assert_eq!(self.product.get(CONFIG).unwrap()["spec"]["historyLimit"], 3);

        let ran = self.run(&["rollback", RELEASE, "2", "--wait"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(self.definition()["of-a-test"], "next");
        assert_eq!(self.replicas(), 2);
        let ran = self.run(&["rollback", DEFINITIONS]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            self.definition()["of-a-test"].is_null(),
            "{}",
            self.definition()
        );
        self.product.wait_synced().unwrap();
        assert_eq!(self.starts() - starts, 1);
    }

    fn values_are_validated(&self) {
        #[rustfmt::skip]
        let cases = [
            ("globalPullSecret.rollout.maxUnavailble=1", "maxUnavailble"),
            ("controller.replicas=0", "replicas"),
            ("images.registry=https://registry.example.com", "registry"),
            ("namespace=Kube_System", "namespace"),
            ("globalPullSecret.rollout.maxUnavailable=abc", "maxUnavailable"),
            ("globalPullSecret.rollout.maxUnavailable=150%", "maxUnavailable"),
            ("globalPullSecret.rollout.maxUnavailable=0", "maxUnavailable"),
            ("globalPullSecret.rollout.maxFailures=0%", "maxFailures"),
            ("images.syncer.repository=registry:5000/globalps-syncer:0.1.0", "repository"),
        ];
        for (wrong, named) in cases {
            let chart = chart();
            let set = format!("--set={wrong}");
            let ran = self.run(&[
                "upgrade",
                RELEASE,
                &chart.to_string_lossy(),
                "--reset-then-reuse-values",
                &set,
            ]);
            assert_ne!(ran.code, Some(0), "{wrong}");
            let says = |text: &str| ran.stderr.contains(text);
            assert!(
                says(named) && says("values don't meet the specifications"),
                "{wrong}: {}",
                ran.stderr
            );
        }
    }

    fn the_syncer_runs_where_and_how_the_values_say(&self) {
        let starts = self.starts();
        let toleration = json!({"key": "of-a-test", "operator": "Exists", "effect": "NoExecute"});
        let resources = json!({"requests": {"cpu": "2m"}, "limits": {"memory": "96Mi"}});
        let name = self.node.name();
        let term =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        let mut syncer = json!({
            "tolerations": [toleration], "resources": resources, "priorityClassName": "system-cluster-critical",
        });
        syncer["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
            json!([term]);
        let set = format!("--set-json=globalPullSecret.syncer={syncer}");
        self.helm(&["upgrade", &set], &chart());
        until("a syncer of the values", DEADLINE, POLL, || {
            let set = self.product.get("daemonset/global-pull-secret-syncer")?;
            let (pod, status) = (&set["spec"]["template"]["spec"], &set["status"]);
            let is_of_values = pod["tolerations"] == json!([toleration])
                && pod["containers"][0]["resources"] == resources
                && pod["priorityClassName"] == "system-cluster-critical"
                && pod["affinity"].to_string().contains("matchFields");
            let is_new = status["observedGeneration"] == set["metadata"]["generation"]
                && status["updatedNumberScheduled"] == 1
                && status["numberReady"] == 1;
            Ok((is_of_values && is_new).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:#}", self.product.status().unwrap()));
        self.in_force(6);
        assert_eq!(self.starts() - starts, 1, "only for the new content");
        self.helm(&["upgrade", "--set=globalPullSecret.syncer=null"], &chart());
    }

    fn pull_secrets_in_namespaces_have_their_permissions(&self) {
        let starts = self.starts();
        self.helm(&["upgrade", "--wait", NAMESPACES], &chart());
        self.wait_in_default(true);
        let off = NAMESPACES.replace("true", "false");
        self.helm(&["upgrade", &off], &chart());
        self.wait_in_default(false);
        // After that nothing needs the permissions, and the block can be removed.
        let removed = "--set=globalPullSecret.imagePullSecrets=null";
        self.helm(&["upgrade", "--wait", removed], &chart());
        let role = self.product.get("clusterrole/globalps-image-pull-secrets");
        assert!(role.unwrap().is_null());
        assert!(self.product.get(CONFIG).unwrap()["spec"]["imagePullSecrets"]["enabled"] != true);
        self.helm(&["upgrade", "--wait", NAMESPACES], &chart());
        self.wait_in_default(true);
        self.product.wait_synced().unwrap();
        assert_eq!(self.starts(), starts);
    }

    /// Waits until the pull secret is, or is not, in the namespace `default`.
    fn wait_in_default(&self, wanted: bool) {
        until("the pull secret in a namespace", DEADLINE, POLL, || {
            Ok((self
                .cluster
                .kubectl_line(
                    "get secret global-pull-secret -n default --ignore-not-found -o name",
                )?
                .is_empty()
                != wanted)
                .then_some(()))
        })
        .unwrap_or_else(|error| {
            panic!("{wanted}: {error:#}: {:#}", self.product.status().unwrap())
        });
    }

    /// Nothing is lost: the node keeps its credentials, and the next installation continues from there.
    fn removed_too_early_it_can_be_installed_again(&self) {
        let starts = self.starts();
        let file = config_file::read(&self.node).unwrap();
        self.uninstall();
        std::thread::sleep(Duration::from_secs(5));
        assert_eq!(config_file::read(&self.node).unwrap(), file);
        let node = format!("nodepullsecret/{}", self.node.name());
        assert!(!self.product.get(&node).unwrap().is_null());
        self.helm(&["install", "--wait", NAMESPACES], &chart());
        self.product.wait_synced().unwrap();
        assert_eq!(self.starts(), starts);
        self.in_force(3);
    }

    fn what_the_plugin_installed_is_taken_over(&self, images: Value) {
        let image = |name: &str| {
            let image = &images["images"][name];
            let text = |field: &str| image[field].as_str().unwrap();
            format!("{}:{}", text("repository"), text("tag"))
        };
        let (controller, syncer) = (image("controller"), image("syncer"));
        let args = [
            "install",
            "--apply",
            "--controller-image",
            &controller,
            "--syncer-image",
            &syncer,
        ];
        let ran = self.product.plugin(&args, "").unwrap();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        self.in_force(4);
        let starts = self.starts();
        self.helm(
            &["install", "--wait", "--take-ownership", "--force-conflicts"],
            &chart(),
        );
        self.product.wait_synced().unwrap();
        assert_eq!(self.starts(), starts);
        self.in_force(5);
    }

    /// Runs a Helm command on the chart, with the values of the images or, for an upgrade, the previous values.
    fn helm(&self, args: &[&str], chart: &Path) {
        self.helm_of(RELEASE, args, chart);
    }

    fn helm_of(&self, release: &str, args: &[&str], chart: &Path) {
        let (command, flags) = args.split_first().unwrap();
        let (chart, values) = (chart.to_string_lossy(), self.values.to_string_lossy());
        let values: &[&str] = match *command {
            "install" => &["-f", &values],
            _ => &["--reset-then-reuse-values"],
        };
        let ran = self.run(&[&[*command, release, &chart][..], flags, values].concat());
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    }

    fn uninstall(&self) {
        let ran = self.run(&["uninstall", RELEASE, "--wait"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }

    fn run(&self, args: &[&str]) -> globalps_testkit::product::Ran {
        let mut command = Command::new(&self.helm);
        command
            .args(args)
            .args(["-n", SYSTEM])
            .env("KUBECONFIG", self.cluster.kubeconfig());
        run(&mut command, "").unwrap()
    }

    /// Changes the content, and returns when the node has it.
    fn in_force(&self, number: u8) {
        let pair = format!("robot:chart-password-{number}");
        self.product
            .apply(&docker_config(&[(REGISTRY, &pair)]))
            .unwrap();
        let wanted = common::base64(&pair);
        until("the content on the node", DEADLINE, POLL, || {
            let found = config_file::auth(&self.node, REGISTRY)?;
            Ok((found.as_deref() == Some(wanted.as_str())).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:#}", self.product.status().unwrap()));
        self.product.wait_synced().unwrap();
    }

    fn definition(&self) -> Value {
        let crd = self
            .product
            .get("crd/globalpullsecrets.globalps.io")
            .unwrap();
        crd["metadata"]["annotations"].clone()
    }

    fn replicas(&self) -> u64 {
        self.cluster.types("get deployment/globalps-controller -n globalps-system -o jsonpath={.spec.replicas}").parse().unwrap()
    }

    fn starts(&self) -> usize {
        self.product.kubelet_starts(&self.node).unwrap()
    }
}
