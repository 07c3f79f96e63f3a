//! The syncer's objects as they are, next to how they were left: whoever else changed or deleted one is noticed. Pure.

use std::time::Duration;

use kube::api::{ObjectMeta, PartialObjectMeta};
use tokio::time::Instant;

use crate::cache::store::Versioned;

/// Repairs that are made at once; each further one waits twice as long as the one before, and longest.
const AT_ONCE: u32 = 5;
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// After so long without a repair the fight is over.
const PEACE: Duration = Duration::from_mins(5);

/// In the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    ServiceAccount,
    Role,
    RoleBinding,
    DaemonSet,
}

pub(crate) const PIECES: [Piece; 4] = [
    Piece::ServiceAccount,
    Piece::Role,
    Piece::RoleBinding,
    Piece::DaemonSet,
];

/// One of them, as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    version: u64,
    pub(crate) mark: Mark,
}

/// Another one is another object, or another meaning of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    uid: String,
    /// The spec's generation; of an object without one, whose every change matters, its `resourceVersion`.
    generation: i64,
}

impl Created {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let version: u64 = metadata
            .resource_version
            .as_deref()
            .and_then(|version| version.parse().ok())
            .unwrap_or_default();
        Self {
            version,
            mark: Mark {
                uid: metadata.uid.clone().unwrap_or_default(),
                generation: metadata
                    .generation
                    .unwrap_or_else(|| i64::try_from(version).unwrap_or_default()),
            },
        }
    }
}

impl<K> From<PartialObjectMeta<K>> for Created {
    fn from(object: PartialObjectMeta<K>) -> Self {
        Self::of(&object.metadata)
    }
}

impl Versioned for Created {
    /// Each watch has one object.
    fn key(&self) -> String {
        String::new()
    }

    fn version(&self) -> u64 {
        self.version
    }

    /// A `DaemonSet` tells of each pod.
    fn means_the_same(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

/// What all of them are, in the order of [`PIECES`]; `None`: it is not there.
pub(crate) type Marks = [Option<Mark>; PIECES.len()];

/// How they were left by us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Generation of the configuration that they were made from.
    pub(crate) generation: i64,
    pub(crate) marks: Marks,
}

/// What somebody else did, as far as it is to be put back.
pub(crate) fn tampered(left: &Marks, found: &Marks) -> Vec<(Piece, &'static str)> {
    let pairs = PIECES.into_iter().zip(left.iter().zip(found));
    pairs
        .filter_map(|(piece, (left, found))| match (left, found) {
            (Some(_), None) => Some((piece, "deleted")),
            (Some(left), Some(found)) if left != found => Some((piece, "changed")),
            _ => None,
        })
        .collect()
}

/// Rations repairs of one object, so that two programs which want different things do not keep the API server busy.
#[derive(Debug, Default)]
pub(crate) struct Ration {
    repairs: u32,
    last: Option<Instant>,
}

impl Ration {
    /// How long the next repair has to wait.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        let Some(last) = self.last.filter(|_| self.repairs >= AT_ONCE) else {
            return Duration::ZERO;
        };
        let since = now.duration_since(last);
        if since >= PEACE {
            return Duration::ZERO;
        }
        let (first, longest) = REST;
        let doublings = self.repairs - AT_ONCE;
        let pause = first.saturating_mul(2_u32.saturating_pow(doublings));
        pause.min(longest).saturating_sub(since)
    }

    pub(crate) fn repaired(&mut self, now: Instant) {
        let is_peace = self
            .last
            .is_some_and(|last| now.duration_since(last) >= PEACE);
        self.repairs = if is_peace { 1 } else { self.repairs + 1 };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(uid: &str, version: u32, generation: Option<i64>) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            generation,
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn what_somebody_else_did_is_seen_and_what_a_status_tells_is_not() {
        let mark =
            |uid, version, generation| Some(Created::of(&metadata(uid, version, generation)).mark);
        let left = [
            mark("a", 1, None),
            mark("b", 2, None),
            mark("c", 3, None),
            mark("d", 4, Some(1)),
        ];
        for (sentence, at, found, expected) in [
            (
                "a status of the DaemonSet",
                3,
                mark("d", 9, Some(1)),
                vec![],
            ),
            (
                "another spec of it",
                3,
                mark("d", 9, Some(2)),
                vec![(Piece::DaemonSet, "changed")],
            ),
            (
                "another one of its name",
                3,
                mark("e", 9, Some(1)),
                vec![(Piece::DaemonSet, "changed")],
            ),
            (
                "other rules",
                1,
                mark("b", 9, None),
                vec![(Piece::Role, "changed")],
            ),
            (
                "no account",
                0,
                None,
                vec![(Piece::ServiceAccount, "deleted")],
            ),
        ] {
            let mut marks = left.clone();
            marks[at] = found;
            assert_eq!(tampered(&left, &marks), expected, "{sentence}");
        }
    }

    #[test]
    fn who_fights_is_answered_more_and_more_seldom() {
        let mut ration = Ration::default();
        let mut now = Instant::now();
        let begun = now;
        let mut repairs = 0;
        while now.duration_since(begun) < Duration::from_hours(1) {
            let pause = ration.pause(now);
            if pause.is_zero() {
                ration.repaired(now);
                repairs += 1;
                now += Duration::from_millis(10);
            }
            now += pause;
        }
        assert!((60..=72).contains(&repairs), "{repairs} repairs in an hour");
        assert_eq!(ration.pause(now + PEACE), Duration::ZERO);
        ration.repaired(now + PEACE);
        assert_eq!(ration.pause(now + PEACE), Duration::ZERO);
    }
}
