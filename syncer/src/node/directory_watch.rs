//! Notices every change of some files, with inotify on their directories: replacing a file creates another inode.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use futures::StreamExt as _;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};

/// Space for dozens of events.
const BUFFER: usize = 4096;

pub(crate) struct FileWatch {
    events: EventStream<[u8; BUFFER]>,
    names: Vec<(WatchDescriptor, OsString)>,
}

impl FileWatch {
    /// The directory of each file must exist.
    pub(crate) fn new(files: &[PathBuf]) -> io::Result<Self> {
        // Events for completed writes only, so that half-written files aren't read.
        let changes = WatchMask::CLOSE_WRITE
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::ATTRIB
            | WatchMask::ONLYDIR;
        let inotify = Inotify::init()?;
        let mut names = Vec::new();
        for file in files {
            let directory = file.parent().unwrap_or(Path::new("/"));
            // Adding the same directory again returns the same watch.
            let watch = inotify.watches().add(directory, changes)?;
            names.push((watch, file.file_name().unwrap_or_default().to_owned()));
        }
        Ok(Self {
            events: inotify.into_event_stream([0; BUFFER])?,
            names,
        })
    }

    /// Returns after a change of one of the files. After an error it never returns again.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        while let Some(event) = self.events.next().await {
            let event = event?;
            if event
                .mask
                .intersects(EventMask::IGNORED | EventMask::Q_OVERFLOW)
            {
                break;
            }
            let is_of = |(watch, name): &(WatchDescriptor, OsString)| {
                event.wd == *watch && event.name.as_ref() == Some(name)
            };
            if self.names.iter().any(is_of) {
                return Ok(());
            }
        }
        Err(io::Error::other("the directory is no longer watched"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn only_changes_of_the_file_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let (file, other) = (
            directory.path().join("config.json"),
            directory.path().join("x"),
        );
        let mut watch = FileWatch::new(std::slice::from_ref(&file)).unwrap();
        #[rustfmt::skip]
        let changes: [(&str, Box<dyn Fn() + '_>, bool); 5] = [
            ("written", Box::new(|| fs::write(&file, "1").unwrap()), true),
            ("another is written", Box::new(|| fs::write(&other, "2").unwrap()), false),
            ("replaced", Box::new(|| fs::rename(&other, &file).unwrap()), true),
            ("moved away", Box::new(|| fs::rename(&file, &other).unwrap()), true),
            ("another is removed", Box::new(|| fs::remove_file(&other).unwrap()), false),
        ];
        for (sentence, change, expected) in changes {
            change();
            let seen = timeout(Duration::from_millis(100), watch.changed()).await;
            assert_eq!(seen.is_ok(), expected, "{sentence}");
        }
    }

    #[tokio::test]
    async fn removing_the_directory_ends_the_watch() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = FileWatch::new(&[directory.path().join("config.json")]).unwrap();
        drop(directory);
        assert!(watch.changed().await.is_err());
    }
}
