//! A management cluster without nodes, and the hub's process with its own permissions.

use std::time::Duration;

use anyhow::Result;
use globalps_core::api::{ClusterPhase, ClusterPullSecret};
use globalps_core::names::{HUB, hub_shard};
use globalps_manifests::HubInstall;
use kube::Client;
use serde_json::json;

use super::meter::Usage;
use super::stage::{Stage, pod};
use super::tenant::TENANT;
use crate::{Cluster, DEADLINE, until};

/// Namespace of the clusters and of their `FleetPullSecret`.
pub const CLUSTERS: &str = "clusters";
const POLL: Duration = Duration::from_millis(5);

pub struct HubStage {
    pub(super) stage: Stage,
    /// Hub processes that share the clusters.
    shards: u32,
    namespaces: Vec<String>,
}

/// The hub's process.
#[derive(Clone, Copy, Debug)]
pub struct HubProcess {
    pub pid: u32,
    /// Port of its metrics; 0: unknown.
    pub port: u16,
}

impl HubProcess {
    /// Fails if the process has exited.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }
}

impl HubStage {
    /// `name`: of the cluster.
    pub fn up(name: &str) -> Result<Self> {
        Self::up_with(name, 1)
    }

    /// Like [`Self::up`], with the namespace of a tenant.
    pub fn up_with_tenant(name: &str) -> Result<Self> {
        Self::up_in(name, 1, &[CLUSTERS, TENANT])
    }

    pub(super) fn up_with(name: &str, shards: u32) -> Result<Self> {
        Self::up_in(name, shards, &[CLUSTERS])
    }

    fn up_in(name: &str, shards: u32, namespaces: &[&str]) -> Result<Self> {
        let namespaces: Vec<String> = namespaces.iter().map(|it| (*it).to_owned()).collect();
        let stage = Stage::bare(name)?;
        let install = HubInstall {
            image: "none".to_owned(),
            namespaces: namespaces.clone(),
            trusted_namespaces: Vec::new(),
            shards,
        };
        let mut objects = install.objects();
        let pod = pod(&objects)?;
        // The hub runs as a process, not as a pod.
        objects.retain(|object| object["kind"] != "Deployment");
        for name in &namespaces {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            objects.insert(0, namespace);
        }
        stage.apply_all(&objects)?;
        for crd in ["fleetpullsecrets", "clusterpullsecrets"] {
            let crd = format!("crd/{crd}.globalps.io");
            let wait = ["wait", "--for=condition=Established", "--timeout=30s", &crd];
            stage.cluster.kubectl(&wait)?;
        }
        stage.apply(&pod)?;
        Ok(Self {
            stage,
            shards,
            namespaces,
        })
    }

    pub fn cluster(&self) -> &Cluster {
        &self.stage.cluster
    }

    /// Starts the shipped hub with all its shards; returns the first one.
    pub fn start(&self) -> Result<HubProcess> {
        self.start_on(0)
    }

    /// Like [`Self::start`]; the first one serves its metrics on a port that another program may take first.
    pub(super) fn start_with_metrics(&self) -> Result<HubProcess> {
        self.start_on(free_port()?)
    }

    fn start_on(&self, port: u16) -> Result<HubProcess> {
        for index in 1..self.shards {
            self.start_shard(&hub_shard(index), index, 0)?;
        }
        self.start_shard(HUB, 0, port)
    }

    /// `component`: name of this process of the hub.
    pub(super) fn start_as(&self, component: &str) -> Result<HubProcess> {
        self.start_shard(component, 0, 0)
    }

    /// `port`: of the metrics; 0: the kernel chooses one, which no other program has.
    fn start_shard(&self, component: &str, index: u32, port: u16) -> Result<HubProcess> {
        let flags = [
            format!("--port={port}"),
            format!("--namespaces={}", self.namespaces.join(",")),
            format!("--shard={index}/{}", self.shards),
        ];
        let mut args = vec!["run", "--probes-port=0", "--log-format=text"];
        args.extend(flags.iter().map(String::as_str));
        let pid = self.stage.spawn(component, HUB, &args)?;
        Ok(HubProcess { pid, port })
    }

    /// Stops it with SIGTERM, like Kubernetes: the hub releases its Lease.
    pub fn stop(&self) -> Result<()> {
        for index in 0..self.shards {
            self.stage.cluster.signal(&hub_shard(index), "TERM")?;
        }
        until("the hub to exit", DEADLINE, POLL, || {
            Ok(self.pids()?.is_empty().then_some(()))
        })
    }

    /// The process ids of all shards.
    pub(super) fn pids(&self) -> Result<Vec<u32>> {
        let running = (0..self.shards).map(|index| self.stage.running(&hub_shard(index)));
        let running: Result<Vec<Option<u32>>> = running.collect();
        Ok(running?.into_iter().flatten().collect())
    }

    pub(super) fn apply(&self, objects: impl std::fmt::Display) -> Result<()> {
        self.stage.apply(objects)
    }

    pub async fn admin_client(&self) -> Result<Client> {
        self.stage.admin_client().await
    }
}

/// Whether an assignment, or its removal, is in progress.
pub(super) fn is_changing(object: &ClusterPullSecret) -> bool {
    use ClusterPhase::{Blocked, Failed, Removed, Synced, Unreachable};
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let is_about = Some(status.observed_generation) == object.metadata.generation;
    let has_it = !spec.remove && status.in_force() == spec.assigned();
    let is_over = match status.phase {
        Blocked | Failed | Removed | Synced => true,
        // The connection was lost afterwards.
        Unreachable => has_it,
        _ => false,
    };
    (spec.revision > 0 || spec.remove) && !spec.revoked && !(is_about && is_over)
}

/// A port that is free now.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}
