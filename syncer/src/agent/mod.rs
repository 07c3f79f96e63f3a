//! The agent's loop on the node: observe, decide, act, report.

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

/// Pause after an error of the disk, and after one of the system bus.
const DISK_RETRY: Duration = Duration::from_secs(10);
const BUS_RETRY: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_secs(1);
/// Time for another process to finish writing a file that can't be parsed yet.
const HALF_WRITTEN: Duration = Duration::from_millis(500);
/// Idle until the object or the file changes.
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

/// What this process may access on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Nothing,
    /// The lock: no other syncer works on the node. The state on its disk is not loaded.
    Lock,
    /// The lock, and `state` matches the disk.
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
    /// The assigned revision, if the cluster no longer has its content.
    superseded: Option<i64>,
    backoff: Backoff,
    /// uid and generation of the object that reports refer to.
    about: Option<(String, i64)>,
    /// End of the observation period after a change.
    watch_until: Option<Instant>,
    /// Where an unparsable file was moved, for the report.
    quarantined: Option<PathBuf>,
    drift: Drift,
    /// Why this node's kubelet is not restarted, as a clause; `None`: it is restarted.
    no_restart: Option<String>,
    /// The last error. It is logged once and reported until it is resolved.
    last_error: Option<String>,
    /// An unparsable file whose writer may not have finished yet.
    half_written: Option<FileSnapshot>,
    /// What the object assigned at the last observation.
    task: Option<Task>,
    /// A task that an error of the node ended before its change began. It is repeated only for another generation, so that nodes
    /// with a common problem don't all restart at once when it is resolved.
    held: Option<Task>,
    revival: Revival,
    provider: Provider,
    /// Why content for the provider goes into the credentials file instead.
    obstacle: Option<Obstacle>,
    /// Provider files whose writer may not have finished yet.
    half_written_settings: Option<ProviderDisk>,
}

impl Agent {
    pub(crate) fn new(options: Options, cluster: Cluster, systemd: Systemd) -> Self {
        Self {
            journal: Journal::next_to(&options.config_file),
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

    /// Runs until the API server has rejected this pod for too long, or until the future is dropped, which is safe at any await:
    /// the next syncer continues from the journal.
    pub(crate) async fn run(&mut self) {
        // The pod is ready once this process holds the lock and the API server has answered.
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

    /// The watch of the object has ended permanently.
    fn is_cut_off(&self) -> bool {
        self.objects.has_changed().is_err()
    }

    /// Waits until this process holds the node's lock and can read the node's state. `None`: the API server rejects this pod.
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

    /// The pod is ready while another syncer reports for the node: pods of a deleted `DaemonSet` may stay for long, and the node
    /// has what it needs.
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
        tracing::error!(%error, "can't work on this node");
        self.observe_object();
        self.held.clone_from(&self.task);
        self.report_error(error);
        self.wait(DISK_RETRY).await;
    }

    /// Takes the current object as the node's assignment.
    fn observe_object(&mut self) -> Known {
        let known = self.objects.borrow_and_update().clone();
        self.task = known.object().and_then(task);
        self.about = known.object().map(identity);
        if self.access != Access::Nothing && !matches!(known, Known::Nothing) {
            self.reporter.mark_ready(true);
        }
        known
    }

    /// Whether the task waits for another generation. A change in the journal continues, and the content in force is still
    /// maintained.
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
            tracing::warn!(error = text, "can't change the node now; will retry");
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
            // An error means that the watch has ended; this syncer ends as well once it has the node.
            changed = self.objects.changed() => match changed {
                Ok(()) => self.backoff.reset(),
                Err(_) => sleep(LOCK_RETRY).await,
            },
            () = self.drift.changed() => {}
            () = sleep(pause) => {}
        }
    }

    /// Observes once and acts. Returns the time until there is more to do; zero: observe again immediately.
    async fn step(&mut self) -> Result<Duration, NodeError> {
        let known = self.observe_object();
        let object = known.object();
        let uid = object.and_then(|object| object.metadata.uid.clone());
        if self.desired_for != uid {
            // Revisions restart at 1 after a cleanup, so the same number may have other content.
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
