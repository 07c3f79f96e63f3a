//! Tables of observed states and the resulting findings of `check`.

use globalps_core::api::{
    GlobalPullSecret, GlobalPullSecretSpec, GlobalPullSecretStatus, NodePullSecretSpec,
    NodePullSecretStatus, condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{NodePullSecret, Phase};
use globalps_core::reasons::{Row, TABLES};

use super::credentials::of_condition;
use super::*;
use crate::cluster::Facts;
use crate::cluster::facts::{SecretVersion, Store};
use crate::cluster::installed::{LeaseSeen, Workload};
use crate::cluster::syncers::PodError;

pub(super) fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().expect("a time")
}

fn workload(ready: i32) -> Workload {
    Workload {
        wanted: 3,
        ready,
        image: "image:1".to_owned(),
        ours: true,
    }
}

fn lease_of(renewed: &str) -> Sight<LeaseSeen> {
    Sight::Here(LeaseSeen {
        holder: "pod-a".to_owned(),
        renewed: renewed.parse().ok(),
        seconds: 15,
    })
}

fn running() -> Installed {
    Installed {
        crds: Sight::Here(()),
        controller: Sight::Here(workload(1)),
        lease: lease_of("2026-01-01T00:09:55Z"),
        syncer: Sight::Here(workload(3)),
        pod_errors: Vec::new(),
        stopped: None,
        start: None,
        nodes_not_ready: 0,
        needs_syncers: false,
    }
}

fn not_running(reason: &str) -> PodError {
    PodError::NotRunning {
        daemon_set: "d".to_owned(),
        reason: reason.to_owned(),
        nodes: vec!["node-1".to_owned()],
    }
}

/// Name and result of each finding that is not a pass.
fn bad(checks: &[Check]) -> Vec<(&str, CheckResult)> {
    checks
        .iter()
        .filter(|check| check.result != CheckResult::Ok)
        .map(|check| (check.name, check.result))
        .collect()
}

type Change = fn(&mut Installed);
type Case = (&'static str, Change, Vec<(&'static str, CheckResult)>);

#[test]
fn an_installation_is_judged_by_what_runs() {
    use CheckResult::{Failure, Warning};
    let table: [Case; 8] = [
        ("all runs", |_| {}, vec![]),
        (
            "nothing is installed",
            |seen| {
                *seen = Installed {
                    crds: Sight::Absent,
                    controller: Sight::Absent,
                    lease: Sight::Absent,
                    syncer: Sight::Absent,
                    pod_errors: Vec::new(),
                    stopped: None,
                    start: None,
                    nodes_not_ready: 0,
                    needs_syncers: false,
                };
            },
            vec![("custom-resources", Failure), ("controller", Failure)],
        ),
        (
            "the controller is down, and its lease runs out",
            |seen| {
                seen.controller = Sight::Here(workload(0));
                seen.lease = lease_of("2026-01-01T00:09:00Z");
            },
            vec![("controller", Failure)],
        ),
        (
            "the last leader has ended",
            |seen| {
                if let Sight::Here(lease) = &mut seen.lease {
                    lease.holder.clear();
                }
            },
            vec![("lease", Failure)],
        ),
        (
            "the lease is older than it lasts, by less than clocks differ",
            |seen| seen.lease = lease_of("2026-01-01T00:08:46Z"),
            vec![],
        ),
        (
            "the lease has expired",
            |seen| seen.lease = lease_of("2026-01-01T00:08:44Z"),
            vec![("lease", Failure)],
        ),
        (
            "no lease yet",
            |seen| seen.lease = Sight::Absent,
            vec![("lease", Warning)],
        ),
        (
            "what is hidden is no failure",
            |seen| {
                seen.controller = Sight::Hidden;
                seen.lease = Sight::Hidden;
                seen.syncer = Sight::Hidden;
            },
            vec![
                ("controller", Warning),
                ("lease", Warning),
                ("syncer-pods", Warning),
            ],
        ),
    ];
    judged(table);
}

