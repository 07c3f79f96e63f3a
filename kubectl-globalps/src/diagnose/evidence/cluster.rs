//! Reads the installation, and judges it.

use crate::cli::Asking;
use crate::cluster::namespaces::all_metadata;
use crate::cluster::{Cluster, Facts, installed};
use crate::diagnose::check::{
    Check, Labels, Owners, Permission, PermissionScope, Sight, credentials, has_scopes,
    installation, of_nodes, operators, outdated, permissions, permissions_of_commands, provider,
    readmission, rejected, restarts_kubelets, restarts_often, server,
};
use crate::diagnose::evidence::namespaces::of_namespaces;
use crate::diagnose::evidence::pods::unfinished_pods;
use crate::diagnose::evidence::registries::registries;
use crate::error::{Result, allowed};
use crate::registry::Trust;
use crate::secret::additional::valid_in;
use crate::secret::history::sorted;
use crate::target::history::slots;
use crate::target::pull_secret;
use crate::view::status::Status;
use futures::future::join_all;
use globalps_core::api::{DeliveryType, GlobalPullSecret, Phase};
use globalps_core::machine_config::file_owner;
use globalps_core::names;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{ListParams, PartialObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How soon the controller reports a change of the pull secrets or the configuration: it waits 2 s for a deleted Secret
/// to return, and reports after its writes.
const REPORTS_WITHIN: Duration = Duration::from_secs(15);

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// `asking`: how to contact the registries, if requested.
pub(crate) async fn look(
    asking: Option<(&Asking, Trust)>,
    cluster: &Cluster<'_>,
) -> Result<Vec<Check>> {
    let call = cluster.client.apiserver_version();
    let version = cluster.call("ask the API server", call).await?;
    let minor = version.minor.chars().take_while(char::is_ascii_digit);
    let minor: String = minor.collect();
    let mut checks = server(&version.git_version, minor.parse().ok());
    let (installed, facts, nodes) = Box::pin(async {
        tokio::join!(installed(cluster), Facts::observe(cluster), nodes(cluster),)
    })
    .await;
    let nodes = nodes?;
    let gps = facts.as_ref().ok().and_then(Facts::gps);
    let limit = gps
        .map_or_else(Default::default, |gps| gps.spec.clone())
        .history_limit;
    let reviews = permissions_of_commands(limit).into_iter();
    let answers = join_all(reviews.map(|permission| may(cluster, permission))).await;
    let answers: Vec<(Permission, bool)> = answers.into_iter().collect::<Result<_, _>>()?;
    checks.extend(permissions(&answers, &cluster.namespace));
    // The finding about the permission covers objects that this user may not read.
    let mut facts = allowed(facts)?;
    let now = cluster.now();
    let installed = installed?.with(facts.as_ref());
    let until = Instant::now() + REPORTS_WITHIN;
    while let Some(seen) = &facts
        && outdated(seen, &installed, now).is_some()
        && Instant::now() < until
    {
        tokio::time::sleep(LOOK_EVERY).await;
        facts = Some(Facts::observe(cluster).await?);
    }
    checks.extend(installation(&installed, &cluster.namespace, now));
    if let Some(facts) = &facts {
        checks.extend(outdated(facts, &installed, now));
        let another_changed = facts.was_additional_rolled_out();
        checks.extend(credentials(
            facts.gps(),
            facts.is_in_force(),
            another_changed,
        ));
        if let Some(gps) = facts.gps() {
            let audience = if has_scopes(gps) {
                bound(cluster, names::AUDIENCE_ROLE).await?
            } else {
                Sight::Absent
            };
            let objects = facts.node_secrets.iter();
            let versions = objects.map(|(_, object)| object.spec.kubelet_version.as_str());
            checks.extend(provider(gps, versions, &audience));
            checks.extend(restarts(cluster, gps, now).await?);
            checks.extend(readmitted(cluster, &nodes).await?);
            checks.extend(of_namespaces(cluster, gps).await?);
            let role = if gps.spec.operators.enabled {
                bound(cluster, names::OPERATORS).await?
            } else {
                Sight::Absent
            };
            checks.extend(operators(gps, &role));
        }
        let status = Status::of(facts, now);
        let [lost, unsupported] = [Phase::Unreachable, Phase::Unsupported].map(|phase| {
            let rows = status.nodes.iter().filter(|row| row.phase == phase);
            rows.map(|row| row.name.as_str()).collect::<Vec<_>>()
        });
        let without = (lost.as_slice(), unsupported.as_slice());
        let delivery = facts.gps().map(|gps| gps.spec.kubelet.delivery);
        let owners = Owners {
            is_into_openshift: delivery == Some(DeliveryType::OpenShift),
            ..owners(&nodes)
        };
        checks.extend(of_nodes(facts.node_secrets.iter(), without, owners));
    }
    if let Some((how, trust)) = asking {
        let gps = facts.as_ref().and_then(Facts::gps);
        checks.extend(registries(cluster, gps, how, trust).await?);
    }
    Ok(checks)
}

async fn may(cluster: &Cluster<'_>, permission: Permission) -> Result<(Permission, bool)> {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let namespace = match permission.place {
        PermissionScope::Secrets => cluster.namespace.as_str(),
        PermissionScope::Controller => names::CONTROLLER_NAMESPACE,
        PermissionScope::Cluster => "",
    };
    let (resource, subresource) = permission
        .resource
        .split_once('/')
        .unwrap_or((permission.resource, ""));
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: some(permission.verb),
                group: some(permission.group),
                resource: some(resource),
                subresource: some(subresource),
                name: some(&permission.name),
                namespace: some(namespace),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let params = PostParams::default();
    let call = api.create(&params, &review);
    let answer = cluster.call("ask what this user may do", call).await?;
    let is_allowed = answer.status.is_some_and(|status| status.allowed);
    Ok((permission, is_allowed))
}

