use std::sync::Arc;

use globalps_core::reasons::Reason;
use globalps_core::rollout::Revision;
use serde_json::{Value, json};

use super::super::installation::Installation;
use super::*;
use crate::content::source::Data;

const FLEET: &str = "ns/shared";
const NAMES: Names = Names {
    fleet: FLEET,
    cluster: "ns/m",
};
const MANAGER: &str = "globalps-hub-1";

fn content(text: &str) -> Arc<Data> {
    Arc::new(Data(Some(text.as_bytes().to_vec())))
}

fn desired(number: i64, text: &str, retry: &str) -> Desired {
    Desired::Revision(Release {
        revision: crate::content::secret::revision_of_test(number),
        content: content(text),
        install: None,
        retry: retry.to_owned(),
    })
}

/// The Secret with content `A` as the hub writes it, with these changes.
fn target(changes: &Value) -> TargetView {
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {
            "name": "additional-pull-secret", "uid": "u", "resourceVersion": "7",
            "annotations": {
                "globalps.io/fleet": FLEET, "globalps.io/cluster": NAMES.cluster,
                "globalps.io/revision": "1",
            },
            "managedFields": [owner(MANAGER)],
        },
        "data": {".dockerconfigjson": "QQ=="},
    });
    merge(&mut secret, changes);
    TargetView::new(
        &serde_json::from_value(secret).unwrap(),
        MANAGER,
        &Desired::Nothing,
    )
}

