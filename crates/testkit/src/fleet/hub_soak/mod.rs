//! Two hubs under random events: sources, selections, limits and kubeconfigs change, members' API servers die and
//! freeze, nodes fail, other clients interfere and write odd values, members report the identities of others, kubeconfigs
//! lead to other members, writes are refused, hubs are killed, and a tenant with clusters of its own tries to exhaust them. After each iteration every member must have exactly its expected content.

mod check;
mod hostile;
mod objects;
mod oddities;
mod place;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use globalps_core::names::HUB;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::hub_stage::{HubProcess, HubStage};
use super::members::Members;
use super::tenant::Tenant;
use crate::fleet::objects::unless_gone;
use crate::process::kill;
use crate::refuser::Refuser;
use check::Limits;
use oddities::Oddities;
use place::{Place, Server, Takeover};

const EVENTS: usize = 16;
const HUBS: [&str; 2] = [HUB, "globalps-hub-2"];
const REAL: usize = 3;
const SIMULATED: usize = 10;
/// Members of a tenant, beside these.
const HOSTILE: usize = 4;
/// Maximum memory of a hub, in KiB: half of what its container has.
const MEMORY: u64 = 256 << 10;
/// Time until each node of a simulated member has a new Secret.
const TIME: Duration = Duration::from_millis(300);
/// The `FleetPullSecret` of the real members, which have no nodes, and that of the simulated members, whose nodes are
/// simulated too.
const FLEETS: [&str; 2] = ["bare", "nodes"];

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub rounds: usize,
    pub events: usize,
    /// Number of killed hubs.
    pub kills: usize,
    /// Members whose API server was killed or frozen or refused connections.
    pub outages: usize,
    /// Odd values in objects of the management cluster.
    pub odd_values: usize,
    /// How often writes of one object were refused to the hubs.
    pub refusals: usize,
    /// Members that reported the identity of another one, or whose kubeconfig led to another one.
    pub lies: usize,
    /// What a tenant did to exhaust the hubs.
    pub attacks: usize,
    /// The most memory that a hub has used, in KiB.
    pub memory: u64,
    /// How often the management cluster's API server was frozen.
    pub freezes: usize,
    /// How often unreachable members stayed away until the hub continued without them.
    pub waits: usize,
    /// The longest time until the expected state was reached.
    pub slowest: Duration,
    /// Maximum number of clusters of one `FleetPullSecret` in flight.
    pub most_in_flight: usize,
}

pub fn soak(time: Duration, seed: u64) -> Result<Outcome> {
    let stage = HubStage::up_with_tenant("hub-soak")?;
    let refuser = Refuser::start()?;
    crate::fleet::block_on(run(&stage, &refuser, time, seed))
}

/// A `FleetPullSecret` in the user's version.
struct Fleet {
    name: &'static str,
    /// Number in the password of the last valid source.
    content: u32,
    most: usize,
}

struct World<'a> {
    stage: &'a HubStage,
    client: Client,
    rng: Rng,
    fleets: [Fleet; 2],
    members: Members,
    places: Vec<Place>,
    hubs: Vec<HubProcess>,
    retries: u32,
    oddities: Oddities<'a>,
    tenant: Tenant,
    limits: Arc<Limits>,
    outcome: Outcome,
}

async fn run(stage: &HubStage, refuser: &Refuser, time: Duration, seed: u64) -> Result<Outcome> {
    let mut world = World::new(stage, refuser, seed).await?;
    let watching = tokio::spawn(check::watch_limits(
        world.client.clone(),
        Arc::clone(&world.limits),
    ));
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..EVENTS {
            world.event().await?;
            let pause = world.rng.u64(0..400);
            sleep(Duration::from_millis(pause)).await;
        }
        for at in 0..HUBS.len() {
            if world.rng.u8(0..3) == 0 {
                world.kill_hub(at).await?;
            }
        }
        if world.rng.u8(0..5) == 0 {
            world.pass_over().await?;
        }
        world.heal().await?;
        let outcome = &mut world.outcome;
        outcome.rounds += 1;
        outcome.events += EVENTS;
        let took = world.settle().await?;
        world.check_memory()?;
        let outcome = &mut world.outcome;
        outcome.slowest = outcome.slowest.max(took);
        eprintln!(
            "iteration {}: expected state after {:.1} s",
            outcome.rounds,
            took.as_secs_f32()
        );
    }
    watching.abort();
    world.outcome.most_in_flight = world.limits.most_seen();
    Ok(world.outcome)
}

impl<'a> World<'a> {
    async fn new(stage: &'a HubStage, refuser: &'a Refuser, seed: u64) -> Result<Self> {
        let members = Members::start(SIMULATED + HOSTILE, TIME, true, None).await?;
        let mut places = Vec::new();
        for number in 1..=REAL {
            places.push(Place::real(number).await?);
        }
        places.extend((0..SIMULATED).map(|at| Place::simulated(&members, at)));
        let fleet = |name| Fleet {
            name,
            content: 0,
            most: 1,
        };
        let mut world = Self {
            stage,
            client: stage.admin_client().await?,
            rng: Rng::with_seed(seed),
            fleets: FLEETS.map(fleet),
            members,
            places,
            hubs: Vec::new(),
            retries: 0,
            oddities: Oddities::new(refuser),
            tenant: Tenant::new(stage.admin_client().await?).await?,
            limits: Arc::default(),
            outcome: Outcome::default(),
        };
        for at in 0..world.places.len() {
            world.register(at, true).await?;
        }
        for (at, name) in FLEETS.iter().enumerate() {
            world.rotate(at).await?;
            let spec = json!({
                "secretRef": {"name": name}, "requireNodes": at == 1,
                "registered": {"selector": {"matchLabels": {"fleet": name, "selected": "true"}}},
                "rollout": {"maxUnavailable": 1},
            });
            let object = json!({
                "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret",
                "metadata": {"name": name}, "spec": spec,
            });
            let (params, object) = (PatchParams::apply("soak").force(), Patch::Apply(&object));
            world.objects().patch(name, &params, &object).await?;
        }
        world.register_hostile().await?;
        for component in HUBS {
            world.hubs.push(stage.start_as(component)?);
        }
        world.settle().await?;
        Ok(world)
    }

