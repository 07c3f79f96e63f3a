//! Names that two programs share. They are API: objects in clusters carry them.

use std::collections::BTreeMap;

use crate::api::MAX_REVISION;

/// Default namespace of everything except the controller itself.
pub const NAMESPACE: &str = "kube-system";
/// Namespace of the controller, under the *restricted* Pod Security profile.
pub const CONTROLLER_NAMESPACE: &str = "globalps-system";

/// Secret that the user writes.
pub const ADDITIONAL_SECRET: &str = "additional-pull-secret";
/// Secret that the controller writes and the nodes read; also the name of the one `GlobalPullSecret`.
pub const GLOBAL_SECRET: &str = "global-pull-secret";
/// Secret with the last revision that was rolled out to all nodes, while [`GLOBAL_SECRET`] holds a newer one. New nodes get it
/// until the newer one has passed its canary. Same format, without the bookkeeping.
pub const ROLLED_OUT_SECRET: &str = "global-pull-secret-rolled-out";
/// Secret with what the controller must not forget: the last configuration in force, and which deliveries have copies of
/// credentials. It is apart from [`GLOBAL_SECRET`], whose content may fill its limit.
pub const STATE_SECRET: &str = "global-pull-secret-state";
/// Key in [`STATE_SECRET`], as JSON.
pub const STATE_KEY: &str = "state";
/// `DaemonSet`, `ServiceAccount`, `Role` and `RoleBinding` of the agent on nodes; value of its pods' label `name`.
pub const SYNCER: &str = "global-pull-secret-syncer";
/// The agent on nodes that are not selected: it restores them, and its account can't read the content.
pub const RESTORER: &str = "global-pull-secret-restorer";
/// The agent that only reads: it reports what each node's file has, where another program writes that.
pub const OBSERVER: &str = "globalps-observer";
/// Secret with what [`GLOBAL_SECRET`] has otherwise, where that name belongs to `HyperShift`'s controller.
pub const RECORD_SECRET: &str = "global-pull-secret-record";
/// Secret with what the controller wrote into `OpenShift`'s own pull secret, and what that had instead. No node may read it.
pub const APPLIED_SECRET: &str = "global-pull-secret-applied";
/// Lease of the controllers' leader election, in [`CONTROLLER_NAMESPACE`].
pub const LEASE: &str = "globalps-controller";
/// `ServiceAccount` without pods or permissions, in [`CONTROLLER_NAMESPACE`]: its annotation [`LEADER_ANNOTATION`] names the Lease's
/// holder to the admission policy of the same name.
pub const LEADER: &str = "globalps-leader";
/// Port of the controller's metrics.
pub const METRICS_PORT: u16 = 8080;
/// Name of [`METRICS_PORT`] in the pod.
pub const METRICS_PORT_NAME: &str = "metrics";
/// Port of the controller's probes.
pub const PROBES_PORT: u16 = 8081;
/// Name of [`PROBES_PORT`] in the pod.
pub const PROBES_PORT_NAME: &str = "probes";
/// `Deployment`, `ServiceAccount` and RBAC objects of the controller.
pub const CONTROLLER: &str = "globalps-controller";

/// `ClusterRole` and `ClusterRoleBinding` by which kubelets request tokens for the credential provider.
pub const AUDIENCE_ROLE: &str = "globalps-credential-provider";

pub use globalps_dockerconfig::DATA_KEY;

/// Default key of a kubeconfig in a Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// Usual type of a Secret with [`DATA_KEY`].
pub const SECRET_TYPE: &str = "kubernetes.io/dockerconfigjson";
/// Key in [`GLOBAL_SECRET`] with the last valid additional Secret.
pub const LAST_ADDITIONAL_KEY: &str = "last-good-additional";
/// Key in [`GLOBAL_SECRET`] with the additional Secret that was rolled back, until the user changes it.
pub const REJECTED_KEY: &str = "rejected-additional";
/// Key in [`GLOBAL_SECRET`] with the last valid original pull secret.
pub const LAST_ORIGINAL_KEY: &str = "last-good-original";
/// Prefix of the keys in [`GLOBAL_SECRET`] with the last valid content of each source; the source's name follows.
pub const LAST_SOURCE_KEY_PREFIX: &str = "last-good-source.";
/// Key in [`GLOBAL_SECRET`] with the last valid scope of each source that has one, as JSON.
pub const LAST_SCOPES_KEY: &str = "last-good-scopes";
/// Key in [`GLOBAL_SECRET`] and [`ROLLED_OUT_SECRET`] with the credentials that only some pods may use.
pub const SCOPED_KEY: &str = "scoped-credentials";
/// Key in [`GLOBAL_SECRET`] and [`ROLLED_OUT_SECRET`] with the checksum of all else that globalps reads there.
pub const CHECKSUM_KEY: &str = "checksum";
/// Maximum size of a Secret in the API server: bytes of all values together.
pub const SECRET_LIMIT: usize = 1024 * 1024;

