//! `delivery: OpenShift` on a real API server: the shipped controller and observers, a stand-in of the Machine Config Operator, three
//! other programs that write the pull secret, and watchers of each of its versions and of each status.

mod document;
mod ledger;
mod machine_config;
mod objects;
mod scene;
mod writers;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use globalps_core::names::{CONTROLLER, OPENSHIFT_ORIGINAL};

use super::observed::Seen;
use super::stage::{CONTROLLER_NAMESPACE, Stage};
use crate::audit::Request;
use crate::rights::service_account;
use scene::Scene;

/// Longest time between two removals.
const ROUND: Duration = Duration::from_mins(3);

/// What has happened, and what the watchers saw.
#[derive(Debug, Default)]
pub struct Report {
    pub seen: Seen,
    /// Versions of the pull secret that others wrote, and that globalps wrote.
    pub versions: (usize, usize),
    /// Versions in which something of others is not what they wrote.
    pub problems: Vec<String>,
    pub rotations: usize,
    pub kills: usize,
    pub pauses: usize,
    pub paused_pools: usize,
    pub removals: usize,
    /// Node updates by the stand-in of the Machine Config Operator.
    pub updates: usize,
    /// The controller's requests in `openshift-config`.
    pub verbs: BTreeSet<String>,
}

/// Rotates for this long with this many nodes, and removes the pull secret at the end of each round.
pub fn run(nodes: usize, duration: Duration, seed: u64) -> Result<Report> {
    fastrand::seed(seed);
    let stage = Stage::openshift("standalone-openshift", scene::PLATFORM)?;
    let mut report = super::block_on(async {
        let client = stage.admin_client().await?;
        let mut scene = Scene::start(&stage, &client, nodes, seed).await?;
        let mut left = duration;
        while !left.is_zero() {
            let round = left.min(ROUND);
            left -= round;
            scene.round(round).await?;
        }
        scene.end().await
    })?;
    report.verbs = verbs(&stage)?;
    Ok(report)
}

/// What the controller asked for in the namespace of the pull secret, which must be about that Secret alone.
fn verbs(stage: &Stage) -> Result<BTreeSet<String>> {
    let (namespace, name) = OPENSHIFT_ORIGINAL;
    let user = service_account(CONTROLLER_NAMESPACE, CONTROLLER);
    let mut verbs = BTreeSet::new();
    for request in Request::in_namespace(&stage.cluster, namespace)? {
        let event = request.event;
        if event["user"]["username"] == *user {
            let target = &event["objectRef"];
            let is_it = target["resource"] == "secrets" && target["name"] == name;
            ensure!(is_it, "the controller touched {target}");
            verbs.insert(event["verb"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(verbs)
}
