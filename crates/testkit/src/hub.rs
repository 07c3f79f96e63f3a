//! The hub on a management cluster, and helpers for tests of it.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

pub use crate::product::pull_secret as source;
use crate::product::{self, DEADLINE, Product};
use crate::{Access, Cluster, kubernetes, until};

const POLL: std::time::Duration = std::time::Duration::from_millis(50);
/// Namespace of the hub.
pub const SYSTEM: &str = "globalps-system";

/// The hub on a management cluster, which must have a node.
pub struct Hub<'a> {
    management: &'a Cluster,
}

impl<'a> Hub<'a> {
    /// Pushes the hub's image into the open registry, creates these namespaces, and installs the hub for them; without
    /// namespaces, for all. Two replicas of the hub then run, and one of them leads.
    pub fn install(management: &'a Cluster, namespaces: &[&str]) -> Result<Self> {
        let hub = Self::attach(management);
        let archive = kubernetes::target_dir().join("images/globalps-hub.tar");
        ensure!(archive.exists(), "no image of the hub: run `make image`");
        let registry = management.registry();
        let image = registry.push(&archive, Access::Open, "globalps-hub:test")?;
        let made = namespaces.iter().map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        hub.apply(&made.collect::<Vec<_>>())?;
        let namespaces = match namespaces {
            [] => "--all-namespaces".to_owned(),
            namespaces => format!("--namespaces={}", namespaces.join(",")),
        };
        hub.fleet_command(&["install", "--image", &image, &namespaces, "--apply"])?;
        Ok(hub)
    }

    /// Attaches to an installed hub.
    pub fn attach(management: &'a Cluster) -> Self {
        Self { management }
    }

    /// Runs `kubectl globalps fleet` on the management cluster; it must succeed.
    pub fn fleet_command(&self, args: &[&str]) -> Result<String> {
        let product = Product::attach(self.management);
        let ran = product.plugin(&[&["fleet"], args].concat(), "")?;
        ensure!(ran.code == Some(0), "fleet {args:?}: {}", ran.stderr);
        Ok(ran.stdout)
    }

    pub fn management(&self) -> &Cluster {
        self.management
    }

    /// `kubectl apply` on the management cluster.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        self.management.apply_all(objects)
    }

    /// A `FleetPullSecret`, as JSON.
    pub fn fleet(&self, namespace: &str, name: &str) -> Result<Value> {
        self.get(namespace, &format!("fleetpullsecret/{name}"))
    }

    /// The `ClusterPullSecret` of a cluster in this fleet, as JSON.
    pub fn cluster(&self, namespace: &str, fleet: &str, cluster: &str) -> Result<Value> {
        let name = globalps_core::names::cluster_pull_secret(cluster, namespace, fleet);
        self.get(namespace, &format!("clusterpullsecret/{name}"))
    }

    fn get(&self, namespace: &str, what: &str) -> Result<Value> {
        self.management.get(namespace, what)
    }

    /// Waits until the condition `Ready` of the newest spec has this status and reason; returns its message.
    pub fn wait_ready(
        &self,
        namespace: &str,
        name: &str,
        (status, reason): (&str, &str),
    ) -> Result<String> {
        let what = format!("fleet {namespace}/{name}: Ready {status} {reason}");
        let mut last = Value::Null;
        until(&what, DEADLINE, POLL, || {
            last = self.fleet(namespace, name)?;
            let is_observed =
                last["status"]["observedGeneration"] == last["metadata"]["generation"];
            let ready = product::condition(&last["status"], "Ready");
            let is_wanted = is_observed && ready.0 == status && ready.1 == reason;
            Ok(is_wanted.then_some(ready.2))
        })
        .with_context(|| format!("{:#}", last["status"]))
    }

    /// Waits until the `ClusterPullSecret` has this phase and reason; returns its status.
    pub fn wait_phase(
        &self,
        (namespace, fleet, cluster): (&str, &str, &str),
        (phase, reason): (&str, &str),
    ) -> Result<Value> {
        let mut last = Value::Null;
        until(
            &format!("{cluster}: {phase} {reason}"),
            DEADLINE,
            POLL,
            || {
                last = self.cluster(namespace, fleet, cluster)?;
                let status = &last["status"];
                let is_wanted = status["phase"] == phase && status["reason"] == reason;
                Ok(is_wanted.then(|| status.clone()))
            },
        )
        .with_context(|| format!("{:#}", last["status"]))
    }
}

/// A `FleetPullSecret` with a source of the same name, and more fields of its spec.
pub fn fleet(namespace: &str, name: &str, more: &Value) -> Value {
    let mut fleet = json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"secretRef": {"name": name}},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        fleet["spec"][field] = value.clone();
    }
    fleet
}

/// Whether the hub's Secret in a member has this content.
pub fn member_has(member: &Cluster, content: &str) -> Result<bool> {
    let content = BASE64_STANDARD.encode(content);
    Ok(member_secret(member)?["data"][".dockerconfigjson"] == content)
}

/// The hub's Secret in a member.
pub fn member_secret(member: &Cluster) -> Result<Value> {
    let what = format!("secret/{}", product::ADDITIONAL);
    member.get(product::NAMESPACE, &what)
}
