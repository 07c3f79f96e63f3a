//! The syncer's state: the file before the first change, the managed entries, and the change in progress.

use std::path::PathBuf;

use globalps_core::reasons::Reason;
use globalps_core::rollout::{Goal, Revision};
use globalps_provider::{Content, ProviderConfig, parse_data};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::file::{FileError, FileSnapshot};
use super::managed::ManagedEntries;
use super::replace::FileId;

/// Format version of the state file.
pub(super) const VERSION: u32 = 1;

/// Why the node can't be changed now. Work continues once the cause is resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "another syncer is running on this node, or another process holds the lock `{path}`; waiting for it to exit"
    )]
    Locked { path: PathBuf },
    #[error("{0}; the change continues once systemd responds")]
    Bus(String),
    #[error("{0}; the change continues once systemd answers without an error")]
    Systemd(String),
    #[error("{0}; nothing was changed")]
    Unit(String),
    #[error("`{path}` has version {found}, newer than this syncer's {VERSION}: use a newer syncer")]
    Newer { path: PathBuf, found: u32 },
    #[error("`{path}` is damaged; nothing was changed: repair it, or move it away to begin again")]
    Damaged { path: PathBuf },
    #[error("{}", .0.message)]
    Provider(Obstacle),
}

impl NodeError {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::File(error) => error.reason(),
            Self::Locked { .. } => Reason::AnotherSyncer,
            Self::Bus(_) => Reason::SystemBusUnavailable,
            Self::Systemd(_) => Reason::SystemdError,
            Self::Unit(_) => Reason::KubeletUnit,
            Self::Newer { .. } => Reason::StateTooNew,
            Self::Damaged { .. } => Reason::StateDamaged,
            Self::Provider(obstacle) => obstacle.reason,
        }
    }
}

/// Why the provider can't be set up or removed: reason and message of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Obstacle {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            reason: Reason::ProviderNotPossible,
            message: message.into(),
        }
    }

    /// The program's answer does not match its data.
    pub(crate) fn failed(message: String) -> Self {
        Self {
            reason: Reason::ProviderFailed,
            message,
        }
    }
}

/// The assignment of one generation of the node's `NodePullSecret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// uid of the object: a generation is only meaningful within one object.
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// Revision to put in force; `NONE`: restore the node.
    pub(crate) revision: Revision,
}

impl Task {
    pub(crate) fn goal(&self) -> Goal {
        if self.revision == Revision::NONE {
            Goal::Restore
        } else {
            Goal::Revision(self.revision)
        }
    }
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChangeStep {
    /// Write the new content and restart the kubelet with it.
    Forward,
    /// The content is in force; the kubelet is observed for a while.
    Watching,
    /// Write the previous content and restart the kubelet with it.
    Back,
}

/// The credential provider on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstalledProvider {
    /// The provider's data file.
    pub(crate) data: FileSnapshot,
    pub(crate) config: ProviderConfig,
    /// The kubelet passes pod tokens to it.
    pub(crate) tokens: bool,
    /// The paths in the kubelet's own flags; `None`: globalps added the flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set_up: Option<SetUp>,
}

/// Paths on the node: the configuration, or the directory of configurations, and the directory of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetUp {
    pub(crate) config: PathBuf,
    pub(crate) bin_dir: PathBuf,
}

impl InstalledProvider {
    /// The content of its data file.
    pub(crate) fn content(&self) -> Option<Content> {
        let FileSnapshot::File { bytes, .. } = &self.data else {
            return None;
        };
        parse_data(bytes).ok().map(|data| data.content)
    }
}

/// The provider's files before or after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProviderSide {
    /// `None`: no provider of globalps is on the node.
    pub(crate) installed: Option<InstalledProvider>,
    /// The kubelet's credential provider configuration.
    pub(crate) config: FileSnapshot,
    /// kubeadm's flags file; `None`: it is not changed.
    pub(crate) flags: Option<FileSnapshot>,
}

impl ProviderSide {
    pub(crate) fn data(&self) -> FileSnapshot {
        let installed = self.installed.as_ref();
        installed.map_or(FileSnapshot::Absent, |installed| installed.data.clone())
    }
}

