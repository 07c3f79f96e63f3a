//! How far `OpenShift`'s own pull secret is.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_dockerconfig::{Fate, SharedMerge, shown_key};

/// Registries that a message names.
const NAMED: usize = 5;

/// The results of the last reconcile.
#[derive(Debug, Default)]
pub struct PullSecretReport {
    /// Nothing can be merged.
    pub problem: Option<ReasonAndMessage>,
    /// Of each registry.
    pub fates: BTreeMap<String, Fate>,
    /// What could not be removed yet.
    pub left: BTreeSet<String>,
    /// The pull secret would change, but nothing is written.
    pub is_paused: bool,
    /// It changes now.
    pub is_changing: bool,
}

impl PullSecretReport {
    /// Of this merge, which is to be written unless it is paused.
    pub fn of(merge: &SharedMerge, is_paused: bool) -> Self {
        let is_changing = merge.document.is_some();
        Self {
            problem: None,
            fates: merge.fates.clone(),
            left: merge.left.iter().map(|key| shown_key(key)).collect(),
            is_paused: is_changing && is_paused,
            is_changing: is_changing && !is_paused,
        }
    }

    /// Only what this reason says.
    pub fn problem(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            problem: Some((reason, message.into())),
            ..Self::default()
        }
    }

    /// Whether the pull secret is as it should be, the reason, and a clause for people.
    pub fn verdict(&self) -> (bool, Reason, String) {
        if let Some((reason, message)) = &self.problem {
            return (false, *reason, message.clone());
        }
        let with = |fate: Fate| -> Vec<&String> {
            let fates = self.fates.iter();
            fates
                .filter(|(_, is)| **is == fate)
                .map(|(key, _)| key)
                .collect()
        };
        let theirs = with(Fate::Theirs);
        if !theirs.is_empty() {
            let message = format!(
                "another program has its own entry in `openshift-config/pull-secret` for {}, which stays",
                named(&theirs)
            );
            return (false, Reason::AnotherWriter, message);
        }
        let undone: Vec<&String> = with(Fate::Waits).into_iter().chain(&self.left).collect();
        if !undone.is_empty() {
            let message = format!(
                "another program undoes what globalps writes into `openshift-config/pull-secret` for {}, so it is written again only after a pause",
                named(&undone)
            );
            return (false, Reason::AnotherWriter, message);
        }
        let platform = with(Fate::Platform);
        if !platform.is_empty() {
            let message = format!(
                "the platform needs its own entry for {}, which is not overridden",
                named(&platform)
            );
            return (false, Reason::PlatformKey, message);
        }
        if self.is_paused {
            let message =
                "`spec.rollout.paused` is true, so `openshift-config/pull-secret` does not change";
            return (false, Reason::Paused, message.to_owned());
        }
        if self.is_changing {
            let message = "`openshift-config/pull-secret` is being written";
            return (false, Reason::RollingOut, message.to_owned());
        }
        let message = format!(
            "`openshift-config/pull-secret` has the entries of {} registries",
            self.fates.len()
        );
        (true, Reason::Synced, message)
    }
}

fn named(registries: &[&String]) -> String {
    let shown = registries.iter().take(NAMED);
    let shown: Vec<String> = shown.map(|registry| format!("`{registry}`")).collect();
    match registries.len().saturating_sub(NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_what_it_says() {
        let report = |fates: &[(&str, Fate)]| PullSecretReport {
            fates: fates
                .iter()
                .map(|(key, fate)| ((*key).to_owned(), *fate))
                .collect(),
            ..PullSecretReport::default()
        };
        let (a, b, c, d) = (
            ("a", Fate::InForce),
            ("b", Fate::Platform),
            ("c", Fate::Waits),
            ("d", Fate::Theirs),
        );
        for (fates, expected) in [
            (&[][..], (true, Reason::Synced, "0 registries")),
            (&[a], (true, Reason::Synced, "1 registries")),
            (&[a, b], (false, Reason::PlatformKey, "for `b`,")),
            (&[a, b, c], (false, Reason::AnotherWriter, "for `c`, so")),
            (&[a, b, c, d], (false, Reason::AnotherWriter, "for `d`,")),
        ] {
            let (is_synced, reason, message) = report(fates).verdict();
            assert_eq!((is_synced, reason), (expected.0, expected.1));
            assert!(message.contains(expected.2), "{message}");
        }
        let all = ["a", "b", "c", "d", "e", "f", "g"].map(|key| (key, Fate::Theirs));
        assert!(report(&all).verdict().2.contains("`e` and 2 more"));
        let paused = PullSecretReport {
            is_paused: true,
            ..report(&[a])
        };
        assert_eq!(paused.verdict().1, Reason::Paused);
    }
}