/// `None` also if this user may not read the Secrets, which the finding about the permission reports.
async fn restarts(
    cluster: &Cluster<'_>,
    gps: &GlobalPullSecret,
    now: Timestamp,
) -> Result<Option<Check>> {
    if !restarts_kubelets(gps) {
        return Ok(None);
    }
    let secrets = tokio::try_join!(
        slots(cluster, gps.spec.history_limit),
        pull_secret::in_force(cluster),
    );
    let Some((slots, Some(global))) = allowed(secrets)? else {
        return Ok(None);
    };
    let in_force = valid_in(&global, names::DATA_KEY).unwrap_or_default();
    Ok(restarts_often(
        &in_force,
        &sorted(slots, Some(&global)),
        now,
    ))
}

/// The `ClusterRole` of this name, and its binding of the same name.
async fn bound(cluster: &Cluster<'_>, name: &str) -> Result<Sight<()>> {
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    let (role, binding) = tokio::join!(
        cluster.call("get the ClusterRole", roles.get_metadata_opt(name)),
        cluster.call("get its binding", bindings.get_metadata_opt(name)),
    );
    Ok(Sight::of(role)?.and(Sight::of(binding)?).map(drop))
}

/// Empty if this user may not list the Nodes.
async fn nodes(cluster: &Cluster<'_>) -> Result<Vec<PartialObjectMeta<Node>>> {
    let api = Api::<Node>::all(cluster.client.clone());
    let answer = all_metadata(cluster, &api, ListParams::default(), "list the Nodes").await;
    Ok(allowed(answer)?.unwrap_or_default())
}

/// `default` if there are no other owners, or the Nodes are hidden.
fn owners(nodes: &[PartialObjectMeta<Node>]) -> Owners {
    let mut owners = Owners::default();
    for node in nodes {
        let owner = file_owner(
            |name| node.labels().get(name).map(String::as_str),
            |name| node.annotations().get(name).map(String::as_str),
        );
        owners.hypershift += u32::from(node.labels().contains_key(names::NODE_POOL_LABEL));
        owners.in_place += u32::from(owner == names::MACHINE_CONFIG_UPDATE);
        owners.machine_config += u32::from(owner == names::MACHINE_CONFIG_OPERATOR);
    }
    owners
}

/// `None` if this user may not list pods or Nodes.
async fn readmitted(
    cluster: &Cluster<'_>,
    nodes: &[PartialObjectMeta<Node>],
) -> Result<Option<Check>> {
    let labels = nodes.iter();
    let labels: BTreeMap<String, Labels> = labels
        .map(|node| (node.name_any(), node.labels().clone()))
        .collect();
    if labels.is_empty() {
        return Ok(None);
    }
    let mut found = Vec::new();
    let listed = unfinished_pods(cluster, None, |pod| found.extend(rejected(&pod, &labels)));
    Ok(allowed(listed.await)?.map(|()| readmission(found)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_is_one_while_it_lasts() {
        let pool = json!({"hypershift.openshift.io/nodePool": "p"});
        let daemon = |state: &str| {
            json!({
                "machineconfiguration.openshift.io/currentConfig": "c1",
                "machineconfiguration.openshift.io/state": state,
            })
        };
        let nodes = [
            (&pool, daemon("Done")),
            (&pool, daemon("Working")),
            (
                &pool,
                json!({"machineconfiguration.openshift.io/desiredConfig": "c1"}),
            ),
            (&json!({}), daemon("Done")),
            (&json!({}), json!({})),
        ]
        .map(|(labels, annotations)| {
            let metadata = json!({"metadata": {"labels": labels, "annotations": annotations}});
            serde_json::from_value(metadata).expect("a node")
        });
        let found = owners(&nodes);
        assert_eq!(
            (found.hypershift, found.in_place, found.machine_config),
            (3, 2, 1)
        );
    }
}
