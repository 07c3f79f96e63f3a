//! Tables of the printed status, from fixed objects.

use globalps_core::api::{
    GlobalPullSecretSpec, ImagePullSecretsStatus, NodePullSecret, NodePullSecretSpec,
    NodePullSecretStatus, NodeWithoutSyncer, OperatorsStatus, SourceRef, SourceStatus,
};
use globalps_core::names;
use globalps_core::reasons::Reason;
use globalps_core::state::restore_meant;
use globalps_core::virtual_nodes::VirtualMark;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use jiff::SignedDuration;

use super::conditions::NAMESPACES;
use super::*;
use crate::cluster::facts::{Lost, NodeFacts, NodeFilter, SecretVersion, Store};
use crate::view::members::Verdict;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn now() -> Timestamp {
    at("2026-01-01T00:10:00Z")
}

fn condition(type_: &str, status: &str, message: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: "Reason".to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(at("2026-01-01T00:00:00Z")),
        observed_generation: None,
    }
}

/// A cluster at revision 3 whose controller has taken up version 7 of the additional Secret.
fn facts(conditions: Vec<Condition>) -> Facts {
    let mut gps = GlobalPullSecret::new(names::GLOBAL_SECRET, GlobalPullSecretSpec::default());
    gps.metadata.generation = Some(2);
    gps.status = Some(GlobalPullSecretStatus {
        observed_generation: 2,
        observed_additional: "7".to_owned(),
        revision: 3,
        conditions,
        ..GlobalPullSecretStatus::default()
    });
    let mut facts = Facts {
        installed: true,
        nodes: Some(Store::default()),
        additional_secret: Some(Store::default()),
        global_secret: Some(Store::default()),
        ..Facts::default()
    };
    facts.global.insert(names::GLOBAL_SECRET, gps);
    set_additional(&mut facts, Some("7"));
    facts
        .global_secret
        .get_or_insert_default()
        .insert(names::GLOBAL_SECRET, seen("9"));
    facts
}

fn seen(version: &str) -> SecretVersion {
    SecretVersion {
        version: version.to_owned(),
        ..SecretVersion::default()
    }
}

fn set_additional(facts: &mut Facts, version: Option<&str>) {
    let mut store = Store::default();
    if let Some(version) = version {
        store.insert(names::ADDITIONAL_SECRET, seen(version));
    }
    facts.additional_secret = Some(store);
}

fn report(facts: &mut Facts, change: impl FnOnce(&mut GlobalPullSecretStatus)) {
    let mut gps = facts.gps().cloned().expect("a GlobalPullSecret");
    change(gps.status.get_or_insert_default());
    facts.global.insert(names::GLOBAL_SECRET, gps);
}

/// Granted that revision (0: none), observed or not, and the phase and revision that it reported.
fn node_secret(granted: i64, observed: bool, phase: Phase, revision: i64) -> NodePullSecret {
    let mut object = NodePullSecret::new(
        "node",
        NodePullSecretSpec {
            revision: granted,
            restore: false,
            ..NodePullSecretSpec::default()
        },
    );
    object.metadata.generation = Some(5);
    object.status = Some(NodePullSecretStatus {
        observed_generation: if observed { 5 } else { 4 },
        revision,
        phase,
        reason: "Why".to_owned(),
        message: "in words".to_owned(),
        delivery: "ConfigFile".to_owned(),
        last_transition_time: Some(Time(at("2026-01-01T00:05:00.25Z"))),
        ..NodePullSecretStatus::default()
    });
    object
}

fn ready() -> Facts {
    let mut facts = facts(vec![condition(condition::READY, "True", "")]);
    facts
        .node_secrets
        .insert("node-1", node_secret(3, true, Phase::Synced, 3));
    facts
}

#[test]
fn a_node_that_was_named_and_is_not_there_is_not_ready() {
    let filter = |names: &[&str], selector: Option<&str>| NodeFilter {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        selector: selector.map(str::to_owned),
    };
    for (filter, missing) in [
        (filter(&[], None), None),
        (filter(&["node-1"], None), None),
        (filter(&["node-1", "new"], None), Some("no node `new`")),
        (filter(&["new"], None), Some("no node `new`")),
        (filter(&[], Some("a=b")), Some("no node with such labels")),
    ] {
        let mut facts = ready();
        facts.filter = filter;
        let status = Status::of(&facts, now());
        assert_eq!(status.ready, missing.is_none(), "{:?}", facts.filter);
        let expected = if missing.is_none() {
            Verdict::Done
        } else {
            Verdict::Going
        };
        assert_eq!(verdict(&facts, NodesGoal::Synced, &status), expected);
        let advice = advice(&facts, &status).map(|(message, _)| message);
        let is_named = advice.is_some_and(|it| missing.is_some_and(|missing| it.contains(missing)));
        assert_eq!(is_named, missing.is_some(), "{:?}", facts.filter);
    }
}

#[test]
fn nobody_is_sent_back_where_another_pull_secret_is_the_cause() {
    for was_additional_rolled_out in [false, true] {
        let mut facts = ready();
        let mut halted = condition(condition::DEGRADED, "True", "in words");
        halted.reason = "RolloutHalted".to_owned();
        report(&mut facts, |status| status.conditions = vec![halted]);
        let failed = node_secret(3, true, Phase::RolledBack, 2);
        facts.node_secrets.insert("node-1", failed);
        let global = SecretVersion {
            was_additional_rolled_out,
            ..seen("9")
        };
        let store = facts.global_secret.get_or_insert_default();
        store.insert(names::GLOBAL_SECRET, global);
        let status = Status::of(&facts, now());
        let Verdict::Stuck { hint, .. } = verdict(&facts, NodesGoal::Synced, &status) else {
            unreachable!("it is halted")
        };
        assert_eq!(hint.contains("undo"), !was_additional_rolled_out, "{hint}");
    }
}

