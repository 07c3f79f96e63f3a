//! One syncer, step by step, on a bare node.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use globalps_core::names::{self, GLOBAL_SECRET, ROLLED_OUT_SECRET};
use globalps_testkit::bare_node::{Ask, BareNode, Failures, Program, Secret};
use globalps_testkit::until;
use serde_json::{Value, json};

static PROGRAM: LazyLock<Program> = LazyLock::new(|| Program::shipped().unwrap());

/// Deadline for actions that take a syncer milliseconds, or seconds if the kubelet fails.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// An assignment whose generation equals the number of its revision.
fn ask(revision: i64) -> Ask {
    Ask {
        generation: revision,
        revision: Some(revision),
        credentials: credentials(revision),
        ..Ask::default()
    }
}

fn credentials(revision: i64) -> String {
    format!(
        r#"{{"auths":{{"r.example.com":{{"auth":"{}"}}}}}}"#,
        auth(revision)
    )
}

fn auth(revision: i64) -> &'static str {
    ["", "dTox", "dToy", "dToz"][usize::try_from(revision).unwrap()]
}

fn restore(generation: i64) -> Ask {
    Ask {
        generation,
        revision: None,
        credentials: String::new(),
        ..Ask::default()
    }
}

/// The object as created, without an assignment.
fn unassigned() -> Ask {
    Ask {
        generation: 1,
        revision: Some(0),
        credentials: String::new(),
        ..Ask::default()
    }
}

fn is_synced(status: &Value, revision: i64) -> bool {
    status["phase"] == "Synced" && status["revision"] == revision
}

fn start(directory: &Path, ask: &Ask) -> BareNode {
    BareNode::start(directory, ask, 1, Failures::NONE).unwrap()
}

fn wait_synced(node: &BareNode, revision: i64) -> Value {
    let is_wanted = |status: &Value| is_synced(status, revision);
    node.wait_status("the revision to be in effect", DEADLINE, is_wanted)
        .unwrap()
}

fn file(directory: &Path) -> String {
    fs::read_to_string(directory.join("config.json")).unwrap_or_default()
}

#[test]
fn a_syncer_follows_its_object() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &unassigned());
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let status = node
        .wait_status("a phase", DEADLINE, |status| status["phase"] == "Pending")
        .unwrap();
    assert_eq!(status["restored"], true, "there is nothing to restore");
    let mut times = Vec::new();
    for revision in 2..=3 {
        node.ask(Some(ask(revision)));
        let status = wait_synced(&node, revision);
        assert_eq!(file(directory.path()), credentials(revision));
        assert_eq!(status["restored"], false);
        times.push(status["kubeletRestartedAt"].as_str().unwrap().to_owned());
    }
    assert!(times[0] < times[1], "{times:?}");
    node.ask(Some(restore(4)));
    node.wait_status("the restore", DEADLINE, |status| {
        status["phase"] == "Restored" && status["restored"] == true
    })
    .unwrap();
    assert_eq!(file(directory.path()), "");
}

#[test]
fn the_restarts_time_survives_the_syncer_no_restart_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &ask(1));
    let syncer = node.syncer(&PROGRAM).unwrap();
    let first = wait_synced(&node, 1);
    assert!(first["kubeletRestartedAt"].is_string(), "{first}");
    syncer.kill().unwrap();
    node.ask(Some(Ask {
        generation: 2,
        ..ask(1)
    }));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let second = node
        .wait_status("an answer", DEADLINE, |status| {
            status["observedGeneration"] == 2 && is_synced(status, 1)
        })
        .unwrap();
    assert_eq!(first["kubeletRestartedAt"], second["kubeletRestartedAt"]);
    assert_eq!(node.restarts(), 1);

    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &ask(1)).with_arguments(&["--restart=Never"]);
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let status = wait_synced(&node, 1);
    assert_eq!(status["kubeletRestartedAt"], Value::Null);
}

