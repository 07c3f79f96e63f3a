//! Reasons of nodes, which their syncers write into `NodePullSecret`s.

use super::{Finding, Of, error, warning};

pub(super) const ROLLED_BACK: Finding = error(
    "node-rolled-back",
    "the kubelet did not start with the new file; the previous file is restored",
    "look at `journalctl -u kubelet` on the node, then `kubectl globalps retry` or `undo`",
);
pub(super) const FOREIGN_OWNER: Finding = warning(
    "foreign-owner",
    "another process keeps changing the file",
    "find that process with `kubectl globalps status -o wide`, stop it, then run `kubectl globalps retry`",
);
pub(super) const FAILED: Finding = error(
    "node-failed",
    "the node failed",
    "`kubectl globalps status -o wide` shows the reason; then run `kubectl globalps retry`",
);
/// The controller can't decode its object, so it has no reason.
pub(super) const UNREADABLE: Finding = error(
    "node-unreadable",
    "the NodePullSecret can't be read, so the node gets nothing new; other nodes are not affected",
    "`kubectl get nodepullsecret NODE -n kube-system -o yaml` shows the field: correct it, or delete the object, and the controller creates it again",
);
/// The node can't report anything itself.
pub const NODE_UNREACHABLE: Finding = warning(
    "node-unreachable",
    "the node is not Ready, or its syncer doesn't run or doesn't respond",
    "`kubectl globalps status -o wide` shows which; it gets the credentials when both are well again",
);
const DISK: Finding = error(
    "node-disk",
    "the file can't be written",
    "`kubectl globalps status -o wide` names the error; repair it, then `kubectl globalps retry`",
);
const STATE: Finding = error(
    "node-state",
    "globalps can't read its state on the node, so it changes nothing",
    "`kubectl globalps status -o wide` names the file and shows whether it is damaged or from a newer version",
);
const KUBELET_DOWN: Finding = error(
    "node-kubelet-down",
    "the kubelet is down: it starts neither with the new nor with the previous file",
    "look at `journalctl -u kubelet` on the node",
);
const BUS: Finding = error(
    "node-bus",
    "the node's system bus is not available, so the kubelet can't be restarted",
    "look at `systemctl status dbus` on the node",
);
const SYSTEMD: Finding = error(
    "node-systemd",
    "systemd on the node answers with an error, so the kubelet can't be restarted",
    "`kubectl globalps status -o wide` shows the error; the node continues when systemd answers without one",
);
const UNIT: Finding = error(
    "node-unit",
    "the kubelet's unit is masked, doesn't exist, is unclear, or runs no kubelet",
    "name it in `spec.kubelet.unit`, or unmask it on the node",
);
const TWO_SYNCERS: Finding = error(
    "node-two-syncers",
    "another syncer works on the node, or another process holds its lock",
    "is there a second DaemonSet of globalps, perhaps in another namespace? Delete it; otherwise end the process that has `.globalps.lock` open on the node",
);
const LOST: Finding = warning(
    "node-state-lost",
    "the state of globalps on the node was lost, so entries that globalps may have written stay there after a restore",
    "`kubectl globalps status -o wide` names them; after a restore, remove those that are not the node's own",
);
const SECRET: Finding = warning(
    "node-secret",
    "the node can't read Secret `global-pull-secret`",
    "`kubectl globalps status -o wide` shows the reason; the node tries again by itself",
);
const QUARANTINED: Finding = warning(
    "node-file-quarantined",
    "the node's file was not a valid credentials file; globalps kept a copy and wrote a new one",
    "`kubectl globalps status -o wide` names the copy; check its content, then delete it",
);
const DRIFT: Finding = warning(
    "node-drift",
    "another process changed the file, and globalps restored it",
    "find that process; `kubectl globalps status -o wide` shows how often it happened",
);
const PROVIDER: Finding = warning(
    "node-provider",
    "the credential provider can't be set up, so the credentials file stays in use",
    "follow the message on the node, or set the paths of the kubelet's flags in `spec.kubelet.credentialProvider`",
);
const PROVIDER_FAILED: Finding = error(
    "node-provider-failed",
    "the credential provider does not work with the new content; the node keeps the previous content",
    "`kubectl globalps status -o wide` shows the reason; then run `kubectl globalps retry` or `undo`",
);
const PROVIDER_CONFIG: Finding = warning(
    "node-provider-config",
    "globalps can't read the kubelet's configuration of credential providers, so it doesn't change it",
    "fix that file on the node; until then the credentials file stays in use",
);
const MANAGED: Finding = warning(
    "managed-file",
    "another program manages the file, so globalps doesn't change it",
    "let that program write the credentials; `kubectl globalps status -o wide` shows how",
);
const UPDATE: Finding = warning(
    "node-update",
    "the Machine Config Daemon updates the node, so globalps leaves its file alone",
    "it gets its credentials again after the update; `kubectl get node NODE -o yaml` shows the update in its annotations `machineconfiguration.openshift.io/...`",
);

