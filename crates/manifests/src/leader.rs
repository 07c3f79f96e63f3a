//! What leader election needs: a Lease that the controller may hold, and an admission policy that rejects writes of a controller
//! that doesn't hold it.
//!
//! The policy does not read the Lease itself. The API server stops its watch of a built-in kind with the last policy that has it as
//! a parameter, and never starts it again: after a new installation it would know only the old Lease. It always watches
//! `ServiceAccount`s, for itself. So the leader names itself in the annotation of one that nothing else uses.

use globalps_core::names::{
    APPLIED_SECRET, CONTROLLER, CONTROLLER_NAMESPACE, GLOBAL_SECRET, GROUP, HISTORY_SLOTS, HUB,
    HUB_LEADER, LEADER, LEADER_ANNOTATION, LEASE, OPENSHIFT_ORIGINAL, RECORD_SECRET,
    ROLLED_OUT_SECRET, STATE_SECRET, VERSION, history_secret,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::allowed::cel_list;
use super::policy::{Policy, binding, only_named, param, validation, writes_and_deletes};
use super::rbac::{role, role_binding, rule};
use super::{Agent, named, value};

/// Kind of the object that names the leader.
const PARAMS: Option<(&str, &str)> = Some(("v1", "ServiceAccount"));
/// Extra user info of a token that was issued for a pod: the pod's name.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// `delivered`: names of the Secrets in other namespaces.
pub(super) fn objects(account: (&'static str, &str), delivered: &[String]) -> Vec<Value> {
    vec![
        value(leader(LEADER)),
        value(role(
            CONTROLLER,
            CONTROLLER_NAMESPACE,
            rules(vec![LEASE.to_owned()], LEADER),
        )),
        value(role_binding(CONTROLLER, CONTROLLER_NAMESPACE, account)),
        value(policy(account, delivered).build(LEADER)),
        value(binding(LEADER, Some(param(LEADER)))),
    ]
}

/// The object that names the leader. No pod gets a token of it.
fn leader(name: &str) -> ServiceAccount {
    ServiceAccount {
        automount_service_account_token: Some(false),
        ..named(name, CONTROLLER_NAMESPACE)
    }
}

/// Permissions for leader election: these Leases, and the object that names the leader.
pub(super) fn rules(leases: Vec<String>, leader: &str) -> Vec<PolicyRule> {
    let leases = PolicyRule {
        resource_names: Some(leases),
        ..rule(
            "coordination.k8s.io",
            ["leases"],
            [],
            ["get", "list", "watch", "create", "patch"],
        )
    };
    vec![
        leases,
        rule("", ["serviceaccounts"], [leader], ["get", "patch"]),
    ]
}

/// A controller that was frozen, or whose write was delayed, may not know that another one leads. This policy rejects its writes.
/// Objects that move the rollout carry the identity of the process that wrote them. A deletion carries none, and the remaining
/// objects don't need it: for those the API server knows the pod that the token was issued for, and the Lease's holder starts
/// with the pod's name.
fn policy((name, namespace): (&'static str, &str), delivered: &[String]) -> Policy {
    let own = [
        GLOBAL_SECRET,
        ROLLED_OUT_SECRET,
        STATE_SECRET,
        RECORD_SECRET,
        APPLIED_SECRET,
    ];
    let mut secrets: Vec<String> = own.map(str::to_owned).into();
    let others = delivered.iter().filter(|name| *name != GLOBAL_SECRET);
    secrets.extend(others.cloned());
    let naming = cel_list(&secrets);
    secrets.extend((0..HISTORY_SLOTS).map(history_secret));
    secrets.push(OPENSHIFT_ORIGINAL.1.to_owned());
    let agents = Agent::ALL.map(Agent::name);
    Policy {
        params: PARAMS,
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
                "namesItself".to_owned(),
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
fn holder_and_pod() -> [(String, String); 2] {
    [
        (
            "holder".to_owned(),
            format!(
                "has(params.metadata.annotations) ? params.metadata.annotations[?'{LEADER_ANNOTATION}'].orValue('') : ''"
            ),
        ),
        (
            "pod".to_owned(),
            format!(
                "has(request.userInfo.extra) ? request.userInfo.extra[?'{POD_NAME}'][?0].orValue('') : ''"
            ),
        ),
    ]
}

/// Like [`objects`], for the hub: only the leader writes the desired state of each cluster. Revisions need no policy,
/// because they are immutable and have a checksum; writes into a member cluster carry the Secret's `resourceVersion`.
pub(super) fn hub_objects() -> [Value; 3] {
    let policy = Policy {
        params: PARAMS,
        rules: vec![writes_and_deletes(GROUP, VERSION, ["clusterpullsecrets"])],
        accounts: vec![(HUB, CONTROLLER_NAMESPACE.to_owned())],
        variables: holder_and_pod().into(),
        validations: vec![validation(
            format!("another hub leads: the Lease `{HUB}` does not name this one"),
            IS_HOLDER,
        )],
    };
    [
        value(leader(HUB_LEADER)),
        value(policy.build(HUB_LEADER)),
        value(binding(HUB_LEADER, Some(param(HUB_LEADER)))),
    ]
}
