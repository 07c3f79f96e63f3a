//! The loop: take in what changed, plan, carry it out, report; then wait for the next change. Only who holds the Lease is
//! in it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, FuturesUnordered};
use futures::{FutureExt as _, StreamExt as _};
use globalps_core::api::{GlobalPullSecretSpec, NodePullSecretSpec, SecretRef};
use globalps_core::names::{DATA_KEY, OPENSHIFT_ORIGINAL, SYNCER};
use globalps_core::rollout::{Goal, UNREACHABLE_AFTER};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::apply::{Applier, ApplyError};
use crate::created::{Installed, PIECES, Ration, tampered};
use crate::health::Health;
use crate::history;
use crate::lease::{Election, Held, identity};
use crate::metrics::Metrics;
use crate::observe::{self, Change, Changes, OriginalRef, World};
use crate::plan::{Aim, Observed, Plan, plan};
use crate::report::{only_counts, report};
use crate::sources::Source;
use crate::term;
use crate::told::Teller;

/// Everything is looked at once more after so long, whatever the watches say.
const RESYNC: Duration = Duration::from_mins(10);
/// Between two questions for an original that nobody answered.
const ORIGINAL_RETRY: Duration = Duration::from_secs(2);
/// Between two looks for the original of a cluster of `OpenShift`, which the controller may not read yet.
const OPENSHIFT_RETRY: Duration = Duration::from_secs(30);
/// Changes are taken in for so long at most before something follows from them.
const INTAKE: Duration = Duration::from_millis(100);
/// After it planned, the controller rests so many times as long as that took, and longest. Where thousands of nodes make
/// a plan long, more changes are served by the next one.
const REST: (u32, Duration) = (4, Duration::from_millis(200));
/// Grants under way at the same time; each has a connection of its own.
const GRANTS_AT_ONCE: usize = 16;
/// Grants of one round, so that the watches are not left alone for long.
const GRANTS_OF_A_ROUND: usize = 256;
/// Between two statuses that tell of no more than another number of nodes.
const BETWEEN_COUNTS: Duration = Duration::from_millis(500);
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

