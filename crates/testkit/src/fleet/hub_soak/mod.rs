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
use globalps_core::names::HUB;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::hub_stage::{HubProcess, HubStage};
use super::members::Members;
use super::tenant::Tenant;
use crate::fleet::block_on;
use crate::fleet::objects::unless_gone;
use crate::process::kill;
use crate::refuser::Refuser;
use crate::soak::{self, Events, World, events};
use check::Limits;
use oddities::Oddities;
use place::{Place, Server, Takeover};

const HUBS: [&str; 2] = [HUB, "globalps-hub-2"];
const REAL: usize = 3;
const SIMULATED: usize = 10;
/// Number of members of a tenant, in addition to these.
const HOSTILE: usize = 4;
/// Maximum memory of a hub, in KiB: half of what its container has.
const MEMORY: u64 = 256 << 10;
/// Time until each node of a simulated member has a new Secret.
const TIME: Duration = Duration::from_millis(300);
/// The `FleetPullSecret` of the real members, which have no nodes, and that of the simulated members, whose nodes are
/// simulated too.
const FLEETS: [&str; 2] = ["bare", "nodes"];

pub fn soak(time: Duration, seed: u64) -> Result<()> {
    let stage = HubStage::up_with_tenant("hub-soak")?;
    let refuser = Refuser::start()?;
    block_on(async {
        let mut hubs = Hubs::new(&stage, &refuser, seed).await?;
        let (client, limits) = (hubs.client.clone(), Arc::clone(&hubs.limits));
        let watching = tokio::spawn(check::watch_limits(client, limits));
        soak::soak(&mut hubs, time).await?;
        watching.abort();
        let (memory, most) = (hubs.memory, hubs.limits.most_seen());
        println!("at most {memory} KiB for a hub, at most {most} in flight");
        Ok(())
    })
}

/// The state of a `FleetPullSecret` that the user wants.
struct Fleet {
    name: &'static str,
    /// Number in the password of the last valid source.
    content: u32,
    most: usize,
}

struct Hubs<'a> {
    stage: &'a HubStage,
    client: Client,
    events: Events,
    fleets: [Fleet; 2],
    members: Members,
    places: Vec<Place>,
    hubs: Vec<HubProcess>,
    retries: u32,
    /// When failed clusters were last retried.
    retried: Instant,
    oddities: Oddities<'a>,
    tenant: Tenant,
    limits: Arc<Limits>,
    /// The peak memory of a hub, in KiB.
    memory: u64,
}

impl World for Hubs<'_> {
    events! { |it, (fleet, at)|
        "rotation", 4, it.rotate(fleet).await;
        "invalid source", 1, it.apply_source(FLEETS[fleet], r#"{"auths": {"x": 1}}"#).await;
        "source deleted", 1, it.delete_source(fleet).await;
        "source written again", 1, it.write_source(fleet).await;
        "paused or resumed", 1, it.pause_or_resume(fleet).await;
        "other limit", 1, it.limit(fleet).await;
        "retry", 1, it.retry(|_| true).await;
        "API server frozen", 1, it.freeze().await;
        "hub killed", 1, it.kill_any_hub().await;
        "member selected or not", 3, it.select(at).await;
        "other kubeconfig", 1, it.rotate_kubeconfig(at).await;
        "invalid kubeconfig", 1, it.register(at, false).await;
        "member unreachable", 2, it.cut_or_mend(at).await;
        "member reachable", 1, it.places[at].mend(&it.members).await;
        "nodes fail or not", 2, it.fail(at);
        "content taken over", 1, it.places[at].take_over(&it.members, Takeover::Content).await;
        "Secret taken over", 1, it.take_secret(at).await;
        "key of another client", 1, it.places[at].put_key(&it.members).await;
        "Secret deleted", 1, it.places[at].delete(&it.members).await;
        "odd value", 2, it.put_odd_value().await;
        "writes refused", 2, it.refuse_writes().await;
        "false identity", 1, it.lie().await;
        "kubeconfig of another member", 2, it.redirect().await;
        "attack of a tenant", 5, it.attack().await;
    }
    /// A `FleetPullSecret` and a member.
    type Drawn = (usize, usize);
    const ROUND: usize = 16;
    /// The next leader waits until the Lease of a killed one expires, and the hub retries an unreachable member after
    /// half a minute.
    const SETTLED: Duration = Duration::from_mins(2);
    const POLL: Duration = Duration::from_millis(250);

    fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// Every third member is real.
    async fn draw(&mut self) -> Result<(usize, usize)> {
        let random = &mut self.events.random;
        let fleet = random.usize(0..FLEETS.len());
        let is_real = random.u8(0..3) == 0;
        let members = if is_real {
            0..REAL
        } else {
            REAL..self.places.len()
        };
        Ok((fleet, random.usize(members)))
    }

    fn pause(&mut self) -> Duration {
        self.events.below(400)
    }

    /// Kills hubs, then ends all outages, odd values and refusals. Secrets that another client took over stay with that client.
    async fn heal(&mut self) -> Result<()> {
        for at in 0..HUBS.len() {
            if self.events.random.u8(0..3) == 0 {
                self.events.count("hub killed", true);
                self.kill_hub(at).await?;
            }
        }
        if self.events.random.u8(0..5) == 0 {
            self.pass_over().await?;
        }
        for at in 0..self.places.len() {
            self.places[at].mend(&self.members).await?;
            self.places[at].set_failing(&self.members, false);
            self.register(at, true).await?;
        }
        self.end_lies().await;
        self.end_oddities().await?;
        for fleet in 0..FLEETS.len() {
            self.configure(fleet, &json!({"paused": false})).await?;
            if self.events.random.bool() {
                self.rotate(fleet).await?;
            } else {
                self.write_source(fleet).await?;
            }
        }
        self.retried = Instant::now();
        Ok(())
    }

    async fn attend(&mut self) -> Result<()> {
        self.attend_clusters().await
    }

    async fn settled(&mut self) -> Result<()> {
        self.check_clusters().await
    }

    async fn check(&mut self) -> Result<()> {
        self.reset_limits();
        self.check_memory()
    }
}

