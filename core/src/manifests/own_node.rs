//! Admission policy that binds an agent to its node: only a pod on a node can write that node's status.

use serde_json::Value;

use super::policy::{Policy, binding, validation, writes};
use super::{Agent, value};
use crate::names::{GROUP, VERSION};

/// Name of the policy and of its binding.
const POLICY: &str = "globalps-own-node";
/// Key in `userInfo.extra` with the node of the pod that a token is bound to.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// `namespace`: the agents' namespace. RBAC can't compare the name of an object with the node of a token.
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
