//! The objects that `kubectl globalps install` creates in a cluster: the custom resources and the controller.

use globalps_core::api::{
    DeliveryType, GlobalPullSecret, HostedControlPlaneRef, NodePullSecret, SecretRef, SourceRef,
};
use globalps_core::names::{
    self, ADDITIONAL_SECRET, APPLIED_SECRET, AUDIENCE_ROLE, CONTROLLER, CONTROLLER_NAMESPACE,
    GLOBAL_SECRET, GROUP, HISTORY_SLOTS, NAMESPACE, OBSERVER, OPENSHIFT_ORIGINAL, RECORD_SECRET,
    REGISTRY_AUTHORITIES, REGISTRY_AUTHORITIES_DIR, RESTORER, ROLLED_OUT_SECRET, STATE_SECRET,
    SYNCER,
};
use globalps_provider::AUDIENCE;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use kube::Resource as _;
use serde_json::{Value, json};

use super::program::{Program, deployment, namespace};
use super::rbac::{cluster_role, cluster_role_binding, role, role_binding, rule, service_account};
use super::schema::crd;
use super::{
    Agent, Allowed, NamespaceAccess, OperatorAccess, bounds, leader, named, network, openshift,
    own_node, quota, roles, syncer, value,
};

/// Input of an installation's manifests.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Reference with tag or digest, for both replicas.
    pub controller_image: String,
    /// Reference with tag or digest, for the agents on nodes.
    pub syncer_image: String,
    /// Pull secret for both images. The user creates it in this namespace and in `globalps-system`.
    pub images_pull_secret: Option<String>,
    /// Another one for the syncer's image; `None`: the same.
    pub syncer_images_pull_secret: Option<String>,
    /// Namespace of the Secrets and the syncer.
    pub namespace: String,
    /// An original pull secret that the controller may read.
    pub original: Option<SecretRef>,
    /// Secrets of the namespace that the controller may read, in order.
    pub sources: Vec<SourceRef>,
    /// How credentials reach the kubelets; `None`: keep the configured value.
    pub delivery: Option<DeliveryType>,
    /// Delivery into namespaces; `None`: keep the configured value.
    pub image_pull_secrets: Option<NamespaceAccess>,
    /// Delivery to operators; `None`: keep the configured value.
    pub operators: Option<OperatorAccess>,
    /// A `HyperShift` control plane whose pull secret is the original one; the controller may read its kubeconfig.
    pub hosted_control_plane: Option<HostedControlPlaneRef>,
    /// Units and files that `spec.kubelet` may name.
    pub allowed: Allowed,
    /// The cluster has `SecurityContextConstraints`: no pod runs without one.
    pub is_openshift: bool,
}

impl Manifests {
    /// The defaults with these two images.
    pub fn of_images(controller: impl Into<String>, syncer: impl Into<String>) -> Self {
        Self {
            controller_image: controller.into(),
            syncer_image: syncer.into(),
            namespace: NAMESPACE.to_owned(),
            ..Self::default()
        }
    }

