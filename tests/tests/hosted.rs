//! The original pull secret of a `HostedControlPlane`: rotated on the management cluster, in force on the hosted cluster's nodes.
//! Two control planes with an API server each; the hosted cluster's controller connects to the other with a kubeconfig.

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{base64, cluster, docker_config, roll_out, write};
use globalps_testkit::product::{DEADLINE, NAMESPACE, Product, pull_secret};
use globalps_testkit::{Cluster, Node, config_file, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(20);
const PASSWORDS: [&str; 3] = ["0rig-one", "0rig-two", "0rig-three"];
const REGISTRY: &str = "original.example.com";

#[test]
fn a_hosted_control_planes_secret_is_in_force_on_its_nodes() {
    let management = cluster("hosted-management", 0);
    let hosted = cluster("hosted", 2);
    let product = Product::install(&hosted).unwrap();
    let nodes = hosted.nodes().unwrap();
    let token = prepare(&management);

    roll_out(&product, &[("additional.example.com", "u:p")]);
    let flags = [
        "--hosted-control-plane",
        "clusters/prod",
        "--kubeconfig-secret",
        "management",
    ];
    let ran = product
        .plugin(&[&["install", "--apply"][..], &flags].concat(), "")
        .unwrap();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);

    says(&product, "there is no Secret `globalps-system/management`");
    give(
        &hosted,
        &kubeconfig(&management, &json!({"exec": {"command": "aws"}})),
    );
    says(&product, "runs a program to authenticate");
    let unknown = kubeconfig(&management, &json!({"token": format!("{token}x")}));
    give(&hosted, &unknown);
    says(
        &product,
        "could not read HostedControlPlane `clusters/prod`",
    );

    let good = kubeconfig(&management, &json!({"token": token}));
    give(&hosted, &good);
    wait_auth(&nodes, PASSWORDS[0]);
    product.wait_condition("OriginalValid", "True").unwrap();

    // The syncer restarts a kubelet again only after 10 seconds; this wait must not count.
    std::thread::sleep(Duration::from_secs(11));
    original(&management, "pull-secret", PASSWORDS[1]);
    let begun = Instant::now();
    wait_auth(&nodes, PASSWORDS[1]);
    println!(
        "the original, rotated on the management cluster, is in effect on {} nodes after {:.2} s",
        nodes.len(),
        begun.elapsed().as_secs_f32()
    );

    the_original_stays_while_the_management_cluster_is_away(
        &management,
        &hosted,
        &product,
        &nodes,
        &good,
    );

    // Another Secret, referenced by name.
    original(&management, "next", PASSWORDS[0]);
    let patch = r#"{"spec":{"pullSecret":{"name":"next"}}}"#;
    let patched = management.patch("clusters", "hostedcontrolplane/prod", patch);
    patched.unwrap();
    wait_auth(&nodes, PASSWORDS[0]);

    let mut hidden: Vec<String> = PASSWORDS.map(str::to_owned).into();
    hidden.extend(PASSWORDS.map(|password| base64(&format!("o:{password}"))));
    hidden.push(token);
    let hidden: Vec<&str> = hidden.iter().map(String::as_str).collect();
    product.assert_never_shown(&hidden).unwrap();
}

fn the_original_stays_while_the_management_cluster_is_away(
    management: &Cluster,
    hosted: &Cluster,
    product: &Product,
    nodes: &[Node],
    kubeconfig: &Value,
) {
    management.signal("kube-apiserver", "STOP").unwrap();
    // A different spelling forces a new connection, because a silent connection is only considered dead after minutes.
    let mut again = kubeconfig.clone();
    again["preferences"] = json!({});
    give(hosted, &again);
    says(product, "from the management cluster");
    for node in nodes {
        assert_eq!(
            auth(node).as_deref(),
            Some(&*base64(&format!("o:{}", PASSWORDS[1])))
        );
    }
    // Other changes are still rolled out.
    write(product, &[("additional.example.com", "u:p2")]);
    wait("the additional Secret to be rolled out", POLL, || {
        let all = nodes.iter().all(|node| {
            config_file::auth(node, "additional.example.com").unwrap() == Some(base64("u:p2"))
        });
        Ok(all.then_some(()))
    });
    management.signal("kube-apiserver", "CONT").unwrap();
    let begun = Instant::now();
    product.wait_condition("OriginalValid", "True").unwrap();
    println!(
        "the original was read again {:.1} s after the management cluster came back",
        begun.elapsed().as_secs_f32()
    );
    original(management, "pull-secret", PASSWORDS[2]);
    wait_auth(nodes, PASSWORDS[2]);
}

