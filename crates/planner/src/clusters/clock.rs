//! Since when the hub has seen an assignment and a report as they are, by its own monotonic clock: the times in a `ClusterPullSecret`
//! are those of earlier hubs, of a clock that was set since, or of another client. Pure.

// Times of other programs must not overflow.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec};
use jiff::{SignedDuration, Timestamp};

/// Time since the hub's machine booted.
type Uptime = SignedDuration;

/// Empty when a hub starts, which then waits again: nobody knows by which clock an earlier one has waited.
#[derive(Clone, Debug, Default)]
pub struct ClusterClock {
    /// By uid of the `ClusterPullSecret`.
    seen: BTreeMap<String, Seen>,
    /// At the last observation.
    now: Uptime,
}

#[derive(Clone, Debug)]
struct Seen {
    /// As the hub wrote it.
    spec: ClusterPullSecretSpec,
    assigned: Uptime,
    report: Report,
    reported: Uptime,
    /// `lastProgressTime`, which is only compared.
    progress: Option<Timestamp>,
    progressed: Uptime,
}

/// Phase and `lastTransitionTime`, which is only compared.
type Report = (ClusterPhase, Option<Timestamp>);

/// How long the hub has seen something as it is; zero: newer than the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Elapsed {
    pub(super) assigned: SignedDuration,
    pub(super) in_phase: SignedDuration,
    pub(super) without_progress: SignedDuration,
}

fn report(object: &ClusterPullSecret) -> Report {
    let status = object.status.as_ref();
    status.map_or((ClusterPhase::Pending, None), |status| {
        let since = status.last_transition_time.as_ref();
        (status.phase, since.map(|since| since.0))
    })
}

fn progress(object: &ClusterPullSecret) -> Option<Timestamp> {
    let progress = object.status.as_ref()?.last_progress_time.as_ref();
    progress.map(|progress| progress.0)
}

fn uid(object: &ClusterPullSecret) -> &str {
    object.metadata.uid.as_deref().unwrap_or_default()
}

impl ClusterClock {
    /// Records all objects, and forgets those that are gone. Call it before each plan.
    pub fn observe<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a ClusterPullSecret>,
        now: Uptime,
    ) {
        self.now = now;
        let mut before = std::mem::take(&mut self.seen);
        for object in objects {
            let (report, progress) = (report(object), progress(object));
            let known = before.remove_entry(uid(object));
            let (uid, mut seen) = known.unwrap_or_else(|| {
                let seen = Seen {
                    spec: object.spec.clone(),
                    assigned: now,
                    report,
                    reported: now,
                    progress,
                    progressed: now,
                };
                (uid(object).to_owned(), seen)
            });
            if seen.spec != object.spec {
                seen.spec = object.spec.clone();
                seen.assigned = now;
            }
            if seen.report != report {
                (seen.report, seen.reported) = (report, now);
            }
            if seen.progress != progress {
                (seen.progress, seen.progressed) = (progress, now);
            }
            self.seen.insert(uid, seen);
        }
    }

    pub(super) fn elapsed(&self, object: &ClusterPullSecret) -> Elapsed {
        let Some(seen) = self.seen.get(uid(object)) else {
            return Elapsed::default();
        };
        let since = |is_same: bool, since: Uptime| {
            if is_same {
                self.now.saturating_sub(since)
            } else {
                SignedDuration::ZERO
            }
        };
        Elapsed {
            assigned: since(seen.spec == object.spec, seen.assigned),
            in_phase: since(seen.report == report(object), seen.reported),
            without_progress: since(seen.progress == progress(object), seen.progressed),
        }
    }

    /// As if a hub had seen everything when the objects' times say so.
    #[cfg(test)]
    pub(super) fn of_times<'a>(
        objects: impl Iterator<Item = &'a ClusterPullSecret> + Clone,
        now: Timestamp,
    ) -> Self {
        let mut clock = Self::default();
        let uptime = now.duration_since(Timestamp::UNIX_EPOCH);
        clock.observe(objects.clone(), uptime);
        for object in objects {
            if let Some(seen) = clock.seen.get_mut(uid(object)) {
                let at = |time: Option<Timestamp>| {
                    time.map_or(uptime, |it| it.duration_since(Timestamp::UNIX_EPOCH))
                };
                seen.assigned = at(object.spec.assigned_at.as_ref().map(|it| it.0));
                seen.reported = at(seen.report.1);
                seen.progressed = at(seen.progress);
            }
        }
        clock
    }
}
