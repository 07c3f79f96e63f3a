//! What `fleet join` creates: the identity of the hub in a member cluster, and the Secret on the hub that registers the cluster.

use std::collections::BTreeMap;

use globalps_core::names::{
    ADDITIONAL_SECRET, CLUSTER_KUBECONFIG_KEYS, CLUSTER_LABEL, GLOBAL_SECRET, GROUP, HUB,
    NAMESPACE, SECRET_TYPE,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::policy::{Policy, binding, validation, writes};
use super::rbac::{cluster_role, cluster_role_binding, role, role_binding, rule, service_account};
use super::{named, value};

/// Cluster-scoped objects in a member: another name than the hub's own have, as a member may be a hub too.
const MEMBER: &str = "globalps-hub-member";
/// Secret with the token of the hub's `ServiceAccount` in a member.
pub const HUB_TOKEN_SECRET: &str = "globalps-hub-token";

/// What the hub needs in a member, in the order in which it is applied: the policy is in force before any permission is.
pub fn hub_member() -> Vec<Value> {
    let account = (HUB, NAMESPACE);
    // The name binds `create` too: a server-side apply names the object in its path.
    let verbs = ["get", "list", "watch", "create", "patch", "delete"];
    let rules = vec![
        rule("", ["secrets"], [ADDITIONAL_SECRET], verbs),
        rule(
            GROUP,
            ["globalpullsecrets"],
            [GLOBAL_SECRET],
            ["list", "watch"],
        ),
    ];
    let namespaces = vec![rule("", ["namespaces"], [NAMESPACE], ["get"])];
    let mut token: Secret = named(HUB_TOKEN_SECRET, NAMESPACE);
    let of_hub = (
        "kubernetes.io/service-account.name".to_owned(),
        HUB.to_owned(),
    );
    token.metadata.annotations = Some([of_hub].into());
    token.type_ = Some("kubernetes.io/service-account-token".to_owned());
    vec![
        value(named::<ServiceAccount>(HUB, NAMESPACE)),
        value(policy().build(MEMBER)),
        value(binding(MEMBER, None)),
        value(role(HUB, NAMESPACE, rules)),
        value(role_binding(HUB, NAMESPACE, account)),
        value(cluster_role(MEMBER, namespaces)),
        value(cluster_role_binding(MEMBER, service_account(account))),
        value(token),
    ]
}

/// Who may delete, create and read a Secret could otherwise make it a token of any `ServiceAccount` of the namespace.
fn policy() -> Policy {
    let message =
        format!("the hub writes Secret `{ADDITIONAL_SECRET}` of type `{SECRET_TYPE}` only");
    let expression =
        format!("object.metadata.name == '{ADDITIONAL_SECRET}' && object.type == '{SECRET_TYPE}'");
    Policy {
        rules: vec![writes("", "v1", ["secrets"])],
        accounts: vec![(HUB, NAMESPACE.to_owned())],
        validations: vec![validation(message, expression)],
        ..Policy::default()
    }
}

/// The Secret on the hub that registers the cluster of this name, with these labels.
pub fn hub_registration(
    namespace: &str,
    name: &str,
    labels: &[(String, String)],
    kubeconfig: &Value,
) -> Value {
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut all = BTreeMap::from([text("app.kubernetes.io/managed-by", "globalps")]);
    all.extend(labels.iter().cloned());
    all.extend([text(CLUSTER_LABEL, "true")]);
    let bytes = ByteString(kubeconfig.to_string().into_bytes());
    value(Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(all),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some([(CLUSTER_KUBECONFIG_KEYS[0].to_owned(), bytes)].into()),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_hub_may_touch_one_secret_and_read_two_objects() {
        let mut found = Vec::new();
        for object in hub_member() {
            let kind = object["kind"].as_str().unwrap_or_default();
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            for rule in rules {
                let words = |key: &str| {
                    let words = rule[key].as_array().expect("a list").iter();
                    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
                    words.join(",")
                };
                found.push(format!(
                    "{kind} {} {}: {}",
                    words("resources"),
                    words("resourceNames"),
                    words("verbs")
                ));
            }
        }
        assert_eq!(
            found,
            [
                "Role secrets additional-pull-secret: get,list,watch,create,patch,delete",
                "Role globalpullsecrets global-pull-secret: list,watch",
                "ClusterRole namespaces kube-system: get",
            ]
        );
    }

    #[test]
    fn the_policy_is_applied_before_the_permissions() {
        let objects = hub_member();
        let titles: Vec<String> = objects
            .iter()
            .map(|it| {
                let metadata = &it["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or("-");
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                format!(
                    "{} {namespace} {}",
                    text(&it["kind"]),
                    text(&metadata["name"])
                )
            })
            .collect();
        assert_eq!(
            titles,
            [
                "ServiceAccount kube-system globalps-hub",
                "ValidatingAdmissionPolicy - globalps-hub-member",
                "ValidatingAdmissionPolicyBinding - globalps-hub-member",
                "Role kube-system globalps-hub",
                "RoleBinding kube-system globalps-hub",
                "ClusterRole - globalps-hub-member",
                "ClusterRoleBinding - globalps-hub-member",
                "Secret kube-system globalps-hub-token",
            ]
        );
        assert!(objects.iter().all(|it| !it.to_string().contains("null")));
    }

    #[test]
    fn the_policy_lets_the_hub_write_one_secret_of_one_type() {
        let objects = hub_member();
        let (policy, binding) = (&objects[1], &objects[2]);
        let spec = &policy["spec"];
        assert_eq!(spec["failurePolicy"], "Fail");
        assert_eq!(
            spec["matchConditions"][0]["expression"],
            r#"request.userInfo.username in ["system:serviceaccount:kube-system:globalps-hub"]"#
        );
        assert_eq!(
            spec["validations"],
            json!([{
                "expression": "object.metadata.name == 'additional-pull-secret' && object.type == 'kubernetes.io/dockerconfigjson'",
                "message": "the hub writes Secret `additional-pull-secret` of type `kubernetes.io/dockerconfigjson` only",
                "reason": "Forbidden",
            }])
        );
        assert_eq!(
            spec["matchConstraints"]["resourceRules"],
            json!([{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["secrets"],
            }])
        );
        assert_eq!(
            binding["spec"],
            json!({"policyName": "globalps-hub-member", "validationActions": ["Deny"]})
        );
    }

    #[test]
    fn the_secret_on_the_hub_has_a_kubeconfig_and_labels() {
        let labels = [
            ("env".to_owned(), "prod".to_owned()),
            (CLUSTER_LABEL.to_owned(), "false".to_owned()),
        ];
        let secret = hub_registration("clusters", "m1", &labels, &json!({"token": "t0ken"}));
        assert_eq!(
            secret,
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "Opaque",
                "metadata": {
                    "name": "m1", "namespace": "clusters",
                    "labels": {
                        "app.kubernetes.io/managed-by": "globalps", "env": "prod",
                        "globalps.io/cluster": "true",
                    },
                },
                "data": {"value": "eyJ0b2tlbiI6InQwa2VuIn0="},
            })
        );
    }
}