fn judged<const CASES: usize>(table: [Case; CASES]) {
    for (sentence, change, expected) in table {
        let mut seen = running();
        change(&mut seen);
        assert_eq!(
            bad(&installation(&seen, names::NAMESPACE, now())),
            expected,
            "{sentence}"
        );
    }
}

#[test]
fn the_hints_command_starts_a_controller_without_replicas() {
    let mut seen = running();
    seen.controller = Sight::Here(Workload {
        wanted: 0,
        ..workload(0)
    });
    seen.stopped = Some("Deployment `d` has 0 replicas".to_owned());
    let checks = installation(&seen, names::NAMESPACE, now());
    let found = checks.iter().find(|check| check.name == "controller");
    let found = found.map(|check| (check.message.as_str(), check.hint.as_str()));
    let expected = (
        "the controller does not run: Deployment `d` has 0 replicas",
        "start it with `kubectl -n globalps-system scale deployment globalps-controller --replicas 2`",
    );
    assert_eq!(found, Some(expected));
}

#[test]
fn syncers_are_judged_by_what_runs_of_them() {
    use CheckResult::{Failure, Warning};
    let table: [Case; 6] = [
        (
            "nothing to sync",
            |seen| seen.syncer = Sight::Absent,
            vec![],
        ),
        (
            "some have not got it",
            |seen| seen.syncer = Sight::Here(workload(2)),
            vec![("syncer-pods", Warning)],
        ),
        (
            "an image that nodes can't pull",
            |seen| seen.pod_errors = vec![not_running("ImagePullBackOff")],
            vec![("syncer-image", Failure)],
        ),
        (
            "a syncer that ends again and again",
            |seen| {
                seen.syncer = Sight::Here(workload(2));
                seen.pod_errors = vec![not_running("CrashLoopBackOff")];
            },
            vec![("syncer-pods", Warning), ("syncer-not-running", Failure)],
        ),
        (
            "pods that the API server refuses",
            |seen| {
                seen.syncer = Sight::Here(workload(0));
                seen.pod_errors = vec![PodError::NotCreated {
                    daemon_set: "d".to_owned(),
                    nodes: 3,
                    message: "no".to_owned(),
                }];
            },
            vec![("syncer-pods", Warning), ("syncer-not-created", Failure)],
        ),
        (
            "HyperShift's own syncer",
            |seen| {
                seen.syncer = Sight::Here(Workload {
                    ours: false,
                    ..workload(3)
                });
            },
            vec![("hypershift", Warning)],
        ),
    ];
    judged(table);
}

#[test]
fn an_old_server_fails() {
    for (minor, expected) in [
        (Some(36), vec![]),
        (Some(29), vec![("version", CheckResult::Failure)]),
        (None, vec![]),
    ] {
        assert_eq!(bad(&server("v1.x", minor)), expected, "{minor:?}");
    }
}

#[test]
fn a_syncer_of_a_node_that_is_not_ready_is_not_looked_at() {
    for (ready, not_ready, message, hint) in [
        (2, 0, "2 of 3 syncers are ready", "describe pods"),
        (
            2,
            1,
            "2 of 3 syncers are ready: 1 node is not Ready",
            "describe nodes",
        ),
        (
            1,
            1,
            "1 of 3 syncers are ready: 1 node is not Ready",
            "describe pods",
        ),
    ] {
        let seen = Installed {
            syncer: Sight::Here(workload(ready)),
            nodes_not_ready: not_ready,
            ..running()
        };
        let checks = installation(&seen, names::NAMESPACE, now());
        let found = checks.iter().find(|check| check.name == "syncer-pods");
        let found = found.expect("a line about the syncers");
        assert_eq!(found.message, message);
        assert!(found.hint.contains(hint), "{message}: {}", found.hint);
    }
}

