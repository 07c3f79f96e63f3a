//! The controller's conditions for the Secrets and their rollout.

use globalps_core::api::{GlobalPullSecret, condition};
use globalps_core::state::{NO_NODE_SELECTED, NODES_NOT_SERVED, SOURCES_REMOVED};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Check, Installed, well};
use crate::cluster::facts::Facts;
use crate::view::status::{
    ANOTHER_CHANGED, CANARY, Health, NO_CONFIGURATION, REMOVAL_HELD, SELECTOR, State, is_outdated,
    renewal, waits_for_canary,
};

const CREDENTIALS: &str = "credentials";
const HALTED: &str = "rollout-halted";

/// `in_force`: nodes have credentials of globalps. `another_changed`: than the additional pull secret, in the rollout that is not over.
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
    let mut checks: Vec<Check> = [
        condition::ADDITIONAL_VALID,
        condition::ORIGINAL_VALID,
        condition::SOURCES_VALID,
        condition::CREDENTIALS_EXPIRING,
        condition::SYNCERS_HEALTHY,
        condition::NAMESPACES_SYNCED,
        condition::OPERATORS_SYNCED,
        condition::CREDENTIALS_REJECTED,
        condition::OLD_FORGOTTEN,
        condition::DEGRADED,
        condition::PROGRESSING,
        condition::READY,
    ]
    .iter()
    .filter_map(|type_| of_condition(conditions.iter().find(|found| found.type_ == *type_)?))
    .collect();
    let halted = checks.iter_mut().filter(|check| check.name == HALTED);
    for check in halted.filter(|_| another_changed) {
        ANOTHER_CHANGED.clone_into(&mut check.hint);
    }
    if gps.is_some_and(|gps| gps.spec.rollout.paused) {
        checks.push(
            well(CREDENTIALS, "paused", "the rollout is paused")
                .warn("resume it with `kubectl globalps resume`"),
        );
    }
    checks
}

/// The report of a controller that runs is not about what is in the cluster now. `None` where another line says why.
pub(crate) fn outdated(facts: &Facts, seen: &Installed, now: Timestamp) -> Option<Check> {
    let runs = Health::of(seen, now).controller.state != State::Unhealthy;
    let status = facts.gps().and_then(|gps| gps.status.as_ref());
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    // It can't see the configuration or the Secret.
    let is_unseen = conditions.any(|found| {
        [condition::READY, condition::ADDITIONAL_VALID].contains(&found.type_.as_str())
            && ["Unreadable", "Forbidden"].contains(&found.reason.as_str())
    });
    (runs && !is_unseen && is_outdated(facts)).then(|| {
        line(
            "report",
            "the controller has not reported on the pull secrets as they are now",
        )
        .fail("see the log of the controller that leads: `kubectl -n globalps-system logs deployment/globalps-controller --all-pods`; `kubectl globalps install` writes its permissions again")
    })
}

