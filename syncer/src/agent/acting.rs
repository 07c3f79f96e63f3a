//! What follows from an action. Whatever changes the node is in `applying.rs`.

use std::time::Duration;

use super::decide::Action;
use super::{Agent, IDLE};
use crate::node::file::FileSnapshot;
use crate::node::state::{NodeError, Task};

impl Agent {
    /// Returns the time until there is more to do; zero: observe again immediately. `token`: of the files that the leader is asked about.
    pub(super) async fn act(
        &mut self,
        action: Action,
        file: FileSnapshot,
        token: String,
        task: Option<Task>,
        foreign_owner: &str,
    ) -> Result<Duration, NodeError> {
        match action {
            Action::Idle => {
                self.report_waiting();
                Ok(IDLE)
            }
            Action::Fetch => {
                let pause = self.fetch(task.as_ref()).await;
                Ok(pause.min(self.revive().await))
            }
            Action::Revive => Ok(self.revive().await),
            Action::Resume => self.resume(file).await,
            begun @ Action::Begin { .. } => self.begin(file, begun).await,
            Action::Settle => {
                self.settle()?;
                Ok(Duration::ZERO)
            }
            Action::Reject(failure) => {
                self.report_failure(&failure);
                self.uphold_provider()?;
                Ok(IDLE)
            }
            Action::Obstructed(obstacle) => {
                self.report_obstructed(&obstacle);
                Ok(IDLE)
            }
            Action::Ask => {
                self.ask(token);
                Ok(IDLE)
            }
            Action::LeaveAlone => {
                self.report_foreign(foreign_owner);
                Ok(IDLE)
            }
            Action::GiveUp => self.give_up(task),
            Action::Confirm => self.confirm().await,
            Action::Forget => self.forget(),
            Action::StandBy => {
                self.report_standing_by();
                Ok(IDLE)
            }
        }
    }
}
