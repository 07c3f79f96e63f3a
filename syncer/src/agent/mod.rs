//! The agent's loop on the node: observe, decide, act, report.

mod access;
mod acting;
mod applying;
mod decide;
mod desired;
mod facts;
mod fetching;
mod finding;
mod keeping;
mod providing;
mod reporting;
pub(crate) mod restore;
mod revival;
mod reviving;
#[cfg(test)]
mod tests;
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use globalps_core::names::MACHINE_CONFIG_UPDATE;
use globalps_core::rollout::{Goal, Revision};
use globalps_provider::Content;
use globalps_runtime::backoff::Backoff;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::{BACKOFF, Cluster, SeenObject, Watched, confirmed, identity, task};
use crate::delivery::writes::Guard;
use crate::node::drift::Drift;
use crate::node::file::FileSnapshot;
use crate::node::journal::Journal;
use crate::node::kubelet::{Kubelet as _, KubeletUnit};
use crate::node::lock::NodeLock;
use crate::node::provider::{Provider, ProviderDisk};
use crate::node::replace::read_identified;
use crate::node::state::{JournalState, NodeError, Obstacle, Task};
use crate::node::systemd::{ProviderFlag, Systemd};
use crate::report::{StatusReporter, writer};
use decide::{Action, decide, is_replaceable};
use facts::{FileGuard, NodeFacts, in_place};
use revival::Revival;

/// Pause after an error of the disk, and after one of the system bus.
const DISK_RETRY: Duration = Duration::from_secs(10);
const BUS_RETRY: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_secs(1);
/// If the process that holds the lock does not answer the object within this time, the waiting syncer reports the reason. A
/// syncer that works on the node reports within about a second.
const UNANSWERED: Duration = Duration::from_secs(5);
/// Time for another process to finish writing a file that can't be parsed yet.
const HALF_WRITTEN: Duration = Duration::from_millis(500);
/// Interval between reads of the kubelet's flags: nothing reports a kubelet that was started without the provider.
const FLAGS_READ: Duration = Duration::from_mins(1);
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
    /// `state` matches the disk. Without a state there may be no lock: nothing is changed before it is taken.
    State,
}

/// This process's view of the node.
struct OnNode {
    journal: Journal,
    state: Option<JournalState>,
    access: Access,
    /// Held while there is a state or a change.
    lock: Option<NodeLock>,
}

/// The cluster's assignment, and its result.
struct Assigned {
    objects: watch::Receiver<SeenObject>,
    /// Changes with each version of the object, also with those that change only its status.
    versions: watch::Receiver<()>,
    /// uid and generation of the object that reports refer to.
    about: Option<(String, i64)>,
    /// The object's assignment at the last observation.
    task: Option<Task>,
    /// A task that an error of the node ended before its change began. It is repeated only for another generation, so that nodes
    /// with a common problem don't all restart at once when it is resolved.
    held: Option<Task>,
    /// The assigned content and its revision.
    desired: Option<(Revision, Content)>,
    /// The assigned revision, if the cluster no longer has its content.
    superseded: Option<Revision>,
}

/// The kubelet, and whether it may be restarted.
struct OwnKubelet {
    unit: KubeletUnit,
    /// Why it is not restarted, as a clause; `None`: it is restarted.
    no_restart: Option<String>,
    /// Whether the unit also runs the control plane, so that it is never restarted.
    is_server: bool,
    /// The flag of the kubelet that uses the provider, and when it was read. Cached, so that a rotation doesn't wait for systemd.
    flag: Option<(Instant, ProviderFlag)>,
}

/// Changes of the delivered files by other processes.
struct Files {
    drift: Drift,
    /// What may be done to the credentials file; `None`: no daemon updates the node.
    guard: Option<Guard>,
    /// The question to the controller, and since when it waits.
    asked: Option<(String, Instant)>,
    /// An unparsable file whose writer may not have finished yet.
    half_written: Option<FileSnapshot>,
    /// Provider files whose writer may not have finished yet.
    half_written_settings: Option<ProviderDisk>,
    /// The path to which an unparsable file was moved, for the report.
    quarantined: Option<PathBuf>,
    /// Why content for the provider goes into the credentials file instead.
    obstacle: Option<Obstacle>,
}

pub(crate) struct Agent {
    options: Options,
    cluster: Cluster,
    reporter: StatusReporter,
    node: OnNode,
    assigned: Assigned,
    kubelet: OwnKubelet,
    files: Files,
    /// Between attempts to fetch content.
    backoff: Backoff,
    /// End of the observation period after a change.
    watch_until: Option<Instant>,
    revival: Revival,
    /// The last error. It is logged once and reported until it is resolved.
    last_error: Option<String>,
}

impl Agent {
    pub(crate) fn new(options: Options, cluster: Cluster, systemd: Systemd) -> Self {
        let Watched { objects, versions } = cluster.watch_object();
        let mut drift = Drift::new(&options.config_file);
        // Added at the start, because a later watch would miss earlier changes.
        drift.watch_others(&options.provider.watched_without());
        let ready_file = options.ready_file.clone();
        Self {
            node: OnNode {
                journal: Journal::next_to(&options.config_file, cluster.node()),
                state: None,
                access: Access::Nothing,
                lock: None,
            },
            assigned: Assigned {
                objects,
                versions,
                about: None,
                task: None,
                held: None,
                desired: None,
                superseded: None,
            },
            kubelet: OwnKubelet {
                unit: KubeletUnit::new(systemd),
                no_restart: None,
                is_server: false,
                flag: None,
            },
            files: Files {
                drift,
                guard: None,
                asked: None,
                half_written: None,
                half_written_settings: None,
                quarantined: None,
                obstacle: None,
            },
            reporter: StatusReporter::new(writer::start(cluster.clone()), ready_file),
            options,
            cluster,
            backoff: BACKOFF,
            watch_until: None,
            revival: Revival::default(),
            last_error: None,
        }
    }

