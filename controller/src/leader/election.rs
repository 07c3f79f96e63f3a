//! Leader election by a Lease: of all controllers, the one that holds it decides which node goes next.
//!
//! Nobody compares the clocks of two machines. Who waits counts, on its own clock, from the moment when it *saw* the last
//! renewal; who leads counts from the moment *before it asked* for it, which was earlier. Every write carries the
//! `resourceVersion` that it is about, so that of two who try one succeeds.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use globalps_core::names::{CONTROLLER_MANAGER, CONTROLLER_NAMESPACE, LEASE};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::leader::fencing::Term;
use crate::telemetry::clock;
use crate::telemetry::health::Health;

/// A lease that was not renewed for so long may be taken.
pub(crate) const DURATION: Duration = Duration::from_secs(10);
/// Between two renewals, and between two attempts.
const RENEW: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(500);
/// Deadline of each call about the Lease.
const CALL: Duration = Duration::from_secs(2);

/// The Lease as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    holder: Option<String>,
    /// Its `resourceVersion`; `None`: there is no Lease.
    version: Option<String>,
    transitions: i32,
    /// How long it holds by its holder's own word.
    duration: Duration,
    /// When this version was seen first, by [`clock::now`].
    since: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Create,
    /// The Lease of this `resourceVersion`.
    Take(String),
    Wait(Duration),
}

/// What a controller does that does not lead.
fn step(seen: &Seen, me: &str, now: Duration) -> Step {
    if seen.holder.as_ref().is_some_and(|holder| holder != me) {
        // One that was deleted under its holder is waited for as long: the holder may not know yet.
        let left = (seen.since + seen.duration.max(DURATION)).saturating_sub(now);
        if !left.is_zero() {
            return Step::Wait(left);
        }
    }
    match &seen.version {
        Some(version) => Step::Take(version.clone()),
        None => Step::Create,
    }
}

impl Seen {
    fn of(lease: &Lease, before: Option<&Self>, now: Duration) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let version = lease.resource_version();
        let since = before
            .filter(|before| before.version == version)
            .map_or(now, |before| before.since);
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            version,
            transitions: spec.lease_transitions.unwrap_or_default(),
            duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
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
                duration: DURATION,
                since: now,
            },
        }
    }
}

/// A name that no other controller has, nor the one that ran in this pod before.
pub(crate) fn identity() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    // Each one has random keys of its own.
    format!("{host}_{:016x}", RandomState::new().hash_one(()))
}

pub(crate) struct Election {
    leases: Api<Lease>,
    me: String,
    health: Arc<Health>,
}

impl Election {
    pub(crate) fn new(client: Client, me: &str, health: &Arc<Health>) -> Self {
        Self {
            leases: Api::namespaced(client, CONTROLLER_NAMESPACE),
            me: me.to_owned(),
            health: Arc::clone(health),
        }
    }

