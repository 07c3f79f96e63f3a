//! What the syncer remembers on the node: the file before its first change, what it put there last, and the change
//! that is under way. Whoever starts anew goes on from here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use globalps_core::dockerconfig::{self, DockerConfig, Entry};
use globalps_core::names::STATE_DIR;
use globalps_core::rollout::Goal;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::config_file::{self, FileError, Image};

/// Form of the state file that this program writes. It reads this one and older ones.
const VERSION: u32 = 1;
const STATE_FILE: &str = "state.json";
/// What names of contents that were set aside begin with; then comes a time.
const SET_ASIDE: &str = "config.json.unparsable-";

/// Why nothing can be done now. Once the cause is gone, the work goes on where it stands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("another syncer is at work on this node; this one waits")]
    Locked,
    #[error("{0}; it goes on once systemd answers")]
    Bus(String),
    #[error("{0}; nothing was changed")]
    Unit(String),
    #[error(
        "`{path}` is of version {found}, newer than this syncer's {VERSION}: use a newer syncer"
    )]
    Newer { path: PathBuf, found: u32 },
    #[error(
        "`{path}` is damaged; it is left as it is, and so is the node: move it away to start anew"
    )]
    Damaged { path: PathBuf },
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
        }
    }
}

/// A goal that the node was given: `NodePullSecret` and generation of its spec, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// uid of the object, since a generation says nothing about another one.
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// Revision to be in force; 0: none, the node is to be as it was.
    pub(crate) revision: i64,
}

impl Task {
    /// Of a node that has no object yet.
    pub(crate) fn of_newcomer(revision: i64) -> Self {
        Self {
            uid: String::new(),
            generation: 0,
            revision,
        }
    }

    pub(crate) fn goal(&self) -> Goal {
        if self.revision == 0 {
            Goal::Restore
        } else {
            Goal::Revision(self.revision)
        }
    }
}

/// Ours in the file: canonical keys, and the node's own entries that ours stand in for.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Ours {
    pub(crate) keys: BTreeSet<String>,
    /// As a credentials file.
    overridden: serde_json::Value,
}

impl std::fmt::Debug for Ours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ours").field(&self.keys).finish()
    }
}

impl Ours {
    pub(crate) fn new(desired: &DockerConfig, overridden: Vec<Entry>) -> Self {
        let keys = desired
            .by_canonical_key()
            .into_keys()
            .map(Cow::into_owned)
            .collect();
        let overridden =
            serde_json::from_slice(&DockerConfig::new(overridden).render()).unwrap_or_default();
        Self { keys, overridden }
    }

    /// The same keys, standing in for these.
    pub(crate) fn overriding(&self, overridden: Vec<Entry>) -> Self {
        Self {
            keys: self.keys.clone(),
            ..Self::new(&DockerConfig::default(), overridden)
        }
    }

    /// All of both; what stands in for one entry in both does so for that of `later`.
    pub(crate) fn and(&self, later: &Self) -> Self {
        let mut overridden = self.overridden();
        overridden.extend(later.overridden());
        let both: BTreeMap<String, Entry> = overridden
            .into_iter()
            .map(|entry| (entry.canonical_key().into_owned(), entry))
            .collect();
        Self {
            keys: &self.keys | &later.keys,
            ..Self::new(&DockerConfig::default(), both.into_values().collect())
        }
    }

    /// Those of the entries that are ours.
    pub(crate) fn among(&self, config: &DockerConfig) -> DockerConfig {
        let is_ours = |entry: &&Entry| self.keys.contains(&*entry.canonical_key());
        DockerConfig::new(config.entries().iter().filter(is_ours).cloned().collect())
    }

    pub(crate) fn overridden(&self) -> Vec<Entry> {
        let config = dockerconfig::parse(self.overridden.to_string().as_bytes());
        config
            .map(|config| config.entries().to_vec())
            .unwrap_or_default()
    }
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// The new content is to be written and taken up by the kubelet.
    Forward,
    /// It is in force; the kubelet is under watch for a while.
    Watching,
    /// The content from before is to be written and taken up by the kubelet.
    Back,
}

/// A change under way: everything that is needed to finish it or to take it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) task: Task,
    pub(crate) step: Step,
    pub(crate) target: Image,
    pub(crate) target_ours: Ours,
    /// The kubelet must start anew for it to be in force.
    pub(crate) restart: bool,
    /// The start that the kubelet ran by when it was to be restarted with the new content; none: it was not yet.
    #[serde(default)]
    pub(crate) started_from: Option<String>,
    pub(crate) before: Image,
    pub(crate) before_ours: Ours,
    pub(crate) before_revision: i64,
    /// The start that it ran by when it was to be restarted with the content from before.
    #[serde(default)]
    pub(crate) back_from: Option<String>,
    /// Why the way goes back.
    pub(crate) failure: String,
}