/// Creates a control plane with its pull secret, and a user with permission to read these two. Returns the user's token.
fn prepare(management: &Cluster) -> String {
    let spec = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "pullSecret": {"type": "object", "properties": {"name": {"type": "string"}}}}}}});
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hostedcontrolplanes.hypershift.openshift.io"},
        "spec": {
            "group": "hypershift.openshift.io", "scope": "Namespaced",
            "names": {"kind": "HostedControlPlane", "plural": "hostedcontrolplanes", "singular": "hostedcontrolplane"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": spec}}],
        },
    });
    management.apply(object).unwrap();
    let crd = "crd/hostedcontrolplanes.hypershift.openshift.io";
    management.types(&format!(
        "wait --for=condition=Established --timeout=60s {crd}"
    ));
    management.types("create namespace clusters");
    original(management, "pull-secret", PASSWORDS[0]);
    let metadata = |name: &str| json!({"name": name, "namespace": "clusters"});
    let rule = |group: &str, resource: &str, names: &[&str]| json!({"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": ["list", "watch"]});
    for manifest in [
        json!({"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedControlPlane",
            "metadata": metadata("prod"), "spec": {"pullSecret": {"name": "pull-secret"}}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("globalps")}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata("globalps"), "rules": [
            rule("hypershift.openshift.io", "hostedcontrolplanes", &["prod"]),
            rule("", "secrets", &["pull-secret", "next"]),
        ]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata("globalps"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "globalps"},
            "subjects": [{"kind": "ServiceAccount", "name": "globalps", "namespace": "clusters"}]}),
    ] {
        management.apply(&manifest).unwrap();
    }
    let token = management.kubectl_line("create token globalps -n clusters --duration=2h");
    token.unwrap().trim().to_owned()
}

fn original(management: &Cluster, name: &str, password: &str) {
    let content = docker_config(&[(REGISTRY, &format!("o:{password}"))]);
    let secret = pull_secret("clusters", name, &content);
    management.apply(secret).unwrap();
}

/// The admin's kubeconfig of the cluster, with another user.
fn kubeconfig(cluster: &Cluster, user: &Value) -> Value {
    let text = fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"] = user.clone();
    kubeconfig
}

fn give(hosted: &Cluster, kubeconfig: &Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "management", "namespace": "globalps-system"},
        "stringData": {"kubeconfig": kubeconfig.to_string()},
    });
    hosted.apply(object).unwrap();
}

/// Waits until the condition's message contains this text.
fn says(product: &Product, text: &str) {
    let waited = until(
        &format!("OriginalValid says {text}"),
        DEADLINE,
        POLL,
        || {
            let (status, reason, message) = product.condition("OriginalValid")?;
            let is_so = status == "False" && reason == "Unreadable" && message.contains(text);
            Ok(is_so.then_some(()))
        },
    );
    let now = product.condition("OriginalValid");
    waited.unwrap_or_else(|error| panic!("{error:#}, but {now:?} in {NAMESPACE}"));
}

fn auth(node: &Node) -> Option<String> {
    config_file::auth(node, REGISTRY).unwrap()
}

fn wait_auth(nodes: &[Node], password: &str) {
    common::wait_auth(nodes, REGISTRY, Some(&format!("o:{password}")));
}
