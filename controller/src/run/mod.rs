//! The loop: take in what changed, plan, carry it out, report; then wait for the next change. Only who holds the Lease is
//! in it.

mod reconcile;
mod sources;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream};
use futures::{FutureExt as _, StreamExt as _};
use globalps_core::api::SecretRef;
use jiff::Timestamp;
use kube::Client;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::cache::{self, Change, Changes, World};
use crate::leader::election::{Election, Held, identity};
use crate::leader::fencing;
use crate::objects::apply::Applier;
use crate::objects::managed::{Installed, PIECES, Ration};
use crate::report::events::Teller;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// Everything is looked at once more after so long, whatever the watches say.
const RESYNC: Duration = Duration::from_mins(10);
/// Changes are taken in for so long at most before something follows from them.
const INTAKE: Duration = Duration::from_millis(100);
/// After it planned, the controller rests so many times as long as that took, and longest. Where thousands of nodes make
/// a plan long, more changes are served by the next one.
const REST: (u32, Duration) = (4, Duration::from_millis(200));
/// First and longest pause after an error.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the last writes are waited for before the Lease is given away.
const SETTLE: Duration = Duration::from_secs(5);

/// What every term of this process shares.
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) syncer_image: String,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Stands by and leads until SIGTERM or SIGINT. What is under way then is left as it is: the next controller goes on from
/// the objects.
pub(crate) async fn run(setup: Setup) -> anyhow::Result<()> {
    let mut stop = Stop::new()?;
    let me = identity();
    let election = Election::new(setup.client.clone(), &me, &setup.health);
    tracing::info!(me, namespace = setup.namespace, "started");
    loop {
        let held = tokio::select! {
            () = stop.wait() => break,
            held = election.acquire() => held,
        };
        setup.metrics.leads(Some(&held.term));
        setup.health.is_blind(true);
        let ended = Box::pin(lead(&setup, &me, held, &mut stop)).await;
        setup.metrics.leads(None);
        setup.health.is_blind(false);
        match ended {
            Ended::Lost => {}
            Ended::Stopped => break,
            Ended::Failed(error) => return Err(error),
        }
    }
    tracing::info!("ended by a signal");
    Ok(())
}

enum Ended {
    /// Another one leads.
    Lost,
    Stopped,
    Failed(anyhow::Error),
}

/// One term. Everything is watched anew, so that nothing is planned on what was read before the Lease was taken: a grant of
/// the leader before is in it.
async fn lead(setup: &Setup, me: &str, mut held: Held<'_>, stop: &mut Stop) -> Ended {
    let term = Arc::clone(&held.term);
    let mut controller = Controller::new(setup, me, &held);
    let mut running = pin!(controller.run());
    let ended = tokio::select! {
        () = stop.wait() => Ended::Stopped,
        () = held.keep() => Ended::Lost,
        error = &mut running => Ended::Failed(error),
    };
    term.close();
    if !matches!(ended, Ended::Lost) {
        // A write on its way must have arrived before another one reads what is there.
        let settled = async {
            tokio::select! {
                () = term.settled() => {}
                _ = &mut running => {}
            }
        };
        if timeout(SETTLE, settled).await.is_ok() {
            held.release().await;
        }
    }
    ended
}

struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Doubles up to the longest pause; up to half of it is random, so that many controllers do not come at once.
fn backoff(retries: u32) -> Duration {
    let (first, longest) = RETRY;
    let pause = first
        .saturating_mul(2_u32.saturating_pow(retries))
        .min(longest);
    let random = Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000;
    pause / 2 + pause / 2 * random / 1000
}

struct Controller {
    changes: Changes,
    original_changes: BoxStream<'static, Change>,
    source_changes: Changes,
    /// When `OpenShift`'s original was looked for the last time, and whether it was there.
    openshift: (Option<Instant>, Option<SecretRef>),
    world: World,
    applier: Applier,
    teller: Teller,
    client: Client,
    namespace: String,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// The syncer's objects as they were left; `None`: not known to be there.
    installed: Option<Installed>,
    /// Of putting each of them back, in the order of [`PIECES`].
    rations: [Ration; PIECES.len()],
    /// When the status was written last.
    reported: Option<Instant>,
    /// How long it took to find out what is to be done, the last time.
    planning: Duration,
}

impl Controller {
    fn new(setup: &Setup, me: &str, held: &Held<'_>) -> Self {
        let client = fencing::client(&setup.client, &held.term, &setup.health);
        let namespace = &setup.namespace;
        Self {
            changes: cache::changes(&client, namespace),
            original_changes: stream::pending().boxed(),
            source_changes: Changes::new(),
            openshift: (None, None),
            world: World::default(),
            applier: Applier::new(client.clone(), namespace, &setup.syncer_image, me),
            teller: Teller::new(client.clone(), namespace),
            installed: None,
            rations: Default::default(),
            reported: None,
            planning: Duration::ZERO,
            client,
            namespace: namespace.clone(),
            health: Arc::clone(&setup.health),
            metrics: Arc::clone(&setup.metrics),
        }
    }

    /// Ends only with an error.
    async fn run(&mut self) -> anyhow::Error {
        let mut retries = 0_u32;
        let mut wake = Instant::now();
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.health.beat();
            self.health.is_blind(!self.world.is_complete());
            let mut news = tokio::select! {
                _ = heartbeat.tick() => continue,
                change = self.changes.next() => match change {
                    Some(change) => self.world.handle(change),
                    None => return anyhow::anyhow!("every watch has ended"),
                },
                Some(change) = self.original_changes.next() => self.world.handle(change),
                Some(change) = self.source_changes.next() => self.world.handle(change),
                () = tokio::time::sleep_until(wake) => true,
            };
            news |= self.take_in_the_rest().await;
            if !news {
                continue;
            }
            if !self.world.is_complete() {
                wake = Instant::now() + RESYNC;
                continue;
            }
            self.planning = Duration::ZERO;
            let reconciled = self.reconcile().await;
            self.metrics.reconciled(reconciled.is_ok());
            let pause = match reconciled {
                Ok(pause) => {
                    retries = 0;
                    pause
                }
                Err(error) => {
                    let pause = backoff(retries);
                    retries += 1;
                    tracing::warn!(%error, "not done, trying again in {} ms", pause.as_millis());
                    pause
                }
            };
            wake = Instant::now() + pause;
            tokio::time::sleep((self.planning * REST.0).min(REST.1)).await;
        }
    }

    /// All changes that are already there, so that one look serves them all. Whether they are news.
    async fn take_in_the_rest(&mut self) -> bool {
        let until = Instant::now() + INTAKE;
        let mut news = false;
        let mut quiet = 0;
        // What waits in a connection is handed on by a task of its own, which needs its turn; more than one to be sure.
        while quiet < 3 && Instant::now() < until {
            quiet += 1;
            let streams: [&mut (dyn Stream<Item = Change> + Send + Unpin); 3] = [
                &mut self.changes,
                &mut self.original_changes,
                &mut self.source_changes,
            ];
            for changes in streams {
                while let Some(Some(change)) = changes.next().now_or_never() {
                    news |= self.world.handle(change);
                    quiet = 0;
                }
            }
            tokio::task::yield_now().await;
        }
        if let Some(additional) = self.world.additional() {
            self.teller.saw(additional);
        }
        news
    }
}
