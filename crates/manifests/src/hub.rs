//! The objects that `fleet install` creates on a management cluster: the hub, its custom resources and permissions.

use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::names::{CONTROLLER_NAMESPACE, GROUP, HUB, HUB_LEADER, MAX_SHARDS, hub_shard};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::leader;
use super::network::metrics_only;
use super::program::{Program, deployment, namespace};
use super::rbac::{cluster_role, cluster_role_binding, role, role_binding, rule, service_account};
use super::schema::crd;
use super::{named, quota, value};

/// Input of the hub's manifests.
#[derive(Clone, Debug)]
pub struct HubInstall {
    /// Reference of the controller's image, which contains the hub.
    pub image: String,
    /// Namespaces with `FleetPullSecret`s and clusters. In each, a Role lets the hub read every Secret. Empty: all namespaces,
    /// through a `ClusterRole`.
    pub namespaces: Vec<String>,
    /// Namespaces whose `FleetPullSecret`s may select clusters in other namespaces, and install globalps. Empty: only
    /// `globalps-system`.
    pub trusted_namespaces: Vec<String>,
    /// Number of shards. Each leads for its part of the clusters; 1 is enough for a thousand. At most [`MAX_SHARDS`].
    pub shards: u32,
}

impl HubInstall {
    /// The objects in apply order.
    pub fn objects(&self) -> Vec<Value> {
        let account = (HUB, CONTROLLER_NAMESPACE);
        let labels = rule("", ["namespaces"], [], ["list", "watch"]);
        let mut cluster_wide = vec![labels];
        if self.namespaces.is_empty() {
            cluster_wide.extend(rules());
        }
        let mut objects = vec![value(namespace())];
        objects.extend(quota::objects(CONTROLLER_NAMESPACE));
        objects.extend([
            value(crd::<FleetPullSecret>()),
            value(crd::<ClusterPullSecret>()),
            value(named::<ServiceAccount>(HUB, CONTROLLER_NAMESPACE)),
            value(cluster_role(HUB, cluster_wide)),
            value(cluster_role_binding(HUB, service_account(account))),
            value(role(HUB, CONTROLLER_NAMESPACE, self.election())),
            value(role_binding(HUB, CONTROLLER_NAMESPACE, account)),
        ]);
        for namespace in &self.namespaces {
            objects.push(value(role(HUB, namespace, rules())));
            objects.push(value(role_binding(HUB, namespace, account)));
        }
        objects.extend(leader::hub_objects());
        // After the policy: a new hub never runs without it.
        for index in 0..self.shards() {
            let name = hub_shard(index);
            objects.push(value(NetworkPolicy {
                spec: Some(metrics_only(&name)),
                ..named(&name, CONTROLLER_NAMESPACE)
            }));
            objects.push(value(self.deployment(index, &name)));
        }
        objects
    }

    fn shards(&self) -> u32 {
        self.shards.clamp(1, MAX_SHARDS)
    }

    fn election(&self) -> Vec<PolicyRule> {
        leader::rules((0..self.shards()).map(hub_shard).collect(), HUB_LEADER)
    }

    fn deployment(&self, index: u32, name: &str) -> Deployment {
        let mut args = vec!["run".to_owned()];
        if !self.namespaces.is_empty() {
            args.push(format!("--namespaces={}", self.namespaces.join(",")));
        }
        if !self.trusted_namespaces.is_empty() {
            let trusted = self.trusted_namespaces.join(",");
            args.push(format!("--trusted-namespaces={trusted}"));
        }
        if self.shards() > 1 {
            args.push(format!("--shard={index}/{}", self.shards()));
        }
        deployment(Program {
            name,
            service_account: HUB,
            container: "hub",
            image: &self.image,
            image_pull_secret: None,
            args,
            memory: "512Mi",
            config: None,
        })
    }
}

/// Permissions in each namespace. Names of kubeconfig and revision Secrets aren't known in advance, so the rules can't name them.
fn rules() -> Vec<PolicyRule> {
    vec![
        rule(GROUP, ["fleetpullsecrets"], [], ["list", "watch", "patch"]),
        rule(GROUP, ["fleetpullsecrets/status"], [], ["patch"]),
        // With `OwnerReferencesPermissionEnforcement`, setting an owner requires the right to block its deletion.
        rule(GROUP, ["fleetpullsecrets/finalizers"], [], ["update"]),
        rule(
            GROUP,
            ["clusterpullsecrets"],
            [],
            ["list", "watch", "create", "patch", "delete"],
        ),
        rule(GROUP, ["clusterpullsecrets/status"], [], ["patch"]),
        rule("events.k8s.io", ["events"], [], ["create"]),
        rule("cluster.x-k8s.io", ["clusters"], [], ["list", "watch"]),
        rule(
            "",
            ["secrets"],
            [],
            ["list", "watch", "create", "patch", "delete"],
        ),
    ]
}
