//! Delivery with the kubelet's credential provider, on a bare node: enable, rotate, drift, disable.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use globalps_provider::{Delivery, ProviderConfig};
use globalps_testkit::bare_node::{Ask, BareNode, Failures, Program};
use globalps_testkit::kubernetes::VERSION;
use globalps_testkit::{DEADLINE, until};
use serde_json::{Value, json};

static PROGRAM: LazyLock<Program> = LazyLock::new(|| Program::shipped().unwrap());

const POLL: Duration = Duration::from_millis(5);

const OWN: &str = "{ \"auths\": {\"own.example.com\": {\"auth\": \"bzpv\"}} }\n";
const FLAGS: &str = "# by kubeadm\nKUBELET_KUBEADM_ARGS=\"--v=2\"\nOTHER=1";
const IMAGE: &str = "r.example.com/a";

fn ask(revision: i64, delivery: Delivery) -> Ask {
    let auth = ["", "dTox", "dToy", "dToz", "dTo0"][usize::try_from(revision).unwrap()];
    Ask {
        generation: revision,
        revision: Some(revision),
        credentials: json!({"auths": {"r.example.com": {"auth": auth}}}).to_string(),
        delivery,
        kubelet_version: VERSION,
        foreign_owner: "",
        updated_in_place: false,
        may_replace: String::new(),
    }
}

fn by_provider(revision: i64) -> Ask {
    ask(
        revision,
        Delivery::CredentialProvider(ProviderConfig::default()),
    )
}

fn by_file(revision: i64) -> Ask {
    ask(revision, Delivery::ConfigFile)
}

fn restore(generation: i64) -> Ask {
    Ask {
        generation,
        revision: None,
        ..Ask::default()
    }
}

/// A node that kubeadm set up, with entries of its own.
fn node(directory: &Path, ask: &Ask) -> BareNode {
    fs::write(directory.join("config.json"), OWN).unwrap();
    fs::set_permissions(directory.join("config.json"), Permissions::from_mode(0o644)).unwrap();
    fs::write(directory.join("kubeadm-flags.env"), FLAGS).unwrap();
    BareNode::start(directory, ask, 1, Failures::NONE).unwrap()
}

/// The syncer's arguments for paths in the kubelet's own flags.
fn set_up(config: &Path, bin_dir: &Path) -> [String; 4] {
    let (config, bin_dir) = (config.display(), bin_dir.display());
    [
        format!("--provider-config={config}"),
        format!("--host-provider-config={config}"),
        format!("--provider-bin-dir={bin_dir}"),
        format!("--host-provider-bin-dir={bin_dir}"),
    ]
}

fn wait_restored(node: &BareNode, generation: i64) {
    node.ask(Some(restore(generation)));
    node.wait_status("restored", DEADLINE, |status| status["phase"] == "Restored")
        .unwrap();
}

fn wait(node: &BareNode, phase: &str, revision: i64, delivery: &str) -> Value {
    node.wait_status(phase, DEADLINE, |status| {
        status["phase"] == phase && status["revision"] == revision && status["delivery"] == delivery
    })
    .unwrap()
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default()
}

fn password(node: &BareNode) -> Value {
    node.provided(IMAGE).unwrap()["r.example.com"]["password"].clone()
}

fn is_as_before(directory: &Path) {
    assert_eq!(read(directory, "config.json"), OWN);
    assert_eq!(read(directory, "kubeadm-flags.env"), FLAGS);
    let mode = fs::metadata(directory.join("config.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn one_restart_in_one_out_and_none_between() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_file(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "ConfigFile");
    assert_eq!(node.restarts(), 1);

    node.ask(Some(by_provider(2)));
    wait(&node, "Synced", 2, "CredentialProvider");
    assert_eq!(node.restarts(), 2);
    assert_eq!(read(directory.path(), "config.json"), OWN);
    assert_eq!(password(&node), "2");

    node.ask(Some(by_provider(3)));
    wait(&node, "Synced", 3, "CredentialProvider");
    assert_eq!((node.restarts(), password(&node)), (2, json!("3")));

    node.ask(Some(by_file(4)));
    wait(&node, "Synced", 4, "ConfigFile");
    assert_eq!((node.restarts(), node.has_provider()), (3, false));
    assert_eq!(read(directory.path(), "kubeadm-flags.env"), FLAGS);
    let left = fs::read_dir(directory.path().join(".globalps")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["state.json"]);

    wait_restored(&node, 5);
    is_as_before(directory.path());
    assert!(!directory.path().join(".globalps").exists());
}

#[test]
fn the_provider_comes_and_goes_without_systemds_process_list() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_provider(1));
    node.hide_processes();
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "CredentialProvider");
    assert_eq!((node.restarts(), password(&node)), (1, json!("1")));
    wait_restored(&node, 2);
    assert_eq!((node.restarts(), node.has_provider()), (2, false));
    is_as_before(directory.path());
}