impl Change {
    /// The kubelet is still to be asked to start with it.
    pub(crate) fn awaits_restart(&self) -> bool {
        self.restart && self.step == Step::Forward && self.started_from.is_none()
    }
}

/// A task that did not work out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) task: Task,
    pub(crate) why: String,
    /// The kubelet did not come up with the file from before either.
    pub(crate) stuck: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// The file before the first change.
    pub(crate) snapshot: Image,
    pub(crate) ours: Ours,
    /// Revision in force; 0: none.
    pub(crate) revision: i64,
    /// The last task that did not work out. It is not tried again.
    pub(crate) failed: Option<Failure>,
    pub(crate) change: Option<Change>,
    pub(crate) restarts: i64,
    /// How often somebody else changed ours in the file.
    #[serde(default)]
    pub(crate) drifts: i64,
    /// The task that somebody else undid again and again, so that it was given up.
    #[serde(default)]
    pub(crate) given_up: Option<Task>,
}

impl State {
    pub(crate) fn new(snapshot: Image, restarts: i64) -> Self {
        Self {
            version: VERSION,
            snapshot,
            ours: Ours::default(),
            revision: 0,
            failed: None,
            change: None,
            restarts,
            drifts: 0,
            given_up: None,
        }
    }
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// The state directory next to the credentials file.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    config_file: PathBuf,
}

impl Journal {
    pub(crate) fn beside(config_file: &Path) -> Self {
        Self {
            directory: config_file
                .parent()
                .unwrap_or(Path::new("/"))
                .join(STATE_DIR),
            config_file: config_file.to_owned(),
        }
    }

    /// The sole right to work on this node, held for as long as the result lives. The folder itself is what is locked:
    /// the file is replaced, and the state directory comes and goes.
    pub(crate) fn lock(&self) -> Result<File, NodeError> {
        let folder = self.directory.parent().unwrap_or(Path::new("/"));
        let io = |source| FileError::Io {
            action: "lock",
            path: folder.to_owned(),
            source,
        };
        let handle = File::open(folder).map_err(io)?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(handle),
            Err(Errno::WOULDBLOCK) => Err(NodeError::Locked),
            Err(error) => Err(io(error.into()).into()),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(STATE_FILE)
    }

    /// `None`: globalps has never changed this node, or everything was put back.
    pub(crate) fn load(&self) -> Result<Option<State>, NodeError> {
        let path = self.path();
        config_file::sweep(&path);
        let Image::File { bytes, .. } = config_file::read(&path)? else {
            return Ok(None);
        };
        let damaged = |_| NodeError::Damaged { path: path.clone() };
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(damaged)?;
        if version > VERSION {
            return Err(NodeError::Newer {
                path,
                found: version,
            });
        }
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }

    /// Durable when it returns.
    pub(crate) fn save(&self, state: &State) -> Result<(), NodeError> {
        self.make_directory()?;
        let bytes =
            serde_json::to_vec(state).map_err(|_| NodeError::Damaged { path: self.path() })?;
        Ok(config_file::replace(
            &self.path(),
            &Image::Absent.with_bytes(bytes),
        )?)
    }

    /// Keeps a content that could not be parsed, under a name with a time; once, however often it is tried.
    pub(crate) fn set_aside(&self, bytes: &[u8]) -> Result<PathBuf, NodeError> {
        self.make_directory()?;
        let known = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| is_set_aside(&entry.file_name()))
            .map(|entry| entry.path())
            .find(|path| fs::read(path).is_ok_and(|kept| kept == bytes));
        if let Some(path) = known {
            return Ok(path);
        }
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let path = self.directory.join(format!("{SET_ASIDE}{time}"));
        config_file::replace(&path, &Image::Absent.with_bytes(bytes.to_vec()))?;
        Ok(path)
    }

    /// The end: nothing of globalps is left on the node. Only a content that was set aside, and that the credentials
    /// file does not hold again, is somebody's and stays.
    pub(crate) fn remove(&self) -> Result<(), NodeError> {
        let io = |source| FileError::Io {
            action: "remove",
            path: self.directory.clone(),
            source,
        };
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(io)?,
        };
        let back = config_file::read(&self.config_file)?;
        // The state goes first: without it there is nothing that a half removed directory could mislead to.
        config_file::replace(&self.path(), &Image::Absent)?;
        let mut is_empty = true;
        for entry in entries {
            let entry = entry.map_err(io)?;
            let is_kept = is_set_aside(&entry.file_name());
            if is_kept && !config_file::read(&entry.path())?.has_bytes_of(&back) {
                tracing::warn!(path = %entry.path().display(), "kept: it was in the file's place and is no credentials file");
                is_empty = false;
                continue;
            }
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io(error).into());
                }
                _ => {}
            }
        }
        if is_empty {
            fs::remove_dir(&self.directory).map_err(io)?;
        }
        Ok(config_file::sync_directory(
            self.directory.parent().unwrap_or(Path::new("/")),
        )?)
    }

    fn make_directory(&self) -> Result<(), NodeError> {
        let io = |source| FileError::Io {
            action: "create",
            path: self.directory.clone(),
            source,
        };
        match fs::DirBuilder::new().mode(0o700).create(&self.directory) {
            Ok(()) => Ok(config_file::sync_directory(
                self.directory.parent().unwrap_or(Path::new("/")),
            )?),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(io(error).into()),
        }
    }
}

