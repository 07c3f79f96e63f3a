//! The agents on nodes: the syncer, or the restorer.

use globalps_core::names::{RESTORER, SYNCER};

/// The two kinds of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// On selected nodes.
    Syncer,
    /// On all other Linux nodes.
    Restorer,
}

impl Agent {
    /// Each Linux node runs exactly one of them.
    pub const ALL: [Self; 2] = [Self::Syncer, Self::Restorer];

    /// Name of its `DaemonSet`, `ServiceAccount`, `Role` and `RoleBinding`; value of its pods' label `name`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syncer => SYNCER,
            Self::Restorer => RESTORER,
        }
    }
}
