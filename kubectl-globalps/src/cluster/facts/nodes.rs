//! The cluster's Nodes. A Node has about ten kilobytes, of which only a few bytes matter. The plugin therefore requests
//! the table of `kubectl get nodes`, and then the details of the few nodes that are excluded or not ready. A watch
//! returns rows of that table too.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt as _;
use futures::future::try_join_all;
use futures::stream::{self, Stream, StreamExt as _};
use globalps_core::names;
use globalps_core::virtual_nodes::{VIRTUAL_NODE_LABELS, VirtualMark};
use globalps_runtime::list_events::{Event, list_events};
use hyper::header::{ACCEPT, HeaderValue};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, ObjectMeta};
use kube::client::Body;
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use serde::Deserialize;
use serde_json::Value;
use tower::{BoxError, service_fn};

use super::node::{SlimMeta, SlimNode};
use super::pages::{PageMeta, pages, unsendable};
use super::store::{Lost, NodeFacts, Store};
use super::watch::{Objects, Signal, Signals, Update, watch as signals_of};
use crate::cluster::client::Cluster;
use crate::error::{Failure, Result};

const DOING: &str = "list the Nodes";
const DOING_WATCH: &str = "watch the Nodes";
/// Rows per page; a row has about 200 bytes.
const LINES: u32 = 5000;
/// If more nodes than this are not ready, requests all Nodes in full, which takes fewer requests.
const FEW: usize = 32;
/// Concurrent requests.
const AT_ONCE: usize = 8;
/// Changes whose details are requested together.
const AT_A_TIME: usize = 500;

/// A table as the API server prints it for `kubectl get`: a list, or an event of a watch.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table<M> {
    #[serde(default)]
    metadata: M,
    /// `None`: the columns are those of an earlier event.
    column_definitions: Option<Vec<Column>>,
    rows: Vec<TableRow>,
}

globalps_core::view!(Table<ObjectMeta>: Node);

#[derive(Clone, Debug, Deserialize)]
struct Column {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct TableRow {
    cells: Vec<Value>,
    /// Only the metadata, if the request asked for it.
    object: Option<RowObject>,
}

#[derive(Clone, Debug, Deserialize)]
struct RowObject {
    metadata: SlimMeta,
}

impl TableRow {
    fn text(&self, column: usize) -> Option<&str> {
        self.cells.get(column)?.as_str()
    }

    /// The status is `Ready`, `NotReady` or `Unknown`, optionally followed by `,SchedulingDisabled`.
    fn is_ready(&self, status: usize) -> Option<bool> {
        let first = self.text(status)?.split(',').next()?;
        Some(first == "Ready")
    }
}

impl<M> Table<M> {
    fn column(&self, name: &str) -> Option<usize> {
        let mut columns = self.column_definitions.iter().flatten();
        columns.position(|column| column.name == name)
    }

    /// Each node and whether it is ready; `None` if the table lacks the columns.
    fn nodes(&self) -> Option<Vec<(String, bool)>> {
        let (name, status) = (self.column("Name")?, self.column("Status")?);
        let node = |row: &TableRow| Some((row.text(name)?.to_owned(), row.is_ready(status)?));
        self.rows.iter().map(node).collect()
    }

    /// `status`: index of that column, from this or an earlier event.
    fn lines(self, asked: &NodeQuery, status: &mut Option<usize>) -> Objects<Line> {
        *status = self.column("Status").or(*status);
        let line = |row: TableRow| {
            let is_ready = status.and_then(|status| row.is_ready(status));
            let meta = row.object?.metadata;
            let line = Line::of(asked, &meta, is_ready);
            Some((meta.name, Some(line)))
        };
        self.rows.into_iter().filter_map(line).collect()
    }
}

/// Which Nodes are requested, and how they are selected.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeQuery {
    /// A label selector in kubectl's syntax; `None`: all nodes.
    pub(super) selector: Option<String>,
    /// `spec.nodeSelector`: nodes without these labels are excluded.
    pub(super) node_selector: BTreeMap<String, String>,
}

impl NodeQuery {
    /// The selector with a further requirement.
    fn with(&self, requirement: &str) -> String {
        let selector = self.selector.iter().map(String::as_str);
        let both: Vec<&str> = selector.chain([requirement]).collect();
        both.join(",")
    }

