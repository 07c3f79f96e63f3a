//! The objects that users write, and their statuses.

use anyhow::Result;
use serde_json::{Value, json};

use super::{DEADLINE, NAMESPACE, POLL};
use crate::{Cluster, until};

/// A pull secret with this content.
pub fn pull_secret(namespace: &str, name: &str, content: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {".dockerconfigjson": content},
    })
}

/// A `GlobalPullSecret` with this spec.
pub fn configuration(spec: &Value) -> Value {
    json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
        "metadata": {"name": "global-pull-secret", "namespace": NAMESPACE}, "spec": spec,
    })
}

/// The `GlobalPullSecret` in kubectl's notation.
pub const CONFIG: &str = "globalpullsecret/global-pull-secret";

/// Whether the object's status describes its current spec.
pub fn is_about_its_spec(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// Status, reason and message of a condition; empty if it does not exist.
pub(crate) fn condition(status: &Value, type_: &str) -> (String, String, String) {
    let all = status["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|condition| condition["type"] == type_);
    let text = |name: &str| {
        let value = found.and_then(|found| found[name].as_str());
        value.unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"), text("message"))
}

/// Runs `kubectl patch --type=merge` in the namespace of globalps. Waits for the object, because the controller creates
/// the default configuration soon after the first pull secret.
pub fn merge(cluster: &Cluster, what: &str, patch: &Value) -> Result<()> {
    until(what, DEADLINE, POLL, || {
        match cluster.patch(NAMESPACE, what, patch) {
            Err(error) if format!("{error:#}").contains("(NotFound)") => Ok(None),
            result => result.map(Some),
        }
    })
}

/// Changes these fields of the configuration's spec.
pub fn reconfigure(cluster: &Cluster, spec: &Value) -> Result<()> {
    merge(cluster, CONFIG, &json!({"spec": spec}))
}
