//! Nodes with errors, and other programs that manage their files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use globalps_core::api::{NodePullSecret, Phase};

use super::{Check, well};
use crate::terminal::layout::nodes;

const NODES: &str = "nodes";

/// Other programs that manage the nodes' credentials, detected on the Nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    pub hypershift: u32,
    /// Those of them that a Machine Config Daemon updates in place.
    pub in_place: u32,
    pub machine_config: u32,
}

pub(crate) fn of_nodes<'a>(
    objects: impl Iterator<Item = (&'a String, &'a NodePullSecret)>,
    (unreachable, unsupported): (&[&str], &[&str]),
    owners: Owners,
) -> Vec<Check> {
    let mut checks = Vec::new();
    if owners.machine_config > 0 {
        checks.push(
            well(
                NODES,
                "machine-config-operator",
                format!("the Machine Config Operator manages the file of {}", nodes(owners.machine_config)),
            )
            .warn("change `openshift-config/pull-secret` there: `oc set data secret/pull-secret -n openshift-config --from-file=.dockerconfigjson=FILE`"),
        );
    }
    if owners.hypershift > 0 {
        let mut message = format!("{} of HyperShift", nodes(owners.hypershift));
        if owners.in_place > 0 {
            let _ = write!(
                message,
                "; a Machine Config Daemon updates {} in place, and globalps leaves its file alone meanwhile",
                nodes(owners.in_place)
            );
        }
        checks.push(well(NODES, "hypershift", message));
    }
    if !unsupported.is_empty() {
        let message = format!(
            "{}: no syncer can run there, or none ever has; nobody waits for these nodes, and `kubectl globalps status -o wide` shows why",
            named(unsupported)
        );
        checks.push(well(NODES, "nodes-unsupported", message));
    }
    // By error, and for errors with many causes also by the node's message.
    let mut errors: BTreeMap<(&'static str, &str), Vec<&str>> = BTreeMap::new();
    let mut total = 0_u32;
    for (name, object) in objects {
        total += 1;
        if let Some(error) = error(object) {
            let message = match (error, &object.status) {
                ("node-provider" | "node-provider-config" | "node-unreadable", Some(status)) => {
                    &status.message
                }
                _ => "",
            };
            errors.entry((error, message)).or_default().push(name);
        }
    }
    if !unreachable.is_empty() {
        errors.insert(("node-unreachable", ""), unreachable.to_vec());
    }
    for ((name, message), affected) in &errors {
        let mut check = told(name, affected);
        if !message.is_empty() {
            check.message.extend([": ", message]);
        }
        checks.push(check);
    }
    if total > 0 && errors.is_empty() {
        checks.push(well(
            NODES,
            "nodes",
            format!("{}, none with an error", nodes(total)),
        ));
    }
    checks
}

/// The check that reports the node's error.
pub(super) fn error(object: &NodePullSecret) -> Option<&'static str> {
    let status = object.status.as_ref()?;
    match (&status.phase, status.reason.as_str()) {
        (_, "SystemBusUnavailable") => Some("node-bus"),
        (_, "SystemdError") => Some("node-systemd"),
        (_, "KubeletUnit") => Some("node-unit"),
        (_, "KubeletDown") => Some("node-kubelet-down"),
        (_, "AnotherSyncer") => Some("node-two-syncers"),
        (_, "StateTooNew" | "StateDamaged") => Some("node-state"),
        (_, "StateLost") => Some("node-state-lost"),
        (_, "SecretNotRead") => Some("node-secret"),
        (_, "FileQuarantined") => Some("node-file-quarantined"),
        (_, "DriftRepaired") => Some("node-drift"),
        (_, "ProviderNotPossible") => Some("node-provider"),
        (_, "ForeignProviderConfig") => Some("node-provider-config"),
        (_, "ProviderFailed") => Some("node-provider-failed"),
        (
            _,
            "DiskFull" | "ReadOnlyDisk" | "ImmutableFile" | "NotARegularFile" | "NoDirectory"
            | "NotPermitted" | "FileError" | "FileTooLarge",
        ) => Some("node-disk"),
        (_, "ManagedFile") => Some("managed-file"),
        (_, "SteppedAside") => Some("node-update"),
        (Phase::RolledBack, _) => Some("node-rolled-back"),
        (Phase::ForeignOwner, _) => Some("foreign-owner"),
        (Phase::Failed, _) => Some("node-failed"),
        (Phase::Unreadable, _) => Some("node-unreadable"),
        _ => None,
    }
}

