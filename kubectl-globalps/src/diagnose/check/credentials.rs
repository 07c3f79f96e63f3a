//! The controller's conditions for the Secrets and their rollout.

use globalps_core::api::{GlobalPullSecret, condition};
use globalps_core::reasons::{self, Reason, Severity};
use globalps_core::state::{NO_NODE_SELECTED, NODES_NOT_SERVED, SOURCES_REMOVED, is_restore_meant};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Check, Installed, found, well};
use crate::cluster::facts::Facts;
use crate::view::status::{
    ANOTHER_CHANGED, Health, HealthState, NO_CONFIGURATION, PAUSED, REMOVAL_HELD, SELECTOR,
    is_outdated, renewal,
};

const CREDENTIALS: &str = "credentials";
const HALTED: &str = "rollout-halted";

/// `in_force`: nodes have credentials of globalps. `another_changed`: the unfinished rollout changes another pull
/// secret than the additional one.
pub(crate) fn credentials(
    gps: Option<&GlobalPullSecret>,
    in_force: bool,
    another_changed: bool,
) -> Vec<Check> {
    if gps.is_none() && in_force {
        let (message, hint) = NO_CONFIGURATION;
        return vec![line("no-configuration", message).fail(hint)];
    }
    let status = gps.and_then(|gps| gps.status.as_ref());
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let is_ended = gps.is_some_and(is_restore_meant);
    let mut checks: Vec<Check> = [
        condition::ADDITIONAL_VALID,
        condition::ORIGINAL_VALID,
        condition::SOURCES_VALID,
        condition::CREDENTIALS_EXPIRING,
        condition::SYNCERS_HEALTHY,
        condition::NAMESPACES_SYNCED,
        condition::OPERATORS_SYNCED,
        condition::PULL_SECRET_SYNCED,
        condition::CREDENTIALS_REJECTED,
        condition::OLD_FORGOTTEN,
        condition::DEGRADED,
        condition::PROGRESSING,
        condition::READY,
    ]
    .iter()
    .filter_map(|type_| conditions.iter().find(|found| found.type_ == *type_))
    // A hold that the user has just ended is in the status until the controller's next reconcile.
    .filter(|found| !(is_ended && found.message.starts_with(SOURCES_REMOVED)))
    .filter_map(of_condition)
    .collect();
    let halted = checks.iter_mut().filter(|check| check.name == HALTED);
    for check in halted.filter(|_| another_changed) {
        ANOTHER_CHANGED.clone_into(&mut check.hint);
    }
    if gps.is_some_and(|gps| gps.spec.rollout.paused) {
        checks.push(well(CREDENTIALS, "paused", PAUSED.0).warn(PAUSED.1));
    }
    checks
}

/// Reports that a running controller's status is older than the cluster's state. `None` if another finding explains it.
pub(crate) fn outdated(facts: &Facts, seen: &Installed, now: Timestamp) -> Option<Check> {
    let runs = Health::of(seen, now).controller.state != HealthState::Unhealthy;
    let status = facts.gps().and_then(|gps| gps.status.as_ref());
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    // The controller can't read the configuration or the Secret.
    let is_unseen = conditions.any(|found| {
        [condition::READY, condition::ADDITIONAL_VALID].contains(&found.type_.as_str())
            && matches!(
                Reason::parse(&found.reason),
                Some(Reason::Unreadable | Reason::Forbidden)
            )
    });
    (runs && !is_unseen && is_outdated(facts)).then(|| {
        line(
            "report",
            "the controller has not reported on the pull secrets as they are now",
        )
        .fail("see the log of the controller that leads: `kubectl -n globalps-system logs deployment/globalps-controller --all-pods`; `kubectl globalps install` writes its permissions again")
    })
}

/// `None` if another condition or a finding about the nodes reports it.
pub(super) fn of_condition(it: &Condition) -> Option<Check> {
    let (type_, message) = (it.type_.as_str(), &it.message);
    let finding = reasons::of_condition(type_, &it.status, &it.reason)?;
    let mut check = found(CREDENTIALS, &finding, finding.message(message));
    if type_ == condition::CREDENTIALS_REJECTED && it.status == "False" && message.is_empty() {
        return Some(well(
            CREDENTIALS,
            check.name,
            "the registries accept the credentials",
        ));
    }
    let is_held = it.reason == Reason::Held && type_ == condition::PROGRESSING;
    let hint = match type_ {
        condition::CREDENTIALS_EXPIRING | condition::CREDENTIALS_REJECTED => {
            (finding.severity != Severity::Info && finding.hint.is_empty())
                .then(|| renewal(message))
        }
        _ if !is_held => None,
        _ if message.starts_with(SOURCES_REMOVED) => Some(REMOVAL_HELD.1.to_owned()),
        _ if message.starts_with(NO_NODE_SELECTED) => Some(SELECTOR.to_owned()),
        _ if message.starts_with(NODES_NOT_SERVED) => {
            check.message.clone_from(message);
            Some("`kubectl globalps install`".to_owned())
        }
        _ => None,
    };
    check.hint = hint.unwrap_or(check.hint);
    Some(check)
}

fn line(name: &'static str, message: &str) -> Check {
    well(CREDENTIALS, name, message)
}
