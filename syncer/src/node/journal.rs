//! The state directory on the node's disk: state file and quarantined files. A starting syncer continues from here.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use globalps_core::names::{LOCK_FILE, PROVIDER_BIN_DIR, STATE_DIR};
use serde::{Deserialize, Serialize};

use super::file::{self, FileSnapshot};
use super::lock::NodeLock;
use super::provider::Provider;
use super::state::{JournalState, NodeError, VERSION};

const STATE_FILE: &str = "state.json";
/// A state has up to about ten copies of the credentials file, some of them as Base64.
const MAX_STATE: u64 = 16 * file::MAX_SIZE;
/// Name prefix of quarantined files; a timestamp follows.
const QUARANTINED: &str = "config.json.unparsable-";

/// The fields that every format version has.
#[derive(Deserialize)]
struct Header {
    version: u32,
    #[serde(default)]
    node: String,
}

/// The content of the state file.
#[derive(Serialize)]
struct StateFile<'a> {
    node: &'a str,
    #[serde(flatten)]
    state: &'a JournalState,
}

/// The state directory next to the credentials file.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    config_file: PathBuf,
    /// Name of this node; empty: not known.
    node: String,
}

impl Journal {
    pub(crate) fn next_to(config_file: &Path, node: &str) -> Self {
        Self {
            node: node.to_owned(),
            directory: config_file
                .parent()
                .unwrap_or(Path::new("/"))
                .join(STATE_DIR),
            config_file: config_file.to_owned(),
        }
    }

    /// The exclusive right to work on this node, held while the result lives. Its file is not in the state directory, which a
    /// restore removes.
    pub(crate) fn lock(&self) -> Result<NodeLock, NodeError> {
        NodeLock::take(&self.lock_file())
    }

    fn lock_file(&self) -> PathBuf {
        self.config_file.with_file_name(LOCK_FILE)
    }

    /// A syncer has changed the node or is about to. An error counts as well: what is there is unknown.
    pub(crate) fn is_in_use(&self) -> bool {
        let is_absent = |path| {
            let found = fs::symlink_metadata(path);
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        !is_absent(self.path()) || !is_absent(self.lock_file())
    }

    /// Whether a state directory exists, which may belong to other processes.
    pub(crate) fn has_directory(&self) -> bool {
        fs::symlink_metadata(&self.directory).is_ok()
    }

    fn path(&self) -> PathBuf {
        self.directory.join(STATE_FILE)
    }

    /// `None`: globalps has never changed this node, or it was restored.
    pub(crate) fn load(&self) -> Result<Option<JournalState>, NodeError> {
        let path = self.path();
        file::sweep(&path);
        let FileSnapshot::File { bytes, .. } = file::read_up_to(&path, MAX_STATE)? else {
            return Ok(None);
        };
        let damaged = |_| NodeError::Damaged { path: path.clone() };
        let Header { version, node } = serde_json::from_slice(&bytes).map_err(damaged)?;
        if version > VERSION {
            return Err(NodeError::Newer {
                path,
                found: version,
            });
        }
        let mut state: JournalState = serde_json::from_slice(&bytes).map_err(damaged)?;
        if node != self.node {
            tracing::warn!(
                node,
                "another node wrote the state; the revision in force is not known"
            );
            state.forget_revisions();
        }
        Ok(Some(state))
    }

    /// Durable when it returns.
    pub(crate) fn save(&self, state: &JournalState) -> Result<(), NodeError> {
        self.make_directory()?;
        let node = &self.node;
        let bytes = serde_json::to_vec(&StateFile { node, state })
            .map_err(|_| NodeError::Damaged { path: self.path() })?;
        Ok(file::replace(
            &self.path(),
            &FileSnapshot::Absent.with_bytes(bytes),
        )?)
    }

    /// Keeps bytes that could not be parsed, under a name with a timestamp. Equal bytes are kept only once.
    pub(crate) fn quarantine(&self, bytes: &[u8]) -> Result<PathBuf, NodeError> {
        self.make_directory()?;
        let known = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| is_quarantined(&entry.file_name()))
            .map(|entry| entry.path())
            .find(|path| fs::read(path).is_ok_and(|kept| kept == bytes));
        if let Some(path) = known {
            return Ok(path);
        }
        // Two files in the same second keep their order.
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S.%6fZ");
        let path = self.directory.join(format!("{QUARANTINED}{time}"));
        file::replace(&path, &FileSnapshot::Absent.with_bytes(bytes.to_vec()))?;
        Ok(path)
    }