/// The cluster's original pull secret on `OpenShift`: namespace and name.
pub const OPENSHIFT_ORIGINAL: (&str, &str) = ("openshift-config", "pull-secret");

/// API group of the custom resources.
pub const GROUP: &str = "globalps.io";
/// The only version of the custom resources.
pub const VERSION: &str = "v1alpha1";

/// Annotation of [`GLOBAL_SECRET`]: its revision, a decimal number.
pub const REVISION_ANNOTATION: &str = "globalps.io/revision";
/// Annotation next to [`REVISION_ANNOTATION`]: the random id of that revision.
pub const REVISION_ID_ANNOTATION: &str = "globalps.io/revision-id";
/// Annotation of [`GLOBAL_SECRET`]: the newest revision that has passed its canary. Of a `FleetPullSecret`'s revision: `true` once enough
/// canaries have had it.
pub const CANARY_PASSED_ANNOTATION: &str = "globalps.io/canary-passed";
/// Annotation of [`GLOBAL_SECRET`]: when every node had its revision, RFC 3339; absent: not yet. Also on the history's Secrets.
pub const ROLLED_OUT_ANNOTATION: &str = "globalps.io/rolled-out";
/// Annotation of [`GLOBAL_SECRET`] next to [`ROLLED_OUT_ANNOTATION`]: of which revision that is, so that it doesn't count for a later
/// one if another client wrote it.
pub const ROLLED_OUT_REVISION_ANNOTATION: &str = "globalps.io/rolled-out-revision";
/// Annotation of [`GLOBAL_SECRET`]: its revision, if that is not rolled out, but its additional Secret was, with another original
/// or other sources. The additional Secret is then not blamed for failing nodes.
pub const ADDITIONAL_ROLLED_OUT_ANNOTATION: &str = "globalps.io/additional-rolled-out";
/// Annotation of [`GLOBAL_SECRET`]: why a valid additional Secret is not in force. Of a `FleetPullSecret`'s revision: why it was rolled
/// back.
pub const REJECTED_ANNOTATION: &str = "globalps.io/rejected";
/// Annotation of a `NodePullSecret`: each new value requests one more attempt on a node that failed.
pub const RETRY_ANNOTATION: &str = "globalps.io/retry";

/// The value of [`RETRY_ANNOTATION`] as an assignment has it. Any client writes annotations, of any length; two of these fit into the
/// field of an assignment, that of a node and that of the additional Secret.
pub fn shortened_retry(value: &str) -> String {
    const LONGEST: usize = 500;
    value.chars().take(LONGEST).collect()
}

/// The attempt that the annotations request, to be compared with that of the assignment; `None`: none.
pub fn requested_retry(annotations: &BTreeMap<String, String>) -> Option<String> {
    annotations
        .get(RETRY_ANNOTATION)
        .map(|value| shortened_retry(value))
}
/// Prefix of the Secrets with additional Secrets that were rolled out before; a number below [`HISTORY_SLOTS`] follows. Each has
/// [`REVISION_ANNOTATION`], [`ROLLED_OUT_ANNOTATION`] and the key [`DATA_KEY`].
pub const HISTORY_SECRET_PREFIX: &str = "additional-pull-secret-history-";
/// The maximum of `spec.historyLimit`.
pub const HISTORY_SLOTS: u32 = 10;

/// Name of the Secret in this slot of the history.
pub fn history_secret(slot: u32) -> String {
    format!("{HISTORY_SECRET_PREFIX}{slot}")
}