const CONFIRMATION: Finding = warning(
    "node-confirmation",
    "the syncer waits for the controller before it replaces a file that another program wrote",
    "if this lasts longer than a few seconds, see whether the controller runs: `kubectl globalps status`",
);
const OUTDATED: Finding = warning(
    "node-file-outdated",
    "the node's file lacks credentials that the program which writes it should have delivered",
    "`kubectl globalps status -o wide` names the registries; HyperShift's syncer looks every 30 seconds, and doesn't run on nodes of InPlace NodePools; on standalone OpenShift, `oc get machineconfigpools` shows a paused or degraded pool",
);
const RENDERED: Finding = warning(
    "node-machine-config",
    "the Machine Config Operator has not brought the pull secret to the node",
    "`oc get machineconfigpools` shows how far its pool is, or that it is paused; `oc describe node` why a node is degraded",
);
const UNUSABLE: Finding = error(
    "node-file-unusable",
    "the kubelet can't read the node's file, which another program writes",
    "`kubectl globalps status -o wide` shows why; repair what writes the file",
);
const UNMERGED: Finding = warning(
    "node-merge",
    "Secret `global-pull-secret` does not have the pull secret's content yet",
    "HyperShift's controller merges it: usually within seconds, and its log on the management cluster shows what keeps it; with the delivery `OpenShift`, the condition `PullSecretSynced` says what is missing",
);

const SYNCING: Of = ("Syncing", "");
const UNDER_WAY: Of = ("Syncing, Restoring", "");
const SYNCED: Of = ("Synced", "");
const DONE: Of = ("Synced, Restored", "");
const BACK: Of = ("RolledBack", "");
const FAILS: Of = ("Failed", "");
const FOREIGN: Of = ("ForeignOwner", "");
const ASIDE: Of = ("SteppedAside", "");

