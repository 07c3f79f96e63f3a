//! Whether registries reject credentials, in the status. Pure.

use globalps_core::api::condition;
use globalps_core::reasons::Reason;
use globalps_registry::public_images;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::statement::{REGISTRY_LIMIT, Statement, list, shortened, statement};
use crate::verification::Verified;

/// Maximum number of registries in the message, in each of its parts.
const NAMED: usize = 10;

/// `before`: the previous conditions. A new leader keeps what they say until it has asked every registry itself.
pub(super) fn credentials_rejected(verified: &Verified, before: &[Condition]) -> Statement {
    let new = |status, reason, message| {
        statement(condition::CREDENTIALS_REJECTED, status, reason, message)
    };
    if !verified.rejected.is_empty() {
        let rejected = verified.rejected.iter();
        let rejected = rejected.map(|(source, registry, status)| {
            let registry = shortened(registry.as_str(), REGISTRY_LIMIT);
            if source.is_empty() {
                format!("`{registry}` ({status})")
            } else {
                format!("`{registry}` from Secret `{source}` ({status})")
            }
        });
        let mut message = format!(
            "registries reject the credentials: {}",
            list(&rejected.collect::<Vec<_>>(), NAMED)
        );
        let mut registries = verified.rejected.iter().map(|(_, registry, _)| registry);
        let whole = registries
            .find_map(|registry| public_images(&shortened(registry.as_str(), REGISTRY_LIMIT)));
        if let Some(whole) = whole {
            message = format!("{message}; {whole}");
        }
        return new("True", Reason::Rejected, message);
    }
    if !verified.is_complete {
        return kept(before).unwrap_or_else(|| {
            new(
                "Unknown",
                Reason::Verifying,
                "asking the registries".to_owned(),
            )
        });
    }
    let unknown = verified.unknown.iter();
    let unknown = unknown.map(|(registry, reason)| {
        format!(
            "`{}`: {reason}",
            shortened(registry.as_str(), REGISTRY_LIMIT)
        )
    });
    let unknown = list(&unknown.collect::<Vec<_>>(), NAMED);
    match (verified.accepted, verified.unknown.len()) {
        (_, 0) => new("False", Reason::Accepted, String::new()),
        (0, _) => new(
            "Unknown",
            Reason::NotReachable,
            format!("no registry could be asked: {unknown}"),
        ),
        _ => new(
            "False",
            Reason::Accepted,
            format!("could not be asked: {unknown}"),
        ),
    }
}

fn kept(before: &[Condition]) -> Option<Statement> {
    let mut before = before.iter();
    let old = before.find(|old| old.type_ == condition::CREDENTIALS_REJECTED)?;
    let (status, reason) = match Reason::parse(&old.reason) {
        Some(Reason::Accepted) => ("False", Reason::Accepted),
        Some(Reason::Rejected) => ("True", Reason::Rejected),
        Some(Reason::NotReachable) => ("Unknown", Reason::NotReachable),
        _ => return None,
    };
    let message = old.message.clone();
    Some(statement(
        condition::CREDENTIALS_REJECTED,
        status,
        reason,
        message,
    ))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::statement::dated;
    use super::*;

    fn verified(rejected: usize, unknown: usize, accepted: usize, is_complete: bool) -> Verified {
        let registry = |n| format!("r{n}.io");
        Verified {
            rejected: (0..rejected)
                .map(|n| (String::new(), registry(n), 401))
                .collect(),
            unknown: (0..unknown).map(|n| (registry(n), "no response")).collect(),
            accepted,
            is_complete,
        }
    }

    const REJECTED_BY_TWO: &str = "registries reject the credentials: `r0.io` (401), `r1.io` (401); public images of `r0.io` fail too, since nodes with an entry for an image don't pull it without credentials; if only some images need a login, use an entry for their path instead: `r0.io/ORG`";

    #[test]
    fn the_condition_names_registries_and_stays_when_unknown() {
        let mut before = Vec::new();
        for (sentence, verified, status, reason, message) in [
            (
                "first",
                verified(0, 0, 1, false),
                "Unknown",
                Reason::Verifying,
                "asking the registries",
            ),
            (
                "accepted",
                verified(0, 0, 3, true),
                "False",
                Reason::Accepted,
                "",
            ),
            (
                "a new leader",
                verified(0, 0, 0, false),
                "False",
                Reason::Accepted,
                "",
            ),
            (
                "one is away",
                verified(0, 1, 2, true),
                "False",
                Reason::Accepted,
                "could not be asked: `r0.io`: no response",
            ),
            (
                "all are away",
                verified(0, 1, 0, true),
                "Unknown",
                Reason::NotReachable,
                "no registry could be asked: `r0.io`: no response",
            ),
            (
                "rejected",
                verified(2, 1, 2, false),
                "True",
                Reason::Rejected,
                REJECTED_BY_TWO,
            ),
            (
                "a new leader after that",
                verified(0, 0, 0, false),
                "True",
                Reason::Rejected,
                REJECTED_BY_TWO,
            ),
        ] {
            let found = credentials_rejected(&verified, &before);
            assert_eq!(
                (found.status, found.reason, found.message.as_str()),
                (status, reason, message),
                "{sentence}"
            );
            before = vec![dated(found, &before, 1, Timestamp::UNIX_EPOCH)];
        }
        let many = credentials_rejected(&verified(12, 0, 0, true), &[]).message;
        assert!(many.contains("`r9.io` (401) and 2 more; "), "{many}");
        let scoped = Verified {
            rejected: vec![("team-a".to_owned(), "quay.io/org".to_owned(), 403)],
            ..Verified::default()
        };
        assert_eq!(
            credentials_rejected(&scoped, &[]).message,
            "registries reject the credentials: `quay.io/org` from Secret `team-a` (403)"
        );
    }
}
