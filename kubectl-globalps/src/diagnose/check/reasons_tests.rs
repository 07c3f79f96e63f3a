//! The output of `check` for each reason of the catalogue.

use std::collections::BTreeMap;

use globalps_core::api::{GlobalPullSecret, GlobalPullSecretSpec, GlobalPullSecretStatus, Phase};
use globalps_core::reasons::{CREDENTIALS, NAMESPACES, NODES, OPERATORS, ROLLOUT, Reason, SECRETS};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::tests::{node, now};
use super::{Check, CheckResult, Owners, credentials, of_nodes};

/// Compares the output literally; `UPDATE_DOCS=1` writes it.
#[test]
fn every_reason_has_its_finding() {
    let mut lines =
        vec!["# check's line for each reason: result, anchor, message, hint".to_owned()];
    let mut line = |about: String, checks: &[Check]| {
        let found = checks.first().filter(|check| check.name != "nodes");
        let said = found.map_or("nothing".to_owned(), |check| {
            assert_eq!(
                check.hint.is_empty(),
                check.result == CheckResult::Ok,
                "{about}"
            );
            format!(
                "{:?} {} | {} | {}",
                check.result, check.name, check.message, check.hint
            )
        });
        lines.push(format!("{about}: {said}"));
    };
    for row in NODES {
        for phase in row.of.split(", ") {
            let object = node(Phase::from(phase), row.reason.as_str());
            let objects: BTreeMap<_, _> = [("n".to_owned(), object)].into();
            let checks = of_nodes(objects.iter(), (&[], &[]), Owners::default());
            line(format!("{phase} {}", row.reason), &checks);
        }
    }
    let conditions = [ROLLOUT, SECRETS, CREDENTIALS, NAMESPACES, OPERATORS];
    let conditions = conditions.into_iter().flatten();
    for row in conditions.filter(|row| !row.status.is_empty()) {
        // These reasons have no message, or not always.
        let is_bare = matches!(row.reason, Reason::Valid | Reason::Accepted);
        for message in ["why", ""].into_iter().take(1 + usize::from(is_bare)) {
            let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
            gps.status = Some(GlobalPullSecretStatus {
                conditions: vec![Condition {
                    type_: row.of.to_owned(),
                    status: row.status.to_owned(),
                    reason: row.reason.into(),
                    message: message.to_owned(),
                    last_transition_time: Time(now()),
                    observed_generation: None,
                }],
                ..GlobalPullSecretStatus::default()
            });
            let checks = credentials(Some(&gps), true, false);
            let about = format!("{}={} {} {message:?}", row.of, row.status, row.reason);
            line(about, &checks);
        }
    }
    let text = lines.join("\n") + "\n";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/view/check/findings.txt");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect("a file");
    }
    assert_eq!(std::fs::read_to_string(path).expect("a file"), text);
}

/// The controller of a newer release still gets a line with a section.
#[test]
fn an_unknown_reason_has_the_finding_of_its_condition_or_phase() {
    for (type_, status, expected) in [
        ("NamespacesSynced", "False", Some("namespaces-synced")),
        ("AdditionalValid", "False", Some("additional-invalid")),
        ("SyncersHealthy", "False", Some("syncers-unhealthy")),
        ("Degraded", "True", None),
        ("Dreaming", "True", None),
    ] {
        let found = globalps_core::reasons::of_condition(type_, status, "Newer");
        assert_eq!(found.map(|it| it.section), expected, "{type_}");
    }
    for (phase, expected) in [
        (Phase::Failed, Some("node-failed")),
        (Phase::RolledBack, Some("node-rolled-back")),
        (Phase::ForeignOwner, Some("foreign-owner")),
        (Phase::Unreadable, Some("node-unreadable")),
        (Phase::Synced, None),
    ] {
        let found = globalps_core::reasons::of_node(&phase, "Newer");
        assert_eq!(found.map(|it| it.section), expected, "{phase}");
    }
}
