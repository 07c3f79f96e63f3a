//! Reduces a Node to the fields that the plan needs.

use globalps_core::virtual_nodes::virtual_mark;
use globalps_planner::nodes::input::{NodeView, NotReady};
use globalps_planner::targets::version;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Cache;
use super::versioned::Versioned;
use crate::objects::views::{NodeConditionFields, NodeFields};

/// Taints of the cluster autoscaler and of Karpenter (1.0 and before) on a node that they are going to drain and delete.
const DELETION_TAINTS: [&str; 3] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];
/// Taint of Cluster API on each node that a machine rollout will replace. When the node's turn has come, Cluster API cordons it;
/// the deletion mark is only on the Machine, in another cluster.
const OUTDATED_TAINT: &str = "node.cluster.x-k8s.io/outdated-revision";

/// `maxLength` of `spec.kubeletVersion` of a `NodePullSecret`.
const VERSION_LIMIT: usize = 64;

impl Versioned for NodeView {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn share(&mut self, before: &Self) {
        self.labels.share_keys(&before.labels);
    }

    /// A kubelet renews its status every few minutes without a change.
    fn means_the_same(&self, other: &Self) -> bool {
        let Self {
            name,
            uid,
            version: _,
            labels,
            ready,
            heartbeat: _,
            kubelet_version,
            unschedulable,
            is_being_deleted,
            file_owner,
            machine_config,
            virtual_by,
            // Immutable.
            created: _,
        } = self;
        (name, uid, labels) == (&other.name, &other.uid, &other.labels)
            && *kubelet_version == other.kubelet_version
            && (ready, file_owner, virtual_by)
                == (&other.ready, &other.file_owner, &other.virtual_by)
            && *machine_config == other.machine_config
            && (unschedulable, is_being_deleted) == (&other.unschedulable, &other.is_being_deleted)
    }
}

impl Cache {
    /// Whether the cluster runs `OpenShift`.
    pub(crate) fn is_openshift(&self) -> bool {
        let mut nodes = self.nodes.live.values();
        nodes.any(|node| node.is_foreign() || node.labels.is_of_pool)
    }

    /// The first heartbeat since the node's syncer restarted the kubelet.
    pub(super) fn is_awaited(&self, node: &NodeView) -> bool {
        let object = self.node_pull_secrets.get(&node.name);
        let status = object.and_then(|object| object.status.as_ref());
        let restarted_at = status.and_then(|status| status.kubelet_restarted_at.as_ref());
        let known = self.nodes.get(&node.name);
        known
            .zip(restarted_at)
            .is_some_and(|(known, restarted_at)| {
                known.heartbeat < restarted_at.0 && known.heartbeat < node.heartbeat
            })
    }
}

pub(super) fn node_view(node: &NodeFields) -> NodeView {
    let created = node
        .creation_timestamp()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let taints = node.spec.taints.iter();
    let mut conditions = node.status.conditions.iter();
    let condition = conditions.find(|condition| condition.type_ == "Ready");
    let heartbeat = condition.and_then(|condition| condition.last_heartbeat_time.as_ref());
    NodeView {
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        version: version(node),
        labels: node.labels().into(),
        ready: ready(condition, created),
        heartbeat: heartbeat.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        kubelet_version: bounded(&node.status.node_info.kubelet_version),
        unschedulable: node.spec.unschedulable,
        is_being_deleted: is_being_deleted(node),
        created,
        virtual_by: virtual_mark(
            |label| node.labels().get(label).map(String::as_str),
            taints.map(|taint| (taint.key.as_str(), taint.value.as_str())),
        ),
        file_owner: node.file_owner(),
        machine_config: node.machine_config().map(Box::new),
    }
}

/// The version, limited to the length of `spec.kubeletVersion`, because a node may report any text.
fn bounded(kubelet_version: &str) -> Box<str> {
    let bounded: String = kubelet_version.chars().take(VERSION_LIMIT).collect();
    bounded.into_boxed_str()
}

fn ready(
    condition: Option<&NodeConditionFields>,
    created: Timestamp,
) -> Result<Timestamp, NotReady> {
    let Some(condition) = condition else {
        return Err(NotReady {
            since: created,
            unknown: true,
        });
    };
    let since = condition.last_transition_time.as_ref();
    let since = since.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    match condition.status.as_str() {
        "True" => Ok(since),
        status => Err(NotReady {
            since,
            unknown: status != "False",
        }),
    }
}

fn is_being_deleted(node: &NodeFields) -> bool {
    let mut taints = node.spec.taints.iter();
    node.metadata.deletion_timestamp.is_some()
        || taints.any(|taint| match taint.key.as_str() {
            OUTDATED_TAINT => node.spec.unschedulable,
            key => DELETION_TAINTS.contains(&key),
        })
}

#[cfg(test)]
mod tests {
    use globalps_core::names::{MACHINE_CONFIG_OPERATOR, MACHINE_CONFIG_UPDATE};
    use serde_json::json;