rows! { /** Of a `NodePullSecret`. */ NODES
    BACK => KubeletDidNotStart, Some(ROLLED_BACK),
        "The kubelet did not come up with the new file, three times. The old file is restored and the kubelet runs. The node does not retry this revision until `kubectl globalps retry`; it tries new content. `kubectl globalps undo` goes back to the last content. Meanwhile the syncer maintains what is in force, as on a `Synced` node, but without a restart";
    BACK => KubeletRecovered, Some(ROLLED_BACK),
        "The node was `KubeletDown`. The previous file is back and the kubelet runs again. Everything else is as with `KubeletDidNotStart`";
    BACK => ProviderFailed, Some(PROVIDER_FAILED),
        "The installed credential provider did not return what the new content requires. The previous credentials are back";
    FAILS => KubeletDown, Some(KUBELET_DOWN),
        "The kubelet starts neither with the new nor with the previous file. The syncer resets the unit and starts it again until it serves. You only need to repair the cause";
    FAILS => DiskFull, Some(DISK), "The disk is full";
    FAILS => ReadOnlyDisk, Some(DISK), "The file system is read-only";
    FAILS => ImmutableFile, Some(DISK), "The file has the attribute `immutable`";
    FAILS => NotARegularFile, Some(DISK), "The file is a symbolic link, a directory or something else";
    FAILS => FileTooLarge, Some(DISK), "The file is larger than 4 MiB, or would be";
    FAILS => NotPermitted, Some(DISK),
        "The file is not owned by root, and the syncer can't keep the owner; or a policy of the node forbids the write";
    FAILS => NoDirectory, Some(DISK), "The directory of the file is missing";
    FAILS => FileError, Some(DISK), "Any other error of a file";
    FAILS => StateDamaged, Some(STATE), "The syncer's state on the node can't be decoded";
    FAILS => StateTooNew, Some(STATE), "A newer syncer wrote the state on the node";
    FAILS => KubeletUnit, Some(UNIT), "The kubelet's unit is masked, missing, unclear, or runs no kubelet";
    FAILS => SystemBusUnavailable, Some(BUS), "The node's system bus does not respond";
    FAILS => SystemdError, Some(SYSTEMD), "systemd answers with an error";
    FAILS => AnotherSyncer, Some(TWO_SYNCERS), "Another process holds the node's lock";
    ("Failed, Synced", "") => ForeignProviderConfig, Some(PROVIDER_CONFIG),
        "The kubelet's configuration of credential providers can't be parsed. The credentials file stays in use";
    SYNCED => ProviderNotPossible, Some(PROVIDER), "The credential provider can't be set up. The credentials file stays in use";
    SYNCED => DriftRepaired, Some(DRIFT),
        "Another process changed the managed entries, and the syncer restored them. The other process's value of an entry is kept in `state.json`, and a restore of the node returns it";
    SYNCED => ModeNarrowed, None,
        "Other users could read the credentials file. While it contains managed entries, only its owner can; a restore sets the old mode again. A process on the node that reads the file as another user needs credentials of its own";
    SYNCED => RestartNever, None, "`spec.kubelet.restart` is `Never`: the kubelet picks up the file within 5 minutes";
    SYNCED => RestartNotPossible, None,
        "The kubelet runs in no unit that globalps may restart, and picks up the file within 5 minutes. See [node-unit](#node-unit)";
    DONE => FileQuarantined, Some(QUARANTINED), "The node's own file could not be parsed. The message has the name of the copy";
    DONE => StateLost, Some(LOST),
        "There was no state on a node on which globalps had worked. Entries that globalps may have written stay after a restore";
    FOREIGN => ConflictLimit, Some(FOREIGN_OWNER),
        "Five conflicts within ten minutes: globalps leaves the file alone until the next revision or `kubectl globalps retry`. With `delivery: CredentialProvider` a kubelet does not start if its flags name an absent file: the syncer still writes absent files again, without a restart, and takes its flags back if it can't or after five more conflicts. Where the process takes out the flags or the configuration, the node gets the credentials file instead";
    FOREIGN => ManagedFile, Some(MANAGED),
        "OpenShift's Machine Config Operator manages the file (an annotation of the Node shows it). globalps never changes such nodes, and they don't block others. Change `openshift-config/pull-secret` instead; the message has the command";
    ASIDE => UpdatedInPlace, Some(UPDATE),
        "The Machine Config Daemon of a HyperShift node updates it and compares the file. globalps has restored the node's own file and continues after the update. This is no failure: rollouts don't wait for the node, `Ready` names it, and nothing is `Degraded` before an hour has passed";
    SYNCING => SecretNotRead, Some(SECRET), "The node can't read the Secret `global-pull-secret`. Content in force stays in force";
    SYNCING => Superseded, None,
        "The assigned revision is no longer available. The node has changed nothing, and gets the newest one";
    SYNCING => WaitingForMerge, Some(UNMERGED),
        "Another program merges the pull secrets, and its Secret `global-pull-secret` does not have the assigned revision yet, or has changed since it was assigned";
    UNDER_WAY => FileOutdated, Some(OUTDATED),
        "Another program writes the node's file, and that doesn't have the credentials yet; or still has them, after a removal. The message names the registries";
    UNDER_WAY => WaitingForMachineConfig, None,
        "The Machine Config Operator writes the node's file, and has not written the change yet. It renders a configuration for each pool and then goes from node to node, usually within minutes";
    UNDER_WAY => PoolPaused, Some(RENDERED),
        "The Machine Config Operator writes the node's file, and the node's pool is paused: the change waits until `oc patch machineconfigpool POOL --type merge -p '{\"spec\":{\"paused\":false}}'`";
    UNDER_WAY => NodeDegraded, Some(RENDERED),
        "The Machine Config Operator writes the node's file, and reports that it can't bring the node to its configuration. The Node's annotation `machineconfiguration.openshift.io/reason` says why; globalps does not show it, because it can contain the file";
    SYNCED => InForceWithinFiveMinutes, None,
        "The Machine Config Operator wrote the file less than 5 minutes ago and restarts no kubelet: until then a kubelet may pass an old password to CRI-O";
    UNDER_WAY => FileUnusable, Some(UNUSABLE),
        "Another program writes the node's file, and a kubelet can't read it";
    UNDER_WAY => WaitingForConfirmation, Some(CONFIRMATION),
        "Another program wrote the file of a node that a Machine Config Daemon may update in place. The syncer replaces the file once the controller has seen that no update runs, usually within a second";
    UNDER_WAY => RestartDelayed, None,
        "The file is written. The kubelet was restarted less than 10 seconds ago, so the next restart waits, and later changes share it";
}

rows! {
    /// Reasons of nodes that can't report anything. The controller writes them into the status of the
    /// `GlobalPullSecret`.
    UNSUPPORTED
    ("Unsupported", "") => VirtualNode, None,
        "A label or taint says that no machine is behind the node: AWS Fargate, Virtual Kubelet, KWOK or Liqo. Their pods get credentials by [pull secrets in namespaces](user-guide.md#pull-secrets-in-namespaces)";
    ("Unsupported, Unreachable", "") => NoSyncer, None,
        "The Node is Ready, and no syncer has run there for 5 minutes, nor before. The message is the pod's own reason, such as `ErrImagePull` or `Unschedulable`. When the pod runs, the node gets its credentials like the others. If no syncer can ever run there, exclude the node: `kubectl label node NODE globalps.io/exclude=true`";
}