#[test]
fn a_node_that_is_lost_unresponsive_or_excluded_says_so() {
    let seconds_ago = |seconds| now() - SignedDuration::from_secs(seconds);
    let is = |excluded, not_ready| NodeFacts {
        excluded,
        virtual_by: None,
        not_ready,
    };
    let synced = || node_secret(3, true, Phase::Synced, 3);
    let assigned = |seconds| {
        let mut object = node_secret(3, false, Phase::Synced, 2);
        object.spec.assigned_at = Some(Time(seconds_ago(seconds)));
        object
    };
    #[rustfmt::skip]
    let cases = [
        ("ready", synced(), is(false, None), Phase::Synced),
        ("its kubelet just started", synced(), is(false, Some((seconds_ago(5), Lost::No))), Phase::Synced),
        ("not ready for long", synced(), is(false, Some((seconds_ago(90), Lost::No))), Phase::Unreachable),
        ("no heartbeat", synced(), is(false, Some((seconds_ago(1), Lost::Yes))), Phase::Unreachable),
        ("excluded", synced(), is(true, None), Phase::Excluded),
        ("assigned a minute ago", assigned(60), is(false, None), Phase::Syncing),
        ("its syncer has not responded in time", assigned(121), is(false, None), Phase::Unreachable),
    ];
    for (case, object, node, expected) in cases {
        let mut facts = facts(Vec::new());
        facts.node_secrets.insert("n", object);
        facts.nodes.get_or_insert_default().insert("n", node);
        let status = Status::of(&facts, now());
        assert_eq!(status.nodes[0].phase, expected, "{case}");
        let shown = status.nodes[0].reason.as_str();
        assert_eq!(shown == "Why", expected == Phase::Synced, "{case}: {shown}");
        let message = match (&expected, node.not_ready) {
            (Phase::Synced, _) => "in words",
            (Phase::Unreachable, Some(_)) => "the node is not Ready",
            (Phase::Unreachable, None) => {
                "its syncer has not responded to its assignment for 2 minutes"
            }
            _ => "",
        };
        assert_eq!(status.nodes[0].message, message, "{case}");
    }
}

#[test]
fn the_json_is_what_scripts_rely_on() {
    let json = serde_json::to_value(Status::of(&ready(), now())).expect("JSON");
    assert_eq!(
        json,
        serde_json::json!({
            "ready": true, "revision": 3, "paused": false,
            "counts": {"total": 1, "synced": 1, "progressing": 0, "failed": 0, "unreachable": 0, "unsupported": 0},
            "nodes": [{
                "name": "node-1", "phase": "Synced", "revision": 3, "reason": "Why", "message": "in words",
                "since": "2026-01-01T00:05:00Z", "delivery": "ConfigFile"
            }],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Reason", "message": "",
                "since": "2026-01-01T00:00:00Z"
            }],
            "deliveries": [{"kind": "Nodes", "total": 1, "synced": 1, "failed": 0}]
        })
    );
}

#[test]
fn without_nodes_the_controller_says_if_done_namespaces_count() {
    for (ready, synced, expected) in [("True", 2, true), ("False", 1, false)] {
        let mut facts = facts(vec![
            condition(condition::READY, ready, "in words"),
            condition(
                condition::NAMESPACES_SYNCED,
                ready,
                "1 of 2 namespaces have it",
            ),
        ]);
        let mut gps = facts.gps().cloned().expect("a GlobalPullSecret");
        gps.spec.kubelet.delivery = DeliveryType::None;
        gps.spec.image_pull_secrets.enabled = true;
        facts.global.insert(names::GLOBAL_SECRET, gps);
        // It was restored, and its NodePullSecret goes.
        facts
            .node_secrets
            .insert("node-1", node_secret(0, true, Phase::Restored, 0));
        report(&mut facts, |status| {
            status.image_pull_secrets = Some(ImagePullSecretsStatus {
                secret_name: "s".to_owned(),
                attach: "Admission".to_owned(),
                total: 2,
                synced,
                ..ImagePullSecretsStatus::default()
            });
        });
        let status = Status::of(&facts, now());
        assert_eq!(status.ready, expected);
        let done = verdict(&facts, NodesGoal::Synced, &status) == Verdict::Done;
        assert_eq!(done, expected);
        let json = serde_json::to_value(&status).expect("JSON");
        assert_eq!(
            json["deliveries"],
            serde_json::json!([{"kind": "Namespaces", "total": 2, "synced": synced, "failed": 0}])
        );
        assert_eq!(json["imagePullSecrets"]["secretName"], "s");
        let advice = advice(&facts, &status);
        let told = advice.map(|(message, hint)| (message.contains("namespaces have it"), hint));
        assert_eq!(told, (!expected).then_some((true, NAMESPACES)));
    }
}

#[test]
fn operators_are_counted_once_they_are_listed() {
    for (listed, expected) in [
        ("Unknown", None),
        ("False", Some(("Operators    1 of 3 synced, 1 failed", 2))),
    ] {
        let mut facts = facts(vec![condition(condition::OPERATORS_SYNCED, listed, "why")]);
        let mut gps = facts.gps().cloned().expect("a GlobalPullSecret");
        gps.spec.operators.enabled = true;
        facts.global.insert(names::GLOBAL_SECRET, gps);
        report(&mut facts, |status| {
            status.operators = Some(OperatorsStatus {
                total: 3,
                synced: 1,
                failed: 1,
                ..OperatorsStatus::default()
            });
        });
        let status = Status::of(&facts, now());
        let line = status.operators.as_ref().map(OperatorsRow::line);
        let found = line.as_deref().map(|line| (line, status.deliveries.len()));
        assert_eq!(found, expected);
        let json = serde_json::to_value(&status).expect("JSON");
        let counts = serde_json::json!({"kind": "Operators", "total": 3, "synced": 1, "failed": 1});
        assert_eq!(json["deliveries"].get(1), expected.map(|_| &counts));
        assert_eq!(json["operators"]["failed"].as_u64(), expected.map(|_| 1));
        let advice = advice(&facts, &status).map(|(message, _)| message);
        assert_eq!(advice.as_deref() == Some("why"), expected.is_some());
    }
}

