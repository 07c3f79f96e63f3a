//! Leader election by a Lease: only its holder assigns revisions.
//!
//! The clocks of two machines are never compared. A standby measures, on its own clock, from the moment when it *saw* the last
//! renewal. The leader measures from the moment *before it sent* the renewal, which is earlier. Every write carries the
//! `resourceVersion` that it applies to, so that only one of two concurrent attempts succeeds.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use globalps_runtime::backoff::random_bits;
use globalps_runtime::list_events::{Event, one};
use globalps_runtime::list_watch::{Update, list_watch};
use kube::{Client, ResourceExt as _};
use tokio::time::sleep;

use super::fencing::LEASE_DURATION;
use super::lease::{Lease, LeaseApi, LeaseError, warn};
use super::lease_guard::LeaseGuard;
use crate::telemetry::clock;
use crate::telemetry::health::Health;

/// Shortest and longest time for which a holder is waited for: any client that may write Leases can write any duration.
const DURATIONS: (Duration, Duration) = (LEASE_DURATION, Duration::from_mins(1));

/// The last known state of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeaseState {
    holder: Option<String>,
    /// The Lease's `resourceVersion`; `None` if it does not exist.
    version: Option<String>,
    transitions: i32,
    /// Duration that the holder wrote, within [`DURATIONS`].
    duration: Duration,
    /// When this version was first seen, by [`clock::now`].
    since: Duration,
}

/// How to acquire the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Acquisition {
    Create,
    /// The Lease of this `resourceVersion`.
    Take(String),
    Wait(Duration),
}

/// The next step of a controller that does not lead.
fn acquisition(state: &LeaseState, me: &str, now: Duration) -> Acquisition {
    if state.holder.as_ref().is_some_and(|holder| holder != me) {
        // After a deletion the same time must pass: the holder may not know of it yet.
        let left = (state.since + state.duration).saturating_sub(now);
        if !left.is_zero() {
            return Acquisition::Wait(left);
        }
    }
    match &state.version {
        Some(version) => Acquisition::Take(version.clone()),
        None => Acquisition::Create,
    }
}

impl LeaseState {
    fn of(lease: &Lease, before: Option<&Self>, now: Duration) -> Self {
        let spec = lease.spec.clone();
        let version = lease.resource_version();
        let since = before
            .filter(|before| before.version == version)
            .map_or(now, |before| before.since);
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            version,
            transitions: spec.lease_transitions.unwrap_or_default(),
            duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
                .clamp(DURATIONS.0, DURATIONS.1),
            since,
        }
    }

    fn gone(before: Option<&Self>, now: Duration) -> Self {
        match before {
            Some(before) if before.version.is_none() => before.clone(),
            _ => Self {
                holder: before.and_then(|before| before.holder.clone()),
                version: None,
                transitions: 0,
                duration: LEASE_DURATION,
                since: now,
            },
        }
    }
}

/// A holder identity that is unique among all controllers, including earlier runs in the same pod.
pub(crate) fn identity() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{host}_{:016x}", random_bits())
}

pub(crate) struct Election {
    api: LeaseApi,
    health: Arc<Health>,
}

