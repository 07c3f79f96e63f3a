//! The loop on the node: look, decide, act, tell.

use std::path::{Path, PathBuf};
use std::time::Duration;

use globalps_core::api::{NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::dockerconfig::DockerConfig;
use globalps_core::rollout::Goal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::change::{Changer, Outcome};
use crate::config_file::{self, Image};
use crate::decide::{Action, NodeFacts, decide};
use crate::journal::{Failure, Journal, JournalError, State, Step, Task};
use crate::node_status::{Backoff, Cluster, FetchError, identity, task};
use crate::systemd::{Systemd, Unit};
use crate::tell::{self, Teller};

/// A kubelet that dies so soon after a change was in force takes the change back.
const UNDER_WATCH: Duration = Duration::from_secs(30);
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// After an error of the disk.
const DISK_RETRY: Duration = Duration::from_secs(10);
/// Nothing to do: only a change of the object ends it.
const FOR_EVER: Duration = Duration::from_hours(24);

pub(crate) struct Options {
    pub(crate) config_file: PathBuf,
    pub(crate) ready_file: PathBuf,
    /// Whether the kubelet is restarted after a change.
    pub(crate) restart: bool,
}

pub(crate) struct Agent {
    config_file: PathBuf,
    restart: bool,
    cluster: Cluster,
    journal: Journal,
    unit: Unit,
    state: Option<State>,
    objects: watch::Receiver<Option<NodePullSecret>>,
    teller: Teller,
    /// The granted content: its revision, and what it is.
    desired: Option<(i64, DockerConfig)>,
    /// The granted revision that `global-pull-secret` is not at.
    superseded: Option<i64>,
    backoff: Backoff,
    /// uid and generation of the object that what is told is about.
    about: Option<(String, i64)>,
    /// Until when the kubelet is under watch.
    watch_until: Option<Instant>,
    /// What to tell about a file that was no credentials file.
    set_aside: Option<PathBuf>,
}

impl Agent {
    pub(crate) fn new(options: Options, cluster: Cluster, systemd: Systemd) -> Self {
        Self {
            journal: Journal::beside(&options.config_file),
            objects: cluster.follow(),
            teller: Teller::new(cluster.reporter(), options.ready_file),
            unit: Unit::new(systemd),
            config_file: options.config_file,
            restart: options.restart,
            cluster,
            state: None,
            about: None,
            desired: None,
            superseded: None,
            backoff: Backoff::default(),
            watch_until: None,
            set_aside: None,
        }
    }

    /// Runs until it is dropped, which may be at any await: whoever comes next goes on from the journal.
    pub(crate) async fn run(&mut self) {
        // What is true now is not known yet, so the pod is not ready.
        self.teller.mark_ready(false);
        config_file::sweep(&self.config_file);
        loop {
            match self.journal.load() {
                Ok(state) => {
                    self.state = state;
                    break;
                }
                Err(error) => {
                    tracing::error!(%error, "the state of this node cannot be used");
                    self.about = self.objects.borrow_and_update().as_ref().map(identity);
                    self.tell_error(&error);
                    self.wait(DISK_RETRY).await;
                }
            }
        }
        loop {
            let pause = match self.step().await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "nothing was changed");
                    self.tell_error(&error);
                    DISK_RETRY
                }
            };
            if !pause.is_zero() {
                self.wait(pause).await;
            }
        }
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::select! {
            // An error means that the follower is gone, which never ends; then only time wakes.
            Ok(()) = self.objects.changed() => self.backoff.reset(),
            () = sleep(pause) => {}
        }
    }

    /// One look and what follows from it. Returns how long there is nothing more to do; zero: look again.
    async fn step(&mut self) -> Result<Duration, JournalError> {
        let object = self.objects.borrow_and_update().clone();
        let task = object.as_ref().and_then(task);
        let about = object.as_ref().map(identity);
        if self.about.as_ref().map(|(uid, _)| uid) != about.as_ref().map(|(uid, _)| uid) {
            // Revisions begin anew after a cleanup, so one of another object's time may be another content.
            self.desired = None;
        }
        self.about = about;
        let file = config_file::read(&self.config_file)?;
        let desired = task.as_ref().and_then(|task| {
            self.desired
                .as_ref()
                .filter(|(revision, _)| *revision == task.revision)
                .map(|(_, config)| config)
        });
        let facts = NodeFacts {
            task: task.as_ref(),
            state: self.state.as_ref(),
            file: &file,
            desired,
            superseded: task
                .as_ref()
                .is_some_and(|task| self.superseded == Some(task.revision)),
            restart: self.restart,
        };
        match decide(&facts) {
            Action::Rest => Ok(FOR_EVER),
            Action::Fetch => Ok(self.fetch(task.as_ref()).await),
            Action::Resume => {
                tracing::info!("going on with a change that was begun before");
                self.change(file, None).await
            }
            Action::Begin { change, set_aside } => {
                if set_aside && let Image::File { bytes, .. } = &file {
                    let path = self.journal.set_aside(bytes)?;
                    tracing::warn!(path = %path.display(), "the file is no credentials file and was set aside");
                    self.set_aside = Some(path);
                }
                self.change(file, Some(*change)).await
            }
            Action::Settle => {
                self.settle()?;
                Ok(Duration::ZERO)
            }
            Action::Refuse(failure) => {
                self.tell_failure(&failure);
                Ok(FOR_EVER)
            }
            Action::Confirm => self.confirm().await,
            Action::Forget => {
                self.journal.remove()?;
                self.state = None;
                self.tell(Phase::Restored, "", "");
                Ok(FOR_EVER)
            }
        }
    }

    async fn fetch(&mut self, task: Option<&Task>) -> Duration {
        let Some(task) = task else { return FOR_EVER };
        match self.cluster.fetch(task.revision).await {
            Ok(config) => {
                self.backoff.reset();
                self.desired = Some((task.revision, config));
                Duration::ZERO
            }
            Err(error @ FetchError::OtherRevision { .. }) => {
                let known = self.superseded.replace(task.revision);
                let in_force = self.state.as_ref().map_or(0, |state| state.revision);
                if in_force == task.revision {
                    return Duration::ZERO;
                }
                // The grant of the newer one is on its way.
                if known != Some(task.revision) {
                    tracing::info!(%error, "waiting");
                }
                self.teller.mark_ready(false);
                RECHECK
            }
            Err(error) => {
                let pause = self.backoff.next();
                tracing::warn!(%error, "trying again in {} ms", pause.as_millis());
                self.tell(Phase::Syncing, "SecretNotRead", &error.to_string());
                pause
            }
        }
    }

    /// Begins this change, or goes on with the one in the journal, to its end.
    async fn change(
        &mut self,
        file: Image,
        change: Option<crate::journal::Change>,
    ) -> Result<Duration, JournalError> {
        let restarts = self
            .objects
            .borrow()
            .as_ref()
            .map_or(0, |object| self.teller.restarts(object));
        let mut state = self
            .state
            .take()
            .unwrap_or_else(|| State::new(file, restarts));
        let task = change
            .as_ref()
            .or(state.change.as_ref())
            .map(|change| &change.task);
        // Whatever the object asks for by the time it is done: what is told is about this task.
        self.about = task.map(|task| (task.uid.clone(), task.generation));
        let goal = task.map(Task::goal);
        match goal {
            Some(Goal::Restore) => tracing::info!("putting the node back as it was"),
            Some(Goal::Revision(revision)) => {
                tracing::info!(revision, "putting the revision in force");
            }
            None => {}
        }
        let path = self.config_file.clone();
        // Told beside the work: the file does not wait for the API server.
        let phase = if goal == Some(Goal::Restore) {
            Phase::Restoring
        } else {
            Phase::Syncing
        };
        self.state = Some(state.clone());
        self.tell(phase, "", "");
        let mut changer = Changer {
            journal: &self.journal,
            path: &path,
            kubelet: &mut self.unit,
        };
        let result = match change {
            Some(change) => changer.begin(&mut state, change).await,
            None => changer.resume(&mut state).await,
        };
        self.finish(state, goal, result)
    }

    fn finish(
        &mut self,
        state: State,
        goal: Option<Goal>,
        result: Result<Outcome, JournalError>,
    ) -> Result<Duration, JournalError> {
        let is_restored =
            goal == Some(Goal::Restore) && state.change.is_none() && state.failed.is_none();
        self.state = Some(state);
        match result {
            Err(error) => {
                // What is on the disk is the truth.
                self.state = self.journal.load()?;
                Err(error)
            }
            Ok(Outcome::InForce) if is_restored => {
                tracing::info!("the node is as it was");
                // Its count of restarts is told once more; after that there is nothing of it any more.
                match self.set_aside.take().filter(|path| path.exists()) {
                    Some(path) => self.tell(Phase::Restored, "FileSetAside", &kept(&path)),
                    None => self.tell(Phase::Restored, "", ""),
                }
                self.state = None;
                Ok(FOR_EVER)
            }
            Ok(Outcome::InForce) => {
                self.watch_until = Some(Instant::now() + UNDER_WATCH);
                Ok(Duration::ZERO)
            }
            Ok(Outcome::TakenBack(failure)) => {
                tracing::error!(
                    why = failure.why,
                    stuck = failure.stuck,
                    "the change was taken back"
                );
                self.tell_failure(&failure);
                Ok(Duration::ZERO)
            }
        }
    }

    /// Tells that the task is in force, and keeps the kubelet under watch for a while.
    async fn confirm(&mut self) -> Result<Duration, JournalError> {
        let (reason, message) = match (&self.set_aside, self.restart) {
            (Some(path), _) => ("FileSetAside", kept(path)),
            (None, true) => ("", String::new()),
            (None, false) => (
                "RestartNever",
                "the kubelet takes it up by itself within 5 minutes".to_owned(),
            ),
        };
        self.tell(Phase::Synced, reason, &message);
        let watching = self.state.as_ref().and_then(|state| state.change.as_ref());
        if watching.is_none_or(|change| change.step != Step::Watching) {
            return Ok(FOR_EVER);
        }
        let until = *self
            .watch_until
            .get_or_insert_with(|| Instant::now() + UNDER_WATCH);
        if Instant::now() >= until {
            self.settle()?;
            return Ok(FOR_EVER);
        }
        let Ok(facts) = self.unit.systemd.facts().await else {
            return Ok(WATCH_EVERY);
        };
        let before = self.unit.served.get_or_insert_with(|| facts.clone());
        if !facts.has_died_since(before) {
            return Ok(WATCH_EVERY);
        }
        let why = format!(
            "`{}` died soon after the change (it is {})",
            self.unit.systemd.unit(),
            facts.active_state()
        );
        let Some(mut state) = self.state.take() else {
            return Ok(FOR_EVER);
        };
        let path = self.config_file.clone();
        let mut changer = Changer {
            journal: &self.journal,
            path: &path,
            kubelet: &mut self.unit,
        };
        let result = changer.take_back(&mut state, why).await;
        self.finish(state, None, result)
    }

    /// Closes the way back.
    fn settle(&mut self) -> Result<(), JournalError> {
        self.watch_until = None;
        if let Some(state) = &mut self.state {
            state.change = None;
            self.journal.save(state)?;
        }
        Ok(())
    }

    fn tell(&mut self, phase: Phase, reason: &str, message: &str) {
        let object = self.objects.borrow().clone();
        let Some(object) = object else { return };
        let Some((_, generation)) = self
            .about
            .clone()
            .filter(|(uid, _)| *uid == identity(&object).0)
        else {
            return;
        };
        let status = NodePullSecretStatus {
            observed_generation: generation,
            phase,
            reason: reason.to_owned(),
            message: message.to_owned(),
            revision: self.state.as_ref().map_or(0, |state| state.revision),
            restarts: self
                .state
                .as_ref()
                .map_or_else(|| self.teller.restarts(&object), |state| state.restarts),
            restored: phase == Phase::Restored,
            ..NodePullSecretStatus::default()
        };
        self.teller.tell(&object, status);
    }

    fn tell_failure(&mut self, failure: &Failure) {
        let (phase, reason, message) = tell::of_failure(failure);
        self.tell(phase, reason, &message);
    }

    fn tell_error(&mut self, error: &JournalError) {
        self.tell(Phase::Failed, error.reason(), &error.to_string());
    }
}

/// Between two looks at a `global-pull-secret` that is at another revision than the granted one.
const RECHECK: Duration = Duration::from_secs(5);

fn kept(path: &Path) -> String {
    let path = path.display();
    format!("the node's own file was no credentials file and is kept as {path}")
}
