//! The credential provider on the node's disk: its program, its data file, and the kubelet's configuration of it.

mod flags;
mod program;
mod running;
mod set_up;
mod upkeep;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use globalps_core::names::STATE_DIR;
use globalps_core::reasons::Reason;
use globalps_provider::{
    Content, PROVIDERS, ProviderConfig, add_entries, has_providers, parse_data, remove_entries,
    render_data,
};
use rustix::fs::{StatVfsMountFlags, statvfs};
use tokio::time::sleep;

use super::file::{self, FileError, FileSnapshot};
use super::state::{InstalledProvider, Obstacle, ProviderSide};

/// What an administrator can do if globalps can't set the kubelet's flags.
pub(crate) const SET_UP: &str = "start the kubelet with a credential provider configuration of your own, and set \
                                 spec.kubelet.credentialProvider to the paths in its flags";

/// Time for another process to finish writing a file.
pub(crate) const WRITING: Duration = Duration::from_millis(200);

/// A path as this program sees it, and as it is on the node.
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

    fn parent(&self) -> Self {
        let parent = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
        Self {
            here: parent(&self.here),
            host: parent(&self.host),
        }
    }

    fn next_to(&self, name: &str) -> Self {
        self.parent().join(name)
    }

    fn text(&self) -> String {
        self.host.to_string_lossy().into_owned()
    }
}

/// How the kubelet finds the configuration.
#[derive(Clone, Debug)]
enum Way {
    /// Through flags that are added to this kubeadm file.
    Flags(HostPath),
    /// In a directory that the kubelet's flags already name.
    Directory,
    /// In a file that also has foreign providers.
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

/// The provider's files on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderDisk {
    pub(crate) data: FileSnapshot,
    pub(crate) config: FileSnapshot,
    pub(crate) flags: Option<FileSnapshot>,
    /// Whether the directory of configurations contains others, too.
    pub(crate) is_beside_others: bool,
}

impl ProviderDisk {
    /// Whether the kubelet's configuration and flags match this side.
    pub(crate) fn has_settings(&self, side: &ProviderSide) -> bool {
        self.config == side.config && self.flags == side.flags
    }
}

impl Provider {
    /// `set_up`: the configuration and the binary directory that are already in the kubelet's flags.
    pub(crate) fn new(
        program: PathBuf,
        config_file: &HostPath,
        set_up: Option<(HostPath, HostPath)>,
    ) -> Self {
        let data = config_file
            .next_to(STATE_DIR)
            .join(globalps_provider::DATA_FILE);
        let (config, bin_dir, way) = set_up.map_or_else(|| Way::own(&data), Way::of);
        Self {
            program,
            bin_dir,
            data,
            config,
            way,
        }
    }

    /// kubeadm's flags file, if flags are added to it.
    pub(crate) fn flags_file(&self) -> Option<&HostPath> {
        match &self.way {
            Way::Flags(file) => Some(file),
            _ => None,
        }
    }

    /// The text with paths as they are on the node.
    pub(crate) fn on_node(&self, text: &str) -> String {
        let directory = |path: &Path| path.ancestors().nth(2).unwrap_or(path).to_owned();
        let kubelet = HostPath {
            here: directory(&self.data.here),
            host: directory(&self.data.host),
        };
        let mut text = text.to_owned();
        for path in [&self.config, &self.bin_dir, &kubelet] {
            if path.here != path.host {
                text = text.replace(&*path.here.to_string_lossy(), &path.text());
            }
        }
        text
    }

