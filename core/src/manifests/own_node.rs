//! What binds an agent to its node: the API server takes a node's status from a pod of that node only.

use serde_json::Value;

use super::policy::{Policy, binding, validation, writes};
use super::{Agent, value};
use crate::names::{GROUP, VERSION};

/// Name of the policy and of its binding.
const POLICY: &str = "globalps-own-node";
/// What the API server says of a token that was made for a pod: the node of that pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// `namespace`: the agents'. RBAC knows names of objects, but not that a token's node has the object's name.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    let policy = Policy {
        rules: vec![writes(
            GROUP,
            VERSION,
            ["nodepullsecrets", "nodepullsecrets/status"],
        )],
        accounts: Agent::ALL
            .map(|agent| (agent.name(), namespace.to_owned()))
            .into(),
        validations: vec![validation(
            "a syncer writes the status of its own node only",
            format!(
                "has(request.userInfo.extra) && \
                 request.userInfo.extra[?'{NODE_NAME}'][?0].orValue('') == request.name"
            ),
        )],
        ..Policy::default()
    };
    vec![value(policy.build(POLICY)), value(binding(POLICY, None))]
}
