//! Builders of `ValidatingAdmissionPolicy` objects, for limits that RBAC can't express.

use globalps_core::names::CONTROLLER_NAMESPACE;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ParamKind, ParamRef,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation, Variable,
};

use super::allowed::cel_list;
use super::{named, strings};

/// A policy for some accounts. It fails closed.
#[derive(Default)]
pub(super) struct Policy {
    /// API version and kind of the object that expressions refer to as `params`.
    pub params: Option<(&'static str, &'static str)>,
    pub rules: Vec<NamedRuleWithOperations>,
    /// `ServiceAccount`s, as name and namespace.
    pub accounts: Vec<(&'static str, String)>,
    /// Name and expression; an expression may use the variables before it.
    pub variables: Vec<(String, String)>,
    pub validations: Vec<Validation>,
}

impl Policy {
    pub(super) fn build(self, name: &str) -> ValidatingAdmissionPolicy {
        let users: Vec<String> = self
            .accounts
            .iter()
            .map(|(name, namespace)| format!("system:serviceaccount:{namespace}:{name}"))
            .collect();
        ValidatingAdmissionPolicy {
            spec: Some(ValidatingAdmissionPolicySpec {
                failure_policy: Some("Fail".to_owned()),
                param_kind: self.params.map(|(api_version, kind)| ParamKind {
                    api_version: Some(api_version.to_owned()),
                    kind: Some(kind.to_owned()),
                }),
                match_constraints: Some(MatchResources {
                    resource_rules: Some(self.rules),
                    ..MatchResources::default()
                }),
                match_conditions: Some(vec![MatchCondition {
                    name: "by-our-accounts".to_owned(),
                    expression: format!("request.userInfo.username in {}", cel_list(&users)),
                }]),
                variables: Some(
                    self.variables
                        .into_iter()
                        .map(|(name, expression)| Variable { name, expression })
                        .collect(),
                ),
                validations: Some(self.validations),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            ..named(name, "")
        }
    }
}

/// `message`: what the API server answers if the expression is false.
pub(super) fn validation(message: impl Into<String>, expression: impl Into<String>) -> Validation {
    Validation {
        expression: expression.into(),
        message: Some(message.into()),
        reason: Some("Forbidden".to_owned()),
        ..Validation::default()
    }
}

/// The rule, for objects of these names only. If a parameter can't be read, the API server rejects every matching request before
/// it looks at the account, so the rule must not match objects of other users.
pub(super) fn only_named<S: AsRef<str>>(
    rule: NamedRuleWithOperations,
    names: &[S],
) -> NamedRuleWithOperations {
    NamedRuleWithOperations {
        resource_names: Some(names.iter().map(|name| name.as_ref().to_owned()).collect()),
        ..rule
    }
}

/// Creations and updates of these resources.
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

/// Creations, updates and deletions of these resources.
pub(super) fn writes_and_deletes<const R: usize>(
    group: &str,
    version: &str,
    resources: [&str; R],
) -> NamedRuleWithOperations {
    NamedRuleWithOperations {
        operations: Some(strings(["CREATE", "UPDATE", "DELETE"])),
        ..writes(group, version, resources)
    }
}

/// A parameter in the controller's namespace. Without it the policy is not in force; otherwise no user could delete the
/// objects that the policy protects. The controller itself can't delete a parameter.
pub(super) fn param(name: &str) -> ParamRef {
    ParamRef {
        name: Some(name.to_owned()),
        namespace: Some(CONTROLLER_NAMESPACE.to_owned()),
        parameter_not_found_action: Some("Allow".to_owned()),
        ..ParamRef::default()
    }
}

/// The binding of the policy of the same name.
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