    use super::*;

    /// A20: what `HyperShift`'s daemon writes into the Node decides, and its update is a change.
    #[test]
    fn an_update_of_a_node_is_seen_in_its_annotations() {
        let view = |label: &str, desired: &str| {
            let node = json!({
                "metadata": {
                    "labels": {label: "p"},
                    "annotations": {
                        "machineconfiguration.openshift.io/currentConfig": "c1",
                        "machineconfiguration.openshift.io/desiredConfig": desired,
                        "machineconfiguration.openshift.io/state": if desired == "c1" { "Done" } else { "Working" },
                    },
                },
                "spec": {}, "status": {},
            });
            node_view(&serde_json::from_value::<NodeFields>(node).unwrap())
        };
        let pool = "hypershift.openshift.io/nodePool";
        let owners = [(pool, "c1"), (pool, "c2"), ("other", "c1")]
            .map(|(label, desired)| view(label, desired).file_owner);
        assert_eq!(owners, ["", MACHINE_CONFIG_UPDATE, MACHINE_CONFIG_OPERATOR]);
        let (before, during) = (view(pool, "c1"), view(pool, "c2"));
        assert!(!before.means_the_same(&during) && before.means_the_same(&before.clone()));
    }

    #[test]
    fn a_version_of_any_length_fits_into_an_assignment() {
        for (version, expected) in [
            ("v1.36.3", "v1.36.3".to_owned()),
            (
                &format!("v1.36.3-{}", "é".repeat(100)),
                format!("v1.36.3-{}", "é".repeat(56)),
            ),
        ] {
            let node = json!({"metadata": {}, "spec": {}, "status": {"nodeInfo": {"kubeletVersion": version}}});
            let node = serde_json::from_value(node);
            let version = node.map(|node| node_view(&node).kubelet_version);
            assert_eq!(version.ok().as_deref(), Some(expected.as_str()));
        }
    }

    #[test]
    fn a_node_that_is_being_removed_is_recognized() {
        let tainted = |key: &str| json!({"taints": [{"key": key, "effect": "NoSchedule"}]});
        let replaced = |cordoned: bool| json!({"unschedulable": cordoned, "taints": [{"key": OUTDATED_TAINT, "effect": "PreferNoSchedule"}]});
        for (case, metadata, spec, unschedulable, is_being_deleted) in [
            ("an ordinary one", json!({}), json!({}), false, false),
            (
                "cordoned",
                json!({}),
                json!({"unschedulable": true}),
                true,
                false,
            ),
            (
                "deleted, held by a finalizer",
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                json!({}),
                false,
                true,
            ),
            (
                "by the cluster autoscaler",
                json!({}),
                tainted("ToBeDeletedByClusterAutoscaler"),
                false,
                true,
            ),
            (
                "a candidate of the cluster autoscaler may stay",
                json!({}),
                tainted("DeletionCandidateOfClusterAutoscaler"),
                false,
                false,
            ),
            (
                "by Karpenter",
                json!({}),
                tainted("karpenter.sh/disrupted"),
                false,
                true,
            ),
            (
                "by Karpenter before 1.0",
                json!({}),
                tainted("karpenter.sh/disruption"),
                false,
                true,
            ),
            (
                "Cluster API replaces it later",
                json!({}),
                replaced(false),
                false,
                false,
            ),
            (
                "Cluster API replaces it now",
                json!({}),
                replaced(true),
                true,
                true,
            ),
        ] {
            let node = serde_json::from_value(json!({"metadata": metadata, "spec": spec}));
            let view = node_view(&node.expect("a Node"));
            assert_eq!(view.unschedulable, unschedulable, "{case}");
            assert_eq!(view.is_being_deleted, is_being_deleted, "{case}");
        }
    }

    #[test]
    fn an_unresponsive_kubelet_is_not_one_that_reports_not_ready() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let (created, changed, posted) = (
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:10Z",
            "2026-01-01T00:00:20Z",
        );
        let not_ready = |since, unknown| {
            Err(NotReady {
                since: at(since),
                unknown,
            })
        };
        for (status, ready, heartbeat) in [
            (Some("True"), Ok(at(changed)), at(posted)),
            (Some("False"), not_ready(changed, false), at(posted)),
            (Some("Unknown"), not_ready(changed, true), at(posted)),
            (None, not_ready(created, true), Timestamp::UNIX_EPOCH),
        ] {
            let conditions = status.map(|status| {
                json!({
                    "type": "Ready",
                    "status": status,
                    "lastTransitionTime": changed,
                    "lastHeartbeatTime": posted,
                })
            });
            let node = json!({
                "metadata": {"creationTimestamp": created},
                "status": {"conditions": conditions.into_iter().collect::<Vec<_>>()},
            });
            let view = node_view(&serde_json::from_value(node).expect("a Node"));
            assert_eq!(view.ready, ready, "{status:?}");
            assert_eq!(view.heartbeat, heartbeat, "{status:?}");
        }
    }
}
