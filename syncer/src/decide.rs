//! What a node does next. Pure: one look tells it all.

use globalps_core::dockerconfig::{self, DockerConfig, merge_on_node};
use globalps_core::rollout::Goal;

use crate::config_file::Image;
use crate::journal::{Change, Failure, Ours, State, Step, Task};

/// Everything that the decision depends on.
#[allow(clippy::struct_excessive_bools)] // Facts do not depend on each other.
#[derive(Debug)]
pub(crate) struct NodeFacts<'a> {
    /// What the node is granted; `None`: nothing, or not known.
    pub(crate) task: Option<&'a Task>,
    /// The cluster knows nothing of this node yet, and nothing was ever done here.
    pub(crate) is_unseen: bool,
    /// Another program is known to manage the file, so nothing is put into it.
    pub(crate) is_foreign: bool,
    /// What was done here before; `None`: nothing.
    pub(crate) state: Option<&'a State>,
    pub(crate) file: &'a Image,
    /// Content of the granted revision; `None`: not fetched, or `global-pull-secret` is at another one.
    pub(crate) desired: Option<&'a DockerConfig>,
    /// `global-pull-secret` is at another revision than the granted one, so its content is not to be had.
    pub(crate) superseded: bool,
    /// Whether the kubelet is to be restarted at all.
    pub(crate) restart: bool,
    /// A restart that is owed need not wait any more.
    pub(crate) is_due: bool,
    /// The file was seen to be right since this program started, and every change of it is told at once.
    pub(crate) is_watched: bool,
    /// Somebody else has changed ours so often that it is their file now.
    pub(crate) is_fought_over: bool,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing to do.
    Rest,
    /// Nobody has granted anything, since nobody has seen the node: what is proven is taken.
    Join,
    /// The task's content is needed first.
    Fetch,
    /// What is under way goes on, forward or back.
    Resume,
    /// The kubelet has run long enough with the new content, or there is something newer: the way back is closed.
    Settle,
    /// A new change; `set_aside`: the file is not a credentials file, and its bytes are to be kept first; `drift`: the
    /// task was in force already, and somebody else changed ours.
    Begin {
        change: Box<Change>,
        set_aside: bool,
        drift: bool,
    },
    /// The file is known to be another program's.
    LeaveAlone,
    /// The task was in force, and somebody else undoes it again and again. It is left to them.
    Yield,
    /// The task failed before and is not tried again.
    Refuse(Failure),
    /// The task is in force as it is.
    Confirm,
    /// There is nothing of ours, and nothing to put back.
    Forget,
}

pub(crate) fn decide(facts: &NodeFacts) -> Action {
    let change = facts.state.and_then(|state| state.change.as_ref());
    if let Some(change) = change {
        let is_newer = facts.task.is_some_and(|task| *task != change.task);
        // Whatever is wanted now: a change that was begun is finished or taken back first, unless its restart is still
        // to come, which another content may share.
        match change.step {
            Step::Watching if is_newer || is_drifted(facts) => return Action::Settle,
            Step::Watching => return Action::Confirm,
            Step::Forward if change.awaits_restart() && is_newer && !facts.is_due => {}
            Step::Forward | Step::Back => return Action::Resume,
        }
    }
    if facts.is_foreign && facts.task.is_none_or(|task| task.goal() != Goal::Restore) {
        return Action::LeaveAlone;
    }
    let Some(task) = facts.task else {
        return if facts.is_unseen {
            Action::Join
        } else {
            Action::Rest
        };
    };
    if let Some(failure) = facts.state.and_then(|state| state.failed.as_ref())
        && failure.task == *task
    {
        return Action::Refuse(failure.clone());
    }
    if facts
        .state
        .is_some_and(|state| state.given_up.as_ref() == Some(task))
    {
        return Action::Yield;
    }
    match (task.goal(), facts.state, facts.desired) {
        (Goal::Restore, None, _) => Action::Forget,
        (Goal::Restore, Some(state), _) => begin(facts, state, task, &DockerConfig::default()),
        // A rollout that is held leaves nodes on an older revision, and they are no worse for it.
        (Goal::Revision(revision), Some(state), None)
            if facts.superseded && state.revision == revision && state.change.is_none() =>
        {
            Action::Confirm
        }
        (Goal::Revision(_), _, None) => Action::Fetch,
        (Goal::Revision(_), state, Some(desired)) => {
            let first = State::new(facts.file.clone(), 0);
            begin(facts, state.unwrap_or(&first), task, desired)
        }
    }
}