    /// Removes the state directory, and before it kubelet flags that name files in it. A quarantined file stays unless the
    /// credentials file has the same bytes again.
    pub(crate) fn remove(&self, provider: &Provider) -> Result<(), NodeError> {
        let io = file::io_error("remove", &self.directory);
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(io)?,
        };
        let back = file::read(&self.config_file)?;
        provider.remove_own_flags()?;
        // The state goes first: without it, the rest of the directory has no effect.
        file::replace(&self.path(), &FileSnapshot::Absent)?;
        let mut is_empty = true;
        for entry in entries {
            let entry = entry.map_err(io)?;
            let is_kept = is_quarantined(&entry.file_name());
            if is_kept && !file::read(&entry.path())?.has_bytes_of(&back) {
                tracing::warn!(path = %entry.path().display(), "keeping a quarantined file, because it is the only copy");
                is_empty = false;
                continue;
            }
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if !is_directory {
                fs::remove_file(entry.path())
            } else if entry.file_name() == PROVIDER_BIN_DIR {
                fs::remove_dir_all(entry.path())
            } else {
                tracing::warn!(path = %entry.path().display(), "keeping a directory that globalps did not create");
                is_empty = false;
                continue;
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io(error).into());
                }
                _ => {}
            }
        }
        // A link or a mount point is not removed by this, and its content is gone.
        if is_empty && let Err(error) = fs::remove_dir(&self.directory) {
            tracing::warn!(path = %self.directory.display(), %error, "could not remove the state directory");
        }
        Ok(file::sync_parent(&self.directory)?)
    }

    fn make_directory(&self) -> Result<(), NodeError> {
        match fs::DirBuilder::new().mode(0o700).create(&self.directory) {
            Ok(()) => Ok(file::sync_parent(&self.directory)?),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(file::io_error("create", &self.directory)(error).into()),
        }
    }
}