    /// Index of this member's `FleetPullSecret`.
    fn fleet_of(&self, at: usize) -> usize {
        usize::from(!self.places[at].is_real())
    }

    async fn event(&mut self) -> Result<()> {
        let fleet = self.rng.usize(0..FLEETS.len());
        match self.rng.u8(0..38) {
            0..4 => self.rotate(fleet).await,
            4 => {
                self.apply_source(FLEETS[fleet], r#"{"auths": {"x": 1}}"#)
                    .await
            }
            5 => {
                let params = DeleteParams::default();
                let deleted = self.secrets().delete(FLEETS[fleet], &params).await;
                unless_gone(deleted)
            }
            6 => self.write_source(fleet).await,
            7 => {
                let is_paused = self.rng.bool();
                self.configure(fleet, &json!({"paused": is_paused})).await
            }
            8 => {
                let most = self.rng.usize(1..4);
                self.fleets[fleet].most = most;
                self.limits.raise(fleet, most);
                self.configure(fleet, &json!({"maxUnavailable": most}))
                    .await
            }
            9 => self.retry(|_| true).await,
            10 => self.freeze().await,
            11 => {
                let hub = self.rng.usize(0..HUBS.len());
                self.kill_hub(hub).await
            }
            26 | 27 => self.put_odd_value().await,
            28 | 29 => self.refuse_writes().await,
            30 => self.lie().await,
            31 | 32 => self.redirect().await,
            33..38 => self.attack().await,
            other => {
                let at = if self.rng.u8(0..3) == 0 {
                    self.rng.usize(0..REAL)
                } else {
                    self.rng.usize(REAL..self.places.len())
                };
                self.event_at(other, at).await
            }
        }
    }

    /// An event in one member.
    async fn event_at(&mut self, what: u8, at: usize) -> Result<()> {
        let is_up = self.places[at].server == Server::Up;
        let place = &mut self.places[at];
        match what {
            12..15 => {
                place.is_selected ^= true;
                self.register(at, true).await
            }
            15 => {
                place.rotate(&self.members);
                self.register(at, true).await
            }
            16 => self.register(at, false).await,
            17 | 18 if is_up => {
                self.outcome.outages += 1;
                let server = [Server::Frozen, Server::Down][self.rng.usize(0..2)];
                place.cut(&self.members, server).await
            }
            17..20 => place.mend(&self.members).await,
            20 | 21 => {
                let fails = self.rng.u8(0..3) == 0;
                place.set_failing(&self.members, fails);
                Ok(())
            }
            // No client can reach it.
            _ if !is_up => Ok(()),
            22 => place.take_over(&self.members, Takeover::Content).await,
            23 if self.rng.bool() => place.take_over(&self.members, Takeover::Type).await,
            24 => place.put_key(&self.members).await,
            _ => place.delete(&self.members).await,
        }
    }

    /// Freezes the management cluster's API server for long enough that leaders may lose their Lease.
    async fn freeze(&mut self) -> Result<()> {
        self.outcome.freezes += 1;
        let cluster = &self.stage.stage.cluster;
        cluster.signal("kube-apiserver", "STOP")?;
        let pause = self.rng.u64(500..12_000);
        sleep(Duration::from_millis(pause)).await;
        cluster.signal("kube-apiserver", "CONT")
    }

    /// Kills a hub at any point of its work, and restarts it a moment later.
    async fn kill_hub(&mut self, at: usize) -> Result<()> {
        let fleet = self.rng.usize(0..FLEETS.len());
        self.rotate(fleet).await?;
        let pause = self.rng.u64(0..600);
        sleep(Duration::from_millis(pause)).await;
        kill(self.hubs[at].pid);
        self.outcome.kills += 1;
        let pause = self.rng.u64(0..1000);
        sleep(Duration::from_millis(pause)).await;
        self.hubs[at] = self.stage.start_as(HUBS[at])?;
        Ok(())
    }

    /// Keeps unreachable members away until the hub continues without them.
    async fn pass_over(&mut self) -> Result<()> {
        self.outcome.waits += 1;
        let pause = self.rng.u64(25..50);
        sleep(Duration::from_secs(pause)).await;
        for fleet in 0..FLEETS.len() {
            self.rotate(fleet).await?;
        }
        let pause = self.rng.u64(1..10);
        sleep(Duration::from_secs(pause)).await;
        Ok(())
    }

    /// Ends all outages, odd values and refusals. Secrets that another client took over stay with that client.
    async fn heal(&mut self) -> Result<()> {
        for at in 0..self.places.len() {
            self.places[at].mend(&self.members).await?;
            self.places[at].set_failing(&self.members, false);
            self.register(at, true).await?;
        }
        self.end_lies().await;
        self.end_oddities().await?;
        for fleet in 0..FLEETS.len() {
            self.configure(fleet, &json!({"paused": false})).await?;
            if self.rng.bool() {
                self.rotate(fleet).await?;
            } else {
                self.write_source(fleet).await?;
            }
        }
        Ok(())
    }
}
