//! The cluster's Nodes. A Node has about ten kilobytes, but only a few bytes matter. So the plugin requests the table of
//! `kubectl get nodes`, and then details of the few nodes that are excluded or not ready.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt as _;
use futures::stream::{self, StreamExt as _};
use globalps_core::names;
use hyper::header::{ACCEPT, HeaderValue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde_json::Value;

use super::pages::{PageMeta, pages, unsendable};
use super::store::{NodeFacts, Store};
use crate::cluster::client::Cluster;
use crate::error::Failure;

const DOING: &str = "list the Nodes";
/// Lines that are asked for at a time; each has some 200 bytes.
const LINES: u32 = 5000;
/// Where more nodes than these are not ready, all are asked for in full: that is fewer requests.
const FEW: usize = 32;
/// Requests at the same time.
const AT_ONCE: usize = 8;

/// What the API server shows to people.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    #[serde(default)]
    metadata: PageMeta,
    column_definitions: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
}

impl Table {
    /// Each node with whether it is ready; `None` where the table does not tell.
    fn nodes(&self) -> Option<Vec<(String, bool)>> {
        let column = |name: &str| {
            let mut columns = self.column_definitions.iter();
            columns.position(|column| column.name == name)
        };
        let (name, status) = (column("Name")?, column("Status")?);
        let node = |row: &Row| {
            let text = |at: usize| row.cells.get(at)?.as_str();
            // `Ready`, `NotReady`, `Unknown`, each perhaps with `,SchedulingDisabled`.
            let first = text(status)?.split(',').next()?;
            Some((text(name)?.to_owned(), first == "Ready"))
        };
        self.rows.iter().map(node).collect()
    }
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
    let exclusions = match &selector {
        Some(selector) => format!("{selector},{}=true", names::EXCLUDE_LABEL),
        None => format!("{}=true", names::EXCLUDE_LABEL),
    };
    let (all, exclusions) = futures::try_join!(
        lines(cluster, selector.as_deref()),
        lines(cluster, Some(&exclusions)),
    )?;
    let (Some(all), Some(exclusions)) = (all, exclusions) else {
        return in_full(cluster, ListParams::default(), selector).await;
    };
    let open: Vec<&str> = all
        .iter()
        .filter(|(_, is_ready)| !is_ready)
        .map(|(name, _)| name.as_str())
        .collect();
    if open.len() > FEW {
        return in_full(cluster, ListParams::default(), selector).await;
    }
    // By a list too, since who may list nodes may perhaps not get one.
    let asked = stream::iter(open).map(|name| {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        in_full(cluster, params, None)
    });
    let open: Vec<Store<NodeFacts>> = asked.buffer_unordered(AT_ONCE).try_collect().await?;
    let exclusions: BTreeSet<String> = exclusions.into_iter().map(|(name, _)| name).collect();
    let mut store = Store::default();
    for (name, _) in all {
        let excluded = exclusions.contains(&name);
        store.insert(
            name,
            NodeFacts {
                excluded,
                not_ready: None,
            },
        );
    }
    for (name, facts) in open.iter().flat_map(Store::iter) {
        store.insert(name, *facts);
    }
    Ok(store)
}

/// Nodes as the API server shows them to people.
async fn lines(
    cluster: &Cluster<'_>,
    selector: Option<&str>,
) -> Result<Option<Vec<(String, bool)>>, Failure> {
    let mut params = ListParams {
        label_selector: selector.map(str::to_owned),
        ..ListParams::default().limit(LINES)
    };
    let mut nodes = Vec::new();
    loop {
        let mut request = all_nodes()
            .list(&params)
            .map_err(|error| unsendable(DOING, &error.to_string()))?;
        let uri = format!("{}&includeObject=None", request.uri());
        *request.uri_mut() = uri
            .parse()
            .map_err(|_| unsendable(DOING, "its address is none"))?;
        request.headers_mut().insert(
            ACCEPT,
            HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io"),
        );
        let table = cluster
            .call(DOING, cluster.client.request::<Table>(request))
            .await?;
        let Some(page) = table.nodes() else {
            return Ok(None);
        };
        nodes.extend(page);
        if table.metadata.next.is_empty() {
            return Ok(Some(nodes));
        }
        params = params.continue_token(&table.metadata.next);
    }
}

/// Nodes with all that they have.
async fn in_full(
    cluster: &Cluster<'_>,
    params: ListParams,
    selector: Option<String>,
) -> Result<Store<NodeFacts>, Failure> {
    let params = ListParams {
        label_selector: selector,
        ..params
    };
    let mut store = Store::default();
    pages(cluster, DOING, &all_nodes(), params, |node: Slim| {
        store.insert(node.metadata.name.clone(), node.facts());
    })
    .await?;
    Ok(store)
}

fn all_nodes() -> Request {
    Request::new(Node::url_path(&(), None))
}

#[cfg(test)]
mod tests {
    use super::super::store::Lost;
    use super::*;
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

    #[test]
    fn lines_for_people_tell_who_is_ready_or_are_not_believed() {
        let columns = json!([{"name": "Name"}, {"name": "Status"}, {"name": "Roles"}]);
        let rows = json!([
            {"cells": ["a", "Ready", "worker"], "object": null},
            {"cells": ["b", "Ready,SchedulingDisabled", ""]},
            {"cells": ["c", "NotReady", ""]},
            {"cells": ["d", "Unknown", ""]},
        ]);
        let ready = ["a", "b", "c", "d"]
            .map(|name| (name.to_owned(), ["a", "b"].contains(&name)))
            .to_vec();
        for (columns, rows, expected) in [
            (columns.clone(), rows.clone(), Some(ready)),
            (columns.clone(), json!([]), Some(Vec::new())),
            (json!([{"name": "Name"}, {"name": "State"}]), rows, None),
            (columns.clone(), json!([{"cells": ["a"]}]), None),
            (columns, json!([{"cells": ["a", 3]}]), None),
        ] {
            let table = json!({"kind": "Table", "columnDefinitions": columns, "rows": rows});
            let table: Table = serde_json::from_value(table).expect("a table");
            assert_eq!(table.nodes(), expected);
        }
    }
}