/// Name in a `NodePullSecret` for the `OpenShift` Machine Config Operator. It manages the credentials file of nodes that have the
/// annotation, except nodes with `HyperShift`'s label.
pub const MACHINE_CONFIG_OPERATOR: &str = "MachineConfigOperator";
/// The reason for an update of such a node by its Machine Config Daemon.
pub const MACHINE_CONFIG_UPDATE: &str = "MachineConfigUpdate";
/// API group of its objects.
pub const MACHINE_CONFIG_GROUP: &str = "machineconfiguration.openshift.io";
/// The annotation whose value is the name of the node's current configuration.
pub const MCO_ANNOTATION: &str = "machineconfiguration.openshift.io/currentConfig";
/// `HyperShift` sets it on each node of a node pool.
pub const NODE_POOL_LABEL: &str = "hypershift.openshift.io/nodePool";
/// Annotation of everything that moves the rollout: the Lease holder that wrote it. Of [`LEADER`]: the current Lease holder.
pub const LEADER_ANNOTATION: &str = "globalps.io/leader";
/// Annotation of the syncer's pods: uid of their `ServiceAccount`.
pub const ACCOUNT_ANNOTATION: &str = "globalps.io/service-account-uid";
/// Annotation of [`GLOBAL_SECRET`]: path of the nodes' credentials file. A later `GlobalPullSecret` can't change it while any
/// content is in force.
pub const CONFIG_FILE_ANNOTATION: &str = "globalps.io/config-file";
/// Annotation of [`GLOBAL_SECRET`] and [`ROLLED_OUT_SECRET`]: how the revision is delivered, as JSON; absent: by the credentials
/// file.
pub const DELIVERY_ANNOTATION: &str = "globalps.io/delivery";
/// Annotation of [`GLOBAL_SECRET`]: the first revision with the current configuration of the credential provider. A node that has
/// this revision or a later one takes the current content without a restart.
pub const PROVIDER_SINCE_ANNOTATION: &str = "globalps.io/provider-since";
/// Annotation of [`GLOBAL_SECRET`]: its revision, once every node restores its own file. Only a valid source ends this.
pub const RESTORING_ANNOTATION: &str = "globalps.io/restoring";
/// Annotation of the `GlobalPullSecret`: its uid and the generation of its spec that restores every node on purpose, although
/// Secrets exist that it no longer names: `UID/GENERATION`. Any later change of the spec ends this, and so does another object.
pub const RESTORE_ANNOTATION: &str = "globalps.io/restore-at-generation";
/// Annotation of a `NodePullSecret`: `true` lets the cleanup finish without this node if it is unreachable. The node keeps what
/// globalps wrote.
pub const ABANDON_ANNOTATION: &str = "globalps.io/abandon";
/// Annotation in which `kubectl apply` keeps what it wrote, credentials included.
pub const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotation of the `GlobalPullSecret` and, once the cluster's own copies are gone, of each `NodePullSecret`: content up to this
/// revision is to be forgotten, because a password in it leaked. A decimal number.
pub const FORGET_ANNOTATION: &str = "globalps.io/forget-up-to";

/// Annotation of a `NodePullSecret`: the value of `status.foundFile` that the leader has answered. No daemon updated the node after
/// that report, so the syncer may replace these files while they are the same.
pub const MAY_REPLACE_ANNOTATION: &str = "globalps.io/may-replace";

/// The revision in [`FORGET_ANNOTATION`]. `None` if there is no annotation; an error if its value is not a revision.
pub fn forget_up_to(annotations: &BTreeMap<String, String>) -> Option<Result<i64, InvalidForget>> {
    let value = annotations.get(FORGET_ANNOTATION)?;
    let number = value
        .parse()
        .ok()
        .filter(|number| (1..=MAX_REVISION).contains(number));
    Some(number.ok_or(InvalidForget))
}

/// The value of [`FORGET_ANNOTATION`] is not a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidForget;

