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
use globalps_provider::{
    Content, PROVIDERS, ProviderConfig, add_entries, has_providers, parse_data, remove_entries,
    render_data,
};
use rustix::fs::{StatVfsMountFlags, statvfs};
use tokio::time::sleep;

use super::file::{self, FileError, FileSnapshot};
use super::state::{Installed, Obstacle, ProviderSide};

/// What an administrator can do where globalps can't set the kubelet's flags.
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
    /// By flags that are added to this kubeadm file.
    Flags(HostPath),
    /// In a directory that is already in its flags.
    Directory,
    /// In a file with foreign providers.
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
    /// It is in a directory of configurations that has other ones.
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

    /// As the kubelet reads the directory: files with these extensions.
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
        installed: Installed,
    ) -> Result<ProviderSide, Obstacle> {
        let installed = Installed {
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

    /// The same. Fails if it is the last provider that the kubelet's flags name: no kubelet starts without any.
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
            reason: "ForeignProviderConfig",
            message: format!(
                "`{}`: this is the kubelet's last provider, and it does not start without any; nothing was changed. Add another \
                 one, or remove the kubelet's flags `--image-credential-provider-…`, restart it, and delete the file",
                self.config.host.display()
            ),
        })
    }

    /// The provider that the kubelet's flags or configuration name on this disk, for a node whose state is lost.
    pub(crate) fn installed(&self) -> Result<Option<Installed>, FileError> {
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
        Ok(is_named.then(|| Installed {
            data: data.unwrap_or_else(empty),
            tokens: config.scopes,
            config,
            set_up: self.set_up(),
        }))
    }

    /// The same, also where a syncer with other paths has set it up.
    pub(crate) fn installed_anywhere(&self) -> Result<Option<Installed>, FileError> {
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
            reason: "ForeignProviderConfig",
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

    /// What prevents installing programs in their directory or running them there.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use globalps_core::names::{PROVIDER_BIN_DIR, PROVIDER_CONFIG_FILE};
    use globalps_provider::ProviderConfig;

    use super::*;

    pub(super) fn path(path: &Path) -> HostPath {
        HostPath {
            here: path.to_owned(),
            host: Path::new("/node").join(path.strip_prefix("/").unwrap()),
        }
    }

    /// A provider for a kubelet that already has flags with these paths.
    pub(super) fn set_up(directory: &Path, config: &Path, bin_dir: &Path) -> Provider {
        let program = directory.join("program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let config_file = path(&directory.join("config.json"));
        Provider::new(program, &config_file, Some((path(config), path(bin_dir))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_may_take_seconds_between_emptying_a_file_and_writing_it() {
        for (text, pause, is_settled) in [
            ("", 5, false),
            ("", 11, true),
            ("nonsense", 5, true),
            ("nonsense", 0, false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let config = directory.path().join("config.yaml");
            fs::write(&config, text).unwrap();
            let provider = set_up(directory.path(), &config, directory.path());
            let seen = provider.read().unwrap();
            let written = async {
                sleep(Duration::from_millis(1000 * pause + 500)).await;
                fs::write(&config, "written").unwrap();
                std::future::pending::<()>().await;
            };
            let settled = tokio::select! {
                settled = provider.expect_settled(&seen) => settled,
                () = written => unreachable!(),
            };
            assert_eq!(settled.is_ok(), is_settled, "{text:?}, {pause} s");
        }
    }

    #[test]
    fn an_unusable_binary_directory_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        fs::create_dir(here.join("bin")).unwrap();
        symlink("bin", here.join("link")).unwrap();
        for (config, bin_dir, expected) in [
            (here.to_owned(), here.join("bin"), ""),
            (
                here.to_owned(),
                here.join("link"),
                "link` is a symbolic link",
            ),
            (
                here.to_owned(),
                here.join("program"),
                "program` is not a directory",
            ),
            (here.to_owned(), here.join("none"), "none` is absent"),
            (here.join("none"), here.join("bin"), "does not exist"),
        ] {
            let obstacle = set_up(here, &config, &bin_dir).obstacle();
            let message = obstacle
                .map(|obstacle| obstacle.message)
                .unwrap_or_default();
            assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
            assert!(message.contains(expected), "{message}");
        }
        for (flags, is_unfit) in [
            (StatVfsMountFlags::NODEV, false),
            (StatVfsMountFlags::NOEXEC, true),
            (StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID, true),
        ] {
            assert_eq!(unfit(flags).is_some(), is_unfit, "{flags:?}");
        }
        let provider = set_up(here, here, &here.join("bin"));
        fs::remove_file(here.join("program")).unwrap();
        assert!(provider.obstacle().unwrap().message.contains("has no `"));
    }

    /// Their entries were deleted while the provider was installed.
    #[test]
    fn the_last_provider_is_not_taken_from_a_kubelet() {
        for (file, others) in [("c.yaml", "- name: theirs\n"), ("", "theirs.yaml")] {
            let directory = tempfile::tempdir().unwrap();
            let here = directory.path();
            let config = here.join(file);
            let is_shared = !file.is_empty();
            for has_others in [true, false] {
                let provider = set_up(here, &config, here);
                if is_shared {
                    let list = if has_others { others } else { "" };
                    let ours = "- {\"name\":\"globalps-credential-provider\"}\n";
                    fs::write(&config, format!("providers:\n{list}{ours}")).unwrap();
                } else {
                    fs::write(&provider.config.here, "providers: []").unwrap();
                    let theirs = here.join(others);
                    fs::write(&theirs, "").unwrap();
                    if !has_others {
                        fs::remove_file(theirs).unwrap();
                    }
                }
                let disk = provider.read().unwrap();
                assert!(provider.without(&disk).unwrap().config != disk.config);
                let removed = provider.removed(&disk);
                assert_eq!(removed.is_ok(), has_others, "{file}");
                let obstacle = removed.err().map(|obstacle| obstacle.message);
                assert!(obstacle.is_none_or(|it| it.contains("Add another")));
            }
            fs::remove_file(set_up(here, &config, here).config.here).unwrap();
            let provider = set_up(here, &config, here);
            assert!(
                provider.removed(&provider.read().unwrap()).is_ok(),
                "it is gone"
            );
        }
    }

    #[test]
    fn foreign_configuration_files_and_directories_get_entries_with_host_paths() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let theirs = "providers:\n- name: theirs\n";
        for (config, before, has_theirs) in [
            (here.join("c.yaml"), Some(theirs), true),
            (
                here.join("c.json"),
                Some("{\"providers\": [{\"name\": \"theirs\"}]}"),
                true,
            ),
            (here.to_owned(), None, false),
        ] {
            let provider = set_up(here, &config, here);
            if let Some(before) = before {
                fs::write(&config, before).unwrap();
            }
            let disk = provider.read().unwrap();
            let installed = Installed {
                data: FileSnapshot::Absent,
                config: ProviderConfig::default(),
                tokens: false,
                set_up: None,
            };
            let with = provider.with(&disk, installed).unwrap();
            let FileSnapshot::File { bytes, .. } = &with.config else {
                panic!("no file");
            };
            let text = String::from_utf8_lossy(bytes);
            let data = format!("--data=/node{}/.globalps/credentials.json", here.display());
            assert!(text.contains(&data), "{text}");
            assert_eq!(text.contains("theirs"), has_theirs, "{text}");
            assert_eq!(with.flags, None);
            let disk = ProviderDisk {
                config: with.config.clone(),
                ..disk.clone()
            };
            let without = provider.without(&disk).unwrap();
            assert_eq!(without.config, file::read(&provider.config.here).unwrap());
        }
        for (content, expected) in [
            (Some("providers:\n- name: [\n"), "line "),
            (Some("kind: C\n"), "line 1"),
            (None, "does not exist"),
        ] {
            let config = here.join("bad.yaml");
            let _ = fs::remove_file(&config);
            if let Some(content) = content {
                fs::write(&config, content).unwrap();
            }
            let provider = set_up(here, &config, here);
            let installed = Installed {
                data: FileSnapshot::Absent,
                config: ProviderConfig::default(),
                tokens: false,
                set_up: None,
            };
            let obstacle = provider
                .with(&provider.read().unwrap(), installed)
                .unwrap_err();
            assert_eq!(obstacle.reason, "ForeignProviderConfig");
            assert!(obstacle.message.contains(expected), "{}", obstacle.message);
        }
    }

    #[test]
    fn messages_have_paths_of_the_node() {
        let config_file = HostPath {
            here: "/host/kubelet/config.json".into(),
            host: "/var/lib/kubelet/config.json".into(),
        };
        let mount = |here: &str, host: &str| HostPath {
            here: here.into(),
            host: host.into(),
        };
        let set_up = (
            mount("/host/provider-config", "/etc/providers"),
            mount("/host/provider-bin", "/opt/providers"),
        );
        let provider = Provider::new("/p".into(), &config_file, Some(set_up));
        for (text, expected) in [
            (
                "`/host/kubelet/config.json` is immutable",
                "`/var/lib/kubelet/config.json` is immutable",
            ),
            (
                "kept as /host/kubelet/.globalps/config.json.unparsable-1",
                "kept as /var/lib/kubelet/.globalps/config.json.unparsable-1",
            ),
            (
                "`/host/provider-bin/a` and `/host/provider-config/globalps-credential-provider.yaml`",
                "`/opt/providers/a` and `/etc/providers/globalps-credential-provider.yaml`",
            ),
            ("no path", "no path"),
        ] {
            assert_eq!(provider.on_node(text), expected);
        }
    }

    /// No kubelet starts with them.
    #[test]
    fn flags_and_configurations_name_no_absent_file() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        fs::write(here.join("program"), "#!/bin/sh\n").unwrap();
        let provider = Provider::new(here.join("program"), &path(&here.join("config.json")), None);
        let (flags, state) = (here.join("kubeadm-flags.env"), here.join(".globalps"));
        let own = "KUBELET_KUBEADM_ARGS=\"--v=2\"\n";
        fs::write(&flags, own).unwrap();
        fs::create_dir(&state).unwrap();
        let installed = Installed {
            data: FileSnapshot::Absent.with_bytes(render_data(1, &Content::default())),
            config: ProviderConfig::default(),
            tokens: false,
            set_up: None,
        };
        assert!(!provider.lacks_files().unwrap(), "nothing names them");
        let remove = |name: &str| {
            let path = state.join(name);
            let is_directory = path.is_dir();
            if is_directory {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        };
        for name in [
            PROVIDER_BIN_DIR,
            PROVIDER_CONFIG_FILE,
            globalps_provider::DATA_FILE,
        ] {
            provider.write_flags(true).unwrap();
            provider.uphold(&installed, true).unwrap();
            assert!(!provider.lacks_files().unwrap(), "{name}");
            let all = provider.read().unwrap();
            remove(name);
            assert!(provider.lacks_files().unwrap(), "{name}");
            provider.uphold(&installed, true).unwrap();
            assert!(!provider.lacks_files().unwrap(), "{name}");
            assert_eq!(provider.read().unwrap(), all, "{name}");
            remove(name);
            provider.uphold(&installed, false).unwrap();
            assert_eq!(fs::read_to_string(&flags).unwrap(), own, "{name}");
        }
        // They can't be written.
        provider.write_flags(true).unwrap();
        fs::remove_dir_all(&state).unwrap();
        provider.uphold(&installed, true).unwrap();
        assert_eq!(fs::read_to_string(&flags).unwrap(), own);
        // The configuration of others stays, and has what it names.
        let config = here.join("c.yaml");
        fs::create_dir_all(here.join("bin")).unwrap();
        fs::create_dir(&state).unwrap();
        let shared = set_up(here, &config, &here.join("bin"));
        fs::write(&config, "providers:\n- name: theirs\n").unwrap();
        assert!(!shared.lacks_files().unwrap());
        let side = shared.with(&shared.read().unwrap(), installed.clone());
        file::replace(&config, &side.unwrap().config).unwrap();
        assert!(shared.lacks_files().unwrap());
        shared.uphold(&installed, true).unwrap();
        assert!(!shared.lacks_files().unwrap());
    }

    #[test]
    fn a_provider_that_flags_or_configuration_name_is_found_without_a_state() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let config_file = path(&here.join("config.json"));
        let provider = Provider::new(here.join("program"), &config_file, None);
        let flags = here.join("kubeadm-flags.env");
        assert_eq!(provider.installed().unwrap(), None, "there are no files");
        fs::write(&flags, "KUBELET_KUBEADM_ARGS=\"--v=2\"\n").unwrap();
        fs::create_dir(here.join(".globalps")).unwrap();
        let config = ProviderConfig {
            ports: ["4567".to_owned()].into(),
            scopes: true,
        };
        fs::write(&provider.config.here, config.document("/data", true)).unwrap();
        assert_eq!(provider.installed().unwrap(), None, "no flag names them");
        assert!(provider.write_flags(true).unwrap() && provider.installed().unwrap().is_some());
        let found = provider.installed().unwrap().unwrap();
        assert_eq!((found.config, found.tokens), (config, true));
        // One of two flags.
        let half = fs::read_to_string(&flags).unwrap();
        let half = half.replace("-bin-dir=", "-bin-dirs=");
        fs::write(&flags, half).unwrap();
        provider.remove_half_flags().unwrap();
        assert!(provider.installed().unwrap().is_none());
        assert!(provider.write_flags(true).unwrap());
        provider.remove_half_flags().unwrap();
        assert!(provider.installed().unwrap().is_some());
        // A link is not edited, but what it names is not deleted.
        fs::rename(&flags, here.join("elsewhere")).unwrap();
        symlink("elsewhere", &flags).unwrap();
        assert!(provider.installed().is_err());
        fs::write(here.join("elsewhere"), "KUBELET_KUBEADM_ARGS=\"\"\n").unwrap();
        assert_eq!(provider.installed().unwrap(), None);
    }
}
