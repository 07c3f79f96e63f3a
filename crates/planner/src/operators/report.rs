//! The state of the operators, for the status. Pure.

use crate::targets::summary::Summary;

/// The state of operators for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorsReport {
    /// The controller may not list what it needs.
    pub is_forbidden: bool,
    /// The cluster has the Operator Lifecycle Manager's resources.
    pub is_served: bool,
    /// `None`: not known yet.
    pub summary: Option<Summary>,
}