/// What is known of the original pull secret.
enum Followed {
    Same,
    /// It is another one from now on, and the plan waits for its first list.
    Other,
    /// Nobody said whether there is one.
    Unknown,
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
        let client = term::client(&setup.client, &held.term, &setup.health);
        let namespace = &setup.namespace;
        Self {
            changes: observe::changes(&client, namespace),
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
            while let Some(Some(change)) = self.changes.next().now_or_never() {
                news |= self.world.handle(change);
                quiet = 0;
            }
            while let Some(Some(change)) = self.original_changes.next().now_or_never() {
                news |= self.world.handle(change);
                quiet = 0;
            }
            while let Some(Some(change)) = self.source_changes.next().now_or_never() {
                news |= self.world.handle(change);
                quiet = 0;
            }
            tokio::task::yield_now().await;
        }
        if let Some(additional) = self.world.additional() {
            self.teller.saw(additional);
        }
        news
    }

    /// One round. Returns how long nothing needs to be looked at again unless something changes.
    async fn reconcile(&mut self) -> Result<Duration, ApplyError> {
        if self.world.config().is_none() && self.world.additional().is_some() {
            // Before anything else: this also tells of one that the user wrote and the watch has not shown yet.
            let config = self.applier.default_config().await?;
            self.world.put_config(config);
        }
        self.follow_sources();
        match self.follow_original().await {
            Followed::Same if self.world.is_complete() => {}
            Followed::Same | Followed::Other => return Ok(RESYNC),
            Followed::Unknown => return Ok(ORIGINAL_RETRY),
        }
        let now = Timestamp::now();
        let begun = Instant::now();
        let mut observed = self.world.observed(now);
        let mut plan = plan(&observed);
        if plan.asks_history {
            observed.last_rolled_out = Some(self.last_rolled_out(&observed).await?);
            plan = crate::plan::plan(&observed);
        }
        let spec = observed.spec;
        self.planning += begun.elapsed();
        if plan.aim == Aim::Nothing
            && self.world.config().is_none()
            && self.world.additional().is_none()
        {
            return Ok(RESYNC);
        }
        if let Some(write) = &plan.history {
            let slots = self.applier.history(spec.history_limit).await?;
            let slot = history::slot_for(write, &slots);
            self.applier.keep(slot, write).await?;
        }
        if let Some(write) = &plan.global {
            tracing::info!(
                revision = write.global.revision,
                "writing global-pull-secret"
            );
            let secret = self.applier.global_secret(write).await?;
            self.world.put_global(secret);
        }
        self.grant(&plan).await?;
        let generation = self
            .world
            .config()
            .and_then(|config| config.metadata.generation)
            .unwrap_or_default();
        let mut rationed = None;
        match plan.aim {
            Aim::Nothing => {}
            Aim::Reach(goal) => {
                let restores = goal == Goal::Restore && self.world.has_daemon_set();
                rationed = self.install(&spec, generation, restores).await?;
            }
            Aim::CleanUp => {
                tracing::info!("every node is restored, removing what was created");
                let names = self.world.node_pull_secrets.names();
                self.applier.clean_up(&names).await?;
                self.world.forget_created();
                self.installed = None;
            }
        }
        if self.world.config().is_none() {
            let config = self.applier.default_config().await?;
            self.world.put_config(config);
        }
        self.tell_put_back(&plan);
        let owed = self.report(now, &plan).await?;
        // What was written here is no news when the watch shows it, and more may follow from it.
        let wrote = plan.global.is_some() || !plan.grants.is_empty();
        let pause = if wrote {
            Duration::ZERO
        } else if matches!(plan.aim, Aim::Reach(_)) && !self.at_rest() {
            UNREACHABLE_AFTER.unsigned_abs() / 10
        } else {
            RESYNC
        };
        let pause = pause.min(self.openshift_again());
        let sooner = owed.into_iter().chain(rationed).min();
        Ok(sooner.map_or(pause, |sooner| pause.min(sooner)))
    }

    /// Tells what was put back in this round. What was taken in and asked for nothing is forgotten.
    fn tell_put_back(&mut self, plan: &Plan) {
        let mut deleted = Vec::new();
        let mut changed = Vec::new();
        for tampered in self.world.take_tampered() {
            let is_put_back = match tampered.kind {
                "Secret" => plan.global.is_some(),
                "NodePullSecret" => plan.grants.iter().any(|(node, _)| *node == tampered.name),
                _ => self.world.additional().is_some(),
            };
            let what = format!("{} `{}`", tampered.kind, tampered.name);
            if is_put_back && tampered.is_deleted {
                deleted.push(what);
            } else if is_put_back {
                changed.push(what);
            }
        }
        self.teller.put_back(&deleted, "deleted");
        self.teller.put_back(&changed, "changed");
    }

    /// The syncer's objects as they shall be, where they are not. Returns after what time they are to be put back, where
    /// that was done too often of late.
    async fn install(
        &mut self,
        spec: &GlobalPullSecretSpec,
        generation: i64,
        restores: bool,
    ) -> Result<Option<Duration>, ApplyError> {
        let marks = self.world.marks();
        let mut done = Vec::new();
        if let Some(installed) = &self.installed {
            done = tampered(&installed.marks, &marks);
            if done.is_empty() && (restores || installed.generation == generation) {
                return Ok(None);
            }
        }
        let now = Instant::now();
        if !done.is_empty() {
            let pauses = done
                .iter()
                .map(|(piece, _)| self.rations[*piece as usize].pause(now));
            if let Some(pause) = pauses.min().filter(|pause| !pause.is_zero()) {
                return Ok(Some(pause));
            }
            for (piece, _) in &done {
                self.rations[*piece as usize].repaired(now);
            }
        }
        let created = self.applier.syncer(spec, restores).await?;
        for (piece, created) in PIECES.into_iter().zip(created) {
            // Where nothing had to be done, what somebody did is none of our business.
            let is_put_back = marks[piece as usize].as_ref() != Some(&created.mark);
            let was = done.iter().find(|(tampered, _)| *tampered == piece);
            if let Some((_, done)) = was.filter(|_| is_put_back) {
                let what = format!("{piece:?} `{SYNCER}`");
                self.teller.put_back(&[what], done);
            }
            self.world.put_created(piece, created);
        }
        if !restores {
            self.applier.forget_history(spec.history_limit).await?;
        }
        self.installed = Some(Installed {
            generation,
            marks: self.world.marks(),
        });
        Ok(None)
    }

    /// As many as a round may have. What is taken back is done before anything is granted.
    async fn grant(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        let (back, others): (Vec<_>, Vec<_>) = plan
            .grants
            .iter()
            .take(GRANTS_OF_A_ROUND)
            .partition(|(_, spec)| spec.withdrawn);
        self.grant_at_once(back).await?;
        self.grant_at_once(others).await
    }

    async fn grant_at_once(
        &mut self,
        grants: Vec<&(String, NodePullSecretSpec)>,
    ) -> Result<(), ApplyError> {
        let (applier, nodes) = (&self.applier, &self.world);
        let grants: Vec<_> = grants
            .into_iter()
            .filter_map(|(node, spec)| Some((node, spec, nodes.node_uid(node)?.to_owned())))
            .collect();
        let mut waiting = grants.into_iter();
        let mut under_way = FuturesUnordered::new();
        let mut failed = None;
        loop {
            while failed.is_none()
                && under_way.len() < GRANTS_AT_ONCE
                && let Some((node, spec, uid)) = waiting.next()
            {
                if spec.revision > 0 {
                    tracing::info!(
                        node,
                        revision = spec.revision,
                        restore = spec.restore,
                        "granting"
                    );
                }
                under_way.push(async move { applier.grant(node, &uid, spec).await });
            }
            match under_way.next().await {
                Some(Ok(object)) => self.world.put_node_pull_secret(object),
                // What is under way is not given up: whether it was granted would not be known.
                Some(Err(error)) => failed = Some(error),
                None => return failed.map_or(Ok(()), Err),
            }
        }
    }

    /// The newest additional Secret of the history.
    async fn last_rolled_out(&self, observed: &Observed<'_>) -> Result<Source, ApplyError> {
        let slots = self.applier.history(observed.spec.history_limit).await?;
        Ok(history::newest(slots).map_or(Source::Absent, Source::Found))
    }

    fn at_rest(&self) -> bool {
        let ready = self
            .world
            .config()
            .and_then(|config| config.status.as_ref());
        ready.is_some_and(|status| {
            status
                .conditions
                .iter()
                .any(|condition| condition.type_ == "Progressing" && condition.status == "False")
        })
    }

    /// Writes the status, where it is news. Returns after what time it is to be written, where it can wait so long.
    async fn report(
        &mut self,
        now: Timestamp,
        plan: &Plan,
    ) -> Result<Option<Duration>, ApplyError> {
        let begun = Instant::now();
        let additional = self
            .world
            .additional()
            .and_then(kube::ResourceExt::resource_version)
            .unwrap_or_default();
        let config = self.world.config();
        let generation = config
            .and_then(|config| config.metadata.generation)
            .unwrap_or_default();
        let before = config.and_then(|config| config.status.clone());
        let observed = self.world.observed(now);
        let after = report(&observed, plan, &additional, generation, before.as_ref());
        self.metrics.fleet(&observed, before.as_ref(), &after);
        self.planning += begun.elapsed();
        if before.as_ref() == Some(&after) {
            return Ok(None);
        }
        if before
            .as_ref()
            .is_some_and(|before| only_counts(before, &after))
            && let Some(last) = self.reported
            && let Some(left) = BETWEEN_COUNTS.checked_sub(last.elapsed())
        {
            return Ok(Some(left));
        }
        let config = self.applier.status(&after).await?;
        // Only what is written is told, or every retry would tell it anew.
        let nodes: Vec<_> = observed
            .node_pull_secrets
            .values()
            .map(AsRef::as_ref)
            .collect();
        self.teller.tell(plan, before.as_ref(), &after, &nodes);
        self.world.put_config(config);
        self.reported = Some(Instant::now());
        Ok(None)
    }

    /// Watches the further sources that the configuration names.
    fn follow_sources(&mut self) {
        let sources = self.world.config().map(|config| &config.spec.sources);
        let sources = sources.into_iter().flatten();
        let names: Vec<String> = sources.map(|source| source.name.clone()).collect();
        if self.world.are_sources(&names) {
            return;
        }
        tracing::info!(?names, "watching the sources");
        self.source_changes = observe::source_changes(&self.client, &self.namespace, &names);
        self.world.expect_sources(&names);
    }

    /// Watches the original pull secret that the configuration names.
    async fn follow_original(&mut self) -> Followed {
        let original = self.world.config().map(|config| &config.spec.original);
        let secret = original.and_then(|original| original.secret_ref.clone());
        let hosted = original.and_then(|original| original.hosted_control_plane.clone());
        let configured = secret
            .map(OriginalRef::Secret)
            .or(hosted.map(OriginalRef::Hosted));
        let wanted = match configured {
            Some(reference) => Some(reference),
            None => match self.openshift_original().await {
                Some(found) => found.map(OriginalRef::Secret),
                None => return Followed::Unknown,
            },
        };
        if wanted.as_ref() == self.world.original_ref() {
            return Followed::Same;
        }
        self.original_changes = match &wanted {
            Some(reference) => {
                tracing::info!(?reference, "watching the original");
                observe::original_changes(&self.client, reference)
            }
            None => stream::pending().boxed(),
        };
        self.world.expect_original(wanted);
        if self.world.is_complete() {
            Followed::Same
        } else {
            Followed::Other
        }
    }

    /// After what time `OpenShift`'s original is looked for again: soon where it is to be expected, so that a permission
    /// that comes late is used.
    fn openshift_again(&self) -> Duration {
        if self.world.original_ref().is_none() && self.world.is_openshift() {
            OPENSHIFT_RETRY
        } else {
            RESYNC
        }
    }

    /// `OpenShift`'s original, where there is one that the controller may read; looked for now and then.
    /// `None`: nobody answered.
    async fn openshift_original(&mut self) -> Option<Option<SecretRef>> {
        let again = self.openshift_again();
        if self.openshift.0.is_some_and(|last| last.elapsed() < again) {
            return Some(self.openshift.1.clone());
        }
        let (namespace, name) = OPENSHIFT_ORIGINAL;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(Duration::from_secs(5), secrets.get_metadata(name)).await {
            Ok(Ok(_)) => {
                self.openshift.1 = Some(SecretRef {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    key: DATA_KEY.to_owned(),
                });
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => self.openshift.1 = None,
            // One that was read before does not go away with the permission.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {}
            // No answer says nothing: to go on without would take the original's credentials from every node.
            Ok(Err(_)) | Err(_) => return None,
        }
        self.openshift.0 = Some(Instant::now());
        Some(self.openshift.1.clone())
    }
}
