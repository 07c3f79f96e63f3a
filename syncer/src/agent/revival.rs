//! Schedules starts of a kubelet that stays down.

use std::time::Duration;

use globalps_runtime::backoff::Backoff;
use tokio::time::Instant;

/// Pauses between two starts. systemd itself gives up after five starts in 10 s.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(2));

pub(super) struct Revival {
    backoff: Backoff,
    /// Time of the next start; `None`: the pause has not begun.
    next: Option<Instant>,
}

impl Default for Revival {
    fn default() -> Self {
        Self {
            backoff: PAUSES,
            next: None,
        }
    }
}

impl Revival {
    /// Whether the pause is over. If so, the next call begins the next pause.
    pub(super) fn begin_attempt(&mut self) -> bool {
        let backoff = &mut self.backoff;
        let next = *self
            .next
            .get_or_insert_with(|| Instant::now() + backoff.pause());
        let is_due = Instant::now() >= next;
        if is_due {
            self.next = None;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_between_starts_grow_to_two_minutes() {
        let mut revival = Revival::default();
        let mut pauses = Vec::new();
        let mut last = Instant::now();
        while pauses.len() < 8 {
            if revival.begin_attempt() {
                pauses.push(last.elapsed().as_secs());
                last = Instant::now();
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let full = [10, 20, 40, 80, 120, 120, 120, 120];
        for (pause, full) in pauses.iter().zip(full) {
            assert!((full / 2..=full + 1).contains(pause), "{pauses:?}");
        }
    }
}
