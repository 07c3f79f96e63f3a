//! The terms of a program with several replicas: it stands by, leads while it holds the Lease, and stands by again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use globalps_runtime::process::Stop;
use kube::Client;
use tokio::time::timeout;

use super::election::Election;
use super::fencing::FencingToken;
use super::lease_guard::{LeaseGuard, Lost};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// Time for writes in flight before the Lease is released.
const SETTLE: Duration = Duration::from_secs(5);

/// Shared by all terms of this process.
pub(crate) struct Terms<'a> {
    pub(crate) client: &'a Client,
    pub(crate) health: &'a Arc<Health>,
    pub(crate) metrics: &'a Arc<Metrics>,
    /// Name of the Lease.
    pub(crate) lease: &'a str,
    /// Name of the `ServiceAccount` that names the Lease's holder to the admission policy; `None` if there is no policy.
    pub(crate) record: Option<&'static str>,
    /// Holder identity of this process.
    pub(crate) me: &'a str,
}

enum Ended {
    /// Another process leads.
    Lost,
    /// Etcd was restored from a backup: the next term lists all objects again.
    Restored,
    Stopped,
    Failed(anyhow::Error),
}

impl Terms<'_> {
    /// Stands by and leads until SIGTERM or SIGINT. `term` is one term, which returns only with an error. A rollout in progress
    /// needs no cleanup: the next leader continues from the objects.
    pub(crate) async fn lead(
        &self,
        mut term: impl AsyncFnMut(Arc<FencingToken>) -> anyhow::Error,
    ) -> anyhow::Result<()> {
        let mut stop = Stop::new()?;
        let election = Election::new(
            self.client.clone(),
            (self.lease, self.record),
            self.me,
            self.health,
        );
        loop {
            let guard = tokio::select! {
                () = stop.wait() => break,
                guard = election.acquire() => guard,
            };
            let token = Arc::clone(&guard.token);
            let may_write = Box::new(move || token.is_open());
            self.metrics.set_leader(Some(may_write));
            self.health.set_waits_for_caches(true);
            let running = term(Arc::clone(&guard.token));
            let ended = Box::pin(one(running, guard, &mut stop)).await;
            self.metrics.set_leader(None);
            self.health.set_waits_for_caches(false);
            match ended {
                Ended::Lost | Ended::Restored => {}
                Ended::Stopped => break,
                Ended::Failed(error) => return Err(error),
            }
        }
        tracing::info!("stopped by a signal");
        Ok(())
    }
}

async fn one(
    running: impl Future<Output = anyhow::Error>,
    mut guard: LeaseGuard<'_>,
    stop: &mut Stop,
) -> Ended {
    let token = Arc::clone(&guard.token);
    let mut running = pin!(running);
    let ended = tokio::select! {
        () = stop.wait() => Ended::Stopped,
        lost = guard.keep() => match lost {
            Lost::Lease => Ended::Lost,
            Lost::Objects => Ended::Restored,
        },
        error = &mut running => Ended::Failed(error),
    };
    token.close();
    if !matches!(ended, Ended::Lost) {
        // A write in flight must end before the next leader lists the objects.
        let settled = async {
            tokio::select! {
                () = token.settled() => {}
                _ = &mut running => {}
            }
        };
        let is_settled = timeout(SETTLE, settled).await.is_ok();
        if is_settled && !matches!(ended, Ended::Restored) {
            guard.release().await;
        }
    }
    ended
}