/// The part of a change that concerns the credential provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProviderChange {
    pub(crate) before: ProviderSide,
    pub(crate) target: ProviderSide,
    /// Whether systemd can report if the kubelet serves.
    pub(crate) is_kubelet_checked: bool,
    /// The change is rolled back because the installed program returned wrong credentials.
    #[serde(default)]
    pub(crate) has_failed: bool,
}

impl ProviderChange {
    /// Whether the change sets up the provider on a node without one.
    pub(crate) fn is_way_in(&self) -> bool {
        self.before.installed.is_none() && self.target.installed.is_some()
    }
}

/// A change in progress, with everything needed to finish it or to roll it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PendingChange {
    pub(crate) task: Task,
    pub(crate) step: ChangeStep,
    pub(crate) target: FileSnapshot,
    pub(crate) target_managed: ManagedEntries,
    /// The change only takes effect after a kubelet restart.
    pub(crate) restart: bool,
    /// The unit's `InvocationID` before the restart with the new content was requested; `None` until requested.
    #[serde(default)]
    pub(crate) started_from: Option<String>,
    pub(crate) before: FileSnapshot,
    pub(crate) before_managed: ManagedEntries,
    pub(crate) before_revision: Revision,
    /// Like `started_from`, for the restart with the previous content.
    #[serde(default)]
    pub(crate) back_from: Option<String>,
    /// Why it is rolled back; empty: not because of the content, so no failure is recorded.
    pub(crate) failure: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<ProviderChange>,
    /// What was written by a change that this one superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) superseded: Option<Superseded>,
}

/// What an unfinished change left behind, in addition to the state before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Superseded {
    pub(crate) file: FileSnapshot,
    pub(crate) managed: ManagedEntries,
}

impl PendingChange {
    /// All entries that may be managed while it is in progress.
    pub(crate) fn managed(&self) -> ManagedEntries {
        let before = match &self.superseded {
            Some(superseded) => self.before_managed.and(&superseded.managed),
            None => self.before_managed.clone(),
        };
        before.and(&self.target_managed)
    }

    /// Whether the change, not another process, wrote this file.
    pub(crate) fn knows(&self, file: &FileSnapshot) -> bool {
        let superseded = self.superseded.as_ref().map(|it| &it.file);
        *file == self.target || *file == self.before || superseded == Some(file)
    }

    /// Whether the change's restart has not been requested yet.
    pub(crate) fn awaits_restart(&self) -> bool {
        self.restart && self.step == ChangeStep::Forward && self.started_from.is_none()
    }

    /// The provider that it brings or removes.
    pub(crate) fn known_provider(&self) -> Option<&InstalledProvider> {
        let provider = self.provider.as_ref()?;
        let target = provider.target.installed.as_ref();
        target.or(provider.before.installed.as_ref())
    }

    /// Whether the change repairs the provider's data and changes nothing else.
    pub(crate) fn is_repair(&self) -> bool {
        !self.restart && (self.provider.as_ref()).is_some_and(|it| it.before == it.target)
    }

    /// Whether the change repairs the revision in force, so that it is no attempt at a failed task.
    pub(crate) fn is_upkeep(&self) -> bool {
        self.task.revision == self.before_revision
    }

    /// The configuration no longer allows restarts: the change continues without one and without the system bus. Setting up the
    /// provider needs a restart, so that is rolled back.
    pub(crate) fn waive_restart(&mut self) {
        if let Some(provider) = &mut self.provider {
            provider.is_kubelet_checked = false;
            if self.restart && provider.is_way_in() && self.step == ChangeStep::Forward {
                self.step = ChangeStep::Back;
            }
        }
        self.restart = false;
        self.started_from = None;
        self.back_from = None;
    }
}

