//! A cluster that admits pods with Kubernetes' own priority classes only in namespaces whose quota names these, like GKE.

mod common;

use std::time::Duration;

use common::objects::{apply, namespace};
use common::{cluster, docker_config, roll_out};
use globalps_testkit::product::{ADDITIONAL, NAMESPACE, Product, Ran, pull_secret, run};
use globalps_testkit::{Cluster, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(200);
const OTHER: &str = "credentials";

#[test]
fn globalps_runs_where_priority_classes_need_a_quota() {
    let cluster = cluster("priority-classes", 1);
    cluster.limit_priority_classes().unwrap();
    let refused = critical_pod(&cluster, "default");
    assert!(refused.stderr.contains("insufficient quota"), "{refused:?}");
    // GKE creates one there.
    apply(&cluster, &[quota(NAMESPACE)]);

    let product = Product::install(&cluster).unwrap();
    roll_out(&product, &[("quota.example.com", "u:1")]);
    let quotas = cluster.get(NAMESPACE, "resourcequotas").unwrap();
    assert_eq!(quotas["items"].as_array().map(Vec::len), Some(1), "theirs");
    product.ends("uninstall --yes", 0);

    apply(&cluster, &[namespace(OTHER)]);
    let product = Product::install_with(&cluster, &["--pull-secret-namespace", OTHER]).unwrap();
    let content = docker_config(&[("quota.example.com", "u:2")]);
    apply(&cluster, &[pull_secret(OTHER, ADDITIONAL, &content)]);
    wait("the syncer's pod in the other namespace", POLL, || {
        let syncers = cluster.get(OTHER, "daemonset/global-pull-secret-syncer")?;
        Ok((syncers["status"]["numberReady"] == 1).then_some(()))
    });
    let of_other = ["uninstall", "--yes", "--pull-secret-namespace", OTHER];
    let ran = product.plugin(&of_other, "").unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let left = cluster.get(OTHER, "resourcequotas").unwrap();
    assert!(left["items"].as_array().is_none_or(Vec::is_empty), "{left}");
}

fn critical_pod(cluster: &Cluster, namespace: &str) -> Ran {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "critical", "namespace": namespace},
        "spec": {"priorityClassName": "system-cluster-critical",
            "containers": [{"name": "c", "image": "quota.example.com/c:1"}]}});
    let mut kubectl = cluster.kubectl_command();
    kubectl.args(["create", "-f", "-"]);
    run(&mut kubectl, &pod.to_string()).unwrap()
}

fn quota(namespace: &str) -> Value {
    let scope = json!({"scopeName": "PriorityClass", "operator": "In",
        "values": ["system-cluster-critical", "system-node-critical"]});
    json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"hard": {"pods": "1G"}, "scopeSelector": {"matchExpressions": [scope]}}})
}