#[test]
fn a_kept_pull_secret_is_named_while_nothing_is_delivered() {
    let mut facts = facts(Vec::new());
    set_additional(&mut facts, None);
    report(&mut facts, |status| {
        status.observed_additional = String::new();
        status.image_pull_secrets = Some(ImagePullSecretsStatus {
            secret_name: "s".to_owned(),
            failures: vec![globalps_core::api::NamespaceFailure {
                namespace: "a".to_owned(),
                reason: "Rejected".to_owned(),
                message: "why".to_owned(),
            }],
            ..ImagePullSecretsStatus::default()
        });
    });
    let status = Status::of(&facts, now());
    let told = advice(&facts, &status).unwrap_or_default();
    assert!(told.0.ends_with("namespace `a`: why"), "{told:?}");
    assert_eq!(told.1, NAMESPACES);
}

#[test]
fn further_sources_are_shown_with_their_scope() {
    let mut facts = ready();
    report(&mut facts, |status| {
        status.sources = vec![SourceStatus {
            name: "team-a".to_owned(),
            valid: true,
            message: "why".to_owned(),
            scope: Some("team-a".to_owned()),
            delivery: "NotDeliverable".to_owned(),
            ..SourceStatus::default()
        }];
    });
    let json = serde_json::to_value(Status::of(&facts, now())).expect("JSON");
    assert_eq!(
        json["sources"],
        serde_json::json!([{
            "name": "team-a", "valid": true, "scope": "team-a", "delivery": "NotDeliverable",
            "message": "why"
        }])
    );
}

#[test]
fn nobody_waits_for_unsupported_nodes() {
    let mark = VirtualMark::Label("type", "kwok");
    let is_virtual = NodeFacts {
        virtual_by: Some(mark),
        ..NodeFacts::default()
    };
    let excluded = NodeFacts {
        excluded: true,
        ..is_virtual
    };
    let listed = |phase| {
        Some(NodeWithoutSyncer {
            name: "n".to_owned(),
            phase,
            reason: Reason::NoSyncer.into(),
            message: "ErrImagePull".to_owned(),
        })
    };
    let nothing = || {
        let mut object = node_secret(0, true, Phase::Pending, 0);
        object.status.as_mut().expect("one").restored = true;
        Some(object)
    };
    let some = || Some(node_secret(2, true, Phase::Synced, 2));
    let here = Some(NodeFacts::default());
    let by_label = "VirtualNode it is virtual, by its label `type=kwok`";
    #[rustfmt::skip]
    let cases = [
        ("virtual", None, Some(is_virtual), None, Some(("Unsupported", by_label)), true),
        ("with an object", nothing(), Some(is_virtual), None, Some(("Unsupported", by_label)), true),
        ("with content", some(), Some(is_virtual), None, Some(("Excluded", " ")), true),
        ("excluded, too", None, Some(excluded), None, Some(("Excluded", " ")), true),
        ("listed", nothing(), here, listed(Phase::Unsupported), Some(("Unsupported", "NoSyncer ErrImagePull")), true),
        (
            "listed without an object",
            None,
            here,
            listed(Phase::Unsupported),
            Some(("Unsupported", "NoSyncer ErrImagePull")),
            true,
        ),
        ("lagging", some(), here, listed(Phase::Unreachable), Some(("Unreachable", "NoSyncer ErrImagePull")), false),
        ("not listed", nothing(), here, None, Some(("Pending", "Why in words")), false),
        ("its Node is gone", None, None, listed(Phase::Unsupported), None, true),
    ];
    for (case, object, node, listed, expected, is_ready) in cases {
        let mut facts = ready();
        let nodes = facts.nodes.get_or_insert_default();
        if let Some(node) = node {
            nodes.insert("n", node);
        }
        if let Some(object) = object {
            facts.node_secrets.insert("n", object);
        }
        report(&mut facts, |status| {
            status.nodes_without_syncer = listed.into_iter().collect();
        });
        let status = Status::of(&facts, now());
        let row = status.nodes.iter().find(|row| row.name == "n");
        let found = row.map(|row| {
            let why = format!("{} {}", row.reason, row.message);
            (row.phase.to_string(), why)
        });
        let expected = expected.map(|(phase, why)| (phase.to_owned(), why.to_owned()));
        assert_eq!(found, expected, "{case}");
        assert_eq!(status.ready, is_ready, "{case}");
        let verdict = verdict(&facts, NodesGoal::Synced, &status);
        assert_eq!(verdict == Verdict::Done, is_ready, "{case}: a wait ends");
        let is_unsupported = row.is_some_and(|row| row.phase == Phase::Unsupported);
        assert_eq!(
            status.counts.unsupported,
            u32::from(is_unsupported),
            "{case}"
        );
    }
}

#[test]
fn more_nodes_without_syncers_than_listed_end_a_wait_too() {
    for (listed, is_ready) in [(99, false), (100, true)] {
        let mut facts = ready();
        let mut silent = node_secret(0, false, Phase::Pending, 0);
        silent.status = None;
        facts.node_secrets.insert("n", silent);
        report(&mut facts, |status| {
            let of = |number| NodeWithoutSyncer {
                name: format!("m{number}"),
                phase: Phase::Unsupported,
                reason: Reason::NoSyncer.into(),
                message: String::new(),
            };
            status.nodes_without_syncer = (0..listed).map(of).collect();
        });
        assert_eq!(Status::of(&facts, now()).ready, is_ready, "{listed}");
    }
}

#[test]
fn counts_are_those_of_the_rows() {
    let mut facts = facts(Vec::new());
    for (name, phase) in [
        ("a", Phase::Synced),
        ("b", Phase::Syncing),
        ("c", Phase::RolledBack),
        ("d", Phase::Failed),
        ("e", Phase::ForeignOwner),
        ("f", Phase::Other("Dreaming".into())),
    ] {
        facts
            .node_secrets
            .insert(name, node_secret(3, true, phase, 3));
    }
    facts.nodes.get_or_insert_default().insert(
        "out",
        NodeFacts {
            excluded: true,
            ..NodeFacts::default()
        },
    );
    let status = Status::of(&facts, now());
    let expected = Counts {
        total: 6,
        synced: 1,
        progressing: 2,
        failed: 3,
        unreachable: 0,
        unsupported: 0,
    };
    assert_eq!(status.counts, expected);
    assert_eq!(
        status.nodes.last().map(|row| &row.phase),
        Some(&Phase::Excluded)
    );
    assert_eq!(status.lagging().count(), 5);
}

type Change = fn(&mut Facts);

