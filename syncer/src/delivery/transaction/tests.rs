use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use globalps_dockerconfig::{DockerConfig, merge_on_node};
use globalps_provider::{Content, ProviderConfig, render_data, trials};

use globalps_core::rollout::{Revision, RevisionId};

use super::*;
use crate::node::managed::ManagedEntries;
use crate::node::provider::HostPath;
use crate::node::state::{InstalledProvider, ProviderChange, Superseded, Task};
use crate::node::systemd::ProviderFlag;

/// Fails the first `failures` restarts, and counts all of them.
#[derive(Default)]
struct Fake {
    failures: usize,
    restarts: usize,
    serves_since: bool,
    provider_config: Option<String>,
    /// systemd does not list the processes.
    is_unlisted: bool,
    cooldown: Duration,
    /// What another process writes while the kubelet starts, and to which file.
    written_meanwhile: Option<(PathBuf, &'static str)>,
    /// The state directory, which can't be written any more once the kubelet was started.
    full_disk: Option<PathBuf>,
    /// The bus disappears with this call, counted from 0.
    bus_until: Option<usize>,
    /// Instead, systemd answers this call with an error.
    is_answered: bool,
    calls: usize,
}

impl Fake {
    fn call(&mut self) -> Result<(), KubeletError> {
        self.calls += 1;
        if self.bus_until.is_some_and(|until| self.calls > until) {
            return Err(if self.is_answered {
                KubeletError::Systemd("no access".to_owned())
            } else {
                KubeletError::Bus("no bus".to_owned())
            });
        }
        Ok(())
    }
}

impl Kubelet for Fake {
    fn unit(&self) -> Option<String> {
        None
    }

    async fn invocation(&mut self) -> Result<String, KubeletError> {
        self.call()?;
        Ok(self.restarts.to_string())
    }

    fn cooldown(&self) -> Duration {
        self.cooldown
    }

    async fn restart(&mut self, _reset_failed: bool) -> Result<(), KubeletError> {
        self.call()?;
        self.restarts += 1;
        if let Some((path, text)) = self.written_meanwhile.take() {
            fs::write(path, text).unwrap();
        }
        if let Some(directory) = self.full_disk.take() {
            fs::remove_dir_all(&directory).unwrap();
            fs::write(directory, "").unwrap();
        }
        if self.restarts <= self.failures {
            Err(KubeletError::Kubelet(
                "the restart ended as `failed`".to_owned(),
            ))
        } else {
            Ok(())
        }
    }

    async fn serves_since(&mut self, _since: &Since) -> Result<bool, KubeletError> {
        self.call()?;
        Ok(self.serves_since)
    }

    async fn provider_flag(&mut self) -> Result<ProviderFlag, KubeletError> {
        self.call()?;
        if self.is_unlisted {
            return Err(KubeletError::Systemd("Input/output error".to_owned()));
        }
        let flag = self.provider_config.clone();
        Ok(flag.map_or(ProviderFlag::Absent, ProviderFlag::Is))
    }
}

const OLD: &str = r#"{"auths":{"old.registry.com":{"auth":"b2xkOnRlc3Q="}}}"#;
const NEW: &str = r#"{"auths":{"test.registry.com":{"auth":"dGVzdDp0ZXN0"}}}"#;

/// A provider whose program is `program` next to the file.
fn provider(path: &Path) -> Provider {
    let path = HostPath {
        here: path.to_owned(),
        host: path.to_owned(),
    };
    Provider::new(path.here.with_file_name("program"), &path, None)
}

/// A node with its credentials file and its journal in a directory.
struct Node {
    directory: tempfile::TempDir,
    path: PathBuf,
    journal: Journal,
    provider: Provider,
}

impl Node {
    fn with(file: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        if file.is_some() {
            file::replace(&path, &image(file)).unwrap();
        }
        Self {
            journal: Journal::next_to(&path, "a"),
            provider: provider(&path),
            path,
            directory,
        }
    }