impl<'a> Hubs<'a> {
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
            events: Events::new(seed),
            fleets: FLEETS.map(fleet),
            members,
            places,
            hubs: Vec::new(),
            retries: 0,
            retried: Instant::now(),
            oddities: Oddities::new(refuser),
            tenant: Tenant::new(stage.admin_client().await?).await?,
            limits: Arc::default(),
            memory: 0,
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
        soak::settle(&mut world).await?;
        world.reset_limits();
        Ok(world)
    }

    /// Index of this member's `FleetPullSecret`.
    fn fleet_of(&self, at: usize) -> usize {
        usize::from(!self.places[at].is_real())
    }

    async fn delete_source(&mut self, fleet: usize) -> Result<()> {
        let params = DeleteParams::default();
        unless_gone(self.secrets().delete(FLEETS[fleet], &params).await)
    }

    async fn pause_or_resume(&mut self, fleet: usize) -> Result<()> {
        let is_paused = self.events.random.bool();
        self.configure(fleet, &json!({"paused": is_paused})).await
    }

    async fn limit(&mut self, fleet: usize) -> Result<()> {
        let most = self.events.random.usize(1..4);
        self.fleets[fleet].most = most;
        self.limits.raise(fleet, most);
        let rollout = json!({"maxUnavailable": most});
        self.configure(fleet, &rollout).await
    }

    async fn select(&mut self, at: usize) -> Result<()> {
        self.places[at].is_selected ^= true;
        self.register(at, true).await
    }

    async fn rotate_kubeconfig(&mut self, at: usize) -> Result<()> {
        self.places[at].rotate(&self.members);
        self.register(at, true).await
    }

    /// Makes an unreachable member reachable, or a reachable one unreachable.
    async fn cut_or_mend(&mut self, at: usize) -> Result<()> {
        let server = [Server::Frozen, Server::Down][self.events.random.usize(0..2)];
        let place = &mut self.places[at];
        match place.server {
            Server::Up => place.cut(&self.members, server).await,
            _ => place.mend(&self.members).await,
        }
    }

    fn fail(&mut self, at: usize) -> Result<()> {
        let fails = self.events.random.u8(0..3) == 0;
        self.places[at].set_failing(&self.members, fails);
        Ok(())
    }

    async fn take_secret(&mut self, at: usize) -> Result<()> {
        let place = &mut self.places[at];
        if self.events.random.bool() {
            place.take_over(&self.members, Takeover::Type).await
        } else {
            place.delete(&self.members).await
        }
    }

    async fn kill_any_hub(&mut self) -> Result<()> {
        let hub = self.events.random.usize(0..HUBS.len());
        self.kill_hub(hub).await
    }

    /// Freezes the management cluster's API server long enough for leaders to lose their Lease.
    async fn freeze(&mut self) -> Result<()> {
        let cluster = &self.stage.stage.cluster;
        cluster.signal("kube-apiserver", "STOP")?;
        let pause = self.events.random.u64(500..12_000);
        sleep(Duration::from_millis(pause)).await;
        cluster.signal("kube-apiserver", "CONT")
    }

    /// Kills a hub at any point of its work, and restarts it a moment later.
    async fn kill_hub(&mut self, at: usize) -> Result<()> {
        let fleet = self.events.random.usize(0..FLEETS.len());
        self.rotate(fleet).await?;
        sleep(self.events.below(600)).await;
        kill(self.hubs[at].pid);
        sleep(self.events.below(1000)).await;
        self.hubs[at] = self.stage.start_as(HUBS[at])?;
        Ok(())
    }

    /// Keeps unreachable members away until the hub continues without them.
    async fn pass_over(&mut self) -> Result<()> {
        self.events.count("unreachable members passed over", true);
        let pause = self.events.random.u64(25..50);
        sleep(Duration::from_secs(pause)).await;
        for fleet in 0..FLEETS.len() {
            self.rotate(fleet).await?;
        }
        let pause = self.events.random.u64(1..10);
        sleep(Duration::from_secs(pause)).await;
        Ok(())
    }
}
