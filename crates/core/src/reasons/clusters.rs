//! Reasons of clusters and fleets, which the hub writes into `ClusterPullSecret`s and `FleetPullSecret`s. The members of a fleet that
//! have errors of their own have the reason that `Ready` has there. In hints, `{name}` and `{namespace}` are those of the
//! `FleetPullSecret`, and `{source}` is its source Secret.

use super::{Finding, NO, Of, YES, error, warning};
use crate::api::condition::{PROGRESSING, READY, SOURCE_VALID};

/// Hint about what continues without a person.
pub const FLEET_FOLLOW: &str =
    "follow it with `kubectl globalps fleet status {name} -n {namespace} --watch`";
/// Hint about clusters that have failed.
pub const CLUSTERS_FAILED: &str = "in that cluster `kubectl globalps check` names the cause; try it and its nodes again with `kubectl globalps fleet retry {name} -n {namespace}`, or go back with `kubectl globalps fleet undo {name} -n {namespace}`";
/// Hint about clusters that the hub reaches, and may not write to.
pub const CLUSTERS_BLOCKED: &str = "once the cause is gone the hub tries again within 30 s, or at once with `kubectl globalps fleet retry {name} -n {namespace}`";
/// Hint about clusters that the hub does not reach.
pub const CLUSTERS_UNREACHABLE: &str = "does its API server respond, and is the kubeconfig in the hub's Secret valid? The hub updates the cluster when it is back";
/// The hub writes nothing into such a cluster.
pub const CLUSTERS_TAKEN: &str = "change the selectors or the kubeconfigs so that one FleetPullSecret selects each cluster, under one name; the hub then continues";
/// All clusters that a removal still waits for are unreachable.
pub const CLUSTERS_LEFT: &str = "only unreachable clusters are left: the hub finishes when they are back, or when their `Cluster` or the Secret that registers them is deleted";
/// Hint about a source Secret that can't be used, while a revision is in force.
const REPAIR_SOURCE: &str = "fix the Secret, or go back to an earlier revision with `kubectl globalps fleet undo {name} -n {namespace}`";
const CANARY: Option<Finding> = Some(error(
    "",
    "the rollout waits for a canary",
    "`spec.rollout.canary.clusterSelector` must match a cluster that the hub reaches and that has no error: `kubectl edit fleetpullsecret {name} -n {namespace}`",
));

const FAILED: Of = ("Failed", "");
const BLOCKED: Of = ("Blocked", "");
const AWAY: Of = ("Unreachable", "");

rows! { /** Of a `ClusterPullSecret`. */ CLUSTERS
    FAILED => NodesFailed, None, "Nodes there failed with the revision. The message names them";
    FAILED => AdditionalInvalid, None, "The cluster rejects the content";
    FAILED => RolledBack, None, "Its nodes failed, and went back to the content before";
    ("Failed, Blocked", "") => Installing, None,
        "globalps' controller that `install` created there does not run within 5 minutes. In a cluster that has no node, or is new, this is `Blocked`";
    BLOCKED => Unreadable, None, "Its ClusterPullSecret can't be decoded, or something there that its own globalps needs";
    BLOCKED => IdentityChanged, None, "Its kubeconfig leads to another cluster than before: see below";
    BLOCKED => DuplicateCluster, None, "Its kubeconfig leads to the same cluster as that of another one, whose Secret is there";
    BLOCKED => Conflict, None,
        "The Secret there belongs to another client or another hub, or to another FleetPullSecret that exists";
    BLOCKED => WrongType, None, "The Secret there has another type, which can't be changed";
    BLOCKED => Immutable, None, "The Secret there is immutable";
    BLOCKED => NoGlobalps, None, "globalps is not installed there. With `requireNodes: false` the Secret alone is enough";
    BLOCKED => NoGlobalPullSecret, None, "Its globalps has had no GlobalPullSecret for a minute or longer, without which it changes nothing";
    BLOCKED => KeysOfOthers, None, "The Secret can't be removed, because other clients have keys in it";
    BLOCKED => Forbidden, None, "The kubeconfig does not allow the write";
    BLOCKED => Rejected, None, "A webhook or an admission policy there rejects the write";
    BLOCKED => NotFound, None, "The namespace of the Secret does not exist there";
    BLOCKED => NotWritten, None, "Any other answer of the API server there to the write";
    BLOCKED => InstallForbidden, None, "The kubeconfig does not allow to install globalps: that of `fleet join` doesn't";
    BLOCKED => NotInstalled, None, "The API server there rejects an object of globalps";
    BLOCKED => NodesBlocked, None, "Nodes there have errors of their own";
    BLOCKED => NoNodes, None, "No node there has the revision";
    BLOCKED => NoDelivery, None, "Its globalps delivers neither to nodes nor to namespaces";
    BLOCKED => Held, None, "Its globalps changes nothing";
    BLOCKED => ReconcileFailed, None, "Its nodes are done, but other writes fail there";
    BLOCKED => IsHub, None, "The kubeconfig is one of the management cluster itself";
    BLOCKED => TooManyClusters, None,
        "The namespace has more clusters than the hub connects to: [2,000 for each process](security.md#the-hub). The oldest ones stay connected";
    BLOCKED => TargetTaken, None,
        "A second FleetPullSecret for the same Secret; the one that has written it continues, and where none has, the older one writes";
    AWAY => NoKubeconfig, None, "The Secret with its kubeconfig does not exist, or has none";
    AWAY => KubeconfigInvalid, None, "The hub does not use the kubeconfig; the message has the reason";
    AWAY => KubeconfigTooLarge, None, "The kubeconfig is larger than 128 KiB, or those of the namespace than 32 MiB";
    AWAY => Unauthorized, None, "The cluster rejects the token or certificate of the kubeconfig";
    AWAY => UnknownAuthority, None, "The kubeconfig does not trust the authority of the API server's certificate";
    AWAY => CertificateExpired, None, "A certificate has expired";
    AWAY => WrongServerName, None, "The API server's certificate is for another name";
    AWAY => TlsFailed, None, "Any other error of TLS";
    AWAY => ConnectionRefused, None, "The address refuses the connection";
    AWAY => NameNotResolved, None, "The name of the server can't be resolved";
    AWAY => Timeout, None, "No response in time";
    AWAY => Proxy, None, "The proxy does not connect";
    AWAY => ResponseTooLarge, None, "The hub reads no response of this size";
    AWAY => ServerError, None, "The API server answers with an HTTP error";
    AWAY => Unreachable, None, "Any other error of the network";
}