    /// Runs until the API server has rejected this pod for too long, or until the future is dropped, which is safe at any await:
    /// the next syncer continues from the journal.
    pub(crate) async fn run(&mut self) {
        // The pod is ready once this process knows the node's state and the API server has answered.
        self.reporter.mark_ready(false);
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
        self.assigned.objects.has_changed().is_err()
    }

    /// Takes the current object as the node's assignment.
    fn observe_object(&mut self) -> SeenObject {
        let known = self.assigned.objects.borrow_and_update().clone();
        self.assigned.task = known.object().and_then(task);
        self.assigned.about = known.object().map(identity);
        if self.node.access != Access::Nothing && !matches!(known, SeenObject::Nothing) {
            self.reporter.mark_ready(true);
        }
        known
    }

    /// Whether the task waits for another generation. A change in the journal continues, and the content in force is still
    /// maintained.
    fn is_held(&self) -> bool {
        let Some(task) = self
            .assigned
            .task
            .as_ref()
            .filter(|_| self.assigned.task == self.assigned.held)
        else {
            return false;
        };
        let is_in_force =
            |state: &JournalState| task.goal() != Goal::Restore && state.revision == task.revision;
        !self
            .node
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
        self.assigned.held.clone_from(&self.assigned.task);
        self.report_error(error);
        match error {
            NodeError::Bus(_) | NodeError::Systemd(_) => BUS_RETRY,
            _ => DISK_RETRY,
        }
    }

    async fn wait(&mut self, pause: Duration) {
        let statuses = self.assigned.objects.clone();
        tokio::select! {
            // An error means that the watch has ended; this syncer ends as well once it has the node.
            changed = self.assigned.objects.changed() => match changed {
                Ok(()) => self.backoff.reset(),
                Err(_) => sleep(LOCK_RETRY).await,
            },
            () = self.files.drift.changed() => {}
            () = sleep(pause) => {}
            never = self.reporter.uphold(&statuses, &mut self.assigned.versions) => match never {},
        }
    }

    /// Observes once and acts. Returns the time until there is more to do; zero: observe again immediately.
    async fn step(&mut self) -> Result<Duration, NodeError> {
        if !self.has_node() {
            self.acquire_node(false).await;
            return Ok(Duration::ZERO);
        }
        let known = self.observe_object();
        let object = known.object();
        if let Some(pause) = self.unobserved().await? {
            return Ok(pause);
        }
        let task = self.assigned.task.clone();
        self.take_up_again();
        let (file, found) = read_identified(&self.options.config_file)?;
        if self.may_be_half_written(&file) {
            return Ok(HALF_WRITTEN);
        }
        let foreign_owner = object.map_or("", |object| &object.spec.foreign_owner);
        let is_updating = foreign_owner == MACHINE_CONFIG_UPDATE;
        // Without the provider, the node's own file is restored without a restart.
        let is_restarted = task.is_some() && (!is_updating || self.has_provider());
        self.find_unit(is_restarted).await?;
        let revision = task.as_ref().map(|task| task.revision);
        self.adopt_provider(&file)?;
        let provider = self.observe_provider(object, revision).await?;
        if self.is_half_written(provider.as_ref()) {
            return Ok(HALF_WRITTEN);
        }
        let desired = task.as_ref().and_then(|task| {
            self.assigned
                .desired
                .as_ref()
                .filter(|(revision, _)| *revision == task.revision)
                .map(|(_, content)| content)
        });
        let confirmed = object.map_or("", confirmed);
        let is_guarded = in_place(object, self.node.state.as_ref());
        let guard = is_guarded.then_some(FileGuard {
            found: &found,
            confirmed,
        });
        let facts = NodeFacts {
            task: task.as_ref(),
            is_foreign: !foreign_owner.is_empty(),
            is_updating,
            guard,
            state: self.node.state.as_ref(),
            file: &file,
            desired,
            superseded: task
                .as_ref()
                .is_some_and(|task| self.assigned.superseded == Some(task.revision)),
            restart: self.options.restart && self.kubelet.no_restart.is_none(),
            is_cooled_down: self.kubelet.unit.cooldown().is_zero(),
            is_watched: self.files.drift.is_watched() && self.is_answered_soon(),
            is_conflict_limit_reached: self.files.drift.is_limit_reached(),
            restores_only: self.options.restores_only,
            provider: provider.as_ref(),
        };
        let action = decide(&facts);
        self.files.guard = guard.map(|_| Guard {
            may_replace: Vec::from_iter(is_replaceable(&facts).then(|| found.clone())),
            skips: is_updating,
        });
        let token = found.token(&facts.written());
        if !matches!(action, Action::Ask) {
            self.files.asked = None;
        }
        if self.node.lock.is_none() && action.changes_node() {
            self.acquire_node(true).await;
            return Ok(Duration::ZERO);
        }
        if self.node.state.is_none() && !action.changes_node() {
            self.node.lock = None;
        }
        if action.restarts(self.node.state.as_ref()) && self.has_moved().await? {
            return Ok(Duration::ZERO);
        }
        self.act(action, file, token, task, foreign_owner).await
    }
}