    /// Label requirements, each of which matches excluded nodes.
    fn exclusions(&self) -> impl Iterator<Item = String> {
        let marked = names::NODE_EXCLUDE_LABELS.map(|label| format!("{label}=true"));
        let wanted = self.node_selector.iter();
        let lacking = wanted.map(|(key, value)| {
            let (os, linux) = names::LINUX_LABEL;
            format!("{os}={linux},{key}!={value}")
        });
        marked.into_iter().chain(lacking).map(|it| self.with(&it))
    }
}

/// A row of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Known(NodeFacts),
    /// Not ready, or the row doesn't tell: only the whole object has the details.
    Open(NodeFacts),
}

impl Line {
    fn of(asked: &NodeQuery, meta: &SlimMeta, is_ready: Option<bool>) -> Self {
        let is_excluded = meta.is_excluded(&asked.node_selector);
        let facts = NodeFacts::new((is_excluded, meta.virtual_by(&[])), None);
        match is_ready {
            Some(true) => Self::Known(facts),
            _ => Self::Open(facts),
        }
    }
}

pub(super) async fn list(cluster: &Cluster<'_>, asked: &NodeQuery) -> Result<Store<NodeFacts>> {
    let exclusions = asked.exclusions();
    let exclusions = exclusions.map(|it| async move { lines(cluster, Some(&it)).await });
    let marks = VIRTUAL_NODE_LABELS.into_iter();
    let marks = marks.flat_map(|(label, values)| values.iter().map(move |value| (label, *value)));
    let marked = marks.map(|(label, value)| async move {
        let requirement = asked.with(&format!("{label}={value}"));
        let found = lines(cluster, Some(&requirement)).await?;
        Ok::<_, Failure>((VirtualMark::Label(label, value), found))
    });
    let (all, exclusions, marked) = futures::try_join!(
        lines(cluster, asked.selector.as_deref()),
        try_join_all(exclusions),
        try_join_all(marked),
    )?;
    let exclusions: Option<Vec<_>> = exclusions.into_iter().collect();
    let (Some((all, version)), Some(exclusions)) = (all, exclusions) else {
        return in_full(cluster, ListParams::default(), asked).await;
    };
    let mut virtual_nodes = BTreeMap::new();
    for (mark, found) in marked {
        let (found, _) = found.unwrap_or_default();
        virtual_nodes.extend(found.into_iter().map(|(name, _)| (name, mark)));
    }
    let open = all.iter().filter(|(_, is_ready)| !is_ready);
    let open = open.map(|(name, _)| name.clone()).collect();
    let open = details(cluster, open, asked).await?;
    let exclusions = exclusions.into_iter().flat_map(|(nodes, _)| nodes);
    let exclusions: BTreeSet<String> = exclusions.map(|(name, _)| name).collect();
    let mut store = Store::default();
    for (name, _) in all {
        let facts = NodeFacts {
            excluded: exclusions.contains(&name),
            virtual_by: virtual_nodes.get(&name).copied(),
            not_ready: None,
        };
        store.insert(name, facts);
    }
    for (name, facts) in open.iter() {
        store.insert(name, *facts);
    }
    store.version = version;
    Ok(store)
}

/// Details of these nodes, possibly with others that the selector matches.
async fn details(
    cluster: &Cluster<'_>,
    names: BTreeSet<String>,
    asked: &NodeQuery,
) -> Result<Store<NodeFacts>> {
    if names.len() > FEW {
        return in_full(cluster, ListParams::default(), asked).await;
    }
    let of_names = &NodeQuery {
        selector: None,
        ..asked.clone()
    };
    // Uses a list for a single node too, because a user who may list nodes may lack the permission to get one.
    let each = stream::iter(names).map(|name| {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        in_full(cluster, params, of_names)
    });
    let found: Vec<Store<NodeFacts>> = each.buffer_unordered(AT_ONCE).try_collect().await?;
    let mut store = Store::default();
    for (name, facts) in found.iter().flat_map(Store::iter) {
        store.insert(name, *facts);
    }
    Ok(store)
}

