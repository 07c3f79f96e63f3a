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
        let (key, done) = self.in_flight.next().await?;
        self.keys.remove(&key);
        Some(done)
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
    let most = pending.keys.len() + CONCURRENT;
    let until = Instant::now() + PER_RECONCILE;
    let mut patience = Instant::now() + PATIENCE;
    loop {
        while pending.keys.len() < most
            && Instant::now() < until
            && let Some((key, call)) = writes.begin()
        {
            patience = Instant::now() + PATIENCE;
            pending.push(key, call);
        }
        match timeout_at(patience, pending.next()).await {
            Ok(Some(done)) => writes.done(done),
            Ok(None) => return,
            Err(_) => break,
        }
    }
    let now = Timestamp::now();
    for key in &pending.keys {
        writes.memory().waits(key, now + GIVEN_UP);
    }
}
