//! What all conditions are made of.

use globalps_core::dockerconfig::Finding;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub(super) const WAITS_FOR_PODS: &str = "nodes get the credential provider once each syncer's pod was replaced by one with the \
    directories that `spec.kubelet.credentialProvider` names";

pub(super) const MAY_NOT_READ: &str = "the controller may not read it";

/// Characters of a registry's name in the status; no name that can be pulled from is longer.
pub(super) const REGISTRY_LIMIT: usize = 512;
/// Characters of a condition's message. The API server takes 32,768 bytes.
pub(super) const CONDITION_LIMIT: usize = 4096;

/// At most so many characters, the last an ellipsis where some are missing.
pub(super) fn shortened(text: impl Into<String>, limit: usize) -> String {
    let mut text = text.into();
    if let Some((end, _)) = text.char_indices().nth(limit - 1) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A condition without its transition time.
pub(crate) struct Statement {
    pub(crate) type_: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) fn statement(
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
) -> Statement {
    Statement {
        type_,
        status,
        reason,
        message: shortened(message, CONDITION_LIMIT),
    }
}

/// The condition. `before`: those of the previous status, so that a transition time changes only with its condition's status.
pub(crate) fn dated(
    new: Statement,
    before: &[Condition],
    generation: i64,
    now: Timestamp,
) -> Condition {
    let old = before.iter().find(|old| old.type_ == new.type_);
    let since = old
        .filter(|old| old.status == new.status)
        .map_or(Time(now), |old| old.last_transition_time.clone());
    Condition {
        type_: new.type_.to_owned(),
        status: new.status.to_owned(),
        reason: new.reason.to_owned(),
        message: new.message,
        observed_generation: Some(generation),
        last_transition_time: since,
    }
}

/// At most 20 findings in one line, each with its registry.
pub(crate) fn sentences(findings: &[Finding]) -> String {
    const MOST: usize = 20;
    let mut sentences: Vec<String> = findings
        .iter()
        .take(MOST)
        .map(ToString::to_string)
        .collect();
    if findings.len() > MOST {
        sentences.push(format!("and {} more", findings.len() - MOST));
    }
    sentences.join("; ")
}
