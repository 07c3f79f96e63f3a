//! `migrate`: what imagepullsecret-patcher left in the cluster, and what globalps has in force there.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{Attach, ImagePullSecrets};
use globalps_core::names;
use globalps_core::namespaces::{
    Selected, Selection, config_of, is_marked_excluded, parts_of, parts_of_annotation,
};
use globalps_dockerconfig::parse;
use globalps_provider::{Content, Delivery};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use crate::cluster::Cluster;
use crate::cluster::namespaces::{PartsInForce, each, namespaces, secrets};
use crate::diagnose::check::Sight;
use crate::diagnose::evidence::namespaces::admission_policy;
use crate::error::{Failure, Result};
use crate::secret::additional::data_of;
use crate::secret::migration::{
    self, MANAGED_BY, NamespaceFacts, Old, PATCHER, account, compare, is_patcher, named_by,
};
use crate::target::pull_secret;
use crate::target::pull_secret::content_of;

/// The facts that the migration depends on.
pub(crate) struct Found {
    /// Name of the patcher's Secrets.
    pub secret_name: String,
    /// Name of globalps' Secrets.
    pub ours: String,
    pub attach: Attach,
    /// The patcher's own Deployments.
    pub deployments: Vec<Deployment>,
    /// Namespaces with objects of the patcher.
    pub places: BTreeMap<String, NamespaceFacts>,
    /// Namespaces whose Secret of that name is not the patcher's.
    pub foreign: Vec<String>,
}

/// What globalps delivers.
struct DeliveredSecrets {
    settings: ImagePullSecrets,
    attach: Attach,
    content: Content,
    in_force: PartsInForce,
}

pub(crate) async fn observe(cluster: &Cluster<'_>, secret_name: Option<&str>) -> Result<Found> {
    let deployments = deployments(cluster).await?;
    let named = secret_name.map(str::to_owned);
    let named = named.or_else(|| deployments.iter().find_map(named_by));
    let secret_name = named.unwrap_or_else(|| migration::SECRET_NAME.to_owned());
    let delivered = delivered(cluster).await?;
    let ours = delivered.settings.secret_name.clone();
    if ours == secret_name {
        return Err(Failure::no(
            format!("globalps and {PATCHER} both use the name `{ours}` for their Secrets"),
            "set `spec.imagePullSecrets.enabled: false`, wait, and install again with another name: `kubectl globalps install --deliver-to-namespaces=NAME`",
        ));
    }
    let (mut places, foreign) = old_secrets(cluster, &secret_name, &delivered).await?;
    let is_foreign = |namespace: &String| foreign.contains(namespace);
    let accounts: Api<ServiceAccount> = Api::all(cluster.client.clone());
    let all = ListParams::default();
    each(
        cluster,
        &accounts,
        all,
        "list the ServiceAccounts",
        |found| {
            let namespace = found.namespace().unwrap_or_default();
            if let Some(account) = account(&found, &secret_name, &ours)
                && !is_foreign(&namespace)
            {
                places.entry(namespace).or_default().accounts.push(account);
            }
        },
    )
    .await?;
    judge(cluster, &delivered, &mut places).await?;
    pods(cluster, &secret_name, &ours, &mut places).await?;
    Ok(Found {
        secret_name,
        ours,
        attach: delivered.attach,
        deployments,
        places,
        foreign,
    })
}

async fn deployments(cluster: &Cluster<'_>) -> Result<Vec<Deployment>> {
    let api: Api<Deployment> = Api::all(cluster.client.clone());
    let mut found = Vec::new();
    let all = ListParams::default();
    each(cluster, &api, all, "list the Deployments", |deployment| {
        found.extend(Some(deployment).filter(is_patcher));
    })
    .await?;
    Ok(found)
}

/// Refuses to migrate if globalps has nothing in force.
async fn delivered(cluster: &Cluster<'_>) -> Result<DeliveredSecrets> {
    let gps = pull_secret::installed_configuration(cluster).await?;
    let gps = gps.filter(|gps| gps.spec.image_pull_secrets.enabled);
    let Some(gps) = gps else {
        return Err(Failure::no(
            "namespaces get no pull secrets of globalps yet: `spec.imagePullSecrets.enabled` is false",
            "switch it on with `kubectl globalps install --deliver-to-namespaces`, add the registries, and migrate again",
        ));
    };
    let settings = gps.spec.image_pull_secrets.clone();
    let status = gps.status.as_ref();
    let status = status.and_then(|status| status.image_pull_secrets.as_ref());
    let reported = status.map(|status| status.attach.as_str());
    let attach = match reported {
        Some("ServiceAccounts") => Attach::ServiceAccounts,
        _ => Attach::Admission,
    };
    if attach == Attach::Admission && admission_policy(cluster).await? != Sight::Here(()) {
        return Err(Failure::no(
            "new pods get no reference to the pull secret of globalps: its admission policy is not there, or can't be seen",
            "`kubectl globalps check` says which, and what to do about it; then migrate again",
        ));
    }
    let global = pull_secret::in_force(cluster).await?;
    let bytes = global
        .as_ref()
        .and_then(|global| data_of(global, names::DATA_KEY));
    let (Some(global), Some(bytes)) = (&global, bytes) else {
        return Err(Failure::no(
            "globalps delivers nothing yet: there is no additional pull secret",
            "add the registries with `kubectl globalps add`, and migrate again",
        ));
    };
    Ok(DeliveredSecrets {
        content: content_of(global, bytes, Delivery::ConfigFile)?,
        in_force: PartsInForce::of(global),
        settings,
        attach,
    })
}

