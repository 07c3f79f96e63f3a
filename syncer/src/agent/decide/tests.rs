use std::collections::BTreeSet;
use std::path::PathBuf;

use globalps_core::rollout::RevisionId;
use globalps_dockerconfig::DockerConfig;
use globalps_provider::{Content, Delivery, ProviderConfig};

use super::*;
use crate::delivery::config_file::rebase;
use crate::delivery::credential_provider::Unused;
use crate::node::provider::{HostPath, Provider, ProviderDisk};
use crate::node::replace::{FileId, identify};
use crate::node::state::ProviderChange;

const OURS: &str = r#"{"auths":{"r":{"auth":"dTpw"}}}"#;
const OURS_IN_ANOTHER_FORM: &str = "{ \"auths\": {\"r\": {\"auth\": \"dTpw\"}} }\n";
const NEWER: &str = r#"{"auths":{"r":{"auth":"dTpx"}}}"#;
const OWN: &str = "{ \"auths\": {\"own\": {\"auth\": \"bzpv\"}}, \"x\": 1 }\n";
const OWN_IN_ANOTHER_FORM: &str = r#"{"auths":{"own":{"auth":"bzpv"}},"x":1}"#;
const OWN_AND_OURS: &str = r#"{"auths":{"own":{"auth":"bzpv"},"r":{"auth":"dTpw"}},"x":1}"#;
const OWN_AND_NEWER: &str = r#"{"auths":{"own":{"auth":"bzpv"},"r":{"auth":"dTpx"}},"x":1}"#;
const TWICE: &str = r#"{"auths":{"https://q":{"auth":"bzpv"},"q":{"auth":"bzpx"}}}"#;
const TWICE_AND_OURS: &str =
    r#"{"auths":{"https://q":{"auth":"bzpv"},"q":{"auth":"bzpx"},"r":{"auth":"dTpw"}}}"#;
const OWN_R: &str = r#"{"auths":{"https://r/":{"auth":"bzpv"}}}"#;

/// 0: none.
fn revision(number: i64) -> Revision {
    let id = RevisionId::from_random(u64::from(number > 0));
    Revision::new(number, id)
}

fn task(number: i64) -> Task {
    Task {
        uid: "u".to_owned(),
        generation: 7,
        revision: revision(number),
    }
}

fn file(text: &str) -> FileSnapshot {
    if text.is_empty() {
        FileSnapshot::Absent
    } else {
        FileSnapshot::Absent.with_bytes(text.as_bytes().to_vec())
    }
}

fn content(text: &str) -> Content {
    Content {
        config: config(text),
        ..Content::default()
    }
}

fn config(text: &str) -> DockerConfig {
    globalps_dockerconfig::parse(text.as_bytes()).unwrap()
}

/// The state after revision 1 was applied to a node with this file.
fn synced(snapshot: &str) -> JournalState {
    let mut state = JournalState::new(file(snapshot), 1);
    let existing = parsed(&file(snapshot)).unwrap_or_default();
    let merged = merge_on_node(&existing, &config(OURS), &[], &[]);
    state.managed = ManagedEntries::of(&merged);
    state.revision = revision(1);
    state
}

fn with_step(step: ChangeStep) -> PendingChange {
    PendingChange {
        task: task(1),
        step,
        restart: true,
        target: file(OURS),
        target_managed: ManagedEntries::default(),
        started_from: None,
        before: FileSnapshot::Absent,
        before_managed: ManagedEntries::default(),
        superseded: None,
        before_revision: Revision::NONE,
        back_from: None,
        failure: String::new(),
        provider: None,
    }
}

#[test]
fn only_a_change_that_takes_effect_with_a_restart_restarts() {
    let with = |restart| PendingChange {
        restart,
        ..with_step(ChangeStep::Forward)
    };
    let in_progress = |restart| {
        let mut state = synced(OWN);
        state.change = Some(with(restart));
        state
    };
    for restart in [true, false] {
        let begin = Action::Begin {
            change: Box::new(with(restart)),
            quarantine: false,
            drift: false,
            is_own: false,
        };
        assert_eq!(begin.restarts(None), restart);
        let state = in_progress(restart);
        assert_eq!(Action::Resume.restarts(Some(&state)), restart);
        assert!(!Action::Confirm.restarts(Some(&state)));
    }
    assert!(!Action::Resume.restarts(None));
}

/// The decision as one line.
fn line(
    task: Option<&Task>,
    state: Option<&JournalState>,
    content: &str,
    desired: Option<&str>,
) -> String {
    let (file, desired) = (file(content), desired.map(self::content));
    in_one_line(decide(&facts(task, state, &file, desired.as_ref())))
}

fn facts<'a>(
    task: Option<&'a Task>,
    state: Option<&'a JournalState>,
    file: &'a FileSnapshot,
    desired: Option<&'a Content>,
) -> NodeFacts<'a> {
    NodeFacts {
        task,
        is_foreign: false,
        is_updating: false,
        guard: None,
        state,
        file,
        desired,
        superseded: false,
        restart: true,
        is_cooled_down: true,
        is_watched: false,
        is_conflict_limit_reached: false,
        restores_only: false,
        provider: None,
    }
}

