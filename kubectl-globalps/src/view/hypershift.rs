//! `status` of a cluster that runs `HyperShift`'s own syncer: what can be seen there, and what can't. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::cluster::hypershift::HyperShiftSyncer;
use crate::terminal::{Layout, uncolored};

/// `status -o json` on such a cluster, beside the fields that scripts rely on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HyperShiftStatus {
    /// Always false: nobody there tells whether a node is synced.
    ready: bool,
    hypershift: SyncerStatus,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SyncerStatus {
    daemon_set: Numbers,
    /// By name, whether it is there.
    secrets: BTreeMap<String, bool>,
    pods: Vec<PodRow>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Numbers {
    desired: i32,
    updated: i32,
    ready: i32,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct PodRow {
    node: String,
    pod: String,
    /// As `kubectl get pods` says it.
    state: String,
    restarts: i32,
}

impl HyperShiftStatus {
    pub(crate) fn of(found: HyperShiftSyncer) -> Self {
        let status = found.daemon_set.status.as_ref();
        let numbers = status.map_or(Numbers::default(), |status| Numbers {
            desired: status.desired_number_scheduled,
            updated: status.updated_number_scheduled.unwrap_or_default(),
            ready: status.number_ready,
        });
        let mut pods: Vec<PodRow> = found.pods.iter().map(row).collect();
        // What needs a look first.
        pods.sort_by(|a, b| (a.state == "Running", &a.node).cmp(&(b.state == "Running", &b.node)));
        Self {
            ready: false,
            hypershift: SyncerStatus {
                daemon_set: numbers,
                secrets: found.secrets,
                pods,
            },
        }
    }

    /// `pod/NAME` of each.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let pods = self.hypershift.pods.iter();
        pods.map(|row| format!("pod/{}", row.pod))
    }

    pub(crate) fn text(&self) -> String {
        let SyncerStatus {
            daemon_set,
            secrets,
            pods,
        } = &self.hypershift;
        let mut lines = vec![format!(
            "HyperShift's own syncer  {}/{} pods ready  {} updated",
            daemon_set.ready, daemon_set.desired, daemon_set.updated
        )];
        let secret = |(name, there): (&String, &bool)| {
            format!("{name} {}", if *there { "there" } else { "absent" })
        };
        let words: Vec<String> = secrets.iter().map(secret).collect();
        lines.push(format!("Secrets: {}", words.join(", ")));
        let rows = pods.iter().map(|row| {
            let restarts = row.restarts.to_string();
            [
                row.node.clone(),
                row.state.clone(),
                restarts,
                row.pod.clone(),
            ]
        });
        let header = ["NODE", "STATE", "RESTARTS", "POD"];
        lines.push(uncolored(header, rows, Layout::default()));
        lines.join("\n")
    }
}

fn row(pod: &Pod) -> PodRow {
    let status = pod.status.as_ref();
    let container = status.and_then(|status| status.container_statuses.as_ref()?.first());
    let reason = container
        .and_then(|container| container.state.as_ref())
        .and_then(|state| {
            let waiting = state.waiting.as_ref().and_then(|w| w.reason.clone());
            waiting.or_else(|| state.terminated.as_ref().and_then(|t| t.reason.clone()))
        });
    let phase = status.and_then(|status| status.phase.clone());
    PodRow {
        node: pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default(),
        pod: pod.name_any(),
        state: reason.or(phase).unwrap_or_default(),
        restarts: container.map_or(0, |container| container.restart_count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn visible_pods_are_shown_failed_ones_first() {
        let daemon_set = serde_json::from_value(json!({
            "metadata": {"name": "d"},
            "status": {
                "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 1,
                "currentNumberScheduled": 2, "numberMisscheduled": 0,
            },
        }))
        .expect("a DaemonSet");
        let pod = |node: &str, state: serde_json::Value| {
            serde_json::from_value(json!({
                "metadata": {"name": format!("syncer-{node}")},
                "spec": {"nodeName": node, "containers": []},
                "status": {"phase": "Running", "containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 3, "state": state,
                }]},
            }))
            .expect("a pod")
        };
        let pods: Vec<Pod> = vec![
            pod("a", json!({"running": {}})),
            pod("b", json!({"waiting": {"reason": "CrashLoopBackOff"}})),
        ];
        let secrets = [
            ("additional-pull-secret".to_owned(), true),
            ("x".to_owned(), false),
        ]
        .into();
        assert_eq!(
            HyperShiftStatus::of(HyperShiftSyncer {
                daemon_set,
                pods,
                secrets,
            })
            .text(),
            "\
HyperShift's own syncer  1/2 pods ready  2 updated
Secrets: additional-pull-secret there, x absent
NODE   STATE              RESTARTS   POD
b      CrashLoopBackOff   3          syncer-b
a      Running            3          syncer-a"
        );
    }
}
