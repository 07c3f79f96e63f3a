//! `why -A`: why pods of all namespaces, or of one, can't pull.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use crate::cli::{Connection, Named, Why};
use crate::cluster::{Cluster, node_secrets, of_credentials};
use crate::credentials::live_check::trust;
use crate::diagnose::evidence::image::{PullerSeen, Shared};
use crate::diagnose::evidence::pod::{Looked, findings, look};
use crate::diagnose::evidence::pods::kinds;
use crate::diagnose::why::{CommandTarget, Groups, Lag, PodSeen};
use crate::error::{Exit, Failure, Result, allowed};
use crate::target::pull_secret::installed_configuration;
use crate::terminal::printer::{Printer, Stream, terminal_width};

/// Maximum number of groups of similar pods whose credentials are listed; others are judged by the kubelet's message.
const MOST_LOOKED_AT: usize = 500;
/// Groups of similar pods that are examined concurrently.
const AT_ONCE: usize = 8;

pub(crate) async fn run(args: &Why, flags: &Connection, printer: &Printer) -> Result<Exit> {
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
    // Pods have their own Secrets even without globalps.
    let gps = installed_configuration(cluster).await?;
    let mut shared = Shared::of(cluster, gps).await?;
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
