//! How long the leader has seen each assignment and each phase, by its own clock only: times in objects come from other machines
//! and from previous leaders.

use std::collections::BTreeMap;

use globalps_core::api::{NodePullSecret, Phase};
use jiff::{SignedDuration, Timestamp};

/// Empty at the start of each term.
#[derive(Clone, Debug, Default)]
pub(crate) struct AssignmentClock(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
struct Entry {
    generation: i64,
    assigned: Timestamp,
    phase: Phase,
    phase_since: Timestamp,
}

impl AssignmentClock {
    /// Records new assignments and phases. Call it before each plan.
    pub(crate) fn observe<'a>(
        &mut self,
        objects: impl IntoIterator<Item = (&'a String, &'a NodePullSecret)>,
        now: Timestamp,
    ) {
        let mut entries = std::mem::take(&mut self.0);
        for (name, object) in objects {
            let generation = object.metadata.generation.unwrap_or_default();
            let phase = reported(object);
            let known = entries.remove_entry(name);
            let (name, mut entry) = known.unwrap_or_else(|| {
                let entry = Entry {
                    generation,
                    assigned: now,
                    phase: phase.clone(),
                    phase_since: now,
                };
                (name.clone(), entry)
            });
            if entry.generation != generation {
                entry.generation = generation;
                entry.assigned = now;
                entry.phase_since = now;
            }
            if entry.phase != *phase {
                entry.phase = phase.clone();
                entry.phase_since = now;
            }
            self.0.insert(name, entry);
        }
    }

    /// How long the object has had its generation.
    pub(crate) fn assigned_for(&self, object: &NodePullSecret, now: Timestamp) -> SignedDuration {
        self.since(object, now, |entry| entry.assigned)
    }

    /// How long the node has reported its phase for this generation.
    pub(crate) fn in_phase_for(&self, object: &NodePullSecret, now: Timestamp) -> SignedDuration {
        self.since(object, now, |entry| entry.phase_since)
    }

    /// Zero if the object is newer than the last observation.
    fn since(
        &self,
        object: &NodePullSecret,
        now: Timestamp,
        time: fn(&Entry) -> Timestamp,
    ) -> SignedDuration {
        let entry = object
            .metadata
            .name
            .as_ref()
            .and_then(|name| self.0.get(name));
        let entry = entry.filter(|entry| Some(entry.generation) == object.metadata.generation);
        entry.map_or(SignedDuration::ZERO, |entry| {
            now.duration_since(time(entry))
        })
    }
}

fn reported(object: &NodePullSecret) -> &Phase {
    let status = object.status.as_ref();
    status.map_or(&Phase::Pending, |status| &status.phase)
}

#[cfg(test)]
mod tests {
    use globalps_core::api::{NodePullSecretSpec, NodePullSecretStatus};

    use super::*;

    #[test]
    fn times_start_with_a_change_and_end_with_the_object() {
        let at = |seconds| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let object = |generation, phase| {
            let mut object = NodePullSecret::new("a", NodePullSecretSpec::default());
            object.metadata.generation = Some(generation);
            object.status = Some(NodePullSecretStatus {
                phase,
                ..NodePullSecretStatus::default()
            });
            object
        };
        let mut clock = AssignmentClock::default();
        let name = "a".to_owned();
        for (now, object, assigned, phase) in [
            (10, Some(object(1, Phase::Pending)), 0, 0),
            (15, Some(object(1, Phase::Pending)), 5, 5),
            (20, Some(object(2, Phase::Pending)), 0, 0),
            (25, Some(object(2, Phase::Syncing)), 5, 0),
            (30, Some(object(2, Phase::Syncing)), 10, 5),
            (40, None, 0, 0),
            (50, Some(object(2, Phase::Syncing)), 0, 0),
        ] {
            clock.observe(object.iter().map(|object| (&name, object)), at(now));
            let Some(object) = object else { continue };
            let seconds = SignedDuration::from_secs;
            assert_eq!(
                clock.assigned_for(&object, at(now)),
                seconds(assigned),
                "at {now}"
            );
            assert_eq!(
                clock.in_phase_for(&object, at(now)),
                seconds(phase),
                "at {now}"
            );
        }
        let newer = object(3, Phase::Pending);
        assert_eq!(
            clock.assigned_for(&newer, at(99)),
            SignedDuration::ZERO,
            "not observed yet"
        );
    }
}
