//! What the syncer remembers of its node: the file before the first change, the entries it manages there, and the change
//! that is under way.

use std::path::PathBuf;

use globalps_core::provider::{Content, ProviderConfig, parse_data};
use globalps_core::rollout::Goal;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::file::{FileError, FileSnapshot};
use super::managed::ManagedEntries;

/// Newest format version of the state file that this program reads and writes.
pub(super) const VERSION: u32 = 2;
/// Version of a state without anything of the provider, which older syncers read.
const VERSION_WITHOUT_PROVIDER: u32 = 1;

/// Why the node can't be changed now. Work continues once the cause is gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("another syncer runs on this node; this one waits")]
    Locked,
    #[error("{0}; it continues once systemd answers")]
    Bus(String),
    #[error("{0}; nothing was changed")]
    Unit(String),
    #[error(
        "`{path}` is of version {found}, newer than this syncer's {VERSION}: use a newer syncer"
    )]
    Newer { path: PathBuf, found: u32 },
    #[error(
        "`{path}` is damaged; nothing was changed: restore the file, or move it away to start without it"
    )]
    Damaged { path: PathBuf },
    #[error("{}", .0.message)]
    Provider(Obstacle),
}

impl NodeError {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::File(error) => error.reason(),
            Self::Locked => "AnotherSyncer",
            Self::Bus(_) => "SystemBusAway",
            Self::Unit(_) => "KubeletUnit",
            Self::Newer { .. } => "StateTooNew",
            Self::Damaged { .. } => "StateDamaged",
            Self::Provider(obstacle) => obstacle.reason,
        }
    }
}

/// Why the provider can't be set up, or not be taken out: a reason of the status, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Obstacle {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            reason: "ProviderNotPossible",
            message: message.into(),
        }
    }

    /// The program does not give what its data say.
    pub(crate) fn failed(message: String) -> Self {
        Self {
            reason: "ProviderFailed",
            message,
        }
    }
}

/// What one generation of the node's `NodePullSecret` asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// uid of the object: a generation counts only within one object. Older syncers began tasks without an object; their
    /// uid is empty.
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// Revision to put in force; 0: restore the node.
    pub(crate) revision: i64,
}

impl Task {
    pub(crate) fn goal(&self) -> Goal {
        if self.revision == 0 {
            Goal::Restore
        } else {
            Goal::Revision(self.revision)
        }
    }
}

/// Progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Write the new content and restart the kubelet with it.
    Forward,
    /// It is in force; the kubelet is watched for a while.
    Watching,
    /// Write the previous content and restart the kubelet with it.
    Back,
}

/// What the credential provider has on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Installed {
    /// The file that it reads.
    pub(crate) data: FileSnapshot,
    pub(crate) config: ProviderConfig,
    /// The kubelet gives it the tokens of pods.
    pub(crate) tokens: bool,
}

impl Installed {
    /// What its file holds.
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
    pub(crate) installed: Option<Installed>,
    /// The kubelet's configuration of providers.
    pub(crate) config: FileSnapshot,
    /// kubeadm's file of flags; `None`: it is left alone.
    pub(crate) flags: Option<FileSnapshot>,
}

impl ProviderSide {
    pub(crate) fn data(&self) -> FileSnapshot {
        let installed = self.installed.as_ref();
        installed.map_or(FileSnapshot::Absent, |installed| installed.data.clone())
    }
}

/// The part of a change that is about the credential provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProviderChange {
    pub(crate) before: ProviderSide,
    pub(crate) target: ProviderSide,
    /// Whether systemd can be asked if the kubelet serves.
    pub(crate) is_kubelet_checked: bool,
    /// The change is rolled back since the installed program did not give the credentials.
    #[serde(default)]
    pub(crate) has_failed: bool,
}

impl ProviderChange {
    /// It brings the provider to a node that has none.
    pub(crate) fn is_way_in(&self) -> bool {
        self.before.installed.is_none() && self.target.installed.is_some()
    }
}

/// A change under way, with everything needed to finish it or to roll it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) task: Task,
    pub(crate) step: Step,
    pub(crate) target: FileSnapshot,
    #[serde(rename = "target_ours")]
    pub(crate) target_managed: ManagedEntries,
    /// It is in force only after a restart of the kubelet.
    pub(crate) restart: bool,
    /// The unit's `InvocationID` before the restart with the new content was requested; `None` until requested.
    #[serde(default)]
    pub(crate) started_from: Option<String>,
    pub(crate) before: FileSnapshot,
    #[serde(rename = "before_ours")]
    pub(crate) before_managed: ManagedEntries,
    pub(crate) before_revision: i64,
    /// The same for the restart with the previous content.
    #[serde(default)]
    pub(crate) back_from: Option<String>,
    /// Why it is rolled back; empty: for no fault of the content, so that no failure is remembered.
    pub(crate) failure: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<ProviderChange>,
    /// What is on the disk of a change that this one took the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) superseded: Option<Superseded>,
}