/// Label of the Secrets that the controller creates in namespaces: `true`.
pub const IMAGE_PULL_SECRET_LABEL: &str = "globalps.io/image-pull-secret";
/// Key of these Secrets and of those for operators: the proof that the controller wrote them.
pub const PROOF_KEY: &str = "globalps-proof";
/// Annotation of the Secrets in namespaces: the revision that introduced their content, and `,SOURCE@REVISION` for each source with a scope. Each revision
/// has number and id: a number alone identifies no content.
pub const CONTENT_ANNOTATION: &str = "globalps.io/content";
/// Annotation of a `ServiceAccount`: name of the namespace's Secret to which the controller added a reference.
pub const ATTACHED_ANNOTATION: &str = "globalps.io/attached";
/// Annotation of [`GLOBAL_SECRET`]: the revision that introduced each part of the content, as JSON: by source; the empty name
/// stands for the part for every pod.
pub const CONTENT_SINCE_ANNOTATION: &str = "globalps.io/content-since";
/// Annotation with which imagepullsecret-patcher excludes a namespace: `true`.
pub const PATCHER_EXCLUDE_ANNOTATION: &str = "k8s.titansoft.com/imagepullsecret-patcher-exclude";
/// `MutatingAdmissionPolicy` and binding that attach the Secret to pods; `ClusterRole` and `ClusterRoleBinding` of the
/// controller's permissions in namespaces.
pub const IMAGE_PULL_SECRETS: &str = "globalps-image-pull-secrets";

/// Label of the Secrets that the controller creates for operators: `true`.
pub const OPERATOR_SECRET_LABEL: &str = "globalps.io/operator-secret";
/// Annotation of a `ServiceAccount`: names of the operators' Secrets to which the controller added references, comma-separated.
pub const OPERATOR_SECRETS_ANNOTATION: &str = "globalps.io/operator-secrets";
/// `ConfigMap` in the controllers' namespace with certificate authorities of registries, in PEM. Optional.
pub const REGISTRY_AUTHORITIES: &str = "globalps-registry-authorities";
/// The only key of [`REGISTRY_AUTHORITIES`] that is read.
pub const REGISTRY_AUTHORITIES_KEY: &str = "ca.crt";
/// The controller's directory with them.
pub const REGISTRY_AUTHORITIES_DIR: &str = "/etc/globalps/registry-authorities";
/// `ClusterRole`, Roles and bindings of the controller's permissions for operators.
pub const OPERATORS: &str = "globalps-operators";

/// Name of the copy of a catalog's pull secret. Namespaces contain no dot, so names are unique.
pub fn operator_secret(namespace: &str, name: &str) -> String {
    format!("globalps-{namespace}.{name}")
}

/// Whether it can be the name of a copy.
pub fn is_operator_secret(name: &str) -> bool {
    let rest = name.strip_prefix("globalps-");
    rest.is_some_and(|rest| rest.contains('.'))
}

/// `Deployment`, `ServiceAccount`, RBAC objects and Lease of the hub, in [`CONTROLLER_NAMESPACE`]; prefix of its field manager.
pub const HUB: &str = "globalps-hub";
/// Like [`LEADER`], for the first shard of the hub.
pub const HUB_LEADER: &str = "globalps-hub-leader";
/// Maximum number of hub shards; each has its own Lease and Deployment.
pub const MAX_SHARDS: u32 = 32;

/// `Deployment` and Lease of a hub shard. The first one, which plans for all, has no number.
pub fn hub_shard(index: u32) -> String {
    match index {
        0 => HUB.to_owned(),
        index => format!("{HUB}-{index}"),
    }
}
/// Label of a Secret with a kubeconfig that registers a cluster with the hub: `true`.
pub const CLUSTER_LABEL: &str = "globalps.io/cluster";
/// Annotation of a `Cluster`: the name of the Secret whose kubeconfig the hub uses instead of Cluster API's.
pub const KUBECONFIG_ANNOTATION: &str = "globalps.io/kubeconfig";
/// Annotation of the hub's Secret in a member: `NAMESPACE/NAME` of the cluster on the hub.
pub const CLUSTER_ANNOTATION: &str = "globalps.io/cluster";
/// Annotation of a `ClusterPullSecret`: the identity that the cluster may have from now on.
pub const ACCEPTED_IDENTITY_ANNOTATION: &str = "globalps.io/accepted-identity";
/// Keys of such a Secret that may have the kubeconfig, in order of preference. Cluster API uses the first.
pub const CLUSTER_KUBECONFIG_KEYS: [&str; 2] = ["value", KUBECONFIG_KEY];
/// Label of the Secrets with the revisions of a `FleetPullSecret`: its name.
pub const FLEET_LABEL: &str = "globalps.io/fleet";
/// Annotation of the Secret in a member cluster: `NAMESPACE/NAME` of the `FleetPullSecret` on the hub.
pub const FLEET_ANNOTATION: &str = "globalps.io/fleet";
/// Finalizer of a `FleetPullSecret`, which keeps it until its Secrets are removed from the clusters.
pub const FLEET_FINALIZER: &str = "globalps.io/fleet";