/// A failed task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailedTask {
    pub(crate) task: Task,
    pub(crate) error: String,
    /// The kubelet did not start with the previous file either.
    pub(crate) stuck: bool,
    /// The kubelet was started again later.
    #[serde(default)]
    pub(crate) recovered: bool,
    /// The credential provider failed, not the kubelet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_of_provider: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JournalState {
    version: u32,
    /// The file before the first change.
    pub(crate) snapshot: FileSnapshot,
    pub(crate) managed: ManagedEntries,
    /// Revision in force; `NONE`: none. Without an id its content is not known.
    pub(crate) revision: Revision,
    /// The last task that failed. It is not repeated.
    pub(crate) failed: Option<FailedTask>,
    pub(crate) change: Option<PendingChange>,
    pub(crate) restarts: i64,
    /// How often another process changed managed entries.
    #[serde(default)]
    pub(crate) drifts: i64,
    /// The task that was given up because another process kept undoing it.
    #[serde(default)]
    pub(crate) given_up: Option<Task>,
    /// Mode of the file before it was narrowed to its owner; `None`: it was not.
    #[serde(default)]
    pub(crate) mode: Option<u32>,
    /// When the kubelet was last asked to restart.
    #[serde(default)]
    pub(crate) restarted_at: Option<Time>,
    /// The installed credential provider; `None`: content is in the credentials file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<InstalledProvider>,
    /// The unit whose restart was last requested; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
    /// Keys of entries that count as the node's own, though globalps may have written them before its state was lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) doubtful: Vec<String>,
    /// The last task that the revision in force answered; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) applied: Option<Task>,
    /// Content up to this revision was forgotten on request; 0: none.
    #[serde(default)]
    pub(crate) forgotten: i64,
    /// The credentials file that globalps wrote last. Unknown after a crash between the write and the journal.
    #[serde(default, skip_serializing_if = "FileId::is_unknown")]
    pub(crate) written: FileId,
    /// A daemon may update the node in place, as the last assignment said: a syncer that starts does not know its own yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) in_place: bool,
}

impl JournalState {
    /// The restart for the change in progress was requested.
    pub(crate) fn is_restarted(&self) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change.started_from.is_some())
    }

    /// The restart for its change has not been requested yet.
    pub(crate) fn awaits_restart(&self) -> bool {
        self.change
            .as_ref()
            .is_some_and(PendingChange::awaits_restart)
    }

    /// A restart was requested, and it is not known whether the kubelet serves since: if it is down, globalps starts it again.
    pub(crate) fn owes_start(&self) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|it| it.started_from.is_some() || it.back_from.is_some())
            || self.failed.as_ref().is_some_and(|failure| failure.stuck)
    }

    /// The change that is not in force yet, or no more. One that is only watched is on the node.
    pub(crate) fn unfinished(&self) -> Option<&PendingChange> {
        (self.change.as_ref()).filter(|change| change.step != ChangeStep::Watching)
    }

    /// The provider that is on the node, or that a change in progress brings or removes.
    pub(crate) fn known_provider(&self) -> Option<&InstalledProvider> {
        let of_change = self.unfinished().and_then(PendingChange::known_provider);
        of_change.or(self.provider.as_ref())
    }

    /// The task's revision is in force, and no later assignment repeated it. An object that was created again repeats none: all
    /// of them may be, at once.
    pub(crate) fn is_settled_on(&self, task: &Task) -> bool {
        let is_answered = |applied: &Task| applied.uid != task.uid || applied == task;
        self.change.is_none()
            && self.revision == task.revision
            && self.applied.as_ref().is_none_or(is_answered)
    }

    pub(crate) fn new(snapshot: FileSnapshot, restarts: i64) -> Self {
        Self {
            version: VERSION,
            snapshot,
            managed: ManagedEntries::default(),
            revision: Revision::NONE,
            failed: None,
            change: None,
            restarts,
            drifts: 0,
            given_up: None,
            mode: None,
            restarted_at: None,
            provider: None,
            unit: None,
            doubtful: Vec::new(),
            applied: None,
            forgotten: 0,
            written: FileId::default(),
            in_place: false,
        }
    }

    /// The part of the state that remains after a restore, to be reported once more.
    pub(crate) fn restored(&self, file: FileSnapshot) -> Self {
        Self {
            drifts: self.drifts,
            restarted_at: self.restarted_at.clone(),
            doubtful: self.doubtful.clone(),
            ..Self::new(file, self.restarts)
        }
    }
}
