//! kubeadm's rewrite of the kubelet's flags by `kubeadm upgrade node`: in some states of a node it removes a flag and
//! sorts the others. Tested on a bare node before, during and after delivery with the provider. The variable
//! `KUBERNETES` selects kubeadm's release.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use globalps_provider::{Delivery, ProviderConfig};
use globalps_testkit::bare_node::{Ask, BareNode, Failures, Program};
use globalps_testkit::kubeadm::{self, State};
use globalps_testkit::{DEADLINE, until};
use serde_json::{Value, json};

static PROGRAM: LazyLock<Program> = LazyLock::new(|| Program::shipped().unwrap());
static KUBEADM: LazyLock<PathBuf> = LazyLock::new(|| kubeadm::build().unwrap());
static VERSION: LazyLock<String> = LazyLock::new(kubeadm::version);

/// The result of a rewrite for the flags of each state.
const REWRITTEN: &str = "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.1 --v=2\"\n";

fn ask(generation: i64, delivery: Delivery) -> Ask {
    Ask {
        generation,
        revision: Some(generation),
        credentials: json!({"auths": {"r.example.com": {"auth": "dTox"}}}).to_string(),
        delivery,
        kubelet_version: &VERSION,
        foreign_owner: "",
        updated_in_place: false,
        may_replace: String::new(),
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

fn words(directory: &Path) -> BTreeSet<String> {
    let value = flags(directory).replace(['"', '='], " ");
    value.split_whitespace().map(str::to_owned).collect()
}

fn instance_config(directory: &Path) -> PathBuf {
    directory.join("instance-config.yaml")
}

/// Writes the kubelet's files, and returns the flags.
fn prepare(directory: &Path, state: State) -> String {
    let flag = state
        .flag()
        .map_or(String::new(), |flag| flag.to_owned() + " ");
    let text = format!("KUBELET_KUBEADM_ARGS=\"--v=2 {flag}--node-ip=10.0.0.1\"\n");
    fs::write(file(directory), &text).unwrap();
    fs::write(directory.join("config.yaml"), "{}").unwrap();
    if state == State::InstanceConfig {
        let socket = "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n";
        fs::write(instance_config(directory), socket).unwrap();
    }
    text
}

fn upgrade(directory: &Path) {
    let backups = tempfile::tempdir().unwrap();
    let mut kubeadm = Command::new(&*KUBEADM);
    let output = kubeadm.args([directory, backups.path()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn node(directory: &Path, ask: &Ask) -> BareNode {
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
fn kubeadm_rewrites_flags_in_the_states_of_its_release_only() {
    for state in State::ALL {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let before = prepare(directory, state);
        upgrade(directory);
        let expected = match state.is_rewritten(kubeadm::minor()) {
            true => REWRITTEN,
            false => &before,
        };
        assert_eq!(flags(directory), expected, "{state:?} {}", *VERSION);
    }
}

#[test]
fn an_upgrade_beside_delivery_restarts_nothing_and_stays() {
    for (state, is_before) in State::ALL
        .map(|state| [(state, true), (state, false)])
        .concat()
    {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let before = prepare(directory, state);
        let node = node(directory, &by_provider(1));
        let end = match state.is_rewritten(kubeadm::minor()) {
            true => REWRITTEN,
            false => &before,
        };
        if is_before {
            upgrade(directory);
            assert_eq!(flags(directory), end);
        }
        let _syncer = node.syncer(&PROGRAM).unwrap();
        wait(&node, "Synced", "CredentialProvider");
        assert!(node.has_credential("r.example.com").unwrap());
        // The watch begins when the syncer reports.
        sleep(Duration::from_millis(300));
        let delivered = flags(directory);
        upgrade(directory);
        let upgraded = flags(directory);
        let is_rewritten = !is_before && end == REWRITTEN;
        assert_eq!(upgraded != delivered, is_rewritten, "{state:?}: {upgraded}");
        sleep(Duration::from_secs(2));
        assert_eq!(flags(directory), upgraded, "the same meaning is no drift");
        assert_eq!(node.restarts(), 1);
        node.start_kubelet();
        assert!(node.has_provider() && node.would_start());
        assert!(node.has_credential("r.example.com").unwrap());
        node.ask(Some(restore(2)));
        wait_restored(&node);
        assert_eq!(flags(directory), end, "{state:?}");
        assert_eq!((node.restarts(), node.has_provider()), (2, false));
        assert!(!directory.join(".globalps").exists());
    }
}

/// Adds the flags that this kubeadm removes, and upgrades.
fn rewrite(directory: &Path) {
    let mut text = flags(directory);
    for flag in [State::PauseImage, State::RuntimeSocket].map(|state| state.flag().unwrap()) {
        if !text.contains(flag) {
            text = text.replacen("=\"", &format!("=\"{flag} "), 1);
        }
    }
    fs::write(file(directory), text).unwrap();
    let _ = fs::remove_file(instance_config(directory));
    upgrade(directory);
}

#[test]
fn two_rewrites_a_second_for_a_minute_kill_no_kubelet() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    prepare(directory, State::Others);
    let node = node(directory, &by_provider(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let asks = [by_provider(1), ask(2, Delivery::ConfigFile), by_provider(3)];
    for ask in asks {
        node.ask(Some(ask));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            rewrite(directory);
            // Both write the whole file, so an old flag may return for a moment, which no program can prevent.
            let what = "flags with which a kubelet starts";
            let poll = Duration::from_millis(50);
            until(what, Duration::from_secs(2), poll, || {
                Ok(node.would_start().then_some(()))
            })
            .unwrap_or_else(|error| panic!("{error:#}: {}", flags(directory)));
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
    let alone = tempfile::tempdir().unwrap();
    prepare(alone.path(), State::Others);
    rewrite(alone.path());
    assert_eq!(words(directory), words(alone.path()), "the same meaning");
}

#[test]
fn flags_in_the_middle_of_a_write_are_read_again() {
    // A slow machine may take longer than the syncer waits.
    let is_by_provider = (0..5).any(|_| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let whole = prepare(directory, State::PauseImage);
        fs::write(file(directory), "").unwrap();
        let node = node(directory, &by_provider(1));
        let _syncer = node.syncer(&PROGRAM).unwrap();
        sleep(Duration::from_millis(200));
        fs::write(file(directory), &whole).unwrap();
        let is_synced = |status: &Value| status["phase"] == "Synced";
        let status = node.wait_status("Synced", DEADLINE, is_synced).unwrap();
        status["delivery"] == "CredentialProvider"
    });
    assert!(is_by_provider);
}

#[test]
fn a_provider_without_state_is_adopted_or_removed_flags_first() {
    for (is_restored, is_by_hand) in [(true, false), (true, true), (false, false)] {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let before = prepare(directory, State::PauseImage);
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
        assert_eq!(flags(directory) == before, is_restored);
        assert!(node.would_start());
        node.start_kubelet();
        assert_eq!(node.has_provider(), !is_restored);
    }
}
