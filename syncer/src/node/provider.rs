//! The credential provider on the node's disk: its program, the file that it reads, and the kubelet's configuration of it.

mod program;

use std::fs;
use std::path::{Path, PathBuf};

use globalps_core::names::{
    KUBEADM_FLAGS_FILE, PROVIDER_BIN_DIR, PROVIDER_CONFIG_FILE, PROVIDER_DATA_FILE, STATE_DIR,
};
use globalps_core::provider::{
    CONFIG_FLAG, PROVIDERS, add_entries, add_flags, remove_entries, remove_flags,
};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::file::{self, FileError, FileSnapshot};
use super::state::{Installed, ProviderSide};

/// Why the provider can't be set up, or not be taken out: a reason of the status, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Obstacle {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            reason: "ProviderNotPossible",
            message: message.into(),
        }
    }
}

/// A path as this program sees it, and as the node names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPath {
    pub(crate) here: PathBuf,
    pub(crate) host: PathBuf,
}

impl HostPath {
    fn join(&self, name: &str) -> Self {
        Self {
            here: self.here.join(name),
            host: self.host.join(name),
        }
    }

    fn beside(&self, name: &str) -> Self {
        let parent = |path: &Path| path.parent().unwrap_or(Path::new("/")).join(name);
        Self {
            here: parent(&self.here),
            host: parent(&self.host),
        }
    }

    fn text(&self) -> String {
        self.host.to_string_lossy().into_owned()
    }
}

/// How the kubelet finds the configuration.
#[derive(Clone, Debug)]
enum Way {
    /// By flags that are added to kubeadm's file, which is here.
    Flags(HostPath),
    /// In a directory that its flags name already.
    Directory,
    /// In a file with the providers of others.
    Shared,
}

#[derive(Clone, Debug)]
pub(crate) struct Provider {
    /// The program in the syncer's image.
    program: PathBuf,
    bin_dir: HostPath,
    pub(crate) data: HostPath,
    pub(crate) config: HostPath,
    way: Way,
}

/// What is there of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderDisk {
    pub(crate) data: FileSnapshot,
    pub(crate) config: FileSnapshot,
    pub(crate) flags: Option<FileSnapshot>,
}

impl Provider {
    /// `set_up`: the configuration and the programs' directory that the kubelet's flags name already.
    pub(crate) fn new(
        program: PathBuf,
        config_file: &HostPath,
        set_up: Option<(HostPath, HostPath)>,
    ) -> Self {
        let state = config_file.beside(STATE_DIR);
        let data = state.join(PROVIDER_DATA_FILE);
        let own = || {
            let flags = Way::Flags(config_file.beside(KUBEADM_FLAGS_FILE));
            let bin_dir = state.join(PROVIDER_BIN_DIR);
            (state.join(PROVIDER_CONFIG_FILE), bin_dir, flags)
        };
        let (config, bin_dir, way) = set_up.map_or_else(own, |(config, bin_dir)| {
            let extension = config.host.extension().and_then(|name| name.to_str());
            match extension {
                Some("yaml" | "yml" | "json") => (config, bin_dir, Way::Shared),
                _ => (config.join(PROVIDER_CONFIG_FILE), bin_dir, Way::Directory),
            }
        });
        Self {
            program,
            bin_dir,
            data,
            config,
            way,
        }
    }

    /// kubeadm's file of flags, where they are added to it.
    pub(crate) fn flags_file(&self) -> Option<&HostPath> {
        match &self.way {
            Way::Flags(file) => Some(file),
            _ => None,
        }
    }

    /// The kubelet's flags as they must be, for messages.
    pub(crate) fn flags(&self) -> String {
        let flags = globalps_core::provider::flags(&self.config.text(), &self.bin_dir.text());
        flags.trim_start().to_owned()
    }

    /// An error unless a kubelet with this value of its flag has the configuration. Not every distribution shows flags in a
    /// command line; where globalps adds them, they are there.
    pub(crate) fn check_flag(&self, value: Option<&str>) -> Result<(), String> {
        let expected = match &self.way {
            Way::Directory => self.config.host.parent().unwrap_or(Path::new("/")),
            _ => &self.config.host,
        };
        let is_expected = |value: &str| Path::new(value) == expected;
        match (value, &self.way) {
            (Some(value), _) if is_expected(value) => Ok(()),
            (None, Way::Directory | Way::Shared) => Ok(()),
            (value, _) => Err(format!(
                "the kubelet runs with {}, not with `{CONFIG_FLAG}={}`",
                value.map_or_else(
                    || "no configuration of providers".to_owned(),
                    |value| format!("`{CONFIG_FLAG}={value}`")
                ),
                expected.display()
            )),
        }
    }