fn is_set_aside(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(SET_ASIDE)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_was_saved_is_there_again_for_root_alone_and_then_gone() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("config.json"));
        assert!(journal.load().unwrap().is_none());
        let own = dockerconfig::parse(br#"{"auths":{"r":{"auth":"dTpw","x":1}}}"#).unwrap();
        let mut state = State::new(Image::Absent.with_bytes(b"\xff".to_vec()), 3);
        state.ours = Ours::new(&own, own.entries().to_vec());
        journal.save(&state).unwrap();
        let loaded = journal.load().unwrap().unwrap();
        assert_eq!((loaded.snapshot, loaded.restarts), (state.snapshot, 3));
        assert!(DockerConfig::new(loaded.ours.overridden()).means_the_same(&own));
        for (path, mode) in [(journal.directory.clone(), 0o700), (journal.path(), 0o600)] {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                mode
            );
        }
        journal.remove().unwrap();
        journal.remove().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// As the first syncers wrote it, in the middle of a change.
    const OLDEST: &str = r#"{"version":1,"snapshot":"Absent","ours":{"keys":["r"],"overridden":{"auths":{}}},"revision":1,
        "failed":null,"change":{"task":{"uid":"u","generation":3,"revision":2},"step":"Forward","target":"Absent",
        "target_ours":{"keys":["r"],"overridden":{"auths":{}}},"restart":true,"before":"Absent",
        "before_ours":{"keys":["r"],"overridden":{"auths":{}}},"before_revision":1,"failure":""},"restarts":4}"#;

    #[test]
    fn a_state_of_an_older_syncer_is_gone_on_from() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("config.json"));
        journal.make_directory().unwrap();
        fs::write(journal.path(), OLDEST).unwrap();
        let state = journal.load().unwrap().unwrap();
        let change = state.change.as_ref().unwrap();
        assert_eq!((state.revision, state.restarts, state.drifts), (1, 4, 0));
        assert_eq!((change.task.revision, change.before_revision), (2, 1));
        assert!(change.awaits_restart(), "its restart is owed");
        journal.save(&state).unwrap();
        journal.load().unwrap().unwrap();
    }

    #[test]
    fn one_syncer_at_a_time_works_on_a_node() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("config.json"));
        let first = journal.lock().unwrap();
        assert_eq!(journal.lock().unwrap_err().reason(), "AnotherSyncer");
        drop(first);
        journal.lock().unwrap();
    }

    #[test]
    fn a_newer_or_damaged_state_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::beside(&folder.path().join("config.json"));
        journal.make_directory().unwrap();
        for (content, reason) in [
            (r#"{"version":2,"x":1}"#, "StateTooNew"),
            ("{", "StateDamaged"),
            (r#"{"version":1}"#, "StateDamaged"),
        ] {
            fs::write(journal.path(), content).unwrap();
            assert_eq!(journal.load().unwrap_err().reason(), reason);
            assert_eq!(fs::read_to_string(journal.path()).unwrap(), content);
        }
    }

    #[test]
    fn what_was_set_aside_goes_only_where_the_file_holds_it_again() {
        for (back, kept) in [("{", false), ("{}", true)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.json");
            fs::write(&path, back).unwrap();
            let journal = Journal::beside(&path);
            let aside = journal.set_aside(b"{").unwrap();
            assert_eq!(journal.set_aside(b"{").unwrap(), aside, "once");
            journal.save(&State::new(Image::Absent, 0)).unwrap();
            journal.remove().unwrap();
            assert_eq!(journal.directory.exists(), kept, "{back}");
            assert_eq!(fs::read(&aside).is_ok_and(|bytes| bytes == b"{"), kept);
            assert!(journal.load().unwrap().is_none());
            journal.remove().unwrap();
        }
    }
}
