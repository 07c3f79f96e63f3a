//! The kubelet's credentials file on disk: read as it is, and replaced atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use globalps_core::reasons::Reason;
use rustix::fs::{
    IFlags, Mode, OFlags, XattrFlags, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query,
    fsetxattr, ioctl_getflags,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;
/// Name prefix of temporary files next to the target.
pub(super) const TEMP_PREFIX: &str = ".globalps-tmp-";

/// Larger files are not read: the pod's memory is limited, and no kubelet needs one.
pub(super) const MAX_SIZE: u64 = 4 << 20;

/// A file as it is on disk, or its absence. `Debug` does not show its content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileSnapshot {
    Absent,
    File {
        /// Base64 in JSON, because a file may have any bytes.
        #[serde(with = "base64_bytes")]
        bytes: Vec<u8>,
        mode: u32,
        uid: u32,
        gid: u32,
    },
}

impl std::fmt::Debug for FileSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("Absent"),
            Self::File {
                bytes,
                mode,
                uid,
                gid,
            } => write!(f, "File({} bytes, {mode:o}, {uid}:{gid})", bytes.len()),
        }
    }
}

impl FileSnapshot {
    /// Whether both are files with equal bytes.
    pub(crate) fn has_bytes_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { bytes, .. }, Self::File { bytes: others, .. }) => bytes == others,
            _ => false,
        }
    }

    /// Whether a file with this content could not be read again.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::File { bytes, .. } if bytes.len() as u64 > MAX_SIZE)
    }

    /// The mode, if group or others have permissions.
    pub(crate) fn wide_mode(&self) -> Option<u32> {
        match self {
            Self::File { mode, .. } if mode & OTHERS != 0 => Some(*mode),
            _ => None,
        }
    }

    /// This file, with permissions for its owner only.
    pub(crate) fn narrowed(self) -> Self {
        let narrow = self.wide_mode().map(|mode| mode & 0o600);
        self.with_mode(narrow)
    }

    /// This file, with mode `new` unless that is `None`.
    pub(crate) fn with_mode(mut self, new: Option<u32>) -> Self {
        if let (Self::File { mode, .. }, Some(new)) = (&mut self, new) {
            *mode = new;
        }
        self
    }

    /// This content with the mode and owner of `self`, or those of a new file: 0600 and root.
    pub(crate) fn with_bytes(&self, bytes: Vec<u8>) -> Self {
        match *self {
            Self::Absent => Self::File {
                bytes,
                mode: 0o600,
                uid: 0,
                gid: 0,
            },
            Self::File { mode, uid, gid, .. } => Self::File {
                bytes,
                mode,
                uid,
                gid,
            },
        }
    }
}

/// Why the file could not be read or written. The message contains the path, never the content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("`{path}` is {what}, not a regular file; nothing was changed")]
    NotRegular { path: PathBuf, what: &'static str },
    #[error("`{path}` is larger than {} MiB; nothing was changed", limit >> 20)]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("`{path}` would be larger than {} MiB with the assigned entries; nothing was changed", MAX_SIZE >> 20)]
    WouldBeTooLarge { path: PathBuf },
    #[error("`{path}` is immutable; nothing was changed; `chattr -i` makes it writable")]
    Immutable { path: PathBuf },
    #[error("another process wrote `{path}` at the same time; it was not changed")]
    Changed { path: PathBuf },
    #[error(
        "another process wrote `{path}`, and the controller has not confirmed yet that no update runs"
    )]
    Unconfirmed { path: PathBuf },
    #[error("{action} `{path}`: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl FileError {
    /// `CamelCase` word for the node's status.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::NotRegular { .. } => Reason::NotARegularFile,
            Self::TooLarge { .. } | Self::WouldBeTooLarge { .. } => Reason::FileTooLarge,
            Self::Immutable { .. } => Reason::ImmutableFile,
            Self::Changed { .. } => Reason::FileError,
            Self::Unconfirmed { .. } => Reason::WaitingForConfirmation,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => Reason::DiskFull,
                io::ErrorKind::ReadOnlyFilesystem => Reason::ReadOnlyDisk,
                io::ErrorKind::PermissionDenied => Reason::NotPermitted,
                io::ErrorKind::NotFound => Reason::NoDirectory,
                _ => Reason::FileError,
            },
        }
    }
}

pub(super) fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> FileError + Copy + 'a {
    move |source| FileError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Reads the file. A symbolic link is an error and not followed.
pub(crate) fn read(path: &Path) -> Result<FileSnapshot, FileError> {
    read_up_to(path, MAX_SIZE)
}

