//! The loop on the node: observe, decide, act, report.

mod applying;
mod decide;
mod fetching;
mod providing;
mod reporting;
pub(crate) mod restore;
mod revival;
mod reviving;
mod watching;

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use globalps_core::provider::Content;
use globalps_core::rollout::Goal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::backoff::Backoff;
use crate::cluster::{Cluster, Known, identity, task};
use crate::delivery::config_file::is_unparsable;
use crate::node::drift::Drift;
use crate::node::file::{self, FileSnapshot};
use crate::node::journal::Journal;
use crate::node::kubelet::{Kubelet as _, Unit};
use crate::node::provider::{Provider, ProviderDisk};
use crate::node::state::{NodeError, Obstacle, State, Task};
use crate::node::systemd::Systemd;
use crate::report::{StatusReporter, writer};
use decide::{Action, NodeFacts, decide};
use revival::Revival;

/// Pause after an error of the disk, and after one of the node's bus.
const DISK_RETRY: Duration = Duration::from_secs(10);
const BUS_RETRY: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_secs(1);
/// Time for another process to finish writing a file that can't be parsed yet.
const HALF_WRITTEN: Duration = Duration::from_millis(500);
/// Nothing to do until the object or the file changes.
const IDLE: Duration = Duration::from_hours(24);

pub(crate) struct Options {
    pub(crate) config_file: PathBuf,
    pub(crate) provider: Provider,
    pub(crate) ready_file: PathBuf,
    /// Whether the kubelet is restarted after a change.
    pub(crate) restart: bool,
    /// The node is not selected: it is restored, and no content is fetched.
    pub(crate) restores_only: bool,
}

/// What this process has of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Nothing,
    /// No other syncer works on it. What its disk holds is unknown.
    Lock,
    /// `state` is what its disk holds.
    State,
}

pub(crate) struct Agent {
    config_file: PathBuf,
    restart: bool,
    restores_only: bool,
    cluster: Cluster,
    journal: Journal,
    unit: Unit,
    state: Option<State>,
    access: Access,
    objects: watch::Receiver<Known>,
    reporter: StatusReporter,
    /// The assigned content and its revision.
    desired: Option<(i64, Content)>,
    /// uid of the object that assigned it.
    desired_for: Option<String>,
    /// The assigned revision that the cluster has no content of any more.
    superseded: Option<i64>,
    backoff: Backoff,
    /// uid and generation of the object that reports are about.
    about: Option<(String, i64)>,
    /// Until when the kubelet is watched after a change.
    watch_until: Option<Instant>,
    /// Where an unparsable file was moved, for the report.
    quarantined: Option<PathBuf>,
    drift: Drift,
    /// Why this node's kubelet is not restarted, as a clause; `None`: it is.
    no_restart: Option<String>,
    /// The last error. It is logged once, and reported until it is over.
    last_error: Option<String>,
    /// An unparsable file that gets a moment, as its writer may not have finished.
    half_written: Option<FileSnapshot>,
    /// What the object asked for when the node was last observed.
    task: Option<Task>,
    /// The task that an error of the node ended before its change began. It is not repeated until another generation
    /// asks for it, so that nodes whose common problem is over don't all restart at once.
    held: Option<Task>,
    revival: Revival,
    provider: Provider,
    /// Why content that asks for the provider goes into the credentials file.
    obstacle: Option<Obstacle>,
    /// Files of the provider that get a moment, as their writer may not have finished.
    half_written_settings: Option<ProviderDisk>,
}

