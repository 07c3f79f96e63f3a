//! The findings of `check`: one line per check. Pure.

mod credentials;
mod namespaces;
mod nodes;
mod operators;
mod permissions;
mod provider;
mod readmission;
#[cfg(test)]
mod reasons_tests;
mod registries;
mod report;
mod restarts;

use globalps_core::names;
use globalps_core::reasons::{Finding, Severity};
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::controller::how_to_install;
pub(crate) use crate::cluster::{Installed, Sight};
use crate::error::guide;

pub(crate) use credentials::{credentials, outdated};
pub(crate) use namespaces::{
    Delivering, EarlyPod, RoleSeen, WITHOUT_POLICIES, early_pod, install_delivery, names_account,
    namespaces, restore_delivery,
};
pub(crate) use nodes::{Owners, of_nodes};
pub(crate) use operators::operators;
pub(crate) use permissions::{Permission, PermissionScope, permissions, permissions_of_commands};
pub(crate) use provider::{has_scopes, provider};
pub(crate) use readmission::{Labels, readmission, rejected};
pub(crate) use registries::{SecretSeen, answered, questions};
pub(crate) use report::CheckReport;
pub(crate) use restarts::{restarts_kubelets, restarts_often};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckResult {
    Ok,
    Warning,
    Failure,
}

/// One finding. Scripts rely on these fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub group: &'static str,
    pub name: &'static str,
    pub result: CheckResult,
    pub message: String,
    /// The next step; empty if the check passed.
    pub hint: String,
    /// The section of the guide; empty if the check passed.
    pub see: String,
    /// If this is a missing permission: the commands that fail or show less without it.
    #[serde(skip)]
    commands: Vec<&'static str>,
}

fn well(group: &'static str, name: &'static str, message: impl Into<String>) -> Check {
    Check {
        group,
        name,
        result: CheckResult::Ok,
        message: message.into(),
        hint: String::new(),
        see: String::new(),
        commands: Vec::new(),
    }
}

impl Check {
    fn warn(self, hint: impl Into<String>) -> Self {
        self.not_well(CheckResult::Warning, hint)
    }

    fn fail(self, hint: impl Into<String>) -> Self {
        self.not_well(CheckResult::Failure, hint)
    }

    /// The check's name is also an anchor in the guide.
    fn not_well(self, result: CheckResult, hint: impl Into<String>) -> Self {
        Self {
            result,
            hint: hint.into(),
            see: guide(self.name),
            ..self
        }
    }
}

/// The finding for an entry of the catalogue.
fn found(group: &'static str, finding: &Finding, message: impl Into<String>) -> Check {
    let check = well(group, finding.section, message);
    match finding.severity {
        Severity::Info => check,
        Severity::Warning => check.warn(finding.hint),
        Severity::Error => check.fail(finding.hint),
    }
}

const CLUSTER: &str = "cluster";
const INSTALLATION: &str = "installation";

pub(crate) fn unreachable(message: &str, hint: &str) -> Check {
    well(CLUSTER, "api", message).fail(hint)
}

/// `minor`: the server's minor version.
pub(crate) fn server(version: &str, minor: Option<u32>) -> Vec<Check> {
    /// The first version with admission policies, which reject assignments by other clients.
    const OLDEST: u32 = 30;
    let reached = well(CLUSTER, "api", "the API server responds");
    let version_of = well(CLUSTER, "version", format!("Kubernetes {version}"));
    let version_of = match minor {
        Some(minor) if minor < OLDEST => {
            version_of.fail("globalps needs Kubernetes 1.30 or newer; upgrade the cluster")
        }
        _ => version_of,
    };
    vec![reached, version_of]
}

