//! A control plane without nodes, permissions, and the controller's process.

use std::fmt::Display;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use globalps_core::api::{Attach, DeliveryType, SecretRef};
use globalps_core::names::{
    ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, OPENSHIFT_ORIGINAL, ROLLED_OUT_SECRET,
};
use globalps_manifests::{Manifests, NamespaceAccess, OperatorAccess, sources_access};
use kube::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::objects::client;
use crate::pki::{Authority, write_private};
use crate::process::{kill, marked, parent, spawn};
use crate::product::{NAMESPACE, pull_secret};
use crate::programs::shipped;
use crate::{Cluster, DEADLINE, until};

const CONTROLLER: &str = "globalps-controller";
pub(super) const CONTROLLER_NAMESPACE: &str = "globalps-system";
/// The syncers don't use their own account, whose tokens are bound to pods, because there are no pods here.
const SYNCERS: &str = "fleet-syncers";

pub(super) struct Stage {
    pub(super) cluster: Cluster,
}

impl Stage {
    pub(super) fn up(nodes: usize) -> Result<Self> {
        Self::with(&format!("fleet-{nodes}"), None)
    }

    /// `name`: of the cluster. `attach`: enables delivery to namespaces, with nothing on nodes.
    pub(super) fn with(name: &str, attach: Option<Attach>) -> Result<Self> {
        Self::install(Self::bare(name)?.cluster, attach, None)
    }

    /// Beside `HyperShift`'s own controller, with this Secret as the original: namespace and name.
    pub(super) fn observed(name: &str, (namespace, original): (&str, &str)) -> Result<Self> {
        let install = Manifests {
            delivery: Some(DeliveryType::Observe),
            original: Some(SecretRef {
                namespace: namespace.to_owned(),
                name: original.to_owned(),
                key: DATA_KEY.to_owned(),
            }),
            ..Manifests::of_images("none", "none")
        };
        Self::apply_manifests(Self::bare(name)?.cluster, &install)
    }

    /// As on standalone `OpenShift`, whose own pull secret has this content.
    pub(super) fn openshift(name: &str, content: &str) -> Result<Self> {
        let stage = Self::bare(name)?;
        let (namespace, secret) = OPENSHIFT_ORIGINAL;
        stage.cluster.kubectl(&["create", "namespace", namespace])?;
        stage.apply(pull_secret(namespace, secret, content))?;
        let install = Manifests {
            delivery: Some(DeliveryType::OpenShift),
            ..Manifests::of_images("none", "none")
        };
        Self::apply_manifests(stage.cluster, &install)
    }

    /// An API server without globalps and without a controller manager.
    pub(super) fn bare(name: &str) -> Result<Self> {
        let cluster = Self::cluster(name)?;
        // Without these, no component notices that the nodes don't exist.
        for component in ["kube-controller-manager", "kube-scheduler"] {
            cluster.signal(component, "KILL")?;
            // A component with a log that does not run counts as dead when the API server restarts.
            std::fs::remove_file(cluster.layout().log(component))?;
        }
        Ok(Self { cluster })
    }

    /// Like [`Self::with`], but with Kubernetes' own controllers, which create service accounts and finish the deletion
    /// of namespaces.
    pub(super) fn managed(name: &str, attach: Attach) -> Result<Self> {
        Self::install(Self::cluster(name)?, Some(attach), None)
    }

    /// Like [`Self::managed`], for operators whose catalogs refer to these Secrets, each with its namespace.
    pub(super) fn for_operators(name: &str, secrets: &[(&str, &str)]) -> Result<Self> {
        let cluster = Self::cluster(name)?;
        for (namespace, _) in secrets {
            cluster.kubectl(&["create", "namespace", namespace])?;
        }
        let named =
            |(namespace, name): &(&str, &str)| ((*namespace).to_owned(), (*name).to_owned());
        let secrets = secrets.iter().map(named).collect();
        Self::install(cluster, None, Some(OperatorAccess { secrets }))
    }

