//! The files without which the kubelet does not start: those that its flags or its configuration name.

use std::path::Path;

use super::{Provider, ProviderDisk, Way};
use crate::node::file::{self, FileError, FileSnapshot};
use crate::node::replace::replace_seen;
use crate::node::state::InstalledProvider;

impl Provider {
    /// Whether the kubelet's flags or configuration on this disk name the provider.
    pub(crate) fn is_named(&self, disk: &ProviderDisk) -> bool {
        match &self.way {
            Way::Flags(_) => disk
                .flags
                .as_ref()
                .is_some_and(|flags| self.names_own(flags)),
            Way::Directory => disk.config != FileSnapshot::Absent,
            Way::Shared => self
                .without(disk)
                .is_ok_and(|without| without.config != disk.config),
        }
    }

    /// Whether they name it while one of its files is absent.
    pub(crate) fn lacks_files(&self) -> Result<bool, FileError> {
        let disk = self.read()?;
        let absent = [&disk.data, &disk.config].contains(&&FileSnapshot::Absent);
        Ok(self.is_named(&disk) && (absent || self.programs().any(|path| !path.is_file())))
    }

    /// Writes the absent files again, which only globalps has. Where that is not possible the kubelet starts without them: the
    /// flags are removed.
    pub(crate) fn uphold(
        &self,
        installed: &InstalledProvider,
        may_write: bool,
    ) -> Result<(), FileError> {
        let written = may_write.then(|| self.write_absent(installed));
        match written {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) if self.flags_file().is_none() => return Err(error),
            Some(Err(error)) => {
                tracing::warn!(%error, "removing the kubelet's flags for the credential provider");
            }
            None => {}
        }
        self.write_flags(false).map(drop)
    }

    fn write_absent(&self, installed: &InstalledProvider) -> Result<(), FileError> {
        let write = |path: &Path, content: FileSnapshot| match file::read(path)? {
            FileSnapshot::Absent => replace_seen(path, &FileSnapshot::Absent, &content).map(drop),
            FileSnapshot::File { .. } => Ok(()),
        };
        if self.programs().any(|path| !path.is_file()) {
            self.install_program()?;
        }
        write(&self.data.here, installed.data.clone())?;
        match &self.way {
            Way::Flags(_) => {
                let document = installed
                    .config
                    .document(&self.data.text(), installed.tokens);
                write(&self.config.here, FileSnapshot::Absent.with_bytes(document))
            }
            // The provider has no file of its own, so nothing names it.
            Way::Directory | Way::Shared => Ok(()),
        }
    }
}
