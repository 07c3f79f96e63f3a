//! A management cluster without nodes, and the hub's process with its own permissions.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use globalps_core::manifests::HubInstall;
use globalps_core::names::{CONTROLLER_NAMESPACE, HUB};
use kube::Client;
use serde_json::{Value, json};

use super::stage::Stage;
use crate::pki::{Authority, write_private};
use crate::process::{marked, spawn};
use crate::{kubernetes, until};

/// Namespace of the clusters and of their `FleetPullSecret`.
pub(super) const CLUSTERS: &str = "clusters";
const POLL: Duration = Duration::from_millis(5);

pub(super) struct HubStage {
    pub(super) stage: Stage,
}

/// The hub's process.
#[derive(Clone, Copy, Debug)]
pub(super) struct HubProcess {
    pub(super) pid: u32,
    /// Where it serves its metrics.
    pub(super) port: u16,
}

impl HubStage {
    /// `name`: of the cluster.
    pub(super) fn up(name: &str) -> Result<Self> {
        let stage = Stage::bare(name)?;
        let install = HubInstall {
            image: "none".to_owned(),
            namespaces: vec![CLUSTERS.to_owned()],
        };
        let mut objects = install.objects();
        // Nothing else is to run on the hub's behalf.
        objects.retain(|object| object["kind"] != "Deployment");
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLUSTERS}});
        objects.insert(0, namespace);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        stage.apply(&list.to_string())?;
        for crd in ["fleetpullsecrets", "clusterpullsecrets"] {
            let crd = format!("crd/{crd}.globalps.io");
            let wait = ["wait", "--for=condition=Established", "--timeout=30s", &crd];
            stage.cluster.kubectl(&wait)?;
        }
        Ok(Self { stage })
    }

    /// Starts the hub as it is shipped.
    pub(super) fn start(&self) -> Result<HubProcess> {
        let layout = self.stage.cluster.layout();
        let file = layout.pki("hub.kubeconfig");
        write_private(&file, &self.kubeconfig()?)?;
        let program =
            kubernetes::target_dir().join("x86_64-unknown-linux-musl/release/globalps-hub");
        ensure!(
            program.exists(),
            "`{}` is missing: run `make image`",
            program.display()
        );
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .args(["run", "--probes-port=0", "--log-format=text"])
            .arg(format!("--port={port}"))
            .arg(format!("--namespaces={CLUSTERS}"))
            .env("KUBECONFIG", &file);
        spawn(layout, HUB, &mut command)?;
        let pid = self.running()?.context("the hub ended at once")?;
        Ok(HubProcess { pid, port })
    }

    fn running(&self) -> Result<Option<u32>> {
        let processes = marked(&self.stage.cluster.layout().bridge())?;
        let mut hubs = processes.into_iter().filter(|it| it.component == HUB);
        Ok(hubs.next().map(|process| process.pid))
    }

    /// As Kubernetes ends a pod: it gives its Lease back.
    pub(super) fn stop(&self) -> Result<()> {
        self.stage.cluster.signal(HUB, "TERM")?;
        until("the end of the hub", Duration::from_secs(20), POLL, || {
            Ok(self.running()?.is_none().then_some(()))
        })
    }

    fn kubeconfig(&self) -> Result<String> {
        let cluster = &self.stage.cluster;
        let create = ["create", "token", HUB, "-n", CONTROLLER_NAMESPACE];
        let token = cluster.kubectl(&[&create[..], &["--duration=12h"]].concat())?;
        let layout = cluster.layout();
        let authority = Authority::load(layout)?;
        let mut config: Value = serde_json::from_str(&authority.kubeconfig(layout, HUB, None)?)?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        Ok(config.to_string())
    }

    pub(super) async fn admin_client(&self) -> Result<Client> {
        self.stage.admin_client().await
    }
}

/// One that nobody has now.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}