    /// Every file whose change by another process counts.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let mut files = vec![self.data.here.clone(), self.config.here.clone()];
        files.extend(self.flags_file().map(|file| file.here.clone()));
        files.extend(self.programs());
        files
    }

    fn programs(&self) -> impl Iterator<Item = PathBuf> {
        PROVIDERS.iter().map(|name| self.bin_dir.here.join(name))
    }

    pub(crate) fn read(&self) -> Result<ProviderDisk, FileError> {
        let flags = self.flags_file().map(|file| file::read(&file.here));
        Ok(ProviderDisk {
            data: file::read(&self.data.here)?,
            config: file::read(&self.config.here)?,
            flags: flags.transpose()?,
        })
    }

    /// The files with the provider in them, from those that there are.
    pub(crate) fn with(
        &self,
        disk: &ProviderDisk,
        installed: Installed,
    ) -> Result<ProviderSide, Obstacle> {
        let (data, tokens) = (self.data.text(), installed.tokens);
        let config = match &self.way {
            Way::Shared => {
                let entries = installed.config.providers(&data, tokens);
                self.edited(&disk.config, |bytes| add_entries(bytes, &entries))?
            }
            // A mode of before is not kept: the file is ours.
            _ => FileSnapshot::Absent.with_bytes(installed.config.document(&data, tokens)),
        };
        let flags = match (&self.way, &disk.flags) {
            (Way::Flags(file), Some(flags)) => Some(self.with_flags(file, flags)?),
            _ => None,
        };
        Ok(ProviderSide {
            installed: Some(installed),
            config,
            flags,
        })
    }

    fn with_flags(&self, file: &HostPath, flags: &FileSnapshot) -> Result<FileSnapshot, Obstacle> {
        let refused = |why: String| {
            Obstacle::new(format!(
                "`{}`: {why}; add {} to the kubelet's flags and set spec.kubelet.credentialProvider",
                file.host.display(),
                self.flags()
            ))
        };
        let FileSnapshot::File { bytes, .. } = flags else {
            return Err(refused("there is no such file".to_owned()));
        };
        let bytes = add_flags(bytes, &self.config.text(), &self.bin_dir.text());
        Ok(flags.with_bytes(bytes.map_err(|error| refused(error.to_string()))?))
    }

    /// The files without the provider, to the byte as they were.
    pub(crate) fn without(&self, disk: &ProviderDisk) -> Result<ProviderSide, Obstacle> {
        let config = match &self.way {
            Way::Shared if disk.config == FileSnapshot::Absent => FileSnapshot::Absent,
            Way::Shared => self.edited(&disk.config, remove_entries)?,
            _ => FileSnapshot::Absent,
        };
        let without_flags = |flags: &FileSnapshot| match flags {
            FileSnapshot::Absent => FileSnapshot::Absent,
            FileSnapshot::File { bytes, .. } => flags.with_bytes(remove_flags(
                bytes,
                &self.config.text(),
                &self.bin_dir.text(),
            )),
        };
        Ok(ProviderSide {
            installed: None,
            config,
            flags: disk.flags.as_ref().map(without_flags),
        })
    }

    fn edited<E: std::fmt::Display>(
        &self,
        file: &FileSnapshot,
        edit: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<FileSnapshot, Obstacle> {
        let refused = |why: String| Obstacle {
            reason: "ForeignProviderConfig",
            message: format!(
                "`{}`: {why}; nothing was changed",
                self.config.host.display()
            ),
        };
        let FileSnapshot::File { bytes, .. } = file else {
            return Err(refused("there is no such file".to_owned()));
        };
        let bytes = edit(bytes).map_err(|error| refused(error.to_string()))?;
        Ok(file.with_bytes(bytes))
    }

    /// What keeps programs from being put into their directory or from running there.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        let host = self.bin_dir.host.display();
        let here = &self.bin_dir.here;
        if !self.program.is_file() {
            let program = self.program.display();
            return Some(Obstacle::new(format!(
                "this syncer's image has no `{program}`"
            )));
        }
        let found = fs::symlink_metadata(here);
        let is_own = matches!(self.way, Way::Flags(_));
        let error = match &found {
            Ok(meta) if meta.is_symlink() => "is a symbolic link",
            Ok(meta) if !meta.is_dir() => "is no directory",
            Err(_) if !is_own => "is absent",
            _ => "",
        };
        if !error.is_empty() {
            return Some(Obstacle::new(format!("`{host}` {error}")));
        }
        // A directory of ours is created later, below that of the credentials file.
        let existing = here.ancestors().find(|path| path.exists())?;
        let error = match statvfs(existing).map(|file_system| file_system.f_flag) {
            Ok(flags) if flags.contains(StatVfsMountFlags::NOEXEC) => "is on a mount with `noexec`",
            Ok(flags) if flags.contains(StatVfsMountFlags::RDONLY) => "can only be read",
            Ok(_) => return None,
            Err(_) => "can't be examined",
        };
        Some(Obstacle::new(format!("`{host}` {error}")))
    }

    /// Removes what writes that were cut off left next to the files.
    pub(crate) fn sweep(&self) {
        for path in self.watched() {
            file::sweep(&path);
        }
    }
}