/// `None` if another condition or a line about the nodes reports it.
#[expect(clippy::too_many_lines, reason = "one table")]
pub(super) fn of_condition(found: &Condition) -> Option<Check> {
    match found.type_.as_str() {
        condition::ADDITIONAL_VALID => Some(valid(
            "additional-invalid",
            "the additional pull secret",
            found,
            match found.reason.as_str() {
                "Forbidden" => "`kubectl globalps install` grants it again",
                "Unreadable" => "the last valid content stays in force; the controller tries again",
                _ => {
                    "the last valid content stays in force; fix the Secret, or go back to that content with `kubectl globalps undo`"
                }
            },
        )),
        condition::ORIGINAL_VALID => Some(valid(
            "original-invalid",
            "the original pull secret",
            found,
            match found.reason.as_str() {
                "Forbidden" => {
                    "`kubectl globalps install --original NAMESPACE/NAME` grants it"
                }
                "Unreadable" => "the last valid content stays in force; the controller tries again",
                _ => "globalps ignores the bad entries; the owner of the Secret must fix them",
            },
        )),
        condition::SOURCES_VALID => Some(valid(
            "sources-invalid",
            "a Secret in `spec.sources`",
            found,
            match found.reason.as_str() {
                "Forbidden" => "`kubectl globalps install --source NAME` grants it",
                "Absent" => "create the Secret, or remove it from `spec.sources`",
                "Unreadable" => "the last valid content stays in force; the controller tries again",
                _ => "the owner of the Secret must fix it; the other sources are in force",
            },
        )),
        condition::DEGRADED => match found.reason.as_str() {
            "RolledBack" => Some(line("rolled-back", &found.message).fail(
                "change it with `kubectl globalps add`, or go back with `kubectl globalps undo`",
            )),
            "RolloutHalted" => {
                let message = format!("the rollout stopped: {}", found.message);
                Some(line(HALTED, &message).fail(
                    "fix these nodes and run `kubectl globalps retry`, or go back with `kubectl globalps undo`",
                ))
            }
            "Unreadable" => Some(line("unreadable", &found.message).fail(
                "correct the field with `kubectl edit`; until then the last version that could be read stays in force, and other objects are not affected",
            )),
            "ReconcileFailed" => Some(line("reconcile-failed", &found.message).fail(
                "see the log of the controller that leads: `kubectl -n globalps-system logs deployment/globalps-controller --all-pods`",
            )),
            "ConfigFileDiffers" => Some(line("config-file-differs", &found.message).warn(
                "`kubectl globalps install --restore-configuration` brings the GlobalPullSecret back as it was: the field can't be changed; to move the file, clean up with `kubectl globalps remove --all --wait`, also with `--source NAME` for each source, then delete and recreate the GlobalPullSecret",
            )),
            "ProviderPathsDiffer" => Some(line("provider-paths-differ", &found.message).warn(
                "restore `spec.kubelet.credentialProvider`, or set `delivery: ConfigFile` and wait before you change it",
            )),
            _ => None,
        },
        condition::CREDENTIALS_EXPIRING if found.status == "True" => {
            let check = line("credentials-expiring", &found.message);
            let hint = renewal(&found.message);
            Some(if found.reason == "Expired" {
                check.fail(hint)
            } else {
                check.warn(hint)
            })
        }
        condition::NAMESPACES_SYNCED => Some(of_namespaces(found)),
        condition::OPERATORS_SYNCED => of_operators(found),
        condition::CREDENTIALS_REJECTED => Some(of_verification(found)),
        condition::OLD_FORGOTTEN => Some(of_old(found)),
        // Pods of an update in progress are expected.
        condition::SYNCERS_HEALTHY if found.status == "False" && found.reason != "RollingOut" => {
            Some(line("syncers-unhealthy", &found.message).fail(
                "the lines about the installation name the pods and the reason; see `kubectl -n kube-system describe daemonset global-pull-secret-syncer`",
            ))
        }
        condition::PROGRESSING => match found.reason.as_str() {
            "Held" if found.message.starts_with(SOURCES_REMOVED) => {
                let message = format!("nothing changes: {}", found.message);
                Some(line("held", &message).fail(REMOVAL_HELD.1))
            }
            "Held" if found.message.starts_with(NO_NODE_SELECTED) => {
                let message = format!("nothing changes: {}", found.message);
                Some(line("held", &message).fail(SELECTOR))
            }
            "Held" if found.message.starts_with(NODES_NOT_SERVED) => {
                Some(line("held", &found.message).fail("`kubectl globalps install`"))
            }
            "Held" => Some(line("held", &format!("nothing changes: {}", found.message)).fail(
                "fix the pull secrets named above, or go back with `kubectl globalps undo`; `kubectl globalps remove --all` removes the additional credentials, with `--source NAME` those of a source",
            )),
            "WaitingForCanary" | "NoCanary" => {
                let message = waits_for_canary(&found.message);
                Some(line("canary-waiting", &message).warn(CANARY))
            }
            _ => None,
        },
        condition::READY => match found.reason.as_str() {
            "NoDelivery" => Some(line("no-delivery", &found.message).fail(
                "`kubectl globalps install --deliver-to-namespaces` delivers to namespaces, `--delivery ConfigFile` to nodes",
            )),
            "NoNodes" => Some(line("no-nodes", &found.message).warn(
                "does `spec.nodeSelector` match a Linux node, and is one of them ready? See `kubectl get nodes --show-labels`",
            )),
            "Synced" | "RollingOut" | "Restoring" | "WaitingForSyncers" => Some(line("rollout", &found.message)),
            _ => None,
        },
        _ => None,
    }
}

