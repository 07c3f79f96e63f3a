//! Warnings from the controller's conditions during a rollout. Pure.

use globalps_core::api::{GlobalPullSecretStatus, condition};
use globalps_core::reasons::{CANARY, NO_DELIVERY, Reason};

use super::verdict::{CHECK, said};
use super::{SYNCERS, Status, renewal};

/// Hint if namespaces are not synced.
pub(super) const NAMESPACES: &str = "`kubectl globalps status --namespaces` shows each namespace, `kubectl globalps check` what to do about it";

/// Why namespaces still have pull secrets although there is nothing to deliver; `None` without a failure.
pub(super) fn left_in_namespaces(status: &Status) -> Option<String> {
    let mut failures = status.namespaces.as_ref()?.status.failures.iter();
    let first = failures.next();
    let named = first.map(|it| format!("namespace `{}`: {}", it.namespace, it.message));
    let mut conditions = status.conditions.iter();
    let of_all = || {
        let found = conditions.find(|found| found.type_ == condition::NAMESPACES_SYNCED);
        let found = found.filter(|found| found.status == "False");
        found.map(|found| found.message.clone())
    };
    let why = named.or_else(of_all)?;
    Some(format!(
        "the pull secrets of namespaces are still being removed; {why}"
    ))
}

/// Credentials in force that expire soon or have expired, and those that a registry rejects, whatever the rollout does.
pub(crate) fn of_credentials(status: &Status) -> impl Iterator<Item = (String, String)> {
    let types = [
        condition::CREDENTIALS_REJECTED,
        condition::CREDENTIALS_EXPIRING,
    ];
    types.into_iter().filter_map(|type_| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|found| found.type_ == type_ && found.status == "True")?;
        Some((found.message.clone(), renewal(&found.message)))
    })
}

/// Conditions that delay the rollout without stopping it.
pub(super) fn of_conditions(status: &GlobalPullSecretStatus) -> Option<(String, &'static str)> {
    let find = |type_, value, reasons: &[Reason]| {
        let found = super::find(status, type_).filter(|found| found.status == value)?;
        let is_one = reasons.iter().any(|reason| found.reason == *reason);
        is_one.then(|| said(found))
    };
    let not_running = [
        Reason::NotRunning,
        Reason::PodsNotCreated,
        Reason::NotWritten,
    ];
    if let Some(message) = find(condition::SYNCERS_HEALTHY, "False", &not_running) {
        return Some((message.to_owned(), SYNCERS));
    }
    if let Some(message) = find(condition::PROGRESSING, "True", &[Reason::WaitingForCanary]) {
        return Some((CANARY.message(message), CANARY.hint));
    }
    if let Some(message) = find(condition::READY, "False", &[Reason::NoDelivery]) {
        return Some((message.to_owned(), NO_DELIVERY.hint));
    }
    for (type_, hint) in [
        (condition::NAMESPACES_SYNCED, NAMESPACES),
        (condition::OPERATORS_SYNCED, CHECK),
        (condition::PULL_SECRET_SYNCED, CHECK),
    ] {
        if let Some(found) = super::find(status, type_)
            && found.status == "False"
            && found.reason != Reason::RollingOut
        {
            return Some((said(found).to_owned(), hint));
        }
    }
    let message = find(condition::DEGRADED, "True", &[Reason::NodesBlocked])?;
    Some((
        format!("the rollout continues without blocked nodes: {message}"),
        CHECK,
    ))
}