fn in_one_line(action: Action) -> String {
    match action {
        Action::Begin {
            change,
            quarantine,
            drift,
            ..
        } => {
            let target = match &change.target {
                FileSnapshot::Absent => "absent".to_owned(),
                FileSnapshot::File { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
            };
            let restart = if change.restart {
                "restart"
            } else {
                "no restart"
            };
            let quarantine = if quarantine { ", quarantine" } else { "" };
            let drift = if drift { ", drift" } else { "" };
            let is_restore = change.task.goal() == Goal::Restore;
            assert!(is_restore || !is_unparsable(&change.target), "{target}");
            format!("{target}, {restart}{quarantine}{drift}")
        }
        Action::Reject(_) => "Reject".to_owned(),
        action => format!("{action:?}"),
    }
}

#[test]
fn every_decision_follows_from_the_facts() {
    let (one, two, restore) = (task(1), task(2), task(0));
    // A6: globalps was removed and installed again.
    let another_one = Task {
        revision: Revision::new(1, RevisionId::from_random(2)),
        ..task(1)
    };
    let mut failed = synced("");
    failed.failed = Some(FailedTask {
        task: two.clone(),
        error: "why".to_owned(),
        stuck: false,
        recovered: false,
        is_of_provider: false,
    });
    #[rustfmt::skip]
    let cases = [
        ("nothing is assigned: nothing to do", None, None, "", None, "Idle".to_owned()),
        ("assigned: the content is fetched", Some(&one), None, "", None, "Fetch".to_owned()),
        ("a new file", Some(&one), None, "", Some(OURS), format!("{OURS}, restart")),
        ("next to the node's own entries", Some(&one), None, OWN, Some(OURS), format!("{OWN_AND_OURS}, restart")),
        ("equivalent content causes no restart", Some(&one), None, OURS, Some(OURS), format!("{OURS}, no restart")),
        (
            "an invalid credentials file is quarantined",
            Some(&one),
            None,
            "{",
            Some(OURS),
            format!("{OURS}, restart, quarantine"),
        ),
        ("in force: confirmed", Some(&one), Some(synced("")), OURS, Some(OURS), "Confirm".to_owned()),
        (
            "the same number of another installation is no content that is known",
            Some(&another_one),
            Some(synced("")),
            OURS,
            None,
            "Fetch".to_owned(),
        ),
        (
            "its content is a rotation",
            Some(&another_one),
            Some(synced("")),
            OURS,
            Some(NEWER),
            format!("{NEWER}, restart"),
        ),
        (
            "unless it is equivalent",
            Some(&another_one),
            Some(synced("")),
            OURS,
            Some(OURS),
            format!("{OURS}, no restart"),
        ),
        ("a rotation", Some(&two), Some(synced("")), OURS, Some(NEWER), format!("{NEWER}, restart")),
        (
            "a rotation to equivalent content",
            Some(&two),
            Some(synced("")),
            OURS,
            Some(OURS),
            format!("{OURS}, no restart"),
        ),
        (
            "and a file in another format, which stays as it is",
            Some(&two),
            Some(synced("")),
            OURS_IN_ANOTHER_FORM,
            Some(OURS),
            format!("{OURS_IN_ANOTHER_FORM}, no restart"),
        ),
        (
            "another process removed the file: a restore doesn't create one",
            Some(&restore),
            Some(synced(OWN)),
            "",
            None,
            "Forget".to_owned(),
        ),
        (
            "another process removed the node's own entries: a file without entries stays",
            Some(&restore),
            Some(synced(OWN)),
            OURS,
            None,
            r#"{"auths":{}}, restart"#.to_owned(),
        ),
        ("a failed task is not retried", Some(&two), Some(failed), OURS, Some(NEWER), "Reject".to_owned()),
        ("nothing to restore", Some(&restore), None, OWN, None, "Forget".to_owned()),
        ("an absent file is removed again", Some(&restore), Some(synced("")), OURS, None, "absent, restart".to_owned()),
        (
            "the original bytes are restored",
            Some(&restore),
            Some(synced(OWN)),
            OWN_AND_OURS,
            None,
            format!("{OWN}, restart"),
        ),
        (
            "an overridden entry is restored",
            Some(&restore),
            Some(synced(OWN_R)),
            OURS,
            None,
            format!("{OWN_R}, restart"),
        ),
        (
            "another process keeps its own value: it stays as it is",
            Some(&restore),
            Some(synced(OWN)),
            OWN_AND_NEWER,
            None,
            "Forget".to_owned(),
        ),
        (
            "entries added since stay",
            Some(&restore),
            Some(synced("")),
            OWN_AND_OURS,
            None,
            r#"{"auths":{"own":{"auth":"bzpv"}},"x":1}, restart"#.to_owned(),
        ),
        (
            "the bytes of an invalid credentials file are restored",
            Some(&restore),
            Some(synced("{")),
            OURS,
            None,
            "{, restart".to_owned(),
        ),
        (
            "members of a file without `auths` stay",
            Some(&one),
            None,
            r#"{"credHelpers":{"x":"y"}}"#,
            Some(OURS),
            r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":{"x":"y"}}, restart"#.to_owned(),
        ),
        (
            "a file that became unparsable: the node's own entries come from the snapshot",
            Some(&one),
            Some(synced(OWN)),
            "{",
            Some(OURS),
            format!("{OWN_AND_OURS}, restart, quarantine, drift"),
        ),
        (
            "a file that became unparsable: the original bytes are restored",
            Some(&restore),
            Some(synced(OWN)),
            "{",
            None,
            format!("{OWN}, restart, quarantine"),
        ),
        (
            "two spellings of one registry are restored",
            Some(&restore),
            Some(synced(TWICE)),
            TWICE_AND_OURS,
            None,
            format!("{TWICE}, restart"),
        ),
        (
            "one bad entry spoils a file: it is quarantined, and its good entries stay",
            Some(&one),
            None,
            r#"{"auths":{"own":{"auth":"bzpv"},"bad":{"auth":"pants"}},"x":1}"#,
            Some(OURS),
            format!("{OWN_AND_OURS}, restart, quarantine"),
        ),
        (
            "headers that no kubelet can read don't stay either",
            Some(&one),
            None,
            r#"{"auths":{"own":{"auth":"bzpv"}},"HttpHeaders":{"X-Meta":5},"x":1}"#,
            Some(OURS),
            format!("{OWN_AND_OURS}, restart, quarantine"),
        ),
        (
            "and come back with the original bytes",
            Some(&restore),
            Some(synced(r#"{"HttpHeaders":{"X-Meta":5}}"#)),
            OURS,
            None,
            r#"{"HttpHeaders":{"X-Meta":5}}, restart"#.to_owned(),
        ),
        (
            "two spellings of one registry stay",
            Some(&one),
            None,
            TWICE,
            Some(OURS),
            format!("{TWICE_AND_OURS}, restart"),
        ),
        ("nothing to remove: the state is discarded", Some(&restore), Some(synced("")), "", None, "Forget".to_owned()),
    ];
    for (sentence, task, state, content, desired, expected) in cases {
        assert_eq!(
            line(task, state.as_ref(), content, desired),
            expected,
            "{sentence}"
        );
    }
}

/// Mode and content of the target, and the action.
fn with_mode(action: Action) -> String {
    let mode = match &action {
        Action::Begin { change, .. } => match change.target {
            FileSnapshot::File { mode, .. } => format!("{mode:o} "),
            FileSnapshot::Absent => String::new(),
        },
        _ => String::new(),
    };
    mode + &in_one_line(action)
}

#[test]
fn with_managed_entries_a_file_is_private_then_has_its_old_mode() {
    let (one, two, restore) = (task(1), task(2), task(0));
    let mut in_force = synced(OWN);
    in_force.snapshot = file(OWN).with_mode(Some(0o644));
    in_force.mode = Some(0o644);
    let first = JournalState::new(file(OWN).with_mode(Some(0o644)), 0);
    let mut with_theirs = in_force.clone();
    with_theirs.snapshot = file("");
    #[rustfmt::skip]
    let cases = [
        ("narrowed when entries are added", &one, &first, OWN, 0o644, false, format!("600 {OWN_AND_OURS}, restart")),
        ("even if the content is already there", &one, &first, OURS, 0o640, false, format!("600 {OURS}, no restart")),
        ("an owner's own bits stay", &one, &first, OWN, 0o700, false, format!("700 {OWN_AND_OURS}, restart")),
        ("a narrow file stays", &one, &in_force, OWN_AND_OURS, 0o400, true, "Confirm".to_owned()),
        (
            "widened: narrowed again",
            &one,
            &in_force,
            OWN_AND_OURS,
            0o644,
            true,
            format!("600 {OWN_AND_OURS}, no restart, drift"),
        ),
        (
            "widened while no syncer was watching",
            &one,
            &in_force,
            OWN_AND_OURS,
            0o644,
            false,
            format!("600 {OWN_AND_OURS}, no restart"),
        ),
        ("widened and changed", &one, &in_force, OWN, 0o644, true, format!("600 {OWN_AND_OURS}, no restart, drift")),
        ("the next revision", &two, &in_force, OWN_AND_OURS, 0o600, true, format!("600 {OWN_AND_NEWER}, restart")),
        ("a restore", &restore, &in_force, OWN_AND_OURS, 0o600, true, format!("644 {OWN}, restart")),
        (
            "a restore of a file that another process created",
            &restore,
            &with_theirs,
            OWN_AND_OURS,
            0o600,
            true,
            r#"644 {"auths":{"own":{"auth":"bzpv"}},"x":1}, restart"#.to_owned(),
        ),
        ("a restore of only the mode", &restore, &in_force, OWN, 0o600, true, format!("644 {OWN}, no restart")),
    ];
    for (sentence, task, state, content, mode, is_watched, expected) in cases {
        let desired = self::content(if task.revision.number == 2 {
            NEWER
        } else {
            OURS
        });
        let file = file(content).with_mode(Some(mode));
        let facts = NodeFacts {
            is_watched,
            ..facts(Some(task), Some(state), &file, Some(&desired))
        };
        let action = decide(&facts);
        if let Action::Begin { change, .. } = &action {
            let is_managed = !change.before_managed.is_empty();
            let expected = if is_managed { None } else { file.wide_mode() };
            assert_eq!(
                change.before.wide_mode(),
                expected,
                "{sentence}: rolling back"
            );
        }
        assert_eq!(with_mode(action), expected, "{sentence}");
    }
}

#[test]
fn a_mode_set_meanwhile_is_narrowed_and_restored_on_rollback() {
    let (desired, task) = (content(OURS), task(1));
    let before = file(OWN).with_mode(Some(0o644));
    let state = JournalState::new(before.clone(), 0);
    let Action::Begin { change, .. } = decide(&facts(Some(&task), None, &before, Some(&desired)))
    else {
        panic!("not begun")
    };
    for (content, mode) in [(OWN_AND_OURS, 0o666), (OURS, 0o600)] {
        let found = file(content).with_mode(Some(mode));
        let rebased = rebase(&change, &found, &state).unwrap();
        assert_eq!(rebased.target.wide_mode(), None, "{content}");
        assert_eq!(rebased.before.wide_mode(), Some(0o644), "{content}");
    }
}

#[test]
fn a_kubelet_that_is_down_starts_unless_a_change_restarts_it() {
    let (one, two) = (task(1), task(2));
    let mut down = synced("");
    down.failed = Some(FailedTask {
        task: two.clone(),
        error: "why".to_owned(),
        stuck: true,
        recovered: false,
        is_of_provider: false,
    });
    let begins = |text: &str| format!("{text}, restart");
    #[rustfmt::skip]
    let cases = [
        ("the failed task", Some(&two), OURS, Some(NEWER), "Revive".to_owned()),
        ("nothing is assigned", None, OURS, None, "Revive".to_owned()),
        ("the revision in force is assigned again", Some(&one), OURS, Some(OURS), "Revive".to_owned()),
        ("newer content", Some(&task(3)), OURS, Some(NEWER), begins(NEWER)),
        ("newer equivalent content", Some(&task(3)), OURS, Some(OURS), format!("{OURS}, no restart")),
        ("newer content is fetched first", Some(&task(3)), OURS, None, "Fetch".to_owned()),
        ("a restore", Some(&task(0)), OURS, None, "absent, restart".to_owned()),
        ("nothing to restore", Some(&task(0)), "", None, "Revive".to_owned()),
    ];
    for (sentence, task, content, desired, expected) in cases {
        assert_eq!(
            line(task, Some(&down), content, desired),
            expected,
            "{sentence}"
        );
    }
    let (file, desired) = (file(OURS), self::content(NEWER));
    let facts = NodeFacts {
        restart: false,
        ..facts(Some(&two), Some(&down), &file, Some(&desired))
    };
    assert_eq!(in_one_line(decide(&facts)), "Reject", "no restarts at all");
}

#[test]
fn what_is_in_force_is_maintained_beside_a_failed_task() {
    let two = task(2);
    let failure = FailedTask {
        task: two.clone(),
        error: "why".to_owned(),
        stuck: false,
        recovered: false,
        is_of_provider: false,
    };
    let mut state = synced("");
    state.failed = Some(failure.clone());
    let repaired = format!("{OURS}, no restart, drift");
    for (sentence, applied, content, is_conflict_limit_reached, expected) in [
        ("as it was", Some(task(1)), OURS, false, "Reject"),
        ("removed", Some(task(1)), "", false, &repaired),
        ("changed", Some(task(1)), NEWER, false, &repaired),
        (
            "it failed while it was observed",
            Some(two.clone()),
            "",
            false,
            &repaired,
        ),
        ("its task is not known", None, "", false, &repaired),
        ("it is fought", Some(task(1)), "", true, "Reject"),
    ] {
        state.applied = applied;
        let (file, desired) = (file(content), self::content(NEWER));
        let facts = NodeFacts {
            is_conflict_limit_reached,
            ..facts(Some(&two), Some(&state), &file, Some(&desired))
        };
        let action = decide(&facts);
        if let Action::Begin { change, .. } = &action {
            assert_eq!(change.task.revision, revision(1), "{sentence}");
        }
        let line = in_one_line(action);
        assert!(
            line == expected || content == NEWER && line.ends_with("drift"),
            "{sentence}: {line}"
        );
    }
    let mut nothing = JournalState::new(file(OWN), 0);
    nothing.failed = Some(failure.clone());
    assert_eq!(line(Some(&two), Some(&nothing), OWN, Some(NEWER)), "Reject");

    let (mut facts, mut state) = in_force(true);
    state.failed = Some(failure);
    let file = file(OWN);
    let decided = |facts: &ProviderFacts| {
        let facts = NodeFacts {
            provider: Some(facts),
            ..self::facts(Some(&two), Some(&state), &file, None)
        };
        provider_line(decide(&facts))
    };
    assert_eq!(decided(&facts), "Reject");
    facts.has_program = false;
    assert_eq!(decided(&facts), "provider, own");
    facts.disk.config = FileSnapshot::Absent;
    assert_eq!(decided(&facts), "provider, own, drift");
    facts.unused = Some(unused(false));
    assert_eq!(decided(&facts), "Reject");
}

#[test]
fn a_change_in_progress_is_finished_first() {
    let (one, two) = (task(1), task(2));
    let with = |step| {
        let mut state = synced("");
        state.change = Some(with_step(step));
        state
    };
    for (step, task, content, expected) in [
        (ChangeStep::Forward, Some(&two), OURS, "Resume"),
        (ChangeStep::Forward, None, OURS, "Resume"),
        (ChangeStep::Back, Some(&one), OURS, "Resume"),
        (ChangeStep::Watching, Some(&one), OURS, "Confirm"),
        (ChangeStep::Watching, Some(&one), OWN, "Settle"),
        (ChangeStep::Watching, None, OURS, "Confirm"),
        (ChangeStep::Watching, Some(&two), OURS, "Settle"),
    ] {
        assert_eq!(
            line(task, Some(&with(step)), content, Some(OURS)),
            expected,
            "{step:?}, {content}"
        );
    }
}

/// A program that can't run would otherwise keep the node from all that is assigned later, also from its restore.
#[test]
fn a_repair_is_tried_again_until_something_else_is_assigned() {
    let provider = facts_on(FLAGS, None, None);
    let config = ProviderConfig::default();
    let side = provider
        .with_content(1, &content(OURS), &config, None)
        .unwrap();
    let mut state = synced("");
    state.change = Some(PendingChange {
        restart: false,
        provider: Some(ProviderChange {
            before: side.clone(),
            target: side,
            is_kubelet_checked: true,
            has_failed: false,
        }),
        ..with_step(ChangeStep::Forward)
    });
    let newer = Task {
        generation: 9,
        ..task(1)
    };
    for (assigned, is_updating, expected) in [
        (Some(task(1)), false, "Resume"),
        (Some(newer), false, "Resume"),
        (None, false, "Resume"),
        (Some(task(2)), false, "Settle"),
        (Some(task(0)), false, "Settle"),
        (Some(task(1)), true, "Settle"),
    ] {
        let (file, desired) = (file(OURS), content(OURS));
        let facts = NodeFacts {
            provider: Some(&provider),
            is_updating,
            ..facts(assigned.as_ref(), Some(&state), &file, Some(&desired))
        };
        let action = in_one_line(decide(&facts));
        assert_eq!(action, expected, "{assigned:?} {is_updating}");
    }
}

#[test]
fn newer_content_shares_a_pending_restart() {
    let (one, two, restore) = (task(1), task(2), task(0));
    let existing = parsed(&file(OWN)).unwrap();
    let merged = merge_on_node(&existing, &config(OURS), &[], &[]);
    let mut state = JournalState::new(file(OWN), 0);
    state.change = Some(PendingChange {
        target: file(OWN_AND_OURS),
        target_managed: ManagedEntries::of(&merged),
        before: file(OWN),
        ..with_step(ChangeStep::Forward)
    });
    let mut asked = state.clone();
    asked.change.as_mut().unwrap().started_from = Some("0".to_owned());
    let newer = OWN_AND_OURS.replace("dTpw", "dTpx");
    let (begin_newer, begin_restore) = (format!("{newer}, restart"), format!("{OWN}, restart"));
    #[rustfmt::skip]
    let cases = [
        ("the same task waits", &one, &state, Some(OURS), false, "Resume"),
        ("a newer task replaces it", &two, &state, Some(NEWER), false, &begin_newer),
        ("so does a restore", &restore, &state, None, false, &begin_restore),
        ("its content is needed", &two, &state, None, false, "Fetch"),
        ("but only while the restart is pending", &two, &state, None, true, "Resume"),
        (
            "the same content still needs the restart",
            &two,
            &state,
            Some(OURS),
            false,
            &format!("{OWN_AND_OURS}, restart"),
        ),
        ("the restart was requested", &two, &asked, Some(NEWER), false, "Resume"),
    ];
    for (sentence, task, state, desired, is_cooled_down, expected) in cases {
        let (file, desired) = (file(OWN_AND_OURS), desired.map(self::content));
        let facts = NodeFacts {
            is_cooled_down,
            ..facts(Some(task), Some(state), &file, desired.as_ref())
        };
        let action = decide(&facts);
        if let Action::Begin { change, .. } = &action {
            assert_eq!(change.before, self::file(OWN), "{sentence}: rolling back");
        }
        assert_eq!(in_one_line(action), *expected, "{sentence}");
    }
}

/// An agent that can't read the content never asks for it, whatever the object assigns.
#[test]
fn a_node_that_is_not_selected_is_restored_and_gets_no_content() {
    let (one, two, restore) = (task(1), task(2), task(0));
    let with = |step| {
        let mut state = synced(OWN);
        state.change = Some(with_step(step));
        state
    };
    #[rustfmt::skip]
    let cases = [
        ("a new node", None, None, true, "StandBy"),
        ("another revision", Some(&two), Some(synced(OWN)), true, "StandBy"),
        ("its own revision", Some(&one), Some(synced(OWN)), true, "StandBy"),
        ("no task", None, Some(synced(OWN)), true, "StandBy"),
        ("a restore", Some(&restore), Some(synced(OWN)), true, "{OWN}, restart"),
        ("nothing to restore", Some(&restore), None, true, "Forget"),
        ("a change in progress", Some(&two), Some(with(ChangeStep::Forward)), true, "Resume"),
        ("its restart is pending", Some(&two), Some(with(ChangeStep::Forward)), false, "Resume"),
        ("a change that is being rolled back", None, Some(with(ChangeStep::Back)), true, "Resume"),
        ("a kubelet under watch", Some(&one), Some(with(ChangeStep::Watching)), true, "Confirm"),
    ];
    for (sentence, task, state, is_cooled_down, expected) in cases {
        let file = file(OWN_AND_OURS);
        let action = decide(&NodeFacts {
            is_cooled_down,
            restores_only: true,
            ..facts(task, state.as_ref(), &file, None)
        });
        assert_eq!(
            in_one_line(action),
            expected.replace("{OWN}", OWN),
            "{sentence}"
        );
    }
}

#[test]
fn removed_entries_are_restored_up_to_the_limit() {
    let (one, two) = (task(1), task(2));
    let mut given_up = synced(OWN);
    given_up.given_up = Some(task(1));
    let restart = format!("{OWN_AND_OURS}, restart, drift");
    let no_restart = format!("{OWN_AND_OURS}, no restart, drift");
    #[rustfmt::skip]
    let cases = [
        ("noticed immediately: the kubelet has not read it", &one, &synced(OWN), true, false, &*no_restart),
        ("changed for an unknown time: restart", &one, &synced(OWN), false, false, &*restart),
        ("the conflict limit ends the restores", &one, &synced(OWN), true, true, "GiveUp"),
        ("a task that was given up stays so", &one, &given_up, true, false, "GiveUp"),
        ("another revision is not drift", &two, &given_up, true, true, &*format!("{OWN_AND_OURS}, restart")),
    ];
    for (sentence, task, state, is_watched, is_conflict_limit_reached, expected) in cases {
        let (file, desired) = (file(OWN), self::content(OURS));
        let facts = NodeFacts {
            is_watched,
            is_conflict_limit_reached,
            ..facts(Some(task), Some(state), &file, Some(&desired))
        };
        assert_eq!(in_one_line(decide(&facts)), expected, "{sentence}");
    }
}

#[test]
fn a_foreign_owners_file_gets_no_entries_and_loses_managed_ones() {
    let mut under_way = synced(OWN);
    under_way.change = Some(with_step(ChangeStep::Forward));
    let (one, restore) = (task(1), task(0));
    #[rustfmt::skip]
    let cases = [
        ("no first revision", &one, None, OWN, "LeaveAlone"),
        ("no other revision", &task(2), Some(&synced(OWN)), OWN, "LeaveAlone"),
        ("a change in progress is ended", &one, Some(&under_way), OWN, "Resume"),
        ("a restore is possible", &restore, Some(&synced(OWN)), OWN_AND_OURS, &*format!("{OWN}, restart")),
    ];
    for (sentence, task, state, content, expected) in cases {
        let (file, desired) = (file(content), self::content(OURS));
        let facts = NodeFacts {
            is_foreign: true,
            ..facts(Some(task), state, &file, Some(&desired))
        };
        assert_eq!(in_one_line(decide(&facts)), expected, "{sentence}");
    }
    let file = file(OWN);
    let facts = NodeFacts {
        is_foreign: true,
        ..facts(None, None, &file, None)
    };
    assert_eq!(
        in_one_line(decide(&facts)),
        "LeaveAlone",
        "reported before anything is assigned"
    );
}

#[test]
fn an_update_finds_the_nodes_own_file_and_none_changes_it() {
    let step = |step, started_from: Option<&str>| {
        let mut state = synced(OWN);
        let started_from = started_from.map(str::to_owned);
        state.change = Some(PendingChange {
            started_from,
            target: file(OWN_AND_OURS),
            target_managed: state.managed.clone(),
            before: file(OWN),
            ..with_step(step)
        });
        state
    };
    let theirs = r#"{"auths":{"r":{"auth":"bmV3"},"s":{"auth":"bmV3"}}}"#;
    let wide = file(OWN_AND_OURS).with_mode(Some(0o644));
    let restored = format!("{OWN}, no restart");
    #[rustfmt::skip]
    let cases = [
        ("nothing of globalps is there", None, file(OWN), "LeaveAlone"),
        ("its entries are", Some(synced(OWN)), file(OWN_AND_OURS), &*restored),
        ("and no own ones", Some(synced("")), file(OURS), "absent, no restart"),
        ("the update wrote the file", Some(synced(OWN)), file(theirs), "Forget"),
        ("or its mode", Some(synced(OWN)), wide, "LeaveAlone"),
        ("or removed it", Some(synced(OWN)), file(""), "Forget"),
        ("a change whose restart is pending", Some(step(ChangeStep::Forward, None)), file(OWN_AND_OURS), &*restored),
        ("a change that wrote nothing", Some(step(ChangeStep::Forward, None)), file(OWN), &*restored),
        ("a change in the middle of its restart", Some(step(ChangeStep::Forward, Some("0"))), file(OWN_AND_OURS), "Resume"),
        ("the update wrote the file during a change", Some(step(ChangeStep::Forward, Some("0"))), file(theirs), "Settle"),
        ("a change under observation", Some(step(ChangeStep::Watching, Some("0"))), file(OWN_AND_OURS), "Settle"),
    ];
    for (sentence, state, found, expected) in cases {
        for is_watched in [false, true] {
            let (task, desired) = (task(1), content(OURS));
            let facts = NodeFacts {
                is_foreign: true,
                is_updating: true,
                is_watched,
                ..facts(Some(&task), state.as_ref(), &found, Some(&desired))
            };
            assert_eq!(in_one_line(decide(&facts)), expected, "{sentence}");
        }
    }
}

#[test]
fn a_file_of_others_is_replaced_once_the_controller_has_confirmed_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    std::fs::write(&path, OWN).unwrap();
    let found = identify(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    let other = identify(&path).unwrap();
    let absent = identify(&directory.path().join("absent")).unwrap();
    let token = found.token(&FileId::default());
    let with = |written: &FileId, step: Option<ChangeStep>| {
        let mut state = synced(OWN);
        state.written = written.clone();
        state.change = step.map(|step| PendingChange {
            target: file(OWN_AND_OURS),
            before: file(OWN),
            ..with_step(step)
        });
        Some(state)
    };
    let (begun, repaired) = (
        format!("{OWN_AND_OURS}, restart"),
        format!("{OWN_AND_OURS}, restart, drift"),
    );
    let forward = Some(ChangeStep::Forward);
    #[rustfmt::skip]
    let cases = [
        ("the first file", None, &found, "", "Ask"),
        ("confirmed", None, &found, &*token, &*begun),
        ("another one was", None, &other, &token, "Ask"),
        ("as globalps wrote it", with(&found, None), &found, "", &repaired),
        ("drift", with(&other, None), &found, "", "Ask"),
        ("confirmed drift", with(&other, None), &found, &token, &repaired),
        ("it was absent before, too", with(&other, None), &absent, &absent.token(&found), "Ask"),
        ("absent again", with(&other, None), &absent, &absent.token(&other), &repaired),
        ("written during a change", with(&other, forward), &found, "", "Ask"),
        ("confirmed during it", with(&other, forward), &found, &token, "Resume"),
        ("a rollback leaves it", with(&other, Some(ChangeStep::Back)), &found, "", "Resume"),
    ];
    for (sentence, state, found, confirmed, expected) in cases {
        let (task, desired, file) = (task(1), content(OURS), file(OWN));
        let facts = NodeFacts {
            guard: Some(FileGuard { found, confirmed }),
            ..facts(Some(&task), state.as_ref(), &file, Some(&desired))
        };
        assert_eq!(in_one_line(decide(&facts)), expected, "{sentence}");
        assert_eq!(
            is_replaceable(&facts),
            expected != "Ask" && !sentence.starts_with("a rollback"),
            "{sentence}"
        );
    }
}

/// The daemon wrote this before the change that is not finished, and may have written it again.
#[test]
fn during_an_update_the_file_before_a_change_is_not_replaced() {
    let id = FileId::default();
    for (before_managed, is_theirs) in [
        (ManagedEntries::default(), true),
        (synced(OWN_AND_OURS).managed, false),
    ] {
        let mut state = synced(OWN);
        state.change = Some(PendingChange {
            target: file(OWN_AND_OURS),
            before: file(OWN),
            before_managed,
            ..with_step(ChangeStep::Forward)
        });
        let (task, found) = (task(1), file(OWN));
        let absent = identify(std::path::Path::new("/nowhere/config.json")).unwrap();
        let facts = NodeFacts {
            is_updating: true,
            guard: Some(FileGuard {
                found: &absent,
                confirmed: &id.token(&id),
            }),
            ..facts(Some(&task), Some(&state), &found, None)
        };
        assert_eq!(is_replaceable(&facts), !is_theirs);
    }
}

#[test]
fn a_restore_during_an_update_writes_over_nothing_of_others() {
    let theirs = r#"{"auths":{"s":{"auth":"bmV3"}}}"#;
    let restored = format!("{OWN}, no restart");
    let mut same = synced(OWN_AND_OURS);
    same.snapshot = file(OWN_AND_OURS);
    for (sentence, state, found, expected) in [
        ("nothing of globalps is there", None, OWN, "Forget"),
        (
            "its entries are",
            Some(synced(OWN)),
            OWN_AND_OURS,
            &*restored,
        ),
        (
            "the update wrote the file",
            Some(synced(OWN)),
            theirs,
            "Forget",
        ),
        // Only its identity could tell whose it is.
        (
            "it means the same without globalps",
            Some(same),
            OWN_AND_OURS,
            "Forget",
        ),
    ] {
        let (restore, file) = (task(0), file(found));
        let facts = NodeFacts {
            is_foreign: true,
            is_updating: true,
            ..facts(Some(&restore), state.as_ref(), &file, None)
        };
        assert_eq!(in_one_line(decide(&facts)), expected, "{sentence}");
    }
}

/// The state after this change.
fn after(state: &JournalState, file: &FileSnapshot, action: Action) -> JournalState {
    let Action::Begin { change, is_own, .. } = action else {
        panic!("not begun")
    };
    let mut state = state.clone();
    state.managed = change.target_managed.after(&change.before_managed);
    state.revision = change.task.revision;
    if is_own {
        state.snapshot = file.clone();
    }
    state
}

/// The owner of the file rotates its entry once, and globalps is removed later.
#[test]
fn what_another_process_wrote_over_ours_is_restored() {
    const OLD: &str = r#"{"auths":{"r":{"auth":"bzpv"}}}"#;
    const BOTH: &str = r#"{"auths":{"r":{"auth":"dTpw"},"s":{"auth":"dTpw"}}}"#;
    let newer = "{ \"auths\": {\"r\": {\"auth\": \"bzpx\"}} }\n";
    let (one, two, restore) = (task(1), task(2), task(0));
    for (sentence, ours, found, expected) in [
        ("alone, to the byte", OURS, newer, newer),
        ("in a file of its own", BOTH, newer, newer),
        (
            "beside other managed entries",
            BOTH,
            r#"{"auths":{"r":{"auth":"bzpx"},"s":{"auth":"dTpw"}}}"#,
            r#"{"auths":{"r":{"auth":"bzpx"}}}"#,
        ),
        (
            "what it only removes was its own",
            OURS,
            r#"{"auths":{}}"#,
            OLD,
        ),
    ] {
        let desired = content(ours);
        let original = file(OLD);
        let first = JournalState::new(original.clone(), 0);
        let begun = decide(&facts(Some(&one), None, &original, Some(&desired)));
        let state = after(&first, &original, begun);
        let found = file(found);
        let repaired = decide(&facts(Some(&one), Some(&state), &found, Some(&desired)));
        assert!(
            matches!(repaired, Action::Begin { drift: true, .. }),
            "{sentence}"
        );
        let state = after(&state, &found, repaired);
        let restored = decide(&facts(Some(&restore), Some(&state), &file(ours), None));
        assert_eq!(
            in_one_line(restored),
            format!("{expected}, restart"),
            "{sentence}"
        );
    }
    // A tool that puts back a file from before a rotation.
    let first = JournalState::new(file(""), 0);
    let begun = decide(&facts(Some(&one), None, &file(""), Some(&content(OURS))));
    let state = after(&first, &file(""), begun);
    let desired = content(NEWER);
    let begun = decide(&facts(
        Some(&two),
        Some(&state),
        &file(OURS),
        Some(&desired),
    ));
    let state = after(&state, &file(OURS), begun);
    let repaired = decide(&facts(
        Some(&two),
        Some(&state),
        &file(OURS),
        Some(&desired),
    ));
    let state = after(&state, &file(OURS), repaired);
    for found in [OURS, NEWER] {
        let restored = decide(&facts(Some(&restore), Some(&state), &file(found), None));
        assert_eq!(in_one_line(restored), "absent, restart", "{found}");
    }
}

#[test]
fn an_update_that_shares_entries_with_ours_wrote_the_file() {
    const BOTH: &str = r#"{"auths":{"r":{"auth":"dTpw"},"s":{"auth":"dTpw"}}}"#;
    let (task, desired) = (task(1), content(BOTH));
    for original in ["", OURS] {
        let original = file(original);
        let first = JournalState::new(original.clone(), 0);
        let begun = decide(&facts(Some(&task), None, &original, Some(&desired)));
        let state = after(&first, &original, begun);
        for (found, expected) in [
            (BOTH, "no restart"),
            (
                r#"{"auths":{"r":{"auth":"dTpw"},"t":{"auth":"bzpv"}}}"#,
                "Forget",
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"},"s":{"auth":"dTpw"},"t":{"auth":"bzpv"}}}"#,
                "LeaveAlone",
            ),
        ] {
            let found = file(found);
            let facts = NodeFacts {
                is_foreign: true,
                is_updating: true,
                ..facts(Some(&task), Some(&state), &found, Some(&desired))
            };
            let line = in_one_line(decide(&facts));
            assert!(line.ends_with(expected), "{found:?}: {line}");
        }
    }
}

#[test]
fn restart_never_prevents_every_restart() {
    let (file, desired, task) = (FileSnapshot::Absent, content(OURS), task(1));
    let facts = NodeFacts {
        restart: false,
        ..facts(Some(&task), None, &file, Some(&desired))
    };
    assert!(matches!(decide(&facts), Action::Begin { change, .. } if !change.restart));
}

#[test]
fn a_superseded_revision_in_force_is_compared_with_the_journal() {
    let (one, two, synced) = (task(1), task(2), synced(""));
    let mut watched = synced.clone();
    watched.change = Some(with_step(ChangeStep::Watching));
    let repaired = format!("{OURS}, restart, drift");
    #[rustfmt::skip]
    let cases = [
        ("unchanged", &one, true, &synced, OURS, "Confirm"),
        ("other credentials", &one, true, &synced, NEWER, &*repaired),
        ("removed", &one, true, &synced, "", &*repaired),
        ("not known to be superseded", &one, false, &synced, OURS, "Fetch"),
        ("another revision", &two, true, &synced, OURS, "Fetch"),
        ("changed while the kubelet is watched", &one, true, &watched, NEWER, "Settle"),
    ];
    for (sentence, task, superseded, state, content, expected) in cases {
        let file = file(content);
        let facts = NodeFacts {
            superseded,
            ..facts(Some(task), Some(state), &file, None)
        };
        assert_eq!(in_one_line(decide(&facts)), expected, "{sentence}");
    }
}

#[test]
fn entries_written_meanwhile_stay_forward_and_back() {
    const THEIRS: &str = r#"{"auths":{"theirs":{"auth":"dDp0"}}}"#;
    const THEIRS_AND_OURS: &str = r#"{"auths":{"r":{"auth":"dTpw"},"theirs":{"auth":"dDp0"}}}"#;
    const THEIRS_AND_OWN_R: &str =
        r#"{"auths":{"https://r/":{"auth":"bzpv"},"theirs":{"auth":"dDp0"}}}"#;
    #[rustfmt::skip]
    let cases = [
        ("before the managed entries were written", "", THEIRS, THEIRS_AND_OURS, THEIRS),
        ("after the managed entries were written", "", THEIRS_AND_OURS, THEIRS_AND_OURS, THEIRS),
        (
            "before one of the node's own entries was overridden",
            OWN_R,
            THEIRS_AND_OWN_R,
            THEIRS_AND_OURS,
            THEIRS_AND_OWN_R,
        ),
        (
            "after one of the node's own entries was overridden",
            OWN_R,
            THEIRS_AND_OURS,
            THEIRS_AND_OURS,
            THEIRS_AND_OWN_R,
        ),
        ("the target is already there in another format", "", OURS_IN_ANOTHER_FORM, OURS_IN_ANOTHER_FORM, ""),
        ("a removed file is created, and removed again on rollback", OWN, "", OURS, ""),
    ];
    for (sentence, before, content, ahead, back) in cases {
        let text = |image: &FileSnapshot| match image {
            FileSnapshot::Absent => String::new(),
            FileSnapshot::File { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
        };
        let desired = self::content(OURS);
        let (task, state, before) = (task(1), JournalState::new(file(before), 0), file(before));
        let facts = facts(Some(&task), None, &before, Some(&desired));
        let Action::Begin { change, .. } = decide(&facts) else {
            panic!("{sentence}: not begun")
        };
        let rebased = rebase(&change, &file(content), &state).unwrap();
        assert_eq!(text(&rebased.target), ahead, "{sentence}: forward");
        assert_eq!(text(&rebased.before), back, "{sentence}: back");
        assert_eq!(rebased.target_managed.keys, change.target_managed.keys);
        let has_own = content.contains("https://r/") || text(&before).contains("https://r/");
        let overridden = rebased.target_managed.overridden();
        assert_eq!(overridden.len(), usize::from(has_own), "{sentence}");
    }
    assert!(
        rebase(
            &with_step(ChangeStep::Forward),
            &file("{"),
            &JournalState::new(FileSnapshot::Absent, 0)
        )
        .is_none()
    );
}

/// The text of a restore from this state.
fn restore_text(state: &JournalState, content: &str) -> String {
    let (task, desired) = (task(0), self::content("{}"));
    let found = file(content);
    let facts = facts(Some(&task), Some(state), &found, Some(&desired));
    match decide(&facts) {
        Action::Begin { change, .. } => match change.target {
            FileSnapshot::Absent => String::new(),
            FileSnapshot::File { bytes, .. } => String::from_utf8_lossy(&bytes).into_owned(),
        },
        _ => content.to_owned(),
    }
}

#[test]
fn every_own_entry_survives_a_file_that_is_written_meanwhile() {
    const TWO: &str = r#"{"auths":{"https://r":{"auth":"bzpv"},"r":{"auth":"bzpx"}}}"#;
    const OTHER: &str = r#"{"auths":{"t":{"auth":"dDp0"}}}"#;
    let (one, desired, before) = (task(1), content(OURS), file(TWO));
    let first = facts(Some(&one), None, &before, Some(&desired));
    let Action::Begin { change, .. } = decide(&first) else {
        panic!("not begun")
    };
    let state = JournalState::new(before.clone(), 0);
    let rebased = rebase(&change, &file(TWO), &state).unwrap();
    assert_eq!(rebased.target_managed.overridden().len(), 2);
    assert_eq!(rebased.before, before, "a rollback keeps both spellings");

    // Another process replaced the file that had revision 1, and writes it again during the change to revision 2.
    let mut state = synced(OWN_R);
    let (two, newer) = (task(2), content(NEWER));
    let found = file(OTHER);
    let second = facts(Some(&two), Some(&state), &found, Some(&newer));
    let Action::Begin { change, .. } = decide(&second) else {
        panic!("not begun")
    };
    let rebased = rebase(&change, &file(OTHER), &state).unwrap();
    let FileSnapshot::File { bytes, .. } = &rebased.before else {
        panic!("no file")
    };
    let back = String::from_utf8_lossy(bytes).into_owned();
    assert!(
        back.contains("https://r/") && back.contains("\"t\""),
        "{back}"
    );
    state.managed = rebased.before_managed;
    let restored = restore_text(&state, &back);
    assert!(restored.contains("https://r/"), "{restored}");
    assert!(restored.contains("\"t\""), "{restored}");
    let theirs = back.replace("bzpv", "bzpx");
    assert_ne!(theirs, back);
    let restored = restore_text(&state, &theirs);
    assert!(
        restored.contains("bzpx"),
        "entries written since are foreign: {restored}"
    );
}

const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--v=2\"\n";

fn provider_facts() -> ProviderFacts {
    let path = PathBuf::from("/var/lib/kubelet/config.json");
    let path = HostPath {
        here: path.clone(),
        host: path,
    };
    ProviderFacts {
        provider: Provider::new(PathBuf::from("/program"), &path, None),
        disk: ProviderDisk {
            data: FileSnapshot::Absent,
            config: FileSnapshot::Absent,
            flags: Some(file(FLAGS)),
            is_beside_others: false,
        },
        has_program: false,
        tokens: Some(true),
        obstacle: None,
        unused: None,
    }
}

fn by_provider(port: &str) -> Content {
    let ports = if port.is_empty() {
        BTreeSet::new()
    } else {
        [port.to_owned()].into()
    };
    Content {
        delivery: Delivery::CredentialProvider(ProviderConfig {
            ports,
            scopes: true,
        }),
        ..content(OURS)
    }
}

fn with_scopes() -> ProviderConfig {
    ProviderConfig {
        scopes: true,
        ..ProviderConfig::default()
    }
}

/// The facts and the state once the provider delivers revision 1.
fn in_force(tokens: bool) -> (ProviderFacts, JournalState) {
    let mut facts = provider_facts();
    facts.tokens = Some(tokens);
    let config = with_scopes();
    let side = facts
        .with_content(1, &by_provider(""), &config, None)
        .unwrap();
    facts.disk = ProviderDisk {
        data: side.data(),
        config: side.config,
        flags: side.flags,
        is_beside_others: false,
    };
    facts.has_program = true;
    let mut state = JournalState::new(file(OWN), 1);
    state.revision = revision(1);
    state.provider = side.installed;
    (facts, state)
}

/// The decision as one line: whether the provider is on the node afterwards, restart and drift.
fn provider_line(action: Action) -> String {
    let Action::Begin { change, drift, .. } = action else {
        return in_one_line(action);
    };
    let provider = change.provider.as_ref();
    let provider = match provider.map(|change| change.target.installed.is_some()) {
        Some(true) => "provider",
        Some(false) => "no provider",
        None => "file alone",
    };
    let target = change.target.clone();
    let target = if target == file(OWN) {
        "own"
    } else {
        "own and ours"
    };
    let restart = if change.restart { ", restart" } else { "" };
    let drift = if drift { ", drift" } else { "" };
    format!("{provider}, {target}{restart}{drift}")
}

fn unused(is_running: bool) -> Unused {
    Unused {
        obstacle: Obstacle::new("the kubelet runs with another one"),
        is_running,
    }
}

/// The user gave the kubelet other flags.
#[test]
fn an_unused_provider_is_removed_without_a_restart() {
    let (one, two, restore) = (task(1), task(2), task(0));
    let (facts, state) = in_force(true);
    let provider = ProviderFacts {
        unused: Some(unused(false)),
        ..facts
    };
    let fought = ProviderFacts {
        unused: Some(unused(true)),
        ..in_force(true).0
    };
    let (content, own) = (by_provider(""), file(OWN));
    let fought = NodeFacts {
        provider: Some(&fought),
        ..self::facts(Some(&one), Some(&state), &own, Some(&content))
    };
    let expected = "no provider, own and ours, restart";
    assert_eq!(provider_line(decide(&fought)), expected);
    #[rustfmt::skip]
    let cases = [
        ("in force", &one, Some(by_provider("")), "no provider, own and ours"),
        ("a rotation", &two, Some(by_provider("")), "no provider, own and ours"),
        ("in the journal alone", &one, None, "no provider, own and ours"),
        ("a restore", &restore, None, "no provider, own"),
    ];
    for (sentence, task, content, expected) in cases {
        let file = file(OWN);
        let facts = NodeFacts {
            provider: Some(&provider),
            superseded: content.is_none(),
            ..self::facts(Some(task), Some(&state), &file, content.as_ref())
        };
        assert_eq!(provider_line(decide(&facts)), expected, "{sentence}");
    }
}

#[test]
fn setting_up_and_removing_the_provider_needs_a_restart() {
    let (one, two, restore) = (task(1), task(2), task(0));
    let no_provider = provider_facts();
    let (there, state) = in_force(true);
    let (tokenless, older) = in_force(false);
    let obstructed = ProviderFacts {
        obstacle: Some(Obstacle::new("no")),
        ..provider_facts()
    };
    let (files, managed) = (content(OURS), synced(OWN));
    let now_with_tokens = ProviderFacts {
        tokens: Some(true),
        ..tokenless
    };
    let version_unknown = ProviderFacts {
        tokens: None,
        ..in_force(true).0
    };
    let no_version = Obstacle::new("version");
    let kept = ProviderFacts {
        obstacle: Some(no_version),
        ..in_force(true).0
    };
    #[rustfmt::skip]
    let cases = [
        ("setup without previous delivery", &one, &no_provider, None, by_provider(""), OWN, "provider, own, restart"),
        (
            "setup after delivery by the file",
            &two,
            &no_provider,
            Some(&managed),
            by_provider(""),
            OWN_AND_OURS,
            "provider, own, restart",
        ),
        ("in force", &one, &there, Some(&state), by_provider(""), OWN, "Confirm"),
        (
            "in force, and another process reformatted the file",
            &one,
            &there,
            Some(&state),
            by_provider(""),
            OWN_IN_ANOTHER_FORM,
            "Confirm",
        ),
        ("a rotation", &two, &there, Some(&state), by_provider(""), OWN, "provider, own"),
        ("a port", &two, &there, Some(&state), by_provider("5055"), OWN, "provider, own, restart"),
        ("tokens wait for an assignment", &one, &now_with_tokens, Some(&older), by_provider(""), OWN, "Confirm"),
        ("an unknown version", &one, &version_unknown, Some(&state), by_provider(""), OWN, "Confirm"),
        ("an obstacle to the setup", &one, &kept, Some(&state), by_provider(""), OWN, "Confirm"),
        ("not possible", &one, &obstructed, None, by_provider(""), OWN, "file alone, own and ours, restart"),
        ("not possible, in force", &one, &obstructed, Some(&managed), by_provider(""), OWN_AND_OURS, "Confirm"),
        ("out", &two, &there, Some(&state), files.clone(), OWN, "no provider, own and ours, restart"),
        ("restore", &restore, &there, Some(&state), files, OWN, "no provider, own, restart"),
    ];
    for (sentence, task, provider, state, content, in_file, expected) in cases {
        let file = file(in_file);
        let action = decide(&NodeFacts {
            provider: Some(provider),
            ..facts(Some(task), state, &file, Some(&content))
        });
        assert_eq!(provider_line(action), expected, "{sentence}");
    }
}

#[test]
fn rebasing_the_setup_of_the_provider_keeps_the_nodes_own_file() {
    let (provider, content, task) = (provider_facts(), by_provider(""), task(2));
    let mut state = synced(OWN);
    state.snapshot = file(OWN).with_mode(Some(0o644));
    state.mode = Some(0o644);
    let before = file(OWN_AND_OURS);
    let facts = NodeFacts {
        provider: Some(&provider),
        ..facts(Some(&task), Some(&state), &before, Some(&content))
    };
    let Action::Begin { change, .. } = decide(&facts) else {
        panic!("not begun")
    };
    assert_eq!(change.target, state.snapshot);
    let found = file(&format!("{OWN_AND_OURS}\n"));
    let rebased = rebase(&change, &found, &state).unwrap();
    assert_eq!(rebased.target, state.snapshot, "ahead");
    assert_eq!(rebased.before, found, "back");
}

#[test]
fn rebasing_the_providers_setup_keeps_flags_written_meanwhile() {
    let facts = provider_facts();
    let (content, config) = (by_provider(""), with_scopes());
    let change = ProviderChange {
        before: facts.provider.without(&facts.disk).unwrap(),
        target: facts.with_content(1, &content, &config, None).unwrap(),
        is_kubelet_checked: true,
        has_failed: false,
    };
    let rebased =
        |disk: &ProviderDisk| credential_provider::rebase(&facts.provider, &change, disk).unwrap();
    assert_eq!(rebased(&facts.disk), None, "nobody wrote");
    let theirs = Some(file("KUBELET_KUBEADM_ARGS=\"--v=4\"\n"));
    let rebased = rebased(&ProviderDisk {
        data: FileSnapshot::Absent,
        config: FileSnapshot::Absent,
        flags: theirs.clone(),
        is_beside_others: false,
    })
    .unwrap();
    assert_eq!(rebased.before.flags, theirs, "back");
    let Some(FileSnapshot::File { bytes, .. }) = &rebased.target.flags else {
        panic!("no flags")
    };
    let ahead = String::from_utf8_lossy(bytes);
    assert!(ahead.contains("\"--v=4 --image-credential-provider-config="));
    assert_eq!(rebased.target.installed, change.target.installed);
}

#[test]
fn a_newer_rotation_still_restarts_for_settings_written_before() {
    let (mut provider, mut state) = in_force(true);
    let content = by_provider("5055");
    let Delivery::CredentialProvider(config) = &content.delivery else {
        panic!("by the provider")
    };
    let before = provider.with(state.provider.clone().unwrap()).unwrap();
    let target = provider.with_content(2, &content, config, None).unwrap();
    provider.disk = ProviderDisk {
        data: target.data(),
        config: target.config.clone(),
        flags: target.flags.clone(),
        is_beside_others: false,
    };
    let (file, newest) = (file(OWN), task(3));
    for (is_pending, expected) in [(true, "provider, own, restart"), (false, "provider, own")] {
        state.change = is_pending.then(|| PendingChange {
            task: task(2),
            target: file.clone(),
            before: file.clone(),
            provider: Some(ProviderChange {
                before: before.clone(),
                target: target.clone(),
                is_kubelet_checked: true,
                has_failed: false,
            }),
            ..with_step(ChangeStep::Forward)
        });
        let action = decide(&NodeFacts {
            provider: Some(&provider),
            is_cooled_down: false,
            ..facts(Some(&newest), Some(&state), &file, Some(&content))
        });
        assert_eq!(provider_line(action), expected, "pending: {is_pending}");
    }
}

#[test]
fn provider_drift_needs_a_restart_if_read_only_at_start() {
    let (facts_in_force, state) = in_force(true);
    let changed = |change: fn(&mut ProviderFacts)| {
        let (mut facts, _) = in_force(true);
        change(&mut facts);
        facts
    };
    #[rustfmt::skip]
    let cases = [
        ("nothing", facts_in_force, "Confirm"),
        ("data", changed(|facts| facts.disk.data = FileSnapshot::Absent), "provider, own, drift"),
        ("program", changed(|facts| facts.has_program = false), "provider, own"),
        ("configuration", changed(|facts| facts.disk.config = FileSnapshot::Absent), "provider, own, restart, drift"),
        ("flags", changed(|facts| facts.disk.flags = Some(file(FLAGS))), "provider, own, restart, drift"),
        (
            "flags that kubeadm sorted",
            changed(|facts| {
                let flags = "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-bin-dir=/var/lib/kubelet/.globalps/bin \
                                 --image-credential-provider-config=/var/lib/kubelet/.globalps/globalps-credential-provider.yaml --v=1\"\n";
                facts.disk.flags = Some(file(flags));
            }),
            "Confirm",
        ),
        (
            "one flag of two",
            changed(|facts| {
                let flags = "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-bin-dir=/var/lib/kubelet/.globalps/bin\"\n";
                facts.disk.flags = Some(file(flags));
            }),
            "provider, own, restart, drift",
        ),
        (
            "foreign flags",
            changed(|facts| {
                let flags = "KUBELET_KUBEADM_ARGS=\"--image-credential-provider-config=/x\"\n";
                facts.disk.flags = Some(file(flags));
            }),
            "no provider, own and ours, restart",
        ),
    ];
    for (sentence, provider, expected) in cases {
        let (task, file, content) = (task(1), file(OWN), by_provider(""));
        let facts_now = |superseded, desired| NodeFacts {
            provider: Some(&provider),
            superseded,
            ..facts(Some(&task), Some(&state), &file, desired)
        };
        let action = decide(&facts_now(false, Some(&content)));
        assert_eq!(provider_line(action), expected, "{sentence}");
        let action = decide(&facts_now(true, None));
        assert_eq!(provider_line(action), expected, "{sentence}, superseded");
    }
}

/// A node set up by kubeadm, with these kubelet flags.
fn facts_on(flags: &str, side: Option<&ProviderSide>, obstacle: Option<Obstacle>) -> ProviderFacts {
    let path = |path: &str| HostPath {
        here: path.into(),
        host: path.into(),
    };
    let config_file = path("/var/lib/kubelet/config.json");
    let absent = || FileSnapshot::Absent;
    ProviderFacts {
        provider: Provider::new("/globalps-credential-provider".into(), &config_file, None),
        disk: ProviderDisk {
            data: side.map_or_else(absent, ProviderSide::data),
            config: side.map_or_else(absent, |side| side.config.clone()),
            flags: side.map_or_else(|| Some(file(flags)), |side| side.flags.clone()),
            is_beside_others: false,
        },
        has_program: side.is_some(),
        tokens: Some(true),
        obstacle,
        unused: None,
    }
}

#[test]
fn the_provider_changes_only_with_an_assignment() {
    const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--v=1\"\n";
    let by_provider = |text: &str, ports: &[&str]| Content {
        delivery: Delivery::CredentialProvider(ProviderConfig {
            ports: ports.iter().map(|&port| port.to_owned()).collect(),
            scopes: true,
        }),
        ..content(text)
    };
    let of_generation = |generation, number| Task {
        generation,
        ..task(number)
    };
    let of_another = |number| Task {
        uid: "another".to_owned(),
        generation: 1,
        ..task(number)
    };
    let new = facts_on(FLAGS, None, None);
    let mut by_file = synced("");
    by_file.applied = Some(task(1));
    let side = new
        .with_content(1, &by_provider(OURS, &[]), &with_scopes(), None)
        .unwrap();
    let mut provided = JournalState::new(FileSnapshot::Absent, 1);
    provided.revision = revision(1);
    provided.applied = Some(task(1));
    provided.provider.clone_from(&side.installed);
    let installed = facts_on(FLAGS, Some(&side), None);
    let mut old_kubelet = provided.clone();
    old_kubelet.provider.as_mut().unwrap().tokens = false;
    let old_side = new.with(old_kubelet.provider.clone().unwrap()).unwrap();
    let upgraded = facts_on(FLAGS, Some(&old_side), None);
    let obstacle = Some(Obstacle::new("the kubelet is older than Kubernetes 1.26"));
    let impossible = facts_on(FLAGS, None, obstacle);
    let rewritten = ProviderSide {
        flags: Some(file(FLAGS)),
        ..side.clone()
    };
    let drifted = facts_on(FLAGS, Some(&rewritten), None);
    #[rustfmt::skip]
    let cases = [
        ("setup with a new revision", task(2), &by_file, &new, by_provider(OURS, &[]), OURS, "in, restart"),
        ("a newer syncer alone changes nothing", task(1), &by_file, &new, by_provider(OURS, &[]), OURS, "Confirm"),
        (
            "setup when it is assigned again",
            of_generation(8, 1),
            &by_file,
            &new,
            by_provider(OURS, &[]),
            OURS,
            "in, restart",
        ),
        ("its object was created again", of_another(1), &by_file, &new, by_provider(OURS, &[]), OURS, "Confirm"),
        ("with a newer revision", of_another(2), &by_file, &new, by_provider(OURS, &[]), OURS, "in, restart"),
        ("in force", task(1), &provided, &installed, by_provider(OURS, &[]), "", "Confirm"),
        ("a rotation in place", task(2), &provided, &installed, by_provider(NEWER, &[]), "", "in, no restart"),
        ("a new port", task(2), &provided, &installed, by_provider(NEWER, &["99"]), "", "in, restart"),
        ("an upgraded kubelet waits", task(1), &old_kubelet, &upgraded, by_provider(OURS, &[]), "", "Confirm"),
        (
            "also if its object was created again",
            of_another(1),
            &old_kubelet,
            &upgraded,
            by_provider(OURS, &[]),
            "",
            "Confirm",
        ),
        ("until it is assigned again", task(2), &old_kubelet, &upgraded, by_provider(NEWER, &[]), "", "in, restart"),
        (
            "flags that another process rewrote",
            task(1),
            &provided,
            &drifted,
            by_provider(OURS, &[]),
            "",
            "in, restart, drift",
        ),
        (
            "if it is not possible, the file gets the content",
            task(2),
            &by_file,
            &impossible,
            by_provider(NEWER, &[]),
            OURS,
            "out, restart",
        ),
        ("and nothing else changes", task(1), &by_file, &impossible, by_provider(OURS, &[]), OURS, "Confirm"),
        ("removal by a revision", task(2), &provided, &installed, content(OURS), "", "out, restart"),
        ("removal by a restore", task(0), &provided, &installed, Content::default(), "", "out, restart"),
    ];
    for (sentence, task, state, found, content, on_disk, expected) in cases {
        let file = file(on_disk);
        let facts = NodeFacts {
            provider: Some(found),
            is_watched: true,
            ..facts(Some(&task), Some(state), &file, Some(&content))
        };
        let action = match decide(&facts) {
            Action::Begin { change, drift, .. } => {
                let both = change.provider.as_ref();
                let is_in = both.is_some_and(|both| both.target.installed.is_some());
                assert_eq!(
                    change.target_managed.is_empty(),
                    is_in || task.revision == Revision::NONE,
                    "{sentence}"
                );
                let way = if is_in { "in" } else { "out" };
                let restart = if change.restart {
                    "restart"
                } else {
                    "no restart"
                };
                let drift = if drift { ", drift" } else { "" };
                format!("{way}, {restart}{drift}")
            }
            action => format!("{action:?}"),
        };
        assert_eq!(action, expected, "{sentence}");
    }
}