/// Continues from the list. Transfers whole Nodes only while they are not ready.
pub(super) fn watch<'a>(
    cluster: &'a Cluster<'a>,
    listed: &Store<NodeFacts>,
    asked: NodeQuery,
) -> Signals<'a, NodeFacts> {
    let (mut version, of_events) = (listed.version(), asked.clone());
    let begin =
        move || stream::once(events(cluster, of_events.clone(), version.take())).try_flatten();
    let together = signals_of(begin, DOING_WATCH).ready_chunks(AT_A_TIME);
    let settled = together.then(move |signals| settled(cluster, signals, asked.clone()));
    settled.flat_map(stream::iter).boxed_local()
}

/// `version`: `resourceVersion` of a list that was read already.
async fn events<'a>(
    cluster: &'a Cluster<'a>,
    asked: NodeQuery,
    version: Option<String>,
) -> Result<impl Stream<Item = Result<Event<Objects<Line>>>> + 'a> {
    let (listed, version) = if let Some(version) = version {
        (None, version)
    } else {
        let store = list(cluster, &asked).await?;
        let version = store.version.clone();
        let lines = store.into_iter();
        let lines = lines.map(|(name, facts)| (name, Some(Line::Known(facts))));
        (Some(lines.collect()), version)
    };
    let listed = listed.into_iter();
    let listed = listed.flat_map(|lines| [Event::InitApply(lines), Event::InitDone].map(Ok));
    let params = ListParams {
        label_selector: asked.selector.clone(),
        ..ListParams::default()
    };
    let api: Api<Table<ObjectMeta>> = Api::all(tables(&cluster.client));
    let changes = list_events(api, params, cluster.watch_limits(), Some(version));
    let mut status = None;
    let changes = changes
        .map_ok(move |event| event.map(|table| table.lines(&asked, &mut status)))
        .map_err(|error| cluster.failure(DOING_WATCH, &error));
    Ok(stream::iter(listed).chain(changes))
}

/// A client that requests tables.
fn tables(client: &Client) -> Client {
    let client = client.clone();
    let service = service_fn(move |mut request: hyper::Request<Body>| {
        let table = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");
        request.headers_mut().insert(ACCEPT, table);
        let client = client.clone();
        async move { client.send(request).await.map_err(BoxError::from) }
    });
    Client::new(service, names::NAMESPACE)
}

/// Adds the details of nodes that are not ready. A node without details counts as not ready since now.
async fn settled(
    cluster: &Cluster<'_>,
    signals: Vec<Signal<Update<Line>>>,
    asked: NodeQuery,
) -> Vec<Signal<Update<NodeFacts>>> {
    let open: BTreeSet<String> = signals.iter().flat_map(open).collect();
    let found = if open.is_empty() {
        Store::default()
    } else {
        let found = details(cluster, open, &asked).await;
        found.unwrap_or_default()
    };
    let now = cluster.now();
    let fact = |name: &str, line: Line| match line {
        Line::Known(facts) => facts,
        Line::Open(facts) => found.get(name).copied().unwrap_or(NodeFacts {
            not_ready: Some((now, Lost::No)),
            ..facts
        }),
    };
    let settle = |signal| match signal {
        Signal::Changed(Update::All(store)) => Signal::Changed(Update::All(store.map(fact))),
        Signal::Changed(Update::Some(lines)) => {
            let facts = lines.into_iter().map(|(name, line)| {
                let facts = line.map(|line| fact(&name, line));
                (name, facts)
            });
            Signal::Changed(Update::Some(facts.collect()))
        }
        Signal::Lost(failure) => Signal::Lost(failure),
    };
    signals.into_iter().map(settle).collect()
}

/// Names of the nodes whose details are missing.
fn open(signal: &Signal<Update<Line>>) -> impl Iterator<Item = String> {
    let lines = match signal {
        Signal::Changed(Update::Some(lines)) => lines.as_slice(),
        _ => &[],
    };
    let is_open = |line: &Option<Line>| matches!(line, Some(Line::Open(_)));
    let open = lines.iter().filter(move |(_, line)| is_open(line));
    open.map(|(name, _)| name.clone())
}

