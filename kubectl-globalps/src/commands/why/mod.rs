//! `why`: why a pod can't pull its image.

pub(super) mod all;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use crate::cli::{Asking, Connection, Named, PodName, Why};
use crate::cluster::{Cluster, of_credentials};
use crate::credentials::live_check::trust;
use crate::diagnose::evidence::facts::{account, events};
use crate::diagnose::evidence::image::{PullerSeen, Shared, there};
use crate::diagnose::evidence::pod::{Looked, findings, look, name_account};
use crate::diagnose::why::{CommandTarget, PodAnswer, PodSeen, failing, not_an_image};
use crate::error::{Exit, Result};
use crate::registry::Trust;
use crate::target::pull_secret::installed_configuration;
use crate::terminal::printer::{Printer, Stream, terminal_width};

pub(crate) async fn run(
    args: &Why,
    pod: &PodName,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    let trust = (!args.no_ask).then(|| trust(&args.asking)).transpose()?;
    let mut cluster = Cluster::connect(flags, printer)?;
    let named = pod.named(&cluster.own_namespace);
    cluster.namespace = of_credentials(&cluster).await?;
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &named.namespace);
    let pod = there(&cluster, &named, "Pod", api.get_opt(&named.name)).await?;
    let with = With {
        asking: &args.asking,
        trust,
        context: flags.context.as_deref(),
    };
    let answer = Box::pin(explained(&cluster, &named, pod, with)).await?;
    printer.print(&args.output, ("the answer", &answer), [], || {
        printer.data(&answer.text(terminal_width(Stream::Out).map(usize::from)));
    })?;
    Ok(match answer.cause {
        Some(_) => Exit::No,
        None => Exit::Done,
    })
}

/// The user's flags that affect the answer.
struct With<'a> {
    asking: &'a Asking,
    /// `None`: no registry is contacted.
    trust: Option<Trust>,
    /// Context of the kubeconfig, for the commands in the answer.
    context: Option<&'a str>,
}

async fn explained(
    cluster: &Cluster<'_>,
    named: &Named,
    pod: Pod,
    with: With<'_>,
) -> Result<PodAnswer> {
    let seen = PodSeen::of(&pod);
    let namespace = Some(named.namespace.as_str());
    let field = format!("involvedObject.name={}", named.name);
    let events = events(cluster, namespace, &field).await?;
    let found = failing(&pod, &events);
    let place = CommandTarget {
        context: with.context,
        secrets: &cluster.namespace,
    };
    let mut answer = PodAnswer {
        pod: named.to_string(),
        node: seen.node.clone(),
        containers: Vec::new(),
        cause: None,
    };
    if found.is_empty() {
        answer.cause = not_an_image(&pod, &events).map(|cause| cause.at(&place));
        return Ok(answer);
    }
    // Pods have their own Secrets even without globalps.
    let gps = installed_configuration(cluster).await?;
    let shared = Shared::of(cluster, gps).await?;
    let account = account(cluster, &seen).await?;
    let of = PullerSeen::Pod(named.clone(), Box::new(pod));
    let mut looked = Vec::new();
    for failing in found {
        looked.push(look(cluster, &shared, &of, (&seen, failing)).await?);
    }
    for tried in looked.iter_mut().flat_map(|looked| &mut looked.tries) {
        name_account(tried, &seen, account.as_ref());
    }
    let all: Vec<&Looked> = looked.iter().collect();
    let known = findings(cluster, &shared, &all, with.trust, with.asking).await?;
    let judge = |looked: &Looked| looked.explained(&seen, &place, &known);
    answer.containers = looked.iter().map(judge).collect();
    let mut causes = answer.containers.iter().map(|found| &found.cause);
    answer.cause = causes.next().cloned();
    Ok(answer)
}
