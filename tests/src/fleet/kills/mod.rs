//! Programs that are killed at each of their writes. The next one finishes the work, and then exactly what should be there is
//! there.

mod delivery;
mod gate;
pub mod hub;
pub mod namespaces;
pub mod operators;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use globalps_core::names::CONTROLLER_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::sleep;

use crate::process::{kill, parent};
use gate::Gate;

const SETTLED: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(50);

/// What became of one change.
#[derive(Clone, Debug)]
pub struct Outcome<C> {
    pub change: C,
    pub kills: usize,
    /// Those of a program that nobody killed.
    pub writes: Vec<String>,
    /// How long that one took.
    pub alone: Duration,
    /// The longest that another one took after a kill, and after how many writes that was.
    pub slowest: (Duration, usize),
}

impl<C: Debug> Outcome<C> {
    pub fn print(&self) {
        let (slowest, after) = self.slowest;
        eprintln!(
            "{:?}: {} kills; alone it took {:.1} s, and the next one was done after {:.1} s at most (killed after {after} writes)",
            self.change,
            self.kills,
            self.alone.as_secs_f32(),
            slowest.as_secs_f32()
        );
        for write in &self.writes {
            eprintln!("    {write}");
        }
    }

    pub fn is_killed_at_every_write(&self) -> bool {
        // Which program makes the last of them, this change's or the next one's, is a matter of chance.
        self.kills >= self.writes.len().saturating_sub(3).max(1)
    }

    pub fn deletes(&self) -> usize {
        let writes = self.writes.iter();
        writes.filter(|write| write.starts_with("DELETE")).count()
    }
}

/// Whatever the program writes, and what it must leave alone, by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// Changes, and what a program is to make of them.
trait Scene {
    type Change: Copy + Debug + PartialEq + 'static;
    /// Name of the program's service account and of its Lease.
    const PROGRAM: &'static str;

    fn client(&self) -> &Client;
    /// Starts the program: the id of its process.
    fn start(&self) -> Result<u32>;
    async fn make(&mut self, change: Self::Change) -> Result<()>;
    /// Changes, this one among them, that lead back to where they began: without all of them the others are possible. Empty:
    /// there are none.
    fn circle(&self, change: Self::Change) -> &'static [Self::Change];
    /// What there is.
    async fn found(&self) -> Result<Objects>;
    /// What there should be.
    fn wanted(&self) -> Objects;
    /// Whether the object may be neither as it was nor as it is to be in the middle of the change.
    fn may_differ(&self, change: Self::Change, key: &str) -> bool;
    /// What must be so at any moment.
    async fn check_between(&self, found: &Objects) -> Result<()>;
    async fn check_status(&self) -> Result<()>;
}

/// Makes all changes over and over: the program is killed before its first write of each, then before its second one, until
/// there are no more.
fn kill_at_each_write<S: Scene>(
    gate: &Gate,
    scene: impl Future<Output = Result<S>>,
    changes: &[S::Change],
) -> Result<Vec<Outcome<S::Change>>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let scene = scene.await?;
        let pid = scene.start()?;
        settle(&scene, gate).await?;
        let mut killer = Killer { gate, scene, pid };
        killer.kill_at_each_write(changes).await
    })
}

struct Killer<'a, S> {
    gate: &'a Gate,
    scene: S,
    /// The program that runs.
    pid: u32,
}

