//! Limits of the controller's account. RBAC lets it write a `DaemonSet` in `kube-system`, which means any image, any
//! `ServiceAccount` and any directory of every node. These policies restrict it to the fields and values that it needs to write.
//!
//! They also bind the agents' accounts, because the controller writes their Roles. The controller has no right on the policies.

use serde_json::{Value, json};

use super::agent_bounds::{daemon_set, role, role_binding};
use super::allowed::{Allowed, cel_list};
use super::policy::{Policy, binding, only_named, validation, writes};
use super::shape::{Shape, Values};
use super::{Agent, value};
use globalps_core::names::{
    CONTROLLER, CONTROLLER_NAMESPACE, IMAGE_PULL_SECRET_LABEL, OPERATOR_SECRET_LABEL, SECRET_TYPE,
};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Prefix of globalps' annotations, on which no other program acts.
pub(super) const OWN: &str = "globalps.io/";

/// `namespace`: the agents' namespace, `image`: their image. `delivered`: names of the Secrets in other namespaces.
pub(super) fn objects(
    namespace: &str,
    image: &str,
    allowed: &Allowed,
    delivered: &[String],
) -> Vec<Value> {
    let mut accounts = vec![(CONTROLLER, CONTROLLER_NAMESPACE.to_owned())];
    accounts.extend(Agent::ALL.map(|agent| (agent.name(), namespace.to_owned())));
    let agents = Agent::ALL.map(Agent::name);
    // The image has a rule and a variable of its own: other programs that install globalps replace it there.
    let with_image = Policy {
        variables: vec![("image".to_owned(), json!(image).to_string())],
        validations: vec![validation(
            "the image must be the one that globalps was installed with; another one needs `kubectl globalps install`",
            "object.spec.template.spec.containers.all(c, c.name != 'syncer' || c.image == variables.image || \
             (oldObject != null && oldObject.spec.template.spec.containers.exists(o, o.name == 'syncer' && o.image == c.image)))",
        )],
        ..Policy::default()
    };
    let plain = Policy::default;
    let policies = [
        (
            "globalps-daemonsets",
            only_named(writes("apps", "v1", ["daemonsets"]), &agents),
            with_image,
            daemon_set(namespace, allowed),
        ),
        (
            "globalps-roles",
            writes(RBAC, "v1", ["roles"]),
            plain(),
            role(),
        ),
        (
            "globalps-rolebindings",
            writes(RBAC, "v1", ["rolebindings"]),
            plain(),
            role_binding(namespace),
        ),
        (
            "globalps-serviceaccounts",
            writes("", "v1", ["serviceaccounts"]),
            plain(),
            service_account(delivered),
        ),
        (
            "globalps-secrets",
            writes("", "v1", ["secrets"]),
            plain(),
            secret(),
        ),
    ];
    let mut objects = Vec::new();
    for (name, rule, policy, shape) in policies {
        let (variables, refused) = shape.rules();
        let policy = Policy {
            rules: vec![rule],
            accounts: accounts.clone(),
            variables: [policy.variables, variables].concat(),
            validations: [policy.validations, vec![refused]].concat(),
            ..policy
        };
        objects.push(value(policy.build(name)));
        objects.push(value(binding(name, None)));
    }
    objects
}

/// A whole object: its type, this metadata, and these fields.
pub(super) fn object(metadata: Shape) -> Shape {
    Shape::default()
        .with("apiVersion", Values::Any)
        .with("kind", Values::Any)
        .with("metadata", Values::Fields(metadata))
}

/// Clouds map a service account to a cloud identity by its annotations and labels. A pod of an account gets the account's token
/// unless the account says otherwise.
fn service_account(delivered: &[String]) -> Shape {
    let allowed = format!("i.all(k, k == 'name') && i.name in {}", cel_list(delivered));
    object(agent_metadata()).with("imagePullSecrets", Values::Items(allowed))
}

/// Kubernetes fills a Secret of type `kubernetes.io/service-account-token` with the token of any account it names.
fn secret() -> Shape {
    let labels: [(&str, &[&str]); 3] = [
        (IMAGE_PULL_SECRET_LABEL, &["true"]),
        (OPERATOR_SECRET_LABEL, &["true"]),
        ("app.kubernetes.io/managed-by", &[CONTROLLER]),
    ];
    // Copies for operators go with the operator.
    let owner = "i.all(k, k in ['apiVersion', 'kind', 'name', 'uid']) && i.kind == 'ClusterServiceVersion' && \
                 i.apiVersion.startsWith('operators.coreos.com/')";
    let metadata = Shape::metadata(&labels, Shape::keys(OWN))
        .with("ownerReferences", Values::Items(owner.to_owned()));
    object(metadata)
        .with("data", Values::Any)
        .with("type", Values::OneOf(cel_list(&[SECRET_TYPE])))
}

/// The metadata of the agents' objects.
pub(super) fn agent_metadata() -> Shape {
    let labels: [(&str, &[&str]); 2] = [
        ("app.kubernetes.io/name", &["globalps"]),
        ("app.kubernetes.io/managed-by", &["globalps"]),
    ];
    Shape::metadata(&labels, Shape::keys(OWN))
}