#[test]
fn a_missing_permission_says_for_what_it_is() {
    let answers = |is_allowed: bool| -> Vec<(Permission, bool)> {
        let all = permissions_of_commands(2).into_iter();
        all.map(|permission| (permission, is_allowed)).collect()
    };
    let checks = permissions(&answers(false), "kube-system");
    for (expected, result) in [
        (
            "may not get secrets `additional-pull-secret` in namespace `kube-system`, for `add`, `diff`, `remove`, `remove --all`, `undo`, `bundle`; `why`, `why -A` do not show credentials that are not merged",
            CheckResult::Failure,
        ),
        (
            "may not get secrets `global-pull-secret` in namespace `kube-system`, for `diff`, `history`, `undo`, `explain`, `why`, `why -A`, `bundle`; `list` does not show most registries, users and revisions",
            CheckResult::Failure,
        ),
        (
            "may not list nodes: `status`, `bundle`, `--wait` do not show unreachable nodes",
            CheckResult::Warning,
        ),
    ] {
        let found = checks.iter().find(|check| check.message == expected);
        assert_eq!(found.map(|check| check.result), Some(result), "{expected}");
    }
    assert_eq!(bad(&permissions(&answers(true), "kube-system")), []);
}

#[test]
fn granted_permissions_are_one_line_of_text() {
    let all = permissions_of_commands(2);
    let number = all.len();
    for (missing, expected) in [
        (0, vec![format!("  √ all {number} permissions are granted (`-o json` lists them)")]),
        (
            1,
            vec![
                "  × may not get globalpullsecrets `global-pull-secret` in namespace `kube-system`, for `status`, `list`, \
                 `diff`, `history`, `undo`, `why`, `why -A`, `--wait`"
                    .to_owned(),
                format!(
                    "  √ {} of {number} permissions are granted (`-o json` lists them)",
                    number - 1
                ),
            ],
        ),
        (number, vec![]),
    ] {
        let answers = all.iter().cloned().enumerate();
        let answers: Vec<_> = answers.map(|(at, one)| (one, at >= missing)).collect();
        let text = CheckReport::of(permissions(&answers, "kube-system")).text(None, |_, text| text.to_owned());
        let lines = text.lines().skip(1);
        let signs = lines.filter(|line| line.starts_with("  √") || missing < 2 && line.starts_with("  ×"));
        assert_eq!(signs.collect::<Vec<_>>(), expected, "{missing} missing");
    }
}

#[test]
fn what_the_controller_says_of_the_secrets_is_passed_on() {
    let condition = |type_: &str, status: &str| Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: "Reason".to_owned(),
        message: "`r`: bad".to_owned(),
        last_transition_time: Time(now()),
        observed_generation: None,
    };
    let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
    gps.spec.rollout.paused = true;
    gps.status = Some(GlobalPullSecretStatus {
        conditions: vec![
            condition(condition::ADDITIONAL_VALID, "False"),
            condition(condition::ORIGINAL_VALID, "Unknown"),
        ],
        ..GlobalPullSecretStatus::default()
    });
    let checks = credentials(Some(&gps), true, false);
    assert_eq!(
        bad(&checks),
        [
            ("additional-invalid", CheckResult::Failure),
            ("paused", CheckResult::Warning)
        ]
    );
    assert_eq!(
        checks[0].message,
        "the additional pull secret is not valid: `r`: bad"
    );
    assert_eq!(credentials(None, false, false), []);
    let absent = credentials(None, true, false);
    assert_eq!(bad(&absent), [("no-configuration", CheckResult::Failure)]);
    assert!(
        absent[0].hint.contains("--restore-configuration"),
        "{absent:?}"
    );
    for (status, reason, expected) in [
        ("True", "AllRunning", None),
        ("False", "RollingOut", None),
        ("False", "NotRunning", Some("syncers-unhealthy")),
        ("False", "PodsNotCreated", Some("syncers-unhealthy")),
    ] {
        let mut healthy = condition(condition::SYNCERS_HEALTHY, status);
        healthy.reason = reason.to_owned();
        let found = of_condition(&healthy).map(|check| check.name);
        assert_eq!(found, expected, "{reason}");
    }
    let mut rolled_back = condition(condition::DEGRADED, "True");
    rolled_back.reason = "RolledBack".to_owned();
    gps.spec.rollout.paused = false;
    gps.status.get_or_insert_default().conditions = vec![rolled_back];
    assert_eq!(
        bad(&credentials(Some(&gps), true, false)),
        [("rolled-back", CheckResult::Failure)]
    );
    for (reason, another_changed, expected, other) in [
        ("RolloutHalted", false, "globalps undo", "spec.sources"),
        ("RolloutHalted", true, "spec.sources", "globalps undo"),
        (
            "ConfigFileDiffers",
            false,
            "--restore-configuration",
            "restore `spec",
        ),
    ] {
        let mut degraded = condition(condition::DEGRADED, "True");
        degraded.reason = reason.to_owned();
        gps.status.get_or_insert_default().conditions = vec![degraded];
        let hint = &credentials(Some(&gps), true, another_changed)[0].hint;
        let is_right = hint.contains(expected) && !hint.contains(other);
        assert!(is_right, "{reason}: {hint}");
    }
}

