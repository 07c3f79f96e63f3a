//! Objects of Kubernetes, read as far as the controller needs them. The whole types, with everything that a pod can be, would
//! be a twentieth of the program.

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DaemonSetView {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) status: AgentPods,
}

/// The pods of a `DaemonSet`, as its controller counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AgentPods {
    /// `metadata.generation`.
    #[serde(skip)]
    pub(crate) generation: i64,
    /// The generation that the numbers are about.
    pub(crate) observed_generation: i64,
    pub(crate) desired_number_scheduled: i32,
    pub(crate) current_number_scheduled: i32,
    pub(crate) number_ready: i32,
    pub(crate) updated_number_scheduled: i32,
}

impl AgentPods {
    /// The `DaemonSet` is replacing its pods.
    pub(crate) fn are_rolling(&self) -> bool {
        self.observed_generation < self.generation
            || self.updated_number_scheduled < self.desired_number_scheduled
    }
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
    pub(crate) taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatusFields {
    pub(crate) conditions: Vec<NodeCondition>,
}

macro_rules! view {
    ($($view:ty: $whole:ty),*) => {$(
        impl Resource for $view {
            type DynamicType = ();
            type Scope = <$whole as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$whole>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$whole>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$whole>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$whole>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

view!(DaemonSetView: DaemonSet, NodeFields: Node);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pods_of_a_daemon_set_are_counted_by_its_status() {
        let status = json!({
            "currentNumberScheduled": 3, "desiredNumberScheduled": 4, "numberMisscheduled": 0,
            "numberReady": 2, "observedGeneration": 6, "updatedNumberScheduled": 4,
        });
        for (case, status, generation, expected, are_rolling) in [
            ("just created", json!({}), 1, AgentPods::default(), true),
            (
                "all updated",
                status.clone(),
                6,
                AgentPods {
                    observed_generation: 6,
                    desired_number_scheduled: 4,
                    current_number_scheduled: 3,
                    number_ready: 2,
                    updated_number_scheduled: 4,
                    ..AgentPods::default()
                },
                false,
            ),
        ] {
            let daemon_set = json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {}},
                "metadata": {"name": "a", "generation": generation}, "status": status,
            });
            let view: DaemonSetView = serde_json::from_value(daemon_set).expect("a DaemonSet");
            assert_eq!(view.status, expected, "{case}");
            let pods = AgentPods {
                generation,
                ..view.status
            };
            assert_eq!(pods.are_rolling(), are_rolling, "{case}");
        }
    }
}
