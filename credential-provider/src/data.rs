//! The data file, which the syncer replaces atomically.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// A Secret has at most 1 MiB, and several together rarely exceed that.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
}

/// The file's content. It is not wiped: the program exits right after, and the kernel clears its memory.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    // Opening a pipe would block until its other end is opened.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(DataError::NotAFile);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(MAX_BYTES)).unwrap_or(0));
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(DataError::TooLarge);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn special_and_large_files_are_rejected_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        assert!(matches!(read(&path), Err(DataError::Io(_))));
        assert!(matches!(read(dir.path()), Err(DataError::NotAFile)));
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(matches!(read(&pipe), Err(DataError::NotAFile)));
        assert!(matches!(
            read(Path::new("/dev/zero")),
            Err(DataError::NotAFile)
        ));
        fs::write(&path, "text").unwrap();
        assert_eq!(read(&path).unwrap(), b"text");
        File::create(&path).unwrap().set_len(MAX_BYTES).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, MAX_BYTES);
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(read(&path), Err(DataError::TooLarge)));
    }
}
