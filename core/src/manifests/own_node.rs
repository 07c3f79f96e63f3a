//! What binds a syncer to its node: the API server takes a node's status from a pod of that node only.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec, Validation,
};
use serde_json::Value;

use super::policy::{binding, by_account, writes};
use super::{named, value};
use crate::names::{GROUP, SYNCER, VERSION};

/// Name of the policy and of its binding.
const POLICY: &str = "globalps-own-node";
/// What the API server says of a token that was made for a pod: the node of that pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// `namespace`: the syncer's.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    vec![value(policy(namespace)), value(binding(POLICY, None))]
}

/// RBAC knows names of objects, but not that a token's node has the object's name.
fn policy(namespace: &str) -> ValidatingAdmissionPolicy {
    ValidatingAdmissionPolicy {
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(vec![writes(
                    GROUP,
                    VERSION,
                    ["nodepullsecrets", "nodepullsecrets/status"],
                )]),
                ..MatchResources::default()
            }),
            match_conditions: Some(vec![by_account("by-a-syncer", (SYNCER, namespace))]),
            validations: Some(vec![Validation {
                expression: format!(
                    "has(request.userInfo.extra) && \
                     request.userInfo.extra[?'{NODE_NAME}'][?0].orValue('') == request.name"
                ),
                message: Some("a syncer writes the status of its own node only".to_owned()),
                reason: Some("Forbidden".to_owned()),
                ..Validation::default()
            }]),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        ..named(POLICY, "")
    }
}