/// Like [`read`], for a file of globalps that contains several such files.
pub(super) fn read_up_to(path: &Path, limit: u64) -> Result<FileSnapshot, FileError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileSnapshot::Absent),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    if !meta.is_file() {
        let what = match meta.file_type() {
            kind if kind.is_symlink() => "a symbolic link",
            kind if kind.is_dir() => "a directory",
            _ => "a special file",
        };
        return Err(FileError::NotRegular {
            path: path.to_owned(),
            what,
        });
    }
    let mut bytes = Vec::new();
    let is_large = |length| length > limit;
    if !is_large(meta.len()) {
        // The file may grow while it is read.
        File::open(path)
            .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
            .map_err(io_error("read", path))?;
    }
    if is_large(meta.len()) || is_large(bytes.len() as u64) {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(FileSnapshot::File {
        bytes,
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
    })
}

/// When the file was last written; `None`: it is absent.
pub(crate) fn modified(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).ok()?.modified().ok()
}

/// Makes the file equal to the snapshot. The path always has the complete old or the complete new file, and once this returns the
/// new one survives a power cut.
pub(crate) fn replace(path: &Path, target: &FileSnapshot) -> Result<(), FileError> {
    replace_by(path, target, |temp| put(temp, path, target))
}

/// Like [`replace`]. `last_step` gets the path of the new file, if there is one, and puts it in place of the old one.
pub(super) fn replace_by(
    path: &Path,
    target: &FileSnapshot,
    last_step: impl FnOnce(&Path) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temp = path.with_file_name(format!("{TEMP_PREFIX}{name}"));
    let written = match target {
        FileSnapshot::Absent => Ok(()),
        FileSnapshot::File {
            bytes,
            mode,
            uid,
            gid,
        } => write_temp(&temp, bytes, *mode, (*uid, *gid), path),
    };
    if let Err(error) = written.and_then(|()| last_step(&temp)) {
        // The file may not exist; only the original error matters.
        let _ = fs::remove_file(&temp);
        return Err(error);
    }
    sync_parent(path)
}

/// Renames the new file, or removes the old one.
#[expect(clippy::disallowed_methods, reason = "`write_temp` synced it")]
pub(super) fn put(temp: &Path, path: &Path, target: &FileSnapshot) -> Result<(), FileError> {
    match target {
        FileSnapshot::File { .. } => fs::rename(temp, path).map_err(write_error("replace", path)),
        FileSnapshot::Absent => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(write_error("remove", path)(error))
            }
            _ => Ok(()),
        },
    }
}

/// The error of a replace or remove: the kernel uses one error number for several causes.
pub(super) fn write_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |error| {
        let flags = File::open(path).and_then(|file| Ok(ioctl_getflags(file)?));
        match flags {
            Ok(flags) if flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND) => {
                FileError::Immutable {
                    path: path.to_owned(),
                }
            }
            _ => io_error(action, path)(error),
        }
    }
}

/// `like` is the file whose extended attributes are kept, including its `SELinux` label and access control list.
fn write_temp(
    temp: &Path,
    bytes: &[u8],
    mode: u32,
    owner: (u32, u32),
    like: &Path,
) -> Result<(), FileError> {
    let _ = fs::remove_file(temp);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temp)
        .map_err(io_error("create", temp))?;
    let meta = file.metadata().map_err(io_error("read", temp))?;
    if (meta.uid(), meta.gid()) != owner {
        std::os::unix::fs::fchown(&file, Some(owner.0), Some(owner.1))
            .map_err(io_error("keep the owner of", temp))?;
    }
    // An access control list sets a mode, which the mode then restricts. The content is written last, so that it is
    // never readable with another mode.
    copy_attributes(like, &file).map_err(io_error("keep the extended attributes of", like))?;
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(io_error("set the mode of", temp))?;
    file.write_all(bytes).map_err(io_error("write", temp))?;
    file.sync_all().map_err(io_error("sync", temp))
}

