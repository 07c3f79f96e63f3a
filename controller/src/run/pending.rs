//! Writes of one delivery, many at once. One without a response holds up nobody: it is waited for beside everything else.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout_at};

use crate::targets::memory::Memory;

/// Writes in flight; each one uses a connection.
const CONCURRENT: usize = 64;
/// Writes of one reconcile begin within this time, so that events do not wait for long.
const PER_RECONCILE: Duration = Duration::from_secs(1);
/// A reconcile waits this long for the responses after the last write began.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request without a response has ended by then.
const GIVEN_UP: SignedDuration = SignedDuration::from_secs(20);

/// Writes in flight, also those of earlier reconciles.
pub(super) struct Pending<T> {
    in_flight: FuturesUnordered<BoxFuture<'static, (String, T)>>,
    /// Of their objects in the memory.
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

    /// The next one that ends; `None`: none is in flight.
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
    /// What a write yielded.
    type Done: Send + 'static;

    /// The next write: the key of its object in the memory, and the call. `None`: there is none left.
    fn begin(&mut self) -> Option<(String, BoxFuture<'static, Self::Done>)>;

    fn done(&mut self, done: Self::Done);

    fn memory(&mut self) -> &mut Memory;
}

/// Makes as many of them as begin within [`PER_RECONCILE`]. What has no response in time fails until it has one.
pub(super) async fn perform<W: Writes>(writes: &mut W, pending: &mut Pending<W::Done>) {
    // Nobody waits for those of earlier reconciles.
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
    let now = Timestamp::now();
    for key in &begun {
        writes.memory().waits(key, now + GIVEN_UP);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::sleep;

    use super::*;

    /// Each has its key and how long its response takes.
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
    async fn what_has_no_response_is_waited_for_beside_everything_else() {
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
        assert_eq!(begun.elapsed(), PATIENCE, "a moment for the slow one");
        let reason = |memory: &Memory, key| memory.failure(key).map(|failure| failure.reason);
        assert_eq!(reason(&writes.memory, "slow"), Some("Unavailable"));
        assert_eq!(reason(&writes.memory, "a"), None);

        writes.waiting = vec![("c", fast)];
        let begun = Instant::now();
        perform(&mut writes, &mut pending).await;
        assert_eq!(begun.elapsed(), fast, "and none the next time");
        assert_eq!(pending.next().await, Some("slow"));
        assert_eq!(pending.next().now_or_never(), Some(None));
    }
}
