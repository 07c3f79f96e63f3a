use std::os::unix::fs::symlink;

use globalps_core::names::{PROVIDER_BIN_DIR, PROVIDER_CONFIG_FILE};
use globalps_core::reasons::Reason;
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
async fn a_writer_may_take_seconds_from_emptying_to_writing_a_file() {
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
fn foreign_configurations_get_entries_with_host_paths() {
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
        let installed = InstalledProvider {
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
        let installed = InstalledProvider {
            data: FileSnapshot::Absent,
            config: ProviderConfig::default(),
            tokens: false,
            set_up: None,
        };
        let obstacle = provider
            .with(&provider.read().unwrap(), installed)
            .unwrap_err();
        assert_eq!(obstacle.reason, Reason::ForeignProviderConfig);
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
    let installed = InstalledProvider {
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
fn a_provider_named_by_flags_or_file_is_found_without_a_state() {
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
    // One of the two flags.
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
