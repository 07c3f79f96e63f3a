//! Kills programs at each of their writes. The next program must finish the work, and exactly the expected objects must
//! exist then.

mod delivery;
mod gate;
pub mod hub;
pub mod namespaces;
pub mod operators;

use std::collections::{BTreeMap, BTreeSet};
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

/// Result for one change.
#[derive(Clone, Debug)]
pub struct Outcome<C> {
    pub change: C,
    pub kills: usize,
    /// The writes of a program that is not killed.
    pub writes: Vec<String>,
    /// Duration of the change without a kill.
    pub alone: Duration,
    /// The longest time that the next program needed after a kill, and the number of writes before that kill.
    pub slowest: (Duration, usize),
}

impl<C: Debug> Outcome<C> {
    pub fn print(&self) {
        let (slowest, after) = self.slowest;
        eprintln!(
            "{:?}: {} kills; {:.1} s without a kill; the next program needed {:.1} s at most (killed after {after} writes)",
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
        // Timing determines whether this change's program or the next one makes the last writes.
        self.kills >= self.writes.len().saturating_sub(3).max(1)
    }

    pub fn deletes(&self) -> usize {
        self.distinct("DELETE")
    }

    /// Number of different writes with this prefix. Writes can repeat after a conflict.
    pub fn distinct(&self, begin: &str) -> usize {
        let writes = self.writes.iter();
        let writes: BTreeSet<_> = writes.filter(|it| it.starts_with(begin)).collect();
        writes.len()
    }
}

/// Objects that the program writes or must not change, by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// Changes, and the expected reaction of a program.
trait Scene {
    type Change: Copy + Debug + PartialEq + 'static;
    /// Name of the program's service account and of its Lease.
    const PROGRAM: &'static str;

    fn client(&self) -> &Client;
    /// Starts the program; returns its process id.
    fn start(&self) -> Result<u32>;
    async fn make(&mut self, change: Self::Change) -> Result<()>;
    /// A cycle of changes that contains this one and ends in the state in which it began, so that the whole cycle can
    /// be skipped. Empty if there is none.
    fn circle(&self, change: Self::Change) -> &'static [Self::Change];
    /// The existing objects.
    async fn found(&self) -> Result<Objects>;
    /// The expected objects.
    fn wanted(&self) -> Objects;
    /// Whether the object may be in an intermediate state during the change.
    fn may_differ(&self, _change: Self::Change, _key: &str) -> bool {
        false
    }
    /// Checks the conditions that must hold at every moment.
    async fn check_between(&self, found: &Objects) -> Result<()>;
    async fn check_status(&self) -> Result<()>;
}

/// Makes all changes repeatedly: kills the program before its first write of each change, then before its second write,
/// and so on until no write is left.
fn kill_at_each_write<S: Scene>(
    gate: &Gate,
    scene: impl Future<Output = Result<S>>,
    changes: &[S::Change],
) -> Result<Vec<Outcome<S::Change>>> {
    crate::fleet::block_on(async {
        let scene = scene.await?;
        let pid = scene.start()?;
        let mut killer = Killer { gate, scene, pid };
        killer.settle().await?;
        killer.kill_at_each_write(changes).await
    })
}

struct Killer<'a, S> {
    gate: &'a Gate,
    scene: S,
    /// Process id of the running program.
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
                // A change with fewer writes is made without a kill.
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

    /// Makes the change with a kill after this many writes, and returns how long the next program took; `None` if there
    /// were fewer writes.
    async fn make(&mut self, change: S::Change, writes: usize) -> Result<Option<Duration>> {
        self.gate.kill_after(writes, self.pid);
        let before = self.scene.wanted();
        self.scene.make(change).await?;
        if self.is_settled_unless_killed().await? {
            return Ok(None);
        }
        let begun = Instant::now();
        wait_end(self.pid).await?;
        self.check_between(change, &before).await?;
        self.forget_leader().await?;
        self.gate.open();
        self.pid = self.scene.start()?;
        self.settle().await?;
        Ok(Some(begun.elapsed()))
    }

    /// Checks that every object is in its old or its new state.
    async fn check_between(&self, change: S::Change, before: &Objects) -> Result<()> {
        let (found, after) = (self.scene.found().await?, self.scene.wanted());
        for key in found.keys().chain(before.keys()).chain(after.keys()) {
            let now = found.get(key);
            let is_either = now == before.get(key) || now == after.get(key);
            let is_fine = is_either || self.scene.may_differ(change, key);
            ensure!(
                is_fine,
                "{key} is in neither the old nor the new state: {now:?}"
            );
        }
        self.scene.check_between(&found).await
    }

    async fn settle(&self) -> Result<()> {
        ensure!(self.is_settled_unless_killed().await?, "killed twice");
        Ok(())
    }

    /// Waits until all objects are as expected and no more writes are made. Returns false if the program was killed before that.
    async fn is_settled_unless_killed(&self) -> Result<bool> {
        let (scene, gate) = (&self.scene, self.gate);
        let begun = Instant::now();
        loop {
            if gate.has_killed() {
                return Ok(false);
            }
            // Nothing starts it again, and the objects would stay as they are.
            ensure!(
                parent(self.pid).is_some() || gate.has_killed(),
                "the program has exited"
            );
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
                bail!("the program does not stop writing");
            }
            sleep(POLL).await;
        }
    }

    /// Deletes the Lease, so that the next program need not wait until it expires.
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
        ensure!(begun.elapsed() < SETTLED, "the program does not exit");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn check(scene: &impl Scene) -> Result<()> {
    let (found, wanted) = (scene.found().await?, scene.wanted());
    for key in found.keys().chain(wanted.keys()) {
        let (now, wanted) = (found.get(key), wanted.get(key));
        ensure!(now == wanted, "{key} is {now:?}, not {wanted:?}");
    }
    scene.check_status().await
}