#[test]
fn without_an_object_a_node_takes_nothing_and_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &ask(1));
    node.ask(None);
    let _syncer = node.syncer(&PROGRAM).unwrap();
    until("readiness", DEADLINE, POLL, || {
        Ok(node.is_ready().then_some(()))
    })
    .unwrap();
    // By now an older version would apply a revision that succeeded on another node.
    sleep(Duration::from_secs(2));
    assert_eq!(file(directory.path()), "");
    node.ask(Some(ask(1)));
    wait_synced(&node, 1);
}

#[test]
fn a_syncer_is_ready_if_its_node_waits_not_if_another_works() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &unassigned());
    let lock = lock(directory.path());
    let _syncer = node.syncer(&PROGRAM).unwrap();
    until("another syncer", DEADLINE, POLL, || {
        Ok(node.log().contains("another syncer").then_some(()))
    })
    .unwrap();
    assert!(!node.is_ready());
    drop(lock);
    until("readiness", DEADLINE, POLL, || {
        Ok(node.is_ready().then_some(()))
    })
    .unwrap();
    assert_eq!(node.restarts(), 0);
}

/// Locks the directory like another process on the node, which only root can do.
fn lock(directory: &Path) -> fs::File {
    let path = directory.join(names::LOCK_FILE);
    let lock = fs::File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    lock.lock().unwrap();
    lock
}

#[test]
fn a_syncer_without_the_lock_says_why_and_no_other_user_has_it() {
    let directory = tempfile::tempdir().unwrap();
    // A read-only mount is enough for this.
    let mount = fs::File::open(directory.path()).unwrap();
    mount.lock().unwrap();
    let node = start(directory.path(), &ask(1));
    let first = node.syncer(&PROGRAM).unwrap();
    wait_synced(&node, 1);
    first.kill().unwrap();
    let lock = lock(directory.path());
    node.ask(Some(ask(2)));
    let _second = node.syncer(&PROGRAM).unwrap();
    let status = node
        .wait_status("the reason", DEADLINE, |status| {
            status["reason"] == "AnotherSyncer"
        })
        .unwrap();
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["observedGeneration"], 2);
    assert_eq!(status["revision"], 1, "as last reported");
    assert!(!node.is_ready());
    drop(lock);
    // The controller assigns again.
    node.ask(Some(ask(3)));
    wait_synced(&node, 3);
    node.ask(Some(restore(4)));
    node.wait_status("the restore", DEADLINE, |status| {
        status["phase"] == "Restored"
    })
    .unwrap();
    assert!(!directory.path().join(names::LOCK_FILE).exists());
}

#[test]
fn during_an_update_the_node_has_its_own_file_unchanged() {
    const OWN: &str = "{ \"auths\": {\"own.example.com\": {\"auth\": \"bzpv\"}} }\n";
    const THEIRS: &str = "{\"auths\":{\"r.example.com\":{\"auth\":\"bmV3\"}}}";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, OWN).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let node = start(directory.path(), &ask(1));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait_synced(&node, 1);
    let update = |generation| Ask {
        generation,
        foreign_owner: names::MACHINE_CONFIG_UPDATE,
        ..ask(1)
    };
    let wait_aside = |generation: i64| {
        node.wait_status("the reason", DEADLINE, |status| {
            status["phase"] == "SteppedAside" && status["observedGeneration"] == generation
        })
        .unwrap()
    };
    let has_mode = |mode| fs::metadata(&path).unwrap().mode() & 0o777 == mode;
    node.ask(Some(update(2)));
    assert_eq!(wait_aside(2)["revision"], 0);
    assert_eq!(file(directory.path()), OWN);
    assert!(has_mode(0o644) && !directory.path().join(".globalps").exists());
    fs::write(&path, THEIRS).unwrap();
    node.ask(Some(update(3)));
    wait_aside(3);
    sleep(Duration::from_secs(1));
    assert_eq!(file(directory.path()), THEIRS);
    assert!(has_mode(0o644));
    node.ask(Some(Ask {
        generation: 4,
        ..ask(1)
    }));
    let status = node
        .wait_status("the end of the update", DEADLINE, |status| {
            is_synced(status, 1) && status["observedGeneration"] == 4
        })
        .unwrap();
    assert_eq!(status["drifts"], 0);
    assert_eq!(node.restarts(), 2);
    node.ask(Some(restore(5)));
    node.wait_status("the restore", DEADLINE, |status| {
        status["phase"] == "Restored"
    })
    .unwrap();
    assert_eq!(file(directory.path()), THEIRS);
}

