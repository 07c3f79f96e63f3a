//! `why -A`: why pods of all namespaces, or of one, can't pull.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::explain::PullerSeen;
use super::live_check::trust;
use super::why::{Looked, findings, look};
use super::why_facts::{events, shared};
use crate::cli::{Connection, Named, Why};
use crate::cluster::namespaces::each;
use crate::cluster::{Cluster, node_secrets, of_credentials};
use crate::error::{Exit, Failure, Result, allowed};
use crate::terminal::printer::{Printer, Stream, terminal_width};
use crate::view::why::{CommandTarget, Failing, Groups, Lag, PodSeen, SANDBOX, Said, Use, failing};

/// Maximum number of groups of similar pods whose credentials are listed; others are judged by the kubelet's message.
const MOST_LOOKED_AT: usize = 500;
/// Groups of similar pods that are examined concurrently.
const AT_ONCE: usize = 8;

/// Pods with an equal value have the same cause.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    namespace: String,
    service_account: String,
    image: String,
    pull_secrets: Vec<String>,
    said: Said,
    used: Use,
    /// The node, if it does not have the newest revision.
    lagging: String,
}

/// A group of similar pods: one of them, its container, and the names of all.
struct PodGroup {
    pod: Pod,
    failing: Failing,
    names: Vec<String>,
}

pub(super) async fn run(args: &Why, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let trust = (!args.no_ask).then(|| trust(&args.asking)).transpose()?;
    let mut cluster = Cluster::connect(flags, printer)?;
    cluster.namespace = of_credentials(&cluster).await?;
    let cluster = &cluster;
    let asked = flags.namespace.as_deref().filter(|_| !args.all_namespaces);
    let namespace = match asked {
        None if !args.all_namespaces && !may_list_everywhere(cluster).await? => {
            let own = cluster.own_namespace.as_str();
            printer.note(format_args!(
                "only pods of namespace `{own}`: you may not list those of the others; `-n` chooses another one"
            ));
            Some(own)
        }
        asked => asked,
    };
    let mut shared = shared(cluster).await?;
    if shared.gps.is_some() {
        let nodes = node_secrets(cluster).await?;
        let nodes = nodes
            .iter()
            .map(|(name, object)| (name.clone(), object.clone()));
        shared.nodes = Some(nodes.collect());
    }
    let kinds = kinds(cluster, namespace, |node| {
        let object = shared.nodes.as_ref().and_then(|nodes| nodes.get(node));
        object.is_some_and(|it| Lag::of(shared.gps.as_ref(), it).is_some())
    })
    .await?;
    if kinds.len() > MOST_LOOKED_AT {
        printer.warning(format_args!(
            "these pods differ in {} ways; of {} only the kubelet's words are judged",
            kinds.len(),
            kinds.len() - MOST_LOOKED_AT
        ));
    }
    let looked = kinds.into_iter().enumerate().map(|(at, kind)| {
        let shared = &shared;
        async move {
            let seen = PodSeen::of(&kind.pod);
            let failing = kind.failing;
            let looked = if at < MOST_LOOKED_AT {
                let named = Named {
                    namespace: seen.namespace.clone(),
                    name: seen.name.clone(),
                };
                let of = PullerSeen::Pod(named, Box::new(kind.pod));
                look(cluster, shared, &of, (&seen, failing)).await?
            } else {
                Looked::without_name(failing)
            };
            Ok::<_, Failure>((seen, looked, kind.names))
        }
    });
    let looked: Vec<_> = stream::iter(looked).buffered(AT_ONCE).try_collect().await?;
    let all: Vec<&Looked> = looked.iter().map(|(_, looked, _)| looked).collect();
    let known = findings(cluster, &shared, &all, trust, &args.asking).await?;
    let place = CommandTarget {
        context: flags.context.as_deref(),
        secrets: &cluster.namespace,
    };
    let groups = Groups::of(looked.into_iter().map(|(seen, looked, names)| {
        let found = looked.explained(&seen, &place, &known);
        (found.cause, names)
    }));
    printer.print(&args.output, ("the answer", &groups), [], || {
        if groups.pods == 0 {
            printer.note("no pods are waiting for images");
        } else {
            printer.data(&groups.text(terminal_width(Stream::Out).map(usize::from)));
        }
    })?;
    Ok(Exit::of(groups.pods == 0))
}

/// Whether this user may list the pods of every namespace.
async fn may_list_everywhere(cluster: &Cluster<'_>) -> Result<bool> {
    let api: Api<Pod> = Api::all(cluster.client.clone());
    let first = ListParams::default().limit(1);
    let listed = cluster.call("list the pods", api.list_metadata(&first));
    Ok(allowed(listed.await)?.is_some())
}

/// The pods that can't pull, grouped by similarity. Only a pod's first container counts.
async fn kinds(
    cluster: &Cluster<'_>,
    namespace: Option<&str>,
    lags: impl Fn(&str) -> bool,
) -> Result<Vec<PodGroup>> {
    // Only events of sandboxes are needed, because a container's status has its own message.
    let all = events(cluster, namespace, &format!("reason={SANDBOX}")).await?;
    let mut of_sandboxes: BTreeMap<(String, String), Vec<Event>> = BTreeMap::new();
    for event in all {
        let pod = &event.involved_object;
        let key = (pod.namespace.clone(), pod.name.clone());
        let key = (key.0.unwrap_or_default(), key.1.unwrap_or_default());
        of_sandboxes.entry(key).or_default().push(event);
    }
    let mut kinds: BTreeMap<Alike, PodGroup> = BTreeMap::new();
    unfinished_pods(cluster, namespace, |pod| {
        let seen = PodSeen::of(&pod);
        let own = of_sandboxes.get(&(seen.namespace.clone(), seen.name.clone()));
        let own = own.map_or(&[][..], |own| own.as_slice());
        let Some(failing) = failing(&pod, own).into_iter().next() else {
            return;
        };
        let name = format!("{}/{}", seen.namespace, seen.name);
        let references = pod.spec.iter().flat_map(|spec| &spec.image_pull_secrets);
        let alike = Alike {
            pull_secrets: references.flatten().map(|it| it.name.clone()).collect(),
            image: failing.image.clone(),
            said: failing.said(),
            used: failing.used.clone(),
            lagging: Some(seen.node)
                .filter(|node| lags(node))
                .unwrap_or_default(),
            namespace: seen.namespace,
            service_account: seen.service_account,
        };
        let kind = kinds.entry(alike).or_insert_with(|| PodGroup {
            pod: slim(pod),
            failing,
            names: Vec::new(),
        });
        kind.names.push(name);
    })
    .await?;
    let mut kinds: Vec<PodGroup> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.names.len()));
    Ok(kinds)
}

/// Drops the large fields that are not used.
fn slim(mut pod: Pod) -> Pod {
    pod.managed_fields_mut().clear();
    pod
}

/// All pods that have not ended, read page by page. `namespace`: `None` for all.
pub(super) async fn unfinished_pods(
    cluster: &Cluster<'_>,
    namespace: Option<&str>,
    keep: impl FnMut(Pod),
) -> Result<()> {
    let client = cluster.client.clone();
    let api: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    // A running pod can also wait for the image of a restarted container.
    let params = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    each(cluster, &api, params, "list the pods", keep).await
}
