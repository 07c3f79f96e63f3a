//! The provider's flags in kubeadm's file on the node's disk.

use globalps_provider::{FlagsError, add_flags, remove_flags};

use super::{HostPath, Provider, SET_UP};
use crate::node::file::{self, FileError, FileSnapshot};
use crate::node::replace::replace_seen;
use crate::node::state::Obstacle;

impl Provider {
    pub(super) fn with_flags(
        &self,
        file: &HostPath,
        flags: &FileSnapshot,
    ) -> Result<FileSnapshot, Obstacle> {
        let unsupported = |reason: String| {
            Obstacle::new(format!("`{}`: {reason}; {SET_UP}", file.host.display()))
        };
        let FileSnapshot::File { bytes, .. } = flags else {
            return Err(unsupported("the file does not exist".to_owned()));
        };
        let bytes = add_flags(bytes, &self.config.text(), &self.bin_dir.text());
        let bytes = bytes.map_err(|error| match error {
            FlagsError::Foreign(_) => Obstacle::new(format!(
                "`{}`: {error}; set spec.kubelet.credentialProvider to the paths in the kubelet's flags",
                file.host.display()
            )),
            error => unsupported(error.to_string()),
        });
        Ok(flags.with_bytes(bytes?))
    }

    pub(super) fn without_flags(&self, flags: &FileSnapshot) -> FileSnapshot {
        match flags {
            FileSnapshot::Absent => FileSnapshot::Absent,
            FileSnapshot::File { bytes, .. } => flags.with_bytes(remove_flags(
                bytes,
                &self.config.text(),
                &self.bin_dir.text(),
            )),
        }
    }

    /// Whether kubeadm's file has a flag that names a file of globalps.
    pub(super) fn names_own(&self, flags: &FileSnapshot) -> bool {
        self.without_flags(flags) != *flags
    }

    /// Adds the flags to kubeadm's file as it is now, or removes them from it. Returns whether it differed; durable in either
    /// case. Fails if another process writes it meanwhile, or if it can't contain the flags.
    pub(crate) fn write_flags(&self, is_added: bool) -> Result<bool, FileError> {
        let Some(file) = self.flags_file() else {
            return Ok(false);
        };
        let changed = || FileError::Changed {
            path: file.here.clone(),
        };
        let seen = file::read(&file.here)?;
        let target = if is_added {
            self.with_flags(file, &seen).map_err(|_| changed())?
        } else {
            self.without_flags(&seen)
        };
        if seen == target {
            file::sync_parent(&file.here)?;
            return Ok(false);
        }
        replace_seen(&file.here, &seen, &target)?;
        Ok(true)
    }

    /// Removes the flags that name files beside the credentials file, which are about to be deleted: no kubelet starts with them.
    pub(crate) fn remove_own_flags(&self) -> Result<(), FileError> {
        let own = self.own();
        match own.installed()? {
            Some(_) => own.write_flags(false).map(drop),
            None => Ok(()),
        }
    }

    /// Removes one flag without the other, with which no kubelet starts.
    pub(crate) fn remove_half_flags(&self) -> Result<(), FileError> {
        let Some(file) = self.flags_file() else {
            return Ok(());
        };
        let seen = file::read(&file.here)?;
        let both = self.with_flags(file, &seen);
        if self.names_own(&seen) && both.is_ok_and(|both| both != seen) {
            self.write_flags(false)?;
        }
        Ok(())
    }
}