/// At most three of them.
fn named(nodes: &[&str]) -> String {
    match nodes {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}

#[expect(clippy::too_many_lines, reason = "one table")]
pub(super) fn told(name: &'static str, affected: &[&str]) -> Check {
    let who = named(affected);
    let (what, hint, grave) = match name {
        "node-bus" => (
            "the node's system bus is not available, so the kubelet can't be restarted",
            "look at `systemctl status dbus` on the node",
            true,
        ),
        "node-systemd" => (
            "systemd on the node answers with an error, so the kubelet can't be restarted",
            "`kubectl globalps status -o wide` shows the error; the node continues when systemd answers without one",
            true,
        ),
        "node-unit" => (
            "the kubelet's unit is masked, doesn't exist, is unclear, or runs no kubelet",
            "name it in `spec.kubelet.unit`, or unmask it on the node",
            true,
        ),
        "node-kubelet-down" => (
            "the kubelet is down: it starts neither with the new nor with the previous file",
            "look at `journalctl -u kubelet` on the node",
            true,
        ),
        "node-unreadable" => (
            "the NodePullSecret can't be read, so the node gets nothing new; other nodes are not affected",
            "`kubectl get nodepullsecret NODE -n kube-system -o yaml` shows the field: correct it, or delete the object, and the controller creates it again",
            true,
        ),
        "node-rolled-back" => (
            "the kubelet did not start with the new file; the previous file is restored",
            "look at `journalctl -u kubelet` on the node, then `kubectl globalps retry` or `undo`",
            true,
        ),
        "node-disk" => (
            "the file can't be written",
            "`kubectl globalps status -o wide` names the error; repair it, then `kubectl globalps retry`",
            true,
        ),
        "node-two-syncers" => (
            "another syncer works on the node, or another process holds its lock",
            "is there a second DaemonSet of globalps, perhaps in another namespace? Delete it; otherwise end the process that has `.globalps.lock` open on the node",
            true,
        ),
        "node-state" => (
            "globalps can't read its state on the node, so it changes nothing",
            "`kubectl globalps status -o wide` names the file and shows whether it is damaged or from a newer version",
            true,
        ),
        "node-state-lost" => (
            "the state of globalps on the node was lost, so entries that globalps may have written stay there after a restore",
            "`kubectl globalps status -o wide` names them; after a restore, remove those that are not the node's own",
            false,
        ),
        "node-secret" => (
            "the node can't read Secret `global-pull-secret`",
            "`kubectl globalps status -o wide` shows the reason; the node tries again by itself",
            false,
        ),
        "node-file-quarantined" => (
            "the node's file was not a valid credentials file; globalps kept a copy and wrote a new one",
            "`kubectl globalps status -o wide` names the copy; check its content, then delete it",
            false,
        ),
        "node-drift" => (
            "another process changed the file, and globalps restored it",
            "find that process; `kubectl globalps status -o wide` shows how often it happened",
            false,
        ),
        "node-provider" => (
            "the credential provider can't be set up, so the credentials file stays in use",
            "follow the message on the node, or set the paths of the kubelet's flags in `spec.kubelet.credentialProvider`",
            false,
        ),
        "node-provider-failed" => (
            "the credential provider does not work with the new content; the node keeps the previous content",
            "`kubectl globalps status -o wide` shows the reason; then run `kubectl globalps retry` or `undo`",
            true,
        ),
        "node-provider-config" => (
            "globalps can't read the kubelet's configuration of credential providers, so it doesn't change it",
            "fix that file on the node; until then the credentials file stays in use",
            false,
        ),
        "managed-file" => (
            "another program manages the file, so globalps doesn't change it",
            "let that program write the credentials; `kubectl globalps status -o wide` shows how",
            false,
        ),
        "node-update" => (
            "the Machine Config Daemon updates the node, so globalps leaves its file alone",
            "it gets its credentials again after the update; `kubectl get node NODE -o yaml` shows the update in its annotations `machineconfiguration.openshift.io/...`",
            false,
        ),
        "foreign-owner" => (
            "another process keeps changing the file",
            "find that process with `kubectl globalps status -o wide`, stop it, then run `kubectl globalps retry`",
            false,
        ),
        "node-unreachable" => (
            "the node is not Ready, or its syncer doesn't run or doesn't respond",
            "`kubectl globalps status -o wide` shows which; it gets the credentials when both are well again",
            false,
        ),
        _ => (
            "the node failed",
            "`kubectl globalps status -o wide` shows the reason; then run `kubectl globalps retry`",
            true,
        ),
    };
    let check = well(NODES, name, format!("{who}: {what}"));
    if grave {
        check.fail(hint)
    } else {
        check.warn(hint)
    }
}
