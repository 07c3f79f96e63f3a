//! Concurrent writes of one delivery. A write without a response delays no other; it is awaited in the background.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use globalps_planner::targets::memory::Memory;
use jiff::SignedDuration;
use tokio::time::{Instant, timeout_at};

use super::clock::steady;

/// Maximum number of writes in flight; each uses a connection.
const CONCURRENT: usize = 64;
/// The writes of one reconcile start within this time, so that events do not wait for long.
const PER_RECONCILE: Duration = Duration::from_secs(1);
/// A reconcile waits this long for responses after its last write started.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request without a response has ended by then.
const GIVEN_UP: SignedDuration = SignedDuration::from_secs(20);

/// Writes in flight, including those of earlier reconciles.
pub(super) struct Pending<T> {
    in_flight: FuturesUnordered<BoxFuture<'static, (String, T)>>,
    /// Keys of their objects in the memory.
    keys: BTreeSet<String>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            in_flight: FuturesUnordered::new(),
            keys: BTreeSet::new(),
        }
    }
}

impl<T: Send + 'static> Pending<T> {
    fn push(&mut self, key: String, call: BoxFuture<'static, T>) {
        self.keys.insert(key.clone());
        self.in_flight
            .push(Box::pin(async move { (key, call.await) }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The next write that finishes; `None`: none is in flight.
    pub(super) async fn next(&mut self) -> Option<T> {
        Some(self.next_with_key().await?.1)
    }

    async fn next_with_key(&mut self) -> Option<(String, T)> {
        let (key, done) = self.in_flight.next().await?;
        self.keys.remove(&key);
        Some((key, done))
    }
}

/// The writes of one reconcile.
pub(super) trait Writes {
    /// The result of a write.
    type Done: Send + 'static;

    /// The next write: the key of its object in the memory, and the call. `None`: there is none left.
    fn begin(&mut self) -> Option<(String, BoxFuture<'static, Self::Done>)>;

    fn done(&mut self, done: Self::Done);

    fn memory(&mut self) -> &mut Memory;
}

/// Starts as many writes as possible within [`PER_RECONCILE`]. A write without a response in time counts as failed until there is
/// one.
pub(super) async fn perform<W: Writes>(writes: &mut W, pending: &mut Pending<W::Done>) {
    // Writes of earlier reconciles don't count.
    let most = pending.keys.len() + CONCURRENT;
    let mut begun = BTreeSet::new();
    let until = Instant::now() + PER_RECONCILE;
    let mut patience = Instant::now() + PATIENCE;
    loop {
        while pending.keys.len() < most
            && Instant::now() < until
            && let Some((key, call)) = writes.begin()
        {
            patience = Instant::now() + PATIENCE;
            begun.insert(key.clone());
            pending.push(key, call);
        }
        if begun.is_empty() {
            return;
        }
        match timeout_at(patience, pending.next_with_key()).await {
            Ok(Some((key, done))) => {
                begun.remove(&key);
                writes.done(done);
            }
            Ok(None) => return,
            Err(_) => break,
        }
    }
    let now = steady();
    for key in &begun {
        writes.memory().waits(key, now, now + GIVEN_UP);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::sleep;

    use super::*;

    /// Each has its key and the delay of its response.
    struct Fake {
        waiting: Vec<(&'static str, Duration)>,
        done: Vec<&'static str>,
        memory: Memory,
    }

    impl Writes for Fake {
        type Done = &'static str;

        fn begin(&mut self) -> Option<(String, BoxFuture<'static, &'static str>)> {
            let (key, time) = self.waiting.pop()?;
            Some((key.to_owned(), sleep(time).map(move |()| key).boxed()))
        }

        fn done(&mut self, done: &'static str) {
            self.done.push(done);
        }

        fn memory(&mut self) -> &mut Memory {
            &mut self.memory
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_a_response_is_awaited_in_the_background() {
        let fast = Duration::from_millis(10);
        let slow = Duration::from_secs(15);
        let mut pending = Pending::default();
        let mut writes = Fake {
            waiting: vec![("a", fast), ("slow", slow), ("b", fast)],
            done: Vec::new(),
            memory: Memory::default(),
        };
        let begun = Instant::now();
        perform(&mut writes, &mut pending).await;
        assert_eq!(writes.done, ["b", "a"]);
        assert_eq!(
            begun.elapsed(),
            PATIENCE,
            "waits briefly for the slow write"
        );
        let reason =
            |memory: &Memory, key| memory.failure(key).map(|failure| failure.reason.as_str());
        assert_eq!(reason(&writes.memory, "slow"), Some("Unavailable"));
        assert_eq!(reason(&writes.memory, "a"), None);
        let failure = writes.memory.failure("slow").cloned();
        let left = failure.map(|failure| failure.retry_at.duration_since(steady()));
        let is_soon = |left| left <= GIVEN_UP && left > SignedDuration::ZERO;
        assert!(
            left.is_some_and(is_soon),
            "by the clock that nobody sets: {left:?}"
        );

        writes.waiting = vec![("c", fast)];
        let begun = Instant::now();
        perform(&mut writes, &mut pending).await;
        assert_eq!(begun.elapsed(), fast, "but not the next time");
        assert_eq!(pending.next().await, Some("slow"));
        assert_eq!(pending.next().now_or_never(), Some(None));
    }
}