#[test]
fn a_restore_takes_the_provider_out_in_one_restart() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_provider(1));
    let syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "CredentialProvider");
    assert_eq!((node.restarts(), password(&node)), (1, json!("1")));
    is_here_what_is_promised(directory.path());
    wait_restored(&node, 2);
    assert_eq!((node.restarts(), node.has_provider()), (2, false));
    is_as_before(directory.path());
    assert!(!directory.path().join(".globalps").exists());
    syncer.kill().unwrap();
}

fn is_here_what_is_promised(directory: &Path) {
    assert_eq!(read(directory, "config.json"), OWN);
    for (path, mode) in [
        (".globalps", 0o700),
        (".globalps/bin/globalps-credential-provider", 0o755),
        (".globalps/bin/globalps-credential-provider-scoped", 0o755),
        (".globalps/credentials.json", 0o600),
        (".globalps/globalps-credential-provider.yaml", 0o600),
    ] {
        let found = fs::metadata(directory.join(path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
}

#[test]
fn a_node_is_restored_by_hand_with_its_provider() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_provider(1));
    let syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "CredentialProvider");
    syncer.kill().unwrap();
    let output = node.restore(&PROGRAM, &[]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("delivered by the credential provider"),
        "{said}"
    );
    assert!(output.status.success(), "{said}");
    assert_eq!((node.restarts(), node.has_provider()), (2, false));
    is_as_before(directory.path());
    assert!(!directory.path().join(".globalps").exists());
}

#[test]
fn rewritten_flags_are_restored_with_a_restart_data_without() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_provider(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "CredentialProvider");
    // The watch begins when the syncer reports.
    sleep(Duration::from_millis(300));
    for (drifts, path) in [
        ".globalps/credentials.json",
        ".globalps/bin/globalps-credential-provider",
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(path);
        fs::remove_file(&path).unwrap();
        until("the file to be restored", DEADLINE, POLL, || {
            Ok(path.exists().then_some(()))
        })
        .unwrap();
        until("the content to be in effect", DEADLINE, POLL, || {
            Ok((node.provided(IMAGE).is_ok()).then_some(()))
        })
        .unwrap();
        assert_eq!(node.restarts(), 1, "{drifts}");
        sleep(Duration::from_millis(300));
    }
    let upgraded = FLAGS.replace("--v=2", "--v=3");
    fs::write(directory.path().join("kubeadm-flags.env"), &upgraded).unwrap();
    let status = node
        .wait_status("the drift", DEADLINE, |status| {
            status["restarts"] == 2 && status["phase"] == "Synced"
        })
        .unwrap();
    assert_eq!(status["reason"], "DriftRepaired");
    assert!(node.has_provider());
    let flags = read(directory.path(), "kubeadm-flags.env");
    assert!(
        flags.contains("--v=3 --image-credential-provider-config="),
        "{flags}"
    );
    wait_restored(&node, 2);
    assert_eq!(read(directory.path(), "kubeadm-flags.env"), upgraded);
}

#[test]
fn where_impossible_the_file_goes_on_and_the_reason_is_named() {
    let older = |version| Ask {
        kubelet_version: version,
        ..by_provider(1)
    };
    #[rustfmt::skip]
    let cases = [
        (older(""), FLAGS, "--restart=Always", "version is unknown"),
        (older("v1.25.9"), FLAGS, "--restart=Always", "1.25, older than 1.26"),
        (by_provider(1), FLAGS, "--restart=Never", "Never"),
        (by_provider(1), "", "--restart=Always", "must set `KUBELET_KUBEADM_ARGS`"),
        (
            by_provider(1),
            "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-config=DIRECTORY/theirs.yaml \
             --image-credential-provider-bin-dir=DIRECTORY\"",
            "--restart=Always",
            "spec.kubelet.credentialProvider",
        ),
    ];
    for (ask, flags, arguments, message) in cases {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("theirs.yaml"), "providers: []").unwrap();
        let flags = flags.replace("DIRECTORY", directory.path().to_str().unwrap());
        let node = node(directory.path(), &ask).with_arguments(&[arguments]);
        fs::write(directory.path().join("kubeadm-flags.env"), &flags).unwrap();
        let _syncer = node.syncer(&PROGRAM).unwrap();
        let status = wait(&node, "Synced", 1, "ConfigFile");
        assert_eq!(status["reason"], "ProviderNotPossible", "{status}");
        assert!(
            status["message"].as_str().unwrap().contains(message),
            "{status}"
        );
        assert!(read(directory.path(), "config.json").contains("r.example.com"));
        assert_eq!(read(directory.path(), "kubeadm-flags.env"), flags);
        assert!(node.provided(IMAGE).is_ok_and(|found| found == json!({})));
    }
}

