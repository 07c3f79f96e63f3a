//! RBAC objects, short enough to read a permission in one line.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use super::{named, strings};

/// A rule for resources of one API group; empty `names`: all objects.
pub(super) fn rule<const R: usize, const N: usize, const V: usize>(
    group: &str,
    resources: [&str; R],
    names: [&str; N],
    verbs: [&str; V],
) -> PolicyRule {
    PolicyRule {
        api_groups: Some(strings([group])),
        resources: Some(strings(resources)),
        resource_names: (N > 0).then(|| strings(names)),
        verbs: strings(verbs),
        ..PolicyRule::default()
    }
}

pub(super) fn role(name: &str, namespace: &str, rules: Vec<PolicyRule>) -> Role {
    Role {
        rules: Some(rules),
        ..named(name, namespace)
    }
}

pub(super) fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        rules: Some(rules),
        ..named(name, "")
    }
}

/// Binds the `ClusterRole` of the same name.
pub(super) fn cluster_role_binding(name: &str, subject: Subject) -> ClusterRoleBinding {
    ClusterRoleBinding {
        role_ref: role_ref("ClusterRole", name),
        subjects: Some(vec![subject]),
        ..named(name, "")
    }
}

/// Binds the role of the same name to a `ServiceAccount`, given as name and namespace.
pub(super) fn role_binding(name: &str, namespace: &str, account: (&str, &str)) -> RoleBinding {
    RoleBinding {
        role_ref: role_ref("Role", name),
        subjects: Some(vec![service_account(account)]),
        ..named(name, namespace)
    }
}

pub(super) fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

pub(super) fn service_account((name, namespace): (&str, &str)) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    }
}