/// What a change that came to no end has left, besides what was there before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Superseded {
    pub(crate) file: FileSnapshot,
    pub(crate) managed: ManagedEntries,
}

impl Change {
    /// All that may be managed in the file while it is under way.
    pub(crate) fn managed(&self) -> ManagedEntries {
        let before = match &self.superseded {
            Some(superseded) => self.before_managed.and(&superseded.managed),
            None => self.before_managed.clone(),
        };
        before.and(&self.target_managed)
    }

    /// Whether this file is one of its own, and not of another process.
    pub(crate) fn knows(&self, file: &FileSnapshot) -> bool {
        let superseded = self.superseded.as_ref();
        *file == self.target
            || *file == self.before
            || superseded.is_some_and(|superseded| *file == superseded.file)
    }

    /// Its restart has not been requested yet.
    pub(crate) fn awaits_restart(&self) -> bool {
        self.restart && self.step == Step::Forward && self.started_from.is_none()
    }

    /// It brings back what the kubelet's provider had, and changes nothing else of it.
    pub(crate) fn is_repair(&self) -> bool {
        let provider = self.provider.as_ref();
        !self.restart && provider.is_some_and(|provider| provider.before == provider.target)
    }

    /// The configuration does not restart kubelets any more: the change goes on without, and the system bus is not needed.
    /// Without a restart no kubelet gets the provider, so the way in turns back.
    pub(crate) fn waive_restart(&mut self) {
        if let Some(provider) = &mut self.provider {
            provider.is_kubelet_checked = false;
            if self.restart && provider.is_way_in() && self.step == Step::Forward {
                self.step = Step::Back;
            }
        }
        self.restart = false;
        self.started_from = None;
        self.back_from = None;
    }
}

/// A task that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) task: Task,
    #[serde(rename = "why")]
    pub(crate) error: String,
    /// The kubelet did not start with the previous file either.
    pub(crate) stuck: bool,
    /// It was started again later.
    #[serde(default)]
    pub(crate) recovered: bool,
    /// Not the kubelet failed, but the credential provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_of_provider: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// The file before the first change.
    pub(crate) snapshot: FileSnapshot,
    #[serde(rename = "ours")]
    pub(crate) managed: ManagedEntries,
    /// Revision in force; 0: none.
    pub(crate) revision: i64,
    /// The last task that failed. It is not repeated.
    pub(crate) failed: Option<Failure>,
    pub(crate) change: Option<Change>,
    pub(crate) restarts: i64,
    /// How often another process changed managed entries.
    #[serde(default)]
    pub(crate) drifts: i64,
    /// The task that another process kept undoing, so that it was given up.
    #[serde(default)]
    pub(crate) given_up: Option<Task>,
    /// Mode of the file before it was narrowed to its owner; `None`: it was not.
    #[serde(default)]
    pub(crate) mode: Option<u32>,
    /// When the kubelet was last asked to restart.
    #[serde(default)]
    pub(crate) restarted_at: Option<Time>,
    /// What the credential provider has; `None`: content is in the credentials file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<Installed>,
    /// The task that put the revision in force; `None`: none, or an older syncer did not write it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) applied: Option<Task>,
}

impl State {
    /// The task's revision is in force, and nothing has asked for it again since.
    pub(crate) fn is_settled_on(&self, task: &Task) -> bool {
        self.change.is_none()
            && self.revision == task.revision
            && self.applied.as_ref().is_none_or(|applied| applied == task)
    }

    pub(crate) fn new(snapshot: FileSnapshot, restarts: i64) -> Self {
        Self {
            version: VERSION_WITHOUT_PROVIDER,
            snapshot,
            managed: ManagedEntries::default(),
            revision: 0,
            failed: None,
            change: None,
            restarts,
            drifts: 0,
            given_up: None,
            mode: None,
            restarted_at: None,
            provider: None,
            applied: None,
        }
    }

    /// The state in the version that a reader needs. An older syncer would not put the provider's flags out before it
    /// removes the files that they name, and a kubelet without these does not start: it must not read such a state.
    pub(super) fn versioned(&self) -> Self {
        let change = self.change.as_ref();
        let has_provider =
            self.provider.is_some() || change.is_some_and(|change| change.provider.is_some());
        let version = if has_provider {
            VERSION
        } else {
            VERSION_WITHOUT_PROVIDER
        };
        Self {
            version,
            ..self.clone()
        }
    }
}
