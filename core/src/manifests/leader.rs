//! What leader election needs: a Lease that the controller may hold, and an API server that takes a grant from nobody but
//! its holder.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ParamKind, ParamRef, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicySpec, Validation,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::policy::{binding, by_account, writes};
use super::rbac::{role, role_binding, rule};
use super::{named, strings, value};
use crate::names::{
    CONTROLLER, CONTROLLER_NAMESPACE, GLOBAL_SECRET, GROUP, LEADER_ANNOTATION, LEASE, VERSION,
};

/// Name of the policy and of its binding.
const POLICY: &str = "globalps-leader";

pub(super) fn objects(account: (&str, &str)) -> Vec<Value> {
    vec![
        value(role(CONTROLLER, CONTROLLER_NAMESPACE, lease_rules())),
        value(role_binding(CONTROLLER, CONTROLLER_NAMESPACE, account)),
        value(policy(account)),
        value(binding(POLICY, Some(lease()))),
    ]
}

fn lease_rules() -> Vec<PolicyRule> {
    vec![rule(
        "coordination.k8s.io",
        ["leases"],
        [LEASE],
        ["get", "list", "watch", "create", "patch"],
    )]
}

/// A controller that was frozen, or whose write was held up on its way, may not know that another one leads. It never
/// passes this: what it writes names itself, and the Lease names the other.
fn policy(account: (&str, &str)) -> ValidatingAdmissionPolicy {
    ValidatingAdmissionPolicy {
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            param_kind: Some(ParamKind {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
            }),
            match_constraints: Some(MatchResources {
                resource_rules: Some(vec![
                    writes(GROUP, VERSION, ["nodepullsecrets"]),
                    NamedRuleWithOperations {
                        resource_names: Some(strings([GLOBAL_SECRET])),
                        ..writes("", "v1", ["secrets"])
                    },
                ]),
                ..MatchResources::default()
            }),
            match_conditions: Some(vec![by_account("by-the-controller", account)]),
            validations: Some(vec![Validation {
                expression: format!(
                    "has(params.spec.holderIdentity) && has(object.metadata.annotations) && \
                     '{LEADER_ANNOTATION}' in object.metadata.annotations && \
                     object.metadata.annotations['{LEADER_ANNOTATION}'] == params.spec.holderIdentity"
                ),
                message: Some(format!(
                    "another controller leads: the Lease `{LEASE}` does not name this one"
                )),
                ..Validation::default()
            }]),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        ..named(POLICY, "")
    }
}

fn lease() -> ParamRef {
    ParamRef {
        name: Some(LEASE.to_owned()),
        namespace: Some(CONTROLLER_NAMESPACE.to_owned()),
        parameter_not_found_action: Some("Deny".to_owned()),
        ..ParamRef::default()
    }
}
