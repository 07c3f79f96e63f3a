//! Helpers for all conditions.

use globalps_core::api::condition;
use globalps_core::reasons::Reason;
use globalps_core::rollout::Member;
use globalps_dockerconfig::Finding;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub(super) const WAITS_FOR_PODS: &str = "nodes switch to the credential provider once all syncer pods have been replaced by pods that mount the \
    directories in `spec.kubelet.credentialProvider`";

pub(super) const MAY_NOT_READ: &str = "the controller may not read it";

/// Maximum number of nodes or clusters in a list of names.
pub(super) const NAMED: usize = 5;
/// Maximum length of a registry's name in the status, in characters; no valid name is longer.
pub(super) const REGISTRY_LIMIT: usize = 512;
/// Maximum length of a condition's message, in characters. The API server accepts 32,768 bytes.
pub(super) const CONDITION_LIMIT: usize = 4096;

/// At most `limit` characters; the last one is an ellipsis if the text was cut.
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
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

pub(crate) fn statement(
    type_: &'static str,
    status: &'static str,
    reason: Reason,
    message: String,
) -> Statement {
    Statement {
        type_,
        status,
        reason,
        message: shortened(message, CONDITION_LIMIT),
    }
}

/// The statement of `Ready` or `Degraded` with these errors of writes that fail.
pub(crate) fn with_refused(of: Statement, refused: &[String]) -> Statement {
    let refused = refused.iter().filter(|error| !of.message.contains(*error));
    let refused: Vec<&str> = refused.map(String::as_str).collect();
    if refused.is_empty() {
        return of;
    }
    let refused = format!("writes fail: {}", refused.join("; "));
    let is_ready = of.type_ == condition::READY;
    // Other reasons name something else to repair.
    let is_fine = if is_ready {
        of.status == "True" || matches!(of.reason, Reason::RollingOut | Reason::NoNodes)
    } else {
        of.status == "False"
    };
    if is_fine {
        let status = if is_ready { "False" } else { "True" };
        statement(of.type_, status, Reason::ReconcileFailed, refused)
    } else {
        let message = format!("{}; {refused}", of.message);
        statement(of.type_, of.status, of.reason, message)
    }
}

/// The condition. `before`: the conditions of the previous status, so that a transition time changes only with the condition's
/// status.
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
        reason: new.reason.into(),
        message: new.message,
        observed_generation: Some(generation),
        last_transition_time: since,
    }
}

/// At most 20 findings in one line, each with its registry.
pub(crate) fn sentences(findings: &[Finding]) -> String {
    first(findings.iter().map(ToString::to_string), 20)
}

/// At most this many sentences, and how many more there are.
pub(crate) fn first(mut sentences: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let mut first: Vec<String> = sentences.by_ref().take(most).collect();
    if sentences.len() > 0 {
        first.push(format!("and {} more", sentences.len()));
    }
    first.join("; ")
}

/// Status, reason and message of `Progressing` while no member can be the canary. `stuck`: the members that may be one.
/// `nobody`: the message if there are none, which only a user can change.
pub(crate) fn waits_for_canary(stuck: &[&Member], nobody: &str) -> (&'static str, Reason, String) {
    if stuck.is_empty() {
        return ("False", Reason::NoCanary, nobody.to_owned());
    }
    let names: Vec<String> = stuck.iter().map(|member| member.name.clone()).collect();
    let message = format!("no canary can change now: {}", list(&names, NAMED));
    ("True", Reason::WaitingForCanary, message)
}

/// At most this many names, and how many more there are.
pub(super) fn list(names: &[String], most: usize) -> String {
    let (shown, others) = names.split_at(names.len().min(most));
    let mut text = shown.join(", ");
    if !others.is_empty() {
        text = format!("{text} and {} more", others.len());
    }
    text
}
