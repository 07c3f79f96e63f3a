//! Kubernetes objects, reduced to the fields that the controller needs. The full types, with everything that a pod can have,
//! would take a twentieth of the program.

use globalps_core::api::ProviderPaths;
use globalps_core::decode;
use globalps_core::manifests::provider_paths_of;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DaemonSetView {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: PodOwnerFields,
    #[serde(default)]
    pub(crate) status: AgentPods,
}

impl DaemonSetView {
    /// The credential provider directories that its pods mount.
    pub(crate) fn provider_paths(&self) -> Option<ProviderPaths> {
        let containers = self.spec.template.spec.containers.iter();
        let variables = containers.flat_map(|container| &container.env);
        provider_paths_of(variables.map(|variable| (&*variable.name, &*variable.value)))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodOwnerFields {
    template: PodTemplateFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodTemplateFields {
    spec: PodFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodFields {
    containers: Vec<ContainerFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerFields {
    env: Vec<Variable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

/// The pods of a `DaemonSet`, as counted in its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AgentPods {
    /// `metadata.generation`.
    #[serde(skip)]
    pub(crate) generation: i64,
    /// The generation that the numbers describe.
    pub(crate) observed_generation: i64,
    pub(crate) desired_number_scheduled: i32,
    pub(crate) current_number_scheduled: i32,
    pub(crate) number_ready: i32,
    pub(crate) updated_number_scheduled: i32,
}

impl AgentPods {
    /// Whether the `DaemonSet` is replacing pods, except as many as it can't replace on `NotReady` nodes. Creating the first pods
    /// doesn't count as replacing.
    pub(crate) fn are_rolling(&self, not_ready: usize) -> bool {
        self.observed_generation == self.generation
            && self
                .updated_number_scheduled
                .saturating_add(number(not_ready))
                < self.current_number_scheduled
    }

    /// Whether each pod has the current template, except as many as can't be replaced on `NotReady` nodes.
    pub(crate) fn are_current(&self, not_ready: usize) -> bool {
        let updated = self
            .updated_number_scheduled
            .saturating_add(number(not_ready));
        self.observed_generation == self.generation && updated >= self.current_number_scheduled
    }

    /// Number of pods that should be ready and are not, minus this many.
    pub(crate) fn down(&self, not_ready: usize) -> usize {
        let missing = self
            .desired_number_scheduled
            .saturating_sub(self.number_ready);
        usize::try_from(missing.saturating_sub(number(not_ready))).unwrap_or_default()
    }

    /// Whether the API server rejected some pods.
    pub(crate) fn are_missing(&self) -> bool {
        self.current_number_scheduled < self.desired_number_scheduled
    }
}

fn number(nodes: usize) -> i32 {
    i32::try_from(nodes).unwrap_or(i32::MAX)
}

/// The fields of a Node that the plan depends on.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeFields {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: NodeSpecFields,
    #[serde(default)]
    pub(crate) status: NodeStatusFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpecFields {
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<TaintFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TaintFields {
    pub(crate) key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NodeStatusFields {
    pub(crate) conditions: Vec<NodeConditionFields>,
    pub(crate) node_info: NodeInfoFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NodeConditionFields {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    #[serde(deserialize_with = "decode::time")]
    pub(crate) last_heartbeat_time: Option<Time>,
    #[serde(deserialize_with = "decode::time")]
    pub(crate) last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NodeInfoFields {
    pub(crate) kubelet_version: String,
}

globalps_core::view!(DaemonSetView: DaemonSet, NodeFields: Node);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pods_of_a_daemon_set_are_counted_by_its_status() {
        let pods = |status: serde_json::Value| {
            let daemon_set = json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {}},
                "metadata": {"name": "a", "generation": 6}, "status": status,
            });
            let view: DaemonSetView = serde_json::from_value(daemon_set).expect("a DaemonSet");
            AgentPods {
                generation: 6,
                ..view.status
            }
        };
        let counted = |observed, desired, current, ready, updated| {
            pods(json!({
                "currentNumberScheduled": current, "desiredNumberScheduled": desired,
                "numberMisscheduled": 0, "numberReady": ready, "observedGeneration": observed,
                "updatedNumberScheduled": updated,
            }))
        };
        for (case, pods, not_ready, down, are_missing, are_rolling) in [
            ("just created", pods(json!({})), 0, 0, false, false),
            ("all run", counted(6, 4, 4, 4, 4), 0, 0, false, false),
            (
                "the first pods are made",
                counted(6, 4, 2, 1, 2),
                0,
                3,
                true,
                false,
            ),
            (
                "the API server refuses them",
                counted(6, 4, 0, 0, 0),
                0,
                4,
                true,
                false,
            ),
            ("they crash", counted(6, 4, 4, 0, 4), 0, 4, false, false),
            (
                "on a node that is not ready",
                counted(6, 4, 4, 3, 4),
                1,
                0,
                false,
                false,
            ),
            (
                "pods are replaced",
                counted(6, 4, 4, 3, 1),
                0,
                1,
                false,
                true,
            ),
            (
                "all but those that can't be",
                counted(6, 4, 4, 3, 3),
                1,
                0,
                false,
                false,
            ),
            (
                "nothing is known of the newest spec",
                counted(5, 4, 4, 4, 1),
                0,
                0,
                false,
                false,
            ),
        ] {
            let found = (
                pods.down(not_ready),
                pods.are_missing(),
                pods.are_rolling(not_ready),
            );
            assert_eq!(found, (down, are_missing, are_rolling), "{case}");
        }
    }
}
