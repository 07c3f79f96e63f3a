//! The workloads of globalps: controller, its Lease, syncers.

use globalps_core::decode::Item;
use globalps_core::{decode, names};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::ObjectMeta;
use serde::Deserialize;

use crate::cluster::client::Cluster;
use crate::cluster::controller::{Program, deployment, stopped};
use crate::cluster::facts::{Facts, Sight};
use crate::cluster::start;
use crate::cluster::syncers::{PodError, is_ours, is_own_daemon_set, pod_errors};
use crate::error::Result;
use crate::terminal::layout::nodes;

/// A `Deployment` or a `DaemonSet`, as far as this user may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    pub wanted: i32,
    pub ready: i32,
    pub image: String,
    /// Whether its labels are those of globalps.
    pub ours: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseSeen {
    pub holder: String,
    pub renewed: Option<Timestamp>,
    pub seconds: i32,
}

/// How far apart the clocks of the leader and of the API server may be, in seconds.
const SKEW: i64 = 60;

impl LeaseSeen {
    /// Whether a controller leads. A leader that ends gives the Lease back without a holder.
    pub(crate) fn is_current(&self, now: Timestamp) -> bool {
        let age = self.renewed.map(|renewed| now.duration_since(renewed));
        let most = i64::from(self.seconds) + SKEW;
        !self.holder.is_empty() && age.is_some_and(|age| age.as_secs() <= most)
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Lease {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: LeaseFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseFields {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    /// Absent if it is not plausible: other clients may write it.
    #[serde(deserialize_with = "decode::time")]
    renew_time: Option<Time>,
}

globalps_core::view!(Lease: k8s_openapi::api::coordination::v1::Lease);

#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub crds: Sight<()>,
    pub controller: Sight<Workload>,
    /// Why the controller does nothing.
    pub stopped: Option<String>,
    /// What prevents its pods from starting, and how to fix it.
    pub start: Option<start::Reason>,
    pub lease: Sight<LeaseSeen>,
    pub syncer: Sight<Workload>,
    /// What prevents the syncers' pods from running.
    pub pod_errors: Vec<PodError>,
    /// Number of nodes that should have a syncer and are not Ready, if the caller knows it.
    pub nodes_not_ready: u32,
    /// Whether nodes have assignments, if the caller knows it.
    pub needs_syncers: bool,
}

impl Installed {
    /// Adds the state of globalps' objects; `None` if this user may not read them.
    pub(crate) fn with(self, facts: Option<&Facts>) -> Self {
        let gps = facts.and_then(Facts::gps);
        let is_observed = gps.is_some_and(|gps| gps.spec.kubelet.delivery.is_observed());
        Self {
            // HyperShift's is none of these syncers.
            syncer: match self.syncer {
                Sight::Here(found) if is_observed && !found.ours => Sight::Absent,
                syncer => syncer,
            },
            crds: match facts {
                None => Sight::Hidden,
                Some(facts) if facts.installed => Sight::Here(()),
                Some(_) => Sight::Absent,
            },
            nodes_not_ready: facts.map_or(0, Facts::nodes_not_ready),
            needs_syncers: facts.is_some_and(|facts| !facts.node_secrets.is_empty()),
            ..self
        }
    }

    /// Why the controller does not run, if known.
    pub(crate) fn cause(&self) -> Option<&String> {
        let start = self.start.as_ref().map(|(why, _)| why);
        start.or(self.stopped.as_ref())
    }

    /// How to fix a controller that does not run.
    pub(crate) fn repair(&self) -> String {
        let namespace = names::CONTROLLER_NAMESPACE;
        match (&self.controller, &self.start) {
            (Sight::Here(found), _) if found.wanted == 0 => format!(
                "start it with `kubectl -n {namespace} scale deployment {} --replicas 2`",
                names::CONTROLLER
            ),
            (Sight::Here(_), Some((_, hint))) => hint.clone(),
            _ => format!(
                "`kubectl -n {namespace} describe deployment,pods` shows why it does not run"
            ),
        }
    }

    /// `1 node is not Ready`, and whether this is all that these syncers lack.
    pub(crate) fn of_nodes(&self, syncers: &Workload) -> Option<(String, bool)> {
        let number = self.nodes_not_ready;
        let are = if number == 1 { "is" } else { "are" };
        let is_all = syncers.wanted.saturating_sub(syncers.ready)
            <= i32::try_from(number).unwrap_or(i32::MAX);
        (number > 0).then(|| (format!("{} {are} not Ready", nodes(number)), is_all))
    }
}

/// Reads all of [`Installed`]; the custom resources must exist.
pub(crate) async fn installed(cluster: &Cluster<'_>) -> Result<Installed> {
    let leases: Api<Item<Lease>> =
        Api::namespaced(cluster.client.clone(), names::CONTROLLER_NAMESPACE);
    let daemon_sets = cluster.api::<Item<DaemonSet>>();
    let (controller, lease, syncer, restorer, observer) = tokio::join!(
        deployment(cluster, Program::Controller),
        cluster.read("get the controller's Lease", leases.get_opt(names::LEASE)),
        cluster.read(
            "get the syncer's DaemonSet",
            daemon_sets.get_opt(names::SYNCER)
        ),
        cluster.read(
            "get the restorer's DaemonSet",
            daemon_sets.get_opt(names::RESTORER)
        ),
        cluster.read(
            "get the observer's DaemonSet",
            daemon_sets.get_opt(names::OBSERVER)
        ),
    );
    let controller = Sight::of(controller)?;
    let stopped = match &controller {
        Sight::Hidden => None,
        Sight::Absent => stopped(Program::Controller, None, cluster.now()),
        Sight::Here(found) => stopped(Program::Controller, Some(found), cluster.now()),
    };
    let controller = controller.map(|found| {
        let (spec, status) = (found.spec.as_ref(), found.status.as_ref());
        Workload {
            wanted: spec.and_then(|it| it.replicas).unwrap_or(1),
            ready: status.and_then(|it| it.available_replicas).unwrap_or(0),
            image: image(spec.map(|it| &it.template)),
            ours: is_ours(&found),
        }
    });
    let start = match &controller {
        Sight::Here(found) if found.ready == 0 => {
            Box::pin(start::look(cluster, names::CONTROLLER)).await?
        }
        _ => None,
    };
    // Where HyperShift's own controller delivers, the DaemonSet of the syncer's name is its.
    let syncer = match Sight::of(observer)? {
        observer @ Sight::Here(_) => observer,
        Sight::Absent | Sight::Hidden => Sight::of(syncer)?,
    };
    let mut found = Vec::new();
    for daemon_set in [&syncer, &Sight::of(restorer)?] {
        if let Sight::Here(daemon_set) = daemon_set
            && is_own_daemon_set(daemon_set)
        {
            found.extend(pod_errors(cluster, daemon_set).await?);
        }
    }
    Ok(Installed {
        crds: Sight::Here(()),
        stopped,
        start,
        controller,
        lease: Sight::of(lease)?.map(|found| {
            let spec = found.spec;
            LeaseSeen {
                holder: spec.holder_identity.unwrap_or_default(),
                renewed: spec.renew_time.map(|time| time.0),
                seconds: spec.lease_duration_seconds.unwrap_or_default(),
            }
        }),
        syncer: syncer.map(|found| {
            let status = found.status.as_ref();
            Workload {
                wanted: status.map_or(0, |status| status.desired_number_scheduled),
                ready: status.map_or(0, |status| status.number_ready),
                image: image(found.spec.as_ref().map(|spec| &spec.template)),
                ours: is_own_daemon_set(&found),
            }
        }),
        pod_errors: found,
        nodes_not_ready: 0,
        needs_syncers: false,
    })
}

fn image(pods: Option<&PodTemplateSpec>) -> String {
    let image = pods.and_then(|pods| pods.spec.as_ref()?.containers.first()?.image.clone());
    image.unwrap_or_default()
}
