//! `ValidatingAdmissionPolicy` objects: what the API server refuses where RBAC can't say it.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, NamedRuleWithOperations, ParamRef, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec,
};

use super::{named, strings};

/// New objects and changes of these resources.
pub(super) fn writes<const R: usize>(
    group: &str,
    version: &str,
    resources: [&str; R],
) -> NamedRuleWithOperations {
    NamedRuleWithOperations {
        api_groups: Some(strings([group])),
        api_versions: Some(strings([version])),
        operations: Some(strings(["CREATE", "UPDATE"])),
        resources: Some(strings(resources)),
        ..NamedRuleWithOperations::default()
    }
}

/// Only what this `ServiceAccount`, given as name and namespace, asks for.
pub(super) fn by_account(condition: &str, (name, namespace): (&str, &str)) -> MatchCondition {
    MatchCondition {
        name: condition.to_owned(),
        expression: format!(
            "request.userInfo.username == 'system:serviceaccount:{namespace}:{name}'"
        ),
    }
}

/// Puts the policy of the same name in force.
pub(super) fn binding(name: &str, param: Option<ParamRef>) -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: Some(name.to_owned()),
            param_ref: param,
            validation_actions: Some(strings(["Deny"])),
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }),
        ..named(name, "")
    }
}
