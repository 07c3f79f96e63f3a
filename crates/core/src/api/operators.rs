//! Pull secrets of operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Delivery of the pull secrets that a `CatalogSource` of the Operator Lifecycle Manager names, to the operators installed from
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operators {
    /// true: they are copied to the namespace of each `Subscription`, for the service accounts of its operator. false: whatever
    /// globalps created for operators is removed.
    #[serde(default)]
    pub enabled: bool,
}

/// The state of the operators. Absent if nothing that globalps created is left for any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorsStatus {
    /// Number of subscriptions to catalogs that name pull secrets.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
    /// Number of subscriptions whose operator has its pull secrets.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub synced: u32,
    /// Number of subscriptions whose operator doesn't; `failures` has the reasons.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub failed: u32,
    /// Number of service accounts that refer to such a Secret because of globalps.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub service_accounts: u32,
    /// Subscriptions with an error, at most 20. Also written when empty, because a merge patch keeps omitted fields.
    #[serde(default)]
    pub failures: Vec<OperatorFailure>,
}

/// Why an operator isn't in the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorFailure {
    pub namespace: String,
    /// Name of the `Subscription`.
    pub name: String,
    /// Such as `SourceMissing`, `SourceForbidden`, `SourceInvalid`, `ForeignSecret`, `QuotaExceeded`, `Conflict`.
    #[schemars(length(max = 64))]
    pub reason: String,
    #[schemars(length(max = 1024))]
    pub message: String,
}