impl Agent {
    pub(crate) fn new(options: Options, cluster: Cluster, systemd: Systemd) -> Self {
        Self {
            journal: Journal::beside(&options.config_file),
            drift: Drift::new(&options.config_file),
            no_restart: None,
            last_error: None,
            half_written: None,
            objects: cluster.watch_object(),
            reporter: StatusReporter::new(writer::start(cluster.clone()), options.ready_file),
            unit: Unit::new(systemd),
            config_file: options.config_file,
            restart: options.restart,
            restores_only: options.restores_only,
            cluster,
            state: None,
            access: Access::Nothing,
            about: None,
            desired: None,
            desired_for: None,
            superseded: None,
            backoff: Backoff::default(),
            watch_until: None,
            quarantined: None,
            task: None,
            held: None,
            revival: Revival::default(),
            provider: options.provider,
            obstacle: None,
            half_written_settings: None,
        }
    }

    /// Runs until the API server has rejected this pod for too long, or until it is dropped, which may be at any await: the
    /// next syncer continues from the journal.
    pub(crate) async fn run(&mut self) {
        // The pod is ready once the lock is held and the API server has answered.
        self.reporter.mark_ready(false);
        let Some(_lock) = self.acquire_node().await else {
            return;
        };
        while !self.is_cut_off() {
            let pause = match self.step().await {
                Ok(pause) => pause,
                Err(error) => self.retry_after(&error),
            };
            if !pause.is_zero() {
                self.wait(pause).await;
            }
        }
    }

    /// The watch of the object has ended for good.
    fn is_cut_off(&self) -> bool {
        self.objects.has_changed().is_err()
    }

    /// Waits until this process holds the node's lock, and then until it can read the node's state. `None`: it holds the lock
    /// and is cut off.
    async fn acquire_node(&mut self) -> Option<File> {
        let lock = loop {
            match self.journal.lock() {
                Ok(lock) => break lock,
                // The other syncer reports.
                Err(NodeError::Locked) => {
                    tracing::error!("{}", NodeError::Locked);
                    self.stand_by();
                    sleep(LOCK_RETRY).await;
                }
                Err(error) => self.wait_unusable(&error).await,
            }
        };
        self.access = Access::Lock;
        file::sweep(&self.config_file);
        self.provider.sweep();
        loop {
            match self.journal.load() {
                Ok(state) => {
                    self.state = state;
                    let change = self.state.as_mut().and_then(|state| state.change.as_mut());
                    if let Some(change) = change.filter(|_| !self.restart) {
                        change.waive_restart();
                    }
                    self.access = Access::State;
                    return Some(lock);
                }
                Err(_) if self.is_cut_off() => return None,
                Err(error) => self.wait_unusable(&error).await,
            }
        }
    }

    /// The pod is ready while the other syncer answers for the node: pods whose `DaemonSet` was deleted may stay for long, and
    /// the node has all that it needs.
    fn stand_by(&mut self) {
        let known = self.objects.borrow_and_update();
        let is_answered = known.object().is_some_and(|object| {
            let observed = object.status.as_ref().map(|it| it.observed_generation);
            observed.is_some() && observed == object.metadata.generation
        });
        drop(known);
        self.reporter.mark_ready(is_answered);
    }

    async fn wait_unusable(&mut self, error: &NodeError) {
        tracing::error!(%error, "this syncer can't work on the node");
        self.observe_object();
        self.held.clone_from(&self.task);
        self.report_error(error);
        self.wait(DISK_RETRY).await;
    }

    /// Takes the object as it is now as what is asked of the node.
    fn observe_object(&mut self) -> Known {
        let known = self.objects.borrow_and_update().clone();
        self.task = known.object().and_then(task);
        self.about = known.object().map(identity);
        if self.access != Access::Nothing && !matches!(known, Known::Nothing) {
            self.reporter.mark_ready(true);
        }
        known
    }

    /// Whether the task waits for another generation. A change in the journal goes on, and so does the care for what is
    /// in force.
    fn is_held(&self) -> bool {
        let Some(task) = self.task.as_ref().filter(|_| self.task == self.held) else {
            return false;
        };
        let is_in_force =
            |state: &State| task.goal() != Goal::Restore && state.revision == task.revision;
        !self
            .state
            .as_ref()
            .is_some_and(|state| state.change.is_some() || is_in_force(state))
    }

