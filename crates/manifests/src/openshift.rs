//! What `OpenShift` needs in addition: its pods may run, and the controller may write into the cluster's own pull secret.

use globalps_core::api::DeliveryType;
use globalps_core::names::{
    CONTROLLER, CONTROLLER_NAMESPACE, MACHINE_CONFIG_GROUP, OPENSHIFT_ORIGINAL,
};
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::Value;

use super::rbac::{
    cluster_role, cluster_role_binding, role, role_binding, role_ref, rule, service_account,
};
use super::{Agent, value};

/// Everything that an installation may have on `OpenShift`, with the agents of every delivery.
pub fn openshift(namespace: &str) -> Vec<Value> {
    let mut objects = pull_secret();
    objects.extend(constraints(namespace, &Agent::ALL));
    objects
}

/// What this delivery needs. `is_openshift`: the cluster has `SecurityContextConstraints`. Two deliveries exist only there.
pub(super) fn objects(namespace: &str, delivery: DeliveryType, is_openshift: bool) -> Vec<Value> {
    let mut objects = Vec::new();
    if delivery == DeliveryType::OpenShift {
        objects.extend(pull_secret());
    }
    if is_openshift || delivery.is_observed() {
        objects.extend(constraints(namespace, Agent::of(delivery)));
    }
    objects
}

/// The controller may write into that one Secret, and read which pools are paused.
fn pull_secret() -> Vec<Value> {
    let (namespace, secret) = OPENSHIFT_ORIGINAL;
    let name = format!("{CONTROLLER}-pull-secret");
    let rules = vec![rule("", ["secrets"], [secret], ["list", "watch", "patch"])];
    let account = (CONTROLLER, CONTROLLER_NAMESPACE);
    let pools = format!("{CONTROLLER}-pools");
    let read_pools = rule(
        MACHINE_CONFIG_GROUP,
        ["machineconfigpools"],
        [],
        ["list", "watch"],
    );
    vec![
        value(cluster_role(&pools, vec![read_pools])),
        value(cluster_role_binding(&pools, service_account(account))),
        value(role(&name, namespace, rules)),
        value(role_binding(&name, namespace, account)),
    ]
}

/// The controller is not root. The agents need a directory of the node.
fn constraints(namespace: &str, agents: &[Agent]) -> Vec<Value> {
    let controller = constraint("nonroot-v2", (CONTROLLER, CONTROLLER_NAMESPACE));
    let agents = agents.iter().map(|agent| (agent.name(), namespace));
    let agents = agents.map(|account| constraint("privileged", account));
    let all = std::iter::once(controller).chain(agents);
    all.map(value).collect()
}

/// Lets the account's pods run under this `SecurityContextConstraints`. `OpenShift` has the `ClusterRole`.
fn constraint(name: &str, account: (&str, &str)) -> RoleBinding {
    RoleBinding {
        role_ref: role_ref("ClusterRole", &format!("system:openshift:scc:{name}")),
        ..role_binding(&format!("{}-scc", account.0), account.1, account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_of_a_delivery_may_run_and_one_delivery_writes_the_pull_secret() {
        use DeliveryType::{ConfigFile, Observe, OpenShift};
        let names = |objects: Vec<Value>| -> Vec<String> {
            let name = |object: Value| {
                let metadata = &object["metadata"];
                let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
                let role = object["roleRef"]["name"].as_str().unwrap_or("Role");
                let role = role.rsplit(':').next().unwrap_or_default();
                format!("{}/{} {role}", text("namespace"), text("name"))
            };
            objects.into_iter().map(name).collect()
        };
        let controller = "globalps-system/globalps-controller-scc nonroot-v2";
        let syncers = [
            "s/global-pull-secret-syncer-scc privileged",
            "s/global-pull-secret-restorer-scc privileged",
        ];
        let observer = "s/globalps-observer-scc privileged";
        let writes = [
            "/globalps-controller-pools Role",
            "/globalps-controller-pools globalps-controller-pools",
            "openshift-config/globalps-controller-pull-secret Role",
            "openshift-config/globalps-controller-pull-secret globalps-controller-pull-secret",
        ];
        let all = [&writes[..], &[controller], &syncers, &[observer]].concat();
        assert_eq!(names(openshift("s")), all);
        for (delivery, is_openshift, expected) in [
            (ConfigFile, false, vec![]),
            (ConfigFile, true, [&[controller][..], &syncers].concat()),
            (Observe, false, vec![controller, observer]),
            (
                OpenShift,
                true,
                [&writes[..], &[controller, observer]].concat(),
            ),
        ] {
            let found = names(objects("s", delivery, is_openshift));
            assert_eq!(found, expected, "{delivery:?}");
        }
    }
}