    fn transaction<'a>(&'a self, kubelet: &'a mut Fake) -> Transaction<'a, Fake> {
        Transaction {
            journal: &self.journal,
            path: &self.path,
            provider: &self.provider,
            kubelet,
            guard: None,
        }
    }
}

fn image(text: Option<&str>) -> FileSnapshot {
    text.map_or(FileSnapshot::Absent, |text| {
        FileSnapshot::Absent.with_bytes(text.as_bytes().to_vec())
    })
}

/// 0: none.
fn revision(number: i64) -> Revision {
    let id = RevisionId::from_random(u64::from(number > 0));
    Revision::new(number, id)
}

fn change(before: &FileSnapshot, number: i64, restart: bool) -> PendingChange {
    PendingChange {
        task: Task {
            uid: "u".to_owned(),
            generation: 1,
            revision: revision(number),
        },
        step: ChangeStep::Forward,
        target: image(Some(NEW)),
        target_managed: ManagedEntries::default(),
        restart,
        started_from: None,
        before: before.clone(),
        before_managed: ManagedEntries::default(),
        superseded: None,
        before_revision: revision(3),
        back_from: None,
        failure: String::new(),
        provider: None,
    }
}

fn on_disk(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[tokio::test(start_paused = true)]
async fn a_change_is_in_force_or_rolled_back() {
    #[rustfmt::skip]
    let cases = [
        ("an absent file is written", None, true, 0, 1, Some(NEW), true),
        ("a file is replaced", Some(OLD), true, 0, 1, Some(NEW), true),
        ("the third attempt succeeds", Some(OLD), true, 2, 3, Some(NEW), true),
        ("no restart unless needed", Some(OLD), false, 9, 0, Some(NEW), true),
        (
            "three failures: the file is restored, and the kubelet restarted with it",
            Some(OLD),
            true,
            3,
            4,
            Some(OLD),
            false,
        ),
        ("three failures: an absent file is removed again, not empty", None, true, 3, 4, None, false),
        ("even if the kubelet does not come up again", Some(OLD), true, 9, 6, Some(OLD), false),
    ];
    for (sentence, before, restart, failures, restarts, after, in_force) in cases {
        let node = Node::with(before);
        let mut state = JournalState::new(image(before), 0);
        let mut kubelet = Fake {
            failures,
            ..Fake::default()
        };
        let mut transaction = node.transaction(&mut kubelet);
        let outcome = transaction
            .begin(&mut state, change(&image(before), 4, restart))
            .await
            .unwrap();
        assert_eq!(on_disk(&node.path).as_deref(), after, "{sentence}");
        assert_eq!(kubelet.restarts, restarts, "{sentence}");
        assert_eq!(
            outcome == ChangeOutcome::InForce,
            in_force,
            "{sentence}: {outcome:?}"
        );
        let saved = node.journal.load().unwrap().unwrap();
        assert_eq!(
            saved.revision.number,
            if in_force { 4 } else { 3 },
            "{sentence}"
        );
        assert_eq!(
            saved.failed.is_some(),
            !in_force,
            "{sentence}: the failed task is recorded"
        );
        if failures == 9 && restart {
            assert!(
                matches!(
                    outcome,
                    ChangeOutcome::RolledBack(FailedTask { stuck: true, .. })
                ),
                "{sentence}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_interrupted_at_any_step_is_continued() {
    let asked = Some("0".to_owned());
    #[rustfmt::skip]
    let cases = [
        ("before the file was written", ChangeStep::Forward, false, (None, None), false, 1, NEW),
        (
            "before the file was written, and another process started the kubelet",
            ChangeStep::Forward,
            false,
            (None, None),
            true,
            1,
            NEW,
        ),
        ("before the restart was requested", ChangeStep::Forward, true, (None, None), false, 1, NEW),
        ("before the restart happened", ChangeStep::Forward, true, (asked.clone(), None), false, 1, NEW),
        ("after the restart: no other one", ChangeStep::Forward, true, (asked.clone(), None), true, 0, NEW),
        ("rolling back, before the file was written", ChangeStep::Back, true, (asked.clone(), None), false, 1, OLD),
        ("rolling back, before the restart was requested", ChangeStep::Back, false, (asked.clone(), None), true, 1, OLD),
        (
            "rolling back, after the restart: no other one",
            ChangeStep::Back,
            false,
            (asked.clone(), asked.clone()),
            true,
            0,
            OLD,
        ),
        ("rolling back, and no restart was requested: none is needed", ChangeStep::Back, true, (None, None), false, 0, OLD),
    ];
    for (sentence, step, written, (forward, back), taken_up, restarts, after) in cases {
        let node = Node::with(Some(if written { NEW } else { OLD }));
        let mut state = JournalState::new(image(Some(OLD)), 0);
        state.change = Some(PendingChange {
            step,
            started_from: forward,
            back_from: back,
            ..change(&image(Some(OLD)), 4, true)
        });
        node.journal.save(&state).unwrap();

        let mut state = node.journal.load().unwrap().unwrap();
        let mut kubelet = Fake {
            serves_since: taken_up,
            ..Fake::default()
        };
        let mut transaction = node.transaction(&mut kubelet);
        transaction.resume(&mut state).await.unwrap();
        assert_eq!(on_disk(&node.path).as_deref(), Some(after), "{sentence}");
        assert_eq!(kubelet.restarts, restarts, "{sentence}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_bus_a_change_waits_then_has_one_restart() {
    for (sentence, bus_until, written, is_answered) in [
        ("no bus from the start: nothing is written", 0, false, false),
        ("no bus before the restart", 1, true, false),
        ("no bus in the middle of the restart", 2, true, false),
        (
            "an error from the start: nothing is written",
            0,
            false,
            true,
        ),
        ("an error before the restart", 1, true, true),
        ("an error in the middle of the restart", 2, true, true),
    ] {
        let node = Node::with(Some(OLD));
        let mut state = JournalState::new(image(Some(OLD)), 0);
        let mut kubelet = Fake {
            bus_until: Some(bus_until),
            is_answered,
            ..Fake::default()
        };
        let mut transaction = node.transaction(&mut kubelet);
        let change = change(&image(Some(OLD)), 4, true);
        let error = transaction
            .begin(&mut state, change.clone())
            .await
            .unwrap_err();
        let reason = if is_answered {
            "SystemdError"
        } else {
            "SystemBusUnavailable"
        };
        assert_eq!(error.reason().as_str(), reason, "{sentence}");
        let content = if written { NEW } else { OLD };
        assert_eq!(on_disk(&node.path).as_deref(), Some(content), "{sentence}");

        let state = node.journal.load().unwrap();
        assert_eq!(state.is_some(), written, "{sentence}");
        let mut state = state.unwrap_or_else(|| JournalState::new(image(Some(OLD)), 0));
        let mut kubelet = Fake::default();
        let mut transaction = node.transaction(&mut kubelet);
        let outcome = match state.change {
            Some(_) => transaction.resume(&mut state).await.unwrap(),
            None => transaction.begin(&mut state, change).await.unwrap(),
        };
        assert_eq!(outcome, ChangeOutcome::InForce, "{sentence}");
        assert_eq!(on_disk(&node.path).as_deref(), Some(NEW), "{sentence}");
        assert_eq!(kubelet.restarts, 1, "{sentence}");
    }
}

/// With `restart: Never` the pod has no bus, but the journal may contain a change of the previous pod.
#[tokio::test(start_paused = true)]
async fn a_change_whose_restart_is_waived_needs_no_bus() {
    let asked = Some("0".to_owned());
    for (sentence, step, started_from, back_from, after) in [
        ("not requested yet", ChangeStep::Forward, None, None, NEW),
        ("requested", ChangeStep::Forward, asked.clone(), None, NEW),
        (
            "under observation",
            ChangeStep::Watching,
            asked.clone(),
            None,
            NEW,
        ),
        ("rolling back", ChangeStep::Back, asked.clone(), None, OLD),
        (
            "requested while rolling back",
            ChangeStep::Back,
            asked.clone(),
            asked.clone(),
            OLD,
        ),
    ] {
        let node = Node::with(Some(NEW));
        let mut state = JournalState::new(image(Some(OLD)), 0);
        let mut begun = PendingChange {
            step,
            started_from,
            back_from,
            ..change(&image(Some(OLD)), 4, true)
        };
        begun.waive_restart();
        state.change = Some(begun);
        let mut kubelet = Fake {
            bus_until: Some(0),
            ..Fake::default()
        };
        let mut transaction = node.transaction(&mut kubelet);
        transaction
            .resume(&mut state)
            .await
            .unwrap_or_else(|error| panic!("{sentence}: {error}"));
        assert_eq!(kubelet.calls, 0, "{sentence}");
        assert_eq!(on_disk(&node.path).as_deref(), Some(after), "{sentence}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_just_restarted_restarts_after_the_cooldown() {
    let node = Node::with(None);
    let mut state = JournalState::new(FileSnapshot::Absent, 0);
    let cooldown = Duration::from_secs(7);
    let mut kubelet = Fake {
        cooldown,
        ..Fake::default()
    };
    let mut transaction = node.transaction(&mut kubelet);
    let change = change(&FileSnapshot::Absent, 4, true);
    let outcome = transaction.begin(&mut state, change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::Written(cooldown));
    assert_eq!(on_disk(&node.path).as_deref(), Some(NEW));
    transaction.kubelet.cooldown = Duration::ZERO;
    let outcome = transaction.resume(&mut state).await.unwrap();
    assert_eq!((outcome, kubelet.restarts), (ChangeOutcome::InForce, 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_only_the_number_of_restarts_is_left() {
    let node = Node::with(Some(NEW));
    let mut state = JournalState::new(image(None), 6);
    state.revision = revision(3);
    let failed = Task {
        uid: "u".to_owned(),
        generation: 1,
        revision: revision(2),
    };
    state.failed = Some(FailedTask {
        task: failed,
        error: String::new(),
        stuck: false,
        recovered: false,
        is_of_provider: false,
    });
    let mut kubelet = Fake::default();
    let mut transaction = node.transaction(&mut kubelet);
    let restore = PendingChange {
        target: image(None),
        ..change(&image(Some(NEW)), 0, true)
    };
    assert_eq!(
        transaction.begin(&mut state, restore).await.unwrap(),
        ChangeOutcome::InForce
    );
    assert_eq!(on_disk(&node.path), None);
    assert_eq!(state.revision, Revision::NONE);
    assert_eq!((state.restarts, state.failed), (7, None));
    assert_eq!(fs::read_dir(node.directory.path()).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_file_is_restored_if_the_kubelet_dies_under_observation() {
    let node = Node::with(Some(OLD));
    let mut state = JournalState::new(image(Some(OLD)), 0);
    let mut kubelet = Fake::default();
    let mut transaction = node.transaction(&mut kubelet);
    transaction
        .begin(&mut state, change(&image(Some(OLD)), 4, true))
        .await
        .unwrap();
    let outcome = transaction
        .roll_back(&mut state, "it died".to_owned())
        .await
        .unwrap();
    assert!(
        matches!(outcome, ChangeOutcome::RolledBack(FailedTask { error, stuck: false, .. }) if error == "it died")
    );
    assert_eq!(on_disk(&node.path).as_deref(), Some(OLD));
    assert_eq!(
        (kubelet.restarts, state.restarts, state.revision),
        (2, 2, revision(3))
    );
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_file_causes_no_change_and_no_restart() {
    let node = Node::with(None);
    fs::create_dir(&node.path).unwrap();
    let mut state = JournalState::new(FileSnapshot::Absent, 0);
    let mut kubelet = Fake::default();
    let mut transaction = node.transaction(&mut kubelet);
    let error = transaction
        .begin(&mut state, change(&FileSnapshot::Absent, 4, true))
        .await
        .unwrap_err();
    assert_eq!(error.reason().as_str(), "NotARegularFile");
    assert_eq!(kubelet.restarts, 0);
    let saved = node.journal.load().unwrap();
    assert!(saved.is_none_or(|state| state.change.is_none()));
}

const THEIRS: &str =
    r#"{"auths":{"old.registry.com":{"auth":"b2xkOnRlc3Q="},"theirs":{"auth":"bzpv"}}}"#;

#[tokio::test(start_paused = true)]
async fn entries_written_between_the_decision_and_the_change_stay() {
    for before in [image(None), image(Some(OLD))] {
        let node = Node::with(None);
        let mut state = JournalState::new(before.clone(), 0);
        let mut kubelet = Fake::default();
        let change = change(&before, 4, true);
        file::replace(&node.path, &image(Some(THEIRS))).unwrap();
        node.transaction(&mut kubelet)
            .begin(&mut state, change)
            .await
            .unwrap();
        let after = on_disk(&node.path).unwrap();
        assert!(after.contains("theirs"), "{before:?}: {after}");
    }
}

/// Whichever write collides with one of the syncer: content that is reported in force was written.
#[tokio::test]
async fn content_in_force_was_written_despite_a_concurrent_writer() {
    for _ in 0..20 {
        let node = Node::with(Some(OLD));
        let mut state = JournalState::new(image(Some(OLD)), 0);
        let mut kubelet = Fake::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (path, is_over) = (node.path.clone(), Arc::clone(&is_over));
            move || {
                let other = path.with_file_name("theirs");
                let contents = [THEIRS, OLD].iter().cycle();
                for text in contents.take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    fs::write(&other, text).unwrap();
                    fs::rename(&other, &path).unwrap();
                }
            }
        });
        let outcome = node
            .transaction(&mut kubelet)
            .begin(&mut state, change(&image(Some(OLD)), 4, false))
            .await;
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        match outcome {
            Ok(outcome) => assert_eq!(
                (outcome, state.revision.number),
                (ChangeOutcome::InForce, 4)
            ),
            Err(error) => {
                assert!(error.to_string().contains("at the same time"), "{error}");
                assert!(state.change.is_some(), "it continues");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_superseded_change_are_not_foreign() {
    const BETWEEN: &str = r#"{"auths":{"between":{"auth":"bzpv"}}}"#;
    const AND_THEIRS: &str = r#"{"auths":{"between":{"auth":"bzpv"},"theirs":{"auth":"bzpv"}}}"#;
    let between = globalps_dockerconfig::parse(BETWEEN.as_bytes()).unwrap();
    let target = globalps_dockerconfig::parse(NEW.as_bytes()).unwrap();
    let managed = |config: &DockerConfig| {
        let nothing = DockerConfig::default();
        ManagedEntries::of(&merge_on_node(&nothing, config, &[], &[]))
    };
    for (on_disk_now, is_resumed, has_theirs) in [
        (BETWEEN, false, false),
        (BETWEEN, true, false),
        (AND_THEIRS, false, true),
    ] {
        let node = Node::with(Some(on_disk_now));
        let mut state = JournalState::new(FileSnapshot::Absent, 0);
        let change = PendingChange {
            target_managed: managed(&target),
            superseded: Some(Superseded {
                file: image(Some(BETWEEN)),
                managed: managed(&between),
            }),
            ..change(&FileSnapshot::Absent, 5, true)
        };
        let mut kubelet = Fake::default();
        let mut transaction = node.transaction(&mut kubelet);
        if is_resumed {
            state.change = Some(change);
            node.journal.save(&state).unwrap();
            let mut state = node.journal.load().unwrap().unwrap();
            transaction.resume(&mut state).await.unwrap();
        } else {
            transaction.begin(&mut state, change).await.unwrap();
        }
        let after = on_disk(&node.path).unwrap();
        assert!(!after.contains("between"), "{after}");
        assert!(after.contains("test.registry.com"), "{after}");
        assert_eq!(after.contains("theirs"), has_theirs, "{after}");
    }
}

#[tokio::test(start_paused = true)]
async fn entries_written_meanwhile_survive_change_and_rollback() {
    for (step, content, sentence) in [
        (ChangeStep::Forward, THEIRS, "a write before the change"),
        (ChangeStep::Back, THEIRS, "a write during the rollback"),
        (
            ChangeStep::Forward,
            "{",
            "a write of an invalid credentials file",
        ),
    ] {
        let node = Node::with(Some(content));
        let mut state = JournalState::new(image(Some(OLD)), 0);
        state.change = Some(PendingChange {
            step,
            started_from: (step == ChangeStep::Back).then(|| "0".to_owned()),
            ..change(&image(Some(OLD)), 4, true)
        });
        let mut kubelet = Fake::default();
        let mut transaction = node.transaction(&mut kubelet);
        transaction.resume(&mut state).await.unwrap();
        assert_eq!(kubelet.restarts, 1, "{sentence}");
        let after = on_disk(&node.path).unwrap();
        if content == THEIRS {
            assert!(after.contains("theirs"), "{sentence}: {after}");
        } else {
            assert_eq!(after, NEW, "{sentence}");
            let aside = fs::read_dir(node.directory.path().join(".globalps"))
                .unwrap()
                .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
                .any(|kept| kept == content);
            assert!(aside, "{sentence}: not quarantined");
        }
    }
}

/// Only one test at a time runs a program: a concurrent fork would keep the program's file open for writing.
static PROGRAMS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--v=2\"\n";

impl Node {
    /// A kubeadm node whose program gives the expected answer for revision 4, or nothing.
    fn with_program(program_works: bool) -> Self {
        let node = Self::with(Some(NEW));
        fs::write(node.path.with_file_name("kubeadm-flags.env"), FLAGS).unwrap();
        let bytes = installed().data;
        let FileSnapshot::File { bytes, .. } = &bytes else {
            panic!("no data");
        };
        let trial = trials(bytes, false).unwrap().remove(0);
        let answer = String::from_utf8(trial.expected.to_vec()).unwrap();
        let answer = if program_works { &*answer } else { "{}" };
        let script = format!("#!/bin/sh\ncat > /dev/null\nprintf %s '{answer}'\n");
        fs::write(node.path.with_file_name("program"), script).unwrap();
        node.journal
            .save(&JournalState::new(image(Some(OLD)), 0))
            .unwrap();
        node
    }

    fn change(&self, is_out: bool) -> PendingChange {
        let disk = self.provider.read().unwrap();
        let with = self.provider.with(&disk, installed()).unwrap();
        let without = self.provider.without(&disk).unwrap();
        let (before, target) = if is_out {
            (with, without)
        } else {
            (without, with)
        };
        let (file_before, file_target) = if is_out { (OLD, NEW) } else { (NEW, OLD) };
        PendingChange {
            target: image(Some(file_target)),
            provider: Some(ProviderChange {
                before,
                target,
                is_kubelet_checked: true,
                has_failed: false,
            }),
            ..change(&image(Some(file_before)), 4, true)
        }
    }

    /// The files that the change writes before others.
    fn write_first(&self, change: &PendingChange) -> Writes {
        let mut kubelet = Fake::default();
        let state = JournalState::new(FileSnapshot::Absent, 0);
        let writes = self.transaction(&mut kubelet).writes(&state, change, true);
        writes.write_first(&self.provider).unwrap();
        writes
    }

    fn write_all(&self, change: &PendingChange) {
        let writes = self.write_first(change);
        writes.write_last(&self.provider).unwrap();
    }

    fn kubelet(&self) -> Fake {
        let flags = on_disk(&self.path.with_file_name("kubeadm-flags.env")).unwrap();
        Fake {
            provider_config: flags
                .contains("--image")
                .then(|| self.provider.config.host.display().to_string()),
            ..Fake::default()
        }
    }

    /// The text of the credentials file, and whether all of the provider is on the node, or nothing of it.
    fn has(&self) -> (String, bool) {
        let flags = on_disk(&self.path.with_file_name("kubeadm-flags.env")).unwrap();
        let has_provider = flags != FLAGS;
        assert_eq!(self.provider.data.here.exists(), has_provider, "data");
        assert_eq!(
            self.provider.config.here.exists(),
            has_provider,
            "configuration"
        );
        let bin_dir = self.provider.data.here.with_file_name("bin");
        assert_eq!(bin_dir.exists(), has_provider, "programs");
        (on_disk(&self.path).unwrap(), has_provider)
    }
}

fn installed() -> InstalledProvider {
    let content = Content {
        config: globalps_dockerconfig::parse(NEW.as_bytes()).unwrap(),
        ..Content::default()
    };
    InstalledProvider {
        data: FileSnapshot::Absent.with_bytes(render_data(4, &content)),
        config: ProviderConfig::default(),
        tokens: false,
        set_up: None,
    }
}

#[tokio::test]
async fn one_restart_sets_the_provider_up_before_entries_leave() {
    let _lock = PROGRAMS.lock().await;
    #[rustfmt::skip]
    let cases = [
        ("in", true, 0, true, 1, (OLD, true), None),
        ("the kubelet fails", true, 3, true, 4, (NEW, false), Some(false)),
        ("another flag wins", true, 0, false, 2, (NEW, false), Some(false)),
        ("the program fails", false, 0, true, 0, (NEW, false), Some(true)),
    ];
    for (sentence, program_works, failures, has_flag, restarts, ends, is_of_provider) in cases {
        let node = Node::with_program(program_works);
        let mut state = JournalState::new(image(Some(OLD)), 0);
        let mut kubelet = Fake {
            failures,
            provider_config: has_flag.then(|| node.provider.config.host.display().to_string()),
            ..Fake::default()
        };
        let change = node.change(false);
        let outcome = node
            .transaction(&mut kubelet)
            .begin(&mut state, change)
            .await;
        let failed = match outcome.unwrap() {
            ChangeOutcome::RolledBack(failure) => Some(failure.is_of_provider),
            _ => None,
        };
        assert_eq!(failed, is_of_provider, "{sentence}");
        assert_eq!(kubelet.restarts, restarts, "{sentence}");
        assert_eq!(node.has(), (ends.0.to_owned(), ends.1), "{sentence}");
        assert_eq!(state.provider.is_some(), ends.1, "{sentence}");
    }
}

#[tokio::test]
async fn a_kubelet_that_is_down_starts_again_despite_a_full_disk() {
    let node = Node::with_program(true);
    let mut state = JournalState::new(image(Some(OLD)), 0);
    let mut kubelet = Fake {
        failures: 1,
        full_disk: Some(node.path.with_file_name(".globalps")),
        ..Fake::default()
    };
    let change = change(&image(Some(OLD)), 4, true);
    let mut transaction = node.transaction(&mut kubelet);
    let outcome = transaction.begin(&mut state, change).await;
    assert!(outcome.is_err(), "the end of the change is not recorded");
    assert_eq!(kubelet.restarts, 2);
}

#[tokio::test]
async fn a_file_that_could_not_be_read_again_is_not_written() {
    let node = Node::with_program(true);
    let mut state = JournalState::new(image(Some(OLD)), 0);
    let mut kubelet = Fake::default();
    let large = format!("{NEW}{}", " ".repeat(4 << 20));
    let before = on_disk(&node.path);
    let change = change(&image(Some(OLD)), 4, true);
    let change = PendingChange {
        target: image(Some(&large)),
        ..change
    };
    let mut transaction = node.transaction(&mut kubelet);
    let error = transaction.begin(&mut state, change).await.unwrap_err();
    assert_eq!(error.reason().as_str(), "FileTooLarge");
    assert!(
        error.to_string().ends_with("nothing was changed"),
        "{error}"
    );
    assert!(state.change.is_none() && kubelet.restarts == 0);
    assert_eq!(on_disk(&node.path), before);
}

#[tokio::test]
async fn the_provider_is_set_up_without_systemds_list_of_processes() {
    let _lock = PROGRAMS.lock().await;
    let node = Node::with_program(true);
    let mut state = JournalState::new(image(Some(OLD)), 0);
    let mut kubelet = Fake {
        is_unlisted: true,
        ..Fake::default()
    };
    let change = node.change(false);
    let mut transaction = node.transaction(&mut kubelet);
    let outcome = transaction.begin(&mut state, change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::InForce);
    assert_eq!(node.has(), (OLD.to_owned(), true));
}

#[tokio::test]
async fn entries_written_during_the_start_with_the_provider_stay() {
    let _lock = PROGRAMS.lock().await;
    let node = Node::with_program(true);
    let mut state = JournalState::new(image(Some(OLD)), 0);
    let mut kubelet = Fake {
        provider_config: Some(node.provider.config.host.display().to_string()),
        written_meanwhile: Some((node.path.clone(), THEIRS)),
        ..Fake::default()
    };
    let change = node.change(false);
    node.transaction(&mut kubelet)
        .begin(&mut state, change)
        .await
        .unwrap();
    let (after, has_provider) = node.has();
    assert!(has_provider && after.contains("theirs"), "{after}");
}

/// The journal has the progress; each file may be written or not.
#[tokio::test]
async fn an_interrupted_setup_or_removal_has_at_most_one_restart() {
    let _lock = PROGRAMS.lock().await;
    for is_out in [false, true] {
        for written in 0..=4 {
            for (step, started_from) in [
                (ChangeStep::Forward, None),
                (ChangeStep::Forward, Some("0".to_owned())),
                (ChangeStep::Back, None),
                (ChangeStep::Back, Some("0".to_owned())),
            ] {
                let sentence = format!("{is_out} {written} {step:?} {started_from:?}");
                let node = Node::with_program(true);
                let mut kubelet = node.kubelet();
                let mut change = node.change(is_out);
                if is_out {
                    node.write_all(&change);
                }
                let transaction = node.transaction(&mut kubelet);
                let state = JournalState::new(FileSnapshot::Absent, 0);
                let writes = transaction.writes(&state, &change, false);
                node.provider.install_program().unwrap();
                for (path, target) in writes.first.iter().chain(&writes.last).take(written) {
                    file::replace(path, target).unwrap();
                }
                let was_asked = started_from.is_some();
                (change.step, change.started_from) = (step, started_from);
                if step == ChangeStep::Back {
                    change.failure = "why".to_owned();
                }
                let mut state = JournalState::new(image(Some(OLD)), 0);
                state.provider = is_out.then(installed);
                state.change = Some(change);
                node.journal.save(&state).unwrap();
                let mut state = node.journal.load().unwrap().unwrap();

                let goes_in = is_out == (step == ChangeStep::Back);
                let mut kubelet = Fake {
                    // The requested restart happened.
                    serves_since: was_asked,
                    provider_config: Some(node.provider.config.host.display().to_string()),
                    ..Fake::default()
                };
                node.transaction(&mut kubelet)
                    .resume(&mut state)
                    .await
                    .unwrap();
                let file = if goes_in { OLD } else { NEW };
                assert_eq!(node.has(), (file.to_owned(), goes_in), "{sentence}");
                assert_eq!(state.provider.is_some(), goes_in, "{sentence}");
                // The configuration leaves after the restart.
                let is_all_written = written >= if is_out { 2 } else { 3 };
                let owed = match step {
                    ChangeStep::Back => was_asked,
                    _ => !(was_asked && is_all_written),
                };
                assert_eq!(kubelet.restarts, usize::from(owed), "{sentence}");
            }
        }
    }
}

#[tokio::test]
async fn a_rotation_without_restart_rolls_back_on_a_wrong_answer() {
    let _lock = PROGRAMS.lock().await;
    for (sentence, program_works, serves, is_in_force) in [
        ("it is in force", true, true, true),
        ("the program gives nothing", false, true, false),
        ("the kubelet does not serve", true, false, false),
    ] {
        let node = Node::with_program(program_works);
        let older = InstalledProvider {
            data: FileSnapshot::Absent.with_bytes(b"older".to_vec()),
            ..installed()
        };
        let mut change = node.change(true);
        node.write_all(&change);
        file::replace(&node.provider.data.here, &older.data).unwrap();
        let provider = change.provider.as_mut().unwrap();
        provider.target = provider.before.clone();
        provider.before.installed = Some(older.clone());
        change.before = image(Some(OLD));
        change.target = image(Some(OLD));
        change.restart = false;
        let mut state = JournalState::new(image(Some(OLD)), 0);
        state.provider = Some(older.clone());
        let mut kubelet = Fake {
            serves_since: serves,
            ..Fake::default()
        };
        let outcome = node
            .transaction(&mut kubelet)
            .begin(&mut state, change)
            .await;
        assert_eq!(
            outcome.unwrap() == ChangeOutcome::InForce,
            is_in_force,
            "{sentence}"
        );
        let expected = if is_in_force { installed() } else { older };
        assert_eq!(
            file::read(&node.provider.data.here).unwrap(),
            expected.data,
            "{sentence}"
        );
        assert_eq!(state.provider, Some(expected), "{sentence}");
        assert_eq!(kubelet.restarts, 0, "{sentence}");
    }
}

#[tokio::test]
async fn a_damaged_trial_and_a_trial_of_the_same_data_are_retried() {
    let _lock = PROGRAMS.lock().await;
    for (sentence, first, serves, is_in_force) in [
        (
            "the data is truncated meanwhile",
            ": > \"$data\"",
            true,
            true,
        ),
        ("it is removed meanwhile", "rm \"$data\"", true, true),
        ("it stays unchanged", "true", true, false),
        ("the kubelet is down", "", false, true),
    ] {
        let node = Node::with_program(true);
        let data = node.provider.data.here.clone();
        if !first.is_empty() {
            // The first run gives no answer.
            let (program, tried) = (node.path.with_file_name("program"), "tried");
            let script = fs::read_to_string(&program).unwrap();
            let tried = node.path.with_file_name(tried);
            let first = format!(
                "data={}\nif [ ! -e {tried} ]; then : > {tried}; {first}; echo {{}}; exit; fi\nprintf",
                data.display(),
                tried = tried.display(),
            );
            fs::write(&program, script.replacen("printf", &first, 1)).unwrap();
        }
        let mut change = node.change(true);
        node.write_all(&change);
        file::replace(&data, &FileSnapshot::Absent).unwrap();
        let provider = change.provider.as_mut().unwrap();
        provider.target = provider.before.clone();
        change.before = image(Some(OLD));
        change.target = image(Some(OLD));
        change.restart = false;
        let mut state = JournalState::new(image(Some(OLD)), 0);
        state.provider = Some(installed());
        let mut kubelet = Fake {
            serves_since: serves,
            ..Fake::default()
        };
        let mut transaction = node.transaction(&mut kubelet);
        let outcome = transaction.begin(&mut state, change).await;
        assert_eq!(outcome.is_ok(), is_in_force, "{sentence}");
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                assert_eq!(error.reason().as_str(), "ProviderFailed", "{sentence}");
                transaction.resume(&mut state).await.unwrap()
            }
        };
        assert_eq!(outcome, ChangeOutcome::InForce, "{sentence}");
        assert_eq!(file::read(&data).unwrap(), installed().data, "{sentence}");
        assert_eq!(state.failed, None, "{sentence}");
    }
}

#[tokio::test]
async fn what_can_not_be_installed_does_not_stay_in_the_journal() {
    let _lock = PROGRAMS.lock().await;
    for (sentence, is_repair) in [("a repair", true), ("a rotation", false)] {
        let node = Node::with_program(true);
        let removal = node.change(true);
        let mut kubelet = node.kubelet();
        node.write_all(&removal);
        let bin_dir = node.provider.data.here.with_file_name("bin");
        fs::remove_dir_all(&bin_dir).unwrap();
        fs::write(&bin_dir, "").unwrap();
        let mut change = removal.clone();
        let provider = change.provider.as_mut().unwrap();
        provider.target = provider.before.clone();
        if !is_repair {
            let newer = FileSnapshot::Absent.with_bytes(b"newer".to_vec());
            provider.target.installed.as_mut().unwrap().data = newer;
        }
        change.target = image(Some(OLD));
        change.restart = false;
        let mut state = JournalState::new(image(Some(OLD)), 0);
        state.provider = Some(installed());
        let mut transaction = node.transaction(&mut kubelet);
        let outcome = transaction.begin(&mut state, change).await;
        assert!(outcome.is_err(), "{sentence}");
        let saved = node.journal.load().unwrap().unwrap();
        assert!(
            state.change.is_none() && saved.change.is_none(),
            "{sentence}"
        );
        let outcome = transaction.begin(&mut state, removal).await.unwrap();
        assert_eq!(outcome, ChangeOutcome::InForce, "{sentence}");
        assert_eq!(on_disk(&node.path).unwrap(), NEW, "{sentence}");
        assert!(state.provider.is_none(), "{sentence}");
    }
}

#[tokio::test]
async fn flags_written_meanwhile_stay_or_end_the_setup() {
    let _lock = PROGRAMS.lock().await;
    for (flags, has_provider) in [
        ("KUBELET_KUBEADM_ARGS=\"--v=3\"\n", true),
        (
            "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-config=/x\"\n",
            false,
        ),
    ] {
        let node = Node::with_program(true);
        let mut state = JournalState::new(image(Some(OLD)), 0);
        state.change = Some(node.change(false));
        let path = node.path.with_file_name("kubeadm-flags.env");
        fs::write(&path, flags).unwrap();
        let mut kubelet = Fake {
            provider_config: Some(node.provider.config.host.display().to_string()),
            ..Fake::default()
        };
        node.transaction(&mut kubelet)
            .resume(&mut state)
            .await
            .unwrap();
        let found = on_disk(&path).unwrap();
        if has_provider {
            assert!(found.contains("--v=3 --image-credential"), "{found}");
        } else {
            assert_eq!((found.as_str(), kubelet.restarts), (flags, 0));
            assert!(state.failed.is_some() && state.provider.is_none());
            assert_eq!(on_disk(&node.path).unwrap(), NEW, "entries stay");
        }
    }
}

#[tokio::test]
async fn files_stay_while_another_process_restores_their_flags() {
    let _lock = PROGRAMS.lock().await;
    let node = Node::with_program(true);
    let change = node.change(true);
    node.write_first(&change);
    let path = node.path.with_file_name("kubeadm-flags.env");
    let with = on_disk(&path).unwrap();
    let mut state = JournalState::new(image(Some(OLD)), 0);
    state.provider = Some(installed());
    let mut kubelet = Fake {
        written_meanwhile: Some((path.clone(), Box::leak(with.clone().into_boxed_str()))),
        ..Fake::default()
    };
    let mut transaction = node.transaction(&mut kubelet);
    let error = transaction.begin(&mut state, change).await.unwrap_err();
    assert_eq!(error.reason().as_str(), "FileError");
    assert_eq!(on_disk(&path).unwrap(), with);
    for file in [&node.provider.config, &node.provider.data] {
        assert!(file.here.exists(), "{}", file.here.display());
    }
    let outcome = transaction.resume(&mut state).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::InForce);
    assert_eq!(kubelet.restarts, 2);
    assert_eq!(node.has(), (NEW.to_owned(), false));
}

#[tokio::test]
async fn the_provider_is_removed_though_another_flag_came_meanwhile() {
    let _lock = PROGRAMS.lock().await;
    let node = Node::with_program(true);
    let change = node.change(true);
    let mut kubelet = node.kubelet();
    node.write_first(&change);
    let path = node.path.with_file_name("kubeadm-flags.env");
    let foreign = "--image-credential-provider-config=/etc/ecr.yaml";
    let with = on_disk(&path).unwrap().replace("--v=2", foreign);
    fs::write(&path, with).unwrap();
    let mut state = JournalState::new(image(Some(OLD)), 0);
    state.provider = Some(installed());
    let mut transaction = node.transaction(&mut kubelet);
    let outcome = transaction.begin(&mut state, change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::InForce);
    assert_eq!(on_disk(&path).unwrap(), FLAGS.replace("--v=2", foreign));
    assert!(!node.provider.data.here.exists());
}

#[tokio::test]
async fn files_stay_while_another_process_restores_a_configuration() {
    let _lock = PROGRAMS.lock().await;
    for name in ["theirs.yaml", "directory"] {
        let mut node = Node::with_program(true);
        let at = |path: PathBuf| HostPath {
            here: path.clone(),
            host: path,
        };
        let config = node.path.with_file_name(name);
        let theirs = "providers:\n- name: theirs\n";
        if name == "directory" {
            fs::create_dir(&config).unwrap();
            fs::write(config.join("theirs.yaml"), theirs).unwrap();
        } else {
            fs::write(&config, theirs).unwrap();
        }
        let bin_dir = node.path.with_file_name("theirs");
        fs::create_dir(&bin_dir).unwrap();
        let program = node.path.with_file_name("program");
        let set_up = Some((at(config), at(bin_dir)));
        node.provider = Provider::new(program, &at(node.path.clone()), set_up);
        let change = node.change(true);
        node.write_first(&change);
        let path = node.provider.config.here.clone();
        let with = on_disk(&path).unwrap();
        let mut state = JournalState::new(image(Some(OLD)), 0);
        state.provider = Some(installed());
        let mut kubelet = Fake {
            written_meanwhile: Some((path.clone(), Box::leak(with.clone().into_boxed_str()))),
            ..Fake::default()
        };
        let mut transaction = node.transaction(&mut kubelet);
        let error = transaction.begin(&mut state, change).await.unwrap_err();
        assert_eq!(error.reason().as_str(), "FileError", "{name}");
        assert_eq!(on_disk(&path).unwrap(), with, "{name}");
        assert!(node.provider.has_program(), "{name}");
        assert!(node.provider.data.here.exists(), "{name}");
        let mut transaction = node.transaction(&mut kubelet);
        let outcome = transaction.resume(&mut state).await.unwrap();
        assert_eq!(outcome, ChangeOutcome::InForce, "{name}");
        assert!(!node.provider.has_program(), "{name}");
        assert!(
            !on_disk(&path).unwrap_or_default().contains("globalps"),
            "{name}"
        );
    }
}
