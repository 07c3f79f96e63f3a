//! Why the pods of globalps' `DaemonSet`s are not created, or don't run.

use std::collections::BTreeMap;

use globalps_core::hypershift::is_hypershifts;
use globalps_core::names;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Resource;
use kube::api::ListParams;

use crate::cluster::client::Cluster;
use crate::error::{Result, allowed};
use crate::terminal::{few, number};

/// Maximum number of pods that are read for a `DaemonSet` whose pods are not all ready.
const MOST_PODS: u32 = 500;
/// Maximum length of an event's message that is shown, in characters.
const LONGEST: usize = 400;

/// What prevents pods from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodError {
    /// The API server refuses to create them.
    NotCreated {
        daemon_set: String,
        nodes: i32,
        /// Message of the newest event `FailedCreate`.
        message: String,
    },
    /// A container is waiting.
    NotRunning {
        daemon_set: String,
        /// The kubelet's reason: `CrashLoopBackOff`.
        reason: String,
        /// Nodes with a waiting pod.
        nodes: Vec<String>,
    },
}

impl PodError {
    pub(crate) fn is_image(&self) -> bool {
        let is = |reason: &str| {
            matches!(
                reason,
                "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName"
            )
        };
        matches!(self, Self::NotRunning { reason, .. } if is(reason))
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::NotCreated {
                daemon_set,
                nodes,
                message,
            } => {
                let number = number(nodes.unsigned_abs(), "node");
                format!("pods of DaemonSet `{daemon_set}` can't be created for {number}: {message}")
            }
            Self::NotRunning {
                daemon_set,
                reason,
                nodes,
            } => {
                let named = few(nodes, 3);
                format!("pods of DaemonSet `{daemon_set}` don't run: {reason} on {named}")
            }
        }
    }

    /// Name of the check that reports it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::NotCreated { .. } => "syncer-not-created",
            Self::NotRunning { .. } if self.is_image() => "syncer-image",
            Self::NotRunning { .. } => "syncer-not-running",
        }
    }

    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NotCreated { message, .. } if message.contains("violates PodSecurity") => {
                "the pods mount directories of the node; `kubectl label namespace kube-system pod-security.kubernetes.io/enforce=privileged --overwrite` admits them".to_owned()
            }
            Self::NotCreated { message, .. } if let Some(hint) = named_by(message) => {
                hint.to_owned()
            }
            Self::NotCreated { daemon_set, .. } => {
                format!("see `kubectl -n kube-system describe daemonset {daemon_set}`")
            }
            Self::NotRunning { .. } if self.is_image() => {
                "the image must be in a registry that nodes may pull from without a password"
                    .to_owned()
            }
            Self::NotRunning {
                daemon_set, reason, ..
            } if reason == "CrashLoopBackOff" => {
                format!("see `kubectl -n kube-system logs -l name={daemon_set} --previous`")
            }
            Self::NotRunning { daemon_set, .. } => {
                format!("see `kubectl -n kube-system describe pods -l name={daemon_set}`")
            }
        }
    }
}

/// The hint, if the API server's message names the component that refuses a pod.
pub(super) fn named_by(message: &str) -> Option<&'static str> {
    let hint = if message.contains("exceeded quota") {
        "raise the ResourceQuota that the message names"
    } else if message.contains("webhook") {
        "the admission webhook that the message names must admit these pods"
    } else {
        return None;
    };
    Some(hint)
}

/// Reads what prevents the pods of both `DaemonSet`s from running.
pub(crate) async fn look(cluster: &Cluster<'_>) -> Result<Vec<PodError>> {
    let mut found = Vec::new();
    for name in [names::SYNCER, names::RESTORER, names::OBSERVER] {
        let api = cluster.api::<DaemonSet>();
        let doing = format!("get DaemonSet `{name}`");
        let daemon_set = allowed(cluster.call(&doing, api.get_opt(name)).await)?;
        if let Some(daemon_set) = daemon_set.flatten().filter(is_own_daemon_set) {
            found.extend(pod_errors(cluster, &daemon_set).await?);
        }
    }
    Ok(found)
}

/// Whether it is globalps' own `DaemonSet`. `HyperShift`'s of the same name may have the labels of both.
pub(crate) fn is_own_daemon_set(daemon_set: &DaemonSet) -> bool {
    is_ours(daemon_set) && !is_hypershifts(daemon_set)
}

/// Whether the object's labels are those of globalps.
pub(crate) fn is_ours(object: &impl Resource) -> bool {
    let labels = object.meta().labels.as_ref();
    labels.is_some_and(|labels| {
        labels
            .get("app.kubernetes.io/managed-by")
            .is_some_and(|who| who == "globalps")
    })
}