    /// The objects in apply order.
    pub fn objects(&self) -> Vec<Value> {
        let account = (CONTROLLER, CONTROLLER_NAMESPACE);
        let mut objects = vec![value(namespace())];
        objects.extend(quota::objects(&self.namespace));
        objects.extend([
            value(self.allowed.crd()),
            value(crd::<NodePullSecret>()),
            value(named::<ServiceAccount>(CONTROLLER, CONTROLLER_NAMESPACE)),
            value(cluster_role(
                CONTROLLER,
                vec![rule("", ["nodes", "namespaces"], [], ["list", "watch"])],
            )),
            value(cluster_role_binding(CONTROLLER, service_account(account))),
            value(role(CONTROLLER, &self.namespace, controller_rules())),
            value(role_binding(CONTROLLER, &self.namespace, account)),
        ]);
        if let Some(SecretRef {
            namespace, name, ..
        }) = &self.original
        {
            let role_name = format!("{CONTROLLER}-original");
            let mut rules = vec![rule("", ["secrets"], [name], ["list", "watch"])];
            if (namespace.as_str(), name.as_str()) == OPENSHIFT_ORIGINAL {
                // This one is also read without being configured.
                rules.push(rule("", ["secrets"], [name], ["get"]));
            }
            objects.push(value(role(&role_name, namespace, rules)));
            objects.push(value(role_binding(&role_name, namespace, account)));
        }
        objects.extend(openshift::objects(
            &self.namespace,
            self.delivery.unwrap_or_default(),
            self.is_openshift,
        ));
        if !self.sources.is_empty() {
            let names = self.sources.iter().map(|source| source.name.clone());
            objects.extend(sources_access(&self.namespace, names.collect()));
        }
        if let Some(hosted) = &self.hosted_control_plane {
            let role_name = format!("{CONTROLLER}-kubeconfig");
            let names = vec![hosted.kubeconfig_secret_ref.name.clone()];
            objects.extend(by_name(&role_name, CONTROLLER_NAMESPACE, names));
        }
        objects.extend(audience_objects());
        objects.extend(roles::objects());
        let namespaces = self.image_pull_secrets.as_ref();
        let pull_secret = namespaces.map_or(GLOBAL_SECRET, |access| &access.secret_name);
        let operators = self.operators.as_ref();
        let copies = operators.into_iter().flat_map(OperatorAccess::copies);
        let delivered: Vec<String> = [pull_secret.to_owned()].into_iter().chain(copies).collect();
        objects.extend(leader::objects(account, &delivered));
        objects.extend(own_node::objects(&self.namespace));
        objects.extend(bounds::objects(
            &self.namespace,
            &self.syncer_image,
            &self.allowed,
            &delivered,
        ));
        objects.extend(
            namespaces
                .into_iter()
                .flat_map(|access| access.objects(&self.namespace, account)),
        );
        objects.extend(
            operators
                .into_iter()
                .flat_map(|access| access.objects(account)),
        );
        objects.extend(network::objects(&self.namespace));
        // After the policies: a new controller never runs without them.
        objects.push(value(self.deployment()));
        let spec = self.spec();
        if !spec.is_empty() {
            objects.push(json!({
                "apiVersion": GlobalPullSecret::api_version(&()),
                "kind": GlobalPullSecret::kind(&()),
                "metadata": {"name": GLOBAL_SECRET, "namespace": self.namespace},
                "spec": spec,
            }));
        }
        objects
    }

    /// Only the requested fields: all others belong to the user and keep their defaults.
    fn spec(&self) -> serde_json::Map<String, Value> {
        let mut spec = serde_json::Map::new();
        if let Some(original) = &self.original {
            spec.insert("original".to_owned(), json!({"secretRef": original}));
        }
        if let Some(hosted) = &self.hosted_control_plane {
            spec.insert("original".to_owned(), json!({"hostedControlPlane": hosted}));
        }
        if !self.sources.is_empty() {
            spec.insert("sources".to_owned(), json!(self.sources));
        }
        if let Some(delivery) = self.delivery {
            spec.insert("kubelet".to_owned(), json!({"delivery": delivery}));
            if delivery == DeliveryType::Observe {
                // As HyperShift's controller merges; another value is refused.
                spec.insert(
                    "precedence".to_owned(),
                    json!(globalps_core::api::Precedence::Original),
                );
            }
        }
        if let Some(access) = &self.image_pull_secrets {
            let settings = json!({
                "enabled": true,
                "secretName": access.secret_name,
                "attach": access.attach,
            });
            spec.insert("imagePullSecrets".to_owned(), settings);
        }
        let of_syncer = self.syncer_images_pull_secret.as_ref();
        if let Some(name) = of_syncer.or(self.images_pull_secret.as_ref()) {
            spec.insert("syncer".to_owned(), json!({"imagePullSecret": name}));
        }
        if self.operators.is_some() {
            spec.insert("operators".to_owned(), json!({"enabled": true}));
        }
        spec
    }