    /// Every file in which a change by another process matters.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let mut files = vec![self.data.here.clone(), self.config.here.clone()];
        files.extend(self.flags_file().map(|file| file.here.clone()));
        files.extend(self.programs());
        files
    }

    /// The files that count while the provider is not installed: flags or a configuration that another process restores name
    /// files that are gone.
    pub(crate) fn watched_without(&self) -> Vec<PathBuf> {
        let own = self.own();
        let config = Some(&self.config).filter(|_| self.flags_file().is_none());
        let files = own.flags_file().into_iter().chain(config);
        files
            .map(|file| file.here.clone())
            .filter(|path| path.parent().is_some_and(Path::is_dir))
            .collect()
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
            is_beside_others: matches!(self.way, Way::Directory) && self.has_others(),
        })
    }

    /// Whether the directory contains other files with the extensions that the kubelet reads.
    fn has_others(&self) -> bool {
        let directory = self.config.here.parent();
        let files = directory.and_then(|directory| fs::read_dir(directory).ok());
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| {
            let path = file.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            path != self.config.here
                && extension.is_some_and(|it| ["json", "yaml", "yml"].contains(&it))
        })
    }

    /// Fails if another process was still writing these files when they were read. On a busy node it may not run for seconds between
    /// emptying a file and writing it.
    pub(crate) async fn expect_settled(&self, seen: &ProviderDisk) -> Result<(), FileError> {
        let is_emptied = |file: &FileSnapshot| matches!(file, FileSnapshot::File { bytes, .. } if bytes.is_empty());
        let is_emptied = is_emptied(&seen.config) || seen.flags.as_ref().is_some_and(is_emptied);
        for _ in 0..if is_emptied { 50 } else { 5 } {
            sleep(WRITING).await;
            if self.read()? != *seen {
                let path = self.config.here.clone();
                return Err(FileError::Changed { path });
            }
        }
        Ok(())
    }

    /// The files with the provider added to the existing ones.
    pub(crate) fn with(
        &self,
        disk: &ProviderDisk,
        installed: InstalledProvider,
    ) -> Result<ProviderSide, Obstacle> {
        let installed = InstalledProvider {
            set_up: self.set_up(),
            ..installed
        };
        let (data, tokens) = (self.data.text(), installed.tokens);
        let config = match &self.way {
            Way::Shared => {
                let entries = installed.config.providers(&data, tokens);
                self.edited(&disk.config, |bytes| add_entries(bytes, &entries))?
            }
            // globalps owns the file, so an earlier mode is not kept.
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

    /// The files without the provider, byte for byte as they were.
    pub(crate) fn without(&self, disk: &ProviderDisk) -> Result<ProviderSide, Obstacle> {
        let config = match &self.way {
            Way::Shared if disk.config == FileSnapshot::Absent => FileSnapshot::Absent,
            Way::Shared => self.edited(&disk.config, remove_entries)?,
            _ => FileSnapshot::Absent,
        };
        Ok(ProviderSide {
            installed: None,
            config,
            flags: disk.flags.as_ref().map(|flags| self.without_flags(flags)),
        })
    }

    /// The files without the provider. Fails if it is the last provider that the kubelet's flags name, because no
    /// kubelet starts without any.
    pub(crate) fn removed(&self, disk: &ProviderDisk) -> Result<ProviderSide, Obstacle> {
        let side = self.without(disk)?;
        let has_others = match (&self.way, &side.config) {
            (Way::Shared, FileSnapshot::File { bytes, .. }) => {
                side.config == disk.config || has_providers(bytes)
            }
            (Way::Directory, _) => disk.config == FileSnapshot::Absent || disk.is_beside_others,
            _ => true,
        };
        if has_others {
            return Ok(side);
        }
        Err(Obstacle {
            reason: Reason::ForeignProviderConfig,
            message: format!(
                "`{}`: this is the kubelet's last provider, and it does not start without any; nothing was changed. Add another \
                 one, or remove the kubelet's flags `--image-credential-provider-…`, restart it, and delete the file",
                self.config.host.display()
            ),
        })
    }

    /// The provider that the kubelet's flags or configuration name on this disk, for a node whose state is lost.
    pub(crate) fn installed(&self) -> Result<Option<InstalledProvider>, FileError> {
        let disk = match self.read() {
            Ok(disk) => disk,
            // A file that can't be edited may still name files of globalps.
            Err(error) => {
                let flags = self.flags_file().and_then(|file| fs::read(&file.here).ok());
                let flags = flags.map(|bytes| FileSnapshot::Absent.with_bytes(bytes));
                return match flags {
                    Some(flags) if self.names_own(&flags) => Err(error),
                    _ => Ok(None),
                };
            }
        };
        let is_named = self.is_named(&disk);
        let bytes = |file: &FileSnapshot| match file {
            FileSnapshot::File { bytes, .. } => bytes.clone(),
            FileSnapshot::Absent => Vec::new(),
        };
        let data = Some(disk.data.clone()).filter(|data| parse_data(&bytes(data)).is_ok());
        let empty = || FileSnapshot::Absent.with_bytes(render_data(0, &Content::default()));
        let config = ProviderConfig::of_document(&bytes(&disk.config));
        Ok(is_named.then(|| InstalledProvider {
            data: data.unwrap_or_else(empty),
            tokens: config.scopes,
            config,
            set_up: self.set_up(),
        }))
    }

    /// Like [`Self::installed`], but also finds a provider that a syncer with other paths set up.
    pub(crate) fn installed_anywhere(&self) -> Result<Option<InstalledProvider>, FileError> {
        match self.installed()? {
            None if self.flags_file().is_none() => self.own().installed(),
            found => Ok(found),
        }
    }

    fn edited<E: std::fmt::Display>(
        &self,
        file: &FileSnapshot,
        edit: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<FileSnapshot, Obstacle> {
        let unsupported = |reason: String| Obstacle {
            reason: Reason::ForeignProviderConfig,
            message: format!(
                "`{}`: {reason}; nothing was changed",
                self.config.host.display()
            ),
        };
        let FileSnapshot::File { bytes, .. } = file else {
            return Err(unsupported("the file does not exist".to_owned()));
        };
        let bytes = edit(bytes).map_err(|error| unsupported(error.to_string()))?;
        Ok(file.with_bytes(bytes))
    }

    /// What prevents installing the programs in their directory, or running them there.
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
            Ok(meta) if !meta.is_dir() => "is not a directory",
            Err(_) if !is_own => "is absent",
            _ => "",
        };
        if !error.is_empty() {
            return Some(Obstacle::new(format!("`{host}` {error}")));
        }
        let config_dir = self.config.here.parent().unwrap_or(Path::new("/"));
        if !is_own && !config_dir.is_dir() {
            let config = self.config.host.display();
            return Some(Obstacle::new(format!(
                "the directory of `{config}` does not exist"
            )));
        }
        // A managed directory is created later, below that of the credentials file.
        let existing = here.ancestors().find(|path| path.exists())?;
        let error = match statvfs(existing) {
            Ok(file_system) => unfit(file_system.f_flag)?,
            Err(_) => "can't be read",
        };
        Some(Obstacle::new(format!("`{host}` {error}")))
    }

    /// Removes leftovers of interrupted writes next to the files.
    pub(crate) fn sweep(&self) {
        for path in self.watched() {
            file::sweep(&path);
        }
    }
}

/// Why programs can't run on a mount with these flags.
fn unfit(flags: StatVfsMountFlags) -> Option<&'static str> {
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        Some("is on a mount with `noexec`")
    } else if flags.contains(StatVfsMountFlags::RDONLY) {
        Some("is on a read-only mount")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
