//! Objects of the Operator Lifecycle Manager, in the form in which it creates them.

use serde_json::{Value, json};

use crate::Cluster;
use crate::kubernetes::olm_crds;

pub const OLM: &str = "operators.coreos.com/v1alpha1";

pub fn install_olm(cluster: &Cluster) {
    for file in olm_crds().unwrap() {
        let file = file.to_string_lossy().into_owned();
        cluster
            .kubectl(&["apply", "--server-side", "-f", &file])
            .unwrap();
    }
    let wait = ["wait", "--for=condition=Established", "crd", "--all"];
    cluster.kubectl(&wait).unwrap();
}

pub fn catalog(namespace: &str, name: &str, secrets: &[&str]) -> Value {
    json!({"apiVersion": OLM, "kind": "CatalogSource", "metadata": {"name": name, "namespace": namespace},
        "spec": {"sourceType": "grpc", "image": "quay.io/catalog:1", "secrets": secrets}})
}

pub fn subscription(namespace: &str, name: &str, (catalogs, catalog): (&str, &str)) -> Value {
    json!({"apiVersion": OLM, "kind": "Subscription", "metadata": {"name": name, "namespace": namespace},
        "spec": {"name": name, "channel": "stable", "source": catalog, "sourceNamespace": catalogs}})
}

/// A version of an operator with one Deployment. With a source namespace, the object is a copy from there.
pub fn version(
    namespace: &str,
    name: &str,
    account: &str,
    image: &str,
    copied_from: Option<&str>,
) -> Value {
    let labels = json!({"app": name});
    let mut csv = json!({"apiVersion": OLM, "kind": "ClusterServiceVersion",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"displayName": name, "install": {"strategy": "deployment", "spec": {"deployments": [
            {"name": name, "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": account, "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "c", "image": image, "imagePullPolicy": "Always"}]}}}}]}}}});
    if let Some(from) = copied_from {
        csv["metadata"]["labels"] = json!({"olm.copiedFrom": from});
    }
    csv
}

/// Sets the Subscription's versions: the installed one, and the one that is being installed.
pub fn set_versions(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    installed: &str,
    current: &str,
) {
    let status = json!({"status": {"installedCSV": installed, "currentCSV": current,
        "state": "AtLatestKnown", "lastUpdated": "2026-01-01T00:00:00Z"}});
    let what = format!("subscription/{name}");
    cluster.patch_status(namespace, &what, &status).unwrap();
}

pub fn delete(cluster: &Cluster, namespace: &str, what: &str) {
    cluster.kubectl(&["delete", what, "-n", namespace]).unwrap();
}
