//! The identity of the hub in a member cluster, and the kubeconfig that the hub gets of it. Pure.

use globalps_core::names;
use k8s_openapi::ByteString;
use kube::config::{Cluster as Server, Kubeconfig};
use serde_json::{Value, json};

use crate::error::{Failure, Result};

/// Cluster-scoped objects in a member: another name than the hub's own have, as a member may be a hub too.
pub(crate) const MEMBER: &str = "globalps-hub-member";
/// Secret with the token of the hub's `ServiceAccount`.
pub(crate) const TOKEN_SECRET: &str = "globalps-hub-token";

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

fn object(api_version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "globalps"},
        },
    })
}

fn with(mut object: Value, fields: &Value) -> Value {
    json_patch::merge(&mut object, fields);
    // The merge drops a null, but not one that was there before.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    object
}

/// What the hub needs in a member, in the order in which it is applied: the policy is in force before any permission is.
pub(crate) fn objects() -> Vec<Value> {
    let namespace = Some(names::NAMESPACE);
    let rbac = format!("{RBAC}/v1");
    let subjects =
        json!([{"kind": "ServiceAccount", "name": names::HUB, "namespace": names::NAMESPACE}]);
    let rule = |group: &str, resource: &str, name: &str, verbs: &[&str]| {
        json!({
            "apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs,
        })
    };
    // The name binds `create` too: a server-side apply names the object in its path.
    let secret = ["get", "list", "watch", "create", "patch", "delete"];
    let rules = json!([
        rule("", "secrets", names::ADDITIONAL_SECRET, &secret),
        rule(
            names::GROUP,
            "globalpullsecrets",
            names::GLOBAL_SECRET,
            &["list", "watch"],
        ),
    ]);
    let role_ref = |kind: &str, name: &str| json!({"apiGroup": RBAC, "kind": kind, "name": name});
    let mut objects = vec![object("v1", "ServiceAccount", names::HUB, namespace)];
    objects.extend(policy());
    objects.extend([
        with(
            object(&rbac, "Role", names::HUB, namespace),
            &json!({"rules": rules}),
        ),
        with(
            object(&rbac, "RoleBinding", names::HUB, namespace),
            &json!({"roleRef": role_ref("Role", names::HUB), "subjects": subjects}),
        ),
        with(
            object(&rbac, "ClusterRole", MEMBER, None),
            &json!({"rules": [rule("", "namespaces", names::NAMESPACE, &["get"])]}),
        ),
        with(
            object(&rbac, "ClusterRoleBinding", MEMBER, None),
            &json!({"roleRef": role_ref("ClusterRole", MEMBER), "subjects": subjects}),
        ),
        with(
            object("v1", "Secret", TOKEN_SECRET, namespace),
            &json!({
                "metadata": {"annotations": {"kubernetes.io/service-account.name": names::HUB}},
                "type": "kubernetes.io/service-account-token",
            }),
        ),
    ]);
    objects.into_iter().map(|it| with(it, &json!({}))).collect()
}

/// Who may delete, create and read a Secret could otherwise make it a token of any `ServiceAccount` of the namespace.
fn policy() -> [Value; 2] {
    let version = format!("{ADMISSION}/v1");
    let user = format!("system:serviceaccount:{}:{}", names::NAMESPACE, names::HUB);
    let expression = format!(
        "object.metadata.name == '{}' && object.type == '{}'",
        names::ADDITIONAL_SECRET,
        names::SECRET_TYPE
    );
    let message = format!(
        "the hub writes Secret `{}` of type `{}` only",
        names::ADDITIONAL_SECRET,
        names::SECRET_TYPE
    );
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["secrets"],
    });
    let condition = format!("request.userInfo.username == '{user}'");
    [
        with(
            object(&version, "ValidatingAdmissionPolicy", MEMBER, None),
            &json!({"spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [{"name": "by-the-hub", "expression": condition}],
                "validations": [
                    {"expression": expression, "message": message, "reason": "Forbidden"},
                ],
            }}),
        ),
        with(
            object(&version, "ValidatingAdmissionPolicyBinding", MEMBER, None),
            &json!({"spec": {"policyName": MEMBER, "validationActions": ["Deny"]}}),
        ),
    ]
}

/// The cluster of the kubeconfig's context.
pub(crate) fn server_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<Server> {
    let hint = "name a context with `--member-context`";
    let context = context.or(kubeconfig.current_context.as_deref());
    let Some(wanted) = context else {
        let message = "the member's kubeconfig has no current context";
        return Err(Failure::new(message, hint));
    };
    let named = kubeconfig.contexts.iter().find(|it| it.name == wanted);
    let context = named.and_then(|it| it.context.as_ref());
    let cluster = context.and_then(|context| {
        let mut clusters = kubeconfig.clusters.iter();
        clusters
            .find(|it| it.name == context.cluster)?
            .cluster
            .clone()
    });
    cluster.filter(|it| it.server.is_some()).ok_or_else(|| {
        let message =
            format!("the member's kubeconfig has no context `{wanted}`, or no server for it");
        Failure::new(message, hint)
    })
}