fn of_namespaces(found: &Condition) -> Check {
    let check = line("namespaces-synced", &found.message);
    match found.reason.as_str() {
        _ if found.status != "False" => check,
        "RollingOut" => check,
        "Forbidden" => check.fail("`kubectl globalps install --deliver-to-namespaces` grants it"),
        "InvalidSettings" => check.fail("change that field of the GlobalPullSecret; until then the namespaces keep their Secrets"),
        "ForeignSecret" => check.fail(
            "delete that Secret if nothing needs it, or exclude the namespace: `kubectl label namespace NAMESPACE globalps.io/exclude=true`",
        ),
        "Conflict" => check.warn(
            "find the other client in the object's `managedFields`, and stop it or exclude the namespace: `kubectl label namespace NAMESPACE globalps.io/exclude=true`",
        ),
        "WaitingForCanary" => check.warn("`spec.imagePullSecrets.canaryNamespace` must name a namespace that gets the Secret"),
        _ => check.fail("`kubectl globalps status --namespaces` shows each namespace with the reason; the controller tries again"),
    }
}

fn of_old(found: &Condition) -> Check {
    let check = line("old-forgotten", &found.message);
    match found.reason.as_str() {
        "InvalidRequest" => check.warn("`kubectl globalps add REGISTRY -u USER --password-stdin --forget-old` writes it again"),
        "StillInForce" => check.warn("replace the leaked password: `kubectl globalps add REGISTRY -u USER --password-stdin --forget-old`"),
        "NodesHaveOld" => check.warn("`kubectl globalps list --where-old` names every place; the lines about these nodes say what to do"),
        _ => check,
    }
}

fn of_verification(found: &Condition) -> Check {
    match found.status.as_str() {
        "True" => line("credentials-rejected", &found.message).fail(renewal(&found.message)),
        "False" if found.message.is_empty() => line(
            "credentials-rejected",
            "the registries accept the credentials",
        ),
        _ if found.reason == "Verifying" => line("credentials-rejected", &found.message),
        _ => line("credentials-rejected", &found.message)
            .warn("the controller asks with TLS only, never a registry that you use with `--insecure`; check that pods of namespace `globalps-system` reach the others and trust their certificates"),
    }
}

/// `None` if a line for each failure reports it.
fn of_operators(found: &Condition) -> Option<Check> {
    let check = line("operators-synced", &found.message);
    match found.reason.as_str() {
        "OperatorsFailed" => None,
        "Forbidden" => Some(check.fail(super::operators::INSTALL)),
        "NotInstalled" => Some(check.warn(
            "install the Operator Lifecycle Manager, or set `spec.operators.enabled: false`",
        )),
        _ => Some(check),
    }
}

fn valid(name: &'static str, what: &str, found: &Condition, hint: &str) -> Check {
    let message = &found.message;
    match (found.status.as_str(), message.is_empty()) {
        ("False", _) => line(name, &format!("{what} is not valid: {message}")).fail(hint),
        ("True", true) => line(name, &format!("{what} is valid")),
        ("True", false) if found.reason != "NodeFile" => {
            line(name, &format!("{what} is valid: {message}"))
        }
        (_, true) => line(name, &format!("{what} does not exist")),
        (_, false) => line(name, message),
    }
}

fn line(name: &'static str, message: &str) -> Check {
    well(CREDENTIALS, name, message)
}
