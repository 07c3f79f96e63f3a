//! The loop on the node: look, decide, act, tell.

mod fetching;
mod telling;
mod watching;

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use globalps_core::api::Phase;
use globalps_core::dockerconfig::DockerConfig;
use globalps_core::rollout::Goal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::change::{Changer, Outcome};
use crate::config_file::{self, Image};
use crate::decide::{Action, NodeFacts, decide, is_spoilt};
use crate::drift::{self, Drift};
use crate::journal::{Change, Journal, NodeError, State, Task};
use crate::kubelet::{Kubelet as _, Restartable, Unit};
use crate::node_status::{Backoff, Cluster, Known, identity, task};
use crate::systemd::Systemd;
use crate::tell::Teller;

/// A kubelet that dies so soon after a change was in force takes the change back.
const UNDER_WATCH: Duration = Duration::from_secs(30);
/// After an error of the disk, and after one of the node's bus.
const DISK_RETRY: Duration = Duration::from_secs(10);
const BUS_RETRY: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_secs(1);
/// For whoever writes a file that makes no sense yet to come to an end.
const HALF_WRITTEN: Duration = Duration::from_millis(500);
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
    objects: watch::Receiver<Known>,
    teller: Teller,
    /// The granted content: its revision, and what it is.
    desired: Option<(i64, DockerConfig)>,
    /// The proven revision that the node takes without being granted it, since nobody has seen it yet.
    joins: Option<i64>,
    /// The granted revision that `global-pull-secret` is not at.
    superseded: Option<i64>,
    backoff: Backoff,
    /// uid and generation of the object that what is told is about.
    about: Option<(String, i64)>,
    /// Until when the kubelet is under watch.
    watch_until: Option<Instant>,
    /// What to tell about a file that was no credentials file.
    set_aside: Option<PathBuf>,
    drift: Drift,
    /// Why the kubelet is not restarted on this node, as a sentence; none: it is.
    unrestartable: Option<String>,
    /// Why nothing could be done the last time. It is told and logged once, and stays told until it is over.
    trouble: Option<String>,
    /// A content that made no sense was seen, and is given a moment.
    half_written: Option<Image>,
}

