//! Cluster API's own core manager next to a test cluster, and other test clusters that are registered with it. Its
//! webhooks are not installed: the custom resources, as its module ships them, request no conversion.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::layout::API_PORT;
use crate::pki::{Authority, write_private};
use crate::process::{spawn, tail};
use crate::product::DEADLINE;
use crate::{Cluster, control_plane, kubernetes, secrecy};

/// API version of `Cluster`s and of what they apply, as stored.
pub const CLUSTERS: &str = "cluster.x-k8s.io/v1beta2";
pub const ADDONS: &str = "addons.cluster.x-k8s.io/v1beta2";
/// Key of the manifest in the Secret of a `ClusterResourceSet`.
pub const MANIFEST: &str = "manifest.yaml";
/// Name of the manager's process and log.
const MANAGER: &str = "capi-manager";
/// First webhook port. The webhooks listen on all addresses of the machine, so each test cluster uses a port of its
/// own.
const WEBHOOK_PORT: u16 = 9450;
const HEALTH_PORT: u16 = 9440;

/// The manager; it runs until this is dropped.
pub struct Capi<'a> {
    management: &'a Cluster,
}

impl<'a> Capi<'a> {
    /// Builds the manager if necessary, installs its custom resources and starts it.
    pub fn start(management: &'a Cluster) -> Result<Self> {
        let program = kubernetes::build_capi_manager()?;
        install_crds(management)?;
        let capi = Self { management };
        capi.spawn(&program)?;
        Ok(capi)
    }

    fn spawn(&self, program: &Path) -> Result<()> {
        let layout = self.management.layout();
        let authority = Authority::load(layout)?;
        let kubeconfig = layout.pki("capi-manager.kubeconfig");
        let admin = authority.kubeconfig(layout, MANAGER, Some("system:masters"))?;
        write_private(&kubeconfig, &admin)?;
        // The manager does not start without a certificate for its webhooks.
        let certificates = layout.pki("capi-webhooks");
        fs::create_dir_all(&certificates)?;
        let webhooks = authority.issue("capi-webhooks", None, &[layout.gateway().to_string()])?;
        write_private(&certificates.join("tls.crt"), &webhooks.certificate)?;
        write_private(&certificates.join("tls.key"), &webhooks.key)?;
        let webhook_port = WEBHOOK_PORT + u16::from(layout.instance);
        let mut command = Command::new(program);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--webhook-cert-dir={}", certificates.display()))
            .arg(format!("--webhook-port={webhook_port}"))
            .arg(format!("--health-addr={}:{HEALTH_PORT}", layout.gateway()))
            .arg("--diagnostics-address=0")
            // The custom resources are new, so there is nothing to migrate.
            .arg("--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields");
        spawn(layout, MANAGER, &mut command)?;
        Ok(())
    }

    /// Registers a cluster with this name and these labels, and returns when the manager is connected to it. Creates
    /// the namespace if necessary.
    pub fn register(
        &self,
        member: &Cluster,
        namespace: &str,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<()> {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let host = member.layout().gateway().to_string();
        self.apply(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": CLUSTERS, "kind": "Cluster",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {"controlPlaneEndpoint": {"host": host, "port": API_PORT}}}),
        ])?;
        self.give_kubeconfig(member, namespace, name)?;
        self.wait_connected(namespace, name)
    }

    /// Writes the Secret with the cluster's kubeconfig, as a control plane provider does. Each call issues a new client
    /// certificate; earlier ones stay valid.
    pub fn give_kubeconfig(&self, member: &Cluster, namespace: &str, name: &str) -> Result<()> {
        let authority = Authority::load(member.layout())?;
        let admin = authority.issue("kubernetes-admin", Some("system:masters"), &[])?;
        let kubeconfig = authority.kubeconfig_of(member.layout(), &admin);
        secrecy::remember(&admin.key);
        self.apply(&[
            json!({"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                "metadata": {"name": format!("{name}-kubeconfig"), "namespace": namespace,
                    "labels": {"cluster.x-k8s.io/cluster-name": name}},
                "stringData": {"value": kubeconfig}}),
        ])
    }

    /// Waits until the manager reports that it is connected to the cluster.
    pub fn wait_connected(&self, namespace: &str, name: &str) -> Result<()> {
        let cluster = format!("clusters.cluster.x-k8s.io/{name}");
        let condition = "--for=condition=RemoteConnectionProbe";
        let timeout = format!("--timeout={}s", DEADLINE.as_secs());
        let wait = ["wait", "-n", namespace, condition, &timeout, &cluster];
        let waited = self.management.kubectl(&wait).map(drop);
        waited.with_context(|| {
            let log = self.management.layout().log(MANAGER);
            format!("the end of `{}`:\n{}", log.display(), tail(&log, 5))
        })
    }

    /// `kubectl apply` on the management cluster.
    fn apply(&self, objects: &[Value]) -> Result<()> {
        self.management.apply_all(objects)
    }
}

impl Drop for Capi<'_> {
    fn drop(&mut self) {
        if let Err(error) = control_plane::kill(self.management.layout(), MANAGER) {
            eprintln!("could not stop {MANAGER}: {error:#}");
        }
    }
}

/// A `ClusterResourceSet`, and the Secret of the same name with the manifest that it writes into the clusters with
/// these labels.
pub fn resource_set(namespace: &str, name: &str, labels: &Value, manifest: &Value) -> [Value; 2] {
    let source = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "addons.cluster.x-k8s.io/resource-set",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {MANIFEST: manifest.to_string()},
    });
    let set = json!({
        "apiVersion": ADDONS, "kind": "ClusterResourceSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "strategy": "Reconcile",
            "clusterSelector": {"matchLabels": labels},
            "resources": [{"kind": "Secret", "name": name}],
        },
    });
    [source, set]
}

fn install_crds(management: &Cluster) -> Result<()> {
    let files = kubernetes::capi_crds()?;
    let directory = files.to_string_lossy();
    management.kubectl(&["apply", "--server-side", "-f", &directory])?;
    let established = ["wait", "--for=condition=Established", "--timeout=60s"];
    management.kubectl(&[&established[..], &["crd", "--all"]].concat())?;
    Ok(())
}
