//! The nodes that a cleanup leaves behind. Pure.

use globalps_core::api::{Phase, condition};

use super::verdict::{is_complete, is_of_failed_nodes};
use super::{Row, Status, find, has_failed, reported};
use crate::cluster::facts::Facts;

impl Row {
    /// It is being restored, but reports that this failed.
    pub(super) fn refuses(&self) -> bool {
        self.restoration.as_ref().is_some_and(has_failed)
    }

    /// Name and reason, as text.
    pub(super) fn reason(&self) -> String {
        let reason = match (&self.phase, self.reason.as_str()) {
            (Phase::Unreachable, _) => "unreachable".to_owned(),
            (phase, "") => phase.to_string(),
            (phase, reason) => format!("{phase}, {reason}"),
        };
        match self.message.as_str() {
            "" => format!("`{}` ({reason})", self.name),
            message => format!("`{}` ({reason}: {message})", self.name),
        }
    }
}

/// The nodes that a cleanup can't restore now. Those that were lost or failed because of it count only when every other node is
/// done: a restoration that breaks nodes must halt before it reaches the next one.
pub(crate) fn left<'a>(facts: &Facts, status: &'a Status) -> Vec<&'a Row> {
    let reported = reported(facts).map(|(_, status)| status);
    let is_last = reported.is_some_and(is_complete);
    let degraded = reported.and_then(|status| find(status, condition::DEGRADED));
    let has_failed = degraded.is_some_and(is_of_failed_nodes);
    let is_left = |row: &&Row| match (&row.phase, &row.restoration) {
        (Phase::Unreachable, Some(Phase::Restored)) => is_last && has_failed,
        (Phase::Unreachable | Phase::Unreadable, None) => true,
        (Phase::Unreachable | Phase::Unreadable, Some(_)) => is_last,
        _ => is_last && row.refuses(),
    };
    status.nodes.iter().filter(is_left).collect()
}