/// `namespace`: of the pull secrets.
pub(crate) fn installation(seen: &Installed, namespace: &str, now: Timestamp) -> Vec<Check> {
    let mut checks = Vec::new();
    let crds = |message| well(INSTALLATION, "custom-resources", message);
    checks.push(match seen.crds {
        Sight::Here(()) => crds("the custom resources exist"),
        Sight::Absent => crds("the custom resources don't exist").fail(how_to_install(namespace)),
        Sight::Hidden => crds("the custom resources can't be seen")
            .warn("ask an administrator of the cluster for the role `globalps-viewer`"),
    });
    let controller = |message: String| well(INSTALLATION, "controller", message);
    checks.push(match &seen.controller {
        Sight::Here(found) if found.ready > 0 => {
            controller(format!("the controller runs: `{}`", found.image))
        }
        Sight::Here(found) => {
            let cause = seen.cause().cloned();
            let why = cause.unwrap_or_else(|| format!("`{}`", found.image));
            controller(format!("the controller does not run: {why}")).fail(seen.repair())
        }
        Sight::Absent => {
            controller("there is no controller".to_owned()).fail(how_to_install(namespace))
        }
        Sight::Hidden => controller("the controller's Deployment can't be seen".to_owned())
            .warn("ask a user with access to namespace `globalps-system`"),
    });
    checks.extend(lease(seen, now));
    checks.extend(syncer(seen));
    checks
}

const NO_LEADER: &str = "a controller that has just started leads within 15 seconds; if this lasts, see `kubectl -n globalps-system logs deployment/globalps-controller --all-pods`";

fn lease(seen: &Installed, now: Timestamp) -> Option<Check> {
    // Another finding reports that the controller does not run.
    match &seen.controller {
        Sight::Absent => return None,
        Sight::Here(found) if found.ready == 0 => return None,
        Sight::Here(_) | Sight::Hidden => {}
    }
    let lease = |message: String| well(INSTALLATION, "lease", message);
    Some(match &seen.lease {
        // A leader that shuts down releases the lease like this.
        Sight::Here(found) if found.holder.is_empty() => {
            lease("no controller leads".to_owned()).fail(NO_LEADER)
        }
        Sight::Here(found) if found.is_current(now) => lease(format!("`{}` leads", found.holder)),
        Sight::Here(found) => {
            lease(format!("the lease of `{}` has expired", found.holder)).fail(NO_LEADER)
        }
        Sight::Absent => lease("no controller holds the lease".to_owned())
            .warn("it acquires the lease when it starts; check again, or see its log"),
        Sight::Hidden => lease("the lease can't be seen".to_owned())
            .warn("ask a user with access to namespace `globalps-system`"),
    })
}

fn syncer(seen: &Installed) -> Vec<Check> {
    let pods = |message: String| well(INSTALLATION, "syncer-pods", message);
    let mut checks = Vec::new();
    match &seen.syncer {
        Sight::Here(found) if !found.ours => checks.push(
            well(
                INSTALLATION,
                "hypershift",
                format!("DaemonSet `{}` does not belong to globalps", names::SYNCER),
            )
            .warn("it belongs to HyperShift; both would write the same file, so use only one"),
        ),
        Sight::Here(found) if found.ready < found.wanted => {
            let mut message = format!("{} of {} syncers are ready", found.ready, found.wanted);
            let of_nodes = seen.of_nodes(found);
            if let Some((nodes, _)) = &of_nodes {
                message.extend([": ", nodes]);
            }
            checks.push(pods(message).warn(match of_nodes {
                _ if !seen.pod_errors.is_empty() => "the next line names the reason",
                Some((_, true)) => {
                    "a syncer is ready again when its node is; `kubectl describe nodes` shows why one is not"
                }
                _ => {
                    "if it lasts, see `kubectl -n kube-system describe pods -l name=global-pull-secret-syncer`"
                }
            }));
        }
        Sight::Here(found) => checks.push(pods(format!("all {} syncers are ready", found.wanted))),
        Sight::Absent if seen.needs_syncers => checks.push(
            pods(format!(
                "DaemonSet `{}` does not exist, so no node changes",
                names::SYNCER
            ))
            .fail("the controller creates it again; see whether it runs"),
        ),
        Sight::Absent => checks.push(pods(
            "no syncers, because there is nothing to sync".to_owned(),
        )),
        Sight::Hidden => checks.push(
            pods("the syncers can't be seen".to_owned())
                .warn("ask a user who may list DaemonSets in the Secrets' namespace"),
        ),
    }
    checks.extend(
        seen.pod_errors
            .iter()
            .map(|error| well(INSTALLATION, error.name(), error.message()).fail(error.hint())),
    );
    checks
}

#[cfg(test)]
#[path = "check/tests.rs"]
mod tests;
