//! A cluster that runs `HyperShift`'s own syncer, and how much of its state is visible.

use std::collections::BTreeMap;

use globalps_core::names;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde::Serialize;

use crate::cli::Form;
use crate::cluster::client::Cluster;
use crate::error::{Exit, Result, allowed};
use crate::terminal::{Printer, columns};

/// `HyperShift`'s copy of the cluster's original pull secret.
const ORIGINAL: &str = "original-pull-secret";

/// `status -o json` in such a cluster, with the fields that scripts rely on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Seen {
    /// Always false: nothing in such a cluster reports whether a node is synced.
    ready: bool,
    hypershift: Syncer,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Syncer {
    daemon_set: Numbers,
    /// Whether each Secret exists, by name.
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
    /// The status that `kubectl get pods` prints.
    state: String,
    restarts: i32,
}

/// `None` if the cluster runs no such syncer.
pub(crate) async fn look(cluster: &Cluster<'_>) -> Result<Option<Seen>> {
    let (daemon_sets, pods) = (cluster.api::<DaemonSet>(), cluster.api::<Pod>());
    let doing = "see whether HyperShift's own syncer runs";
    let found = cluster
        .call(doing, daemon_sets.get_opt(names::SYNCER))
        .await;
    let Some(daemon_set) = allowed(found)?.flatten() else {
        return Ok(None);
    };
    let of_syncer = ListParams::default().labels(&format!("name={}", names::SYNCER));
    let pods = cluster
        .call("list the syncer's pods", pods.list(&of_syncer))
        .await?;
    let (api, mut secrets) = (cluster.api::<Secret>(), BTreeMap::new());
    for name in [names::ADDITIONAL_SECRET, names::GLOBAL_SECRET, ORIGINAL] {
        let doing = format!("see whether Secret `{name}` exists");
        let found = cluster.call(&doing, api.get_metadata_opt(name)).await?;
        secrets.insert(name.to_owned(), found.is_some());
    }
    Ok(Some(Seen::of(&daemon_set, &pods.items, secrets)))
}

impl Seen {
    fn of(daemon_set: &DaemonSet, pods: &[Pod], secrets: BTreeMap<String, bool>) -> Self {
        let numbers = daemon_set
            .status
            .as_ref()
            .map_or(Numbers::default(), |status| Numbers {
                desired: status.desired_number_scheduled,
                updated: status.updated_number_scheduled.unwrap_or_default(),
                ready: status.number_ready,
            });
        let mut pods: Vec<PodRow> = pods.iter().map(row).collect();
        // Pods with problems first.
        pods.sort_by(|a, b| (a.state == "Running", &a.node).cmp(&(b.state == "Running", &b.node)));
        Self {
            ready: false,
            hypershift: Syncer {
                daemon_set: numbers,
                secrets,
                pods,
            },
        }
    }

    pub(crate) fn show(&self, printer: &Printer, format: &Form) -> Result<Exit> {
        let pods = self.hypershift.pods.iter();
        let names = pods.map(|row| format!("pod/{}", row.pod));
        printer.print(format, ("the status", self), names, || {
            printer.data(&self.text());
        })?;
        printer.note("this cluster runs HyperShift's own syncer: the state of its pods is shown; whether a node's file is written, and whether its kubelet uses it, is unknown");
        printer.hint("the log of a node's pod says more; globalps itself is not installed here, see `kubectl globalps install --help`");
        Ok(Exit::No)
    }

    fn text(&self) -> String {
        let Syncer {
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
        let rows: Vec<Vec<String>> = pods
            .iter()
            .map(|row| {
                vec![
                    row.node.clone(),
                    row.state.clone(),
                    row.restarts.to_string(),
                    row.pod.clone(),
                ]
            })
            .collect();
        let header = ["NODE", "STATE", "RESTARTS", "POD"];
        lines.push(columns(&header, &rows, None, |_, _| None));
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
        let pods: [Pod; 2] = [
            pod("a", json!({"running": {}})),
            pod("b", json!({"waiting": {"reason": "CrashLoopBackOff"}})),
        ];
        let secrets = [
            ("additional-pull-secret".to_owned(), true),
            ("x".to_owned(), false),
        ]
        .into();
        assert_eq!(
            Seen::of(&daemon_set, &pods, secrets).text(),
            "\
HyperShift's own syncer  1/2 pods ready  2 updated
Secrets: additional-pull-secret there, x absent
NODE   STATE              RESTARTS   POD
b      CrashLoopBackOff   3          syncer-b
a      Running            3          syncer-a"
        );
    }
}
