//! An installation whose pods never run, so that only the test writes.

use std::time::Duration;

use globalps_manifests::Manifests;
use globalps_testkit::{Cluster, wait};
use serde_json::json;

use super::objects::{apply, denying};
use super::wait_refused;

pub const SYSTEM: &str = "globalps-system";
const POLL: Duration = Duration::from_millis(100);

/// Installs globalps from its own manifests, with an image that can't run; returns when its policies are in force.
pub fn install(cluster: &Cluster, syncer_image: &str) {
    let install = Manifests::of_images("registry.example.com/globalps-controller:2", syncer_image);
    cluster.apply_all(&install.objects()).unwrap();
    policies_in_force(cluster);
}

/// The API server compiles all new policies together, once a second: when the newest one is in force, so are the earlier ones.
fn policies_in_force(cluster: &Cluster) {
    let name = "newest";
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"], "resourceNames": [name],
    });
    let policy = denying(
        name,
        &json!({"resourceRules": [rule]}),
        &json!({"expression": "false"}),
    );
    apply(cluster, &policy);
    let line = format!("create configmap {name} --dry-run=server");
    wait_refused(cluster, &line, "ValidatingAdmissionPolicy 'newest'");
}

/// Names of the controller's pods, which no node runs.
pub fn pods(cluster: &Cluster) -> Vec<String> {
    wait("two pods", POLL, || {
        let names = "-o=jsonpath={.items[*].metadata.name}";
        let text = cluster.kubectl(&["get", "pods", "-n", SYSTEM, names])?;
        let pods: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Ok((pods.len() == 2).then_some(pods))
    })
}

/// Names the leader like a controller that takes the Lease; empty: none has taken it.
pub fn names_leader(cluster: &Cluster, holder: &str) {
    let annotation = format!("globalps.io/leader={holder}");
    let args = ["annotate", "--overwrite", "-n", SYSTEM];
    let args = [&args[..], &["serviceaccount/globalps-leader", &annotation]].concat();
    cluster.kubectl(&args).unwrap();
}