pub(super) fn node(phase: Phase, reason: &str) -> NodePullSecret {
    let mut object = NodePullSecret::new("n", NodePullSecretSpec::default());
    object.status = Some(NodePullSecretStatus {
        phase,
        reason: reason.to_owned(),
        ..NodePullSecretStatus::default()
    });
    object
}

#[test]
fn the_nodes_message_shows_why_a_provider_is_not_possible() {
    let said = |reason: &str, message: &str| {
        let mut object = node(Phase::Synced, reason);
        if let Some(status) = &mut object.status {
            message.clone_into(&mut status.message);
        }
        object
    };
    let objects: BTreeMap<String, NodePullSecret> = [
        ("a", said("ProviderNotPossible", "flags")),
        ("b", said("ProviderNotPossible", "noexec")),
        ("c", said("ProviderNotPossible", "flags")),
        ("d", said("ForeignProviderConfig", "line 3")),
    ]
    .map(|(name, object)| (name.to_owned(), object))
    .into();
    let checks = of_nodes(objects.iter(), (&[], &[]), Owners::default());
    let found: Vec<_> = checks
        .iter()
        .map(|c| (c.name, c.result, c.message.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (
                "node-provider",
                CheckResult::Warning,
                "a, c: the credential provider can't be set up, so the credentials file stays in use: flags",
            ),
            (
                "node-provider",
                CheckResult::Warning,
                "b: the credential provider can't be set up, so the credentials file stays in use: noexec",
            ),
            (
                "node-provider-config",
                CheckResult::Warning,
                "d: globalps can't read the kubelet's configuration of credential providers, so it doesn't change it: line 3",
            ),
        ]
    );
}