/// `hint`: the command that it names, as the plugin's own words.
fn stuck(reason: &str, hint: &'static str) -> Verdict {
    Verdict::Stuck {
        reason: reason.to_owned(),
        hint,
    }
}

#[test]
fn a_wait_ends_when_the_current_secret_is_or_never_will_be_out() {
    let table: [(&str, Change, Verdict); 10] = [
        ("everywhere", |_| {}, Verdict::Done),
        (
            "the controller has not seen the new Secret",
            |facts| set_additional(facts, Some("8")),
            Verdict::Going,
        ),
        (
            "nor the new spec",
            |facts| report(facts, |status| status.observed_generation = 1),
            Verdict::Going,
        ),
        (
            "a Secret that this user may not see counts as the one that the controller saw",
            |facts| facts.additional_secret = None,
            Verdict::Done,
        ),
        (
            "a node lags",
            |facts| {
                facts
                    .node_secrets
                    .insert("node-2", node_secret(2, true, Phase::Synced, 2));
            },
            Verdict::Going,
        ),
        (
            "rejected",
            |facts| {
                report(facts, |status| {
                    status.conditions =
                        vec![condition(condition::ADDITIONAL_VALID, "False", "`r`: bad")];
                });
            },
            stuck(
                "the controller rejects the additional pull secret: `r`: bad",
                "undo",
            ),
        ),
        (
            "halted",
            |facts| {
                report(facts, |status| {
                    status.conditions =
                        vec![condition(condition::DEGRADED, "True", "node-1 failed")];
                });
            },
            stuck("the rollout stopped: node-1 failed", "check"),
        ),
        (
            "halted because of a node",
            |facts| {
                report(facts, |status| {
                    let mut halted = condition(condition::DEGRADED, "True", "node-1 failed");
                    halted.reason = "RolloutHalted".to_owned();
                    status.conditions = vec![halted];
                });
                let failed = node_secret(2, true, Phase::RolledBack, 1);
                facts.node_secrets.insert("node-1", failed);
            },
            stuck("the rollout stopped: node-1 failed", "retry"),
        ),
        (
            "halted before this change",
            |facts| {
                set_additional(facts, Some("8"));
                report(facts, |status| {
                    status.conditions = vec![condition(condition::DEGRADED, "True", "old")];
                });
            },
            Verdict::Going,
        ),
        (
            "deleted meanwhile",
            |facts| set_additional(facts, None),
            stuck(super::verdict::REMOVED.0, "status --watch"),
        ),
    ];
    for (sentence, change, expected) in table {
        let mut facts = ready();
        change(&mut facts);
        let status = Status::of(&facts, now());
        let found = verdict(&facts, NodesGoal::Synced, &status);
        match (&found, &expected) {
            (
                Verdict::Stuck { reason, hint },
                Verdict::Stuck {
                    reason: expected,
                    hint: command,
                },
            ) => {
                assert_eq!(reason, expected, "{sentence}");
                let command = format!("`kubectl globalps {command}");
                assert!(hint.contains(&command), "{sentence}: {hint}");
            }
            _ => assert_eq!(found, expected, "{sentence}"),
        }
        assert_eq!(status.ready, expected == Verdict::Done, "{sentence}");
    }
}

#[test]
fn a_wait_without_any_secret_says_how_to_add_it() {
    let mut facts = ready();
    set_additional(&mut facts, None);
    facts.node_secrets = Store::default();
    facts.global_secret = Some(Store::default());
    let found = verdict(&facts, NodesGoal::Synced, &Status::of(&facts, now()));
    let reason = "there is no additional pull secret";
    assert!(
        matches!(&found, Verdict::Stuck { reason: found, hint } if found == reason && hint.contains("globalps add")),
        "{found:?}"
    );
}

#[test]
fn a_wait_for_the_restore_ends_when_nothing_is_left() {
    let mut facts = ready();
    set_additional(&mut facts, None);
    let look = |facts: &Facts| {
        verdict(
            facts,
            NodesGoal::Restored {
                skip_unreachable: false,
            },
            &Status::of(facts, now()),
        )
    };
    assert_eq!(look(&facts), Verdict::Going);
    report(&mut facts, |status| {
        status.observed_additional = String::new();
        status.conditions = vec![condition(condition::DEGRADED, "True", "node-1 failed")];
    });
    assert!(matches!(
        look(&facts),
        Verdict::Stuck { reason, .. } if reason == "the restoration stopped: node-1 failed"
    ));
    let held = format!("{SOURCES_REMOVED}`a`");
    report(&mut facts, |status| {
        status.conditions = vec![condition(condition::DEGRADED, "True", &held)];
    });
    assert!(matches!(look(&facts), Verdict::Stuck { .. }));
    let mut gps = facts.gps().cloned().expect("a GlobalPullSecret");
    gps.metadata.uid = Some("gps-1".to_owned());
    let meant = restore_meant("gps-1", gps.metadata.generation.unwrap_or_default());
    let annotations = [(names::RESTORE_ANNOTATION.to_owned(), meant)];
    gps.metadata.annotations = Some(annotations.into());
    facts.global.insert(names::GLOBAL_SECRET, gps);
    assert_eq!(
        look(&facts),
        Verdict::Going,
        "the controller has not seen yet that it is meant"
    );
    facts.node_secrets = Store::default();
    facts.global_secret = Some(Store::default());
    assert_eq!(look(&facts), Verdict::Done);
    set_additional(&mut facts, Some("11"));
    assert!(matches!(look(&facts), Verdict::Stuck { .. }));
}

