//! The agents on nodes: the syncer or the restorer, or the observer where another program writes the nodes' files.

use globalps_core::api::DeliveryType;
use globalps_core::names::{OBSERVER, RESTORER, SYNCER};

/// The kinds of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// On selected nodes.
    Syncer,
    /// On all other Linux nodes.
    Restorer,
    /// Alone, on every Linux node: it only reads.
    Observer,
}

impl Agent {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Syncer, Self::Restorer, Self::Observer];

    /// Each Linux node runs exactly one of them.
    pub fn of(delivery: DeliveryType) -> &'static [Self] {
        if delivery.is_observed() {
            &[Self::Observer]
        } else {
            &[Self::Syncer, Self::Restorer]
        }
    }

    /// Name of its `DaemonSet`, `ServiceAccount`, `Role` and `RoleBinding`; value of its pods' label `name`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syncer => SYNCER,
            Self::Restorer => RESTORER,
            Self::Observer => OBSERVER,
        }
    }
}