#[test]
fn nodes_are_grouped_by_their_error() {
    let objects: BTreeMap<String, NodePullSecret> = [
        ("a", node(Phase::Synced, "")),
        ("b", node(Phase::Failed, "SystemBusUnavailable")),
        ("c", node(Phase::Syncing, "SystemBusUnavailable")),
        ("d", node(Phase::RolledBack, "KubeletDidNotStart")),
        ("e", node(Phase::Failed, "KubeletDown")),
        ("f", node(Phase::Failed, "KubeletUnit")),
        ("g", node(Phase::Failed, "DiskFull")),
        ("h", node(Phase::ForeignOwner, "ConflictLimit")),
        ("i", node(Phase::Failed, "Other")),
    ]
    .map(|(name, object)| (name.to_owned(), object))
    .into();
    let owners = Owners {
        hypershift: 2,
        in_place: 1,
        machine_config: 2,
        is_into_openshift: false,
    };
    let checks = of_nodes(objects.iter(), (&["z"], &["v"]), owners);
    let messages: Vec<(&str, &str)> = checks
        .iter()
        .map(|check| {
            (
                check.name,
                check.message.split(':').next().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(
        messages,
        [
            (
                "machine-config-operator",
                "the Machine Config Operator manages the file of 2 nodes"
            ),
            (
                "hypershift",
                "2 nodes of HyperShift; a Machine Config Daemon updates 1 node in place, and globalps leaves its file alone meanwhile"
            ),
            ("nodes-unsupported", "v"),
            ("foreign-owner", "h"),
            ("node-bus", "b, c"),
            ("node-disk", "g"),
            ("node-failed", "i"),
            ("node-kubelet-down", "e"),
            ("node-rolled-back", "d"),
            ("node-unit", "f"),
            ("node-unreachable", "z"),
        ]
    );
    for is_into_openshift in [true, false] {
        let owners = Owners {
            machine_config: 1,
            is_into_openshift,
            ..Owners::default()
        };
        let checks = of_nodes(objects.iter().take(1), (&[], &[]), owners);
        assert_eq!(checks[0].result == CheckResult::Ok, is_into_openshift);
    }
    let well: Vec<Check> = of_nodes(objects.iter().take(1), (&[], &[]), Owners::default());
    assert_eq!(well[0].message, "1 node, none with an error");
    let many = ["a", "b", "c", "d", "e"].map(str::to_owned);
    let many = many.map(|name| (name, node(Phase::Failed, "SystemBusUnavailable")));
    let many = of_nodes(BTreeMap::from(many).iter(), (&[], &[]), Owners::default());
    assert!(many[0].message.starts_with("a, b, c and 2 more: "));
}

#[test]
fn a_report_about_other_pull_secrets_fails_a_running_controller() {
    let facts = |generation, version: Option<&str>, observed: &str, reason: &str| {
        let mut gps = GlobalPullSecret::new(names::GLOBAL_SECRET, GlobalPullSecretSpec::default());
        gps.metadata.generation = Some(generation);
        let ready = Condition {
            type_: condition::READY.to_owned(),
            status: "True".to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            last_transition_time: Time(now()),
            observed_generation: None,
        };
        gps.status = Some(GlobalPullSecretStatus {
            observed_generation: 1,
            observed_additional: observed.to_owned(),
            conditions: vec![ready],
            ..GlobalPullSecretStatus::default()
        });
        let mut facts = Facts {
            installed: true,
            additional_secret: Some(Store::default()),
            ..Facts::default()
        };
        facts.global.insert(names::GLOBAL_SECRET, gps);
        let store = facts.additional_secret.get_or_insert_default();
        if let Some(version) = version {
            let version = SecretVersion {
                version: version.to_owned(),
                ..SecretVersion::default()
            };
            store.insert(names::ADDITIONAL_SECRET, version);
        }
        facts
    };
    for (sentence, facts, is_outdated) in [
        ("as it is", facts(1, Some("7"), "7", "Synced"), false),
        ("another spec", facts(2, Some("7"), "7", "Synced"), true),
        ("another Secret", facts(1, Some("8"), "7", "Synced"), true),
        ("a deleted Secret", facts(1, None, "7", "Synced"), true),
        ("no Secret", facts(1, None, "", "Synced"), false),
        (
            "said already",
            facts(2, Some("7"), "7", "Unreadable"),
            false,
        ),
    ] {
        let found = outdated(&facts, &running(), now());
        let found: Vec<Check> = found.into_iter().collect();
        assert_eq!(!CheckReport::of(found).healthy, is_outdated, "{sentence}");
        let stopped = Installed {
            stopped: Some("why".to_owned()),
            ..running()
        };
        assert_eq!(outdated(&facts, &stopped, now()), None, "{sentence}");
    }
}

#[test]
fn a_line_is_wrapped_between_words_and_never_in_a_command() {
    let command = "`kubectl globalps install --controller-image IMAGE --syncer-image IMAGE`";
    let message = "the custom resources of globalps do not exist in this cluster";
    let checks = vec![well(INSTALLATION, "definitions", message).fail(format!("run {command}"))];
    let report = CheckReport::of(checks);
    let text = report.text(Some(40), |_, sign| format!("\x1b[31m{sign}\x1b[0m"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        &lines[1..5],
        [
            "  \x1b[31m×\x1b[0m the custom resources of globalps do",
            "    not exist in this cluster",
            "    hint: run",
            &format!("    {command}"),
        ]
    );
    assert!(
        !report
            .text(None, |_, sign| sign.to_owned())
            .contains("do\n")
    );
}

#[test]
fn the_text_is_grouped_and_failures_have_hint_and_anchor() {
    let checks = vec![
        well(CLUSTER, "api", "the API server responds"),
        well(INSTALLATION, "lease", "no lease").warn("wait"),
        well(INSTALLATION, "controller", "no controller").fail("install it"),
    ];
    assert_eq!(
        CheckReport::of(checks.clone()).text(None, |_, text| text.to_owned()),
        format!(
            "\
cluster
  √ the API server responds

installation
  ‼ no lease
    hint: wait
    see {}
  × no controller
    hint: install it
    see {}

3 checks: 1 failed, 1 with warnings",
            guide("lease"),
            guide("controller")
        )
    );
    let json = serde_json::to_value(CheckReport::of(checks)).expect("JSON");
    assert_eq!(json["healthy"], false);
    assert_eq!(
        json["checks"][2],
        serde_json::json!({
            "group": "installation", "name": "controller", "result": "failure",
            "message": "no controller", "hint": "install it", "see": guide("controller"),
        })
    );
}

/// Takes the names of checks from the source, so that a new check without a section is found.
#[test]
fn the_guide_has_a_section_for_every_check() {
    let guide = include_str!("../../../../docs/troubleshooting.md");
    let source = [
        include_str!("../check.rs"),
        include_str!("credentials.rs"),
        include_str!("namespaces.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap_or_default(),
        include_str!("nodes.rs"),
        include_str!("operators.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap_or_default(),
        include_str!("permissions.rs"),
        include_str!("provider.rs"),
        include_str!("registries.rs"),
        include_str!("readmission.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap_or_default(),
        include_str!("restarts.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap_or_default(),
        include_str!("../../cluster/syncers.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap_or_default(),
    ]
    .concat();
    let mut names: Vec<&str> = source
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| {
            guide.contains(&format!("## {text}\n"))
                || source.contains(&format!("INSTALLATION, \"{text}\""))
        })
        .collect();
    for always in [
        "api",
        "version",
        "permissions",
        "custom-resources",
        "controller",
        "lease",
        "syncer-pods",
        "syncer-image",
        "syncer-not-created",
        "syncer-not-running",
        "syncers-unhealthy",
        "no-configuration",
        "held",
        "canary-waiting",
        "config-file-differs",
        "additional-invalid",
        "original-invalid",
        "sources-invalid",
        "rolled-back",
        "rollout-halted",
        "operators-synced",
        "operators-permission",
        "no-nodes",
        "paused",
        "hypershift",
        "machine-config-operator",
        "foreign-owner",
        "managed-file",
        "node-unreachable",
        "namespaces-synced",
        "no-delivery",
        "namespaces-permission",
        "admission-policy",
        "namespace-foreign-secret",
        "pod-without-reference",
        "registry",
        "registry-secret",
        "restarts-often",
        "kubelet-readmission",
        "report",
    ] {
        names.push(always);
    }
    assert!(names.len() > 20, "{names:?}");
    let rows = TABLES.iter().flat_map(|(_, rows)| rows.iter());
    let of_reasons: BTreeSet<&str> = rows.filter_map(Row::section).collect();
    // For nodes that can't report a reason, or report one of a newer release.
    let of_phases = ["node-failed", "node-unreadable", "node-unreachable"];
    let of_reasons = &of_reasons | &BTreeSet::from(of_phases);
    for name in names {
        assert!(
            guide.contains(&format!("\n## {name}\n")),
            "no section `{name}`"
        );
    }
    for heading in guide.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(
            source.contains(&format!("\"{heading}\"")) || of_reasons.contains(heading),
            "a section for nothing: `{heading}`"
        );
    }
}
