//! Every reason that the controller or a syncer reports, and the finding of `check` for it.

use std::collections::BTreeMap;

use globalps_core::api::{
    GlobalPullSecret, GlobalPullSecretSpec, GlobalPullSecretStatus, Phase, condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::tests::{node, now};
use super::{Check, Owners, Verdict, credentials, of_nodes};

/// The check that reports it and its result; `None` if no check does.
type Told = Option<(&'static str, Verdict)>;

/// Every reason that a syncer writes.
const REASONS_OF_NODES: [(Phase, &str, Told); 39] = {
    use Phase::{Failed, ForeignOwner, Pending, Restored, RolledBack, Synced, Syncing};
    use Verdict::{Failure, Warning};
    [
        (Pending, "", None),
        (Syncing, "", None),
        (Synced, "", None),
        (Restored, "", None),
        (Syncing, "Superseded", None),
        (Syncing, "RestartDelayed", None),
        (Syncing, "SecretNotRead", Some(("node-secret", Warning))),
        (Synced, "RestartNotPossible", None),
        (Synced, "RestartNever", None),
        (
            Synced,
            "FileQuarantined",
            Some(("node-file-quarantined", Warning)),
        ),
        (
            Restored,
            "FileQuarantined",
            Some(("node-file-quarantined", Warning)),
        ),
        (Synced, "ModeNarrowed", None),
        (Synced, "DriftRepaired", Some(("node-drift", Warning))),
        (
            Synced,
            "ProviderNotPossible",
            Some(("node-provider", Warning)),
        ),
        (
            Synced,
            "ForeignProviderConfig",
            Some(("node-provider-config", Warning)),
        ),
        (
            Failed,
            "ForeignProviderConfig",
            Some(("node-provider-config", Warning)),
        ),
        (
            RolledBack,
            "ProviderFailed",
            Some(("node-provider-failed", Failure)),
        ),
        (
            RolledBack,
            "KubeletDidNotStart",
            Some(("node-rolled-back", Failure)),
        ),
        (
            RolledBack,
            "KubeletRecovered",
            Some(("node-rolled-back", Failure)),
        ),
        (Failed, "KubeletDown", Some(("node-kubelet-down", Failure))),
        (Failed, "SystemBusUnavailable", Some(("node-bus", Failure))),
        (Failed, "SystemdError", Some(("node-systemd", Failure))),
        (Failed, "KubeletUnit", Some(("node-unit", Failure))),
        (Failed, "AnotherSyncer", Some(("node-two-syncers", Failure))),
        (Failed, "StateTooNew", Some(("node-state", Failure))),
        (Failed, "StateDamaged", Some(("node-state", Failure))),
        (Synced, "StateLost", Some(("node-state-lost", Warning))),
        (Restored, "StateLost", Some(("node-state-lost", Warning))),
        (Failed, "DiskFull", Some(("node-disk", Failure))),
        (Failed, "ReadOnlyDisk", Some(("node-disk", Failure))),
        (Failed, "ImmutableFile", Some(("node-disk", Failure))),
        (Failed, "NotPermitted", Some(("node-disk", Failure))),
        (Failed, "FileError", Some(("node-disk", Failure))),
        (Failed, "NotARegularFile", Some(("node-disk", Failure))),
        (Failed, "FileTooLarge", Some(("node-disk", Failure))),
        (Failed, "NoDirectory", Some(("node-disk", Failure))),
        (
            ForeignOwner,
            "ConflictLimit",
            Some(("foreign-owner", Warning)),
        ),
        (ForeignOwner, "ManagedFile", Some(("managed-file", Warning))),
        (ForeignOwner, "SteppedAside", Some(("node-update", Warning))),
    ]
};

/// Every reason that the controller writes: condition, its status, reason.
const REASONS_OF_CONDITIONS: [(&str, &str, &str, Told); 90] = {
    use Verdict::{Failure, Ok, Warning};
    use condition::{
        ADDITIONAL_VALID, CREDENTIALS_EXPIRING, CREDENTIALS_REJECTED, DEGRADED, NAMESPACES_SYNCED,
        OLD_FORGOTTEN, OPERATORS_SYNCED, ORIGINAL_VALID, PROGRESSING, READY, SOURCES_VALID,
        SYNCERS_HEALTHY,
    };
    const ADDITIONAL: &str = "additional-invalid";
    const ORIGINAL: &str = "original-invalid";
    const SOURCES: &str = "sources-invalid";
    const EXPIRING: &str = "credentials-expiring";
    const NAMESPACES: &str = "namespaces-synced";
    const OPERATORS: &str = "operators-synced";
    const REJECTED: &str = "credentials-rejected";
    const OLD: &str = "old-forgotten";
    [
        (OLD_FORGOTTEN, "True", "Forgotten", Some((OLD, Ok))),
        (OLD_FORGOTTEN, "False", "Deleting", Some((OLD, Ok))),
        (OLD_FORGOTTEN, "False", "WaitingForRollout", Some((OLD, Ok))),
        (
            OLD_FORGOTTEN,
            "False",
            "InvalidRequest",
            Some((OLD, Warning)),
        ),
        (OLD_FORGOTTEN, "False", "StillInForce", Some((OLD, Warning))),
        (OLD_FORGOTTEN, "False", "NodesHaveOld", Some((OLD, Warning))),
        (
            CREDENTIALS_REJECTED,
            "False",
            "Accepted",
            Some((REJECTED, Warning)),
        ),
        (
            CREDENTIALS_REJECTED,
            "True",
            "Rejected",
            Some((REJECTED, Failure)),
        ),
        (
            CREDENTIALS_REJECTED,
            "Unknown",
            "NotReachable",
            Some((REJECTED, Warning)),
        ),
        (
            CREDENTIALS_REJECTED,
            "Unknown",
            "Verifying",
            Some((REJECTED, Ok)),
        ),
        (NAMESPACES_SYNCED, "True", "Synced", Some((NAMESPACES, Ok))),
        (
            NAMESPACES_SYNCED,
            "Unknown",
            "Listing",
            Some((NAMESPACES, Ok)),
        ),
        (
            NAMESPACES_SYNCED,
            "False",
            "RollingOut",
            Some((NAMESPACES, Ok)),
        ),
        (
            NAMESPACES_SYNCED,
            "False",
            "InvalidSettings",
            Some((NAMESPACES, Failure)),
        ),
        (
            NAMESPACES_SYNCED,
            "False",
            "Forbidden",
            Some((NAMESPACES, Failure)),
        ),
        (
            NAMESPACES_SYNCED,
            "False",
            "ForeignSecret",
            Some((NAMESPACES, Failure)),
        ),
        (
            NAMESPACES_SYNCED,
            "False",
            "NamespacesFailed",
            Some((NAMESPACES, Failure)),
        ),
        (
            NAMESPACES_SYNCED,
            "False",
            "Conflict",
            Some((NAMESPACES, Warning)),
        ),
        (
            NAMESPACES_SYNCED,
            "False",
            "WaitingForCanary",
            Some((NAMESPACES, Warning)),
        ),
        (OPERATORS_SYNCED, "True", "Synced", Some((OPERATORS, Ok))),
        (
            OPERATORS_SYNCED,
            "True",
            "NotInstalled",
            Some((OPERATORS, Warning)),
        ),
        (
            OPERATORS_SYNCED,
            "Unknown",
            "Listing",
            Some((OPERATORS, Ok)),
        ),
        (
            OPERATORS_SYNCED,
            "False",
            "RollingOut",
            Some((OPERATORS, Ok)),
        ),
        (
            OPERATORS_SYNCED,
            "False",
            "Forbidden",
            Some((OPERATORS, Failure)),
        ),
        // Reported by a line for each failure.
        (OPERATORS_SYNCED, "False", "OperatorsFailed", None),
        (READY, "False", "NoDelivery", Some(("no-delivery", Failure))),
        (
            ADDITIONAL_VALID,
            "Unknown",
            "Absent",
            Some((ADDITIONAL, Ok)),
        ),
        (ADDITIONAL_VALID, "True", "Valid", Some((ADDITIONAL, Ok))),
        (
            ADDITIONAL_VALID,
            "True",
            "RolledBack",
            Some((ADDITIONAL, Ok)),
        ),
        (
            ADDITIONAL_VALID,
            "False",
            "Unreadable",
            Some((ADDITIONAL, Failure)),
        ),
        (
            ADDITIONAL_VALID,
            "False",
            "Forbidden",
            Some((ADDITIONAL, Failure)),
        ),
        (
            ADDITIONAL_VALID,
            "False",
            "Invalid",
            Some((ADDITIONAL, Failure)),
        ),
        (ORIGINAL_VALID, "True", "NodeFile", Some((ORIGINAL, Ok))),
        (ORIGINAL_VALID, "True", "Valid", Some((ORIGINAL, Ok))),
        (
            ORIGINAL_VALID,
            "False",
            "Unreadable",
            Some((ORIGINAL, Failure)),
        ),
        (
            ORIGINAL_VALID,
            "False",
            "Forbidden",
            Some((ORIGINAL, Failure)),
        ),
        (
            ORIGINAL_VALID,
            "False",
            "BadEntries",
            Some((ORIGINAL, Failure)),
        ),
        (
            ORIGINAL_VALID,
            "False",
            "Invalid",
            Some((ORIGINAL, Failure)),
        ),
        (SOURCES_VALID, "True", "Valid", Some((SOURCES, Ok))),
        (SOURCES_VALID, "False", "Absent", Some((SOURCES, Failure))),
        (
            SOURCES_VALID,
            "False",
            "Forbidden",
            Some((SOURCES, Failure)),
        ),
        (
            SOURCES_VALID,
            "False",
            "Unreadable",
            Some((SOURCES, Failure)),
        ),
        (SOURCES_VALID, "False", "Invalid", Some((SOURCES, Failure))),
        (CREDENTIALS_EXPIRING, "False", "NoneExpiring", None),
        (
            CREDENTIALS_EXPIRING,
            "True",
            "ExpiringSoon",
            Some((EXPIRING, Warning)),
        ),
        (
            CREDENTIALS_EXPIRING,
            "True",
            "ExpiringWithinAnHour",
            Some((EXPIRING, Warning)),
        ),
        (
            CREDENTIALS_EXPIRING,
            "True",
            "Expired",
            Some((EXPIRING, Failure)),
        ),
        (DEGRADED, "False", "AsExpected", None),
        (
            DEGRADED,
            "True",
            "RolledBack",
            Some(("rolled-back", Failure)),
        ),
        (
            DEGRADED,
            "True",
            "RolloutHalted",
            Some(("rollout-halted", Failure)),
        ),
        // Reported by the nodes, or by the condition of the Secret.
        (DEGRADED, "True", "NodesFailed", None),
        (DEGRADED, "True", "OriginalUnreadable", None),
        (DEGRADED, "True", "SourceAbsent", None),
        (DEGRADED, "True", "SourceForbidden", None),
        (DEGRADED, "True", "SourceUnreadable", None),
        (DEGRADED, "True", "SourceInvalid", None),
        (DEGRADED, "True", "NodesBlocked", None),
        (DEGRADED, "True", "NodesNotRestored", None),
        (
            DEGRADED,
            "True",
            "Unreadable",
            Some(("unreadable", Failure)),
        ),
        // Reported by Degraded.
        (READY, "False", "Unreadable", None),
        (PROGRESSING, "False", "Unreadable", None),
        // Reported by Progressing.
        (DEGRADED, "True", "Held", None),
        (
            DEGRADED,
            "True",
            "ConfigFileDiffers",
            Some(("config-file-differs", Warning)),
        ),
        (
            DEGRADED,
            "True",
            "ProviderPathsDiffer",
            Some(("provider-paths-differ", Warning)),
        ),
        (
            DEGRADED,
            "True",
            "ReconcileFailed",
            Some(("reconcile-failed", Failure)),
        ),
        // Reported by Degraded.
        (READY, "False", "ReconcileFailed", None),
        (READY, "True", "Synced", Some(("rollout", Ok))),
        (READY, "False", "RollingOut", Some(("rollout", Ok))),
        (READY, "False", "WaitingForSyncers", Some(("rollout", Ok))),
        (READY, "False", "Restoring", Some(("rollout", Ok))),
        (READY, "False", "NoNodes", Some(("no-nodes", Warning))),
        (READY, "False", "NoAdditional", None),
        (READY, "False", "AdditionalInvalid", None),
        (READY, "False", "Held", None),
        (READY, "False", "NodesFailed", None),
        (READY, "False", "NodesBlocked", None),
        (PROGRESSING, "False", "Complete", None),
        (PROGRESSING, "False", "Paused", None),
        (PROGRESSING, "False", "Halted", None),
        (PROGRESSING, "False", "NothingToDo", None),
        (PROGRESSING, "True", "CleaningUp", None),
        (PROGRESSING, "True", "SyncersRolling", None),
        (PROGRESSING, "False", "Held", Some(("held", Failure))),
        (
            PROGRESSING,
            "True",
            "WaitingForCanary",
            Some(("canary-waiting", Warning)),
        ),
        (
            PROGRESSING,
            "False",
            "NoCanary",
            Some(("canary-waiting", Warning)),
        ),
        (SYNCERS_HEALTHY, "True", "AllRunning", None),
        (SYNCERS_HEALTHY, "True", "RollingOut", None),
        (
            SYNCERS_HEALTHY,
            "False",
            "NotRunning",
            Some(("syncers-unhealthy", Failure)),
        ),
        (
            SYNCERS_HEALTHY,
            "False",
            "PodsNotCreated",
            Some(("syncers-unhealthy", Failure)),
        ),
        (
            SYNCERS_HEALTHY,
            "False",
            "NotWritten",
            Some(("syncers-unhealthy", Failure)),
        ),
    ]
};

/// What `check` prints for each reason, word for word. `UPDATE_DOCS=1` writes it.
#[test]
fn every_reason_has_its_finding() {
    let mut lines = vec!["# check's line for each reason: result, anchor, message, hint".to_owned()];
    let mut line = |about: String, checks: &[Check]| {
        let found = checks.first().filter(|check| check.name != "nodes");
        let said = found.map_or("nothing".to_owned(), |check| {
            assert_eq!(check.hint.is_empty(), check.result == Verdict::Ok, "{about}");
            format!(
                "{:?} {} | {} | {}",
                check.result, check.name, check.message, check.hint
            )
        });
        lines.push(format!("{about}: {said}"));
    };
    for (phase, reason, _) in REASONS_OF_NODES {
        let objects: BTreeMap<_, _> = [("n".to_owned(), node(phase.clone(), reason))].into();
        let checks = of_nodes(objects.iter(), (&[], &[]), Owners::default());
        line(format!("{phase} {reason}"), &checks);
    }
    for (type_, status, reason, _) in REASONS_OF_CONDITIONS {
        // Those that never have a message, or not always.
        let is_bare = matches!(reason, "Valid" | "Accepted");
        for message in ["why", ""].into_iter().take(1 + usize::from(is_bare)) {
            let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
            gps.status = Some(GlobalPullSecretStatus {
                conditions: vec![Condition {
                    type_: type_.to_owned(),
                    status: status.to_owned(),
                    reason: reason.to_owned(),
                    message: message.to_owned(),
                    last_transition_time: Time(now()),
                    observed_generation: None,
                }],
                ..GlobalPullSecretStatus::default()
            });
            let checks = credentials(Some(&gps), true, false);
            line(format!("{type_}={status} {reason} {message:?}"), &checks);
        }
    }
    let text = lines.join("\n") + "\n";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/view/check/findings.txt");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect("a file");
    }
    assert_eq!(std::fs::read_to_string(path).expect("a file"), text);
}

/// By the words in the programs' sources, so that a new reason is not forgotten here.
#[test]
fn the_tables_have_every_reason_that_the_programs_write() {
    // What `Debug` shows, systemd's properties, statuses of conditions, deliveries of sources.
    const NO_REASONS: [&str; 11] = [
        "Absent",
        "ManagedEntries",
        "InvocationID",
        "NRestarts",
        "True",
        "False",
        "Unknown",
        "Nodes",
        "Namespaces",
        "NodesAndNamespaces",
        "NotDeliverable",
    ];
    let of_nodes = REASONS_OF_NODES.map(|(_, reason, _)| reason);
    let of_conditions = REASONS_OF_CONDITIONS.map(|(_, _, reason, _)| reason);
    let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (places, known) in [
        (&["syncer/src"][..], &of_nodes[..]),
        (
            &[
                "controller/src/report/conditions.rs",
                "controller/src/report/syncers.rs",
                "controller/src/report/statement.rs",
                "controller/src/report/sources.rs",
                "controller/src/report/expiry.rs",
                "controller/src/report/namespaces.rs",
                "controller/src/report/operators.rs",
                "controller/src/report/verification.rs",
                "controller/src/report/forget.rs",
            ],
            &of_conditions,
        ),
    ] {
        let place = places.join(" and ");
        let words: std::collections::BTreeSet<String> = places
            .iter()
            .flat_map(|place| words_of(&workspace.join(place)))
            .collect();
        assert!(words.len() > 15, "{place}: {words:?}");
        for word in &words {
            let is_known = known.contains(&word.as_str()) || NO_REASONS.contains(&word.as_str());
            assert!(is_known, "{place} has a reason that no table has: {word}");
        }
        for reason in known.iter().filter(|reason| !reason.is_empty()) {
            assert!(words.contains(*reason), "nobody writes {reason} in {place}");
        }
    }
}

/// `"CamelCase"` words of a file, or of every file in a directory, without their tests.
fn words_of(path: &std::path::Path) -> std::collections::BTreeSet<String> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        return paths
            .filter(|path| !path.ends_with("tests.rs"))
            .flat_map(|path| words_of(&path))
            .collect();
    }
    let source = std::fs::read_to_string(path).expect("a source");
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let is_word = |text: &&str| {
        text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.len() > 3
            && text.chars().all(|c| c.is_ascii_alphabetic())
            && text.chars().any(|c| c.is_ascii_lowercase())
    };
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter(is_word)
        .map(str::to_owned)
        .collect()
}
