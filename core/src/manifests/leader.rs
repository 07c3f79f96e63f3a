//! What leader election needs: a Lease that the controller may hold, and an admission policy that rejects writes of a controller
//! that doesn't hold it.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::allowed::cel_list;
use super::policy::{Policy, binding, only_named, param, validation, writes_and_deletes};
use super::rbac::{role, role_binding, rule};
use super::{Agent, value};
use crate::names::{
    CONTROLLER, CONTROLLER_NAMESPACE, GLOBAL_SECRET, GROUP, HISTORY_SLOTS, HUB, LEADER_ANNOTATION,
    LEASE, ROLLED_OUT_SECRET, VERSION, history_secret,
};

/// Name of the policy and of its binding.
const POLICY: &str = "globalps-leader";
const HUB_POLICY: &str = "globalps-hub-leader";
/// Extra user info of a token that was issued for a pod: the pod's name.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// `delivered`: names of the Secrets in other namespaces.
pub(super) fn objects(account: (&'static str, &str), delivered: &[String]) -> Vec<Value> {
    vec![
        value(role(CONTROLLER, CONTROLLER_NAMESPACE, lease_rules())),
        value(role_binding(CONTROLLER, CONTROLLER_NAMESPACE, account)),
        value(policy(account, delivered).build(POLICY)),
        value(binding(POLICY, Some(param(LEASE)))),
    ]
}

fn lease_rules() -> Vec<PolicyRule> {
    vec![lease_rule(&[LEASE.to_owned()])]
}

/// What leader election needs on these Leases.
pub(super) fn lease_rule(names: &[String]) -> PolicyRule {
    PolicyRule {
        resource_names: Some(names.to_vec()),
        ..rule(
            "coordination.k8s.io",
            ["leases"],
            [],
            ["get", "list", "watch", "create", "patch"],
        )
    }
}

/// A controller that was frozen, or whose write was delayed, may not know that another one leads. This policy rejects its writes.
/// Objects that move the rollout carry the identity of the process that wrote them. A deletion carries none, and the remaining
/// objects don't need it: for those the API server knows the pod that the token was issued for, and the Lease's holder starts
/// with the pod's name.
fn policy((name, namespace): (&'static str, &str), delivered: &[String]) -> Policy {
    let mut secrets: Vec<String> = vec![GLOBAL_SECRET.to_owned(), ROLLED_OUT_SECRET.to_owned()];
    let others = delivered.iter().filter(|name| *name != GLOBAL_SECRET);
    secrets.extend(others.cloned());
    let naming = cel_list(&secrets);
    secrets.extend((0..HISTORY_SLOTS).map(history_secret));
    let agents = Agent::ALL.map(Agent::name);
    Policy {
        params: Some(("coordination.k8s.io/v1", "Lease")),
        rules: vec![
            writes_and_deletes(GROUP, VERSION, ["nodepullsecrets"]),
            only_named(writes_and_deletes("", "v1", ["secrets"]), &secrets),
            only_named(writes_and_deletes("", "v1", ["serviceaccounts"]), &agents),
            only_named(writes_and_deletes("apps", "v1", ["daemonsets"]), &agents),
            only_named(
                writes_and_deletes("rbac.authorization.k8s.io", "v1", ["roles", "rolebindings"]),
                &agents,
            ),
        ],
        accounts: vec![(name, namespace.to_owned())],
        variables: holder_and_pod()
            .into_iter()
            .chain([(
                "namesItself",
                format!(
                    "request.operation != 'DELETE' && (request.resource.resource == 'nodepullsecrets' || \
                     request.name in {naming})"
                ),
            )])
            .collect(),
        validations: vec![validation(
            format!("another controller leads: the Lease `{LEASE}` does not name this one"),
            format!(
                "variables.holder != '' && (variables.namesItself ? \
                 has(object.metadata.annotations) && '{LEADER_ANNOTATION}' in object.metadata.annotations && \
                 object.metadata.annotations['{LEADER_ANNOTATION}'] == variables.holder : {IS_HOLDER})"
            ),
        )],
    }
}

/// The token was issued for the pod of the Lease's holder.
const IS_HOLDER: &str = "variables.pod != '' && variables.holder.startsWith(variables.pod + '_')";

/// The Lease's holder, and the pod that the token was issued for.
fn holder_and_pod() -> [(&'static str, String); 2] {
    [
        (
            "holder",
            "has(params.spec.holderIdentity) ? params.spec.holderIdentity : ''".to_owned(),
        ),
        (
            "pod",
            format!(
                "has(request.userInfo.extra) ? request.userInfo.extra[?'{POD_NAME}'][?0].orValue('') : ''"
            ),
        ),
    ]
}

/// The same for the hub: only the leader writes what each cluster should have. Revisions need no policy, since they are
/// immutable; writes into a member cluster carry the Secret's `resourceVersion`.
pub(super) fn hub_objects() -> [Value; 2] {
    let policy = Policy {
        params: Some(("coordination.k8s.io/v1", "Lease")),
        rules: vec![writes_and_deletes(GROUP, VERSION, ["clusterpullsecrets"])],
        accounts: vec![(HUB, CONTROLLER_NAMESPACE.to_owned())],
        variables: holder_and_pod().into(),
        validations: vec![validation(
            format!("another hub leads: the Lease `{HUB}` does not name this one"),
            IS_HOLDER,
        )],
    };
    [
        value(policy.build(HUB_POLICY)),
        value(binding(HUB_POLICY, Some(param(HUB)))),
    ]
}
