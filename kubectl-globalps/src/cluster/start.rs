//! Why pods of the controller or the hub don't start, and the command that fixes it.

use globalps_core::names;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::syncers::{named_by, newest};
use crate::cluster::client::Cluster;
use crate::error::{Result, allowed};

/// What prevents pods from running, and the hint.
pub(crate) type Reason = (String, String);

/// `deployment`: name, in the controller's namespace. `None` if no problem is known.
pub(crate) async fn look(cluster: &Cluster<'_>, deployment: &str) -> Result<Option<Reason>> {
    let namespace = names::CONTROLLER_NAMESPACE;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let refused =
        ListParams::default().fields("involvedObject.kind=ReplicaSet,reason=FailedCreate");
    let of_deployment =
        ListParams::default().labels(&format!("app.kubernetes.io/name={deployment}"));
    let (events, pods) = tokio::join!(
        cluster.call("list the events", events.list(&refused)),
        cluster.call("list the pods", pods.list(&of_deployment)),
    );
    let pods = allowed(pods)?.map_or_else(Vec::new, |list| list.items);
    let pods = of_newest_template(pods);
    let waiting = pods.iter().find_map(|pod| waiting(pod, &cluster.namespace));
    if waiting.is_some() || !pods.is_empty() {
        return Ok(waiting);
    }
    let events = allowed(events)?.map_or_else(Vec::new, |list| list.items);
    let own = events.into_iter().filter(|event| {
        let name = event.involved_object.name.as_deref().unwrap_or_default();
        name.starts_with(deployment)
    });
    let own: Vec<Event> = own.collect();
    Ok(newest(&own).map(|message| {
        let hint = refusal(&message);
        (format!("its pods can't be created: {message}"), hint)
    }))
}

/// Drops pods of an earlier template of their Deployment, which are about to be deleted.
fn of_newest_template(mut pods: Vec<Pod>) -> Vec<Pod> {
    let template = |pod: &Pod| pod.labels().get("pod-template-hash").cloned();
    let newest = pods.iter().max_by_key(|pod| pod.creation_timestamp());
    let newest = newest.and_then(template);
    pods.retain(|pod| template(pod) == newest);
    pods
}

/// The hint for a message with which the API server refuses a pod.
fn refusal(message: &str) -> String {
    let namespace = names::CONTROLLER_NAMESPACE;
    if message.contains("priority class") || message.contains("PriorityClass") {
        format!(
            "this cluster admits the priority class only where a ResourceQuota names it with `scopeSelector`: run install again, which creates one in the namespace `{namespace}`"
        )
    } else if message.contains("violates PodSecurity") {
        format!(
            "`kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=restricted --overwrite` admits these pods"
        )
    } else if let Some(hint) = named_by(message) {
        hint.to_owned()
    } else {
        format!("see `kubectl -n {namespace} describe replicasets`")
    }
}

/// `secrets`: namespace of the syncer, whose image uses the same pull secret.
fn waiting(pod: &Pod, secrets: &str) -> Option<Reason> {
    let namespace = names::CONTROLLER_NAMESPACE;
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.as_ref()?;
    let container = containers.first()?;
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let said = waiting
        .message
        .as_deref()
        .unwrap_or_default()
        .to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let image = &container.image;
    let (what, hint) = match reason {
        "ErrImagePull" | "ImagePullBackOff" if has(&["401", "403", "unauthorized", "denied"]) => (
            format!("the registry asks for a password for `{image}`"),
            format!(
                "create a pull secret in the namespaces `{namespace}` and `{secrets}`, each with `kubectl create secret docker-registry globalps-images -n NAMESPACE --docker-server={} --docker-username=USER --docker-password=PASSWORD`, and run install again with `--pull-secret globalps-images`",
                image.split('/').next().unwrap_or_default()
            ),
        ),
        "ErrImagePull" | "ImagePullBackOff" if has(&["not found", "manifest unknown"]) => (
            format!("the registry has no image `{image}`"),
            "push it, or correct its name, and run install again".to_owned(),
        ),
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ImageInspectError" => (
            format!("the image `{image}` can't be pulled ({reason})"),
            format!("see `kubectl -n {namespace} describe pod {name}`"),
        ),
        "CrashLoopBackOff" | "RunContainerError" | "CreateContainerConfigError" => (
            format!("pod `{name}` does not run: {reason}"),
            format!(
                "see `kubectl -n {namespace} logs {name} --previous` and `describe pod {name}`"
            ),
        ),
        _ => return None,
    };
    Some((what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Otherwise a second `install`, with a pull secret, would report the problem of the first one's pods.
    #[test]
    fn pods_of_an_earlier_template_say_nothing() {
        let pod = |name: &str, hash: &str, second: u8| {
            let pod = json!({"metadata": {
                "name": name, "labels": {"pod-template-hash": hash},
                "creationTimestamp": format!("2026-01-01T00:00:0{second}Z"),
            }});
            serde_json::from_value::<Pod>(pod).expect("a pod")
        };
        let pods = vec![pod("a", "1", 1), pod("b", "2", 3), pod("c", "2", 2)];
        let left = of_newest_template(pods).into_iter();
        let left: Vec<String> = left.filter_map(|pod| pod.metadata.name).collect();
        assert_eq!(left, ["b", "c"]);
    }

    #[test]
    fn a_pod_that_waits_says_what_to_do() {
        for (reason, message, what, hint) in [
            (
                "ErrImagePull",
                "failed to authorize: 401 Unauthorized",
                "the registry asks for a password for `r/c:1`",
                "--pull-secret globalps-images",
            ),
            (
                "ImagePullBackOff",
                "r/c:1: not found",
                "the registry has no image `r/c:1`",
                "push it",
            ),
            (
                "ImagePullBackOff",
                "no such host",
                "the image `r/c:1` can't be pulled (ImagePullBackOff)",
                "describe pod p",
            ),
            (
                "CrashLoopBackOff",
                "",
                "pod `p` does not run: CrashLoopBackOff",
                "logs p --previous",
            ),
        ] {
            let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [{
                "name": "controller", "image": "r/c:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": message}},
            }]}});
            let pod = serde_json::from_value(pod).expect("a pod");
            let found = waiting(&pod, "kube-system").expect(reason);
            assert_eq!(found.0, what);
            assert!(found.1.contains(hint), "{found:?}");
        }
        let starting = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [{
            "name": "c", "image": "r/c:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ContainerCreating"}},
        }]}});
        let pod = serde_json::from_value(starting).expect("a pod");
        assert_eq!(waiting(&pod, "kube-system"), None);
    }

    #[test]
    fn a_refused_pod_says_who_refuses() {
        for (message, expected) in [
            (
                "insufficient quota to match these scopes: [{PriorityClass In [system-cluster-critical]}]",
                "scopeSelector",
            ),
            (
                "pods \"x\" is forbidden: exceeded quota: small",
                "raise the ResourceQuota",
            ),
            (
                "violates PodSecurity \"restricted\"",
                "pod-security.kubernetes.io/enforce",
            ),
            ("admission webhook \"w\" denied the request", "webhook"),
            ("something else", "describe replicasets"),
        ] {
            let hint = refusal(message);
            assert!(hint.contains(expected), "{message}: {hint}");
        }
    }
}
