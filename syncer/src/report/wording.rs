//! Reasons and messages of a node's status.

use globalps_core::api::Phase;
use globalps_core::names::MACHINE_CONFIG_OPERATOR;
use globalps_core::reasons::Reason;

use crate::node::drift::{CONFLICT_WINDOW, MAX_CONFLICTS};
use crate::node::state::FailedTask;

/// Message for a file that another program is known to manage.
pub(crate) fn foreign_owner(owner: &str) -> String {
    let way_on = if owner == MACHINE_CONFIG_OPERATOR {
        "change the cluster's own pull secret instead, with `oc set data secret/pull-secret -n openshift-config \
         --from-file=.dockerconfigjson=FILE`"
    } else {
        "let it write the credentials, or exclude this node"
    };
    format!(
        "{owner} manages the kubelet's credentials file on this node, so globalps does not change it: {way_on}"
    )
}

/// Message for a node during an update that compares the file with its own.
pub(crate) fn stepped_aside() -> &'static str {
    "the Machine Config Daemon updates this node and compares the kubelet's credentials file with its own, so globalps does not \
     change it; the node gets its credentials again after the update, when `machineconfiguration.openshift.io/state` is `Done` and \
     `desiredConfig` equals `currentConfig`"
}

/// Message while the controller is asked about a file that another program wrote.
pub(crate) fn unconfirmed() -> &'static str {
    "another program wrote the kubelet's credentials file; globalps replaces it once the controller has seen that no Machine Config \
     Daemon updates the node"
}

/// Message for a node whose state was lost while globalps had entries in its file.
pub(crate) fn state_lost(keys: &[String]) -> String {
    let keys = keys.join("`, `");
    format!(
        "the state of globalps on this node was lost, so it can't tell whether it wrote these entries or the node had them: `{keys}`. A \
         restore leaves them in the credentials file; remove them from it then if they are not the node's own"
    )
}

/// Phase, reason and message of a failed task.
pub(crate) fn failure(failure: &FailedTask) -> (Phase, Reason, String) {
    let (phase, reason, way_on) = if failure.stuck {
        (
            Phase::Failed,
            Reason::KubeletDown,
            "globalps keeps starting it; see the kubelet's journal on the node",
        )
    } else if failure.is_of_provider {
        (
            Phase::RolledBack,
            Reason::ProviderFailed,
            "the previous credentials are back; new content is tried again",
        )
    } else if failure.recovered {
        (
            Phase::RolledBack,
            Reason::KubeletRecovered,
            "the previous file is back and the kubelet runs again; new content is tried again",
        )
    } else {
        (
            Phase::RolledBack,
            Reason::KubeletDidNotStart,
            "the previous file is back and the kubelet runs; new content is tried again",
        )
    };
    (phase, reason, format!("{}; {way_on}", failure.error))
}

/// Message for a node that can't use the credential provider.
pub(crate) fn obstacle(error: &str) -> String {
    format!(
        "{error}; until this is resolved the credentials file has the credentials for every pod"
    )
}

/// Message for a file that globalps no longer restores.
pub(crate) fn conflicts() -> String {
    format!(
        "another process changed the managed entries {MAX_CONFLICTS} times within {} minutes, so globalps stopped restoring them. \
         Stop that process and run `kubectl globalps retry`, or exclude this node. It may be a configuration management agent, \
         or the OpenShift Machine Config Operator (then use `oc set data secret/pull-secret -n openshift-config`)",
        CONFLICT_WINDOW.as_secs() / 60
    )
}

/// Message for a node whose managed entries were restored this often.
pub(crate) fn drifts(times: i64) -> String {
    let times = if times == 1 {
        "once".to_owned()
    } else {
        format!("{times} times")
    };
    format!("another process changed the managed entries {times}; globalps restored them")
}

/// Message for a file that others could read before globalps.
pub(crate) fn mode_narrowed(mode: u32) -> String {
    format!(
        "the file's mode was {mode:04o}; while it has managed entries, only its owner may read it; a restore sets {mode:04o} again"
    )
}