rows! {
    /// Reasons of a `FleetPullSecret`: in its conditions, and in `status.failures` for clusters whose turn is over.
    FLEETS
    (READY, YES) => Synced, None, "Every reachable cluster has the revision";
    (READY, NO) => RollingOut, None, "Clusters still get the revision";
    (READY, NO) => ClustersFailed, None, "The message names the first three";
    (READY, NO) => ClustersBlocked, None, "All clusters but these are done; the message names the first three";
    (READY, NO) => ClustersUnreachable, None, "No cluster has the revision, because the hub reaches none";
    (READY, NO) => NoClusters,
        Some(error("", "selects no cluster", "compare `spec.clusterSelector` with `kubectl get clusters -A --show-labels`, and `spec.registered` with `kubectl get secrets -A -l globalps.io/cluster=true`")),
        "`clusterSelector` and `registered` select no cluster, or none has the revision";
    (READY, NO) => RolledBack,
        Some(error("", "", "change source Secret `{source}`; the hub rolls out what differs from the rejected revision")),
        "With `onFailure: Rollback`: too many clusters failed, and all went back to the content before";
    (READY, NO) => Held, Some(error("", "", REPAIR_SOURCE)), "The source is absent or invalid, so the revision stays in force";
    (READY, NO) => NoSource, Some(error("", "", "create the Secret, of type `kubernetes.io/dockerconfigjson`")), "There is no valid source yet";
    (READY, NO) => Removing, None, "The FleetPullSecret is being deleted; the message counts the clusters that still have the Secret";
    (READY, NO) => SelectorInvalid,
        Some(error("", "", "fix the selector: `kubectl edit fleetpullsecret {name} -n {namespace}`")),
        "A selector can't be decoded";
    (READY, NO) => NoImagePullSecret, None, "The Secret in `install.imagePullSecret` is missing or invalid, so the hub rolls nothing out";
    (READY, NO) => TooLarge, None, "The revisions of the namespace exceed what the hub keeps";
    (READY, NO) => NamespaceForbidden, None,
        "The hub may no longer read one of its `--namespaces`: the FleetPullSecrets in it and those that may select clusters in it change nothing, and all others continue. `kubectl globalps fleet install` grants it again";
    (READY, NO) => NamespaceNotTrusted, None, "`namespaceSelector` and `install` need a trusted namespace";
    (READY, NO) => Unreadable, None, "The FleetPullSecret can't be decoded; clusters keep what they have";
    (READY, NO) => ReconcileFailed, None, "The API server refuses writes of the hub";
    (PROGRESSING, YES) => RollingOut, None, "The message counts the clusters that are left";
    (PROGRESSING, YES) => WaitingForCanary, CANARY, "No cluster can be the canary; the message names those that may be one";
    (PROGRESSING, NO) => NoCanary, CANARY, "`canary.clusterSelector` matches no cluster";
    (PROGRESSING, NO) => Complete, None, "No cluster is left";
    (PROGRESSING, NO) => ClustersUnreachable, None, "Nothing else is left to do; the hub continues when they are back";
    (PROGRESSING, NO) => Paused,
        Some(warning("", "the rollout is paused", "go on with `kubectl globalps fleet resume {name} -n {namespace}`")),
        "`spec.rollout.paused` is true";
    (PROGRESSING, NO) => Halted, None, "Too many clusters have failed";
    (PROGRESSING, NO) => Held, None, "See `Ready`";
    (SOURCE_VALID, YES) => Valid, None, "The message names entries that are not used";
    (SOURCE_VALID, NO) => Absent, None, "The Secret does not exist";
    (SOURCE_VALID, NO) => Forbidden, None, "The hub may not read the Secret";
    (SOURCE_VALID, NO) => Unreadable, None, "The API server can't read it";
    (SOURCE_VALID, NO) => Invalid, None, "A kubelet can't decode an entry";
    ("Syncing", "") => TimedOut, None, "Not done in time; other clusters continue first";
}

rows! {
    /// Reasons that `fleet status` shows and no object contains.
    SHOWN
    ("Unknown", "") => NotReported,
        Some(warning("", "the hub has not reported on", "does the hub run? See `kubectl get deployment globalps-hub -n globalps-system`")),
        "The hub has not reported on this spec yet";
    ("Pending", "") => Revoked, None, "The cluster made no progress, so the hub revoked its last assignment";
}
