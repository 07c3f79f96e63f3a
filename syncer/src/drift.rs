//! Whether somebody else changes what the node was granted, and whether that is a fight.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::folder::FileWatch;

/// So many changes by somebody else within this time are a fight, and end it.
const FIGHT: usize = 5;
const WITHIN: Duration = Duration::from_mins(10);
/// Between two looks at a file that can't be watched.
const UNWATCHED: Duration = Duration::from_mins(1);

pub(crate) struct Drift {
    file: PathBuf,
    watch: Option<FileWatch>,
    /// The file was right at a time since which it is watched.
    is_watched: bool,
    times: VecDeque<Instant>,
}

impl Drift {
    pub(crate) fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            watch: None,
            is_watched: false,
            times: VecDeque::new(),
        }
    }

    /// The file is right now, and where its folder is watched, every change from here on is told.
    pub(crate) fn watch(&mut self) {
        self.is_watched = self.watch.is_some();
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Returns when there may be something new in the file.
    pub(crate) async fn changed(&mut self) {
        if self.watch.is_none() {
            match FileWatch::new(&self.file) {
                Ok(watch) => {
                    self.watch = Some(watch);
                    // Whatever happened before is seen by another look, and all that comes after is told.
                    return;
                }
                Err(error) => tracing::warn!(%error, "the folder can't be watched"),
            }
        }
        let Some(watch) = &mut self.watch else {
            return sleep(UNWATCHED).await;
        };
        if let Err(error) = watch.changed().await {
            tracing::warn!(%error, "the watch of the folder ended");
            self.watch = None;
            self.is_watched = false;
            sleep(Duration::from_secs(1)).await;
        }
    }

    pub(crate) fn count(&mut self) {
        self.times.push_back(Instant::now());
    }

    /// Whether one more repair would be too many.
    pub(crate) fn is_fight(&mut self) -> bool {
        while self
            .times
            .front()
            .is_some_and(|time| time.elapsed() > WITHIN)
        {
            self.times.pop_front();
        }
        self.times.len() >= FIGHT
    }
}

/// What is told of a fight.
pub(crate) fn told_of_fight() -> String {
    format!(
        "somebody else changed what globalps had put into the file {FIGHT} times within {} minutes, so it is left to them; \
         it may be a configuration management agent, or the OpenShift Machine Config Operator, where `oc set data \
         secret/pull-secret -n openshift-config` does the job; exclude this node, or stop them: another revision is \
         tried again",
        WITHIN.as_secs() / 60
    )
}

/// What is told of a node whose file was put right so often.
pub(crate) fn told(times: i64) -> String {
    let times = if times == 1 {
        "once".to_owned()
    } else {
        format!("{times} times")
    };
    format!("somebody else changed what globalps had put into the file, {times}; it was put back")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn five_repairs_within_ten_minutes_are_a_fight_and_four_are_not() {
        let mut drift = Drift::new(Path::new("/x/config.json"));
        for _ in 0..4 {
            drift.count();
            assert!(!drift.is_fight());
        }
        tokio::time::advance(WITHIN + Duration::from_secs(1)).await;
        drift.count();
        assert!(!drift.is_fight(), "the first four are long ago");
        for _ in 0..4 {
            drift.count();
        }
        assert!(drift.is_fight());
    }
}