/// Each is named at once: no node changes before a person acts.
#[test]
fn a_wait_ends_where_openshifts_pull_secret_stays_as_it_is() {
    let skip_unreachable = false;
    let restored = NodesGoal::Restored { skip_unreachable };
    for (reason, expected) in [
        (Reason::AnotherWriter, Some("why it stays")),
        (Reason::PlatformKey, Some("why it stays")),
        (Reason::Forbidden, Some("why it stays")),
        (Reason::NotFound, Some("why it stays")),
        (Reason::Unreadable, Some("why it stays")),
        (Reason::Paused, Some(PAUSED.0)),
        (Reason::WriteFailed, None),
        (Reason::RollingOut, None),
    ] {
        for goal in [NodesGoal::Synced, restored] {
            let mut why = condition(condition::PULL_SECRET_SYNCED, "False", "why it stays");
            reason.as_str().clone_into(&mut why.reason);
            let mut facts = ready();
            report(&mut facts, |status| {
                status.conditions = vec![condition(condition::READY, "False", ""), why];
            });
            let late = node_secret(3, true, Phase::Syncing, 2);
            facts.node_secrets.insert("node-1", late);
            let look = |facts: &Facts| verdict(facts, goal, &Status::of(facts, now()));
            if goal == restored {
                set_additional(&mut facts, None);
                assert_eq!(look(&facts), Verdict::Going, "of the change before");
                report(&mut facts, |status| {
                    status.observed_additional = String::new();
                });
            }
            match (look(&facts), expected) {
                (Verdict::Stuck { reason: found, .. }, Some(expected)) => {
                    assert_eq!(found, expected, "{reason:?} {goal:?}");
                }
                (found, expected) => {
                    let is_going = found == Verdict::Going && expected.is_none();
                    assert!(is_going, "{reason:?} {goal:?}: {found:?}");
                }
            }
        }
    }
}

/// A cluster where one more Secret gives credentials, and another one can't.
fn with_sources(mut facts: Facts) -> Facts {
    let mut gps = facts.gps().cloned().expect("a GlobalPullSecret");
    gps.spec.sources = ["team-a", "team-b"]
        .map(|name| SourceRef {
            name: name.to_owned(),
            scope: None,
        })
        .into();
    let source = |name: &str, valid, total| SourceStatus {
        name: name.to_owned(),
        valid,
        total,
        ..SourceStatus::default()
    };
    gps.status.get_or_insert_default().sources =
        vec![source("team-a", true, 1), source("team-b", false, 0)];
    facts.global.insert(names::GLOBAL_SECRET, gps);
    facts
}

#[test]
fn sources_are_rolled_out_without_the_additional_secret() {
    let mut facts = with_sources(ready());
    report(&mut facts, |status| {
        let mut degraded = condition(
            condition::DEGRADED,
            "True",
            "`team-b`: there is no such Secret",
        );
        degraded.reason = "SourceAbsent".to_owned();
        status.conditions.push(degraded);
    });
    // Ready, and the results of waits for the rollout and for the restore.
    let look = |facts: &Facts| {
        let status = Status::of(facts, now());
        let word = |goal| match verdict(facts, goal, &status) {
            Verdict::Done => "done",
            Verdict::Going => "going",
            Verdict::Stuck { .. } => "stuck",
        };
        (
            status.ready,
            word(NodesGoal::Synced),
            word(NodesGoal::Restored {
                skip_unreachable: false,
            }),
        )
    };
    let holds = |facts: &Facts, sentence: &str, expected: (bool, &str, &str)| {
        assert_eq!(look(facts), expected, "{sentence}");
    };
    let bad_source = "a bad source holds nobody up, but the Secret is back";
    holds(&facts, bad_source, (true, "done", "stuck"));
    set_additional(&mut facts, None);
    let unseen = "the controller has not seen it";
    holds(&facts, unseen, (false, "going", "going"));
    let message = advice(&facts, &Status::of(&facts, now())).map(|(message, _)| message);
    assert_eq!(
        message.as_deref(),
        Some("the controller has not processed the additional pull secret yet")
    );
    report(&mut facts, |status| {
        status.observed_additional = String::new();
    });
    holds(&facts, "what is left is everywhere", (true, "done", "done"));
    facts
        .node_secrets
        .insert("node-2", node_secret(2, true, Phase::Synced, 2));
    holds(&facts, "a node lags", (false, "going", "going"));
    facts.additional_secret = None;
    holds(&facts, "who may not see it", (false, "going", "going"));
    report(&mut facts, |status| {
        status.sources.retain(|source| !source.valid);
    });
    holds(&facts, "none gives anything", (false, "stuck", "going"));
    let mut unreadable = facts.clone();
    report(&mut unreadable, |status| {
        status.conditions = [
            (condition::PROGRESSING, "False"),
            (condition::DEGRADED, "True"),
        ]
        .map(|(type_, value)| Condition {
            reason: "Held".to_owned(),
            ..condition(type_, value, "no pull secret is valid")
        })
        .into();
    });
    holds(&unreadable, "nothing changes", (false, "stuck", "stuck"));
    unreadable.node_secrets = Store::default();
    let message = advice(&unreadable, &Status::of(&unreadable, now())).map(|(message, _)| message);
    assert_eq!(
        message.as_deref(),
        Some("nothing changes: no pull secret is valid"),
        "the nodes are not restored"
    );
    facts.node_secrets = Store::default();
    facts.global_secret = Some(Store::default());
    holds(&facts, "nothing is left", (false, "stuck", "done"));
}

#[test]
fn without_a_global_pull_secret_what_is_in_force_is_held() {
    let mut facts = ready();
    facts.global = Store::default();
    for additional in [Some("8"), None] {
        set_additional(&mut facts, additional);
        let status = Status::of(&facts, now());
        let found = advice(&facts, &status).map(|(message, _)| message);
        assert_eq!(found.as_deref(), Some(NO_CONFIGURATION.0), "{additional:?}");
        let found = verdict(&facts, NodesGoal::Synced, &status);
        assert_eq!(found, stuck(NO_CONFIGURATION.0, NO_CONFIGURATION.1));
        assert!(
            NO_CONFIGURATION
                .1
                .contains("install --restore-configuration")
        );
    }
    facts
        .node_secrets
        .insert("node-2", node_secret(2, true, Phase::Synced, 2));
    let status = Status::of(&facts, now());
    let phases: Vec<&Phase> = status.nodes.iter().map(|row| &row.phase).collect();
    assert_eq!(
        (status.revision, phases),
        (3, vec![&Phase::Synced, &Phase::Pending]),
        "the newest revision that nodes are assigned"
    );
    let goal = NodesGoal::Restored {
        skip_unreachable: true,
    };
    let found = verdict(&facts, goal, &Status::of(&facts, now()));
    assert!(matches!(found, Verdict::Stuck { .. }), "{found:?}");
    facts.node_secrets = Store::default();
    facts.global_secret = Some(Store::default());
    let found = verdict(&facts, goal, &Status::of(&facts, now()));
    assert_eq!(found, Verdict::Done, "nothing is in force");
}

