//! Nodes whose clocks are wrong, and are set during a rollout. API server and controller are real; syncers and kubelets are
//! simulated, and write the times of their nodes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use super::objects::status;
use super::odd_values::node;
use super::stage::Stage;
use super::syncers::{Kubelets, Syncers};
use crate::product::configuration;

const NODES: usize = 8;
const MOST: usize = 2;
const SOAK: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_mins(10);

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// The errors of the nodes' clocks.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    /// Seconds by which they are ahead when the rollout starts.
    ahead: i64,
    /// Seconds by which they are ahead after [`STEP`].
    then: i64,
    /// Seconds that they gain or lose per second.
    drift: f64,
    /// Whether only every other node has such a clock.
    is_half: bool,
    /// Whether another leader takes over at the same time.
    changes_leader: bool,
}

/// The clocks are set after this time, which is between the canary's report and the end of its soak.
const STEP: Duration = Duration::from_secs(3);

const RIGHT: Clocks = Clocks {
    ahead: 0,
    then: 0,
    drift: 0.0,
    is_half: false,
    changes_leader: false,
};
const ALL: [Clocks; 9] = [
    RIGHT,
    Clocks {
        ahead: HOUR,
        then: HOUR,
        ..RIGHT
    },
    Clocks {
        ahead: HOUR,
        ..RIGHT
    },
    Clocks {
        ahead: -HOUR,
        ..RIGHT
    },
    Clocks {
        then: DAY,
        is_half: true,
        ..RIGHT
    },
    Clocks {
        then: -DAY,
        is_half: true,
        ..RIGHT
    },
    Clocks {
        drift: -0.5,
        ..RIGHT
    },
    Clocks {
        drift: 3.0,
        is_half: true,
        ..RIGHT
    },
    Clocks {
        ahead: -DAY,
        then: DAY,
        changes_leader: true,
        ..RIGHT
    },
];

/// Result of one rollout.
#[derive(Clone, Copy, Debug)]
pub struct Rollout {
    pub time: Duration,
    /// From the first node's report until the second node received its assignment, or later.
    pub soak: Duration,
    /// Maximum number of nodes that were between assignment and report at any moment.
    pub most: usize,
}

/// One rollout for each of [`ALL`].
pub fn run() -> Result<Vec<Rollout>> {
    let stage = Stage::up(NODES)?;
    crate::fleet::block_on(async {
        let client = stage.admin_client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        let names: Vec<String> = (1..=NODES).map(|at| format!("node-{at}")).collect();
        for name in &names {
            let node: Node = serde_json::from_value(node(name))?;
            nodes.create(&PostParams::default(), &node).await?;
        }
        let set = Arc::new(Mutex::new((RIGHT, Instant::now())));
        let read = Arc::clone(&set);
        let offset = Box::new(move |name: &str| {
            let (clocks, since) = *read.lock().unwrap_or_else(PoisonError::into_inner);
            clocks.offset(name, since.elapsed())
        });
        let kubelets = Kubelets { nodes, offset };
        let clients = [stage.syncer_client().await?];
        let syncers = Syncers::with(&clients, &names, Some(kubelets)).await?;
        stage.start_controller()?;
        let scene = Scene {
            stage: &stage,
            client,
            syncers,
        };
        scene.configure()?;
        stage.write_password(0)?;
        scene.rolled_out(1).await?;
        let mut rollouts = Vec::new();
        for (clocks, revision) in ALL.into_iter().zip(2..) {
            *set.lock().unwrap_or_else(PoisonError::into_inner) = (clocks, Instant::now());
            let rollout = scene.roll_out(clocks, revision).await;
            let rollout = rollout.with_context(|| format!("{clocks:?}"))?;
            eprintln!("{clocks:?}: {rollout:?}");
            rollouts.push(rollout);
        }
        Ok(rollouts)
    })
}

impl Clocks {
    fn offset(self, node: &str, passed: Duration) -> SignedDuration {
        let is_even = node.ends_with(['2', '4', '6', '8']);
        if self.is_half && is_even {
            return SignedDuration::ZERO;
        }
        let seconds = if passed < STEP { self.ahead } else { self.then };
        SignedDuration::from_secs(seconds)
            + SignedDuration::from_secs_f64(passed.as_secs_f64() * self.drift)
    }
}

struct Scene<'a> {
    stage: &'a Stage,
    client: Client,
    syncers: Syncers,
}

impl Scene<'_> {
    fn configure(&self) -> Result<()> {
        let rollout = json!({
            "maxUnavailable": MOST, "minReadySeconds": 1,
            "canary": {"minReadySeconds": SOAK.as_secs()},
        });
        self.stage
            .apply(configuration(&json!({"rollout": rollout})))
    }

    async fn roll_out(&self, clocks: Clocks, revision: i64) -> Result<Rollout> {
        let begun = Instant::now();
        self.syncers.most_busy();
        self.stage.write_password(revision)?;
        if clocks.changes_leader {
            sleep(STEP.saturating_sub(begun.elapsed())).await;
            self.stage.stop_controller()?;
            self.stage.start_controller()?;
        }
        self.rolled_out(revision).await?;
        let seen = self.syncers.seen(revision);
        // A syncer whose report failed is seen again.
        ensure!(seen.len() >= NODES, "{} assignments", seen.len());
        Ok(Rollout {
            time: begun.elapsed(),
            soak: seen[1].received.saturating_duration_since(seen[0].reported),
            most: self.syncers.most_busy(),
        })
    }

    /// Waits until every node has the revision. Fails if a node fails meanwhile, or anything is rolled back.
    async fn rolled_out(&self, revision: i64) -> Result<()> {
        let begun = Instant::now();
        loop {
            let status = status(&self.client).await?;
            let mut conditions = status.conditions.iter();
            let degraded = conditions.find(|it| it.type_ == "Degraded" && it.status == "True");
            ensure!(degraded.is_none(), "{degraded:?}");
            ensure!(status.revision <= revision, "revision {}", status.revision);
            let synced = self.syncers.times(revision).len();
            let mut conditions = status.conditions.iter();
            let is_over = conditions.any(|it| it.type_ == "Progressing" && it.status == "False");
            if status.revision == revision && synced == NODES && is_over {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < DEADLINE,
                "{synced} nodes: {:?}",
                status.conditions
            );
            sleep(POLL).await;
        }
    }
}
