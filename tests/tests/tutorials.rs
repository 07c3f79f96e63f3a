//! Runs the commands of `docs/tutorials.md` as printed, on real clusters. Only example names are replaced.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use common::admin::{Admin, login};
use common::cluster;
use common::objects::namespace;
use globalps_testkit::product::{NAMESPACE, Product, pull_secret};
use globalps_testkit::{Access, Cluster, config_file, kubernetes, wait};
use serde_json::{Value, json};

const PAGE: &str = "tutorials.md";
const POLL: Duration = Duration::from_millis(100);

fn apply(cluster: &Cluster, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    cluster.kubectl_with(&["apply", "-f", "-"], &list).unwrap();
}

/// A Deployment with the private image.
fn deployment(cluster: &Cluster, namespace: &str) -> Value {
    let image = format!("{}/team/app:1", cluster.registry().address(Access::Tls));
    let labels = json!({"app": "app"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app", "namespace": namespace},
    "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
        "imagePullSecrets": [{"name": "registry"}], "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "app", "image": image, "imagePullPolicy": "Always"}],
    }}}})
}

fn has_rolled_out(cluster: &Cluster, namespace: &str) {
    cluster.types(&format!(
        "rollout status deployment/app -n {namespace} --timeout=2m"
    ));
}

#[test]
fn a_cluster_without_access_to_the_internet() {
    let cluster = cluster("tutorial-mirror", 1);
    let mut admin = Admin::new(&cluster);
    let mirror = cluster.registry().address(Access::Tls);
    admin.names = vec![
        ("mirror.example.com", mirror.clone()),
        ("-u robot", format!("-u {}", cluster.registry().user())),
    ];
    for program in ["controller", "syncer"] {
        let name = format!("globalps-{program}.tar");
        let archive = kubernetes::target_dir().join("images").join(&name);
        symlink(std::path::absolute(archive).unwrap(), admin.path(&name)).unwrap();
    }
    admin.follows(PAGE, "A cluster without access to the internet", |_| ());
    let node = &cluster.nodes().unwrap()[0];
    assert!(config_file::auth(node, &mirror).unwrap().is_some());
    let product = Product::attach(&cluster);
    let image = format!("{mirror}/team/app:1");
    product.start_pod("pulled", &image, node.name()).unwrap();
    product.wait_pod("pulled", false).unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
}

#[test]
fn from_image_pull_secrets() {
    let cluster = cluster("tutorial-secrets", 1);
    let product = Product::install(&cluster).unwrap();
    let mut admin = Admin::new(&cluster);
    let registry = cluster.registry().address(Access::Tls);
    admin.names = vec![("registry.example.com", registry)];
    apply(
        &cluster,
        &[
            namespace("team-a"),
            pull_secret("team-a", "registry", &login(&cluster)),
            deployment(&cluster, "team-a"),
        ],
    );
    has_rolled_out(&cluster, "team-a");
    admin.follows(PAGE, "From imagePullSecrets to globalps", |line| {
        if line.contains("explain") {
            let spec = json!({"spec": {"template": {"spec": {"imagePullSecrets": null}}}});
            merge_in(&cluster, "team-a", "deployment/app", &spec);
            has_rolled_out(&cluster, "team-a");
        }
    });
    cluster.types("delete secret registry -n team-a");
    cluster.types("rollout restart deployment/app -n team-a");
    has_rolled_out(&cluster, "team-a");
    product.delete().unwrap();
    product.wait_clean().unwrap();
}

fn merge_in(cluster: &Cluster, namespace: &str, what: &str, patch: &Value) {
    cluster.patch(namespace, what, patch).unwrap();
}

#[test]
fn from_hypershifts_global_pull_secret() {
    let hosted = cluster("tutorial-hosted", 0);
    let other = cluster("tutorial-other", 1);
    let product = Product::install(&other).unwrap();
    apply(
        &hosted,
        &[pull_secret(
            NAMESPACE,
            "additional-pull-secret",
            &login(&other),
        )],
    );
    let admin = Admin::new(&other);
    let mut all =
        json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []});
    for (name, cluster) in [("hosted", &hosted), ("other", &other)] {
        let file = fs::read_to_string(cluster.kubeconfig()).unwrap();
        let mut file: Value = serde_saphyr::from_str(&file).unwrap();
        let lists = [("clusters", "cluster"), ("users", "user")];
        for (list, part) in lists {
            let one = json!({"name": name, part: file[list][0][part].take()});
            all[list].as_array_mut().unwrap().push(one);
        }
        let context = json!({"name": name, "context": {"cluster": name, "user": name}});
        all["contexts"].as_array_mut().unwrap().push(context);
    }
    admin.write("kubeconfig", &all.to_string());
    admin.follows(PAGE, "From HyperShift's global pull secret", |_| ());
    product.wait_synced().unwrap();
    let node = &other.nodes().unwrap()[0];
    let registry = other.registry().address(Access::Tls);
    assert!(config_file::auth(node, &registry).unwrap().is_some());
    product.delete().unwrap();
    product.wait_clean().unwrap();
}

#[test]
fn from_imagepullsecret_patcher() {
    let cluster = cluster("tutorial-patcher", 1);
    let product = Product::install(&cluster).unwrap();
    let tool = "imagepullsecret-patcher";
    let by_tool = json!({"app.kubernetes.io/managed-by": tool});
    let labels = json!({"name": tool});
    let container =
        json!({"name": tool, "image": "quay.io/titansoft/imagepullsecret-patcher:v0.14"});
    let mut copied = pull_secret("team-a", "image-pull-secret", &login(&cluster));
    copied["metadata"]["annotations"] = by_tool;
    apply(
        &cluster,
        &[
            namespace("team-a"),
            namespace(tool),
            pull_secret(NAMESPACE, "image-pull-secret-src", &login(&cluster)),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": tool, "namespace": tool},
                "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                    "spec": {"containers": [container]}}}}),
            copied,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "team-a"},
                "imagePullSecrets": [{"name": "image-pull-secret"}]}),
        ],
    );
    let admin = Admin::new(&cluster);
    admin.follows(PAGE, "From imagepullsecret-patcher to globalps", |line| {
        if line.contains("install") {
            wait("the pull secret in team-a", POLL, || {
                let get = ["get", "secret", "global-pull-secret", "-n", "team-a"];
                Ok(cluster.kubectl(&get).ok())
            });
            product.wait_synced().unwrap();
        }
    });
    assert_eq!(
        cluster.types("get secret image-pull-secret -n team-a --ignore-not-found"),
        ""
    );
    let mut pod = deployment(&cluster, "team-a");
    pod["spec"]["template"]["spec"]["imagePullSecrets"].take();
    apply(&cluster, &[pod]);
    has_rolled_out(&cluster, "team-a");
}