#[test]
fn files_of_others_are_replaced_once_the_controller_has_seen_no_update() {
    const OWN: &str = "{ \"auths\": {\"own.example.com\": {\"auth\": \"bzpv\"}} }\n";
    const THEIRS: &str = "{\"auths\":{\"r.example.com\":{\"auth\":\"bmV3\"}}}";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let overwrite = |content: &str| {
        let temporary = path.with_extension("theirs");
        fs::write(&temporary, content).unwrap();
        fs::rename(&temporary, &path).unwrap();
    };
    overwrite(OWN);
    let in_place = |generation, may_replace: &str| Ask {
        generation,
        updated_in_place: true,
        may_replace: may_replace.to_owned(),
        ..ask(1)
    };
    let update = |generation| Ask {
        foreign_owner: names::MACHINE_CONFIG_UPDATE,
        ..in_place(generation, "")
    };
    let node = start(directory.path(), &in_place(1, ""));
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let wait_asked = |last: &str| {
        let status = node.wait_status("the question", DEADLINE, |status| {
            let found = &status["foundFile"];
            status["reason"] == "WaitingForConfirmation" && found != last && found != ""
        });
        status.unwrap()["foundFile"].as_str().unwrap().to_owned()
    };
    let wait_aside = |generation: i64| {
        let status = node.wait_status("the reason", DEADLINE, |status| {
            status["phase"] == "SteppedAside" && status["observedGeneration"] == generation
        });
        status.unwrap()
    };
    let first = wait_asked("");
    assert_eq!(file(directory.path()), OWN);
    node.ask(Some(in_place(1, &first)));
    wait_synced(&node, 1);
    assert_ne!(file(directory.path()), OWN);
    // Drift, or the daemon's write before anybody told of the update.
    overwrite(THEIRS);
    let second = wait_asked(&first);
    overwrite(THEIRS);
    let third = wait_asked(&second);
    node.ask(Some(in_place(1, &second)));
    sleep(Duration::from_secs(1));
    assert_eq!(file(directory.path()), THEIRS, "another file was confirmed");
    node.ask(Some(update(2)));
    wait_aside(2);
    sleep(Duration::from_millis(500));
    assert_eq!(file(directory.path()), THEIRS);
    // The update ends, and the next one begins at once.
    node.ask(Some(in_place(3, "")));
    assert_eq!(wait_asked(&second), third);
    node.ask(Some(in_place(3, &third)));
    let status = node
        .wait_status("the end of the update", DEADLINE, |status| {
            is_synced(status, 1) && status["observedGeneration"] == 3
        })
        .unwrap();
    assert_eq!(
        (&status["foundFile"], &status["drifts"]),
        (&json!(""), &json!(0))
    );
    node.ask(Some(Ask {
        foreign_owner: names::MACHINE_CONFIG_UPDATE,
        updated_in_place: true,
        ..restore(4)
    }));
    node.wait_status("the restore", DEADLINE, |status| {
        status["phase"] == "Restored"
    })
    .unwrap();
    assert_eq!(file(directory.path()), THEIRS, "removed during an update");
    assert_eq!(node.restarts(), 2, "each time with other content");
}