fn is_quarantined(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(QUARANTINED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use globalps_core::rollout::{Revision, RevisionId};
    use globalps_dockerconfig::{DockerConfig, merge_on_node};
    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::node::managed::ManagedEntries;
    use crate::node::provider::HostPath;

    fn provider(journal: &Journal) -> Provider {
        let config_file = HostPath {
            here: journal.config_file.clone(),
            host: journal.config_file.clone(),
        };
        Provider::new("program".into(), &config_file, None)
    }

    #[test]
    fn a_saved_state_is_private_to_root_and_can_be_removed() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::next_to(&directory.path().join("config.json"), "a");
        assert!(journal.load().unwrap().is_none());
        let own =
            globalps_dockerconfig::parse(br#"{"auths":{"r":{"auth":"dTpw","x":1}}}"#).unwrap();
        let mut state = JournalState::new(FileSnapshot::Absent.with_bytes(b"\xff".to_vec()), 3);
        state.managed = ManagedEntries::of(&merge_on_node(&own, &own, &[], &[]));
        journal.save(&state).unwrap();
        let loaded = journal.load().unwrap().unwrap();
        assert_eq!((loaded.snapshot, loaded.restarts), (state.snapshot, 3));
        assert!(DockerConfig::new(loaded.managed.overridden()).means_the_same(&own));
        for (path, mode) in [(journal.directory.clone(), 0o700), (journal.path(), 0o600)] {
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                mode
            );
        }
        journal.remove(&provider(&journal)).unwrap();
        journal.remove(&provider(&journal)).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_unremovable_directory_does_not_prevent_a_restore() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = directory.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let journal = Journal::next_to(&directory.path().join("config.json"), "a");
        std::os::unix::fs::symlink(&elsewhere, &journal.directory).unwrap();
        journal
            .save(&JournalState::new(FileSnapshot::Absent, 0))
            .unwrap();
        journal.remove(&provider(&journal)).unwrap();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(journal.load().unwrap().is_none());
    }

    #[test]
    fn each_quarantined_file_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::next_to(&directory.path().join("config.json"), "a");
        for content in ["{", "[", "{"] {
            journal.quarantine(content.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_dir(&journal.directory).unwrap().count(), 2);
    }

    #[test]
    fn a_state_of_another_node_or_without_id_has_no_known_revision() {
        let id = RevisionId::from_random(7);
        let revision = Revision::new(5, id);
        for (node, written, expected) in [
            ("a", None, revision),
            ("b", None, revision.unidentified()),
            ("a", Some(r#""node":"","#), revision.unidentified()),
            ("a", Some(r#""x":"","#), revision.unidentified()),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("config.json");
            let snapshot = FileSnapshot::Absent.with_bytes(b"{}".to_vec());
            let mut state = JournalState::new(snapshot.clone(), 0);
            state.revision = revision;
            let journal = Journal::next_to(&path, "a");
            journal.save(&state).unwrap();
            if let Some(written) = written {
                let text = fs::read_to_string(journal.path()).unwrap();
                fs::write(journal.path(), text.replace(r#""node":"a","#, written)).unwrap();
            }
            let journal = Journal::next_to(&path, node);
            let loaded = journal.load().unwrap().unwrap();
            assert_eq!(loaded.revision, expected, "{node} {written:?}");
            assert_eq!(
                loaded.snapshot, snapshot,
                "what was there before stays known"
            );
            journal.save(&loaded).unwrap();
            let again = Journal::next_to(&path, node).load().unwrap().unwrap();
            assert_eq!(again.revision, expected, "{node} {written:?}");
        }
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::next_to(&directory.path().join("config.json"), "a");
        journal
            .save(&JournalState::new(FileSnapshot::Absent, 0))
            .unwrap();
        let text = fs::read_to_string(journal.path()).unwrap();
        fs::write(
            journal.path(),
            text.replace(r#""revision":"0""#, r#""revision":5"#),
        )
        .unwrap();
        let loaded = journal.load().unwrap().unwrap();
        assert_eq!(loaded.revision, revision.unidentified());
    }

    #[test]
    fn one_syncer_at_a_time_works_on_a_node() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::next_to(&directory.path().join("config.json"), "a");
        // Another user's process may have the kubelet's directory open.
        let directory = fs::File::open(directory.path()).unwrap();
        flock(&directory, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!journal.is_in_use());
        let first = journal.lock().unwrap();
        assert!(journal.is_in_use());
        assert_eq!(
            journal.lock().unwrap_err().reason().as_str(),
            "AnotherSyncer"
        );
        drop(first);
        assert!(!journal.is_in_use());
        journal
            .save(&JournalState::new(FileSnapshot::Absent, 0))
            .unwrap();
        assert!(journal.is_in_use());
        journal.lock().unwrap();
    }

    #[test]
    fn a_newer_or_damaged_state_is_rejected_and_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::next_to(&directory.path().join("config.json"), "a");
        journal.make_directory().unwrap();
        for (content, reason) in [
            (r#"{"version":2,"x":1}"#, "StateTooNew"),
            ("{", "StateDamaged"),
            (r#"{"version":1}"#, "StateDamaged"),
        ] {
            fs::write(journal.path(), content).unwrap();
            assert_eq!(journal.load().unwrap_err().reason().as_str(), reason);
            assert_eq!(fs::read_to_string(journal.path()).unwrap(), content);
        }
    }

    #[test]
    fn a_quarantined_file_is_removed_only_if_the_file_has_its_bytes() {
        for (back, kept) in [("{", false), ("{}", true)] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("config.json");
            fs::write(&path, back).unwrap();
            let journal = Journal::next_to(&path, "a");
            let aside = journal.quarantine(b"{").unwrap();
            assert_eq!(journal.quarantine(b"{").unwrap(), aside, "once");
            journal
                .save(&JournalState::new(FileSnapshot::Absent, 0))
                .unwrap();
            journal.remove(&provider(&journal)).unwrap();
            assert_eq!(journal.directory.exists(), kept, "{back}");
            assert_eq!(fs::read(&aside).is_ok_and(|bytes| bytes == b"{"), kept);
            assert!(journal.load().unwrap().is_none());
            journal.remove(&provider(&journal)).unwrap();
        }
    }

    /// For example, a copy that a user made while debugging the node.
    #[test]
    fn a_directory_of_others_stays_and_the_node_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::next_to(&directory.path().join("config.json"), "a");
        journal
            .save(&JournalState::new(FileSnapshot::Absent, 0))
            .unwrap();
        let own = journal.directory.join(PROVIDER_BIN_DIR);
        let others = journal.directory.join("bin.bak");
        for path in [&own, &others] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), "").unwrap();
        }
        for _ in 0..2 {
            journal.remove(&provider(&journal)).unwrap();
            assert!(journal.load().unwrap().is_none());
            assert!(!own.exists() && others.join("file").exists());
        }
    }
}
