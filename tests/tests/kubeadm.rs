//! kubeadm's own rewrite of the kubelet's flags, as `kubeadm upgrade node` of v1.35 does it: it drops
//! `--pod-infra-container-image` and sorts the rest. On a bare node before, during and after delivery with the provider.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use globalps_core::provider::{Delivery, ProviderConfig};
use globalps_tests::bare_node::{Ask, BareNode, Failures, Program};
use globalps_tests::kubernetes;
use serde_json::{Value, json};

static PROGRAM: LazyLock<Program> = LazyLock::new(|| Program::build().unwrap());
static KUBEADM: LazyLock<PathBuf> = LazyLock::new(|| kubernetes::build_kubeadm_rewrite().unwrap());

const DEADLINE: Duration = Duration::from_secs(40);
const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--v=2 --pod-infra-container-image=registry.k8s.io/pause:3.10 --node-ip=10.0.0.1\"\n";
/// What kubeadm makes of it.
const UPGRADED: &str = "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.1 --v=2\"\n";
const OURS: &str = "--image-credential-provider-";

fn ask(generation: i64, delivery: Delivery) -> Ask {
    Ask {
        generation,
        revision: Some(generation),
        credentials: json!({"auths": {"r.example.com": {"auth": "dTox"}}}).to_string(),
        delivery,
        kubelet_version: "v1.35.4",
        foreign_owner: "",
    }
}

fn by_provider(generation: i64) -> Ask {
    let config = ProviderConfig::default();
    ask(generation, Delivery::CredentialProvider(config))
}

fn restore(generation: i64) -> Ask {
    Ask {
        generation,
        revision: None,
        ..Ask::default()
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("kubeadm-flags.env")
}

fn flags(directory: &Path) -> String {
    fs::read_to_string(file(directory)).unwrap()
}

fn upgrade(directory: &Path) {
    let backups = tempfile::tempdir().unwrap();
    let mut kubeadm = Command::new(&*KUBEADM);
    let output = kubeadm.args([directory, backups.path()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn node(directory: &Path, ask: &Ask) -> BareNode {
    fs::write(file(directory), FLAGS).unwrap();
    BareNode::start(directory, ask, 1, Failures::NONE).unwrap()
}

fn wait(node: &BareNode, phase: &str, delivery: &str) -> Value {
    let is_wanted = |status: &Value| status["phase"] == phase && status["delivery"] == delivery;
    node.wait_status(phase, DEADLINE, is_wanted).unwrap()
}

fn wait_restored(node: &BareNode) {
    let is_restored = |status: &Value| status["phase"] == "Restored";
    node.wait_status("restored", DEADLINE, is_restored).unwrap();
}

#[test]
fn an_upgrade_before_or_after_delivery_restarts_nothing_and_stays_after_the_removal() {
    for is_before in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let node = node(directory, &by_provider(1));
        if is_before {
            upgrade(directory);
            assert_eq!(flags(directory), UPGRADED);
        }
        let _syncer = node.syncer(&PROGRAM).unwrap();
        wait(&node, "Synced", "CredentialProvider");
        // The watch begins when the syncer reports.
        sleep(Duration::from_millis(300));
        upgrade(directory);
        let upgraded = flags(directory);
        assert!(!upgraded.contains("pod-infra"), "{upgraded}");
        sleep(Duration::from_secs(2));
        assert_eq!(flags(directory), upgraded, "the same meaning is no drift");
        assert_eq!(node.restarts(), 1);
        node.start_kubelet();
        assert!(node.has_provider() && node.would_start());
        node.ask(Some(restore(2)));
        wait_restored(&node);
        assert_eq!(flags(directory), UPGRADED);
        assert_eq!((node.restarts(), node.has_provider()), (2, false));
        assert!(!directory.join(".globalps").exists());
    }
}

/// Adds the flag that kubeadm removes, and lets kubeadm remove it.
fn rewrite(directory: &Path) {
    let again = flags(directory).replacen("=\"", "=\"--pod-infra-container-image=x ", 1);
    fs::write(file(directory), again).unwrap();
    upgrade(directory);
}

#[test]
fn two_rewrites_a_second_for_a_minute_kill_no_kubelet() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let node = node(directory, &by_provider(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let asks = [by_provider(1), ask(2, Delivery::ConfigFile), by_provider(3)];
    for ask in asks {
        node.ask(Some(ask));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            rewrite(directory);
            assert!(node.would_start(), "{}", flags(directory));
            sleep(Duration::from_millis(450));
        }
        let status = node.status().unwrap();
        assert_ne!(status["phase"], "RolledBack", "{status}\n{}", node.log());
    }
    wait(&node, "Synced", "CredentialProvider");
    node.start_kubelet();
    assert!(node.has_provider());
    node.ask(Some(restore(4)));
    wait_restored(&node);
    assert!(!flags(directory).contains(OURS), "{}", flags(directory));
}

#[test]
fn a_provider_whose_state_was_moved_away_is_adopted_or_removed_flags_first() {
    for (is_restored, is_by_hand) in [(true, false), (true, true), (false, false)] {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let node = node(directory, &by_provider(1));
        let syncer = node.syncer(&PROGRAM).unwrap();
        wait(&node, "Synced", "CredentialProvider");
        syncer.kill().unwrap();
        let state = directory.join(".globalps/state.json");
        fs::write(&state, "{").unwrap();
        // As the message advises.
        fs::rename(&state, directory.join("moved-state.json")).unwrap();
        if is_by_hand {
            let output = node.restore(&PROGRAM, &[]).unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}");
        } else {
            node.ask(Some(if is_restored {
                restore(2)
            } else {
                by_provider(2)
            }));
            let _syncer = node.syncer(&PROGRAM).unwrap();
            if is_restored {
                wait_restored(&node);
            } else {
                let is_wanted =
                    |status: &Value| status["phase"] == "Synced" && status["revision"] == 2;
                node.wait_status("adopted", DEADLINE, is_wanted).unwrap();
                assert_eq!(node.restarts(), 1, "{}", node.log());
            }
        }
        assert_eq!(flags(directory) == FLAGS, is_restored);
        assert!(node.would_start());
        node.start_kubelet();
        assert_eq!(node.has_provider(), !is_restored);
    }
}