#[test]
fn a_standby_syncer_is_ready_while_another_one_answers() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &ask(1));
    let first = node.syncer(&PROGRAM).unwrap();
    wait_synced(&node, 1);
    first.kill().unwrap();
    let lock = lock(directory.path());
    let _second = node.syncer(&PROGRAM).unwrap();
    until("the second syncer to stand by", DEADLINE, POLL, || {
        Ok((node.log().contains("another syncer") && node.is_ready()).then_some(()))
    })
    .unwrap();
    node.ask(Some(ask(2)));
    until("the syncer to lose its readiness", DEADLINE, POLL, || {
        Ok((!node.is_ready()).then_some(()))
    })
    .unwrap();
    drop(lock);
    wait_synced(&node, 2);
}

/// For example, its ServiceAccount was recreated, but its pod was not deleted: the next syncer waits for the node's lock.
#[test]
fn a_syncer_whose_token_is_not_taken_lets_go_of_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &ask(1));
    let mut syncer = node.syncer(&PROGRAM).unwrap();
    wait_synced(&node, 1);
    node.reject();
    until("the syncer to exit", Duration::from_mins(3), POLL, || {
        Ok(syncer.has_ended()?.then_some(()))
    })
    .unwrap();
    assert!(
        node.log().contains("no longer accepts this pod's token"),
        "{}",
        node.log()
    );
    assert_eq!(node.restarts(), 1, "and nothing else happens");
}

#[test]
fn an_older_revision_is_found_in_the_second_secret() {
    let rolled_out = |revision| Secret::Content {
        delivery: globalps_provider::Delivery::ConfigFile,
        revision,
        credentials: credentials(revision),
    };
    #[rustfmt::skip]
    let cases = [
        ("next to a newer one", rolled_out(2), rolled_out(1), "Synced", ""),
        ("without a newest one", Secret::Error(404), rolled_out(1), "Synced", ""),
        ("of another revision", rolled_out(2), rolled_out(3), "Syncing", "Superseded"),
        ("not there", rolled_out(2), Secret::Error(404), "Syncing", "Superseded"),
        ("an old Role", rolled_out(2), Secret::Error(403), "Syncing", "Superseded"),
        ("an error", rolled_out(2), Secret::Error(500), "Syncing", "SecretNotRead"),
    ];
    for (sentence, newest, second, phase, reason) in cases {
        let directory = tempfile::tempdir().unwrap();
        let node = start(directory.path(), &ask(1));
        node.secret(GLOBAL_SECRET, newest);
        node.secret(ROLLED_OUT_SECRET, second);
        let _syncer = node.syncer(&PROGRAM).unwrap();
        node.wait_status(sentence, DEADLINE, |status| {
            status["phase"] == phase && status["reason"] == reason
        })
        .unwrap();
        let expected = if phase == "Synced" {
            credentials(1)
        } else {
            String::new()
        };
        assert_eq!(file(directory.path()), expected, "{sentence}");
    }
}

/// Runs as a user other than root, because the files of a dumpable process in `/proc` belong to its user.
#[test]
fn a_syncers_memory_is_neither_dumped_nor_readable() {
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("globalps-syncer");
    // Copied by another process, because a program can't be executed while another test's new child process still has it open.
    let mut copy = Command::new("cp");
    assert!(
        copy.arg(PROGRAM.path())
            .arg(&program)
            .status()
            .unwrap()
            .success()
    );
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let cluster = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    fs::write(&kubeconfig, cluster.to_string()).unwrap();
    let mut syncer = Command::new(program)
        .args(["run", "--node-name=n", "--ready-file=/nowhere/ready"])
        .env("KUBECONFIG", kubeconfig)
        .uid(NOBODY)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = Path::new("/proc").join(syncer.id().to_string());
    let found = until("a process that belongs to root", DEADLINE, POLL, || {
        Ok((process.join("status").metadata()?.uid() == 0).then_some(()))
    });
    let limits = fs::read_to_string(process.join("limits")).unwrap();
    syncer.kill().unwrap();
    syncer.wait().unwrap();
    found.unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<_> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"]);
}

