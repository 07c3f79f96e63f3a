//! Replaces a file with other writers. Where it is known which file is to go, what they write meanwhile comes back
//! ([why](../../../docs/adr/0044-updates-in-place.md)).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::file::{FileError, FileSnapshot, io_error, put, read, replace_by, write_error};

/// How often the file may change while it is read, or while what came out goes back.
const MEANWHILE: usize = 5;

/// Which file is at a path, without its content: a write or another mode gives it another one. Empty: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileId(String);

impl FileId {
    fn absent() -> Self {
        Self("absent".to_owned())
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }

    /// For the controller. A file may be absent more than once: `last` is the last one that globalps wrote.
    pub(crate) fn token(&self, last: &Self) -> String {
        if *self == Self::absent() {
            format!("{}.{}", self.0, last.0)
        } else {
            self.0.clone()
        }
    }
}

pub(crate) fn identify(path: &Path) -> Result<FileId, FileError> {
    match fs::symlink_metadata(path) {
        Ok(meta) => {
            let (seconds, nanoseconds) = (meta.mtime(), meta.mtime_nsec());
            let (mode, size) = (meta.mode(), meta.size());
            let ino = meta.ino();
            Ok(FileId(format!(
                "{ino:x}.{seconds:x}.{nanoseconds:x}.{mode:o}.{size:x}"
            )))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FileId::absent()),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

/// The file, and which one it is.
pub(crate) fn read_identified(path: &Path) -> Result<(FileSnapshot, FileId), FileError> {
    for _ in 0..MEANWHILE {
        let id = identify(path)?;
        let file = read(path)?;
        if identify(path)? == id {
            return Ok((file, id));
        }
    }
    Err(changed(path))
}

/// Makes the file equal to the target if it equals `seen` right before the last step. Otherwise fails, and the other process's file
/// stays. Returns which file it is now.
pub(crate) fn replace_seen(
    path: &Path,
    seen: &FileSnapshot,
    target: &FileSnapshot,
) -> Result<FileId, FileError> {
    let mut new = FileId::default();
    replace_by(path, target, |temp| {
        new = identify(temp)?;
        // Right before the last step, because the earlier ones may be slow.
        if read(path)? != *seen {
            return Err(changed(path));
        }
        put(temp, path, target)
    })?;
    Ok(new)
}

/// The same if it is still this file, since another process may have written the same content. What it writes during the last step
/// comes back.
pub(crate) fn replace_identified(
    path: &Path,
    (seen, id): (&FileSnapshot, &FileId),
    target: &FileSnapshot,
) -> Result<FileId, FileError> {
    let mut new = FileId::default();
    replace_by(path, target, |temp| {
        new = identify(temp)?;
        if read_identified(path)? != (seen.clone(), id.clone()) {
            return Err(changed(path));
        }
        exchange(temp, path, (seen, id), (target, &new))
    })?;
    Ok(new)
}

/// Puts the new file in place, and removes the old one if that is what came out.
fn exchange(
    temp: &Path,
    path: &Path,
    (seen, id): (&FileSnapshot, &FileId),
    (target, new): (&FileSnapshot, &FileId),
) -> Result<(), FileError> {
    match (seen, target) {
        (FileSnapshot::Absent, FileSnapshot::Absent) => {}
        (FileSnapshot::Absent, _) => move_to_free(temp, path)?,
        (_, FileSnapshot::Absent) => {
            rename(path, temp).map_err(write_error("remove", path))?;
            if identify(temp)? != *id {
                move_to_free(temp, path)?;
                return Err(changed(path));
            }
        }
        _ => swap(temp, path, id, new)?,
    }
    // The old file; its place is taken in any case.
    let _ = fs::remove_file(temp);
    Ok(())
}

/// Puts the new file in place, and takes out `expected`. Another process's file that comes out instead goes back.
fn swap(temp: &Path, path: &Path, expected: &FileId, new: &FileId) -> Result<(), FileError> {
    let (mut expected, mut inside) = (expected.clone(), new.clone());
    for attempt in 0..MEANWHILE {
        match renameat_with(CWD, temp, CWD, path, RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(changed(path)),
            Err(error) if is_unsupported(error) && attempt == 0 => {
                return rename(temp, path).map_err(write_error("replace", path));
            }
            Err(error) => return Err(write_error("replace", path)(error.into())),
        }
        let out = identify(temp)?;
        if out == expected && attempt == 0 {
            return Ok(());
        }
        if out == expected {
            break;
        }
        // Next, what came out goes back, and what is inside now comes out.
        (expected, inside) = (inside, out);
    }
    Err(changed(path))
}

/// If another process has created the file meanwhile, that stays.
fn move_to_free(from: &Path, to: &Path) -> Result<(), FileError> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(changed(to)),
        Err(error) if is_unsupported(error) => rename(from, to).map_err(write_error("replace", to)),
        Err(error) => Err(write_error("replace", to)(error.into())),
    }
}

