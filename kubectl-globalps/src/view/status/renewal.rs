//! How to renew credentials, by the Secrets that the controller's message names. Pure.

use std::collections::BTreeSet;

use globalps_core::names;

use crate::view::commands::{Login, add};

/// Before the name of a Secret.
const NAMED: [&str; 2] = ["` of `", "` from Secret `"];
const OF_ORIGINAL: &str = "` of the original pull secret";

/// The hint for credentials that expire or that a registry rejects. Each goes back to where it is from: in the additional pull secret
/// every pod would get the password of a source with a scope.
pub(crate) fn renewal(message: &str) -> String {
    let sources = sources(message);
    let mut ways: Vec<String> = sources
        .iter()
        .take(MOST)
        .map(|source| {
            let command = command(source);
            match *source {
                "" => format!("renew those of the additional pull secret with `{command}`"),
                source => format!("renew those of `{source}` with `{command}`, or in that Secret"),
            }
        })
        .collect();
    if message.contains(OF_ORIGINAL) {
        ways.push("the owner of the original pull secret must renew those".to_owned());
    }
    if is_one_unnamed(message) || ways.is_empty() || sources.len() > MOST {
        ways.push(format!(
            "renew each in the Secret that `kubectl globalps list -o wide` names: the additional pull secret with `{}`, one of `spec.sources` with `{}`; the owner must renew the original",
            command(""),
            command("NAME")
        ));
    } else {
        ways.push("`kubectl globalps list -o wide` shows when each expires".to_owned());
    }
    ways.join("; ")
}

/// Maximum number of Secrets with a command of their own.
const MOST: usize = 3;

fn command(source: &str) -> String {
    let login = Login {
        source,
        ..Login::new("REGISTRY")
    };
    add(&login, "")
}

/// Names of the Secrets; empty: the additional pull secret.
fn sources(message: &str) -> BTreeSet<&str> {
    let is_name = |name: &&str| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        !name.is_empty() && name.chars().all(is_of_name)
    };
    let after = NAMED.iter().flat_map(|mark| message.split(mark).skip(1));
    let names = after.filter_map(|rest| rest.split('`').next());
    names
        .filter(is_name)
        .map(|name| match name {
            names::ADDITIONAL_SECRET => "",
            name => name,
        })
        .collect()
}

/// Whether a rejected credential has no Secret beside it: `REGISTRY` (STATUS).
fn is_one_unnamed(message: &str) -> bool {
    let rejected = message.matches("` (4").count();
    rejected > message.matches(NAMED[1]).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_goes_back_to_the_secret_that_it_is_from() {
        let add = "kubectl globalps add REGISTRY";
        let flags = "-u USER --wait --retry-pods";
        let additional = format!("`{add} {flags}`");
        let of = |name: &str| format!("`{add} --source {name} {flags}`");
        let owner = "the owner of the original pull secret must";
        for (message, expected, others) in [
            (
                "the credential for `r.io` of `team` expires at 2027-01-15T08:00:00Z",
                vec![of("team")],
                vec![additional.as_str(), owner],
            ),
            (
                "the credential for `r.io` of `additional-pull-secret` expired at 2027-01-15T08:00:00Z",
                vec![additional.clone()],
                vec!["--source", owner],
            ),
            (
                "the credential for `r.io` of the original pull secret expired at 2027-01-15T08:00:00Z",
                vec![owner.to_owned()],
                vec!["globalps add"],
            ),
            (
                "the credential for `r` of `a` expires at T; the credential for `r` of `b` expires at T; the credential for `s` of the original pull secret expires at T; and 4 more",
                vec![of("a"), of("b"), owner.to_owned()],
                vec![additional.as_str()],
            ),
            (
                "registries reject the credentials: `r.io` from Secret `team` (401)",
                vec![of("team")],
                vec![additional.as_str()],
            ),
            (
                "registries reject the credentials: `r.io` (401), `r.io` from Secret `team` (403)",
                vec![of("team"), additional.clone(), of("NAME")],
                vec![],
            ),
            ("in words", vec![additional.clone(), of("NAME")], vec![]),
        ] {
            let hint = renewal(message);
            let has_each = expected.iter().all(|it| hint.contains(it));
            assert!(has_each, "{message}: {hint}");
            let has_none = others.iter().all(|it| !hint.contains(it));
            assert!(has_none, "{message}: {hint}");
        }
    }
}
