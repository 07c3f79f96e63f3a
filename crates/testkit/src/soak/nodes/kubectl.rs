//! kubectl as the cluster's admin, with a timeout no longer than an outage of the API server.

use anyhow::Result;
use serde_json::Value;

use crate::Cluster;
use crate::product::NAMESPACE;

const TIMEOUT: &str = "--request-timeout=20s";

/// Runs kubectl.
pub(super) fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    with_input(cluster, args, "")
}

/// `kubectl patch --type=merge` in the namespace of globalps.
pub(super) fn merge(cluster: &Cluster, what: &str, patch: &Value) -> Result<()> {
    let patch = patch.to_string();
    kubectl(
        cluster,
        &["patch", what, "-n", NAMESPACE, "--type=merge", "-p", &patch],
    )?;
    Ok(())
}

/// `kubectl apply --server-side`; takes over fields of other managers.
pub(super) fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    with_input(cluster, &args, &object.to_string())?;
    Ok(())
}

fn with_input(cluster: &Cluster, args: &[&str], input: &str) -> Result<String> {
    cluster.kubectl_with(&[args, &[TIMEOUT]].concat(), input)
}
