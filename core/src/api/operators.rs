//! Pull secrets of operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Subscriptions that an [`OperatorsStatus`] names at most.
pub const STATUS_OPERATORS: usize = 20;

/// The pull secrets that a `CatalogSource` of the Operator Lifecycle Manager names, for the operators that come from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operators {
    /// true: they are copied to the namespace of each `Subscription`, for the service accounts of its operator. false: what
    /// globalps created for operators is removed.
    #[serde(default)]
    pub enabled: bool,
}

/// The state of the operators. Absent once nothing of globalps is left for any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorsStatus {
    /// Subscriptions to catalogs that name pull secrets.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
    /// Those whose operator has its pull secrets.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub synced: u32,
    /// Those whose operator does not, for a reason that `failures` names.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub failed: u32,
    /// Service accounts that refer to such a Secret because of globalps.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub service_accounts: u32,
    /// Subscriptions in trouble, 20 at most. Written when empty too: a merge patch keeps what it omits.
    #[serde(default)]
    pub failures: Vec<OperatorFailure>,
}

/// Why an operator does not have what it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorFailure {
    pub namespace: String,
    /// Of the `Subscription`.
    pub name: String,
    /// Such as `SourceMissing`, `SourceForbidden`, `SourceInvalid`, `ForeignSecret`, `QuotaExceeded`, `Conflict`.
    #[schemars(length(max = 64))]
    pub reason: String,
    #[schemars(length(max = 1024))]
    pub message: String,
}