#[test]
fn while_a_removal_is_held_no_pull_secret_is_being_removed() {
    let lines = |held: &str| {
        let progressing = condition(condition::PROGRESSING, "False", held);
        let mut facts = facts(vec![progressing]);
        report(&mut facts, |status| {
            status.image_pull_secrets = Some(ImagePullSecretsStatus {
                secret_name: "s".to_owned(),
                total: 2,
                synced: 2,
                ..ImagePullSecretsStatus::default()
            });
            status.operators = Some(OperatorsStatus {
                total: 1,
                synced: 1,
                ..OperatorsStatus::default()
            });
        });
        let status = Status::of(&facts, now());
        [
            status.namespaces.expect("namespaces").line(),
            status.operators.expect("operators").line(),
        ]
    };
    assert_eq!(
        lines(&format!("{SOURCES_REMOVED}`a`")),
        ["Namespaces   2 of 2 synced", "Operators    1 of 1 synced"],
        "the configuration in force is the one before"
    );
    assert_eq!(
        lines(""),
        [
            "Namespaces   their pull secrets are being removed",
            "Operators    their pull secrets are being removed"
        ]
    );
}

#[test]
fn expiring_or_rejected_credentials_are_named_in_any_rollout() {
    for (type_, value, expected) in [
        (condition::CREDENTIALS_EXPIRING, "True", true),
        (condition::CREDENTIALS_EXPIRING, "False", false),
        (condition::CREDENTIALS_REJECTED, "True", true),
        (condition::CREDENTIALS_REJECTED, "False", false),
        (condition::CREDENTIALS_REJECTED, "Unknown", false),
    ] {
        let found = condition(type_, value, "in words");
        let mut facts = ready();
        report(&mut facts, |status| status.conditions.push(found.clone()));
        let status = Status::of(&facts, now());
        assert!(status.ready, "it doesn't stop a rollout");
        assert_eq!(advice(&facts, &status), None);
        let named: Vec<_> = of_credentials(&status).collect();
        let expected = expected.then(|| ("in words".to_owned(), renewal("in words")));
        assert_eq!(named, Vec::from_iter(expected), "{type_} {value}");
    }
}

#[test]
fn what_slows_a_rollout_is_named_and_stops_a_wait_only_at_last() {
    let reason = |type_: &str, value: &str, reason: &str| Condition {
        reason: reason.to_owned(),
        ..condition(type_, value, "in words")
    };
    let progressing = |word: &str| reason(condition::PROGRESSING, "True", word);
    let blocked = || reason(condition::DEGRADED, "True", "NodesBlocked");
    #[rustfmt::skip]
    let cases = [
        (vec![reason(condition::SYNCERS_HEALTHY, "True", "AllRunning")], "the rollout is in progress", false),
        (vec![reason(condition::SYNCERS_HEALTHY, "False", "NotRunning")], "in words", false),
        (vec![reason(condition::SYNCERS_HEALTHY, "False", "RollingOut")], "the rollout is in progress", false),
        (vec![progressing("WaitingForCanary")], "the rollout waits for a canary: in words", false),
        (vec![reason(condition::PROGRESSING, "False", "NoCanary")], "the rollout waits for a canary: in words", true),
        (vec![progressing("RollingOut"), blocked()], "the rollout continues without blocked nodes: in words", false),
        (
            vec![
                reason(condition::PROGRESSING, "False", "Complete"),
                blocked(),
            ],
            "only blocked nodes are left: in words",
            true,
        ),
        (
            vec![reason(condition::PROGRESSING, "False", "Paused"), blocked()],
            "the rollout continues without blocked nodes: in words",
            false,
        ),
        (vec![reason(condition::DEGRADED, "True", "Held")], "nothing changes: in words", true),
        (vec![reason(condition::DEGRADED, "True", "ConfigFileDiffers")], "the rollout is in progress", false),
    ];
    for (conditions, expected, stuck) in cases {
        let mut facts = facts(conditions);
        let object = node_secret(2, true, Phase::Synced, 2);
        facts.node_secrets.insert("node-1", object);
        let status = Status::of(&facts, now());
        let found = advice(&facts, &status).map(|(message, _)| message);
        assert_eq!(found.as_deref(), Some(expected));
        let verdict = verdict(&facts, NodesGoal::Synced, &status);
        assert_eq!(
            matches!(verdict, Verdict::Stuck { .. }),
            stuck,
            "{expected}"
        );
    }
}

#[test]
fn a_wait_ends_when_only_updated_nodes_are_left() {
    let progressing = |value, reason: &str| Condition {
        reason: reason.to_owned(),
        ..condition(condition::PROGRESSING, value, "")
    };
    let complete = || progressing("False", "Complete");
    #[rustfmt::skip]
    let cases = [
        ("updated", Phase::SteppedAside, complete(), true),
        ("updated, and others change", Phase::SteppedAside, progressing("True", "RollingOut"), false),
        ("behind", Phase::Syncing, complete(), false),
    ];
    for (case, phase, progressing, is_over) in cases {
        let mut facts = facts(vec![progressing]);
        for (name, phase) in [("node-1", phase), ("node-2", Phase::Synced)] {
            facts
                .node_secrets
                .insert(name, node_secret(3, true, phase, 3));
        }
        let status = Status::of(&facts, now());
        assert!(!status.ready, "{case}: a node does not have it");
        let expected = if is_over {
            Verdict::Done
        } else {
            Verdict::Going
        };
        let verdict = verdict(&facts, NodesGoal::Synced, &status);
        assert_eq!(verdict, expected, "{case}");
        let (message, _) = advice(&facts, &status).unwrap();
        let is_named = message == "only nodes are left that are being updated: node-1";
        assert_eq!(is_named, case != "behind", "{case}");
        assert_eq!(
            (status.counts.failed, status.counts.progressing),
            (0, u32::from(case == "behind"))
        );
    }
}

