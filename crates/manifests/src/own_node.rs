//! Binds an agent to its node: the API server accepts a node's status only from a pod on that node.

use globalps_core::names::{GROUP, VERSION};
use serde_json::Value;

use super::policy::{Policy, binding, validation, writes};
use super::{Agent, value};

/// Name of the policy and of its binding.
const POLICY: &str = "globalps-own-node";
/// Extra user info of a token that was issued for a pod: the pod's node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// `namespace`: the agents'. RBAC can restrict names of objects, but not compare them with the token's node.
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
            "a syncer may only write the status of its own node",
            format!(
                "has(request.userInfo.extra) && \
                 request.userInfo.extra[?'{NODE_NAME}'][?0].orValue('') == request.name"
            ),
        )],
        ..Policy::default()
    };
    vec![value(policy.build(POLICY)), value(binding(POLICY, None))]
}
