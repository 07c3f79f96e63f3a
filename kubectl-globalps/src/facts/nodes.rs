//! The cluster's Nodes, of which little matters: an answer has some ten kilobytes a node, and all but a few bytes are skipped.

use std::collections::BTreeMap;

use globalps_core::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;

use super::{NodeFacts, PAGE, Store};
use crate::client::Cluster;
use crate::error::Failure;

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    items: Vec<Slim>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Slim {
    metadata: SlimMeta,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Deserialize)]
struct SlimMeta {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct SlimStatus {
    #[serde(default)]
    conditions: Vec<SlimCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

impl Slim {
    fn facts(&self) -> NodeFacts {
        let ready = self.status.conditions.iter().find(|c| c.type_ == "Ready");
        NodeFacts::new(
            self.metadata
                .labels
                .get(names::EXCLUDE_LABEL)
                .map(String::as_str),
            ready.map(|c| (c.status.as_str(), c.last_transition_time)),
        )
    }
}

/// Those that the selector matches, or all.
pub(super) async fn list(
    cluster: &Cluster<'_>,
    selector: Option<String>,
) -> Result<Store<NodeFacts>, Failure> {
    let mut params = ListParams {
        label_selector: selector,
        ..ListParams::default().limit(PAGE)
    };
    let mut store = Store::default();
    loop {
        let request = Request::new(Node::url_path(&(), None))
            .list(&params)
            .map_err(|error| {
                Failure::new(
                    format!("could not list the Nodes: {error}"),
                    "is the selector one that `kubectl get nodes -l` takes?",
                )
            })?;
        let answer = cluster.client.request::<Page>(request);
        let page = cluster.call("list the Nodes", answer).await?;
        for node in page.items {
            store.insert(node.metadata.name.clone(), node.facts());
        }
        if page.metadata.next.is_empty() {
            return Ok(store);
        }
        params = params.continue_token(&page.metadata.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Lost;
    use serde_json::json;

    #[test]
    fn what_is_skipped_changes_nothing() {
        for (labels, conditions) in [
            (json!({}), json!([])),
            (
                json!({names::EXCLUDE_LABEL: "true"}),
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
            ),
            (
                json!({names::EXCLUDE_LABEL: "false"}),
                json!([
                    {"type": "DiskPressure", "status": "True"},
                    {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]),
            ),
            (json!({}), json!([{"type": "Ready", "status": "False"}])),
        ] {
            let text = json!({
                "metadata": {"name": "n", "labels": labels, "managedFields": [{"manager": "m"}]},
                "spec": {"podCIDR": "10.0.0.0/24"},
                "status": {"conditions": conditions, "images": [{"names": ["i"]}]},
            })
            .to_string();
            let slim: Slim = serde_json::from_str(&text).expect("a Node");
            let full: Node = serde_json::from_str(&text).expect("a Node");
            assert_eq!(slim.facts(), NodeFacts::of(&full), "{text}");
        }
        let lost: Slim = serde_json::from_str(
            r#"{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}"#,
        )
        .expect("a Node");
        assert_eq!(
            lost.facts().not_ready,
            Some((Timestamp::UNIX_EPOCH, Lost::Yes))
        );
    }
}