/// Whether somebody else changed ours. What is put back has no way back to the content from before.
fn is_drifted(facts: &NodeFacts) -> bool {
    let (Some(task), Some(state), Some(desired)) = (facts.task, facts.state, facts.desired) else {
        return false;
    };
    let mut settled = state.clone();
    settled.change = None;
    task.goal() != Goal::Restore
        && !matches!(begin(facts, &settled, task, desired), Action::Confirm)
}

fn begin(facts: &NodeFacts, state: &State, task: &Task, desired: &DockerConfig) -> Action {
    // A change that is written and whose restart is still to come: this one takes its place, and its way back.
    let pending = state.change.as_ref();
    let ours = pending.map_or_else(
        || state.ours.clone(),
        |change| change.before_ours.and(&change.target_ours),
    );
    let spoilt = is_spoilt(facts.file);
    // A file that is no credentials file any more tells nothing of the node's own entries; the one from before does.
    let existing = parsed(facts.file)
        .or_else(|| parsed(&state.snapshot))
        .unwrap_or_default();
    let merged = merge_on_node(&existing, desired, &ours.keys, &ours.overridden());
    let target_ours = Ours::new(desired, merged.overridden);
    let same = !spoilt && merged.config.means_the_same(&existing);
    let target = match task.goal() {
        Goal::Restore => restored(&merged.config, facts.file, &state.snapshot),
        Goal::Revision(_) if same && *facts.file != Image::Absent => facts.file.clone(),
        Goal::Revision(_) => facts.file.with_bytes(merged.config.render()),
    };
    let mut drift = false;
    if pending.is_none() {
        if target == *facts.file && task.goal() == Goal::Restore {
            return Action::Forget;
        }
        let in_force = state.revision == task.revision && state.ours.keys == target_ours.keys;
        if target == *facts.file && in_force {
            return Action::Confirm;
        }
        drift = in_force && task.goal() != Goal::Restore;
        if drift && facts.is_fought_over {
            return Action::Yield;
        }
    }
    // What is put back at once was never read by the kubelet.
    let is_needed = pending.is_some() || !(same || drift && facts.is_watched);
    let change = Change {
        task: task.clone(),
        step: Step::Forward,
        restart: facts.restart && is_needed,
        target,
        target_ours,
        started_from: None,
        before: pending.map_or(facts.file, |change| &change.before).clone(),
        before_ours: pending
            .map_or(&state.ours, |change| &change.before_ours)
            .clone(),
        before_revision: state.revision,
        back_from: None,
        failure: String::new(),
    };
    Action::Begin {
        change: Box::new(change),
        set_aside: spoilt,
        drift,
    }
}

/// The change, for a file that somebody else wrote after it was written down: ahead and back, what they wrote stays.
/// It must be known whose an entry is without knowing how far the change came, so all of ours from before and of the
/// target count as ours. `None`: it is no credentials file, so there is nothing in it to keep.
pub(crate) fn rebase(change: &Change, file: &Image, snapshot: &Image) -> Option<Change> {
    let existing = parsed(file)?;
    let ours = change.before_ours.and(&change.target_ours);
    let on_file = |image: &Image, wanted: &Ours| {
        let wanted = wanted.among(&parsed(image).unwrap_or_default());
        merge_on_node(&existing, &wanted, &ours.keys, &ours.overridden())
    };
    let as_file = |config: &DockerConfig| {
        if config.means_the_same(&existing) && *file != Image::Absent {
            file.clone()
        } else {
            file.with_bytes(config.render())
        }
    };
    let ahead = on_file(&change.target, &change.target_ours);
    let back = on_file(&change.before, &change.before_ours);
    let target = match change.task.goal() {
        Goal::Restore => restored(&ahead.config, file, snapshot),
        Goal::Revision(_) => as_file(&ahead.config),
    };
    // Where there was no file, or they took it away, there is none again, rather than one with nothing in it.
    let was_absent = change.before == Image::Absent || *file == Image::Absent;
    let before = if was_absent && back.config.is_empty() {
        Image::Absent
    } else {
        as_file(&back.config)
    };
    Some(Change {
        target,
        target_ours: change.target_ours.overriding(ahead.overridden),
        before,
        before_ours: change.before_ours.overriding(back.overridden),
        ..change.clone()
    })
}

