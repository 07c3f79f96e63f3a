//! Nodes by state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Phase;

/// Maximum number of nodes in `nodesWithoutSyncer`.
pub const STATUS_NODES: usize = 100;

/// Nodes by state. `total` is the sum of the others and of the nodes that wait for an assignment; `unsupported` is not part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub synced: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub progressing: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub failed: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub unreachable: u32,
    /// Nodes that can't run a syncer, or on which none has ever run. Nobody waits for them.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub unsupported: u32,
}

/// A node on which no syncer runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeWithoutSyncer {
    #[serde(default)]
    pub name: String,
    /// `Unsupported`: it has nothing of globalps, and nobody waits for it. `Unreachable`: it gets its revision, or restores its own
    /// file, when its syncer runs again.
    #[serde(default)]
    pub phase: Phase,
    /// `VirtualNode`: its labels or taints say that no machine is behind it. `NoSyncer`: otherwise.
    #[serde(default)]
    pub reason: String,
    /// Why no syncer runs there.
    #[serde(default)]
    pub message: String,
}
