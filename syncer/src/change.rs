//! Carries a change out, step by step, each written down before it is taken, so that whoever is killed in between can
//! be followed by another who goes on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use globalps_core::rollout::Goal;
use tokio::time::sleep;

use crate::config_file::{self, Image};
use crate::decide;
use crate::journal::{Change, Failure, Journal, NodeError, State, Step};
use crate::kubelet::{Kubelet, Trouble};
use crate::systemd::Since;

/// Attempts at a restart, and the pauses between them.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    InForce,
    /// The file is written. The restart waits for so long, and what comes until then shares it.
    Written(Duration),
    /// The file is as it was before the change.
    TakenBack(Failure),
}

pub(crate) struct Changer<'a, K> {
    pub(crate) journal: &'a Journal,
    pub(crate) path: &'a PathBuf,
    pub(crate) kubelet: &'a mut K,
}

impl<K: Kubelet> Changer<'_, K> {
    /// Writes the change down, and then carries it out.
    pub(crate) async fn begin(
        &mut self,
        state: &mut State,
        change: Change,
    ) -> Result<Outcome, NodeError> {
        if change.restart {
            // A kubelet that can't be restarted at all is seen before anything is changed.
            self.kubelet.invocation().await.map_err(not_begun)?;
        }
        state.change = Some(change);
        self.journal.save(state)?;
        self.forward(state).await
    }

    /// Goes on with the change that somebody before us wrote down.
    pub(crate) async fn resume(&mut self, state: &mut State) -> Result<Outcome, NodeError> {
        match state.change.as_ref().map(|change| change.step) {
            None | Some(Step::Watching) => Ok(Outcome::InForce),
            Some(Step::Back) => self.back(state).await,
            Some(Step::Forward) => {
                self.keep_what_others_wrote(state)?;
                self.forward(state).await
            }
        }
    }

    /// The file is neither what it was nor what it was to be: somebody else wrote it meanwhile, and the change is made
    /// one of their file.
    fn keep_what_others_wrote(&self, state: &mut State) -> Result<(), NodeError> {
        let Some(change) = &state.change else {
            return Ok(());
        };
        let file = config_file::read(self.path)?;
        if file == change.target || file == change.before {
            return Ok(());
        }
        if let Image::File { bytes, .. } = &file
            && decide::is_spoilt(&file)
        {
            let path = self.journal.set_aside(bytes)?;
            tracing::warn!(path = %path.display(), "the file is no credentials file and was set aside");
        }
        if let Some(rebased) = decide::rebase(change, &file, &state.snapshot) {
            tracing::info!("somebody else wrote the file meanwhile, and what they wrote stays");
            state.change = Some(rebased);
            self.journal.save(state)?;
        }
        Ok(())
    }

    /// Whether the kubelet was started with the file as it is, and serves.
    async fn is_taken_up(&mut self, from: Option<&String>) -> Result<bool, NodeError> {
        let since = match from {
            Some(invocation) => Since::Start(invocation.clone()),
            None => match config_file::modified(self.path) {
                Some(time) => Since::Time(time),
                None => return Ok(false),
            },
        };
        self.kubelet
            .serves_since(&since)
            .await
            .or_else(|trouble| match trouble {
                Trouble::Bus(why) => Err(NodeError::Bus(why)),
                Trouble::Kubelet(_) => Ok(false),
            })
    }

    async fn forward(&mut self, state: &mut State) -> Result<Outcome, NodeError> {
        let Some(change) = state.change.clone() else {
            return Ok(Outcome::InForce);
        };
        let is_new = match self.write(&change.target) {
            Ok(is_new) => is_new,
            Err(error) => {
                // Where the new file is not in place there is nothing to take back. Else only its sync failed, and it
                // goes on from there.
                if config_file::read(self.path).is_ok_and(|file| file == change.target) {
                    return Err(error);
                }
                state.change = None;
                self.journal.save(state)?;
                return Err(error);
            }
        };
        let from = change.started_from.as_ref();
        if change.restart && (is_new || !self.is_taken_up(from).await?) {
            let rests = self.kubelet.rests();
            if from.is_none() && !rests.is_zero() {
                return Ok(Outcome::Written(rests));
            }
            if let Err(trouble) = self.restart(state).await? {
                if let Some(change) = &mut state.change {
                    change.step = Step::Back;
                    change.failure = trouble;
                }
                self.journal.save(state)?;
                return self.back(state).await;
            }
        }
        let Some(change) = state.change.take() else {
            return Ok(Outcome::InForce);
        };
        if change.task.goal() == Goal::Restore {
            self.journal.remove()?;
            // Of the node's history only its counts are left, to be told once more.
            let drifts = state.drifts;
            *state = State::new(change.target, state.restarts);
            state.drifts = drifts;
            return Ok(Outcome::InForce);
        }
        state.ours = change.target_ours.clone();
        state.revision = change.task.revision;
        state.failed = None;
        state.change = change.restart.then_some(Change {
            step: Step::Watching,
            ..change
        });
        self.journal.save(state)?;
        Ok(Outcome::InForce)
    }

    /// Takes the change back although it was in force: the kubelet died while it was under watch.
    pub(crate) async fn take_back(
        &mut self,
        state: &mut State,
        why: String,
    ) -> Result<Outcome, NodeError> {
        if let Some(change) = &mut state.change {
            change.step = Step::Back;
            change.failure = why;
        }
        self.journal.save(state)?;
        self.back(state).await
    }

    async fn back(&mut self, state: &mut State) -> Result<Outcome, NodeError> {
        self.keep_what_others_wrote(state)?;
        let Some(change) = &state.change else {
            return Ok(Outcome::InForce);
        };
        self.write(&change.before)?;
        let from = change.back_from.clone();
        // The kubelet has run with the new content, or tried to, unless nobody has asked for its restart yet.
        let owed = match &from {
            Some(_) => !self.is_taken_up(from.as_ref()).await?,
            None => change.started_from.is_some(),
        };
        let restarted = if owed {
            self.restart(state).await?
        } else {
            Ok(())
        };
        let Some(change) = state.change.take() else {
            return Ok(Outcome::InForce);
        };
        let why = change.failure;
        let failure = match restarted {
            Ok(()) => Failure {
                task: change.task,
                why,
                stuck: false,
            },
            Err(again) => Failure {
                task: change.task,
                why: format!("{why}; and with the file from before: {again}"),
                stuck: true,
            },
        };
        state.ours = change.before_ours;
        state.revision = change.before_revision;
        state.failed = Some(failure.clone());
        self.journal.save(state)?;
        Ok(Outcome::TakenBack(failure))
    }

    /// Makes the file this image; whether it was another one. Durable in any case.
    fn write(&self, image: &Image) -> Result<bool, NodeError> {
        if config_file::read(self.path)? == *image {
            config_file::sync_directory(self.path.parent().unwrap_or(Path::new("/")))?;
            return Ok(false);
        }
        config_file::replace(self.path, image)?;
        Ok(true)
    }

    /// Restarts the kubelet, three times at most. Which start it ran by is written down before the first, so that
    /// whoever comes after us knows whether that came about. The inner error is a sentence: it did not come up.
    async fn restart(&mut self, state: &mut State) -> Result<Result<(), String>, NodeError> {
        let mut pauses = PAUSES.into_iter();
        let mut attempt = 1;
        loop {
            let from = match self.kubelet.invocation().await {
                Err(Trouble::Bus(why)) => return Err(NodeError::Bus(why)),
                from => from.ok(),
            };
            state.restarts += 1;
            let mut anew = attempt > 1;
            if let Some(change) = &mut state.change {
                anew |= change.step == Step::Back;
                let started_from = match change.step {
                    Step::Back => &mut change.back_from,
                    _ => &mut change.started_from,
                };
                *started_from = started_from.take().or(from);
            }
            self.journal.save(state)?;
            let why = match self.kubelet.restart(anew).await {
                Ok(()) => return Ok(Ok(())),
                Err(Trouble::Bus(why)) => return Err(NodeError::Bus(why)),
                Err(Trouble::Kubelet(why)) => why,
            };
            tracing::warn!(attempt, why, "the kubelet did not come up");
            let Some(pause) = pauses.next() else {
                return Ok(Err(format!("{why} (attempt {attempt} of {attempt})")));
            };
            sleep(pause).await;
            attempt += 1;
        }
    }
}