/// The file's entries that a kubelet can read; `None`: it is no credentials file.
fn parsed(file: &Image) -> Option<DockerConfig> {
    let Image::File { bytes, .. } = file else {
        return Some(DockerConfig::default());
    };
    let config = dockerconfig::parse(bytes).ok()?;
    let readable = config
        .entries()
        .iter()
        .filter(|entry| entry.credential().is_ok())
        .cloned()
        .collect();
    Some(config.with_entries(readable))
}

/// Whether a kubelet drops the file: for one entry that it can't read, it drops all of it.
pub(crate) fn is_spoilt(file: &Image) -> bool {
    let Image::File { bytes, .. } = file else {
        return false;
    };
    !dockerconfig::parse(bytes).is_ok_and(|config| config.is_kubelet_readable())
}

/// The file without ours: the very bytes from before where nothing else has changed since, else what others made of it.
fn restored(without_ours: &DockerConfig, file: &Image, snapshot: &Image) -> Image {
    let before = parsed(snapshot).unwrap_or_default();
    if without_ours.means_the_same(&before) {
        snapshot.clone()
    } else if *file == Image::Absent && without_ours.is_empty() {
        // They took it away, and there is nothing to write.
        Image::Absent
    } else {
        file.with_bytes(without_ours.render())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const OURS: &str = r#"{"auths":{"r":{"auth":"dTpw"}}}"#;
    const NEWER: &str = r#"{"auths":{"r":{"auth":"dTpx"}}}"#;
    const OWN: &str = "{ \"auths\": {\"own\": {\"auth\": \"bzpv\"}}, \"x\": 1 }\n";
    const OWN_AND_OURS: &str = r#"{"auths":{"own":{"auth":"bzpv"},"r":{"auth":"dTpw"}},"x":1}"#;
    const TWICE: &str = r#"{"auths":{"https://q":{"auth":"bzpv"},"q":{"auth":"bzpx"}}}"#;
    const TWICE_AND_OURS: &str =
        r#"{"auths":{"https://q":{"auth":"bzpv"},"q":{"auth":"bzpx"},"r":{"auth":"dTpw"}}}"#;
    const OWN_R: &str = r#"{"auths":{"https://r/":{"auth":"bzpv"}}}"#;

    fn task(revision: i64) -> Task {
        Task {
            uid: "u".to_owned(),
            generation: 7,
            revision,
        }
    }

    fn file(text: &str) -> Image {
        if text.is_empty() {
            Image::Absent
        } else {
            Image::Absent.with_bytes(text.as_bytes().to_vec())
        }
    }

    fn config(text: &str) -> DockerConfig {
        dockerconfig::parse(text.as_bytes()).unwrap()
    }

    /// The state after revision 1 was put in force on a node whose file was this.
    fn synced(snapshot: &str) -> State {
        let mut state = State::new(file(snapshot), 1);
        let existing = parsed(&file(snapshot)).unwrap_or_default();
        let merged = merge_on_node(&existing, &config(OURS), &BTreeSet::default(), &[]);
        state.ours = Ours::new(&config(OURS), merged.overridden);
        state.revision = 1;
        state
    }

    fn with_step(step: Step) -> Change {
        Change {
            task: task(1),
            step,
            restart: true,
            target: file(OURS),
            target_ours: Ours::default(),
            started_from: None,
            before: Image::Absent,
            before_ours: Ours::default(),
            before_revision: 0,
            back_from: None,
            failure: String::new(),
        }
    }

    /// The decision in one line.
    fn line(
        task: Option<&Task>,
        state: Option<&State>,
        content: &str,
        desired: Option<&str>,
    ) -> String {
        let (file, desired) = (file(content), desired.map(config));
        in_one_line(decide(&facts(task, state, &file, desired.as_ref())))
    }

    fn facts<'a>(
        task: Option<&'a Task>,
        state: Option<&'a State>,
        file: &'a Image,
        desired: Option<&'a DockerConfig>,
    ) -> NodeFacts<'a> {
        NodeFacts {
            task,
            is_unseen: false,
            is_foreign: false,
            state,
            file,
            desired,
            superseded: false,
            restart: true,
            is_due: true,
            is_watched: false,
            is_fought_over: false,
        }
    }

    fn in_one_line(action: Action) -> String {
        match action {
            Action::Begin {
                change,
                set_aside,
                drift,
            } => {
                let target = match &change.target {
                    Image::Absent => "absent".to_owned(),
                    Image::File { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
                };
                let restart = if change.restart {
                    "restart"
                } else {
                    "no restart"
                };
                let set_aside = if set_aside { ", set aside" } else { "" };
                let drift = if drift { ", drift" } else { "" };
                format!("{target}, {restart}{set_aside}{drift}")
            }
            Action::Refuse(_) => "Refuse".to_owned(),
            action => format!("{action:?}"),
        }
    }

    #[test]
    fn every_decision_follows_from_the_facts() {
        let (one, two, restore) = (task(1), task(2), task(0));
        let mut failed = synced("");
        failed.failed = Some(Failure {
            task: two.clone(),
            why: "why".to_owned(),
            stuck: false,
        });
        for (sentence, task, state, content, desired, expected) in [
            (
                "not granted: nothing",
                None,
                None,
                "",
                None,
                "Rest".to_owned(),
            ),
            (
                "granted: the content is needed",
                Some(&one),
                None,
                "",
                None,
                "Fetch".to_owned(),
            ),
            (
                "a new file",
                Some(&one),
                None,
                "",
                Some(OURS),
                format!("{OURS}, restart"),
            ),
            (
                "beside the node's own",
                Some(&one),
                None,
                OWN,
                Some(OURS),
                format!("{OWN_AND_OURS}, restart"),
            ),
            (
                "the same meaning restarts nothing",
                Some(&one),
                None,
                OURS,
                Some(OURS),
                format!("{OURS}, no restart"),
            ),
            (
                "what is no credentials file is kept aside",
                Some(&one),
                None,
                "{",
                Some(OURS),
                format!("{OURS}, restart, set aside"),
            ),
            (
                "in force: confirmed",
                Some(&one),
                Some(synced("")),
                OURS,
                Some(OURS),
                "Confirm".to_owned(),
            ),
            (
                "a rotation",
                Some(&two),
                Some(synced("")),
                OURS,
                Some(NEWER),
                format!("{NEWER}, restart"),
            ),
            (
                "a rotation that means the same",
                Some(&two),
                Some(synced("")),
                OURS,
                Some(OURS),
                format!("{OURS}, no restart"),
            ),
            (
                "what failed is not tried again",
                Some(&two),
                Some(failed),
                OURS,
                Some(NEWER),
                "Refuse".to_owned(),
            ),
            (
                "restore of nothing",
                Some(&restore),
                None,
                OWN,
                None,
                "Forget".to_owned(),
            ),
            (
                "an absent file is absent again",
                Some(&restore),
                Some(synced("")),
                OURS,
                None,
                "absent, restart".to_owned(),
            ),
            (
                "the very bytes are back",
                Some(&restore),
                Some(synced(OWN)),
                OWN_AND_OURS,
                None,
                format!("{OWN}, restart"),
            ),
            (
                "an overridden entry is back",
                Some(&restore),
                Some(synced(OWN_R)),
                OURS,
                None,
                format!("{OWN_R}, restart"),
            ),
            (
                "what others added since stays",
                Some(&restore),
                Some(synced("")),
                OWN_AND_OURS,
                None,
                r#"{"auths":{"own":{"auth":"bzpv"}},"x":1}, restart"#.to_owned(),
            ),
            (
                "bytes that were no credentials file are back",
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
                "a file that was spoilt later: the node's own entries come from the snapshot",
                Some(&one),
                Some(synced(OWN)),
                "{",
                Some(OURS),
                format!("{OWN_AND_OURS}, restart, set aside, drift"),
            ),
            (
                "a file that was spoilt later: the very bytes from before are back",
                Some(&restore),
                Some(synced(OWN)),
                "{",
                None,
                format!("{OWN}, restart, set aside"),
            ),
            (
                "two spellings of one registry are back as they were",
                Some(&restore),
                Some(synced(TWICE)),
                TWICE_AND_OURS,
                None,
                format!("{TWICE}, restart"),
            ),
            (
                "one bad entry spoils a file: it is kept aside, and its good entries stay",
                Some(&one),
                None,
                r#"{"auths":{"own":{"auth":"bzpv"},"bad":{"auth":"pants"}},"x":1}"#,
                Some(OURS),
                format!("{OWN_AND_OURS}, restart, set aside"),
            ),
            (
                "two spellings of one registry stay",
                Some(&one),
                None,
                TWICE,
                Some(OURS),
                format!("{TWICE_AND_OURS}, restart"),
            ),
            (
                "nothing to take out: forgotten",
                Some(&restore),
                Some(synced("")),
                "",
                None,
                "Forget".to_owned(),
            ),
        ] {
            assert_eq!(
                line(task, state.as_ref(), content, desired),
                expected,
                "{sentence}"
            );
        }
    }

    #[test]
    fn what_was_begun_is_finished_before_anything_else() {
        let (one, two) = (task(1), task(2));
        let with = |step| {
            let mut state = synced("");
            state.change = Some(with_step(step));
            state
        };
        for (step, task, content, expected) in [
            (Step::Forward, Some(&two), OURS, "Resume"),
            (Step::Forward, None, OURS, "Resume"),
            (Step::Back, Some(&one), OURS, "Resume"),
            (Step::Watching, Some(&one), OURS, "Confirm"),
            (Step::Watching, Some(&one), OWN, "Settle"),
            (Step::Watching, None, OURS, "Confirm"),
            (Step::Watching, Some(&two), OURS, "Settle"),
        ] {
            assert_eq!(
                line(task, Some(&with(step)), content, Some(OURS)),
                expected,
                "{step:?}, {content}"
            );
        }
    }

    #[test]
    fn a_newer_content_shares_the_restart_that_is_still_to_come() {
        let (one, two, restore) = (task(1), task(2), task(0));
        let existing = parsed(&file(OWN)).unwrap();
        let merged = merge_on_node(&existing, &config(OURS), &BTreeSet::default(), &[]);
        let mut state = State::new(file(OWN), 0);
        state.change = Some(Change {
            target: file(OWN_AND_OURS),
            target_ours: Ours::new(&config(OURS), merged.overridden),
            before: file(OWN),
            ..with_step(Step::Forward)
        });
        let mut asked = state.clone();
        asked.change.as_mut().unwrap().started_from = Some("0".to_owned());
        let newer = OWN_AND_OURS.replace("dTpw", "dTpx");
        let (begin_newer, begin_restore) = (format!("{newer}, restart"), format!("{OWN}, restart"));
        for (sentence, task, state, desired, is_due, expected) in [
            (
                "the same task waits",
                &one,
                &state,
                Some(OURS),
                false,
                "Resume",
            ),
            (
                "a newer one takes its place",
                &two,
                &state,
                Some(NEWER),
                false,
                &begin_newer,
            ),
            (
                "the restore too",
                &restore,
                &state,
                None,
                false,
                &begin_restore,
            ),
            ("its content is needed", &two, &state, None, false, "Fetch"),
            (
                "but not for longer than that",
                &two,
                &state,
                None,
                true,
                "Resume",
            ),
            (
                "the same content still owes a restart",
                &two,
                &state,
                Some(OURS),
                false,
                &format!("{OWN_AND_OURS}, restart"),
            ),
            (
                "the restart was asked for",
                &two,
                &asked,
                Some(NEWER),
                false,
                "Resume",
            ),
        ] {
            let (file, desired) = (file(OWN_AND_OURS), desired.map(config));
            let facts = NodeFacts {
                is_due,
                ..facts(Some(task), Some(state), &file, desired.as_ref())
            };
            let action = decide(&facts);
            if let Action::Begin { change, .. } = &action {
                assert_eq!(change.before, self::file(OWN), "{sentence}: the way back");
            }
            assert_eq!(in_one_line(action), *expected, "{sentence}");
        }
    }

    #[test]
    fn what_somebody_else_took_out_is_put_back_until_it_is_a_fight() {
        let (one, two) = (task(1), task(2));
        let mut given_up = synced(OWN);
        given_up.given_up = Some(task(1));
        let restart = format!("{OWN_AND_OURS}, restart, drift");
        let no_restart = format!("{OWN_AND_OURS}, no restart, drift");
        for (sentence, task, state, is_watched, is_fought_over, expected) in [
            (
                "seen at once: the kubelet has not read it",
                &one,
                &synced(OWN),
                true,
                false,
                &*no_restart,
            ),
            (
                "who knows for how long: restarted",
                &one,
                &synced(OWN),
                false,
                false,
                &*restart,
            ),
            (
                "a fight is not fought",
                &one,
                &synced(OWN),
                true,
                true,
                "Yield",
            ),
            (
                "what was given up stays so",
                &one,
                &given_up,
                true,
                false,
                "Yield",
            ),
            (
                "another revision is no drift",
                &two,
                &given_up,
                true,
                true,
                &*format!("{OWN_AND_OURS}, restart"),
            ),
        ] {
            let (file, desired) = (file(OWN), config(OURS));
            let facts = NodeFacts {
                is_watched,
                is_fought_over,
                ..facts(Some(task), Some(state), &file, Some(&desired))
            };
            assert_eq!(in_one_line(decide(&facts)), expected, "{sentence}");
        }
    }

    #[test]
    fn a_node_that_nobody_has_seen_joins_and_any_other_without_a_grant_rests() {
        let file = Image::Absent;
        for (is_unseen, expected) in [(true, "Join"), (false, "Rest")] {
            let facts = NodeFacts {
                is_unseen,
                ..facts(None, None, &file, None)
            };
            assert_eq!(in_one_line(decide(&facts)), expected);
        }
    }

    #[test]
    fn nothing_is_put_into_a_file_that_another_program_manages_and_ours_is_taken_out_of_it() {
        let mut under_way = synced(OWN);
        under_way.change = Some(with_step(Step::Forward));
        let (one, restore) = (task(1), task(0));
        for (sentence, task, state, content, expected) in [
            ("no first revision", &one, None, OWN, "LeaveAlone"),
            (
                "no other one",
                &task(2),
                Some(&synced(OWN)),
                OWN,
                "LeaveAlone",
            ),
            (
                "what was begun is ended",
                &one,
                Some(&under_way),
                OWN,
                "Resume",
            ),
            (
                "the way back is open",
                &restore,
                Some(&synced(OWN)),
                OWN_AND_OURS,
                &*format!("{OWN}, restart"),
            ),
        ] {
            let (file, desired) = (file(content), config(OURS));
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
            "it is told before anything is granted"
        );
    }

    #[test]
    fn never_means_that_no_change_restarts_the_kubelet() {
        let (file, desired, task) = (Image::Absent, config(OURS), task(1));
        let facts = NodeFacts {
            restart: false,
            ..facts(Some(&task), None, &file, Some(&desired))
        };
        assert!(matches!(decide(&facts), Action::Begin { change, .. } if !change.restart));
    }

    #[test]
    fn what_is_in_force_stays_so_where_the_rollout_of_something_newer_is_held() {
        let (one, two, state, file) = (task(1), task(2), synced(""), file(OURS));
        for (task, superseded, expected) in [
            (&one, true, "Confirm"),
            (&one, false, "Fetch"),
            (&two, true, "Fetch"),
        ] {
            let facts = NodeFacts {
                superseded,
                ..facts(Some(task), Some(&state), &file, None)
            };
            let action = format!("{:?}", decide(&facts));
            assert_eq!(action, expected, "{task:?}, superseded: {superseded}");
        }
    }

    #[test]
    fn what_others_wrote_meanwhile_stays_ahead_and_back() {
        const THEIRS: &str = r#"{"auths":{"theirs":{"auth":"dDp0"}}}"#;
        const THEIRS_AND_OURS: &str = r#"{"auths":{"r":{"auth":"dTpw"},"theirs":{"auth":"dDp0"}}}"#;
        const THEIRS_AND_OWN_R: &str =
            r#"{"auths":{"https://r/":{"auth":"bzpv"},"theirs":{"auth":"dDp0"}}}"#;
        for (sentence, before, content, ahead, back) in [
            (
                "before ours was written",
                "",
                THEIRS,
                THEIRS_AND_OURS,
                THEIRS,
            ),
            (
                "after ours was written",
                "",
                THEIRS_AND_OURS,
                THEIRS_AND_OURS,
                THEIRS,
            ),
            (
                "before one of their own was overridden",
                OWN_R,
                THEIRS_AND_OWN_R,
                THEIRS_AND_OURS,
                THEIRS_AND_OWN_R,
            ),
            (
                "after one of their own was overridden",
                OWN_R,
                THEIRS_AND_OURS,
                THEIRS_AND_OURS,
                THEIRS_AND_OWN_R,
            ),
            (
                "a file that they removed is made for ours, and none on the way back",
                OWN,
                "",
                OURS,
                "",
            ),
        ] {
            let text = |image: &Image| match image {
                Image::Absent => String::new(),
                Image::File { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
            };
            let desired = config(OURS);
            let (task, state, before) = (task(1), State::new(file(before), 0), file(before));
            let facts = facts(Some(&task), None, &before, Some(&desired));
            let Action::Begin { change, .. } = decide(&facts) else {
                panic!("{sentence}: not begun")
            };
            let rebased = rebase(&change, &file(content), &state.snapshot).unwrap();
            assert_eq!(text(&rebased.target), ahead, "{sentence}: ahead");
            assert_eq!(text(&rebased.before), back, "{sentence}: back");
            assert_eq!(rebased.target_ours.keys, change.target_ours.keys);
        }
        assert!(rebase(&with_step(Step::Forward), &file("{"), &Image::Absent).is_none());
    }
}
