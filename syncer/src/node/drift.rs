//! Detects changes of managed entries by other processes, and when they are too frequent to keep restoring.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::node::directory_watch::FileWatch;

/// After this many conflicts within this time the syncer stops restoring the file.
pub(crate) const MAX_CONFLICTS: usize = 5;
pub(crate) const CONFLICT_WINDOW: Duration = Duration::from_mins(10);
/// Interval between reads of a file that can't be watched.
const UNWATCHED: Duration = Duration::from_mins(1);

pub(crate) struct Drift {
    /// The credentials file, whose directory always exists, and others.
    files: Vec<PathBuf>,
    watch: Option<FileWatch>,
    /// The file was correct at some time since the watch began.
    is_watched: bool,
    times: VecDeque<Instant>,
}

impl Drift {
    pub(crate) fn new(file: &Path) -> Self {
        Self {
            files: vec![file.to_owned()],
            watch: None,
            is_watched: false,
            times: VecDeque::new(),
        }
    }

    /// Adds these files to the watch.
    pub(crate) fn watch_others(&mut self, others: &[PathBuf]) {
        if self.files[1..] != *others {
            self.files.truncate(1);
            self.files.extend_from_slice(others);
            self.watch = None;
            self.is_watched = false;
        }
    }

    /// The file is correct now. If its directory is watched, every later change is noticed.
    pub(crate) fn watch(&mut self) {
        self.is_watched = self.watch.is_some();
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Returns when the file may have changed.
    pub(crate) async fn changed(&mut self) {
        if self.watch.is_none() {
            match FileWatch::new(&self.files) {
                Ok(watch) => {
                    self.watch = Some(watch);
                    // The caller reads the file again; every later change is reported.
                    return;
                }
                Err(error) => tracing::warn!(%error, "can't watch the directory"),
            }
        }
        let Some(watch) = &mut self.watch else {
            return sleep(UNWATCHED).await;
        };
        if let Err(error) = watch.changed().await {
            tracing::warn!(%error, "the watch of the directory ended");
            self.watch = None;
            self.is_watched = false;
            sleep(Duration::from_secs(1)).await;
        }
    }

    pub(crate) fn count(&mut self) {
        self.times.push_back(Instant::now());
    }

    /// An admin asked for one more attempt, or something else is assigned: conflicts count from now on.
    pub(crate) fn forget_conflicts(&mut self) {
        self.times.clear();
    }

    /// Whether the entries must not be restored again.
    pub(crate) fn is_limit_reached(&mut self) -> bool {
        self.conflicts() >= MAX_CONFLICTS
    }

    /// The conflicts of the last minutes.
    pub(crate) fn conflicts(&mut self) -> usize {
        while self
            .times
            .front()
            .is_some_and(|time| time.elapsed() > CONFLICT_WINDOW)
        {
            self.times.pop_front();
        }
        self.times.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_fifth_conflict_within_ten_minutes_reaches_the_limit() {
        let mut drift = Drift::new(Path::new("/x/config.json"));
        for _ in 0..4 {
            drift.count();
            assert!(!drift.is_limit_reached());
        }
        tokio::time::advance(CONFLICT_WINDOW + Duration::from_secs(1)).await;
        drift.count();
        assert!(!drift.is_limit_reached(), "the first four are long ago");
        for _ in 0..4 {
            drift.count();
        }
        assert!(drift.is_limit_reached());
    }
    #[tokio::test(start_paused = true)]
    async fn a_conflict_counts_for_ten_minutes_to_the_end() {
        let mut drift = Drift::new(Path::new("/x/config.json"));
        for _ in 0..5 {
            drift.count();
        }
        tokio::time::advance(CONFLICT_WINDOW).await;
        assert!(drift.is_limit_reached());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!drift.is_limit_reached());
    }

    #[tokio::test]
    async fn a_file_is_watched_once_it_was_correct_under_its_watch() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let mut drift = Drift::new(&at("config.json"));
        drift.watch();
        assert!(!drift.is_watched(), "there is no watch yet");
        drift.changed().await;
        assert!(!drift.is_watched(), "it may have changed before");
        drift.watch();
        drift.watch_others(&[]);
        assert!(drift.is_watched());
        drift.watch_others(&[at("other.json")]);
        assert!(!drift.is_watched(), "the other file is not watched");
        drift.changed().await;
        drift.watch();
        drift.watch_others(&[at("other.json")]);
        assert!(drift.is_watched(), "the same files again");
        std::fs::write(at("other.json"), "{}").expect("written");
        let noticed = tokio::time::timeout(Duration::from_secs(10), drift.changed()).await;
        assert!(noticed.is_ok() && drift.is_watched());
        let silent = tokio::time::timeout(Duration::from_millis(20), drift.changed()).await;
        assert!(silent.is_err(), "no event without a change");
    }
}