impl Election {
    /// `lease`: its name. `record`: the `ServiceAccount` that names the holder to the admission policy, if there is one.
    pub(crate) fn new(
        client: Client,
        (lease, record): (&str, Option<&'static str>),
        me: &str,
        health: &Arc<Health>,
    ) -> Self {
        Self {
            api: LeaseApi::new(client, lease, record, me),
            health: Arc::clone(health),
        }
    }

    /// Waits for the Lease and takes it.
    pub(crate) async fn acquire(&self) -> LeaseGuard<'_> {
        let mut updates = list_watch(self.api.leases.clone(), one(&self.api.name), "Lease");
        let mut state: Option<LeaseState> = None;
        // No step before the first list is complete.
        let mut listed = false;
        let mut waits_for = None;
        loop {
            self.health.beat();
            let next = match state.as_ref().filter(|_| listed) {
                Some(state) => acquisition(state, &self.api.me, clock::now()),
                None => Acquisition::Wait(LEASE_DURATION),
            };
            let pause = match next {
                Acquisition::Wait(pause) => {
                    let holder = state.as_ref().and_then(|state| state.holder.clone());
                    if listed && waits_for != holder {
                        tracing::info!(holder, "standing by");
                        waits_for = holder;
                    }
                    pause
                }
                Acquisition::Create => match self.api.create().await {
                    Ok(lease) => {
                        state = Some(LeaseState::of(&lease, state.as_ref(), clock::now()));
                        continue;
                    }
                    Err(error) => warn("create", &error),
                },
                Acquisition::Take(version) => {
                    let sent = clock::now();
                    let transitions = state.as_ref().map_or(0, |state| state.transitions);
                    match self.api.take(&version, transitions).await {
                        Ok(lease) => {
                            let mut guard = LeaseGuard::new(&self.api, lease, sent);
                            guard.announce().await;
                            return guard;
                        }
                        // Another controller was faster, and the watch has not reported it yet.
                        Err(LeaseError::Conflict) => match self.api.get().await {
                            Ok(lease) => {
                                state = Some(LeaseState::of(&lease, state.as_ref(), clock::now()));
                                continue;
                            }
                            Err(error) => warn("read", &error),
                        },
                        Err(LeaseError::Gone) => {
                            state = Some(LeaseState::gone(state.as_ref(), clock::now()));
                            continue;
                        }
                        Err(error) => warn("take", &error),
                    }
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                Some(update) = updates.next() => {
                    let now = clock::now();
                    match update {
                        Update::Unreadable { object, is_deleted: false } => {
                            tracing::warn!("the Lease can't be read: {object}");
                        }
                        Update::Event(Event::Apply(lease) | Event::InitApply(lease)) => {
                            state = Some(LeaseState::of(&lease, state.as_ref(), now));
                            self.health.answered();
                        }
                        Update::Event(Event::Delete(_)) | Update::Unreadable { .. } => {
                            state = Some(LeaseState::gone(state.as_ref(), now));
                        }
                        Update::Event(Event::InitDone) => {
                            listed = true;
                            state.get_or_insert_with(|| LeaseState::gone(None, now));
                        }
                        // The known state stays, because each step compares it with the API server's.
                        Update::Event(Event::Init) | Update::Stale | Update::Failed(_) => {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::LeaseFields;
    use super::*;

    fn lease(version: &str, holder: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_owned());
        lease.spec = LeaseFields {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(10),
            ..LeaseFields::default()
        };
        lease
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_expired() {
        let free = LeaseState::of(&lease("1", ""), None, at(100));
        let mine = LeaseState::of(&lease("1", "me"), None, at(100));
        let held = LeaseState::of(&lease("1", "other"), None, at(100));
        let renewed = LeaseState::of(&lease("2", "other"), Some(&held), at(103));
        let relisted = LeaseState::of(&lease("1", "other"), Some(&held), at(108));
        let never = LeaseState::gone(None, at(100));
        let deleted = LeaseState::gone(Some(&held), at(105));
        let again = LeaseState::gone(Some(&deleted), at(109));
        let mut longer = lease("1", "other");
        longer.spec.lease_duration_seconds = Some(30);
        let longer = LeaseState::of(&longer, None, at(100));
        let mut nonsense = lease("1", "other");
        nonsense.spec.lease_duration_seconds = Some(-1);
        let nonsense = LeaseState::of(&nonsense, None, at(100));
        let mut endless = lease("1", "other");
        endless.spec.lease_duration_seconds = Some(i32::MAX);
        let endless = LeaseState::of(&endless, None, at(100));
        let take = |version: &str| Acquisition::Take(version.to_owned());
        for (sentence, state, now, expected) in [
            (
                "a missing Lease is created",
                &never,
                100,
                Acquisition::Create,
            ),
            ("one without a holder is taken", &free, 100, take("1")),
            (
                "so is one of this controller, from a request without a response",
                &mine,
                100,
                take("1"),
            ),
            (
                "another holder is waited for",
                &held,
                100,
                Acquisition::Wait(at(10)),
            ),
            (
                "whatever renewal time it has",
                &held,
                104,
                Acquisition::Wait(at(6)),
            ),
            ("and taken after its duration", &held, 110, take("1")),
            (
                "each renewal restarts the time",
                &renewed,
                110,
                Acquisition::Wait(at(3)),
            ),
            ("which ends, too", &renewed, 113, take("2")),
            (
                "seeing the same version again is no renewal",
                &relisted,
                110,
                take("1"),
            ),
            (
                "a Lease deleted while held is waited for",
                &deleted,
                110,
                Acquisition::Wait(at(5)),
            ),
            (
                "from when its absence was first seen",
                &again,
                115,
                Acquisition::Create,
            ),
            (
                "a holder's longer time is respected",
                &longer,
                110,
                Acquisition::Wait(at(20)),
            ),
            (
                "but not for years",
                &endless,
                100,
                Acquisition::Wait(DURATIONS.1),
            ),
            (
                "an invalid duration counts as the default",
                &nonsense,
                109,
                Acquisition::Wait(at(1)),
            ),
        ] {
            assert_eq!(acquisition(state, "me", at(now)), expected, "{sentence}");
        }
    }

    #[test]
    fn every_run_has_its_own_identity() {
        assert_ne!(identity(), identity());
    }
}
