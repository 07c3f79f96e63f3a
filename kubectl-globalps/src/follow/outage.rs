//! An outage of the cluster while watches retry. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::error::Failure;

/// Shorter outages are not reported, such as a restart of an API server behind a load balancer.
const WORTH_A_WORD: SignedDuration = SignedDuration::from_secs(2);

/// Failing watches by number: since when, and the last failure.
#[derive(Debug, Default)]
pub(crate) struct Outage(BTreeMap<usize, (Timestamp, Failure)>);

impl Outage {
    pub(crate) fn lost(&mut self, watch: usize, failure: Failure, now: Timestamp) {
        let since = self.0.get(&watch).map_or(now, |(since, _)| *since);
        self.0.insert(watch, (since, failure));
    }

    pub(crate) fn reached(&mut self, watch: usize) {
        self.0.remove(&watch);
    }

    /// `None` if there is no outage, or it has just begun.
    pub(crate) fn notice(&self, now: Timestamp) -> Option<String> {
        let (since, failure) = self.0.values().min_by_key(|(since, _)| since)?;
        if now.duration_since(*since) < WORTH_A_WORD {
            return None;
        }
        let since = since.strftime("%H:%M:%SZ");
        let message = &failure.message;
        Some(format!(
            "the cluster can't be reached since {since}: {message}"
        ))
    }
}

/// The error of a wait whose deadline passes during an outage: the progress of the rollout is unknown.
pub(crate) fn timed_out(within: &str, notice: &str) -> Failure {
    Failure::unreachable(
        format!("not done{within}: {notice}"),
        "check the connection with `kubectl cluster-info`; the rollout does not need it, so follow it when the cluster is back",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_from_the_first_failed_watch_to_the_last_back() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let failure = |message: &str| Failure::unreachable(message, "");
        let mut outage = Outage::default();
        let notice = |since: &str, what: &str| {
            Some(format!(
                "the cluster can't be reached since 00:00:{since}Z: {what}"
            ))
        };
        assert_eq!(outage.notice(at(0)), None);
        outage.lost(1, failure("a"), at(1));
        assert_eq!(outage.notice(at(2)), None);
        outage.lost(0, failure("b"), at(2));
        assert_eq!(outage.notice(at(3)), notice("01", "a"));
        outage.lost(1, failure("c"), at(4));
        assert_eq!(outage.notice(at(4)), notice("01", "c"));
        outage.reached(1);
        assert_eq!(outage.notice(at(4)), notice("02", "b"));
        outage.reached(0);
        assert_eq!(outage.notice(at(9)), None);
    }
}