/// Pull secret for globalps' own images on clusters where the hub installs globalps: in [`CONTROLLER_NAMESPACE`] and
/// [`NAMESPACE`].
pub const IMAGES_SECRET: &str = "globalps-images";
/// Annotation of a revision's Secret: the globalps images that it installs, as JSON. Annotation of the `Deployment` in a member
/// cluster: what was installed there.
pub const INSTALLATION_ANNOTATION: &str = "globalps.io/installation";

/// Name of the Secret with this revision of a `FleetPullSecret`.
pub fn fleet_revision(fleet: &str, revision: i64) -> String {
    format!("{fleet}-revision-{revision}")
}

/// Name of the object for a cluster. Only the first part, a registered cluster's name, may contain a dot.
pub fn cluster_pull_secret(cluster: &str, fleet_namespace: &str, fleet: &str) -> String {
    format!("{cluster}.{fleet_namespace}.{fleet}")
}

/// Node or namespace label: `true` excludes it.
pub const EXCLUDE_LABEL: &str = "globalps.io/exclude";
/// Excludes a node in a way that the node can't change: a kubelet may change other labels of its own Node, but the
/// admission plugin `NodeRestriction` denies it those under `node-restriction.kubernetes.io`.
pub const RESTRICTED_EXCLUDE_LABEL: &str = "node-restriction.kubernetes.io/globalps-exclude";
/// Each excludes a node.
pub const NODE_EXCLUDE_LABELS: [&str; 2] = [EXCLUDE_LABEL, RESTRICTED_EXCLUDE_LABEL];
/// Label of nodes that can run a syncer, and its value.
pub const LINUX_LABEL: (&str, &str) = ("kubernetes.io/os", "linux");

/// Whether a node with these labels is excluded.
pub fn is_node_excluded<'a>(label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let mut labels = NODE_EXCLUDE_LABELS.into_iter();
    labels.any(|name| label(name) == Some("true"))
}

const OWN_SECRETS: [&str; 5] = [
    GLOBAL_SECRET,
    ROLLED_OUT_SECRET,
    STATE_SECRET,
    RECORD_SECRET,
    APPLIED_SECRET,
];

/// Whether a Secret with this name in the namespace of globalps is its own: content that it wrote must not be its input.
pub fn is_own_secret(name: &str) -> bool {
    OWN_SECRETS.contains(&name) || name.starts_with(HISTORY_SECRET_PREFIX)
}

/// Field managers of server-side apply. Objects store them, so they never change.
pub const CONTROLLER_MANAGER: &str = "globalps-controller";
/// Field manager of the `status` of `NodePullSecret`s.
pub const SYNCER_MANAGER: &str = "globalps-syncer";
/// Field manager of everything that users apply with the plugin.
pub const PLUGIN_MANAGER: &str = "kubectl-globalps";

/// Default path of the kubelet's credentials file.
pub const CONFIG_FILE: &str = "/var/lib/kubelet/config.json";
/// Used as a unit name: find the unit that runs the kubelet.
pub const KUBELET_UNIT_AUTO: &str = "Auto";
/// Directory next to the credentials file in which the syncer keeps snapshot and journal.
pub const STATE_DIR: &str = ".globalps";
/// Next to the credentials file while a syncer changes the node or has something on it: the lock.
pub const LOCK_FILE: &str = ".globalps.lock";

/// Directory with the credential provider's program, in [`STATE_DIR`].
pub const PROVIDER_BIN_DIR: &str = "bin";
/// The kubelet's configuration of the provider, in [`STATE_DIR`] or in the kubelet's directory of such files.
pub const PROVIDER_CONFIG_FILE: &str = "globalps-credential-provider.yaml";
/// Next to the credentials file on kubeadm nodes: the kubelet's flags.
pub const KUBEADM_FLAGS_FILE: &str = "kubeadm-flags.env";

/// Name of the syncer's binary, which is also its path in the image: `/globalps-syncer`.
pub const SYNCER_BINARY: &str = "globalps-syncer";