fn not_begun(trouble: Trouble) -> NodeError {
    match trouble {
        Trouble::Bus(why) => NodeError::Bus(why),
        Trouble::Kubelet(why) => NodeError::Unit(why),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::journal::{Ours, Task};

    /// Fails as often as it is told to, and counts.
    #[derive(Default)]
    struct Fake {
        failures: usize,
        restarts: usize,
        serves_since: bool,
        rests: Duration,
        /// The bus goes away with this call, counted from 0, and stays away.
        bus_until: Option<usize>,
        calls: usize,
    }

    impl Fake {
        fn call(&mut self) -> Result<(), Trouble> {
            self.calls += 1;
            if self.bus_until.is_some_and(|until| self.calls > until) {
                return Err(Trouble::Bus("no bus".to_owned()));
            }
            Ok(())
        }
    }

    impl Kubelet for Fake {
        async fn invocation(&mut self) -> Result<String, Trouble> {
            self.call()?;
            Ok(self.restarts.to_string())
        }

        fn rests(&self) -> Duration {
            self.rests
        }

        async fn restart(&mut self, _anew: bool) -> Result<(), Trouble> {
            self.call()?;
            self.restarts += 1;
            if self.restarts <= self.failures {
                Err(Trouble::Kubelet("the restart ended as `failed`".to_owned()))
            } else {
                Ok(())
            }
        }

        async fn serves_since(&mut self, _since: &Since) -> Result<bool, Trouble> {
            self.call()?;
            Ok(self.serves_since)
        }
    }

    const OLD: &str = r#"{"auths":{"old.registry.com":{"auth":"b2xkOnRlc3Q="}}}"#;
    const NEW: &str = r#"{"auths":{"test.registry.com":{"auth":"dGVzdDp0ZXN0"}}}"#;

    fn image(text: Option<&str>) -> Image {
        text.map_or(Image::Absent, |text| {
            Image::Absent.with_bytes(text.as_bytes().to_vec())
        })
    }

    fn change(before: &Image, revision: i64, restart: bool) -> Change {
        Change {
            task: Task {
                uid: "u".to_owned(),
                generation: 1,
                revision,
            },
            step: Step::Forward,
            target: image(Some(NEW)),
            target_ours: Ours::default(),
            restart,
            started_from: None,
            before: before.clone(),
            before_ours: Ours::default(),
            before_revision: 3,
            back_from: None,
            failure: String::new(),
        }
    }

    fn on_disk(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_in_force_or_the_file_is_what_it_was() {
        for (sentence, before, restart, failures, restarts, after, in_force) in [
            (
                "an absent file is written",
                None,
                true,
                0,
                1,
                Some(NEW),
                true,
            ),
            ("a file is replaced", Some(OLD), true, 0, 1, Some(NEW), true),
            (
                "the third attempt is good enough",
                Some(OLD),
                true,
                2,
                3,
                Some(NEW),
                true,
            ),
            (
                "no restart where none is asked for",
                Some(OLD),
                false,
                9,
                0,
                Some(NEW),
                true,
            ),
            (
                "three failures: the file is back, and the kubelet is restarted with it",
                Some(OLD),
                true,
                3,
                4,
                Some(OLD),
                false,
            ),
            (
                "three failures: an absent file is absent again, not empty",
                None,
                true,
                3,
                4,
                None,
                false,
            ),
            (
                "even where the kubelet does not come up again",
                Some(OLD),
                true,
                9,
                6,
                Some(OLD),
                false,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.json");
            if let Some(text) = before {
                config_file::replace(&path, &image(Some(text))).unwrap();
            }
            let journal = Journal::beside(&path);
            let mut state = State::new(image(before), 0);
            let mut kubelet = Fake {
                failures,
                ..Fake::default()
            };
            let mut changer = Changer {
                journal: &journal,
                path: &path,
                kubelet: &mut kubelet,
            };
            let outcome = changer
                .begin(&mut state, change(&image(before), 4, restart))
                .await
                .unwrap();
            assert_eq!(on_disk(&path).as_deref(), after, "{sentence}");
            assert_eq!(kubelet.restarts, restarts, "{sentence}");
            assert_eq!(
                outcome == Outcome::InForce,
                in_force,
                "{sentence}: {outcome:?}"
            );
            let saved = journal.load().unwrap().unwrap();
            assert_eq!(saved.revision, if in_force { 4 } else { 3 }, "{sentence}");
            assert_eq!(
                saved.failed.is_some(),
                !in_force,
                "{sentence}: what failed is remembered"
            );
            if failures == 9 && restart {
                assert!(
                    matches!(outcome, Outcome::TakenBack(Failure { stuck: true, .. })),
                    "{sentence}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_killed_at_any_step_is_followed_by_one_who_goes_on() {
        let asked = Some("0".to_owned());
        for (sentence, step, written, (forward, back), taken_up, restarts, after) in [
            (
                "before the file was written",
                Step::Forward,
                false,
                (None, None),
                false,
                1,
                NEW,
            ),
            (
                "before the file was written, and the kubelet was started by somebody else",
                Step::Forward,
                false,
                (None, None),
                true,
                1,
                NEW,
            ),
            (
                "before the restart was asked for",
                Step::Forward,
                true,
                (None, None),
                false,
                1,
                NEW,
            ),
            (
                "before the restart came about",
                Step::Forward,
                true,
                (asked.clone(), None),
                false,
                1,
                NEW,
            ),
            (
                "after the restart: none is owed",
                Step::Forward,
                true,
                (asked.clone(), None),
                true,
                0,
                NEW,
            ),
            (
                "on the way back, before the file was written",
                Step::Back,
                true,
                (asked.clone(), None),
                false,
                1,
                OLD,
            ),
            (
                "on the way back, before the restart was asked for",
                Step::Back,
                false,
                (asked.clone(), None),
                true,
                1,
                OLD,
            ),
            (
                "on the way back, after the restart: none is owed",
                Step::Back,
                false,
                (asked.clone(), asked.clone()),
                true,
                0,
                OLD,
            ),
            (
                "on the way back, and the kubelet was never asked to restart: none is owed",
                Step::Back,
                true,
                (None, None),
                false,
                0,
                OLD,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.json");
            config_file::replace(&path, &image(Some(if written { NEW } else { OLD }))).unwrap();
            let journal = Journal::beside(&path);
            let mut state = State::new(image(Some(OLD)), 0);
            state.change = Some(Change {
                step,
                started_from: forward,
                back_from: back,
                ..change(&image(Some(OLD)), 4, true)
            });
            journal.save(&state).unwrap();

            let mut state = journal.load().unwrap().unwrap();
            let mut kubelet = Fake {
                serves_since: taken_up,
                ..Fake::default()
            };
            let mut changer = Changer {
                journal: &journal,
                path: &path,
                kubelet: &mut kubelet,
            };
            changer.resume(&mut state).await.unwrap();
            assert_eq!(on_disk(&path).as_deref(), Some(after), "{sentence}");
            assert_eq!(kubelet.restarts, restarts, "{sentence}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_bus_a_change_waits_where_it_is_and_goes_on_with_one_restart() {
        for (sentence, bus_until, written) in [
            ("away from the start: nothing is written", 0, false),
            ("away before the restart", 1, true),
            ("away in the middle of the restart", 2, true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.json");
            config_file::replace(&path, &image(Some(OLD))).unwrap();
            let journal = Journal::beside(&path);
            let mut state = State::new(image(Some(OLD)), 0);
            let mut kubelet = Fake {
                bus_until: Some(bus_until),
                ..Fake::default()
            };
            let mut changer = Changer {
                journal: &journal,
                path: &path,
                kubelet: &mut kubelet,
            };
            let change = change(&image(Some(OLD)), 4, true);
            let error = changer.begin(&mut state, change.clone()).await.unwrap_err();
            assert_eq!(error.reason(), "SystemBusAway", "{sentence}");
            let content = if written { NEW } else { OLD };
            assert_eq!(on_disk(&path).as_deref(), Some(content), "{sentence}");

            let state = journal.load().unwrap();
            assert_eq!(state.is_some(), written, "{sentence}");
            let mut state = state.unwrap_or_else(|| State::new(image(Some(OLD)), 0));
            let mut kubelet = Fake::default();
            let mut changer = Changer {
                journal: &journal,
                path: &path,
                kubelet: &mut kubelet,
            };
            let outcome = match state.change {
                Some(_) => changer.resume(&mut state).await.unwrap(),
                None => changer.begin(&mut state, change).await.unwrap(),
            };
            assert_eq!(outcome, Outcome::InForce, "{sentence}");
            assert_eq!(on_disk(&path).as_deref(), Some(NEW), "{sentence}");
            assert_eq!(kubelet.restarts, 1, "{sentence}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubelet_that_was_just_restarted_has_its_file_at_once_and_its_restart_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let journal = Journal::beside(&path);
        let mut state = State::new(Image::Absent, 0);
        let rests = Duration::from_secs(7);
        let mut kubelet = Fake {
            rests,
            ..Fake::default()
        };
        let mut changer = Changer {
            journal: &journal,
            path: &path,
            kubelet: &mut kubelet,
        };
        let change = change(&Image::Absent, 4, true);
        let outcome = changer.begin(&mut state, change).await.unwrap();
        assert_eq!(outcome, Outcome::Written(rests));
        assert_eq!(on_disk(&path).as_deref(), Some(NEW));
        changer.kubelet.rests = Duration::ZERO;
        let outcome = changer.resume(&mut state).await.unwrap();
        assert_eq!((outcome, kubelet.restarts), (Outcome::InForce, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_restore_nothing_is_left_but_the_number_of_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        config_file::replace(&path, &image(Some(NEW))).unwrap();
        let journal = Journal::beside(&path);
        let mut state = State::new(image(None), 6);
        state.revision = 3;
        let failed = Task {
            uid: "u".to_owned(),
            generation: 1,
            revision: 2,
        };
        state.failed = Some(Failure {
            task: failed,
            why: String::new(),
            stuck: false,
        });
        let mut kubelet = Fake::default();
        let mut changer = Changer {
            journal: &journal,
            path: &path,
            kubelet: &mut kubelet,
        };
        let restore = Change {
            target: image(None),
            ..change(&image(Some(NEW)), 0, true)
        };
        assert_eq!(
            changer.begin(&mut state, restore).await.unwrap(),
            Outcome::InForce
        );
        assert_eq!(on_disk(&path), None);
        assert_eq!((state.revision, state.restarts, state.failed), (0, 7, None));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubelet_that_dies_under_watch_gets_its_file_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        config_file::replace(&path, &image(Some(OLD))).unwrap();
        let journal = Journal::beside(&path);
        let mut state = State::new(image(Some(OLD)), 0);
        let mut kubelet = Fake::default();
        let mut changer = Changer {
            journal: &journal,
            path: &path,
            kubelet: &mut kubelet,
        };
        changer
            .begin(&mut state, change(&image(Some(OLD)), 4, true))
            .await
            .unwrap();
        let outcome = changer
            .take_back(&mut state, "it died".to_owned())
            .await
            .unwrap();
        assert!(
            matches!(outcome, Outcome::TakenBack(Failure { why, stuck: false, .. }) if why == "it died")
        );
        assert_eq!(on_disk(&path).as_deref(), Some(OLD));
        assert_eq!(
            (kubelet.restarts, state.restarts, state.revision),
            (2, 2, 3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_written_changes_nothing_and_restarts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::create_dir(&path).unwrap();
        let journal = Journal::beside(&path);
        let mut state = State::new(Image::Absent, 0);
        let mut kubelet = Fake::default();
        let mut changer = Changer {
            journal: &journal,
            path: &path,
            kubelet: &mut kubelet,
        };
        let error = changer
            .begin(&mut state, change(&Image::Absent, 4, true))
            .await
            .unwrap_err();
        assert_eq!(error.reason(), "NotARegularFile");
        assert_eq!(kubelet.restarts, 0);
        assert!(journal.load().unwrap().unwrap().change.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_wrote_while_nobody_looked_survives_the_way_ahead_and_back() {
        const THEIRS: &str =
            r#"{"auths":{"old.registry.com":{"auth":"b2xkOnRlc3Q="},"theirs":{"auth":"bzpv"}}}"#;
        for (step, content, sentence) in [
            (Step::Forward, THEIRS, "they wrote before us"),
            (Step::Back, THEIRS, "they wrote on our way back"),
            (Step::Forward, "{", "they wrote what is no credentials file"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.json");
            config_file::replace(&path, &image(Some(content))).unwrap();
            let journal = Journal::beside(&path);
            let mut state = State::new(image(Some(OLD)), 0);
            state.change = Some(Change {
                step,
                started_from: (step == Step::Back).then(|| "0".to_owned()),
                ..change(&image(Some(OLD)), 4, true)
            });
            let mut kubelet = Fake::default();
            let mut changer = Changer {
                journal: &journal,
                path: &path,
                kubelet: &mut kubelet,
            };
            changer.resume(&mut state).await.unwrap();
            assert_eq!(kubelet.restarts, 1, "{sentence}");
            let after = on_disk(&path).unwrap();
            if content == THEIRS {
                assert!(after.contains("theirs"), "{sentence}: {after}");
            } else {
                assert_eq!(after, NEW, "{sentence}");
                let aside = fs::read_dir(folder.path().join(".globalps"))
                    .unwrap()
                    .filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok())
                    .any(|kept| kept == content);
                assert!(aside, "{sentence}: it is kept");
            }
        }
    }
}
