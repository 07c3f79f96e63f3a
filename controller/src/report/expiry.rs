//! The condition for credentials that expire. Pure.

use globalps_core::api::condition;
use globalps_core::reasons::Reason;
use globalps_planner::content::expiry::{Expiries, Expiring, ExpiryStage};
use jiff::Timestamp;

use super::statement::{REGISTRY_LIMIT, Statement, first, shortened, statement};

/// Maximum number of credentials in the message.
const NAMED: usize = 5;

/// `expiries`: those of the content in force.
pub(super) fn credentials_expiring(expiries: &Expiries, now: Timestamp) -> Statement {
    let due = expiries.due(now);
    let Some(worst) = due.iter().map(|(stage, _)| *stage).max() else {
        return statement(
            condition::CREDENTIALS_EXPIRING,
            "False",
            Reason::NoneExpiring,
            String::new(),
        );
    };
    let reason = match worst {
        ExpiryStage::Soon => Reason::ExpiringSoon,
        ExpiryStage::WithinAnHour => Reason::ExpiringWithinAnHour,
        ExpiryStage::Expired => Reason::Expired,
    };
    let message = first(due.iter().map(|(stage, it)| say(*stage, it)), NAMED);
    statement(condition::CREDENTIALS_EXPIRING, "True", reason, message)
}

/// Times are in UTC, and the message changes only with them: a relative time would change with each reconcile.
fn say(stage: ExpiryStage, expiring: &Expiring) -> String {
    let Expiring {
        at,
        registry,
        source,
        ..
    } = expiring;
    let registry = shortened(registry.as_str(), REGISTRY_LIMIT);
    let source = match source {
        Some(name) => format!("of `{name}`"),
        None => "of the original pull secret".to_owned(),
    };
    let expires = match stage {
        ExpiryStage::Expired => "expired",
        ExpiryStage::Soon | ExpiryStage::WithinAnHour => "expires",
    };
    format!("the credential for `{registry}` {source} {expires} at {at}")
}

#[cfg(test)]
mod tests {
    use globalps_planner::content::expiry::testing::{AT, DAY, HOUR, at, expiries};

    use super::*;

    #[test]
    fn the_worst_stage_is_the_reason_and_the_message_has_details() {
        let one =
            "the credential for `r.io` of `additional-pull-secret` expires at 2027-01-15T08:00:00Z";
        let two =
            "the credential for `q.io` of `additional-pull-secret` expires at 2027-01-17T08:00:00Z";
        let both = format!("{one}; {two}");
        let expired = both.replacen("expires", "expired", 1);
        for (now, expected) in [
            (AT - 4 * DAY, ("False", "NoneExpiring", "")),
            (AT - 3 * DAY, ("True", "ExpiringSoon", one)),
            (AT - DAY, ("True", "ExpiringSoon", &both)),
            (AT - HOUR, ("True", "ExpiringWithinAnHour", &both)),
            (AT, ("True", "Expired", &expired)),
        ] {
            let expiries = expiries(&[("r.io", AT, 0), ("q.io", AT + 2 * DAY, 0)]);
            let found = credentials_expiring(&expiries, at(now));
            let found = (found.status, found.reason.as_str(), found.message.as_str());
            assert_eq!(found, expected, "{now}");
        }
    }

    #[test]
    fn the_message_is_bounded_and_has_no_credential() {
        let long = "ä".repeat(2000);
        let keys: Vec<String> = (0..9).map(|at| format!("user:pass@{at}{long}")).collect();
        let entries: Vec<(&str, i64, i64)> = keys.iter().map(|key| (&**key, AT, 0)).collect();
        let message = credentials_expiring(&expiries(&entries), at(AT)).message;
        assert!(message.ends_with("; and 4 more"), "{message}");
        assert!(!message.contains("pass") && !message.contains("e30"));
        assert!(message.chars().count() < 4096, "{message}");
    }
}
