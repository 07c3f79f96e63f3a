//! Sources in addition to the additional and the original pull secret.

use globalps_dockerconfig::Precedence;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConflictStatus;

/// An additional source of credentials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.name in ['additional-pull-secret', 'global-pull-secret', 'global-pull-secret-rolled-out', 'global-pull-secret-state'] || self.name.startsWith('additional-pull-secret-history-'))",
    "message": "a source can't be additional-pull-secret, or a Secret that globalps writes",
}]))]
pub struct SourceRef {
    /// At most 236 characters, so that it fits into a key of a Secret.
    #[schemars(length(min = 1, max = 236))]
    pub name: String,
    /// The pods that may pull with these credentials. Absent: every pod. A source with a scope is delivered by
    /// `CredentialProvider` and into namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<SourceScope>,
}

/// Pods of the namespaces that `namespaces` or `namespaceSelector` selects; at least one of them is required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceScope {
    /// Names of namespaces; `*` matches any characters. Matched when an image is pulled, so a new namespace is covered
    /// immediately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub namespaces: Vec<String>,
    /// Labels of namespaces. The controller resolves them to names, so a new namespace is covered within seconds; during a rollout
    /// once that has passed its canary, and not while it has halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Names of service accounts; `*` matches any characters. Empty: all service accounts of those namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub service_accounts: Vec<String>,
}

/// Maximum number of registries in a [`SourceStatus`].
pub const SOURCE_REGISTRIES: usize = 100;

/// The state of one of `spec.sources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    pub name: String,
    /// It is readable and its current content is valid.
    pub valid: bool,
    /// Why it isn't valid.
    #[serde(default)]
    pub message: String,
    /// Registries whose effective credentials come from this source, at most 100. If it is not valid, those of its last valid
    /// content.
    #[serde(default)]
    pub registries: Vec<String>,
    /// Who may pull with it, if it has a scope: namespaces and service accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub scope: Option<String>,
    /// How it is delivered: `Nodes`, `Namespaces`, `NodesAndNamespaces`, or `NotDeliverable`, which `message` explains.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub delivery: String,
    /// Number of such registries, including those not listed in `registries`.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
}

impl ConflictStatus {
    /// The pull secret whose credentials are effective, and the one whose credentials are shadowed.
    pub fn sides(&self) -> (String, String) {
        if !self.source.is_empty() {
            return (format!("`{}`", self.source), format!("`{}`", self.shadowed));
        }
        let (effective, shadowed) = match self.effective {
            Precedence::Additional => ("additional", "original"),
            Precedence::Original => ("original", "additional"),
        };
        (
            format!("the {effective} pull secret"),
            format!("the {shadowed}"),
        )
    }
}