    /// Waits for the Lease and takes it.
    pub(crate) async fn acquire(&self) -> Held<'_> {
        let named = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        let mut events = watch(self.leases.clone(), named).default_backoff().boxed();
        let mut seen: Option<Seen> = None;
        // Not before what is there is known.
        let mut listed = false;
        let mut waits_for = None;
        loop {
            self.health.beat();
            let next = match seen.as_ref().filter(|_| listed) {
                Some(seen) => step(seen, &self.me, clock::now()),
                None => Step::Wait(DURATION),
            };
            let pause = match next {
                Step::Wait(pause) => {
                    let holder = seen.as_ref().and_then(|seen| seen.holder.clone());
                    if listed && waits_for != holder {
                        tracing::info!(holder, "standing by");
                        waits_for = holder;
                    }
                    pause
                }
                Step::Create => match self.create().await {
                    Ok(lease) => {
                        seen = Some(Seen::of(&lease, seen.as_ref(), clock::now()));
                        continue;
                    }
                    Err(error) => warn("create", &error),
                },
                Step::Take(version) => {
                    let sent = clock::now();
                    let transitions = seen.as_ref().map_or(0, |seen| seen.transitions);
                    match self.take(&version, transitions).await {
                        Ok(lease) => return Held::new(self, lease, sent),
                        // Somebody was faster, and the watch has not said so yet.
                        Err(Failed::Conflict) => match self.get().await {
                            Ok(lease) => {
                                seen = Some(Seen::of(&lease, seen.as_ref(), clock::now()));
                                continue;
                            }
                            Err(error) => warn("read", &error),
                        },
                        Err(Failed::Gone) => {
                            seen = Some(Seen::gone(seen.as_ref(), clock::now()));
                            continue;
                        }
                        Err(error) => warn("take", &error),
                    }
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                Some(event) = events.next() => {
                    let now = clock::now();
                    match event {
                        Ok(Event::Apply(lease) | Event::InitApply(lease)) => {
                            seen = Some(Seen::of(&lease, seen.as_ref(), now));
                            self.health.answered();
                        }
                        Ok(Event::Delete(_)) => seen = Some(Seen::gone(seen.as_ref(), now)),
                        Ok(Event::Init) => listed = false,
                        Ok(Event::InitDone) => {
                            listed = true;
                            seen.get_or_insert_with(|| Seen::gone(None, now));
                        }
                        Err(error) => {
                            tracing::warn!(%error, "the watch of the Lease failed and is tried again");
                        }
                    }
                }
            }
        }
    }

    /// Without a holder, so that it makes no difference who creates it.
    async fn create(&self) -> Result<Lease, Failed> {
        let params = PatchParams::apply(CONTROLLER_MANAGER);
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE},
        });
        let patch = Patch::Apply(&body);
        within(self.leases.patch(LEASE, &params, &patch)).await
    }

    async fn get(&self) -> Result<Lease, Failed> {
        within(self.leases.get(LEASE)).await
    }

    async fn take(&self, version: &str, transitions: i32) -> Result<Lease, Failed> {
        let now = Some(MicroTime(Timestamp::now()));
        let spec = LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(transitions.saturating_add(1)),
            acquire_time: now.clone(),
            renew_time: now,
            ..LeaseSpec::default()
        };
        self.write(version, json!(spec)).await
    }

    /// Only as long as the Lease is the one of this `resourceVersion`.
    async fn write(&self, version: &str, spec: Value) -> Result<Lease, Failed> {
        let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        within(self.leases.patch(LEASE, &params, &Patch::Merge(&body))).await
    }
}

/// The Lease while it is ours.
pub(crate) struct Held<'a> {
    election: &'a Election,
    version: String,
    pub(crate) term: Arc<Term>,
}

impl<'a> Held<'a> {
    fn new(election: &'a Election, lease: Lease, sent: Duration) -> Self {
        tracing::info!(me = election.me, "leading");
        let term = Term::default();
        term.renewed(sent);
        Self {
            election,
            version: lease.metadata.resource_version.unwrap_or_default(),
            term: Arc::new(term),
        }
    }

    /// Renews until the Lease is another's. Where the API server is away this goes on: the [`Term`] runs out by itself.
    pub(crate) async fn keep(&mut self) {
        let mut pause = RENEW;
        loop {
            sleep(pause).await;
            let sent = clock::now();
            let renewal = json!({"renewTime": MicroTime(Timestamp::now())});
            pause = match self.election.write(&self.version, renewal).await {
                Ok(lease) => {
                    self.is_now(lease);
                    self.term.renewed(sent);
                    RENEW
                }
                Err(Failed::Conflict) => match self.election.get().await {
                    // Somebody wrote a label, or our own renewal that seemed to have failed had not.
                    Ok(lease) if self.is_mine(&lease) => {
                        self.is_now(lease);
                        RETRY
                    }
                    Ok(_) | Err(Failed::Gone) => break,
                    Err(error) => warn("read", &error),
                },
                Err(Failed::Gone) => break,
                Err(error) => warn("renew", &error),
            };
        }
        tracing::warn!("another controller leads");
    }

