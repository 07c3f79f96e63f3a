//! Reads the content of a bundle. What can't be read is listed as missing.

use globalps_core::api::{ClusterPullSecret, FleetPullSecret, GlobalPullSecret, NodePullSecret};
use globalps_core::names;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Resource;
use kube::api::ListParams;
use kube::core::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::allowed::{EVENT, NODE, POD, WORKLOAD, custom, is_about_us, is_ours, object};
use super::contents::{ABSENT, Contents};
use super::logs;
use super::search::KnownCredentials;
use super::secrets;
use crate::cluster::facts::pages;
use crate::cluster::{Cluster, Facts};
use crate::diagnose::check::CheckReport;
use crate::diagnose::evidence::cluster::look;
use crate::error::Result;
use crate::terminal::layout::Layout;
use crate::view::status::Status;
use crate::view::table;

/// Collects everything of this cluster. The credentials in its Secrets only go to `known`.
pub(super) async fn all(
    cluster: &Cluster<'_>,
    version: &Info,
    contents: &mut Contents,
    known: &mut KnownCredentials,
) {
    let versions = json!({
        "plugin": env!("CARGO_PKG_VERSION"),
        "apiServer": version.git_version,
        "platform": version.platform,
    });
    contents.json("versions.json", &versions);
    let own = Some(cluster.namespace.as_str());
    let all = ListParams::default;
    // The permission may be limited to this name.
    let named = all().fields(&format!("metadata.name={}", names::GLOBAL_SECRET));
    let gps = customs::<GlobalPullSecret>(cluster, contents, own, named).await;
    customs::<NodePullSecret>(cluster, contents, own, all()).await;
    let fleets = customs::<FleetPullSecret>(cluster, contents, None, all()).await;
    customs::<ClusterPullSecret>(cluster, contents, None, all()).await;
    // Comes before everything that is searched for credentials, because the time may not suffice for all.
    secrets::all(cluster, contents, known, &gps, &fleets).await;
    reports(cluster, contents).await;
    events(cluster, contents, &fleets).await;
    let nodes = list::<Node>(cluster, None, all()).await;
    if let Some(nodes) = contents.read("nodes", nodes) {
        contents.json("nodes.json", &kept(&nodes, &NODE));
    }
    workloads(cluster, contents).await;
}

/// All objects of a kind, as the API server returns them. `namespace`: `None` for all.
async fn list<K: Resource<DynamicType = ()>>(
    cluster: &Cluster<'_>,
    namespace: Option<&str>,
    params: ListParams,
) -> Result<Vec<Value>> {
    let request = Request::new(K::url_path(&(), namespace));
    let doing = format!("list the {}", K::plural(&()));
    let mut found = Vec::new();
    pages(cluster, &doing, &request, params, |value| found.push(value)).await?;
    Ok(found)
}

fn kept(objects: &[Value], paths: &[&str]) -> Vec<Value> {
    objects.iter().map(|value| object(value, paths)).collect()
}

/// Adds the custom resources of a kind, and returns them.
async fn customs<K>(
    cluster: &Cluster<'_>,
    contents: &mut Contents,
    namespace: Option<&str>,
    params: ListParams,
) -> Vec<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize,
{
    let plural = K::plural(&()).into_owned();
    let found = match list::<K>(cluster, namespace, params).await {
        Err(failure) if failure.is(404) => {
            contents.missing(plural.as_str(), ABSENT);
            return Vec::new();
        }
        found => contents.read(&plural, found).unwrap_or_default(),
    };
    let parsed = found.iter().filter_map(custom::<K>).collect::<Vec<_>>();
    if parsed.len() < found.len() {
        let number = found.len() - parsed.len();
        contents.missing(
            format!("{number} of the {plural}"),
            "this version of the plugin can't parse them",
        );
    }
    if !parsed.is_empty() {
        contents.json(&format!("objects/{plural}.json"), &parsed);
    }
    let typed = parsed.into_iter().map(serde_json::from_value);
    typed.filter_map(Result::ok).collect()
}

/// `check` and `status`, as text and as JSON.
async fn reports(cluster: &Cluster<'_>, contents: &mut Contents) {
    let checks = Box::pin(look(None, cluster)).await;
    if let Some(checks) = contents.read("check", checks) {
        let report = CheckReport::of(checks);
        contents.text(
            "check.txt",
            report.text(None, |_, text| text.to_owned()) + "\n",
        );
        contents.json("check.json", &report);
    }
    let facts = Facts::observe(cluster).await;
    if let Some(facts) = contents.read("status", facts) {
        let now = cluster.now();
        let status = Status::of(&facts, now);
        let layout = Layout {
            wide: true,
            ..Layout::default()
        };
        let text = table::render(&status, now, layout, None);
        contents.text("status.txt", text + "\n");
        contents.json("status.json", &status);
    }
}

/// Deployments, `DaemonSets` and pods of globalps, and the logs of the pods.
async fn workloads(cluster: &Cluster<'_>, contents: &mut Contents) {
    let own = cluster.namespace.as_str();
    let all = ListParams::default;
    let deployments = list::<Deployment>(cluster, Some(names::CONTROLLER_NAMESPACE), all()).await;
    let daemon_sets = list::<DaemonSet>(cluster, Some(own), all()).await;
    for (name, found) in [("deployments", deployments), ("daemonsets", daemon_sets)] {
        if let Some(found) = contents.read(name, found) {
            contents.json(
                &format!("objects/{name}.json"),
                &kept(&ours(found), &WORKLOAD),
            );
        }
    }
    let agents = format!("name in ({},{})", names::SYNCER, names::RESTORER);
    let mut pods = Vec::new();
    for (namespace, params) in [
        (names::CONTROLLER_NAMESPACE, all()),
        (own, all().labels(&agents)),
    ] {
        let found = list::<Pod>(cluster, Some(namespace), params).await;
        let what = format!("pods in {namespace}");
        pods.extend(ours(contents.read(&what, found).unwrap_or_default()));
    }
    contents.json("objects/pods.json", &kept(&pods, &POD));
    logs::all(cluster, contents, &pods).await;
}

fn ours(mut found: Vec<Value>) -> Vec<Value> {
    found.retain(|object| is_ours(object["metadata"]["name"].as_str().unwrap_or_default()));
    found
}

/// Events about objects of globalps, in its namespaces and in those of `FleetPullSecret`s.
async fn events(cluster: &Cluster<'_>, contents: &mut Contents, fleets: &[FleetPullSecret]) {
    let of_fleets = fleets
        .iter()
        .filter_map(|fleet| fleet.metadata.namespace.as_deref());
    let mut namespaces: Vec<&str> = of_fleets.collect();
    namespaces.extend([cluster.namespace.as_str(), names::CONTROLLER_NAMESPACE]);
    namespaces.sort_unstable();
    namespaces.dedup();
    let mut events = Vec::new();
    for namespace in namespaces {
        let found = list::<Event>(cluster, Some(namespace), ListParams::default()).await;
        let what = format!("events in {namespace}");
        let found = contents.read(&what, found).unwrap_or_default();
        events.extend(found.into_iter().filter(is_about_us));
    }
    contents.json("events.json", &kept(&events, &EVENT));
}
