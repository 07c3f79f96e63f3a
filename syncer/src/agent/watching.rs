//! What is in force is confirmed, and the kubelet is kept under watch for a while.

use std::time::Duration;

use tokio::time::Instant;

use super::{Agent, FOR_EVER, UNDER_WATCH};
use crate::change::Changer;
use crate::journal::{NodeError, Step};

const WATCH_EVERY: Duration = Duration::from_secs(1);

impl Agent {
    /// Tells that the task is in force, and keeps the kubelet under watch for a while.
    pub(super) async fn confirm(&mut self) -> Result<Duration, NodeError> {
        self.trouble = None;
        if self.desired.is_some() {
            self.drift.watch();
        }
        self.tell_in_force();
        let watching = self.state.as_ref().and_then(|state| state.change.as_ref());
        if watching.is_none_or(|change| change.step != Step::Watching) {
            return Ok(FOR_EVER);
        }
        let until = *self
            .watch_until
            .get_or_insert_with(|| Instant::now() + UNDER_WATCH);
        if Instant::now() >= until {
            self.settle()?;
            return Ok(Duration::ZERO);
        }
        let Ok(facts) = self.unit.systemd.facts().await else {
            return Ok(WATCH_EVERY);
        };
        let before = self.unit.served.get_or_insert_with(|| facts.clone());
        if !facts.has_died_since(before) {
            return Ok(WATCH_EVERY);
        }
        let why = format!(
            "`{}` died soon after the change (it is {})",
            self.unit.systemd.unit(),
            facts.active_state()
        );
        let Some(mut state) = self.state.take() else {
            return Ok(FOR_EVER);
        };
        let path = self.config_file.clone();
        let mut changer = Changer {
            journal: &self.journal,
            path: &path,
            kubelet: &mut self.unit,
        };
        let result = changer.take_back(&mut state, why).await;
        self.finish(state, None, result)
    }

    /// Closes the way back.
    pub(super) fn settle(&mut self) -> Result<(), NodeError> {
        self.watch_until = None;
        if let Some(state) = &mut self.state {
            state.change = None;
            self.journal.save(state)?;
        }
        Ok(())
    }
}