fn owner(manager: &str) -> Value {
    json!({"manager": manager, "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}}})
}

fn merge(into: &mut Value, changes: &Value) {
    for (key, value) in changes.as_object().into_iter().flatten() {
        if value.is_object() && into[key].is_object() {
            merge(&mut into[key], value);
        } else {
            into[key] = value.clone();
        }
    }
}

fn in_one_line(action: &Action) -> String {
    match action {
        Action::Keep => "keep".to_owned(),
        Action::Apply(release) => format!("apply {}", release.revision.number),
        Action::Delete(uid, version) => format!("delete {uid} {version}"),
        Action::Block((reason, _)) => format!("block {reason}"),
    }
}

#[test]
fn the_hub_writes_and_removes_only_its_own_secret() {
    let foreign = json!({"metadata": {
        "annotations": null, "managedFields": [owner("kubectl")],
    }});
    let of_two = json!({"metadata": {
        "annotations": null, "managedFields": [owner(MANAGER), owner("kubectl")],
    }});
    let of_both = [owner(MANAGER), owner("kubectl")];
    let retried = json!({"metadata": {"annotations": {"globalps.io/retry": "x"}}});
    let other_fleet = json!({"metadata": {"annotations": {"globalps.io/fleet": "ns/other"}}});
    let a = || desired(1, "A", "");
    let b = || desired(2, "B", "");
    for (case, target, desired, expected) in [
        ("no Secret", None, a(), "apply 1"),
        ("the desired Secret", Some(target(&json!({}))), a(), "keep"),
        ("another revision", Some(target(&json!({}))), b(), "apply 2"),
        (
            "the same content in another revision",
            Some(target(&json!({}))),
            desired(2, "A", ""),
            "apply 2",
        ),
        (
            "a retry",
            Some(target(&json!({}))),
            desired(1, "A", "1"),
            "apply 1",
        ),
        (
            "another client's retry",
            Some(target(&retried)),
            a(),
            "keep",
        ),
        (
            "another client's retry, and then the hub's",
            Some(target(&retried)),
            desired(1, "A", "1"),
            "apply 1",
        ),
        (
            "a user's Secret",
            Some(target(&foreign)),
            b(),
            "block Conflict",
        ),
        (
            "a user's Secret with the same content",
            Some(target(&foreign)),
            a(),
            "apply 1",
        ),
        (
            "a forced change by a user",
            Some(target(&of_two)),
            b(),
            "block Conflict",
        ),
        (
            "another fleet's Secret",
            Some(target(&other_fleet)),
            a(),
            "block Conflict",
        ),
        (
            "another type",
            Some(target(&json!({"type": "Opaque"}))),
            a(),
            "block WrongType",
        ),
        (
            "immutable",
            Some(target(&json!({"immutable": true}))),
            b(),
            "block Immutable",
        ),
        (
            "immutable, with the desired content",
            Some(target(&json!({"immutable": true}))),
            a(),
            "keep",
        ),
        (
            "nothing is desired",
            Some(target(&json!({}))),
            Desired::Nothing,
            "keep",
        ),
        (
            "removed",
            Some(target(&json!({}))),
            Desired::Removed,
            "delete u 7",
        ),
        (
            "removed, with keys of others",
            Some(target(&json!({"data": {"other": "QQ=="}}))),
            Desired::Removed,
            "block KeysOfOthers",
        ),
        ("removed already", None, Desired::Removed, "keep"),
        (
            "a user owns the Secret now",
            Some(target(&foreign)),
            Desired::Removed,
            "keep",
        ),
        (
            "a user forced other content",
            Some(target(
                &json!({"metadata": {"managedFields": [owner("kubectl")]}}),
            )),
            Desired::Removed,
            "keep",
        ),
        (
            "a user owns the same content too",
            Some(target(&json!({"metadata": {"managedFields": of_both}}))),
            Desired::Removed,
            "delete u 7",
        ),
        (
            "another fleet owns the Secret now",
            Some(target(&other_fleet)),
            Desired::Removed,
            "keep",
        ),
    ] {
        let found = action(target.as_ref(), &desired, NAMES, &exists("ns/other"));
        assert_eq!(in_one_line(&found), expected, "{case}");
    }
}

/// The hub knows everything in these namespaces.
fn exists(title: &str) -> Known {
    Known {
        titles: [FLEET.to_owned(), title.to_owned()].into(),
        clusters: ["ns/m".to_owned(), "ns/twin".to_owned()].into(),
        namespaces: Some(["ns".to_owned(), "hidden".to_owned()].into()),
        hidden: ["hidden".to_owned()].into(),
    }
}

#[test]
fn leftovers_of_a_deleted_fleet_are_adopted_if_this_hubs() {
    let adopted = "apply 2";
    let conflict = "block Conflict";
    for (case, fleet, owners, expected) in [
        ("it is gone", "ns/gone", vec![MANAGER], adopted),
        ("it exists", "ns/other", vec![MANAGER], conflict),
        (
            "its namespace can't be read",
            "hidden/gone",
            vec![MANAGER],
            conflict,
        ),
        (
            "its namespace is not the hub's",
            "elsewhere/gone",
            vec![MANAGER],
            conflict,
        ),
        ("it is no FleetPullSecret", "gone", vec![MANAGER], conflict),
        (
            "another hub wrote it",
            "ns/gone",
            vec!["globalps-hub-2"],
            conflict,
        ),
        (
            "another client has changed it",
            "ns/gone",
            vec![MANAGER, "kubectl"],
            conflict,
        ),
    ] {
        let owners: Vec<Value> = owners.into_iter().map(owner).collect();
        let target = target(&json!({"metadata": {
            "annotations": {"globalps.io/fleet": fleet}, "managedFields": owners,
        }}));
        let known = exists("ns/other");
        let found = action(Some(&target), &desired(2, "B", ""), NAMES, &known);
        assert_eq!(in_one_line(&found), expected, "{case}");
        let removed = action(Some(&target), &Desired::Removed, NAMES, &known);
        assert_eq!(removed, Action::Keep, "{case}: it is not of this one");
    }
    let everything = Known::default();
    assert!(
        !everything.may_exist("elsewhere/gone"),
        "the hub of all namespaces"
    );
}

#[test]
fn the_secret_of_another_cluster_stays_until_that_one_is_gone() {
    for (case, cluster, owner_, written, removed) in [
        ("its own", "ns/m", MANAGER, "apply 2", "delete u 7"),
        ("none is named", "", MANAGER, "apply 2", "delete u 7"),
        (
            "it exists",
            "ns/twin",
            MANAGER,
            "block DuplicateCluster",
            "keep",
        ),
        (
            "its namespace can't be read",
            "hidden/twin",
            MANAGER,
            "block DuplicateCluster",
            "keep",
        ),
        ("it is gone", "ns/gone", MANAGER, "apply 2", "delete u 7"),
        (
            "its namespace is not the hub's",
            "elsewhere/m",
            MANAGER,
            "apply 2",
            "delete u 7",
        ),
        (
            "another client wrote that",
            "ns/twin",
            "kubectl",
            "block Conflict",
            "keep",
        ),
    ] {
        let target = target(&json!({"metadata": {
            "annotations": {"globalps.io/cluster": cluster}, "managedFields": [owner(owner_)],
        }}));
        let known = exists("ns/other");
        let act = |desired| in_one_line(&action(Some(&target), &desired, NAMES, &known));
        assert_eq!(act(desired(2, "B", "")), written, "{case}");
        assert_eq!(act(Desired::Removed), removed, "{case}");
        let has_content = target.unknown_revision(NAMES, &known) != Revision::NONE;
        assert_eq!(has_content, written == "apply 2", "{case}");
        let observed = ObservedState {
            target: Some(target.clone()),
            ..ObservedState::default()
        };
        let criteria = DoneCriteria {
            require_nodes: false,
            is_additional: true,
        };
        let status = status(&observed, &Desired::Removed, (NAMES, &known), criteria);
        let is_left = status.phase == ClusterPhase::Removed;
        assert_eq!(is_left, removed == "keep", "{case}");
    }
    let of_another =
        target(&json!({"metadata": {"annotations": {"globalps.io/cluster": "ns/gone"}}}));
    let same = action(
        Some(&of_another),
        &desired(1, "A", ""),
        NAMES,
        &exists("ns/other"),
    );
    assert_eq!(in_one_line(&same), "apply 1", "it gets its new name");
}

#[test]
fn a_secret_is_deleted_only_while_the_hub_can_write_it_again() {
    let kubectl = json!({"metadata": {"annotations": null, "managedFields": [owner("kubectl")]}});
    let keys = json!({"data": {"other": "QQ=="}});
    let b = || desired(2, "B", "");
    for (changes, desired, is_written_again) in [
        (kubectl, b(), true),
        (json!({"type": "Opaque"}), b(), true),
        (json!({"immutable": true}), b(), true),
        (keys, Desired::Removed, false),
    ] {
        let known = Known::default();
        let Action::Block((reason, message)) =
            action(Some(&target(&changes)), &desired, NAMES, &known)
        else {
            panic!("{changes}");
        };
        assert!(message.contains("delete "), "{reason}: {message}");
        let says_when = message.contains("while the hub is connected");
        assert_eq!(says_when, is_written_again, "{reason}: {message}");
    }
}

fn reported(version: &str, status: &str, reason: &str) -> MemberReport {
    let object = json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
        "metadata": {"name": "global-pull-secret", "generation": 1}, "spec": {},
        "status": {
            "observedGeneration": 1, "observedAdditional": version, "counts": {"total": 3, "synced": 2},
            "conditions": [{
                "type": "Ready", "status": status, "reason": reason, "message": "node-1:\u{1b}[31m no",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    let object = serde_json::from_value(object).unwrap();
    MemberReport::Status(Box::new(MemberStatus::of(&object).unwrap()))
}

fn on_all_nodes(mut report: MemberReport) -> MemberReport {
    if let MemberReport::Status(status) = &mut report {
        status.counts.synced = status.counts.total;
    }
    report
}

#[test]
fn a_cluster_is_done_when_its_globalps_reports_the_content() {
    let has = || Some(target(&json!({})));
    let nodes = DoneCriteria {
        require_nodes: true,
        is_additional: true,
    };
    let secret = DoneCriteria {
        require_nodes: false,
        is_additional: true,
    };
    let other = DoneCriteria {
        require_nodes: true,
        is_additional: false,
    };
    let a = || desired(1, "A", "");
    for (case, target, report, desired, criteria, expected) in [
        (
            "nothing assigned",
            None,
            MemberReport::Unknown,
            Desired::Nothing,
            nodes,
            "Pending ",
        ),
        (
            "not written yet",
            None,
            MemberReport::NoStatus,
            a(),
            nodes,
            "Syncing ",
        ),
        (
            "nothing reported",
            has(),
            MemberReport::NoStatus,
            a(),
            nodes,
            "Syncing ",
        ),
        (
            "a status for an older Secret",
            has(),
            reported("6", "True", "Synced"),
            a(),
            nodes,
            "Syncing ",
        ),
        (
            "ready",
            has(),
            reported("7", "True", "Synced"),
            a(),
            nodes,
            "Synced ",
        ),
        (
            "ready, with another client's retry",
            Some(target(
                &json!({"metadata": {"annotations": {"globalps.io/retry": "x"}}}),
            )),
            reported("7", "True", "Synced"),
            a(),
            nodes,
            "Synced ",
        ),
        (
            "ready with the previous revision",
            has(),
            reported("7", "True", "Synced"),
            desired(2, "B", ""),
            nodes,
            "Syncing ",
        ),
        (
            "in progress",
            has(),
            reported("7", "False", "RollingOut"),
            a(),
            nodes,
            "Syncing RollingOut",
        ),
        (
            "a node failed",
            has(),
            reported("7", "False", "NodesFailed"),
            a(),
            nodes,
            "Failed NodesFailed",
        ),
        (
            "it rejects the content",
            has(),
            reported("7", "False", "AdditionalInvalid"),
            a(),
            nodes,
            "Failed AdditionalInvalid",
        ),
        (
            "it rolled it back",
            has(),
            reported("7", "False", "RolledBack"),
            a(),
            nodes,
            "Failed RolledBack",
        ),
        (
            "all its nodes are updated",
            has(),
            reported("7", "False", "NodesUpdating"),
            a(),
            nodes,
            "Syncing NodesUpdating",
        ),
        (
            "a full disk",
            has(),
            reported("7", "False", "NodesBlocked"),
            a(),
            nodes,
            "Blocked NodesBlocked",
        ),
        (
            "a quota there, while its nodes change",
            has(),
            reported("7", "False", "ReconcileFailed"),
            a(),
            nodes,
            "Syncing ReconcileFailed",
        ),
        (
            "a quota there, and its nodes are done",
            has(),
            on_all_nodes(reported("7", "False", "ReconcileFailed")),
            a(),
            nodes,
            "Blocked ReconcileFailed",
        ),
        (
            "no globalps",
            has(),
            MemberReport::NoGlobalps,
            a(),
            nodes,
            "Blocked NoGlobalps",
        ),
        (
            "its GlobalPullSecret was deleted a moment ago",
            has(),
            MemberReport::NoConfig,
            a(),
            nodes,
            "Syncing NoGlobalPullSecret",
        ),
        (
            "its GlobalPullSecret can't be decoded",
            has(),
            MemberReport::Unreadable("its field `spec.rollout` can't be decoded".to_owned()),
            a(),
            nodes,
            "Blocked Unreadable",
        ),
        (
            "its own globalps can't decode something",
            has(),
            reported("7", "False", "Unreadable"),
            a(),
            nodes,
            "Blocked Unreadable",
        ),
        (
            "no GlobalPullSecret, and it is not required",
            has(),
            MemberReport::NoConfig,
            a(),
            secret,
            "Synced ",
        ),
        (
            "no globalps, and it is not required",
            has(),
            MemberReport::NoGlobalps,
            a(),
            secret,
            "Synced ",
        ),
        (
            "a Secret that globalps does not report on",
            has(),
            MemberReport::Unknown,
            a(),
            other,
            "Synced ",
        ),
        (
            "removing",
            has(),
            MemberReport::NoStatus,
            Desired::Removed,
            nodes,
            "Removing ",
        ),
        (
            "removed",
            None,
            MemberReport::NoStatus,
            Desired::Removed,
            nodes,
            "Removed ",
        ),
    ] {
        let observed = ObservedState {
            target,
            report,
            ..ObservedState::default()
        };
        let status = status(&observed, &desired, (NAMES, &Known::default()), criteria);
        let found = format!("{} {}", status.phase, status.reason);
        assert_eq!(found, expected, "{case}");
        assert!(!status.message.contains('\u{1b}'), "{case}");
    }
    let mut observed = ObservedState {
        target: has(),
        report: reported("7", "True", "Synced"),
        blocked: Some((Reason::Conflict, "another owner".to_owned())),
        ..ObservedState::default()
    };
    let phase =
        |observed: &ObservedState| status(observed, &a(), (NAMES, &Known::default()), nodes).phase;
    assert_eq!(phase(&observed), ClusterPhase::Blocked);
    observed.unreachable = Some((Reason::Timeout, "no response".to_owned()));
    assert_eq!(phase(&observed), ClusterPhase::Unreachable);
    assert_eq!(
        status(&observed, &a(), (NAMES, &Known::default()), nodes)
            .nodes
            .unwrap()
            .synced,
        2
    );
}

#[test]
fn what_the_hub_installed_is_not_starting_once_it_runs() {
    let install = Installation {
        controller_image: "c:1".to_owned(),
        syncer_image: "s:1".to_owned(),
        pull_secret: None,
    };
    let Desired::Revision(release) = desired(1, "A", "") else {
        unreachable!();
    };
    let desired = Desired::Revision(Release {
        install: Some(Arc::new(install)),
        ..release
    });
    let criteria = DoneCriteria {
        require_nodes: true,
        is_additional: true,
    };
    let unreadable = || MemberReport::Unreadable("its field `spec` can't be decoded".to_owned());
    for (report, is_installing, lacks_config, expected) in [
        (MemberReport::Unknown, true, false, "Syncing Installing"),
        (MemberReport::Unknown, false, false, "Syncing "),
        (MemberReport::NoStatus, false, false, "Syncing "),
        (MemberReport::NoConfig, true, true, "Syncing Installing"),
        (
            MemberReport::NoConfig,
            false,
            false,
            "Syncing NoGlobalPullSecret",
        ),
        (
            MemberReport::NoConfig,
            false,
            true,
            "Blocked NoGlobalPullSecret",
        ),
        (MemberReport::NoGlobalps, false, false, "Blocked NoGlobalps"),
        (unreadable(), false, false, "Blocked Unreadable"),
    ] {
        let observed = ObservedState {
            target: Some(target(&json!({}))),
            report,
            is_installing,
            lacks_config,
            ..ObservedState::default()
        };
        let status = status(&observed, &desired, (NAMES, &Known::default()), criteria);
        let found = format!("{} {}", status.phase, status.reason);
        assert_eq!(found, expected, "{:?}", observed.report);
        let late = ObservedState {
            is_install_late: true,
            ..observed
        };
        let is_failed = super::status(&late, &desired, (NAMES, &Known::default()), criteria).phase
            == ClusterPhase::Failed;
        assert_eq!(is_failed, is_installing);
    }
}
