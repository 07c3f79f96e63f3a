//! Warnings from the controller's conditions during a rollout. Pure.

use globalps_core::api::{GlobalPullSecretStatus, condition};

use super::verdict::{CHECK, said};
use super::{CANARY, EXPIRES, REJECTED, SYNCERS, Status};

/// Hint if namespaces are not synced.
pub(super) const NAMESPACES: &str = "`kubectl globalps status --namespaces` shows each namespace, `kubectl globalps check` what to do about it";
const NO_DELIVERY: &str = "`kubectl globalps install --image-pull-secrets --apply` delivers to namespaces, `--delivery ConfigFile` to nodes";

/// Why namespaces still have pull secrets although there is nothing to deliver; `None` without a failure.
pub(super) fn left_in_namespaces(status: &Status) -> Option<String> {
    let found = status.namespaces.as_ref()?.status.failures.first()?;
    Some(format!(
        "the pull secrets of namespaces are still being removed; namespace `{}`: {}",
        found.namespace, found.message
    ))
}

/// Credentials in force that expire soon or have expired, and those that a registry rejects, whatever the rollout does.
pub(crate) fn of_credentials(status: &Status) -> impl Iterator<Item = (String, &'static str)> {
    let types = [
        (condition::CREDENTIALS_REJECTED, REJECTED),
        (condition::CREDENTIALS_EXPIRING, EXPIRES),
    ];
    types.into_iter().filter_map(|(type_, hint)| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|found| found.type_ == type_ && found.status == "True")?;
        Some((found.message.clone(), hint))
    })
}

/// Conditions that delay the rollout without stopping it.
pub(super) fn of_conditions(status: &GlobalPullSecretStatus) -> Option<(String, &'static str)> {
    let find = |type_, value, reasons: &[&str]| {
        let found = super::find(status, type_).filter(|found| found.status == value)?;
        reasons
            .contains(&found.reason.as_str())
            .then(|| said(found))
    };
    let not_running = ["NotRunning", "PodsNotCreated", "NotWritten"];
    if let Some(message) = find(condition::SYNCERS_HEALTHY, "False", &not_running) {
        return Some((message.to_owned(), SYNCERS));
    }
    if let Some(message) = find(condition::PROGRESSING, "True", &["WaitingForCanary"]) {
        let message = format!("the rollout waits for a canary: {message}");
        return Some((message, CANARY));
    }
    if let Some(message) = find(condition::READY, "False", &["NoDelivery"]) {
        return Some((message.to_owned(), NO_DELIVERY));
    }
    for (type_, hint) in [
        (condition::NAMESPACES_SYNCED, NAMESPACES),
        (condition::OPERATORS_SYNCED, CHECK),
    ] {
        if let Some(found) = super::find(status, type_)
            && found.status == "False"
            && found.reason != "RollingOut"
        {
            return Some((said(found).to_owned(), hint));
        }
    }
    let message = find(condition::DEGRADED, "True", &["NodesBlocked"])?;
    Some((
        format!("the rollout continues without blocked nodes: {message}"),
        CHECK,
    ))
}