impl<S: Scene> Killer<'_, S> {
    async fn kill_at_each_write(
        &mut self,
        changes: &[S::Change],
    ) -> Result<Vec<Outcome<S::Change>>> {
        let outcome = |change: &S::Change| Outcome {
            change: *change,
            kills: 0,
            writes: Vec::new(),
            alone: Duration::ZERO,
            slowest: (Duration::ZERO, 0),
        };
        let mut outcomes: Vec<_> = changes.iter().map(outcome).collect();
        for writes in 0.. {
            let mut has_killed = false;
            let over = outcomes.iter().filter(|it| !it.writes.is_empty());
            let over: Vec<S::Change> = over.map(|it| it.change).collect();
            for outcome in &mut outcomes {
                let change = outcome.change;
                // One that has fewer writes is made without a kill.
                let is_over = over.contains(&change);
                let circle = self.scene.circle(change);
                if is_over && circle.iter().all(|it| over.contains(it)) && !circle.is_empty() {
                    continue;
                }
                let after = if is_over { usize::MAX } else { writes };
                let begun = Instant::now();
                let took = self.make(change, after).await;
                let took =
                    took.with_context(|| format!("{change:?}, killed after {after} writes"))?;
                match took {
                    None if is_over => {}
                    None => {
                        outcome.writes = self.gate.writes();
                        outcome.alone = begun.elapsed();
                    }
                    Some(took) => {
                        has_killed = true;
                        outcome.kills += 1;
                        outcome.slowest = outcome.slowest.max((took, writes));
                    }
                }
            }
            if !has_killed {
                break;
            }
        }
        kill(self.pid);
        wait_end(self.pid).await?;
        Ok(outcomes)
    }

    /// Makes the change, with a kill after so many writes: how long the next program took. `None`: there were not as many.
    async fn make(&mut self, change: S::Change, writes: usize) -> Result<Option<Duration>> {
        self.gate.kill_after(writes, self.pid);
        let before = self.scene.wanted();
        self.scene.make(change).await?;
        if is_settled_unless_killed(&self.scene, self.gate).await? {
            return Ok(None);
        }
        let begun = Instant::now();
        wait_end(self.pid).await?;
        self.check_between(change, &before).await?;
        self.forget_leader().await?;
        self.gate.open();
        self.pid = self.scene.start()?;
        settle(&self.scene, self.gate).await?;
        Ok(Some(begun.elapsed()))
    }

    /// Every object is as it was or as it is to be.
    async fn check_between(&self, change: S::Change, before: &Objects) -> Result<()> {
        let (found, after) = (self.scene.found().await?, self.scene.wanted());
        for key in found.keys().chain(before.keys()).chain(after.keys()) {
            let now = found.get(key);
            let is_either = now == before.get(key) || now == after.get(key);
            let is_fine = is_either || self.scene.may_differ(change, key);
            ensure!(is_fine, "{key} is neither old nor new: {now:?}");
        }
        self.scene.check_between(&found).await
    }

    /// The next program need not wait for the Lease of the one that was killed to expire.
    async fn forget_leader(&self) -> Result<()> {
        let client = self.scene.client().clone();
        let api: Api<Lease> = Api::namespaced(client, CONTROLLER_NAMESPACE);
        api.delete(S::PROGRAM, &DeleteParams::default()).await?;
        Ok(())
    }
}

async fn wait_end(pid: u32) -> Result<()> {
    let begun = Instant::now();
    while parent(pid).is_some() {
        ensure!(begun.elapsed() < SETTLED, "the program does not end");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn settle(scene: &impl Scene, gate: &Gate) -> Result<()> {
    ensure!(is_settled_unless_killed(scene, gate).await?, "killed twice");
    Ok(())
}

/// Waits until everything is as it should be and nothing more is written; false: the program was killed before.
async fn is_settled_unless_killed(scene: &impl Scene, gate: &Gate) -> Result<bool> {
    let begun = Instant::now();
    loop {
        if gate.has_killed() {
            return Ok(false);
        }
        if gate.is_quiet() {
            let checked = check(scene).await;
            if checked.is_ok() && gate.is_quiet() && !gate.has_killed() {
                return Ok(true);
            }
            if let (Err(error), true) = (checked, begun.elapsed() > SETTLED) {
                return Err(error.context(format!("not within {} s", SETTLED.as_secs())));
            }
        }
        if begun.elapsed() > 2 * SETTLED {
            bail!("the program never rests");
        }
        sleep(POLL).await;
    }
}

async fn check(scene: &impl Scene) -> Result<()> {
    let (found, wanted) = (scene.found().await?, scene.wanted());
    for key in found.keys().chain(wanted.keys()) {
        let (now, wanted) = (found.get(key), wanted.get(key));
        ensure!(now == wanted, "{key} is {now:?}, not {wanted:?}");
    }
    scene.check_status().await
}