fn wait_reason(node: &BareNode, phase: &str, reason: &str) -> Value {
    node.wait_status(reason, DEADLINE, |status| {
        status["phase"] == phase && status["reason"] == reason
    })
    .unwrap()
}

/// Number of attempts at a change and at its rollback, all of which fail.
const GIVEN_UP: usize = 6;

#[test]
fn a_kubelet_that_stays_down_is_started_until_it_serves() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &ask(1));
    let syncer = node.syncer(&PROGRAM).unwrap();
    wait_synced(&node, 1);
    node.fail(Failures(GIVEN_UP + 1, "failed"));
    node.ask(Some(ask(2)));
    let status = wait_reason(&node, "Failed", "KubeletDown");
    assert_eq!(status["observedGeneration"], 2);
    assert_eq!(node.restarts(), 1 + GIVEN_UP);
    assert_eq!(file(directory.path()), credentials(1));
    // The next syncer continues.
    syncer.kill().unwrap();
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let status = wait_reason(&node, "RolledBack", "KubeletRecovered");
    assert_eq!(
        (&status["revision"], &status["observedGeneration"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(node.restarts(), 1 + GIVEN_UP + 2);
    assert_eq!(status["restarts"], 1 + GIVEN_UP + 2);
    assert_eq!(node.kubelet_read().unwrap(), credentials(1).into_bytes());
    node.ask(Some(ask(3)));
    wait_synced(&node, 3);
}

#[test]
fn a_foreign_kubelet_start_is_seen_and_delays_no_newer_revision() {
    let directory = tempfile::tempdir().unwrap();
    let node = BareNode::start(directory.path(), &ask(1), 1, Failures(1000, "failed")).unwrap();
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait_reason(&node, "Failed", "KubeletDown");
    node.fail(Failures::NONE);
    node.start_kubelet();
    wait_reason(&node, "RolledBack", "KubeletRecovered");
    assert!(node.restarts() <= GIVEN_UP + 2, "{}", node.restarts());

    node.fail(Failures(GIVEN_UP, "failed"));
    node.ask(Some(ask(2)));
    wait_reason(&node, "Failed", "KubeletDown");
    node.ask(Some(ask(3)));
    wait_synced(&node, 3);
}

#[test]
fn a_nodes_error_ends_the_attempt_until_another_generation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    symlink("elsewhere", &path).unwrap();
    let node = start(directory.path(), &unassigned());
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let status = node.wait_status("a phase", DEADLINE, |_| true).unwrap();
    assert_eq!(status["phase"], "Pending", "the node has no assignment");

    node.ask(Some(ask(2)));
    wait_reason(&node, "Failed", "NotARegularFile");
    fs::remove_file(&path).unwrap();
    // Longer than the interval between two attempts.
    sleep(Duration::from_secs(12));
    assert_eq!(
        (node.restarts(), file(directory.path())),
        (0, String::new())
    );
    assert_eq!(node.status().unwrap()["phase"], "Failed");

    node.ask(Some(Ask {
        generation: 3,
        ..ask(2)
    }));
    wait_synced(&node, 2);
    // The content is in force, and maintained again as soon as possible. This happens at once, because the syncer
    // writes a missing file again.
    let link = directory.path().join("link");
    symlink("elsewhere", &link).unwrap();
    fs::rename(&link, &path).unwrap();
    wait_reason(&node, "Failed", "NotARegularFile");
    fs::remove_file(&path).unwrap();
    wait_synced(&node, 2);
    assert_eq!(file(directory.path()), credentials(2));
}

fn mode(directory: &Path) -> u32 {
    let file = directory.join("config.json").metadata().unwrap();
    file.mode() & 0o7777
}

const OWN: &str = r#"{"auths":{"own.example.com":{"auth":"bzpv"}}}"#;

#[test]
fn a_file_others_may_read_is_narrowed_and_gets_its_mode_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let chmod = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    fs::write(&path, OWN).unwrap();
    chmod(0o644);
    let node = start(directory.path(), &ask(1));
    let syncer = node.syncer(&PROGRAM).unwrap();
    let status = wait_reason(&node, "Synced", "ModeNarrowed");
    assert!(
        status["message"].as_str().unwrap().contains("0644"),
        "{status}"
    );
    assert_eq!(mode(directory.path()), 0o600);

    // Another process widens the mode again, with a running syncer and without one.
    chmod(0o644);
    let narrow = || Ok((mode(directory.path()) == 0o600).then_some(()));
    until(
        "a file that only its owner can read",
        DEADLINE,
        POLL,
        narrow,
    )
    .unwrap();
    wait_reason(&node, "Synced", "DriftRepaired");
    syncer.kill().unwrap();
    chmod(0o640);
    let _syncer = node.syncer(&PROGRAM).unwrap();
    until(
        "a file that only its owner can read",
        DEADLINE,
        POLL,
        narrow,
    )
    .unwrap();
    assert_eq!(
        node.restarts(),
        1,
        "a change of the mode restarts no kubelet"
    );

    // A rollback leaves the previous entries in the file.
    node.fail(Failures(3, "failed"));
    node.ask(Some(ask(2)));
    wait_reason(&node, "RolledBack", "KubeletDidNotStart");
    assert_eq!(mode(directory.path()), 0o600);
    node.ask(Some(restore(3)));
    node.wait_status("the restore", DEADLINE, |status| {
        status["phase"] == "Restored"
    })
    .unwrap();
    assert_eq!(
        (file(directory.path()).as_str(), mode(directory.path())),
        (OWN, 0o644)
    );
}

