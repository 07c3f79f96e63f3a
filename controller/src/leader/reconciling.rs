//! The loop of a leader: wait for events, and reconcile once for all that have arrived.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::telemetry::health::Health;

/// Interval between reconciles without an event.
pub(crate) const RESYNC: Duration = Duration::from_mins(10);
/// Interval between updates of the liveness probe.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// What a program does while it leads.
pub(crate) trait Reconciles {
    /// Events that arrive within this time share a reconcile.
    const BATCH: Duration;

    /// Whether all that a plan needs is known.
    fn is_synced(&self) -> bool;

    /// Waits for an event and takes it in. Returns whether it may change the plan; `None`: every watch has ended. Nothing is lost if
    /// it is dropped.
    async fn event(&mut self) -> Option<bool>;

    /// Reconciles. Returns the time until the next one without an event.
    async fn respond(&mut self) -> Duration;
}

/// Returns only with an error.
pub(crate) async fn reconciling(program: &mut impl Reconciles, health: &Health) -> anyhow::Error {
    let mut wake = Instant::now();
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        health.beat();
        health.set_waits_for_caches(!program.is_synced());
        let mut changed = tokio::select! {
            _ = heartbeat.tick() => continue,
            event = program.event() => match event {
                Some(changed) => changed,
                None => return anyhow::anyhow!("every watch has ended"),
            },
            () = sleep_until(wake) => true,
        };
        changed |= arrived(program).await;
        if !changed {
            continue;
        }
        wake = Instant::now() + RESYNC;
        if program.is_synced() {
            let pause = Box::pin(program.respond()).await;
            wake = Instant::now() + pause;
        }
    }
}

/// Takes in all events that have arrived, so that they share a reconcile. Returns whether they may change the plan.
async fn arrived<P: Reconciles>(program: &mut P) -> bool {
    let until = Instant::now() + P::BATCH;
    let mut changed = false;
    let mut quiet = 0;
    // Other tasks pass the events on and must run first, possibly several times.
    while quiet < 3 && Instant::now() < until {
        if let Some(Some(may_change)) = program.event().now_or_never() {
            changed |= may_change;
            quiet = 0;
        } else {
            quiet += 1;
            tokio::task::yield_now().await;
        }
    }
    changed
}
