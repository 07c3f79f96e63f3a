//! What delivery into namespaces needs in addition: permissions of the controller, and the admission policy that attaches the
//! Secret to pods.
//!
//! The policy reads the `GlobalPullSecret` itself. So the controller needs no right on policies, which would amount to a right on
//! every pod.

use globalps_core::api::{Attach, GlobalPullSecret};
use globalps_core::names::{
    EXCLUDE_LABEL, GLOBAL_SECRET, IMAGE_PULL_SECRETS, PATCHER_EXCLUDE_ANNOTATION, ROLLED_OUT_SECRET,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Resource as _;
use serde_json::{Value, json};

use super::rbac::{cluster_role, cluster_role_binding, role, role_binding, rule, service_account};
use super::{meta, value};

/// Delivery into namespaces, as it is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceAccess {
    /// Name of the Secret in each namespace; the controller may write no other.
    pub secret_name: String,
    /// Whether the controller may write to service accounts.
    pub attach: Attach,
    /// Service accounts may still have references, which the controller must be able to remove.
    pub detaches: bool,
}

impl NamespaceAccess {
    /// `namespace`: of the `GlobalPullSecret`. `account`: the controller's, as name and namespace.
    pub(super) fn objects(&self, namespace: &str, account: (&str, &str)) -> Vec<Value> {
        let mut objects = vec![
            value(cluster_role(IMAGE_PULL_SECRETS, self.rules())),
            value(cluster_role_binding(
                IMAGE_PULL_SECRETS,
                service_account(account),
            )),
            // For new namespaces, while new content waits for its canary.
            value(role(
                IMAGE_PULL_SECRETS,
                namespace,
                vec![rule("", ["secrets"], [ROLLED_OUT_SECRET], ["get"])],
            )),
            value(role_binding(IMAGE_PULL_SECRETS, namespace, account)),
        ];
        if self.attach == Attach::Admission {
            objects.extend([policy(), binding(namespace)]);
        }
        objects
    }

    fn rules(&self) -> Vec<PolicyRule> {
        let names = Some(vec![self.secret_name.clone()]);
        let mut rules = vec![
            PolicyRule {
                resource_names: names,
                ..rule(
                    "",
                    ["secrets"],
                    [],
                    ["list", "watch", "create", "patch", "delete"],
                )
            },
            rule(
                "admissionregistration.k8s.io",
                [
                    "mutatingadmissionpolicies",
                    "mutatingadmissionpolicybindings",
                ],
                [IMAGE_PULL_SECRETS],
                ["get"],
            ),
        ];
        if self.attach == Attach::ServiceAccounts || self.detaches {
            let verbs = ["list", "watch", "patch"];
            rules.push(rule("", ["serviceaccounts"], [], verbs));
        }
        rules
    }
}

/// Adds the reference to each new pod. If the policy fails, the pod is created without the reference.
fn policy() -> Value {
    let settings = "params.spec.imagePullSecrets";
    let selector = format!("{settings}.namespaceSelector");
    let metadata = "namespaceObject.metadata";
    let labels = format!("{selector}.matchLabels");
    let expressions = format!("{selector}.matchExpressions");
    let has_key = "e.key in variables.labels";
    let has_value = format!("({has_key} && variables.labels[e.key] in e.values)");
    let is_marked = format!(
        "has({metadata}.annotations) && '{PATCHER_EXCLUDE_ANNOTATION}' in {metadata}.annotations && \
         {metadata}.annotations['{PATCHER_EXCLUDE_ANNOTATION}'] == 'true'"
    );
    let is_selected = format!(
        "!has({selector}) || ((!has({labels}) || {labels}.all(k, k in variables.labels && \
         variables.labels[k] == {labels}[k])) && (!has({expressions}) || {expressions}.all(e, \
         e.operator == 'In' ? {has_value} : e.operator == 'NotIn' ? !{has_value} : \
         e.operator == 'Exists' ? {has_key} : !({has_key}))))"
    );
    let conditions = [
        (
            "enabled",
            format!(
                "has({settings}) && {settings}.enabled && (!has({settings}.attach) || {settings}.attach == 'Admission')"
            ),
        ),
        (
            // A mirror pod: the API server's copy of a static pod.
            "no-mirror-pod",
            "!has(object.metadata.annotations) || !('kubernetes.io/config.mirror' in object.metadata.annotations)"
                .to_owned(),
        ),
        (
            "not-excluded-by-name",
            format!(
                "!{settings}.excludedNamespaces.exists(p, request.namespace.matches('^' + p.replace('*', '.*') + '$'))"
            ),
        ),
        (
            "not-attached-yet",
            format!(
                "!has(object.spec.imagePullSecrets) || !object.spec.imagePullSecrets.exists(s, has(s.name) && \
                 s.name == {settings}.secretName)"
            ),
        ),
    ];
    let conditions =
        conditions.map(|(name, expression)| json!({"name": name, "expression": expression}));
    let patch = format!(
        "variables.isExcluded || !variables.isSelected ? [] : (has(object.spec.imagePullSecrets) ? [] : \
         [JSONPatch{{op: 'add', path: '/spec/imagePullSecrets', value: []}}]) + \
         [JSONPatch{{op: 'add', path: '/spec/imagePullSecrets/-', value: {{'name': {settings}.secretName}}}}]"
    );
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": meta(IMAGE_PULL_SECRETS, ""),
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "IfNeeded",
            "paramKind": {"apiVersion": GlobalPullSecret::api_version(&()), "kind": GlobalPullSecret::kind(&())},
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [
                    {"key": EXCLUDE_LABEL, "operator": "NotIn", "values": ["true"]},
                ]},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
                }],
            },
            "matchConditions": conditions,
            "variables": [
                {"name": "labels", "expression": format!("has({metadata}.labels) ? {metadata}.labels : {{}}")},
                {"name": "isExcluded", "expression": is_marked},
                {"name": "isSelected", "expression": is_selected},
            ],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        },
    })
}

fn binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": meta(IMAGE_PULL_SECRETS, ""),
        "spec": {
            "policyName": IMAGE_PULL_SECRETS,
            "paramRef": {"name": GLOBAL_SECRET, "namespace": namespace, "parameterNotFoundAction": "Allow"},
        },
    })
}