/// The patcher's Secrets by namespace, compared with globalps' content there, and namespaces with a foreign Secret of that name.
async fn old_secrets(
    cluster: &Cluster<'_>,
    name: &str,
    delivered: &DeliveredSecrets,
) -> Result<(BTreeMap<String, NamespaceFacts>, Vec<String>)> {
    let api: Api<Secret> = Api::all(cluster.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let doing = format!("list the Secrets `{name}` of every namespace");
    let (mut places, mut foreign) = (BTreeMap::new(), Vec::new());
    each(cluster, &api, params, &doing, |secret: Secret| {
        let namespace = secret.namespace().unwrap_or_default();
        let managed_by = secret.annotations().get(MANAGED_BY);
        if managed_by.is_none_or(|by| by != PATCHER) {
            foreign.push(namespace);
            return;
        }
        let content = &delivered.content;
        let ours = config_of(content, &parts_of(content, &namespace));
        let old = data_of(&secret, names::DATA_KEY).and_then(|bytes| parse(bytes).ok());
        let (missing, different) = compare(&old.unwrap_or_default(), &ours);
        let place = NamespaceFacts {
            old: Some(Old {
                metadata: ObjectMeta {
                    resource_version: secret.metadata.resource_version,
                    uid: secret.metadata.uid,
                    ..ObjectMeta::default()
                },
                missing,
                different,
            }),
            ..NamespaceFacts::default()
        };
        places.insert(namespace, place);
    })
    .await?;
    Ok((places, foreign))
}

/// Records whether globalps has its current content in each of these namespaces.
async fn judge(
    cluster: &Cluster<'_>,
    delivered: &DeliveredSecrets,
    places: &mut BTreeMap<String, NamespaceFacts>,
) -> Result<()> {
    let selection = Selection::new(&delivered.settings)
        .map_err(|why| Failure::no(why, "change it in the GlobalPullSecret"))?;
    let (seen, own) = futures::try_join!(
        namespaces(cluster),
        secrets(cluster, &delivered.settings.secret_name),
    )?;
    // A terminating namespace takes its objects with it.
    places.retain(|name, _| seen.get(name).is_some_and(|seen| !seen.is_terminating));
    for (name, place) in places {
        let Some(seen) = seen.get(name) else {
            continue;
        };
        let is_marked = is_marked_excluded(&seen.labels, &seen.annotations);
        place.is_selected =
            selection.covers(name, || seen.labels.clone(), is_marked) == Selected::Yes;
        let own = own.get(name).filter(|secret| secret.is_ours);
        place.is_synced = own.is_some_and(|secret| {
            let parts = parts_of(&delivered.content, name);
            let scoped = parts
                .iter()
                .filter_map(|at| delivered.content.scoped.get(*at));
            let wanted: BTreeSet<&str> = scoped.map(|scoped| scoped.source.as_str()).collect();
            delivered.in_force.is_in(&secret.content) && sources_of(&secret.content) == wanted
        });
    }
    Ok(())
}

/// Sources with a scope in a Secret with this annotation.
fn sources_of(content: &str) -> BTreeSet<&str> {
    let sources = parts_of_annotation(content).map(|(source, _)| source);
    sources.filter(|source| !source.is_empty()).collect()
}

/// Adds running pods that only refer to the patcher's Secret.
async fn pods(
    cluster: &Cluster<'_>,
    old: &str,
    ours: &str,
    places: &mut BTreeMap<String, NamespaceFacts>,
) -> Result<()> {
    let api: Api<Pod> = Api::all(cluster.client.clone());
    let running = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    each(cluster, &api, running, "list the pods", |pod| {
        if let Some(place) = places.get_mut(&pod.namespace().unwrap_or_default())
            && refers_to_old_only(&pod, old, ours)
        {
            place.pods.push(pod.name_any());
        }
    })
    .await
}

fn refers_to_old_only(pod: &Pod, old: &str, ours: &str) -> bool {
    let has = |name: &str| {
        let spec = pod.spec.as_ref();
        let mut references = spec
            .and_then(|spec| spec.image_pull_secrets.as_ref())
            .into_iter()
            .flatten();
        references.any(|reference| reference.name == name)
    };
    pod.metadata.deletion_timestamp.is_none() && has(old) && !has(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_needs_the_old_secret_where_it_refers_to_no_other() {
        for (references, expected) in [
            (json!([{"name": "old"}]), true),
            (json!([{"name": "x"}, {"name": "old"}]), true),
            (json!([{"name": "old"}, {"name": "ours"}]), false),
            (json!([]), false),
        ] {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "imagePullSecrets": references}});
            let pod: Pod = serde_json::from_value(pod).expect("a Pod");
            assert_eq!(
                refers_to_old_only(&pod, "old", "ours"),
                expected,
                "{references}"
            );
        }
    }

    #[test]
    fn the_annotation_names_the_sources() {
        assert_eq!(sources_of("3,a@4,b@5"), ["a", "b"].into());
        assert_eq!(sources_of("3"), BTreeSet::new());
    }
}
