//! The validity of `spec.sources`, as a condition and one by one. Pure.

use globalps_core::api::{SOURCE_REGISTRIES, SourceStatus, condition};

use super::statement::{MAY_NOT_READ, Statement, sentences, statement};
use crate::content::resolve::ResolvedSource;
use crate::content::source::Verdict;

/// `None`: there are no sources.
pub(super) fn sources_valid(sources: &[ResolvedSource]) -> Option<Statement> {
    let new =
        |status, reason, message| statement(condition::SOURCES_VALID, status, reason, message);
    if sources.is_empty() {
        return None;
    }
    Some(match first_bad(sources) {
        Some((reason, _, message)) => new("False", reason, message),
        None => new("True", "Valid", String::new()),
    })
}

/// Reason of `SourcesValid` and reason of `Degraded` for the first invalid source, and a message about all invalid sources;
/// `None`: all are valid.
pub(super) fn first_bad(
    sources: &[ResolvedSource],
) -> Option<(&'static str, &'static str, String)> {
    let bad: Vec<_> = sources
        .iter()
        .filter_map(|source| Some((source, source_fault(source)?)))
        .collect();
    let (_, (reason, degraded, _)) = bad.first()?;
    let say = |(source, (_, _, reason)): &(&ResolvedSource, Fault)| {
        format!("`{}`: {reason}", source.name)
    };
    let mut sentences: Vec<String> = bad.iter().map(say).collect();
    let forbidden = |source: &&ResolvedSource| source.verdict == Verdict::Forbidden;
    let flags: Vec<String> = sources
        .iter()
        .filter(forbidden)
        .map(|source| format!("--source {}", source.name))
        .collect();
    if !flags.is_empty() {
        sentences.push(format!(
            "`kubectl globalps install {} --apply` allows it",
            flags.join(" ")
        ));
    }
    Some((reason, degraded, sentences.join("; ")))
}

/// Reason of `SourcesValid`, reason of `Degraded`, message.
type Fault = (&'static str, &'static str, String);

fn source_fault(source: &ResolvedSource) -> Option<Fault> {
    let stays = if source.registries.is_empty() {
        ""
    } else {
        "; what was valid last stays in force"
    };
    Some(match &source.verdict {
        Verdict::Valid | Verdict::RolledBack(_) => return None,
        Verdict::Absent => (
            "Absent",
            "SourceAbsent",
            "there is no such Secret".to_owned(),
        ),
        Verdict::Forbidden => (
            "Forbidden",
            "SourceForbidden",
            format!("{MAY_NOT_READ}{stays}"),
        ),
        Verdict::Unreadable(reason) => {
            ("Unreadable", "SourceUnreadable", format!("{reason}{stays}"))
        }
        Verdict::Invalid(findings) | Verdict::Partly(findings) => (
            "Invalid",
            "SourceInvalid",
            format!("{}{stays}", sentences(findings)),
        ),
    })
}

pub(super) fn source_statuses(sources: &[ResolvedSource]) -> Vec<SourceStatus> {
    let sources = sources.iter().map(|source| {
        let fault = source_fault(source);
        let registries = source.registries.iter().take(SOURCE_REGISTRIES);
        SourceStatus {
            name: source.name.clone(),
            valid: fault.is_none(),
            message: fault.map(|(_, _, reason)| reason).unwrap_or_default(),
            registries: registries.cloned().collect(),
            total: u32::try_from(source.registries.len()).unwrap_or(u32::MAX),
            ..SourceStatus::default()
        }
    });
    sources.collect()
}
