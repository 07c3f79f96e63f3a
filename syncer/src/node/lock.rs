//! The lock on a node: at most one syncer changes it. Only root can open its file, so no other user can hold it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use super::file::{self, FileError};
use super::state::NodeError;

/// Attempts at a lock whose file is removed again and again.
const ATTEMPTS: usize = 10;

/// The exclusive right to change this node. The file exists only while this lives, or after its process was killed.
#[derive(Debug)]
pub(crate) struct NodeLock {
    file: File,
    path: PathBuf,
}

impl NodeLock {
    pub(super) fn take(path: &Path) -> Result<Self, NodeError> {
        let locked = || NodeError::Locked {
            path: path.to_owned(),
        };
        for _ in 0..ATTEMPTS {
            // Another process may create or remove the file between any two calls.
            let Some(file) = opened(path)? else { continue };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(locked()),
                Err(error) => return Err(io_error(path)(error.into()).into()),
            }
            let lock = Self {
                file,
                path: path.to_owned(),
            };
            if lock.is_held() {
                return Ok(lock);
            }
        }
        Err(locked())
    }

    /// Whether the path still names the locked file. Otherwise another process may hold a lock on a new one.
    pub(crate) fn is_held(&self) -> bool {
        let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let named = fs::symlink_metadata(&self.path).map(id);
        let own = self.file.metadata().map(id);
        matches!((named, own), (Ok(named), Ok(own)) if named == own)
    }
}

impl Drop for NodeLock {
    fn drop(&mut self) {
        if self.is_held()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "could not remove the lock's file");
        }
    }
}

/// The regular file at this path, which only its owner can open; created if there is none. `None`: another process created it
/// at the same time.
fn opened(path: &Path) -> Result<Option<File>, FileError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let existing = match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => None,
        opened => Some(File::from(opened.map_err(not_opened(path))?)),
    };
    let Some(file) = existing else {
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        let file = match open(path, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => return Ok(None),
            created => created.map_err(not_opened(path))?,
        };
        // A power cut then leaves the file, or nothing of the change that follows.
        file::sync_parent(path)?;
        return Ok(Some(file.into()));
    };
    let meta = file.metadata().map_err(io_error(path))?;
    if !meta.is_file() {
        return Err(FileError::NotRegular {
            path: path.to_owned(),
            what: "a directory or a special file",
        });
    }
    if meta.mode() & 0o077 != 0 {
        let own = Permissions::from_mode(0o600);
        file.set_permissions(own).map_err(io_error(path))?;
    }
    Ok(Some(file))
}

fn not_opened(path: &Path) -> impl FnOnce(Errno) -> FileError + '_ {
    move |error| match error {
        Errno::LOOP => FileError::NotRegular {
            path: path.to_owned(),
            what: "a symbolic link",
        },
        error => io_error(path)(error.into()),
    }
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    file::io_error("lock", path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn reason(path: &Path) -> &'static str {
        NodeLock::take(path).unwrap_err().reason().as_str()
    }

    #[test]
    fn one_process_holds_the_lock_and_only_its_owner_opens_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = NodeLock::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(reason(&path), "AnotherSyncer");
        let reader = File::open(directory.path()).unwrap();
        drop(first);
        assert!(!path.exists(), "nothing stays on the node");
        flock(&reader, FlockOperation::NonBlockingLockExclusive).unwrap();
        NodeLock::take(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_left_or_removed_is_no_second_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let first = NodeLock::take(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        assert!(!first.is_held());
        let second = NodeLock::take(&path).unwrap();
        drop(first);
        assert!(
            second.is_held(),
            "the first one leaves the second one's file"
        );
    }

    #[test]
    fn what_prevents_the_lock_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert_eq!(reason(&at("absent/lock")), "NoDirectory");
        fs::create_dir(at("directory")).unwrap();
        assert_eq!(reason(&at("directory")), "NotARegularFile");
        symlink(at("directory"), at("link")).unwrap();
        assert_eq!(reason(&at("link")), "NotARegularFile");
        fs::write(at("file"), "").unwrap();
        assert_eq!(reason(&at("file/lock")), "FileError");
    }
}