/// The node sends no heartbeat.
fn lose(facts: &mut Facts, name: &str) {
    let node = NodeFacts {
        excluded: false,
        virtual_by: None,
        not_ready: Some((now(), Lost::Yes)),
    };
    facts.nodes.get_or_insert_default().insert(name, node);
}

#[test]
fn a_cleanup_waiting_for_unreachable_nodes_names_them_and_flag() {
    let mut facts = ready();
    set_additional(&mut facts, None);
    report(&mut facts, |status| {
        status.observed_additional = String::new();
    });
    let mut restore = node_secret(3, true, Phase::Restored, 0);
    restore.spec.restore = true;
    facts.node_secrets.insert("node-2", restore);
    let found = |facts: &Facts| advice(facts, &Status::of(facts, now()));
    assert_eq!(found(&facts).map(|(_, hint)| hint), Some(FOLLOW));
    lose(&mut facts, "node-1");
    let (message, hint) = found(&facts).expect("node-1 is left");
    assert_eq!(
        message,
        "only unreachable nodes are left to restore: `node-1`"
    );
    assert!(hint.contains("--skip-unreachable"), "{hint}");
}

#[test]
fn a_paused_restoration_says_so_and_ends_an_idle_wait() {
    let paused = Some((PAUSED.0.to_owned(), PAUSED.1));
    for (phase, restore, is_paused, expected) in [
        (Phase::Synced, false, true, paused.clone()),
        (Phase::Failed, false, true, paused.clone()),
        (Phase::Synced, false, false, None),
        // Assigned before the pause.
        (Phase::Restoring, true, true, None),
        (Phase::Restored, true, true, None),
    ] {
        let mut facts = ready();
        set_additional(&mut facts, None);
        report(&mut facts, |status| {
            status.observed_additional = String::new();
        });
        let mut gps = facts.gps().cloned().expect("a GlobalPullSecret");
        gps.spec.rollout.paused = is_paused;
        facts.global.insert(names::GLOBAL_SECRET, gps);
        let mut restored = node_secret(3, true, Phase::Restored, 0);
        restored.spec.restore = true;
        facts.node_secrets.insert("node-2", restored);
        let mut object = node_secret(3, true, phase.clone(), 3);
        object.spec.restore = restore;
        facts.node_secrets.insert("node-1", object);
        let status = Status::of(&facts, now());
        for skip_unreachable in [false, true] {
            let found = verdict(&facts, NodesGoal::Restored { skip_unreachable }, &status);
            let expected = expected
                .as_ref()
                .map_or(Verdict::Going, |(reason, hint)| stuck(reason, hint));
            assert_eq!(found, expected, "{phase} {is_paused}");
        }
        // Of a wait for something else, too.
        let found = verdict(&facts, NodesGoal::Synced, &status);
        let is_paused = matches!(&found, Verdict::Stuck { reason, .. } if *reason == PAUSED.0);
        assert_eq!(is_paused, expected.is_some(), "{phase}: {found:?}");
        assert!(!format!("{found:?}").contains("globalps add"), "{found:?}");
        let advised = advice(&facts, &status).filter(|advice| Some(advice) == paused.as_ref());
        assert_eq!(advised, expected, "{phase} {is_paused}");
    }
}

#[test]
fn a_secret_that_is_being_deleted_is_absent() {
    let mut facts = facts(Vec::new());
    report(&mut facts, |status| {
        status.observed_additional = String::new();
    });
    facts.global_secret = Some(Store::default());
    let deleted = SecretVersion {
        waits_for: Some("is being deleted and waits for the finalizer `f`".to_owned()),
        ..seen("8")
    };
    let store = facts.additional_secret.get_or_insert_default();
    store.insert(names::ADDITIONAL_SECRET, deleted);
    let goal = NodesGoal::Restored {
        skip_unreachable: false,
    };
    let status = Status::of(&facts, now());
    assert_eq!(verdict(&facts, goal, &status), Verdict::Done);
    let (message, _) = advice(&facts, &status).expect("advice");
    assert!(message.contains("the finalizer `f`"), "{message}");
}

/// Conditions of a restoration: the reasons of Progressing and of Degraded.
fn restoring(progressing: &str, degraded: &str) -> Facts {
    let mut facts = facts(Vec::new());
    set_additional(&mut facts, None);
    report(&mut facts, |status| {
        status.observed_additional = String::new();
        let with = |type_, value, reason: &str| Condition {
            reason: reason.to_owned(),
            ..condition(type_, value, "node-1: in words")
        };
        status.conditions = vec![
            with(condition::READY, "False", "Restoring"),
            with(condition::PROGRESSING, "False", progressing),
            with(condition::DEGRADED, "True", degraded),
        ];
    });
    facts
}

#[test]
fn a_wait_for_the_restore_ends_with_the_nodes_that_are_left() {
    let all = "not restored: `node-1` (RolledBack, Why: in words); `node-2` (Failed, Why: in words); `node-4` (unreachable: the node is not Ready)";
    for (progressing, degraded, expected) in [
        ("Restoring", "NodesBlocked", None),
        ("Restoring", "NodesFailed", None),
        ("Restoring", "Unreadable", None),
        ("Complete", "NodesBlocked", Some(all)),
        ("Complete", "NodesFailed", Some(all)),
        ("Complete", "RolloutHalted", Some(all)),
        ("Complete", "Unreadable", Some(all)),
        (
            "Halted",
            "RolloutHalted",
            Some("the restoration stopped: node-1: in words"),
        ),
        (
            "Halted",
            "ReconcileFailed",
            Some("the restoration stopped: node-1: in words"),
        ),
    ] {
        let mut facts = restoring(progressing, degraded);
        for (name, phase) in [
            ("node-1", Phase::RolledBack),
            ("node-2", Phase::Failed),
            ("node-3", Phase::Restored),
            ("node-4", Phase::Synced),
        ] {
            let mut object = node_secret(3, true, phase, 3);
            object.spec.restore = name != "node-4";
            facts.node_secrets.insert(name, object);
        }
        lose(&mut facts, "node-4");
        let status = Status::of(&facts, now());
        let wait = |skip_unreachable| match verdict(
            &facts,
            NodesGoal::Restored { skip_unreachable },
            &status,
        ) {
            Verdict::Stuck { reason, hint } => Some((reason, hint)),
            Verdict::Going => None,
            Verdict::Done => unreachable!("nodes are left"),
        };
        let case = format!("{progressing} {degraded}");
        let found = wait(false);
        assert_eq!(
            found.as_ref().map(|(text, _)| text.as_str()),
            expected,
            "{case}"
        );
        if let Some((text, hint)) = found {
            assert_eq!(advice(&facts, &status), Some((text, hint)), "{case}");
        }
        let is_stopped = expected.is_some_and(|text| text != all);
        let skips = wait(true);
        assert_eq!(skips.is_some(), is_stopped, "{case}");
        let names: Vec<&str> = left(&facts, &status)
            .iter()
            .map(|row| row.name.as_str())
            .collect();
        let expected = if progressing == "Complete" {
            vec!["node-1", "node-2", "node-4"]
        } else {
            vec!["node-4"]
        };
        assert_eq!(names, expected, "{case}");
    }
}

