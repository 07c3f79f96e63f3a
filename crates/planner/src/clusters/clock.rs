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
    objects: BTreeMap<String, LastChanges>,
    /// At the last observation.
    now: Uptime,
}

#[derive(Clone, Debug)]
struct LastChanges {
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
        let mut before = std::mem::take(&mut self.objects);
        for object in objects {
            let (report, progress) = (report(object), progress(object));
            let known = before.remove_entry(uid(object));
            let (uid, mut last) = known.unwrap_or_else(|| {
                let last = LastChanges {
                    spec: object.spec.clone(),
                    assigned: now,
                    report,
                    reported: now,
                    progress,
                    progressed: now,
                };
                (uid(object).to_owned(), last)
            });
            if last.spec != object.spec {
                last.spec = object.spec.clone();
                last.assigned = now;
            }
            if last.report != report {
                (last.report, last.reported) = (report, now);
            }
            if last.progress != progress {
                (last.progress, last.progressed) = (progress, now);
            }
            self.objects.insert(uid, last);
        }
    }

    pub(super) fn elapsed(&self, object: &ClusterPullSecret) -> Elapsed {
        let Some(last) = self.objects.get(uid(object)) else {
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
            assigned: since(last.spec == object.spec, last.assigned),
            in_phase: since(last.report == report(object), last.reported),
            without_progress: since(last.progress == progress(object), last.progressed),
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
            if let Some(last) = clock.objects.get_mut(uid(object)) {
                let at = |time: Option<Timestamp>| {
                    time.map_or(uptime, |it| it.duration_since(Timestamp::UNIX_EPOCH))
                };
                last.assigned = at(object.spec.assigned_at.as_ref().map(|it| it.0));
                last.reported = at(last.report.1);
                last.progressed = at(last.progress);
            }
        }
        clock
    }
}
