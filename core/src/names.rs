//! Every name that two programs share. A name here is API: a cluster may hold objects that carry it.

/// Namespace of everything but the controller itself, unless the user says otherwise.
pub const NAMESPACE: &str = "kube-system";
/// Namespace of the controller, under the *restricted* Pod Security profile.
pub const CONTROLLER_NAMESPACE: &str = "globalps-system";

/// Secret that the user writes.
pub const ADDITIONAL_SECRET: &str = "additional-pull-secret";
/// Secret that the controller writes and the nodes read; also the name of the one `GlobalPullSecret`.
pub const GLOBAL_SECRET: &str = "global-pull-secret";
/// Secret with the last revision that the whole fleet had, while [`GLOBAL_SECRET`] holds a newer one: new nodes get it
/// until the newer one has passed its canary. Same form, without the bookkeeping.
pub const ROLLED_OUT_SECRET: &str = "global-pull-secret-rolled-out";
/// `DaemonSet`, `ServiceAccount`, `Role` and `RoleBinding` of the nodes' agent; value of its pods' label `name`.
pub const SYNCER: &str = "global-pull-secret-syncer";
/// The same for nodes that are not selected: the agent there restores, and its account can't read the content.
pub const RESTORER: &str = "global-pull-secret-restorer";
/// Lease by which the controllers agree who leads, in [`CONTROLLER_NAMESPACE`].
pub const LEASE: &str = "globalps-controller";
/// Port of the controller's metrics, and its name in the pod.
pub const METRICS_PORT: u16 = 8080;
pub const METRICS_PORT_NAME: &str = "metrics";
/// Port of the controller's probes, and its name in the pod.
pub const PROBES_PORT: u16 = 8081;
pub const PROBES_PORT_NAME: &str = "probes";
/// `Deployment`, `ServiceAccount` and RBAC objects of the controller.
pub const CONTROLLER: &str = "globalps-controller";

/// `ClusterRole` and `ClusterRoleBinding` by which kubelets request tokens for the credential provider.
pub const AUDIENCE_ROLE: &str = "globalps-credential-provider";

/// Key of a Secret's data that holds registry credentials.
pub const DATA_KEY: &str = ".dockerconfigjson";
/// Key of a Secret with a kubeconfig, unless the user says otherwise.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// Type of a Secret that has [`DATA_KEY`], as everybody writes it.
pub const SECRET_TYPE: &str = "kubernetes.io/dockerconfigjson";
/// Key in [`GLOBAL_SECRET`] under which the last additional Secret that was valid is kept.
pub const LAST_ADDITIONAL_KEY: &str = "last-good-additional";
/// Key in [`GLOBAL_SECRET`] with the additional Secret that was taken back from the whole fleet, until it is another one.
pub const REFUSED_KEY: &str = "refused-additional";
/// Key in [`GLOBAL_SECRET`] under which the last original pull secret that was valid is kept.
pub const LAST_ORIGINAL_KEY: &str = "last-good-original";
/// Keys in [`GLOBAL_SECRET`] under which the last valid content of each source is kept: this, and the source's name.
pub const LAST_SOURCE_KEY_PREFIX: &str = "last-good-source.";
/// Key in [`GLOBAL_SECRET`] with the last valid scope of each source that has one, as JSON.
pub const LAST_SCOPES_KEY: &str = "last-good-scopes";
/// Key in [`GLOBAL_SECRET`] and [`ROLLED_OUT_SECRET`] with the credentials that only some pods may use.
pub const SCOPED_KEY: &str = "scoped-credentials";
/// Most that the API server takes as a Secret: bytes of all values together.
pub const SECRET_LIMIT: usize = 1024 * 1024;

/// Where `OpenShift` keeps the original pull secret of the cluster: namespace and name.
pub const OPENSHIFT_ORIGINAL: (&str, &str) = ("openshift-config", "pull-secret");

/// API group and version of the custom resources.
pub const GROUP: &str = "globalps.io";
pub const VERSION: &str = "v1alpha1";

