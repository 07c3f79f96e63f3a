//! Nodes in trouble, and who else manages them.

use std::collections::BTreeMap;

use globalps_core::api::{NodePullSecret, Phase};

use super::{Check, well};
use crate::table::nodes;

const NODES: &str = "nodes";

/// Who else manages the nodes' credentials, by what is written on the Nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    pub hypershift: u32,
    pub machine_config: u32,
}

pub(crate) fn of_nodes<'a>(
    objects: impl Iterator<Item = (&'a String, &'a NodePullSecret)>,
    unreachable: &[&str],
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
        checks.push(well(
            NODES,
            "hypershift",
            format!(
                "{} of HyperShift, whose files nobody else manages",
                nodes(owners.hypershift)
            ),
        ));
    }
    // By the trouble, and where that has many causes, by the node's own message.
    let mut troubles: BTreeMap<(&'static str, &str), Vec<&str>> = BTreeMap::new();
    let mut total = 0_u32;
    for (name, object) in objects {
        total += 1;
        if let Some(trouble) = trouble(object) {
            let message = match (trouble, &object.status) {
                ("node-provider" | "node-provider-config", Some(status)) => &status.message,
                _ => "",
            };
            troubles.entry((trouble, message)).or_default().push(name);
        }
    }
    if !unreachable.is_empty() {
        troubles.insert(("node-unreachable", ""), unreachable.to_vec());
    }
    for ((name, message), affected) in &troubles {
        let mut check = told(name, affected);
        if !message.is_empty() {
            check.message.extend([": ", message]);
        }
        checks.push(check);
    }
    if total > 0 && troubles.is_empty() {
        checks.push(well(
            NODES,
            "nodes",
            format!("{}, none in trouble", nodes(total)),
        ));
    }
    checks
}

/// Which kind of trouble a node is in.
pub(super) fn trouble(object: &NodePullSecret) -> Option<&'static str> {
    let status = object.status.as_ref()?;
    match (&status.phase, status.reason.as_str()) {
        (_, "SystemBusAway") => Some("node-bus"),
        (_, "KubeletUnit") => Some("node-unit"),
        (_, "KubeletDown") => Some("node-kubelet-down"),
        (_, "AnotherSyncer") => Some("node-two-syncers"),
        (_, "StateTooNew" | "StateDamaged") => Some("node-state"),
        (_, "SecretNotRead") => Some("node-secret"),
        (_, "FileSetAside") => Some("node-file-set-aside"),
        (_, "DriftRepaired") => Some("node-drift"),
        (_, "ProviderNotPossible") => Some("node-provider"),
        (_, "ForeignProviderConfig") => Some("node-provider-config"),
        (_, "ProviderFailed") => Some("node-provider-failed"),
        (
            _,
            "DiskFull" | "ReadOnlyDisk" | "ImmutableFile" | "NotARegularFile" | "NoDirectory"
            | "NotPermitted" | "FileError",
        ) => Some("node-disk"),
        (_, "ManagedFile") => Some("managed-file"),
        (Phase::RolledBack, _) => Some("node-rolled-back"),
        (Phase::ForeignOwner, _) => Some("foreign-owner"),
        (Phase::Failed, _) => Some("node-failed"),
        _ => None,
    }
}

pub(super) fn told(name: &'static str, affected: &[&str]) -> Check {
    let who = match affected {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    };
    let (what, hint, grave) = match name {
        "node-bus" => (
            "the node's system bus is away, so no kubelet can be restarted",
            "look at `systemctl status dbus` on the node",
            true,
        ),
        "node-unit" => (
            "the kubelet's unit is masked, not there, or runs no kubelet",
            "name it in `spec.kubelet.unit`, or unmask it on the node",
            true,
        ),
        "node-kubelet-down" => (
            "the kubelet is down: it starts neither with the new nor with the old file",
            "look at `journalctl -u kubelet` on the node",
            true,
        ),
        "node-rolled-back" => (
            "the kubelet did not come up with the new file; the old one is back",
            "look at `journalctl -u kubelet` on the node, then `kubectl globalps retry` or `undo`",
            true,
        ),
        "node-disk" => (
            "the file can't be written",
            "`kubectl globalps status -o wide` names the error; repair it, then `kubectl globalps retry`",
            true,
        ),
        "node-two-syncers" => (
            "another syncer works on the node",
            "is there a second DaemonSet of globalps, perhaps in another namespace? It goes on by itself once that one is gone",
            true,
        ),
        "node-state" => (
            "what globalps keeps of the node can't be read, so nothing is changed",
            "`kubectl globalps status -o wide` names the file, and says whether it is damaged or of a newer version",
            true,
        ),
        "node-secret" => (
            "the node can't read Secret `global-pull-secret`",
            "`kubectl globalps status -o wide` says why; the node tries again by itself",
            false,
        ),
        "node-file-set-aside" => (
            "the node's own file was no credentials file, and is kept beside the new one",
            "`kubectl globalps status -o wide` names it; look what is in it, and delete it",
            false,
        ),
        "node-drift" => (
            "somebody else changed the file, and it was put back",
            "find out who; `kubectl globalps status -o wide` says how often",
            false,
        ),
        "node-provider" => (
            "the credential provider can't be set up, so the credentials file stays in use",
            "do on the node what its message says, or name the paths of its flags in `spec.kubelet.credentialProvider`",
            false,
        ),
        "node-provider-failed" => (
            "the credential provider does not work with the new content; the node has what it had before",
            "`kubectl globalps status -o wide` says why; then `kubectl globalps retry` or `undo`",
            true,
        ),
        "node-provider-config" => (
            "the kubelet's own configuration of credential providers can't be read, so it is left as it is",
            "mend that file on the node; until then the credentials file stays in use",
            false,
        ),
        "managed-file" => (
            "another program manages the file, so it is left to that",
            "let that program write the credentials; `kubectl globalps status -o wide` says how",
            false,
        ),
        "foreign-owner" => (
            "somebody else writes the file again and again",
            "find out who with `kubectl globalps status -o wide`, then `kubectl globalps retry`",
            false,
        ),
        "node-unreachable" => (
            "the node is not ready",
            "it gets the credentials as soon as it is back",
            false,
        ),
        _ => (
            "the node failed",
            "`kubectl globalps status -o wide` says why; then `kubectl globalps retry`",
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