    fn deployment(&self) -> Deployment {
        deployment(Program {
            name: CONTROLLER,
            service_account: CONTROLLER,
            container: "controller",
            image: &self.controller_image,
            image_pull_secret: self.images_pull_secret.as_deref(),
            args: vec![
                "run".to_owned(),
                format!("--namespace={}", self.namespace),
                format!("--syncer-image={}", self.syncer_image),
            ],
            // The controller uses 10 to 20 MiB. The limit leaves room for 32 sources of 1 MB each, even though together
            // they can't be valid.
            memory: "256Mi",
            config: Some((REGISTRY_AUTHORITIES, REGISTRY_AUTHORITIES_DIR)),
        })
    }
}

/// The Role and `RoleBinding` that let the controller read these source Secrets. `names` must not be empty: an empty list would
/// mean every Secret of the namespace.
pub fn sources_access(namespace: &str, names: Vec<String>) -> [Value; 2] {
    by_name(&format!("{CONTROLLER}-sources"), namespace, names)
}

fn by_name(role_name: &str, namespace: &str, names: Vec<String>) -> [Value; 2] {
    let rule = PolicyRule {
        resource_names: Some(names),
        ..rule("", ["secrets"], [], ["list", "watch"])
    };
    let account = (CONTROLLER, CONTROLLER_NAMESPACE);
    [
        value(role(role_name, namespace, vec![rule])),
        value(role_binding(role_name, namespace, account)),
    ]
}

/// Lets kubelets request tokens for the credential provider, for pods on their own node. The tokens have no other use. `install`
/// creates this, because a controller that may write `ClusterRoles` would be a greater risk.
fn audience_objects() -> Vec<Value> {
    let name = AUDIENCE_ROLE;
    vec![
        value(cluster_role(
            name,
            vec![rule(
                "",
                [AUDIENCE],
                [],
                ["request-serviceaccounts-token-audience"],
            )],
        )),
        value(cluster_role_binding(
            name,
            Subject {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "Group".to_owned(),
                name: "system:nodes".to_owned(),
                namespace: None,
            },
        )),
    ]
}

/// The controller's permissions in the namespace of the Secrets. To create a Role one must hold its permissions, so they include
/// the syncer's. Server-side apply checks `create` with the object's name, so even that is restricted by name.
fn controller_rules() -> Vec<PolicyRule> {
    const OWN: [&str; 5] = ["list", "watch", "create", "patch", "delete"];
    let mut rules = vec![
        rule("", ["secrets"], [ADDITIONAL_SECRET], ["list", "watch"]),
        rule(
            "",
            ["secrets"],
            [
                GLOBAL_SECRET,
                ROLLED_OUT_SECRET,
                STATE_SECRET,
                RECORD_SECRET,
                APPLIED_SECRET,
            ],
            OWN,
        ),
        PolicyRule {
            resource_names: Some((0..HISTORY_SLOTS).map(names::history_secret).collect()),
            ..rule("", ["secrets"], [], ["get", "create", "patch", "delete"])
        },
        rule("", ["serviceaccounts"], [SYNCER, RESTORER, OBSERVER], OWN),
        rule(
            "rbac.authorization.k8s.io",
            ["roles", "rolebindings"],
            [SYNCER, RESTORER, OBSERVER],
            OWN,
        ),
        rule("apps", ["daemonsets"], [SYNCER, RESTORER, OBSERVER], OWN),
        // Their pods, which have names of their own: which nodes have none that runs, and why.
        rule("", ["pods"], [], ["list", "watch"]),
        rule(
            GROUP,
            ["globalpullsecrets"],
            [GLOBAL_SECRET],
            ["list", "watch", "create", "patch"],
        ),
        rule(
            GROUP,
            ["globalpullsecrets/status"],
            [GLOBAL_SECRET],
            ["patch"],
        ),
        // These objects are named after nodes, so the rule can't list names.
        rule(
            GROUP,
            ["nodepullsecrets"],
            [],
            ["list", "watch", "create", "patch", "delete"],
        ),
        // A DaemonSet reports in events why its pods can't be created.
        rule("events.k8s.io", ["events"], [], ["create", "list"]),
    ];
    // They include the restorer's, and with the ones above the observer's.
    rules.extend(syncer::rules(Agent::Syncer));
    rules
}
