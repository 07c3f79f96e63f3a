//! The files that a change replaces, in order: no flag ever refers to an absent file, and the old delivery stays until the new
//! one serves.

use std::path::{Path, PathBuf};

use crate::node::file::{self, FileError, FileSnapshot};
use crate::node::provider::Provider;
use crate::node::replace::{FileId, read_identified, replace_identified, replace_seen};
use crate::node::state::{InstalledProvider, NodeError, PendingChange};

/// The writes in one direction of a change, in this order.
pub(super) struct Writes {
    /// Before the restart. Files that only the old delivery needs are still in place.
    pub(super) first: Vec<(PathBuf, FileSnapshot)>,
    /// Once the kubelet serves.
    pub(super) last: Vec<(PathBuf, FileSnapshot)>,
    /// The provider's content at the end.
    pub(super) installed: Option<InstalledProvider>,
    /// Remove the provider's programs at the end.
    removes_program: bool,
    /// The credentials file.
    path: PathBuf,
    guard: Option<Guard>,
}

/// What may be done to the credentials file of a node that a daemon may update in place.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// The files that may be replaced.
    pub(crate) may_replace: Vec<FileId>,
    /// Another one stays, and the rest is done. Otherwise it is an error.
    pub(crate) skips: bool,
}

/// What writing the files did.
#[derive(Default)]
pub(super) struct Written {
    /// A file differed.
    pub(super) is_new: bool,
    /// Which one the credentials file is now, if it differed.
    pub(super) file: Option<FileId>,
}

impl Writes {
    pub(super) fn new(
        path: &Path,
        provider: &Provider,
        change: &PendingChange,
        is_back: bool,
        guard: Option<Guard>,
    ) -> Self {
        let places = provider;
        let credentials = path.to_owned();
        let file = if is_back {
            &change.before
        } else {
            &change.target
        };
        let file = (path.to_owned(), file.clone());
        let Some(provider) = &change.provider else {
            return Self {
                first: vec![file],
                last: Vec::new(),
                installed: None,
                removes_program: false,
                path: credentials,
                guard,
            };
        };
        let side = if is_back {
            &provider.before
        } else {
            &provider.target
        };
        let data = (places.data.here.clone(), side.data());
        let config = (places.config.here.clone(), side.config.clone());
        let flags = places.flags_file().map(|file| file.here.clone());
        let flags = flags.zip(side.flags.clone());
        // No flag refers to an absent configuration, and no configuration to an absent program. A kubelet without flags reads no
        // configuration, so it stays until the kubelet runs without them.
        if side.installed.is_some() {
            Self {
                first: [data, config].into_iter().chain(flags).collect(),
                last: vec![file],
                installed: side.installed.clone(),
                removes_program: false,
                path: credentials,
                guard,
            }
        } else {
            Self {
                last: match flags {
                    Some(_) => vec![config.clone(), data],
                    None => vec![data],
                },
                first: [file, flags.unwrap_or(config)].into(),
                installed: None,
                removes_program: true,
                path: credentials,
                guard,
            }
        }
    }

    /// Durable, whether a file differed or not.
    pub(super) fn write_first(&self, provider: &Provider) -> Result<Written, NodeError> {
        if self.installed.is_some() {
            provider.install_program()?;
        }
        self.write_files(provider)
    }

    /// Writes everything except the programs, which read the data of each revision.
    pub(super) fn write_files(&self, provider: &Provider) -> Result<Written, NodeError> {
        let mut written = Written::default();
        for (path, target) in &self.first {
            let is_flags = provider.flags_file().is_some_and(|file| file.here == *path);
            written.is_new |= if is_flags && file::read(path)? != *target {
                provider.write_flags(self.installed.is_some())?
            } else {
                self.write(path, target, &mut written.file)?
            };
        }
        Ok(written)
    }

    /// Makes the file equal to `target`; returns whether it differed. Durable in either case.
    fn write(
        &self,
        path: &Path,
        target: &FileSnapshot,
        written: &mut Option<FileId>,
    ) -> Result<bool, NodeError> {
        let (seen, id) = read_identified(path)?;
        if seen == *target {
            file::sync_parent(path)?;
            return Ok(false);
        }
        let is_credentials = path == self.path;
        if let Some(guard) = self.guard.as_ref().filter(|_| is_credentials)
            && !guard.may_replace.contains(&id)
        {
            if guard.skips {
                return Ok(false);
            }
            let path = path.to_owned();
            return Err(FileError::Unconfirmed { path }.into());
        }
        let id = if is_credentials && self.guard.is_some() {
            replace_identified(path, (&seen, &id), target)?
        } else {
            replace_seen(path, &seen, target)?
        };
        if is_credentials {
            *written = Some(id);
        }
        Ok(true)
    }

    /// Fails if another process has written one of the first files since.
    pub(super) fn expect_first(&self) -> Result<(), NodeError> {
        for (path, target) in &self.first {
            if file::read(path)? != *target {
                let path = path.clone();
                return Err(FileError::Changed { path }.into());
            }
        }
        Ok(())
    }

    /// Returns which one the credentials file is now, if it differed.
    pub(super) fn write_last(&self, provider: &Provider) -> Result<Option<FileId>, NodeError> {
        // Another process may have restored the flags or the configuration from what it read before.
        if self.removes_program && provider.installed()?.is_some() {
            let path = provider.flags_file().unwrap_or(&provider.config);
            let path = path.here.clone();
            return Err(FileError::Changed { path }.into());
        }
        let mut written = None;
        for (path, target) in &self.last {
            self.write(path, target, &mut written)?;
        }
        if self.removes_program {
            provider.remove_program()?;
            provider.write_flags(false)?;
        }
        Ok(written)
    }
}
