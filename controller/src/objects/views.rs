//! Kubernetes objects, reduced to the fields that the controller needs. The full types, with everything that a pod can have,
//! would take a twentieth of the program.

use std::collections::BTreeMap;

use globalps_core::api::ProviderPaths;
use globalps_core::hypershift::HASH_LABEL;
use globalps_core::machine_config::MachineConfig;
use globalps_core::{decode, machine_config};
use globalps_manifests::provider_paths_of;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DaemonSetView {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: PodOwnerFields,
    #[serde(default)]
    status: DaemonSetStatusFields,
}

/// The API server counts the templates of a `DaemonSet` in this annotation.
const TEMPLATE_ANNOTATION: &str = "deprecated.daemonset.template.generation";

impl DaemonSetView {
    pub(crate) fn template(&self) -> AgentTemplate {
        let annotations = self.metadata.annotations.as_ref();
        let generation = annotations.and_then(|all| all.get(TEMPLATE_ANNOTATION)?.parse().ok());
        AgentTemplate {
            generation: generation.unwrap_or_default(),
            is_observed: self.status.observed_generation > 0,
        }
    }

    /// `HyperShift`'s own controller writes it. The label stays if another client applies the object too.
    pub(crate) fn is_hypershifts(&self) -> bool {
        let labels = &self.spec.template.metadata.labels;
        labels.contains_key(HASH_LABEL)
    }

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
    metadata: TemplateMetadata,
    spec: PodSpecFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMetadata {
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodSpecFields {
    containers: Vec<EnvFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EnvFields {
    env: Vec<Variable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

/// What the pods of a `DaemonSet` are made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentTemplate {
    /// Its number, which each pod has as a label; 0: unknown.
    pub(crate) generation: i64,
    /// Kubernetes' controller makes pods from it.
    pub(crate) is_observed: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DaemonSetStatusFields {
    observed_generation: i64,
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

impl NodeFields {
    /// As in `spec.foreignOwner`.
    pub(crate) fn file_owner(&self) -> &'static str {
        machine_config::file_owner(
            |label| self.labels().get(label).map(String::as_str),
            |annotation| self.annotation(annotation),
        )
    }

    /// Of the Machine Config Operator.
    pub(crate) fn machine_config(&self) -> Option<MachineConfig> {
        machine_config::machine_config(|annotation| self.annotation(annotation))
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations().get(name).map(String::as_str)
    }
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
    pub(crate) value: String,
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
    fn the_template_of_a_daemon_set_has_a_number() {
        let template = |annotation: &str, observed| {
            let daemon_set = json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {}},
                "metadata": {"name": "a", "generation": 6, "annotations": {TEMPLATE_ANNOTATION: annotation}},
                "status": {"observedGeneration": observed, "numberReady": 3},
            });
            let view: DaemonSetView = serde_json::from_value(daemon_set).expect("a DaemonSet");
            let AgentTemplate {
                generation,
                is_observed,
            } = view.template();
            (generation, is_observed)
        };
        assert_eq!(template("3", 5), (3, true));
        assert_eq!(template("three", 0), (0, false));
    }
}