/// Reads the table of the Nodes.
async fn lines(
    cluster: &Cluster<'_>,
    selector: Option<&str>,
) -> Result<Option<(Vec<(String, bool)>, String)>> {
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
        let table = tables(&cluster.client);
        let table = table.request::<Table<PageMeta>>(request);
        let table = cluster.call(DOING, table).await?;
        let Some(page) = table.nodes() else {
            return Ok(None);
        };
        nodes.extend(page);
        if table.metadata.next.is_empty() {
            return Ok(Some((nodes, table.metadata.version)));
        }
        params = params.continue_token(&table.metadata.next);
    }
}

/// Reads whole Nodes.
async fn in_full(
    cluster: &Cluster<'_>,
    params: ListParams,
    asked: &NodeQuery,
) -> Result<Store<NodeFacts>> {
    let params = ListParams {
        label_selector: asked.selector.clone(),
        ..params
    };
    let mut store = Store::default();
    let list = all_nodes();
    let listed = pages(cluster, DOING, &list, params, |node: SlimNode| {
        let facts = node.facts(&asked.node_selector);
        store.insert(node.metadata.name.clone(), facts);
    });
    store.version = listed.await?;
    Ok(store)
}

fn all_nodes() -> Request {
    Request::new(Node::url_path(&(), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;

    #[test]
    fn of_a_node_its_label_and_its_readiness_matter() {
        let since = "2026-01-01T00:00:00Z";
        let time = since.parse().expect("a time");
        let ready =
            |status| json!([{"type": "Ready", "status": status, "lastTransitionTime": since}]);
        for (labels, conditions, excluded, not_ready) in [
            (json!({}), json!([]), false, None),
            (
                json!({names::EXCLUDE_LABEL: "true"}),
                ready("True"),
                true,
                None,
            ),
            (
                json!({names::RESTRICTED_EXCLUDE_LABEL: "true"}),
                ready("True"),
                true,
                None,
            ),
            (
                json!({names::EXCLUDE_LABEL: "false"}),
                json!([
                    {"type": "DiskPressure", "status": "True"},
                    {"type": "Ready", "status": "Unknown", "lastTransitionTime": since},
                ]),
                false,
                Some((time, Lost::Yes)),
            ),
            (json!({}), ready("False"), false, Some((time, Lost::No))),
            (
                json!({}),
                json!([{"type": "Ready", "status": "Unknown"}]),
                false,
                Some((Timestamp::UNIX_EPOCH, Lost::Yes)),
            ),
        ] {
            let node = json!({
                "metadata": {"name": "n", "labels": labels, "managedFields": [{"manager": "m"}]},
                "spec": {"podCIDR": "10.0.0.0/24"},
                "status": {"conditions": conditions, "images": [{"names": ["i"]}]},
            });
            let slim: SlimNode = serde_json::from_value(node).expect("a Node");
            let expected = NodeFacts {
                excluded,
                virtual_by: None,
                not_ready,
            };
            let facts = slim.facts(&BTreeMap::new());
            assert_eq!(facts, expected, "{labels} {conditions}");
        }
    }

    #[test]
    fn a_linux_node_without_the_labels_of_the_selector_is_excluded() {
        let asked = NodeQuery {
            selector: Some("zone=z".to_owned()),
            node_selector: [("pool", "a"), ("size", "")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        for (labels, expected) in [
            (
                json!({"kubernetes.io/os": "linux", "pool": "a", "size": ""}),
                false,
            ),
            (json!({"kubernetes.io/os": "linux", "pool": "a"}), true),
            (
                json!({"kubernetes.io/os": "linux", "pool": "b", "size": ""}),
                true,
            ),
            (json!({"kubernetes.io/os": "windows"}), false),
        ] {
            let meta = json!({"name": "n", "labels": labels});
            let meta: SlimMeta = serde_json::from_value(meta).expect("metadata");
            let found = meta.is_excluded(&asked.node_selector);
            assert_eq!(found, expected, "{labels}");
        }
        let requirements: Vec<String> = asked.exclusions().skip(2).collect();
        let expected = [
            "zone=z,kubernetes.io/os=linux,pool!=a",
            "zone=z,kubernetes.io/os=linux,size!=",
        ];
        assert_eq!(requirements, expected);
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
            let table: Table<PageMeta> = serde_json::from_value(table).expect("a table");
            assert_eq!(table.nodes(), expected);
        }
    }
}
