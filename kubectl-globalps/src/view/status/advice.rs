//! The most important problem of a rollout, and the next step. Pure.

use globalps_core::api::Phase;

use super::conditions::{NAMESPACES, left_in_namespaces, of_conditions};
use super::verdict::{PAUSED, REMOVED, restored, synced};
use super::{
    Current, FOLLOW, NO_CONFIGURATION, Row, SKIP, STALE, Status, current, missing, only_aside,
};
use crate::cluster::{FINALIZERS, Facts, NOT_INSTALLED};
use crate::terminal::layout::nodes;
use crate::view::members::{Member as _, Verdict};

/// Hint where there is nothing to sync.
pub(crate) const ADD: &str =
    "add a registry with `kubectl globalps add REGISTRY -u USER --password-stdin`";

/// The most important problem and the next step; `None` if there is no problem.
pub(crate) fn advice(facts: &Facts, status: &Status) -> Option<(String, &'static str)> {
    if !facts.installed {
        return Some((NOT_INSTALLED.0.to_owned(), NOT_INSTALLED.1));
    }
    if status.ready {
        return None;
    }
    if let Some(advice) = missing(facts, &status.nodes) {
        return Some(advice);
    }
    let advice = match current(facts) {
        Current::NoConfiguration => {
            let (message, hint) = NO_CONFIGURATION;
            (message.to_owned(), hint)
        }
        Current::Nothing if let Some(names) = unreachable_only(status) => (
            format!(
                "only unreachable nodes are left to restore: `{}`",
                names.join("`, `")
            ),
            SKIP,
        ),
        Current::Nothing
            if let Verdict::Stuck { reason, hint } = restored(facts, status, false) =>
        {
            (reason, hint)
        }
        Current::Nothing if let Some(message) = left_in_namespaces(status) => (message, NAMESPACES),
        Current::Nothing if let Some(waits) = facts.additional_waits_for() => (
            format!("the additional pull secret {waits}; it counts as absent"),
            FINALIZERS,
        ),
        Current::Nothing if status.nodes.iter().any(|row| !row.stage().is_out()) => {
            (REMOVED.0.to_owned(), REMOVED.1)
        }
        Current::Nothing => (
            "there is no additional pull secret, so nothing is synced to the nodes".to_owned(),
            ADD,
        ),
        Current::Stale => (
            "the controller has not processed the additional pull secret yet".to_owned(),
            STALE,
        ),
        Current::Reported(reported) => match synced(facts, status) {
            Verdict::Stuck { reason, hint } => (reason, hint),
            _ if status.paused => (PAUSED.0.to_owned(), PAUSED.1),
            _ if status.counts.unreachable > 0
                && status.counts.unreachable
                    == u32::try_from(status.lagging().count()).unwrap_or(u32::MAX) =>
            {
                (
                    format!("{} can't be reached", nodes(status.counts.unreachable)),
                    "they get the credentials when they are ready again",
                )
            }
            _ if let Some(advice) = only_aside(status) => advice,
            _ if let Some(advice) = of_conditions(reported) => advice,
            _ => ("the rollout is in progress".to_owned(), FOLLOW),
        },
    };
    Some(advice)
}

/// Nodes that a cleanup still waits for, if all of them are unreachable.
fn unreachable_only(status: &Status) -> Option<Vec<&str>> {
    let is_open = |row: &&Row| row.phase != Phase::Restored && !row.stage().is_out();
    let open: Vec<&Row> = status.nodes.iter().filter(is_open).collect();
    let is_met = !open.is_empty() && open.iter().all(|row| row.phase == Phase::Unreachable);
    is_met.then(|| open.iter().map(|row| row.name.as_str()).collect())
}