#[test]
fn a_rolled_back_first_revision_leaves_the_earlier_mode() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, OWN).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let node = BareNode::start(directory.path(), &ask(1), 1, Failures(3, "failed")).unwrap();
    let _syncer = node.syncer(&PROGRAM).unwrap();
    wait_reason(&node, "RolledBack", "KubeletDidNotStart");
    assert_eq!(
        (file(directory.path()).as_str(), mode(directory.path())),
        (OWN, 0o644)
    );
}

#[test]
fn a_superseded_revision_is_in_force_only_while_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(directory.path(), &ask(1));
    let syncer = node.syncer(&PROGRAM).unwrap();
    wait_synced(&node, 1);
    syncer.kill().unwrap();
    let newest = ask(2).credentials;
    let newest = Secret::Content {
        delivery: globalps_provider::Delivery::ConfigFile,
        revision: 2,
        credentials: newest,
    };
    node.secret(GLOBAL_SECRET, newest);
    fs::write(directory.path().join("config.json"), OWN).unwrap();
    node.assign(Ask {
        generation: 2,
        ..ask(1)
    });
    let _syncer = node.syncer(&PROGRAM).unwrap();
    node.wait_status("an answer", DEADLINE, |status| {
        status["observedGeneration"] == 2 && is_synced(status, 1)
    })
    .unwrap();
    let file = file(directory.path());
    assert!(
        file.contains(auth(1)) && file.contains("own.example.com"),
        "{file}"
    );
    assert_eq!(
        node.kubelet_read().unwrap(),
        file.into_bytes(),
        "the kubelet had been down for long"
    );
}

/// Output and exit status of the command.
fn restore_by_hand(node: &BareNode, arguments: &[&str]) -> (String, Option<i32>) {
    let output = node.restore(&PROGRAM, arguments).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    (said, output.status.code())
}

