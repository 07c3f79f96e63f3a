//! Sources beyond the additional and the original pull secret.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A further source of credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.name in ['additional-pull-secret', 'global-pull-secret'])",
    "message": "a source is another Secret than additional-pull-secret and global-pull-secret",
}]))]
pub struct SourceRef {
    /// 236 at most, so that a key of a Secret can name it.
    #[schemars(length(min = 1, max = 236))]
    pub name: String,
}

/// Registries that a [`SourceStatus`] names at most.
pub const SOURCE_REGISTRIES: usize = 100;

/// What became of one of `spec.sources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// How many registries that are.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
}