impl Agent {
    pub(crate) fn new(options: Options, cluster: Cluster, systemd: Systemd) -> Self {
        Self {
            journal: Journal::beside(&options.config_file),
            drift: Drift::new(&options.config_file),
            unrestartable: None,
            trouble: None,
            half_written: None,
            objects: cluster.follow(),
            teller: Teller::new(cluster.reporter(), options.ready_file),
            unit: Unit::new(systemd),
            config_file: options.config_file,
            restart: options.restart,
            cluster,
            state: None,
            about: None,
            desired: None,
            joins: None,
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
        let _sole = self.take_over().await;
        loop {
            let pause = match self.step().await {
                Ok(pause) => pause,
                Err(error) => {
                    let why = error.to_string();
                    if self.trouble.as_ref() != Some(&why) {
                        tracing::warn!(why, "trying again until it is over");
                    }
                    self.trouble = Some(why);
                    self.tell_error(&error);
                    match error {
                        NodeError::Bus(_) => BUS_RETRY,
                        _ => DISK_RETRY,
                    }
                }
            };
            if !pause.is_zero() {
                self.wait(pause).await;
            }
        }
    }

    /// Waits until the node is this program's alone and its state can be read.
    async fn take_over(&mut self) -> File {
        loop {
            let taken = self.journal.lock().and_then(|lock| {
                config_file::sweep(&self.config_file);
                self.state = self.journal.load()?;
                Ok(lock)
            });
            let error = match taken {
                Ok(lock) => return lock,
                Err(error) => error,
            };
            tracing::error!(%error, "this node can't be worked on");
            self.about = self.objects.borrow_and_update().object().map(identity);
            // The other one tells what is to be told.
            if matches!(error, NodeError::Locked) {
                sleep(LOCK_RETRY).await;
            } else {
                self.tell_error(&error);
                self.wait(DISK_RETRY).await;
            }
        }
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::select! {
            // An error means that the follower is gone, which never ends; then only time wakes.
            Ok(()) = self.objects.changed() => self.backoff.reset(),
            () = self.drift.changed() => {}
            () = sleep(pause) => {}
        }
    }

    /// One look and what follows from it. Returns how long there is nothing more to do; zero: look again.
    async fn step(&mut self) -> Result<Duration, NodeError> {
        let known = self.objects.borrow_and_update().clone();
        let is_unseen = matches!(known, Known::Absent) && self.state.is_none();
        let object = known.object();
        let joins = self.joins.filter(|_| is_unseen).map(Task::of_newcomer);
        let task = object.and_then(task).or(joins);
        let about = object.map(identity);
        if self.about.as_ref().map(|(uid, _)| uid) != about.as_ref().map(|(uid, _)| uid) {
            // Revisions begin anew after a cleanup, so one of another object's time may be another content.
            self.desired = None;
        }
        self.about = about;
        let file = config_file::read(&self.config_file)?;
        if is_spoilt(&file) && self.half_written.as_ref() != Some(&file) {
            self.half_written = Some(file);
            return Ok(HALF_WRITTEN);
        }
        self.find_unit(task.is_some()).await?;
        let desired = task.as_ref().and_then(|task| {
            self.desired
                .as_ref()
                .filter(|(revision, _)| *revision == task.revision)
                .map(|(_, config)| config)
        });
        let foreign_owner = object.map_or("", |object| &object.spec.foreign_owner);
        let facts = NodeFacts {
            task: task.as_ref(),
            is_unseen,
            is_foreign: !foreign_owner.is_empty(),
            state: self.state.as_ref(),
            file: &file,
            desired,
            superseded: task
                .as_ref()
                .is_some_and(|task| self.superseded == Some(task.revision)),
            restart: self.restart && self.unrestartable.is_none(),
            is_due: self.unit.rests().is_zero(),
            is_watched: self.drift.is_watched(),
            is_fought_over: self.drift.is_fight(),
        };
        match decide(&facts) {
            Action::Rest => {
                self.tell_waiting();
                Ok(FOR_EVER)
            }
            Action::Join => Ok(self.join().await),
            Action::Fetch => Ok(self.fetch(task.as_ref()).await),
            Action::Resume => {
                if self.trouble.is_none() {
                    tracing::info!("going on with a change that was begun before");
                }
                self.change(file, None).await
            }
            Action::Begin {
                change,
                set_aside,
                drift,
            } => {
                if set_aside && let Image::File { bytes, .. } = &file {
                    let path = self.journal.set_aside(bytes)?;
                    tracing::warn!(path = %path.display(), "the file is no credentials file and was set aside");
                    self.set_aside = Some(path);
                }
                let done = self.change(file, Some(*change)).await?;
                if drift {
                    self.count_drift()?;
                }
                Ok(done)
            }
            Action::Settle => {
                self.settle()?;
                Ok(Duration::ZERO)
            }
            Action::Refuse(failure) => {
                self.tell_failure(&failure);
                Ok(FOR_EVER)
            }
            Action::LeaveAlone => {
                self.tell_foreign(foreign_owner);
                Ok(FOR_EVER)
            }
            Action::Yield => self.give_up(task),
            Action::Confirm => self.confirm().await,
            Action::Forget => {
                self.journal.remove()?;
                self.state = None;
                self.tell(Phase::Restored, "", "");
                Ok(FOR_EVER)
            }
        }
    }

    /// Finds out what is to be restarted, once there is something to do: asked for, or begun before.
    async fn find_unit(&mut self, is_asked: bool) -> Result<(), NodeError> {
        let is_begun = self
            .state
            .as_ref()
            .is_some_and(|state| state.change.is_some());
        if !self.restart || !(is_asked || is_begun) {
            return Ok(());
        }
        let found = self.unit.restartable().await;
        self.unrestartable = match found.map_err(|trouble| NodeError::Bus(trouble.to_string()))? {
            Restartable::Yes => None,
            Restartable::No(why) => Some(why),
        };
        Ok(())
    }

    /// Somebody else changed what the node was granted, and it was put back.
    fn count_drift(&mut self) -> Result<(), NodeError> {
        tracing::warn!("somebody else changed what the node was granted; it was put back");
        self.drift.count();
        if let Some(state) = &mut self.state {
            state.drifts += 1;
            self.journal.save(state)?;
        }
        Ok(())
    }

    /// The file is somebody else's now, until something else is asked for.
    fn give_up(&mut self, task: Option<Task>) -> Result<Duration, NodeError> {
        if let Some(state) = self.state.as_mut().filter(|state| state.given_up != task) {
            state.given_up = task;
            self.journal.save(state)?;
            tracing::warn!("the file is left to whoever else writes it");
        }
        self.tell(Phase::ForeignOwner, "Fought", &drift::told_of_fight());
        Ok(FOR_EVER)
    }

    /// Begins this change, or goes on with the one in the journal, to its end.
    async fn change(&mut self, file: Image, change: Option<Change>) -> Result<Duration, NodeError> {
        let restarts = self
            .objects
            .borrow()
            .object()
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
            _ if self.trouble.is_some() => {}
            Some(Goal::Restore) => tracing::info!("putting the node back as it was"),
            Some(Goal::Revision(revision)) => {
                tracing::info!(revision, "putting the revision in force");
            }
            None => {}
        }
        let path = self.config_file.clone();
        self.state = Some(state.clone());
        // Told beside the work: the file does not wait for the API server.
        if self.trouble.is_none() {
            self.tell(at_work(goal), "", "");
        }
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
        result: Result<Outcome, NodeError>,
    ) -> Result<Duration, NodeError> {
        if result.is_ok() {
            self.trouble = None;
        }
        let is_restored =
            goal == Some(Goal::Restore) && state.change.is_none() && state.failed.is_none();
        self.state = Some(state);
        match result {
            Err(error) => {
                // What is on the disk is the truth.
                self.state = self.journal.load()?;
                Err(error)
            }
            Ok(Outcome::Written(rests)) => {
                tracing::info!("written; the restart waits {} ms", rests.as_millis());
                let message = "the file is written; the kubelet is restarted once it has had 10 s since the last time";
                self.tell(at_work(goal), "RestartRationed", message);
                Ok(rests)
            }
            Ok(Outcome::InForce) if is_restored => {
                tracing::info!("the node is as it was");
                // Its count of restarts is told once more; after that there is nothing of it any more.
                self.tell_restored();
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
}

/// What a node is at that works towards this.
fn at_work(goal: Option<Goal>) -> Phase {
    if goal == Some(Goal::Restore) {
        Phase::Restoring
    } else {
        Phase::Syncing
    }
}