/// The paths of the configuration are those of other nodes; the runtime creates the directories.
#[test]
fn a_configuration_that_no_kubelet_reads_is_not_used() {
    for is_file in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (etc, bin) = (directory.path().join("etc"), directory.path().join("bin"));
        fs::create_dir(&etc).unwrap();
        fs::create_dir(&bin).unwrap();
        let config = if is_file {
            let file = etc.join("providers.yaml");
            fs::write(&file, "providers: []\n").unwrap();
            file
        } else {
            etc.clone()
        };
        let arguments = set_up(&config, &bin);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let node = node(directory.path(), &by_provider(1)).with_arguments(&arguments);
        let _syncer = node.syncer(&PROGRAM).unwrap();
        let status = wait(&node, "Synced", 1, "ConfigFile");
        assert_eq!(status["reason"], "ProviderNotPossible", "{status}");
        let message = status["message"].as_str().unwrap();
        let expected = "the kubelet runs with no credential provider configuration, not with `--image-credential-provider-config=";
        assert!(message.starts_with(expected), "{message}");
        assert!(read(directory.path(), "config.json").contains("r.example.com"));
        wait_restored(&node, 2);
        is_as_before(directory.path());
        assert_eq!(fs::read_dir(&etc).unwrap().count(), usize::from(is_file));
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
    }
}

/// Like a custom unit that does not pass kubeadm's variable.
#[test]
fn a_kubelet_started_without_the_provider_gets_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_provider(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "CredentialProvider");
    node.start_without_flags();
    let status = node
        .wait_status("the credentials file", 2 * DEADLINE, |status| {
            status["phase"] == "Synced" && status["delivery"] == "ConfigFile"
        })
        .unwrap();
    assert_eq!(status["revision"], 1, "{status}");
    assert!(read(directory.path(), "config.json").contains("r.example.com"));
    assert_eq!(read(directory.path(), "kubeadm-flags.env"), FLAGS);
    assert_eq!(node.restarts(), 1);
    wait_restored(&node, 2);
    is_as_before(directory.path());
}

#[test]
fn a_node_whose_flags_are_fought_over_gets_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_provider(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "CredentialProvider");
    let flags = directory.path().join("kubeadm-flags.env");
    let status = node
        .wait_status("the credentials file", 2 * DEADLINE, |status| {
            let is_synced = status["phase"] == "Synced";
            if is_synced && status["delivery"] == "CredentialProvider" {
                fs::write(&flags, FLAGS).unwrap();
            }
            is_synced && status["delivery"] == "ConfigFile"
        })
        .unwrap();
    assert_eq!(status["revision"], 1, "{status}");
    assert!(status["drifts"].as_i64() >= Some(5), "{status}");
    assert!(read(directory.path(), "config.json").contains("r.example.com"));
    assert!(node.would_start());
    wait_restored(&node, 2);
    is_as_before(directory.path());
}

#[test]
fn a_node_whose_kubelet_fails_with_the_provider_has_what_it_had() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path(), &by_file(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait(&node, "Synced", 1, "ConfigFile");
    let before = read(directory.path(), "config.json");
    node.fail(Failures(3, "failed"));
    node.ask(Some(by_provider(2)));
    let status = wait(&node, "RolledBack", 1, "ConfigFile");
    assert_eq!(status["reason"], "KubeletDidNotStart");
    assert_eq!(read(directory.path(), "config.json"), before);
    assert_eq!(read(directory.path(), "kubeadm-flags.env"), FLAGS);
    assert!(!directory.path().join(".globalps/bin").exists());
}

/// Another credential provider, for its own registry.
const THEIRS: &str = "#!/bin/sh\ncat > /dev/null\n\
    echo '{\"auth\":{\"theirs.example.com\":{\"username\":\"t\",\"password\":\"t\"}}}'\n";

#[test]
fn a_foreign_provider_goes_on_and_its_configuration_is_kept() {
    for is_directory in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (etc, bin) = (directory.path().join("etc"), directory.path().join("bin"));
        fs::create_dir(&etc).unwrap();
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("theirs"), THEIRS).unwrap();
        fs::set_permissions(bin.join("theirs"), Permissions::from_mode(0o755)).unwrap();
        let file = etc.join("providers.yaml");
        let before = "# theirs\nproviders:\n  - name: theirs  # it\n    args: []\n\n# the end\n";
        fs::write(&file, before).unwrap();
        let config = if is_directory { &etc } else { &file };
        let arguments = set_up(config, &bin);
        let (config, bin_dir) = (config.display(), bin.display());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let flags = format!(
            "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-config={config} \
             --image-credential-provider-bin-dir={bin_dir}\"\n"
        );
        fs::write(directory.path().join("config.json"), OWN).unwrap();
        fs::write(directory.path().join("kubeadm-flags.env"), &flags).unwrap();
        let node = BareNode::start(directory.path(), &by_provider(1), 1, Failures::NONE).unwrap();
        let node = node.with_arguments(&arguments);
        let _syncer = node.syncer(&PROGRAM).unwrap();
        wait(&node, "Synced", 1, "CredentialProvider");
        let found = node.provided(IMAGE).unwrap();
        assert_eq!(found["r.example.com"]["password"], "1", "{found}");
        assert_eq!(found["theirs.example.com"]["password"], "t", "{found}");
        assert_eq!(fs::read_to_string(&file).unwrap() == before, is_directory);
        assert_eq!(node.restarts(), 1);
        wait_restored(&node, 2);
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        assert_eq!(read(directory.path(), "kubeadm-flags.env"), flags);
        for folder in [&etc, &bin] {
            assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
        }
        assert_eq!(node.restarts(), 2);
    }
}
