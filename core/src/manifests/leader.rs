//! Leader election: permissions on the Lease, and a policy by which the API server accepts writes only from the Lease's holder.

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
/// Key in `userInfo.extra` with the name of the pod that a token is bound to.
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

/// Permissions on these Leases for leader election.
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

/// Rejects writes of a controller that no longer leads: it was frozen, or its request was delayed.
///
/// Objects that move the rollout carry the writer's identity in an annotation, and the policy compares it with the Lease's
/// holder. For deletions and for all other objects the policy compares pods: the token is bound to a pod, and the holder's
/// identity begins with its pod's name.
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

/// CEL: the token is bound to the pod of the Lease's holder.
const IS_HOLDER: &str = "variables.pod != '' && variables.holder.startsWith(variables.pod + '_')";

/// CEL variables: the Lease's holder, and the pod that the token is bound to.
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

/// The hub's policy: only the leader writes `ClusterPullSecret`s. Other writes need no policy: revisions are immutable, and
/// each write into a member cluster carries the `resourceVersion` of the Secret that it replaces.
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