/// What prevents the pods of this `DaemonSet` from running, as far as this user may see it. Reads pods and events only
/// if pods are missing.
pub(crate) async fn pod_errors(
    cluster: &Cluster<'_>,
    daemon_set: &DaemonSet,
) -> Result<Vec<PodError>> {
    let name = daemon_set.metadata.name.clone().unwrap_or_default();
    let status = daemon_set.status.clone().unwrap_or_default();
    let mut pod_errors = Vec::new();
    let nodes = status.desired_number_scheduled - status.current_number_scheduled;
    if nodes > 0 {
        let of_creation =
            format!("involvedObject.kind=DaemonSet,involvedObject.name={name},reason=FailedCreate");
        let api = cluster.api::<Event>();
        let params = ListParams::default().fields(&of_creation);
        let events = cluster.call("list the DaemonSet's events", api.list(&params));
        let events = allowed(events.await)?;
        let message = events.and_then(|events| newest(&events.items));
        // Without an event, they are about to be created.
        if let Some(message) = message {
            pod_errors.push(PodError::NotCreated {
                daemon_set: name.clone(),
                nodes,
                message,
            });
        }
    }
    if status.number_ready < status.current_number_scheduled {
        let api = cluster.api::<Pod>();
        let params = ListParams::default()
            .labels(&format!("name={name}"))
            .limit(MOST_PODS);
        let pods = cluster.call("list the DaemonSet's pods", api.list(&params));
        let pods = allowed(pods.await)?.map_or_else(Vec::new, |list| list.items);
        pod_errors.extend(waiting(&name, &pods));
    }
    Ok(pod_errors)
}

pub(super) fn newest(events: &[Event]) -> Option<String> {
    let time = |event: &&Event| {
        let series = event
            .series
            .as_ref()
            .and_then(|s| s.last_observed_time.as_ref());
        let time = series.or(event.event_time.as_ref()).map(|time| time.0);
        time.max(event.last_timestamp.as_ref().map(|time| time.0))
    };
    let message = events.iter().max_by_key(time)?.message.as_deref()?;
    let message = message.strip_prefix("Error creating: ").unwrap_or(message);
    Some(message.chars().take(LONGEST).collect())
}

/// Reasons that are temporary.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

fn waiting(daemon_set: &str, pods: &[Pod]) -> Vec<PodError> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods {
        let containers = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        let reason = containers.and_then(|containers| {
            let waiting = containers.first()?.state.as_ref()?.waiting.as_ref()?;
            waiting.reason.clone()
        });
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        if let (Some(reason), Some(node)) = (reason, node)
            && !STARTING.contains(&reason.as_str())
        {
            reasons.entry(reason).or_default().push(node);
        }
    }
    let error = |(reason, mut nodes): (String, Vec<String>)| {
        nodes.sort();
        PodError::NotRunning {
            daemon_set: daemon_set.to_owned(),
            reason,
            nodes,
        }
    };
    reasons.into_iter().map(error).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn waiting_pods_are_grouped_by_their_reason() {
        let pod = |node: &str, state: Value| {
            serde_json::from_value(json!({
                "metadata": {"name": format!("pod-{node}")},
                "spec": {"nodeName": node, "containers": []},
                "status": {"containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 3, "state": state,
                }]},
            }))
            .expect("a pod")
        };
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let pods: Vec<Pod> = vec![
            pod("d", waits("CrashLoopBackOff")),
            pod("c", waits("CrashLoopBackOff")),
            pod("b", waits("CrashLoopBackOff")),
            pod("a", waits("CrashLoopBackOff")),
            pod("e", waits("ContainerCreating")),
            pod("f", json!({"running": {}})),
            pod("g", waits("ImagePullBackOff")),
            pod("h", waits("CreateContainerConfigError")),
        ];
        let found = waiting("d", &pods);
        let lines: Vec<String> = found
            .iter()
            .map(|error| format!("{} {}", error.name(), error.message()))
            .collect();
        assert_eq!(
            lines,
            [
                "syncer-not-running pods of DaemonSet `d` don't run: CrashLoopBackOff on a, b, c and 1 more",
                "syncer-not-running pods of DaemonSet `d` don't run: CreateContainerConfigError on h",
                "syncer-image pods of DaemonSet `d` don't run: ImagePullBackOff on g",
            ]
        );
        for (error, hint) in found
            .iter()
            .zip(["logs -l name=d", "describe pods", "registry"])
        {
            assert!(error.hint().contains(hint), "{error:?}");
        }
    }

    #[test]
    fn refused_pods_have_the_newest_reason_and_its_way_on() {
        let event = |time: &str, message: &str| {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "lastTimestamp": time, "message": message,
            }))
            .expect("an event")
        };
        let events = [
            event("2026-01-01T00:00:01Z", "Error creating: new"),
            event("2026-01-01T00:00:00Z", "Error creating: old"),
        ];
        assert_eq!(newest(&events).as_deref(), Some("new"));
        assert_eq!(newest(&[]), None);
        for (message, hint) in [
            (
                r#"pods "x" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes"#,
                "kubectl label namespace",
            ),
            (
                r#"pods "x" is forbidden: exceeded quota: few, requested: pods=1"#,
                "ResourceQuota",
            ),
            (
                r#"admission webhook "w.example.com" denied the request: no"#,
                "webhook",
            ),
            ("anything else", "describe daemonset d"),
        ] {
            let error = PodError::NotCreated {
                daemon_set: "d".to_owned(),
                nodes: 3,
                message: message.to_owned(),
            };
            assert!(error.hint().contains(hint), "{message}");
            assert_eq!(
                error.message(),
                format!("pods of DaemonSet `d` can't be created for 3 nodes: {message}")
            );
        }
    }
}