#[test]
fn a_node_is_restored_by_hand_and_what_was_done_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let state = directory.path().join(".globalps");
    fs::write(&path, OWN).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let node = start(directory.path(), &ask(1));
    let (said, status) = restore_by_hand(&node, &[]);
    assert!(said.contains("there is nothing to restore"), "{said}");
    assert_eq!(status, Some(0));

    let syncer = node.syncer(&PROGRAM).unwrap();
    wait_synced(&node, 1);
    let (said, status) = restore_by_hand(&node, &[]);
    assert!(said.contains("a syncer is running on it"), "{said}");
    assert_eq!((status, node.restarts()), (Some(2), 1));
    syncer.kill().unwrap();

    // Three failed attempts, and the rollback.
    let before = file(directory.path());
    node.fail(Failures(3, "failed"));
    let (said, status) = restore_by_hand(&node, &[]);
    assert!(said.contains("the kubelet did not start"), "{said}");
    assert_eq!(
        (status, file(directory.path()), state.exists()),
        (Some(1), before, true)
    );
    assert_eq!(node.restarts(), 1 + 4);

    let (said, status) = restore_by_hand(&node, &[]);
    assert!(
        said.contains("found revision 1 with 1 managed entry"),
        "{said}"
    );
    assert!(said.contains("this node is restored"), "{said}");
    assert_eq!(status, Some(0));
    assert_eq!(
        (file(directory.path()).as_str(), mode(directory.path())),
        (OWN, 0o640)
    );
    assert!(!state.exists());
    assert_eq!(node.restarts(), 1 + 4 + 1);
    assert_eq!(node.kubelet_read().unwrap(), OWN.as_bytes());
}

#[test]
fn a_restore_by_hand_finishes_interruptions_without_a_bus() {
    for arguments in [&["--bus=/nowhere/bus"][..], &["--restart=never"], &[]] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("config.json"), OWN).unwrap();
        let node = BareNode::start(directory.path(), &ask(1), 1, Failures(1000, "failed")).unwrap();
        let syncer = node.syncer(&PROGRAM).unwrap();
        until("a restart", DEADLINE, POLL, || {
            Ok((node.restarts() > 1).then_some(()))
        })
        .unwrap();
        syncer.kill().unwrap();
        node.fail(Failures::NONE);
        let restarts = node.restarts();
        let (said, status) = restore_by_hand(&node, arguments);
        assert!(
            said.contains("finishing an interrupted change first"),
            "{said}"
        );
        assert_eq!(
            (status, file(directory.path()).as_str()),
            (Some(0), OWN),
            "{said}"
        );
        assert!(!directory.path().join(".globalps").exists());
        let is_restarted = node.restarts() > restarts;
        assert_eq!(is_restarted, arguments.is_empty(), "{said}");
        assert_eq!(
            said.contains("the kubelet is not restarted"),
            !is_restarted,
            "{said}"
        );
    }
}

#[test]
fn a_syncer_with_a_damaged_state_works_but_for_its_node() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join(".globalps");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("state.json"), "{").unwrap();
    let node = start(directory.path(), &unassigned());
    let _syncer = node.syncer(&PROGRAM).unwrap();
    let status = node.wait_status("a phase", DEADLINE, |_| true).unwrap();
    assert_eq!(status["phase"], "Pending", "the node has no assignment");
    assert_eq!(
        status["restored"], false,
        "what is to be restored is unknown"
    );
    assert!(node.is_ready());
    node.ask(Some(ask(2)));
    wait_reason(&node, "Failed", "StateDamaged");
    fs::remove_dir_all(&state).unwrap();
    sleep(Duration::from_secs(12));
    assert_eq!(
        file(directory.path()),
        "",
        "only a new generation is applied"
    );
    node.ask(Some(ask(3)));
    wait_synced(&node, 3);
}

#[test]
fn a_damaged_state_is_not_restored_from() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join(".globalps");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("state.json"), "{").unwrap();
    let node = start(directory.path(), &ask(1));
    let (said, status) = restore_by_hand(&node, &[]);
    assert!(said.contains("is damaged"), "{said}");
    assert_eq!(status, Some(2));
}
