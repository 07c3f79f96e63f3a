//! Delays the absence of a Secret: a deletion followed by a creation (External Secrets, Helm, `replace --force`) counts as one
//! change or none. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// How long an absence lasts before it takes effect.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// A value that disappears only after it has been absent for [`GRACE`].
#[derive(Debug)]
pub(crate) struct Debounced<T> {
    value: Option<T>,
    /// Start of the current absence; `value` is the last one before.
    absent_since: Option<Instant>,
    /// Whether the value or its absence is known.
    pub(crate) is_known: bool,
}

impl<T> Default for Debounced<T> {
    fn default() -> Self {
        Self {
            value: None,
            absent_since: None,
            is_known: false,
        }
    }
}

impl<T> Debounced<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    pub(crate) fn found(&mut self, value: T) {
        self.value = Some(value);
        self.absent_since = None;
        self.is_known = true;
    }

    pub(crate) fn absent(&mut self, now: Instant) {
        if self.value.is_some() || !self.is_known {
            self.absent_since.get_or_insert(now);
        }
        self.is_known = true;
    }

    /// When the absence takes effect; `None`: none is pending.
    pub(crate) fn settles_at(&self) -> Option<Instant> {
        Some(self.absent_since? + GRACE)
    }

    /// Whether an absence takes effect now.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        let settles = self.settles_at().is_some_and(|at| at <= now);
        if settles {
            self.value = None;
            self.absent_since = None;
        }
        settles
    }

    /// There was never a value, and the absence is not confirmed yet.
    pub(crate) fn is_pending_without_value(&self) -> bool {
        self.value.is_none() && self.absent_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of the Secret, with its time in milliseconds.
    enum Step {
        Found(u64, &'static str),
        Absent(u64),
    }
    use Step::{Absent, Found};

    #[test]
    fn an_absence_takes_effect_after_two_seconds() {
        let zero = Instant::now();
        let at = |millis| zero + Duration::from_millis(millis);
        for (case, steps, millis, expected) in [
            ("nothing is known", &[][..], 0, (false, None, false)),
            (
                "it is there",
                &[Found(0, "a")],
                9000,
                (true, Some("a"), false),
            ),
            (
                "just deleted",
                &[Found(0, "a"), Absent(100)],
                2099,
                (true, Some("a"), false),
            ),
            (
                "deleted",
                &[Found(0, "a"), Absent(100)],
                2100,
                (true, None, false),
            ),
            (
                "recreated",
                &[Found(0, "a"), Absent(100), Found(1500, "b")],
                9000,
                (true, Some("b"), false),
            ),
            (
                "deleted twice, each time for less",
                &[Found(0, "a"), Absent(100), Found(1500, "b"), Absent(1600)],
                3599,
                (true, Some("b"), false),
            ),
            (
                "absent, and listed again",
                &[Found(0, "a"), Absent(100), Absent(1500)],
                2100,
                (true, None, false),
            ),
            ("never seen", &[Absent(0)], 1999, (true, None, true)),
            ("never there", &[Absent(0)], 2000, (true, None, false)),
            (
                "still not there",
                &[Absent(0), Absent(1000)],
                2000,
                (true, None, false),
            ),
        ] {
            let mut secret = Debounced::default();
            for step in steps {
                match step {
                    Found(millis, value) => {
                        secret.settle(at(*millis));
                        secret.found(*value);
                    }
                    Absent(millis) => {
                        secret.settle(at(*millis));
                        secret.absent(at(*millis));
                    }
                }
            }
            let pending = secret.settles_at();
            assert_eq!(
                secret.settle(at(millis)),
                pending.is_some_and(|pending| pending <= at(millis)),
                "{case}: a change is reported when it takes effect"
            );
            let found = (
                secret.is_known,
                secret.get().copied(),
                secret.is_pending_without_value(),
            );
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn an_absence_is_reported_once() {
        let now = Instant::now();
        let mut secret: Debounced<&str> = Debounced::default();
        secret.absent(now);
        assert!(secret.settle(now + GRACE));
        secret.absent(now + GRACE * 2);
        assert_eq!(secret.settles_at(), None);
    }
}