    /// Gives the Lease away, so that another one need not wait for its end. No write of this term may be under way.
    pub(crate) async fn release(mut self) {
        let nobody = json!({"holderIdentity": null});
        let mut released = self.election.write(&self.version, nobody.clone()).await;
        if let Err(Failed::Conflict) = released
            && let Ok(lease) = self.election.get().await
            && self.is_mine(&lease)
        {
            self.is_now(lease);
            released = self.election.write(&self.version, nobody).await;
        }
        match released {
            Ok(_) => tracing::info!("the Lease is released"),
            Err(error) => {
                warn("release", &error);
            }
        }
    }

    fn is_now(&mut self, lease: Lease) {
        self.version = lease.metadata.resource_version.unwrap_or_default();
    }

    fn is_mine(&self, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.election.me)
    }
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("somebody else wrote it")]
    Conflict,
    #[error("there is no such Lease")]
    Gone,
    #[error("no answer from the API server within {} s", CALL.as_secs())]
    Timeout,
    #[error(transparent)]
    Other(kube::Error),
}

async fn within(call: impl Future<Output = Result<Lease, kube::Error>>) -> Result<Lease, Failed> {
    match timeout(CALL, call).await {
        Ok(Ok(lease)) => Ok(lease),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Failed::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Failed::Gone),
        Ok(Err(error)) => Err(Failed::Other(error)),
        Err(_) => Err(Failed::Timeout),
    }
}

/// Tells it, and says when to try again: two controllers do not come at once.
fn warn(action: &'static str, error: &Failed) -> Duration {
    tracing::warn!(%error, action, lease = LEASE, "not done, trying again");
    let random = Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000;
    RETRY + RETRY * random / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: &str, holder: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_owned());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(10),
            ..LeaseSpec::default()
        });
        lease
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed_for_its_whole_time() {
        let free = Seen::of(&lease("1", ""), None, at(100));
        let mine = Seen::of(&lease("1", "me"), None, at(100));
        let held = Seen::of(&lease("1", "other"), None, at(100));
        let renewed = Seen::of(&lease("2", "other"), Some(&held), at(103));
        let relisted = Seen::of(&lease("1", "other"), Some(&held), at(108));
        let never = Seen::gone(None, at(100));
        let deleted = Seen::gone(Some(&held), at(105));
        let again = Seen::gone(Some(&deleted), at(109));
        let mut longer = lease("1", "other");
        longer.spec.get_or_insert_default().lease_duration_seconds = Some(30);
        let longer = Seen::of(&longer, None, at(100));
        let mut nonsense = lease("1", "other");
        nonsense.spec.get_or_insert_default().lease_duration_seconds = Some(-1);
        let nonsense = Seen::of(&nonsense, None, at(100));
        let take = |version: &str| Step::Take(version.to_owned());
        for (sentence, seen, now, expected) in [
            ("no Lease at all is created", &never, 100, Step::Create),
            ("one without a holder is taken", &free, 100, take("1")),
            (
                "one of ours, of a call that seemed to have failed, as well",
                &mine,
                100,
                take("1"),
            ),
            ("another's is waited for", &held, 100, Step::Wait(at(10))),
            ("however old it says it is", &held, 104, Step::Wait(at(6))),
            ("and taken after its time", &held, 110, take("1")),
            ("each renewal counts anew", &renewed, 110, Step::Wait(at(3))),
            ("and then too it ends", &renewed, 113, take("2")),
            (
                "seeing the same again is no renewal",
                &relisted,
                110,
                take("1"),
            ),
            (
                "one deleted under its holder is waited for",
                &deleted,
                110,
                Step::Wait(at(5)),
            ),
            (
                "from when its absence was seen first",
                &again,
                115,
                Step::Create,
            ),
            (
                "a holder's longer time is respected",
                &longer,
                110,
                Step::Wait(at(20)),
            ),
            ("nonsense counts as ours", &nonsense, 109, Step::Wait(at(1))),
        ] {
            assert_eq!(step(seen, "me", at(now)), expected, "{sentence}");
        }
    }

    #[test]
    fn no_two_runs_have_one_name() {
        assert_ne!(identity(), identity());
    }
}