/// Annotation of [`GLOBAL_SECRET`]: its revision, a decimal number.
pub const REVISION_ANNOTATION: &str = "globalps.io/revision";
/// Annotation of [`GLOBAL_SECRET`]: the newest revision that some node has run with. If it is the present one, a node that
/// joins needs no grant for it.
pub const PROVEN_ANNOTATION: &str = "globalps.io/proven";
/// Annotation of [`GLOBAL_SECRET`]: when every node had its revision, RFC 3339; none: not yet. Also of a Secret of the
/// history.
pub const ROLLED_OUT_ANNOTATION: &str = "globalps.io/rolled-out";
/// Annotation of [`GLOBAL_SECRET`]: `true` where its revision is not rolled out, but the additional Secret in it was, with
/// another original or other sources: if nodes fail, it is not to blame.
pub const ADDITIONAL_PROVEN_ANNOTATION: &str = "globalps.io/additional-proven";
/// Annotation of [`GLOBAL_SECRET`]: why the additional Secret is not in force although it is valid, as a sentence.
pub const REFUSED_ANNOTATION: &str = "globalps.io/refused";
/// Annotation of a `NodePullSecret`: each new value asks for one more try on a node that failed.
pub const RETRY_ANNOTATION: &str = "globalps.io/retry";
/// Secrets with the additional Secrets that were rolled out before: this, and a number from 0 below [`HISTORY_SLOTS`].
/// Each has [`REVISION_ANNOTATION`], [`ROLLED_OUT_ANNOTATION`] and the key [`DATA_KEY`].
pub const HISTORY_SECRET_PREFIX: &str = "additional-pull-secret-history-";
pub const HISTORY_SLOTS: u32 = 10;

/// Name of the Secret in this slot of the history.
pub fn history_secret(slot: u32) -> String {
    format!("{HISTORY_SECRET_PREFIX}{slot}")
}

/// What a `NodePullSecret` calls the `OpenShift` Machine Config Operator, which manages the credentials file of a node
/// that has the annotation, unless the label tells that it is one of `HyperShift`'s.
pub const MACHINE_CONFIG_OPERATOR: &str = "MachineConfigOperator";
pub const MCO_ANNOTATION: &str = "machineconfiguration.openshift.io/currentConfig";
pub const NODE_POOL_LABEL: &str = "hypershift.openshift.io/nodePool";
/// Annotation of everything that moves the rollout: the controller that wrote it, as the Lease named it then.
pub const LEADER_ANNOTATION: &str = "globalps.io/leader";
/// Annotation of the syncer's pods: uid of the `ServiceAccount` that they run as.
pub const ACCOUNT_ANNOTATION: &str = "globalps.io/service-account-uid";
/// Annotation of [`GLOBAL_SECRET`]: path of the credentials file that the nodes were given, which no later
/// `GlobalPullSecret` changes while anything is in force.
pub const CONFIG_FILE_ANNOTATION: &str = "globalps.io/config-file";
/// Annotation of [`GLOBAL_SECRET`] and [`ROLLED_OUT_SECRET`]: how the revision is delivered, as JSON; none: by the
/// credentials file.
pub const DELIVERY_ANNOTATION: &str = "globalps.io/delivery";
/// Annotation of [`GLOBAL_SECRET`]: the first revision with the present configuration of the provider. A node that has
/// this one or a later one takes the present content without a restart.
pub const PROVIDER_SINCE_ANNOTATION: &str = "globalps.io/provider-since";
/// Annotation of [`GLOBAL_SECRET`]: `true` once every node restores its own file. Only a valid source ends that.
pub const RESTORING_ANNOTATION: &str = "globalps.io/restoring";
/// Annotation of a `NodePullSecret`: `true` lets the cleanup finish without this node if it is unreachable. What globalps
/// wrote stays on it.
pub const ABANDON_ANNOTATION: &str = "globalps.io/abandon";
/// Label of the Secrets that the controller creates in namespaces: `true`.
pub const IMAGE_PULL_SECRET_LABEL: &str = "globalps.io/image-pull-secret";
/// Annotation of these Secrets: the revision since which their content is as it is, and `,SOURCE@REVISION` for each source with
/// a scope.
pub const CONTENT_ANNOTATION: &str = "globalps.io/content";
/// Annotation of a `ServiceAccount`: name of the namespace's Secret to which the controller added a reference.
pub const ATTACHED_ANNOTATION: &str = "globalps.io/attached";
/// Annotation of [`GLOBAL_SECRET`]: since which revision each part of the content is as it is, as JSON: by source, and by the
/// empty name for every pod's.
pub const CONTENT_SINCE_ANNOTATION: &str = "globalps.io/content-since";
/// Annotation of a namespace by which imagepullsecret-patcher excludes it: `true`.
pub const PATCHER_EXCLUDE_ANNOTATION: &str = "k8s.titansoft.com/imagepullsecret-patcher-exclude";
/// `MutatingAdmissionPolicy` and its binding that attach the Secret to pods; `ClusterRole` and `ClusterRoleBinding` with what
/// the controller may do in namespaces.
pub const IMAGE_PULL_SECRETS: &str = "globalps-image-pull-secrets";

/// Label of the Secrets that the controller creates for operators: `true`.
pub const OPERATOR_SECRET_LABEL: &str = "globalps.io/operator-secret";
/// Annotation of a `ServiceAccount`: names of the operators' Secrets to which the controller added references, with commas.
pub const OPERATOR_SECRETS_ANNOTATION: &str = "globalps.io/operator-secrets";
/// `ClusterRole`, Roles and their bindings with what the controller may do for operators.
pub const OPERATORS: &str = "globalps-operators";