/// Some file systems can only rename.
fn is_unsupported(error: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP].contains(&error)
}

#[expect(clippy::disallowed_methods, reason = "`write_temp` synced it")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

fn changed(path: &Path) -> FileError {
    FileError::Changed {
        path: path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn file(text: &str) -> FileSnapshot {
        FileSnapshot::Absent.with_bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn a_file_that_another_process_wrote_meanwhile_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        fs::write(&path, "theirs").unwrap();
        let theirs = read(&path).unwrap();
        let ours = file("ours");
        for seen in [FileSnapshot::Absent, ours.clone()] {
            for target in [FileSnapshot::Absent, ours.clone()] {
                let error = replace_seen(&path, &seen, &target).unwrap_err();
                assert!(matches!(error, FileError::Changed { .. }), "{error}");
                assert_eq!(read(&path).unwrap(), theirs);
                assert_eq!(names(directory.path()), ["config.json"]);
            }
        }
        let same = identify(&path).unwrap();
        fs::write(&path, "theirs").unwrap();
        replace_identified(&path, (&theirs, &same), &ours).unwrap_err();
        let id = replace_seen(&path, &theirs, &ours).unwrap();
        assert_eq!(read_identified(&path).unwrap(), (ours.clone(), id));
        replace_seen(&path, &ours, &FileSnapshot::Absent).unwrap();
        assert_eq!(identify(&path).unwrap(), FileId::absent());
        replace_seen(&path, &FileSnapshot::Absent, &ours).unwrap();
        assert_eq!(read(&path).unwrap(), ours);
        assert_eq!(names(directory.path()), ["config.json"]);
    }

    #[test]
    fn what_came_out_unexpectedly_goes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        let temp = directory.path().join("temp");
        fs::write(&path, "seen").unwrap();
        let seen = identify(&path).unwrap();
        // The same bytes in another file are another process's write as well.
        for theirs in ["theirs", "seen"] {
            let other = directory.path().join("other");
            fs::write(&other, theirs).unwrap();
            fs::rename(&other, &path).unwrap();
            let there = identify(&path).unwrap();
            fs::write(&temp, "ours").unwrap();
            let ours = identify(&temp).unwrap();
            swap(&temp, &path, &seen, &ours).unwrap_err();
            assert_eq!(identify(&path).unwrap(), there);
            assert_eq!(fs::read_to_string(&temp).unwrap(), "ours");
        }
    }

    #[test]
    fn each_write_gives_a_file_another_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        let mut seen = vec![identify(&path).unwrap()];
        for mode in [0o600, 0o600, 0o644] {
            let target = file("same").with_mode(Some(mode));
            super::super::file::replace(&path, &target).unwrap();
            let id = identify(&path).unwrap();
            assert!(!seen.contains(&id));
            seen.push(id);
        }
        let [absent, first, second, _] = seen.try_into().unwrap();
        assert_eq!(first.token(&second), first.0);
        assert_ne!(absent.token(&first), absent.token(&second));
    }
}