    fn cluster(name: &str) -> Result<Cluster> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )?;
        Cluster::up_named(name, 0)
    }

    fn install(
        cluster: Cluster,
        attach: Option<Attach>,
        operators: Option<OperatorAccess>,
    ) -> Result<Self> {
        let access = |attach| NamespaceAccess {
            secret_name: GLOBAL_SECRET.to_owned(),
            attach,
            detaches: false,
        };
        let install = Manifests {
            delivery: (attach.is_some() || operators.is_some()).then_some(DeliveryType::None),
            image_pull_secrets: attach.map(access),
            operators,
            ..Manifests::of_images("none", "none")
        };
        Self::apply_manifests(cluster, &install)
    }

    fn apply_manifests(cluster: Cluster, install: &Manifests) -> Result<Self> {
        let stage = Self { cluster };
        let mut objects = install.objects();
        objects.push(pod(&objects)?);
        // The API server must know the CRD first.
        let (configuration, objects): (Vec<Value>, Vec<Value>) = objects
            .into_iter()
            .partition(|object| object["kind"] == "GlobalPullSecret");
        stage.apply_all(&objects)?;
        for object in configuration {
            let poll = Duration::from_millis(100);
            until("the configuration", DEADLINE, poll, || {
                Ok(stage.apply(&object).ok())
            })?;
        }
        stage.apply(permissions())?;
        Ok(stage)
    }

    pub(super) fn apply(&self, manifest: impl Display) -> Result<()> {
        let args = ["apply", "--server-side", "-f", "-"];
        self.cluster.kubectl_with(&args, manifest).map(drop)
    }

    pub(super) fn apply_all(&self, objects: &[Value]) -> Result<()> {
        self.apply(json!({"apiVersion": "v1", "kind": "List", "items": objects}))
    }

    /// Writes the additional Secret, with this password for one registry.
    pub(super) fn write_password(&self, password: impl Display) -> Result<()> {
        let login = json!({"username": "u", "password": password.to_string()});
        let content = json!({"auths": {"r.example.com": login}});
        let content = content.to_string();
        self.apply(pull_secret(NAMESPACE, ADDITIONAL_SECRET, &content))
    }

    /// Lets the controller read a source.
    pub(super) fn allow_source(&self, name: &str) -> Result<()> {
        self.apply_all(&sources_access(NAMESPACE, vec![name.to_owned()]))
    }

    /// Waits for the service accounts that Kubernetes' own controllers create in new namespaces.
    pub(super) fn wait_default_accounts(&self, namespaces: &[&str]) -> Result<()> {
        let mut namespaces = namespaces.iter();
        namespaces.try_for_each(|namespace| self.cluster.wait_default_account(namespace))
    }

    /// Starts the shipped controller with its own permissions.
    pub(super) fn start_controller(&self) -> Result<u32> {
        self.start(CONTROLLER)
    }

    /// `component`: name of this process of the controller.
    pub(super) fn start(&self, component: &str) -> Result<u32> {
        let args = ["run", "--syncer-image=none", "--port=0", "--probes-port=0"];
        self.spawn(component, CONTROLLER, &args)
    }

    /// Starts a shipped program with the permissions of the service account of this name.
    pub(super) fn spawn(&self, component: &str, name: &str, args: &[&str]) -> Result<u32> {
        let layout = self.cluster.layout();
        let file = layout.pki(&format!("{name}.kubeconfig"));
        if !file.exists() {
            write_private(&file, &self.kubeconfig_of(name)?)?;
        }
        let mut command = Command::new(shipped(name)?);
        command.args(args).env("KUBECONFIG", &file);
        // Not by name, because a process that was just killed may still exist.
        let pid = spawn(layout, component, &mut command)?;
        ensure!(parent(pid).is_some(), "{name} exited immediately");
        Ok(pid)
    }

    pub(super) fn running(&self, component: &str) -> Result<Option<u32>> {
        let processes = marked(&self.cluster.layout().bridge())?;
        Ok(processes
            .into_iter()
            .find(|process| process.component == component)
            .map(|process| process.pid))
    }

    pub(super) fn stop_controller(&self) -> Result<()> {
        until(
            "the controller to exit",
            DEADLINE,
            Duration::from_millis(20),
            || {
                let left = self.running(CONTROLLER)?;
                left.into_iter().for_each(kill);
                Ok(left.is_none().then_some(()))
            },
        )
    }

    fn kubeconfig_of(&self, account: &str) -> Result<String> {
        let token = self.cluster.kubectl(&[
            "create",
            "token",
            account,
            "--namespace",
            CONTROLLER_NAMESPACE,
            "--duration=12h",
            "--bound-object-kind=Pod",
            "--bound-object-name",
            &host()?,
        ])?;
        self.kubeconfig_with(account, token.trim())
    }

    fn kubeconfig_with(&self, account: &str, token: &str) -> Result<String> {
        let authority = Authority::load(self.cluster.layout())?;
        let mut config: Value =
            serde_json::from_str(&authority.kubeconfig(self.cluster.layout(), account, None)?)?;
        config["users"][0]["user"] = json!({"token": token});
        Ok(config.to_string())
    }

    /// A client with this token.
    pub(super) async fn token_client(&self, token: &str) -> Result<Client> {
        client(&self.kubeconfig_with("token", token)?).await
    }

    /// A client with the controller's permissions.
    pub(super) async fn controller_client(&self) -> Result<Client> {
        client(&self.kubeconfig_of(CONTROLLER)?).await
    }

    pub(super) async fn admin_client(&self) -> Result<Client> {
        client(&std::fs::read_to_string(self.cluster.kubeconfig())?).await
    }

    /// A client with a syncer's permissions. Its requests are in the API server's queue for service accounts.
    pub(super) async fn syncer_client(&self) -> Result<Client> {
        let layout = self.cluster.layout();
        let group = Some("system:serviceaccounts");
        client(&Authority::load(layout)?.kubeconfig(layout, SYNCERS, group)?).await
    }
}

/// Host name of this machine, as the controller's process reads it.
pub(super) fn host() -> Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(host.trim().to_owned())
}

/// The pod that represents the controller's process: the API server accepts writes only from the pod that the Lease
/// names.
pub(super) fn pod(objects: &[Value]) -> Result<Value> {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let deployment = deployment.context("a Deployment")?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": host()?, "namespace": CONTROLLER_NAMESPACE},
        "spec": deployment["spec"]["template"]["spec"],
    }))
}

/// A syncer's permissions, created at once, because the controller would only create the Role with the first revision.
fn permissions() -> Value {
    let metadata = json!({"name": SYNCERS, "namespace": NAMESPACE});
    let rbac = "rbac.authorization.k8s.io";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [GLOBAL_SECRET, ROLLED_OUT_SECRET], "verbs": ["get"]},
            {"apiGroups": ["globalps.io"], "resources": ["nodepullsecrets"], "verbs": ["list", "watch"]},
            {"apiGroups": ["globalps.io"], "resources": ["nodepullsecrets/status"], "verbs": ["patch"]},
        ]},
        {"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": SYNCERS},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": SYNCERS}]},
    ]})
}
