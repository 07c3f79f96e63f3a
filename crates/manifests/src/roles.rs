//! `ClusterRole`s for users: to view globalps, and to operate it. They have no bindings.

use globalps_core::names::{
    ADDITIONAL_SECRET, CONTROLLER, GLOBAL_SECRET, GROUP, HISTORY_SLOTS, LEASE, OBSERVER,
    RECORD_SECRET, RESTORER, ROLLED_OUT_SECRET, SYNCER, history_secret,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::rbac::{cluster_role, rule};
use super::value;

/// Reads the custom resources, and is part of Kubernetes' own role `view`.
pub const VIEWER: &str = "globalps-viewer";
/// Changes the additional pull secret, and pauses and retries rollouts.
pub const OPERATOR: &str = "globalps-operator";

const READ: [&str; 3] = ["get", "list", "watch"];

pub(super) fn objects() -> Vec<Value> {
    let mut viewer = cluster_role(VIEWER, vec![viewed()]);
    let labels = viewer.metadata.labels.get_or_insert_default();
    labels.insert(
        "rbac.authorization.k8s.io/aggregate-to-view".to_owned(),
        "true".to_owned(),
    );
    let operator = cluster_role(OPERATOR, operated());
    vec![value(viewer), value(operator)]
}

fn viewed() -> PolicyRule {
    let kinds = [
        "globalpullsecrets",
        "nodepullsecrets",
        "fleetpullsecrets",
        "clusterpullsecrets",
    ];
    rule(GROUP, kinds, [], READ)
}

/// Without the permission to create Secrets: RBAC can't restrict it by name, and a Secret of some types is a token of
/// another account.
fn operated() -> Vec<PolicyRule> {
    let history = (0..HISTORY_SLOTS).map(history_secret);
    vec![
        viewed(),
        rule(GROUP, ["globalpullsecrets"], [], ["create", "patch"]),
        rule(GROUP, ["nodepullsecrets"], [], ["patch"]),
        rule(
            "",
            ["secrets"],
            [ADDITIONAL_SECRET],
            ["get", "list", "watch", "update", "patch", "delete"],
        ),
        rule(
            "",
            ["secrets"],
            [GLOBAL_SECRET, ROLLED_OUT_SECRET, RECORD_SECRET],
            READ,
        ),
        PolicyRule {
            resource_names: Some(history.collect()),
            ..rule("", ["secrets"], [], ["get"])
        },
        rule("apps", ["deployments"], [CONTROLLER], ["get"]),
        rule(
            "apps",
            ["daemonsets"],
            [SYNCER, RESTORER, OBSERVER],
            ["get"],
        ),
        rule("coordination.k8s.io", ["leases"], [LEASE], ["get"]),
        // Why a pod can't pull, and which nodes can't be reached.
        rule("", ["nodes", "pods", "events"], [], READ),
        rule("", ["serviceaccounts"], [], ["get"]),
    ]
}