/// Name of the copy of a catalog's pull secret. The namespace of the catalog has no dot, so that no two have the same.
pub fn operator_secret(namespace: &str, name: &str) -> String {
    format!("globalps-{namespace}.{name}")
}

/// `Deployment`, `ServiceAccount`, RBAC objects and Lease of the hub, in [`CONTROLLER_NAMESPACE`]; begin of its field manager.
pub const HUB: &str = "globalps-hub";
/// Shards of the hub, at most: each has a Lease and a Deployment of its own.
pub const MAX_SHARDS: u32 = 32;

/// `Deployment` and Lease of a shard of the hub. The first one, which plans for all, has no number.
pub fn hub_shard(index: u32) -> String {
    match index {
        0 => HUB.to_owned(),
        index => format!("{HUB}-{index}"),
    }
}
/// Label of a Secret with a kubeconfig that registers a cluster with the hub: `true`.
pub const CLUSTER_LABEL: &str = "globalps.io/cluster";
/// Keys of such a Secret that may have the kubeconfig, in this order. Cluster API has the first.
pub const CLUSTER_KUBECONFIG_KEYS: [&str; 2] = ["value", KUBECONFIG_KEY];
/// Label of the Secrets with the revisions of a `FleetPullSecret`: its name.
pub const FLEET_LABEL: &str = "globalps.io/fleet";
/// Annotation of such a Secret: why the revision was rolled back, as a sentence.
pub const REJECTED_ANNOTATION: &str = "globalps.io/rejected";
/// Annotation of such a Secret: `true` once enough canaries have had the revision.
pub const CANARY_PASSED_ANNOTATION: &str = "globalps.io/canary-passed";
/// Annotation of the Secret in a member cluster: `NAMESPACE/NAME` of the `FleetPullSecret` on the hub.
pub const FLEET_ANNOTATION: &str = "globalps.io/fleet";
/// Finalizer of a `FleetPullSecret`: its Secrets are removed from the clusters first.
pub const FLEET_FINALIZER: &str = "globalps.io/fleet";

/// Name of the Secret with the pull secret of globalps' own images, where the hub installs globalps: in [`CONTROLLER_NAMESPACE`]
/// and [`NAMESPACE`] of the cluster.
pub const IMAGES_SECRET: &str = "globalps-images";
/// Annotation of a Secret with a revision: which images of globalps it brings, as JSON; and of the `Deployment` in a member
/// cluster: what was installed there.
pub const INSTALLATION_ANNOTATION: &str = "globalps.io/installation";

/// Name of the Secret with this revision of a `FleetPullSecret`.
pub fn fleet_revision(fleet: &str, revision: i64) -> String {
    format!("{fleet}-revision-{revision}")
}

/// Name of the object about a cluster. No part has a dot but a registered cluster's name, which is first.
pub fn cluster_pull_secret(cluster: &str, fleet_namespace: &str, fleet: &str) -> String {
    format!("{cluster}.{fleet_namespace}.{fleet}")
}

/// Node or namespace label: `true` excludes it.
pub const EXCLUDE_LABEL: &str = "globalps.io/exclude";

/// Field managers of server-side apply. They are stored in objects, so they never change.
pub const CONTROLLER_MANAGER: &str = "globalps-controller";
pub const SYNCER_MANAGER: &str = "globalps-syncer";
pub const PLUGIN_MANAGER: &str = "kubectl-globalps";

/// The kubelet's credentials file where nothing else is configured.
pub const CONFIG_FILE: &str = "/var/lib/kubelet/config.json";
/// Instead of a unit's name: whichever unit of the node runs a kubelet.
pub const KUBELET_UNIT_AUTO: &str = "Auto";
/// Folder next to the credentials file where the syncer keeps snapshot and journal.
pub const STATE_DIR: &str = ".globalps";

/// In [`STATE_DIR`]: the file that the credential provider reads, and the directory with the program.
pub const PROVIDER_DATA_FILE: &str = "credentials.json";
pub const PROVIDER_BIN_DIR: &str = "bin";
/// In [`STATE_DIR`], or in a directory of such files: the kubelet's configuration of the provider.
pub const PROVIDER_CONFIG_FILE: &str = "globalps-credential-provider.yaml";
/// Next to the credentials file, where the kubelet was set up by kubeadm: its flags.
pub const KUBEADM_FLAGS_FILE: &str = "kubeadm-flags.env";

/// Name of the syncer's binary, which is also its path in the image: `/globalps-syncer`.
pub const SYNCER_BINARY: &str = "globalps-syncer";
