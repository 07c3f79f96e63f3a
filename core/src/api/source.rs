//! Sources beyond the additional and the original pull secret.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A further source of credentials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.name in ['additional-pull-secret', 'global-pull-secret'])",
    "message": "a source is another Secret than additional-pull-secret and global-pull-secret",
}]))]
pub struct SourceRef {
    /// 236 at most, so that a key of a Secret can name it.
    #[schemars(length(min = 1, max = 236))]
    pub name: String,
    /// The pods that may pull with it. Absent: every pod. A source with a scope is delivered by `CredentialProvider` and into namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<SourceScope>,
}

/// Pods of some namespaces. `namespaces` and `namespaceSelector` add up; one of them is needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceScope {
    /// Names, in which `*` stands for any characters. They are compared when an image is pulled, so that a new namespace
    /// is covered at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub namespaces: Vec<String>,
    /// Labels of namespaces. The controller looks which ones that are, so that a new namespace is covered seconds later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Names of service accounts, in which `*` stands for any characters. Empty: every one of those namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub service_accounts: Vec<String>,
}

/// Registries that a [`SourceStatus`] names at most.
pub const SOURCE_REGISTRIES: usize = 100;

/// What became of one of `spec.sources`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    pub name: String,
    /// It could be read and is valid as it is.
    pub valid: bool,
    /// Why it is not, as a sentence.
    #[serde(default)]
    pub message: String,
    /// Registries whose credentials are this source's, 100 at most. Of a source that is not valid: those of its last valid
    /// content.
    #[serde(default)]
    pub registries: Vec<String>,
    /// Who may pull with it, where it has a scope: namespaces and service accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub scope: Option<String>,
    /// How it is delivered: `Nodes`, `Namespaces`, `NodesAndNamespaces`, or `NotDeliverable`, which `message` explains.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub delivery: String,
    /// How many registries that are.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
}