/// Where the hub reaches a member.
pub(crate) struct Access {
    pub server: String,
    /// PEM, in Base64; `None`: the certificate is of a public authority.
    pub authority: Option<String>,
    pub tls_server_name: Option<String>,
}

/// A kubeconfig with this token. JSON is YAML too.
pub(crate) fn kubeconfig(name: &str, access: &Access, token: &str) -> Value {
    let mut cluster = json!({"server": access.server});
    for (key, value) in [
        ("certificate-authority-data", &access.authority),
        ("tls-server-name", &access.tls_server_name),
    ] {
        if let Some(value) = value {
            cluster[key] = json!(value);
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": names::HUB, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": names::HUB}}],
        "current-context": name,
    })
}

/// The Secret on the hub that registers the cluster.
pub(crate) fn registration(
    namespace: &str,
    name: &str,
    labels: &[(String, String)],
    kubeconfig: &Value,
) -> Value {
    let mut secret = object("v1", "Secret", name, Some(namespace));
    secret["type"] = json!("Opaque");
    let bytes = ByteString(kubeconfig.to_string().into_bytes());
    secret["data"] = json!({names::CLUSTER_KUBECONFIG_KEYS[0]: bytes});
    let all = &mut secret["metadata"]["labels"];
    for (key, value) in labels {
        all[key] = json!(value);
    }
    all[names::CLUSTER_LABEL] = json!("true");
    secret
}

/// Whether another machine would reach itself at this address.
pub(crate) fn is_loopback(server: &str) -> bool {
    let uri = server.parse::<hyper::Uri>().ok();
    let host = uri.as_ref().and_then(hyper::Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.is_loopback() || it.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_may_touch_one_secret_and_read_two_objects() {
        let mut found = Vec::new();
        for object in objects() {
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
        let objects = objects();
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
    fn the_server_is_that_of_the_context() {
        let kubeconfig = Kubeconfig::from_yaml(
            "{apiVersion: v1, kind: Config, current-context: a, \
             contexts: [{name: a, context: {cluster: one, user: u}}, {name: b, context: {cluster: two, user: u}}, \
             {name: c, context: {cluster: three, user: u}}], \
             clusters: [{name: one, cluster: {server: 'https://one'}}, {name: two, cluster: {server: 'https://two'}}]}",
        )
        .expect("a kubeconfig");
        for (context, expected) in [
            (None, Some("https://one")),
            (Some("b"), Some("https://two")),
            (Some("c"), None),
            (Some("d"), None),
        ] {
            let found = server_of(&kubeconfig, context).ok();
            let found = found.and_then(|it| it.server);
            assert_eq!(found.as_deref(), expected, "{context:?}");
        }
    }

    #[test]
    fn the_secret_on_the_hub_has_a_kubeconfig_and_labels() {
        let access = Access {
            server: "https://m1:6443".to_owned(),
            authority: Some("Q0E=".to_owned()),
            tls_server_name: None,
        };
        let config = kubeconfig("m1", &access, "t0ken");
        let labels = [
            ("env".to_owned(), "prod".to_owned()),
            (names::CLUSTER_LABEL.to_owned(), "false".to_owned()),
        ];
        let secret = registration("clusters", "m1", &labels, &config);
        assert_eq!(
            secret["metadata"],
            json!({
                "name": "m1", "namespace": "clusters",
                "labels": {
                    "app.kubernetes.io/managed-by": "globalps", "env": "prod",
                    "globalps.io/cluster": "true",
                },
            })
        );
        let data = secret["data"]["value"].clone();
        let ByteString(bytes) = serde_json::from_value(data).expect("Base64");
        let text = String::from_utf8(bytes).expect("text");
        let read = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let server = server_of(&read, None).expect("a server");
        assert_eq!(server.server.as_deref(), Some("https://m1:6443"));
        assert_eq!(server.certificate_authority_data.as_deref(), Some("Q0E="));
        assert!(text.contains("t0ken"));
    }

    #[test]
    fn an_address_of_this_machine_is_found() {
        for (server, expected) in [
            ("https://127.0.0.1:6443", true),
            ("https://localhost", true),
            ("https://[::1]:6443", true),
            ("https://0.0.0.0:6443", true),
            ("https://10.0.0.1:6443", false),
            ("https://m1.example.com", false),
        ] {
            assert_eq!(is_loopback(server), expected, "{server}");
        }
    }
}
