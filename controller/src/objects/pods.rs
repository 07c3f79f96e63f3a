//! The pods of the syncers and restorers, reduced to whether each runs on which node. There are as many as nodes, so everything
//! else is dropped while they are decoded. Pure.

use globalps_manifests::Agent;
use globalps_planner::nodes::syncers::Cause;
use globalps_planner::targets::version;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use serde::Deserialize;

/// Maximum length of a reason, in characters.
const LONGEST: usize = 200;
/// Label of a `DaemonSet`'s pod: number of the template that it was made from.
const TEMPLATE_LABEL: &str = "pod-template-generation";

/// A pod of a syncer or restorer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodView {
    pub(crate) name: Box<str>,
    /// Its `resourceVersion`.
    pub(crate) version: u64,
    /// Empty: none.
    pub(crate) node: Box<str>,
    pub(crate) agent: Agent,
    /// Number of the template that it was made from; 0: unknown.
    pub(crate) template: i64,
    /// Whether it runs and stays.
    pub(crate) runs: Result<(), Cause>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PodFields {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecFields,
    #[serde(default)]
    status: StatusFields,
}

globalps_core::view!(PodFields: Pod);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecFields {
    node_name: String,
    affinity: AffinityFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffinityFields {
    node_affinity: NodeAffinityFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinityFields {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: RequiredFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequiredFields {
    node_selector_terms: Vec<TermFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TermFields {
    match_fields: Vec<MatchFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct MatchFields {
    key: String,
    values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusFields {
    phase: String,
    reason: String,
    message: String,
    conditions: Vec<ConditionFields>,
    container_statuses: Vec<ContainerFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ConditionFields {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerFields {
    state: StateFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct StateFields {
    waiting: Option<ReasonFields>,
    terminated: Option<ReasonFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ReasonFields {
    reason: String,
}

impl PodFields {
    /// The node that it runs on or, until the scheduler has said so, the only one that it may run on.
    fn node(&self) -> &str {
        let affinity = &self.spec.affinity.node_affinity.required;
        let mut fields = affinity
            .node_selector_terms
            .iter()
            .flat_map(|term| &term.match_fields);
        let of_name = fields.find(|field| field.key == "metadata.name");
        match self.spec.node_name.as_str() {
            "" => of_name.and_then(|field| field.values.first()),
            _ => Some(&self.spec.node_name),
        }
        .map_or("", String::as_str)
    }

    fn condition(&self, type_: &str) -> Option<&ConditionFields> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == type_)
    }

    fn runs(&self) -> Result<(), Cause> {
        let is_ready = self
            .condition("Ready")
            .is_some_and(|it| it.status == "True");
        if self.metadata.deletion_timestamp.is_some() {
            return Err(Cause::NotRunning("Terminating".into()));
        }
        if is_ready {
            return Ok(());
        }
        let status = &self.status;
        let Some(container) = status.container_statuses.first() else {
            let scheduled = self.condition("PodScheduled");
            let reason = match scheduled.filter(|it| it.status == "False") {
                _ if !status.reason.is_empty() => with_message(&status.reason, &status.message),
                Some(it) => with_message(&it.reason, &it.message),
                None => format!("{}: no kubelet has begun to run it", status.phase),
            };
            return Err(Cause::NotTaken(line(&reason)));
        };
        let state = &container.state;
        let stopped = state.waiting.as_ref().or(state.terminated.as_ref());
        Err(match stopped {
            Some(stopped) if stopped.reason.is_empty() => Cause::NotRunning("NotRunning".into()),
            Some(stopped) => Cause::NotRunning(line(&stopped.reason)),
            None => Cause::NotReady,
        })
    }
}

pub(crate) fn pod_view(pod: &PodFields) -> PodView {
    let label = |name: &str| pod.labels().get(name).map(String::as_str);
    let mut agents = Agent::ALL.into_iter();
    let agent = agents.find(|agent| label("name") == Some(agent.name()));
    PodView {
        name: pod.name_any().into(),
        version: version(pod),
        node: pod.node().into(),
        agent: agent.unwrap_or(Agent::Syncer),
        template: label(TEMPLATE_LABEL)
            .and_then(|label| label.parse().ok())
            .unwrap_or_default(),
        runs: pod.runs(),
    }
}

fn with_message(reason: &str, message: &str) -> String {
    if message.is_empty() {
        reason.to_owned()
    } else {
        format!("{reason}: {message}")
    }
}

/// One line of limited length.
fn line(text: &str) -> Box<str> {
    let is_end = |c: char| c.is_control();
    let first = text.split(is_end).find(|line| !line.is_empty());
    first.unwrap_or_default().chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(pod: Value) -> PodView {
        pod_view(&serde_json::from_value(pod).expect("a Pod"))
    }

    #[test]
    fn of_a_pod_its_node_template_and_state_matter() {
        let pod = json!({
            "metadata": {
                "name": "global-pull-secret-restorer-x7", "resourceVersion": "12",
                "labels": {"name": "global-pull-secret-restorer", "pod-template-generation": "3"},
            },
            "spec": {"nodeName": "node-1", "containers": [{"name": "syncer", "image": "i"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let expected = PodView {
            name: "global-pull-secret-restorer-x7".into(),
            version: 12,
            node: "node-1".into(),
            agent: Agent::Restorer,
            template: 3,
            runs: Ok(()),
        };
        assert_eq!(view(pod), expected);
        let unscheduled = json!({
            "metadata": {"name": "a", "labels": {"name": "global-pull-secret-syncer"}},
            "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{
                    "matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["kwok"]}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}],
                }],
            }}}},
        });
        let found = view(unscheduled);
        let found = (&*found.node, found.agent, found.template);
        assert_eq!(found, ("node-2", Agent::Syncer, 0));
    }

    #[test]
    fn a_pod_that_does_not_run_says_why_in_one_short_line() {
        let not_ready = json!([{"type": "Ready", "status": "False"}]);
        let unscheduled = json!([
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes\nare available"},
        ]);
        let container = |state: Value| json!([{"name": "syncer", "state": state}]);
        let waits = container(json!({"waiting": {"reason": "ErrImagePull", "message": "long"}}));
        let stopped = container(json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}}));
        let runs = container(json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}));
        let not_taken = |reason: &str| Cause::NotTaken(reason.into());
        let not_running = |reason: &str| Cause::NotRunning(reason.into());
        for (status, expected) in [
            (
                json!({"conditions": not_ready, "containerStatuses": waits}),
                not_running("ErrImagePull"),
            ),
            (
                json!({"containerStatuses": stopped}),
                not_running("OOMKilled"),
            ),
            (
                json!({"conditions": not_ready, "containerStatuses": runs}),
                Cause::NotReady,
            ),
            (
                json!({"containerStatuses": container(json!({"waiting": {}}))}),
                not_running("NotRunning"),
            ),
            (
                json!({"phase": "Pending", "conditions": unscheduled}),
                not_taken("Unschedulable: 0/3 nodes"),
            ),
            (
                json!({"phase": "Pending", "reason": "ProviderFailed", "message": "no such API"}),
                not_taken("ProviderFailed: no such API"),
            ),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}),
                not_taken("Pending: no kubelet has begun to run it"),
            ),
            (
                json!({"reason": "x".repeat(999)}),
                not_taken(&"x".repeat(LONGEST)),
            ),
        ] {
            let pod = json!({"metadata": {"name": "a"}, "status": status});
            assert_eq!(view(pod).runs, Err(expected), "{status}");
        }
        let deleted = json!({
            "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(view(deleted).runs, Err(not_running("Terminating")));
    }
}
