//! Whether `OpenShift`'s original pull secret is used. Pure.

use tokio::time::Instant;

/// The answer of the API server about `OpenShift`'s original.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lookup {
    Found,
    Absent,
    Forbidden,
    /// It says neither.
    Failed,
}

/// What is known of `OpenShift`'s original.
#[derive(Debug, Default)]
pub(super) struct OpenshiftOriginal {
    /// The last lookup.
    pub(super) looked_up: Option<Instant>,
    pub(super) has_failed: bool,
    /// Whether there is one, as the API server last said.
    exists: Option<bool>,
    pub(super) is_used: bool,
}

impl OpenshiftOriginal {
    /// Only its absence makes it absent. Otherwise its watch says why it can't be read, and what it gave stays in force.
    /// `is_in_force`: its content.
    pub(super) fn found(&mut self, lookup: Lookup, is_in_force: bool) {
        let (exists, is_used) = match lookup {
            Lookup::Found => (Some(true), true),
            Lookup::Absent => (Some(false), false),
            Lookup::Forbidden => {
                let is_used = self.exists.unwrap_or(is_in_force);
                // Who may not read it has none, until it is found: the next answers must not bring it in.
                (self.exists.or((!is_used).then_some(false)), is_used)
            }
            Lookup::Failed => (self.exists, self.exists.unwrap_or(true)),
        };
        self.has_failed = matches!(lookup, Lookup::Failed);
        self.exists = exists;
        self.is_used = is_used;
    }
}

#[cfg(test)]
mod tests {
    use super::Lookup::{Absent, Failed, Forbidden, Found};
    use super::*;

    #[test]
    fn only_absence_makes_the_original_of_openshift_absent() {
        for (case, lookups, is_in_force, expected) in [
            ("there is one", &[Found][..], false, true),
            ("there is none", &[Absent], true, false),
            ("it is gone", &[Found, Absent], true, false),
            ("another cluster", &[Forbidden], false, false),
            ("a lost permission", &[Found, Forbidden], true, true),
            (
                "a permission that an earlier leader had",
                &[Forbidden],
                true,
                true,
            ),
            ("unknown", &[Failed], false, true),
            (
                "unknown now, there was none",
                &[Absent, Failed],
                false,
                false,
            ),
            ("unknown now, there was one", &[Found, Failed], false, true),
            ("unknown at first", &[Failed, Forbidden], false, false),
            (
                "unknown at first, there is none",
                &[Failed, Absent],
                true,
                false,
            ),
            ("there was none", &[Absent, Forbidden], false, false),
            (
                "there was none, and another one is in force",
                &[Absent, Forbidden],
                true,
                false,
            ),
            (
                "another cluster, and no answer",
                &[Forbidden, Failed],
                false,
                false,
            ),
            (
                "a permission that was granted",
                &[Forbidden, Found],
                false,
                true,
            ),
        ] {
            let mut original = OpenshiftOriginal::default();
            for lookup in lookups {
                original.found(*lookup, is_in_force);
            }
            assert_eq!(original.is_used, expected, "{case}");
        }
    }
}
