//! `check`: reads the state of delivery to namespaces.

use std::collections::BTreeMap;

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use globalps_core::namespaces::{Selected, Selection, config_of, is_marked_excluded, parts_of};
use globalps_dockerconfig::attempts;
use globalps_provider::Delivery;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};

use crate::cluster::Cluster;
use crate::cluster::namespaces::{NamespaceSeen, each, namespaces, secrets};
use crate::diagnose::check::{
    Check, Delivering, EarlyPod, RoleSeen, Sight, early_pod, namespaces as judged,
};
use crate::diagnose::evidence::delivered::attach_of;
use crate::error::{Result, allowed, or_absent};
use crate::secret::additional::data_of;
use crate::target::pull_secret::{self, content_of};

/// No checks if namespaces get no Secrets.
pub(crate) async fn of_namespaces(
    cluster: &Cluster<'_>,
    gps: &GlobalPullSecret,
) -> Result<Vec<Check>> {
    let settings = &gps.spec.image_pull_secrets;
    if !settings.enabled {
        return Ok(Vec::new());
    }
    let name = &settings.secret_name;
    let (role, policy, seen, secrets, pods) = Box::pin(async {
        tokio::join!(
            role(cluster, name),
            admission_policy(cluster),
            namespaces(cluster),
            secrets(cluster, name),
            early_pods(cluster, gps),
        )
    })
    .await;
    let seen = Sight::of(seen.map(Some))?;
    let selection = Selection::new(settings).ok();
    let is_selected = |namespace: &str| is_selected(&seen, selection.as_ref(), namespace);
    let secrets = Sight::of(secrets.map(Some))?;
    let pods = Sight::of(pods.map(Some))?;
    let delivering = Delivering {
        role: role?,
        policy: policy?,
        foreign: secrets.map(|secrets| {
            let foreign = secrets.into_iter().filter(|(_, secret)| !secret.is_ours);
            let namespaces = foreign.map(|(namespace, _)| namespace);
            namespaces.filter(|name| is_selected(name)).collect()
        }),
        early: pods.map(|pods| {
            let pods = pods.into_iter();
            pods.filter(|pod| is_selected(&pod.namespace)).collect()
        }),
    };
    Ok(judged(gps, &delivering))
}

async fn early_pods(cluster: &Cluster<'_>, gps: &GlobalPullSecret) -> Result<Vec<EarlyPod>> {
    let global = allowed(pull_secret::get(cluster, names::GLOBAL_SECRET).await)?.flatten();
    let content = global.and_then(|global| {
        let bytes = data_of(&global, names::DATA_KEY)?;
        content_of(&global, bytes, Delivery::ConfigFile).ok()
    });
    let mut of_namespaces = BTreeMap::new();
    // Without the content, such as for a user who may not read it, every image counts.
    let mut has = |namespace: &str, image: &str| {
        content.as_ref().is_none_or(|content| {
            let config = of_namespaces
                .entry(namespace.to_owned())
                .or_insert_with(|| config_of(content, &parts_of(content, namespace)));
            attempts(&[&*config], image).is_ok_and(|found| !found.is_empty())
        })
    };
    let (settings, attach) = (&gps.spec.image_pull_secrets, attach_of(gps));
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    // A pod whose container waits for its image is pending.
    let pending = ListParams::default().fields("status.phase=Pending");
    let mut early = Vec::new();
    each(cluster, &pods, pending, "list the pending pods", |pod| {
        early.extend(early_pod(&pod, settings, attach, &mut has));
    })
    .await?;
    Ok(early)
}

fn is_selected(
    seen: &Sight<BTreeMap<String, NamespaceSeen>>,
    selection: Option<&Selection>,
    name: &str,
) -> bool {
    let (Sight::Here(seen), Some(selection)) = (seen, selection) else {
        return false;
    };
    seen.get(name).is_some_and(|namespace| {
        let is_marked = is_marked_excluded(&namespace.labels, &namespace.annotations);
        !namespace.is_terminating
            && selection.covers(name, || namespace.labels.clone(), is_marked) == Selected::Yes
    })
}

/// The `ClusterRole`, if its binding exists too.
async fn role(cluster: &Cluster<'_>, secret_name: &str) -> Result<Sight<RoleSeen>> {
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    let name = names::IMAGE_PULL_SECRETS;
    let (role, binding) = tokio::join!(
        cluster.call("get the ClusterRole of namespaces", roles.get_opt(name)),
        cluster.call("get its binding", bindings.get_metadata_opt(name)),
    );
    Ok(match (Sight::of(role)?, Sight::of(binding)?) {
        (Sight::Absent, _) | (_, Sight::Absent) => Sight::Absent,
        (role, _) => role.map(|role| RoleSeen::of(&role, secret_name)),
    })
}

/// The policy that adds the reference to pods, and its binding. An API server that doesn't serve their kinds has neither.
pub(crate) async fn admission_policy(cluster: &Cluster<'_>) -> Result<Sight<()>> {
    let get = async |kind: &str| {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
        let name = names::IMAGE_PULL_SECRETS;
        let doing = format!("get {kind} `{name}`");
        let found = cluster.call(&doing, api.get_metadata_opt(name)).await;
        Sight::of(or_absent(found))
    };
    let (policy, binding) = tokio::join!(
        get("MutatingAdmissionPolicy"),
        get("MutatingAdmissionPolicyBinding"),
    );
    Ok(policy?.and(binding?).map(drop))
}
