//! Pull secrets in namespaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

/// A pull secret in each selected namespace, in addition to the node credentials or instead of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.enabled && oldSelf.enabled) || self.secretName == oldSelf.secretName",
    "message": "imagePullSecrets.secretName can't be changed while enabled is true: set enabled to false first",
}]))]
pub struct ImagePullSecrets {
    /// false: whatever globalps created in namespaces is removed.
    #[serde(default)]
    pub enabled: bool,
    /// Labels of the namespaces that get the Secret. Absent: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Names of namespaces to exclude; `*` matches any characters. The label `globalps.io/exclude: "true"` on a namespace
    /// excludes it as well.
    #[serde(default = "default_excluded")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9*-]+$"))
    )]
    pub excluded_namespaces: Vec<String>,
    /// Name of the Secret. The controller may only write the name that was installed, by the Helm chart or by `kubectl
    /// globalps install --deliver-to-namespaces`.
    #[serde(default = "default_secret_name")]
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub secret_name: String,
    /// How pods refer to the Secret. Absent: `Admission` if its admission policy is installed, otherwise `ServiceAccounts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    /// Names of the service accounts that `attach: ServiceAccounts` changes; `*`: all of them.
    #[serde(default = "default_service_accounts")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub service_accounts: Vec<String>,
    /// Namespace that gets new content before the others. Absent: any namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub canary_namespace: Option<String>,
}

impl Default for ImagePullSecrets {
    fn default() -> Self {
        Self {
            enabled: false,
            namespace_selector: None,
            excluded_namespaces: default_excluded(),
            secret_name: default_secret_name(),
            attach: None,
            service_accounts: default_service_accounts(),
            canary_namespace: None,
        }
    }
}

/// How pods refer to the Secret of their namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Attach {
    /// A `MutatingAdmissionPolicy` adds the reference to each new pod.
    Admission,
    /// The controller adds the reference to service accounts.
    ServiceAccounts,
}

impl Attach {
    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admission => "Admission",
            Self::ServiceAccounts => "ServiceAccounts",
        }
    }
}

/// The state of the namespaces. Absent if nothing that globalps created is left in any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePullSecretsStatus {
    /// Name of the Secret in the namespaces.
    #[serde(default)]
    pub secret_name: String,
    /// `Admission` or `ServiceAccounts`.
    #[serde(default)]
    pub attach: String,
    /// Number of namespaces that should have the Secret.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
    /// Number of namespaces that have it with the current content.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub synced: u32,
    /// Number of namespaces that don't; `failures` has the reasons.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub failed: u32,
    /// Number of namespaces that aren't selected or are excluded.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub excluded: u32,
    /// Number of service accounts that refer to the Secret because of globalps.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub service_accounts: u32,
    /// Namespaces with an error, at most 20. Also written when empty, because a merge patch keeps omitted fields.
    #[serde(default)]
    pub failures: Vec<NamespaceFailure>,
}

/// Why a namespace isn't in the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceFailure {
    pub namespace: String,
    /// Such as `QuotaExceeded`, `Rejected`, `ForeignSecret`, `Conflict`, `TooLarge`, `TooManyReferences`, `TooManyAccounts`.
    #[schemars(length(max = 64))]
    pub reason: String,
    #[schemars(length(max = 1024))]
    pub message: String,
}

fn default_excluded() -> Vec<String> {
    vec!["kube-*".to_owned(), names::CONTROLLER_NAMESPACE.to_owned()]
}
fn default_secret_name() -> String {
    names::GLOBAL_SECRET.to_owned()
}
fn default_service_accounts() -> Vec<String> {
    vec!["default".to_owned()]
}