    /// Reports the error, and returns the pause before the next attempt.
    fn retry_after(&mut self, error: &NodeError) -> Duration {
        let text = error.to_string();
        if self.last_error.as_ref() != Some(&text) {
            tracing::warn!(error = text, "the node can't be changed now");
        }
        self.last_error = Some(text);
        self.held.clone_from(&self.task);
        self.report_error(error);
        match error {
            NodeError::Bus(_) => BUS_RETRY,
            _ => DISK_RETRY,
        }
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::select! {
            // An error means that the watch has ended, and with it this syncer as soon as it has the node.
            changed = self.objects.changed() => match changed {
                Ok(()) => self.backoff.reset(),
                Err(_) => sleep(LOCK_RETRY).await,
            },
            () = self.drift.changed() => {}
            () = sleep(pause) => {}
        }
    }

    /// Observes once and acts. Returns how long there is nothing more to do; zero: observe again at once.
    async fn step(&mut self) -> Result<Duration, NodeError> {
        let known = self.observe_object();
        let object = known.object();
        let uid = object.and_then(|object| object.metadata.uid.clone());
        if self.desired_for != uid {
            // Revisions start at 1 again after a cleanup, so the same number may be another content.
            self.desired = None;
            self.desired_for = uid;
        }
        if self.is_held() {
            return Ok(self.revive().await);
        }
        let task = self.task.clone();
        let file = file::read(&self.config_file)?;
        if is_unparsable(&file) && self.half_written.as_ref() != Some(&file) {
            self.half_written = Some(file);
            return Ok(HALF_WRITTEN);
        }
        self.find_unit(task.is_some()).await?;
        let revision = task.as_ref().map(|task| task.revision);
        let provider = self.observe_provider(object, revision).await?;
        if self.is_half_written(provider.as_ref()) {
            return Ok(HALF_WRITTEN);
        }
        let desired = task.as_ref().and_then(|task| {
            self.desired
                .as_ref()
                .filter(|(revision, _)| *revision == task.revision)
                .map(|(_, content)| content)
        });
        let foreign_owner = object.map_or("", |object| &object.spec.foreign_owner);
        let facts = NodeFacts {
            task: task.as_ref(),
            is_foreign: !foreign_owner.is_empty(),
            state: self.state.as_ref(),
            file: &file,
            desired,
            superseded: task
                .as_ref()
                .is_some_and(|task| self.superseded == Some(task.revision)),
            restart: self.restart && self.no_restart.is_none(),
            is_cooled_down: self.unit.cooldown().is_zero(),
            is_watched: self.drift.is_watched(),
            is_conflict_limit_reached: self.drift.is_limit_reached(),
            restores_only: self.restores_only,
            provider: provider.as_ref(),
        };
        match decide(&facts) {
            Action::Idle => {
                self.report_waiting();
                Ok(IDLE)
            }
            Action::Fetch => {
                let pause = self.fetch(task.as_ref()).await;
                Ok(pause.min(self.revive().await))
            }
            Action::Revive => Ok(self.revive().await),
            Action::Resume => self.resume(file).await,
            Action::Begin {
                change,
                quarantine,
                drift,
            } => self.begin(file, *change, quarantine, drift).await,
            Action::Settle => {
                self.settle()?;
                Ok(Duration::ZERO)
            }
            Action::Reject(failure) => {
                self.report_failure(&failure);
                Ok(IDLE)
            }
            Action::Obstructed(obstacle) => {
                self.report_obstructed(&obstacle);
                Ok(IDLE)
            }
            Action::LeaveAlone => {
                self.report_foreign(foreign_owner);
                Ok(IDLE)
            }
            Action::GiveUp => self.give_up(task),
            Action::Confirm => self.confirm().await,
            Action::Forget => self.forget(),
            Action::StandBy => Ok(IDLE),
        }
    }
}