#[test]
fn a_node_down_in_its_restoration_is_left_only_at_the_end() {
    for (progressing, degraded, phase, expected) in [
        ("Restoring", "NodesBlocked", Phase::Restoring, false),
        ("Complete", "NodesBlocked", Phase::Restoring, true),
        ("Halted", "RolloutHalted", Phase::Failed, false),
        ("Complete", "RolloutHalted", Phase::Failed, true),
        ("Halted", "RolloutHalted", Phase::Restored, false),
        ("Complete", "RolloutHalted", Phase::Restored, true),
        ("Complete", "NodesBlocked", Phase::Restored, false),
    ] {
        let mut facts = restoring(progressing, degraded);
        let mut object = node_secret(3, true, phase.clone(), 3);
        object.spec.restore = true;
        facts.node_secrets.insert("node-1", object);
        lose(&mut facts, "node-1");
        let status = Status::of(&facts, now());
        let found = !left(&facts, &status).is_empty();
        assert_eq!(found, expected, "{progressing} {degraded} {phase}");
    }
}

#[test]
fn an_unrestorable_deselected_node_delays_no_wait_for_others() {
    let mut facts = ready();
    report(&mut facts, |status| {
        let mut degraded = condition(condition::DEGRADED, "True", "in words");
        degraded.reason = "NodesNotRestored".to_owned();
        status.conditions.push(degraded);
    });
    let mut object = node_secret(2, true, Phase::RolledBack, 2);
    object.spec.restore = true;
    facts.node_secrets.insert("node-2", object);
    let status = Status::of(&facts, now());
    assert!(status.ready);
    assert_eq!(verdict(&facts, NodesGoal::Synced, &status), Verdict::Done);
    assert_eq!(status.counts.failed, 1, "it is shown");
}

#[test]
fn with_sources_left_a_wait_may_end_without_unreachable_nodes() {
    let mut facts = with_sources(ready());
    set_additional(&mut facts, None);
    report(&mut facts, |status| {
        status.observed_additional = String::new();
    });
    facts
        .node_secrets
        .insert("node-2", node_secret(2, true, Phase::Synced, 2));
    let wait = |facts: &Facts, skip_unreachable| {
        let status = Status::of(facts, now());
        verdict(facts, NodesGoal::Restored { skip_unreachable }, &status)
    };
    assert_eq!(wait(&facts, true), Verdict::Going, "node-2 can change");
    lose(&mut facts, "node-2");
    assert_eq!(wait(&facts, false), Verdict::Going);
    assert_eq!(wait(&facts, true), Verdict::Done);
}

#[test]
fn an_unready_status_shows_the_reason_and_a_hint() {
    let told = |facts: &Facts| {
        advice(facts, &Status::of(facts, now())).map(|(message, hint)| {
            assert!(!hint.is_empty());
            message
        })
    };
    assert_eq!(told(&ready()), None);
    assert_eq!(
        told(&Facts::default()).as_deref(),
        Some("globalps is not installed in this cluster")
    );
    let mut nothing = Facts {
        installed: true,
        ..Facts::default()
    };
    set_additional(&mut nothing, None);
    assert_eq!(
        told(&nothing).as_deref(),
        Some("there is no additional pull secret, so nothing is synced to the nodes")
    );
    set_additional(&mut nothing, Some("1"));
    assert_eq!(
        told(&nothing).as_deref(),
        Some("the controller has not processed the additional pull secret yet")
    );
    let mut lost = ready();
    lose(&mut lost, "node-1");
    assert_eq!(told(&lost).as_deref(), Some("1 node can't be reached"));
}

#[test]
fn a_failure_that_is_being_retried_stops_no_wait() {
    let failed = |retry: &str, asked: &str, seen: bool| {
        let mut object = node_secret(3, seen, Phase::RolledBack, 2);
        object.spec.retry = retry.to_owned();
        if !asked.is_empty() {
            object
                .annotations_mut()
                .insert(names::RETRY_ANNOTATION.to_owned(), asked.to_owned());
        }
        object
    };
    for (sentence, object, stuck) in [
        ("failed", failed("", "", true), true),
        ("asked to retry", failed("", "1", true), false),
        (
            "granted, not seen by the node",
            failed("1", "1", false),
            false,
        ),
        ("failed again", failed("1", "1", true), true),
        ("asked once more", failed("1", "2", true), false),
    ] {
        let mut halted = condition(condition::DEGRADED, "True", "node-1 failed");
        halted.reason = "RolloutHalted".to_owned();
        let mut facts = facts(vec![halted]);
        facts.node_secrets.insert("node-1", object);
        let status = Status::of(&facts, now());
        let found = verdict(&facts, NodesGoal::Synced, &status);
        assert_eq!(matches!(found, Verdict::Stuck { .. }), stuck, "{sentence}");
    }
}

#[test]
fn a_node_counts_by_its_phase() {
    let phases = Phase::ALL.into_iter().chain([Phase::Other("New".into())]);
    let row = |phase| Row {
        phase,
        ..Row::default()
    };
    let rows: Vec<Row> = phases.map(row).collect();
    assert_eq!(
        count(&rows),
        Counts {
            total: 12,
            synced: 1,
            progressing: 3,
            failed: 4,
            unreachable: 1,
            unsupported: 1,
        }
    );
}
