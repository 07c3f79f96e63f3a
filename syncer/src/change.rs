//! Carries a change out, step by step, each written down before it is taken, so that whoever is killed in between can
//! be followed by another who goes on.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use globalps_core::rollout::Goal;
use tokio::time::sleep;

use crate::config_file::{self, Image};
use crate::decide;
use crate::journal::{Change, Failure, Journal, JournalError, State, Step};

/// Attempts at a restart, and the pauses between them.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// The kubelet, as far as a change is concerned.
pub(crate) trait Kubelet {
    /// Restarts it, `anew` after a failure; returns when it serves. The error is a sentence.
    async fn restart(&mut self, anew: bool) -> Result<(), String>;
    /// Whether it serves and was started after this time.
    async fn serves_since(&mut self, time: SystemTime) -> bool;
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    InForce,
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
    ) -> Result<Outcome, JournalError> {
        let owed = change.restart;
        state.change = Some(change);
        self.journal.save(state)?;
        self.forward(state, owed).await
    }

    /// Goes on with the change that somebody before us wrote down.
    pub(crate) async fn resume(&mut self, state: &mut State) -> Result<Outcome, JournalError> {
        let Some(change) = &state.change else {
            return Ok(Outcome::InForce);
        };
        match change.step {
            Step::Watching => Ok(Outcome::InForce),
            Step::Back => self.back(state).await,
            Step::Forward => {
                self.keep_what_others_wrote(state)?;
                let Some(change) = &state.change else {
                    return Ok(Outcome::InForce);
                };
                let owed = change.restart && !self.is_taken_up(&change.target).await?;
                self.forward(state, owed).await
            }
        }
    }

    /// The file is neither what it was nor what it was to be: somebody else wrote it meanwhile, and the change is made
    /// one of their file.
    fn keep_what_others_wrote(&self, state: &mut State) -> Result<(), JournalError> {
        let Some(change) = &state.change else {
            return Ok(());
        };
        let file = config_file::read(self.path)?;
        if file == change.target || file == change.before {
            return Ok(());
        }
        match (decide::rebase(change, &file, &state.snapshot), &file) {
            (Some(rebased), _) => {
                tracing::info!("somebody else wrote the file meanwhile, and what they wrote stays");
                state.change = Some(rebased);
                self.journal.save(state)
            }
            (None, Image::File { bytes, .. }) => {
                let path = self.journal.set_aside(bytes)?;
                tracing::warn!(path = %path.display(), "the file is no credentials file and was set aside");
                Ok(())
            }
            (None, Image::Absent) => Ok(()),
        }
    }

    /// The file is written and the kubelet was started after that.
    async fn is_taken_up(&mut self, image: &Image) -> Result<bool, JournalError> {
        if config_file::read(self.path)? != *image {
            return Ok(false);
        }
        match config_file::modified(self.path) {
            Some(time) => Ok(self.kubelet.serves_since(time).await),
            // A file that is not there does not tell since when.
            None => Ok(false),
        }
    }

    async fn forward(
        &mut self,
        state: &mut State,
        restart_owed: bool,
    ) -> Result<Outcome, JournalError> {
        let Some(change) = state.change.clone() else {
            return Ok(Outcome::InForce);
        };
        if let Err(error) = self.write(&change.target) {
            // The file is what it was, so there is nothing to take back.
            state.change = None;
            self.journal.save(state)?;
            return Err(error);
        }
        if restart_owed && let Err(why) = self.restart(state, false).await {
            let change = Change {
                step: Step::Back,
                failure: why,
                ..change
            };
            state.change = Some(change);
            self.journal.save(state)?;
            return self.back(state).await;
        }
        if change.task.goal() == Goal::Restore {
            self.journal.remove()?;
            // Of the node's history only the number of restarts is left, to be told once more.
            *state = State::new(change.target, state.restarts);
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
    ) -> Result<Outcome, JournalError> {
        if let Some(change) = &mut state.change {
            change.step = Step::Back;
            change.failure = why;
        }
        self.journal.save(state)?;
        self.back(state).await
    }

    async fn back(&mut self, state: &mut State) -> Result<Outcome, JournalError> {
        self.keep_what_others_wrote(state)?;
        let Some(change) = state.change.clone() else {
            return Ok(Outcome::InForce);
        };
        self.write(&change.before)?;
        let restarted = self.restart(state, true).await;
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
        state.change = None;
        self.journal.save(state)?;
        Ok(Outcome::TakenBack(failure))
    }

    fn write(&self, image: &Image) -> Result<(), JournalError> {
        if config_file::read(self.path)? == *image {
            return Ok(());
        }
        Ok(config_file::replace(self.path, image)?)
    }

    async fn restart(&mut self, state: &mut State, after_failure: bool) -> Result<(), String> {
        let mut pauses = PAUSES.into_iter();
        let mut attempt = 1;
        loop {
            state.restarts += 1;
            let Err(why) = self.kubelet.restart(after_failure || attempt > 1).await else {
                return Ok(());
            };
            tracing::warn!(attempt, why, "the kubelet did not come up");
            let Some(pause) = pauses.next() else {
                return Err(format!("{why} (attempt {attempt} of {attempt})"));
            };
            sleep(pause).await;
            attempt += 1;
        }
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
    struct Fake {
        failures: usize,
        restarts: usize,
        serves_since: bool,
    }

    impl Kubelet for Fake {
        async fn restart(&mut self, _anew: bool) -> Result<(), String> {
            self.restarts += 1;
            if self.restarts <= self.failures {
                Err("the restart ended as `failed`".to_owned())
            } else {
                Ok(())
            }
        }

        async fn serves_since(&mut self, _time: SystemTime) -> bool {
            self.serves_since
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
            before: before.clone(),
            before_ours: Ours::default(),
            before_revision: 3,
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
                restarts: 0,
                serves_since: false,
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
        for (sentence, step, written, taken_up, restarts, after) in [
            (
                "before the file was written",
                Step::Forward,
                false,
                false,
                1,
                NEW,
            ),
            ("before the restart", Step::Forward, true, false, 1, NEW),
            (
                "after the restart: none is owed",
                Step::Forward,
                true,
                true,
                0,
                NEW,
            ),
            (
                "on the way back, before the file was written",
                Step::Back,
                true,
                false,
                1,
                OLD,
            ),
            (
                "on the way back, before the restart",
                Step::Back,
                false,
                false,
                1,
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
                ..change(&image(Some(OLD)), 4, true)
            });
            journal.save(&state).unwrap();

            let mut state = journal.load().unwrap().unwrap();
            let mut kubelet = Fake {
                failures: 0,
                restarts: 0,
                serves_since: taken_up,
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
        let mut kubelet = Fake {
            failures: 0,
            restarts: 0,
            serves_since: false,
        };
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
        let mut kubelet = Fake {
            failures: 0,
            restarts: 0,
            serves_since: false,
        };
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
        let mut kubelet = Fake {
            failures: 0,
            restarts: 0,
            serves_since: false,
        };
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
                ..change(&image(Some(OLD)), 4, true)
            });
            let mut kubelet = Fake {
                failures: 0,
                restarts: 0,
                serves_since: false,
            };
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