/// All that this program can see; none if the file is absent or the file system has none.
fn copy_attributes(from: &Path, to: &File) -> io::Result<()> {
    // A pipe or link that replaced it meanwhile must not block.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let from = match rustix::fs::open(from, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        from => from?,
    };
    let mut names = match flistxattr_query(&from) {
        Err(Errno::NOTSUP) => return Ok(()),
        length => vec![0; length?],
    };
    let length = flistxattr(&from, &mut names)?;
    names.truncate(length);
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let value = attribute(&from, name)?;
        // Setting a label needs a privilege, so skip it if the new file already has the label.
        if !attribute(to, name).is_ok_and(|present| present == value) {
            fsetxattr(to, name, &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

fn attribute(file: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = vec![0; fgetxattr_query(&file, name)?];
    let length = fgetxattr(&file, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// Makes a change of the directory's entry for this file durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), FileError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .map_err(io_error("sync", directory))
}

/// Removes leftovers of an interrupted write next to the file.
pub(crate) fn sweep(path: &Path) {
    let Some(entries) = path
        .parent()
        .and_then(|directory| fs::read_dir(directory).ok())
    else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
            tracing::info!(path = %entry.path().display(), "removing a leftover of an interrupted write");
            let _ = fs::remove_file(entry.path());
        }
    }
}

mod base64_bytes {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD
            .decode(text)
            .map_err(|_| de::Error::custom("not base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn replacing_a_file_keeps_mode_and_owner_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let old = read(&path).unwrap();
        replace(&path, &old.with_bytes(b"new".to_vec())).unwrap();
        let FileSnapshot::File {
            bytes,
            mode,
            uid,
            gid,
        } = read(&path).unwrap()
        else {
            panic!("absent")
        };
        assert_eq!((bytes.as_slice(), mode), (b"new".as_slice(), 0o640));
        assert_eq!(
            old.with_bytes(b"new".to_vec()),
            FileSnapshot::File {
                bytes,
                mode,
                uid,
                gid
            }
        );
        assert_eq!(names(directory.path()), ["config.json"]);
    }

    #[test]
    fn a_new_file_is_private_to_root_and_can_be_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        assert_eq!(read(&path).unwrap(), FileSnapshot::Absent);
        let FileSnapshot::File { mode, uid, gid, .. } =
            FileSnapshot::Absent.with_bytes(b"new".to_vec())
        else {
            panic!("absent")
        };
        assert_eq!((mode, uid, gid), (0o600, 0, 0));
        fs::write(&path, "x").unwrap();
        replace(&path, &FileSnapshot::Absent).unwrap();
        replace(&path, &FileSnapshot::Absent).unwrap();
        assert_eq!(read(&path).unwrap(), FileSnapshot::Absent);
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (link, directory) = (
            directory.path().join("link"),
            directory.path().join("directory"),
        );
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        fs::create_dir(&directory).unwrap();
        for path in [&link, &directory] {
            let error = read(path).unwrap_err();
            assert_eq!(error.reason().as_str(), "NotARegularFile");
            assert!(error.to_string().contains("nothing was changed"), "{error}");
        }
    }

    #[test]
    fn a_file_that_does_not_fit_into_memory_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        let file = File::create(&path).unwrap();
        for (length, is_read) in [(MAX_SIZE, true), (MAX_SIZE + 1, false), (200 << 20, false)] {
            file.set_len(length).unwrap();
            match read(&path) {
                Ok(_) => assert!(is_read, "{length}"),
                Err(error) => {
                    assert!(!is_read, "{length}");
                    assert_eq!(error.reason().as_str(), "FileTooLarge");
                    let message = error.to_string();
                    assert!(message.ends_with("is larger than 4 MiB; nothing was changed"));
                }
            }
        }
    }

    #[test]
    fn extended_attributes_are_kept() {
        // Not every file system supports user attributes.
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("config.json");
        fs::write(&path, "old").unwrap();
        let file = File::open(&path).unwrap();
        fsetxattr(&file, "user.label", b"kept", XattrFlags::empty()).unwrap();
        let old = read(&path).unwrap();
        replace(&path, &old.with_bytes(b"new".to_vec())).unwrap();
        let mut value = [0; 16];
        let length = fgetxattr(File::open(&path).unwrap(), "user.label", &mut value).unwrap();
        assert_eq!(&value[..length], b"kept");
    }

    #[test]
    fn a_missing_directory_is_reported() {
        let error = replace(
            Path::new("/nowhere/at/all/config.json"),
            &FileSnapshot::Absent.with_bytes(Vec::new()),
        )
        .unwrap_err();
        assert_eq!(error.reason().as_str(), "NoDirectory");
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn leftovers_are_swept_and_other_files_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        for name in ["config.json", ".globalps-tmp-config.json", "other"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        sweep(&path);
        assert_eq!(names(directory.path()), ["config.json", "other"]);
    }

    #[test]
    fn a_snapshot_survives_json_and_debug_hides_it() {
        let snapshot = FileSnapshot::Absent.with_bytes(b"hunter2 \xff".to_vec());
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(
            serde_json::from_str::<FileSnapshot>(&json).unwrap(),
            snapshot
        );
        assert!(!format!("{snapshot:?}").contains("hunter2"));
    }
}
