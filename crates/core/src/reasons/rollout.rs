//! Reasons of the conditions about the rollout to nodes, which the controller writes.

use super::{Finding, NO, YES, error, ok, warning};
use crate::api::condition::{DEGRADED, PROGRESSING, READY, SYNCERS_HEALTHY};

/// No node can be the canary.
pub const CANARY: Finding = warning(
    "canary-waiting",
    "the rollout waits for a canary",
    "`spec.rollout.canary.nodeSelector` must match a node that is ready and not blocked; see `kubectl globalps check`",
);
/// Neither nodes nor namespaces are to get anything.
pub const NO_DELIVERY: Finding = error(
    "no-delivery",
    "",
    "`kubectl globalps install --deliver-to-namespaces` delivers to namespaces, `--delivery ConfigFile` to nodes",
);
const UNHEALTHY: Option<Finding> = Some(error(
    "syncers-unhealthy",
    "",
    "the lines about the installation name the pods and the reason; see `kubectl -n kube-system describe daemonset global-pull-secret-syncer`",
));
const CONTINUES: Option<Finding> = Some(ok("rollout", ""));

rows! { /** Of the `GlobalPullSecret`: its nodes. */ ROLLOUT
    (READY, YES) => Synced, CONTINUES, "Every reachable node has the revision, or every namespace where nothing is delivered to nodes";
    (READY, NO) => RollingOut, CONTINUES, "Nodes or namespaces still get the revision";
    (READY, NO) => WaitingForSyncers, CONTINUES, "Nodes switch to the credential provider once all syncer pods are replaced";
    (READY, NO) => Restoring, CONTINUES, "The Secrets are deleted, and nodes get their own files back";
    (READY, NO) => NoNodes,
        Some(warning("no-nodes", "", "does `spec.nodeSelector` match a Linux node, and is one of them ready? See `kubectl get nodes --show-labels`")),
        "A revision exists, but no node has it";
    (READY, NO) => NodesUpdating, CONTINUES, "No node has the revision, because a Machine Config Daemon updates the nodes that the message names";
    (READY, NO) => NoDelivery, Some(NO_DELIVERY),
        "No pod gets the credentials: `spec.kubelet.delivery` is `None`, and `spec.imagePullSecrets.enabled` is false";
    (READY, NO) => NoAdditional, None, "There is no additional Secret and no valid source";
    (READY, NO) => AdditionalInvalid, None, "The additional Secret is invalid; see `AdditionalValid`";
    (READY, NO) => RolledBack, None,
        "With `onFailure: Rollback`: the additional Secret failed on the nodes that the condition names, and all nodes went back to the one before. Change the Secret; globalps rejects it as long as it is the same";
    (READY, NO) => NodesFailed, None, "See `Degraded`";
    (READY, NO) => NodesBlocked, None, "See `Degraded`";
    (READY, NO) => Held, None, "See `Progressing`";
    (READY, NO) => Unreadable, None, "The GlobalPullSecret or a node's object can't be decoded; see `Degraded`";
    (READY, NO) => ReconcileFailed, None, "See `Degraded`";
    (PROGRESSING, YES) => RollingOut, None, "Nodes get the revision";
    (PROGRESSING, YES) => Restoring, None, "Nodes get their own files back";
    (PROGRESSING, YES) => CleaningUp, None, "All nodes are restored; the syncers and other objects are removed";
    (PROGRESSING, YES) => SyncersRolling, None, "The nodes that wait get the revision once their syncers' pods are replaced";
    (PROGRESSING, YES) => WaitingForCanary, Some(CANARY),
        "No node can be the canary: the nodes that the message names are NotReady, excluded, have failed or an error of their own. A canary no longer counts towards `canary.nodes` once it has been NotReady for 5 minutes or unresponsive for 2, and at once if it is excluded or has an error of its own, so that the others are enough; but one must have the revision";
    (PROGRESSING, NO) => NoCanary, Some(CANARY), "`rollout.canary.nodeSelector` matches no node";
    (PROGRESSING, NO) => Held,
        Some(error("held", "nothing changes", "fix the pull secrets named above, or go back with `kubectl globalps undo`; `kubectl globalps remove --all` removes the additional credentials, with `--source NAME` those of a source")),
        "No node changes, because no pull secret is valid, because the configuration no longer names the last source although its Secret exists, because `spec.nodeSelector` matches no node although nodes have credentials, or because the CustomResourceDefinition of `NodePullSecret` is missing. `kubectl globalps check` shows what to do";
    (PROGRESSING, NO) => Unreadable, None, "The GlobalPullSecret can't be decoded; see `Degraded`";
    (PROGRESSING, NO) => Paused, None, "`spec.rollout.paused` is true";
    (PROGRESSING, NO) => Halted, None, "Too many nodes have failed; see `Degraded`";
    (PROGRESSING, NO) => Complete, None, "No node is left to change";
    (PROGRESSING, NO) => NothingToDo, None, "There is no pull secret, and no node has one";
    (DEGRADED, YES) => RolloutHalted,
        Some(error("rollout-halted", "the rollout stopped", "fix these nodes and run `kubectl globalps retry`, or go back with `kubectl globalps undo`")),
        "`maxFailures` nodes have failed, so no other node changes";
    (DEGRADED, YES) => NodesFailed, None, "Nodes have failed, fewer than `maxFailures`; the rollout continues";
    (DEGRADED, YES) => NodesBlocked, None,
        "Nodes have errors of their own, such as a full disk or a symbolic link. They don't count towards `maxFailures`; the rollout continues without them, and they are retried. Nodes that failed an earlier revision and have not been synced since are listed here, too, if they fail again; only `kubectl globalps retry` retries these";
    (DEGRADED, YES) => NodesNotRestored, None,
        "Nodes that are excluded or no longer selected keep the credentials, because restoring them failed. Other nodes are not affected. Repair them and run `kubectl globalps retry`";
    (DEGRADED, YES) => RolledBack,
        Some(error("rolled-back", "", "change it with `kubectl globalps add`, or go back with `kubectl globalps undo`")),
        "See `Ready`";
    (DEGRADED, YES) => Unreadable,
        Some(error("unreadable", "", "correct the field with `kubectl edit`; until then the last version that could be read stays in force, and other objects are not affected")),
        "An object can't be decoded; the message names the object and the field, as does an event. Only this object is affected";
    (DEGRADED, YES) => ReconcileFailed,
        Some(error("reconcile-failed", "", "see the log of the controller that leads: `kubectl -n globalps-system logs deployment/globalps-controller --all-pods`")),
        "The API server has refused writes of the controller for more than 10 seconds";
    (DEGRADED, YES) => ConfigFileDiffers,
        Some(warning("config-file-differs", "", "`kubectl globalps install --restore-configuration` brings the GlobalPullSecret back as it was: the field can't be changed; to move the file, clean up with `kubectl globalps remove --all --wait`, also with `--source NAME` for each source, then delete and recreate the GlobalPullSecret")),
        "`spec.kubelet.configFile` names another file than the nodes have";
    (DEGRADED, YES) => ProviderPathsDiffer,
        Some(warning("provider-paths-differ", "", "restore `spec.kubelet.credentialProvider`, or set `delivery: ConfigFile` and wait before you change it")),
        "`spec.kubelet.credentialProvider` was changed while nodes use the credential provider";
    (DEGRADED, YES) => Held, None, "See `Progressing`";
    (DEGRADED, YES) => OriginalUnreadable, None, "See `OriginalValid`";
    (DEGRADED, YES) => SourceAbsent, None, "See `SourcesValid`";
    (DEGRADED, YES) => SourceForbidden, None, "See `SourcesValid`";
    (DEGRADED, YES) => SourceUnreadable, None, "See `SourcesValid`";
    (DEGRADED, YES) => SourceInvalid, None, "See `SourcesValid`";
    (DEGRADED, NO) => AsExpected, None, "Nothing is wrong";
    (SYNCERS_HEALTHY, NO) => NotRunning, UNHEALTHY,
        "Syncers on Ready nodes don't run. The message names nodes and reasons. Other nodes don't wait for them";
    (SYNCERS_HEALTHY, NO) => PodsNotCreated, UNHEALTHY, "The API server rejects the pods of syncers on Ready nodes";
    (SYNCERS_HEALTHY, NO) => NotWritten, UNHEALTHY, "The API server refuses the DaemonSet itself, with this message";
    (SYNCERS_HEALTHY, YES) => AllRunning, None, "The message names nodes that are unsupported";
    (SYNCERS_HEALTHY, NO) => RollingOut, None, "Pods are being replaced";
    (SYNCERS_HEALTHY, YES) => RollingOut, None, "Pods are being replaced";
}
