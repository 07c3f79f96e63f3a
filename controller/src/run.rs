//! The loop: take in what changed, plan, carry it out, report; then wait for the next change.

use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use globalps_core::api::SecretRef;
use globalps_core::names::{DATA_KEY, OPENSHIFT_ORIGINAL};
use globalps_core::rollout::{Goal, UNREACHABLE_AFTER};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::apply::{Applier, ApplyError};
use crate::history;
use crate::observe::{self, Change, Changes, World};
use crate::plan::{Aim, Observed, Plan, plan};
use crate::report::report;
use crate::sources::Source;
use crate::told::Teller;

/// Everything is looked at once more after so long, whatever the watches say.
const RESYNC: Duration = Duration::from_mins(10);
/// Between two questions for an original that nobody answered.
const ORIGINAL_RETRY: Duration = Duration::from_secs(2);
/// First and longest pause after an error.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Runs until SIGTERM or SIGINT. What is under way then is left as it is: the next controller goes on from the objects.
pub(crate) async fn run(client: Client, namespace: &str, syncer_image: &str) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut controller = Controller {
        changes: observe::changes(&client, namespace),
        original_changes: stream::pending().boxed(),
        openshift: (None, None),
        world: World::default(),
        applier: Applier::new(client.clone(), namespace, syncer_image),
        teller: Teller::new(client.clone(), namespace),
        installed: None,
        client,
    };
    tracing::info!(namespace, "started");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = controller.run() => return ended,
    }
    tracing::info!("ended by a signal");
    Ok(())
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
    /// When `OpenShift`'s original was looked for the last time, and whether it was there.
    openshift: (Option<Instant>, Option<SecretRef>),
    world: World,
    applier: Applier,
    teller: Teller,
    client: Client,
    /// Generation of the configuration with which the syncer's objects were applied; `None`: not known to be there.
    installed: Option<i64>,
}

impl Controller {
    async fn run(&mut self) -> anyhow::Result<()> {
        let mut retries = 0_u32;
        let mut wake = Instant::now();
        loop {
            tokio::select! {
                change = self.changes.next() => {
                    self.world.handle(change.ok_or_else(|| anyhow::anyhow!("every watch has ended"))?);
                }
                Some(change) = self.original_changes.next() => self.world.handle(change),
                () = tokio::time::sleep_until(wake) => {}
            }
            self.take_in_the_rest();
            if !self.world.is_complete() {
                wake = Instant::now() + RESYNC;
                continue;
            }
            let pause = match self.reconcile().await {
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
        }
    }

    /// All changes that are already there, so that one look serves them all.
    fn take_in_the_rest(&mut self) {
        while let Some(Some(change)) = self.changes.next().now_or_never() {
            self.world.handle(change);
        }
        while let Some(Some(change)) = self.original_changes.next().now_or_never() {
            self.world.handle(change);
        }
        if let Some(additional) = self.world.additional() {
            self.teller.saw(additional);
        }
        if !self.world.has_daemon_set() {
            self.installed = None;
        }
    }

    /// One round. Returns how long nothing needs to be looked at again unless something changes.
    async fn reconcile(&mut self) -> Result<Duration, ApplyError> {
        if self.world.config().is_none() && self.world.additional().is_some() {
            // Before anything else: this also tells of one that the user wrote and the watch has not shown yet.
            let config = self.applier.default_config().await?;
            self.world.put_config(config);
        }
        match self.follow_original().await {
            Followed::Same => {}
            Followed::Other => return Ok(RESYNC),
            Followed::Unknown => return Ok(ORIGINAL_RETRY),
        }
        let now = Timestamp::now();
        let mut observed = self.world.observed(now);
        let mut plan = plan(&observed);
        if plan.asks_history {
            observed.last_rolled_out = Some(self.last_rolled_out(&observed).await?);
            plan = crate::plan::plan(&observed);
        }
        if plan.aim == Aim::Nothing
            && self.world.config().is_none()
            && self.world.additional().is_none()
        {
            return Ok(RESYNC);
        }
        if let Some(write) = &plan.history {
            let slots = self.applier.history(observed.spec.history_limit).await?;
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
        for (node, spec) in &plan.grants {
            let Some(uid) = self.world.node_uid(node) else {
                continue;
            };
            if spec.revision > 0 {
                tracing::info!(
                    node,
                    revision = spec.revision,
                    restore = spec.restore,
                    "granting"
                );
            }
            let object = self.applier.grant(node, uid, spec).await?;
            self.world.node_pull_secrets.put(object);
        }
        let generation = self
            .world
            .config()
            .and_then(|config| config.metadata.generation)
            .unwrap_or_default();
        match plan.aim {
            Aim::Nothing => {}
            Aim::Reach(Goal::Restore) if self.world.has_daemon_set() => {}
            Aim::Reach(_) => {
                if self.installed != Some(generation) {
                    self.applier.syncer(&observed.spec).await?;
                    let limit = observed.spec.history_limit;
                    self.applier.forget_history(limit).await?;
                    self.installed = Some(generation);
                }
            }
            Aim::CleanUp => {
                tracing::info!("every node is restored, removing what was created");
                let names = self.world.node_pull_secrets.names();
                self.applier.clean_up(&names).await?;
                self.world.forget_created();
            }
        }
        if self.world.config().is_none() {
            let config = self.applier.default_config().await?;
            self.world.put_config(config);
        }
        observed = self.world.observed(now);
        self.report(&observed, &plan).await?;
        let busy = matches!(plan.aim, Aim::Reach(_)) && !self.at_rest();
        Ok(if busy {
            UNREACHABLE_AFTER.unsigned_abs() / 10
        } else {
            RESYNC
        })
    }

    /// The newest additional Secret of the history.
    async fn last_rolled_out(&self, observed: &Observed) -> Result<Source, ApplyError> {
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

    async fn report(&mut self, observed: &Observed, plan: &Plan) -> Result<(), ApplyError> {
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
        let after = report(observed, plan, &additional, generation, before.as_ref());
        if before.as_ref() != Some(&after) {
            let config = self.applier.status(&after).await?;
            self.world.put_config(config);
            // Only what is written is told, or every retry would tell it anew.
            let nodes: Vec<_> = observed.node_pull_secrets.values().collect();
            self.teller.tell(plan, before.as_ref(), &after, &nodes);
        }
        Ok(())
    }

    /// Watches the original pull secret that the configuration names.
    async fn follow_original(&mut self) -> Followed {
        let configured = self
            .world
            .config()
            .and_then(|config| config.spec.original.secret_ref.clone());
        let wanted = match configured {
            Some(reference) => Some(reference),
            None => match self.openshift_original().await {
                Some(found) => found,
                None => return Followed::Unknown,
            },
        };
        if wanted.as_ref() == self.world.original_ref() {
            return Followed::Same;
        }
        self.original_changes = match &wanted {
            Some(reference) => {
                tracing::info!(
                    namespace = reference.namespace,
                    name = reference.name,
                    "watching the original"
                );
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

    /// `OpenShift`'s original, where there is one that the controller may read; looked for now and then.
    /// `None`: nobody answered.
    async fn openshift_original(&mut self) -> Option<Option<SecretRef>> {
        if self.openshift.0.is_some_and(|last| last.elapsed() < RESYNC) {
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
