//! `explain`: which credentials go with an image, and why: of a file, or as the cluster has them.

use globalps_core::api::{GlobalPullSecret, NodePullSecret, Phase};
use globalps_core::names;
use k8s_openapi::api::core::v1::{LocalObjectReference, Pod, Secret, ServiceAccount};
use kube::Api;

use super::read;
use crate::additional::data_of;
use crate::cli::{Connection, Explain, Named, TextFormat};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::manifest::content;
use crate::printer::Printer;
use crate::pull::{Answer, Asked, Keyring};

pub(super) async fn run(
    args: &Explain,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let asked = match &args.authfile {
        Some(file) => Asked {
            image: args.image.clone(),
            of_node: Some(Keyring {
                name: String::new(),
                bytes: content(&read(file)?)?,
            }),
            ..Asked::default()
        },
        None => ask(&Cluster::connect(flags, printer).await?, args).await?,
    };
    let answer = Answer::of(asked).map_err(|error| {
        Failure::new(
            format!("`{}` is no image's name: {error}", args.image),
            "write it as in a pod, for example `quay.io/org/app:1`",
        )
    })?;
    match args.output {
        TextFormat::Json => printer.data(&format!("{:#}", answer.json())),
        TextFormat::Text => printer.data(answer.text().trim_end()),
    }
    Ok(if answer.has_some() {
        Exit::Done
    } else {
        Exit::No
    })
}

async fn ask(cluster: &Cluster<'_>, args: &Explain) -> Result<Asked, Failure> {
    let mut asked = Asked {
        image: args.image.clone(),
        ..Asked::default()
    };
    if let Some(named) = &args.pod {
        let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &named.namespace);
        let pod = there(cluster, named, "Pod", api.get_opt(&named.name)).await?;
        let spec = pod.spec.clone().unwrap_or_default();
        let references = spec.image_pull_secrets.unwrap_or_default();
        secrets(cluster, &named.namespace, &references, &mut asked).await?;
        asked.notes.extend(words_of_kubelet(&pod, &args.image));
        if let Some(node) = &spec.node_name {
            asked.notes.extend(node_lags(cluster, node).await?);
        }
    }
    if let Some(named) = &args.service_account {
        let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &named.namespace);
        let account = there(cluster, named, "ServiceAccount", api.get_opt(&named.name)).await?;
        let references = account.image_pull_secrets.unwrap_or_default();
        secrets(cluster, &named.namespace, &references, &mut asked).await?;
    }
    let global = secret(cluster, &cluster.namespace, names::GLOBAL_SECRET).await?;
    match global
        .as_ref()
        .and_then(|global| data_of(global, names::DATA_KEY))
    {
        Some(bytes) => {
            asked.of_node = Some(Keyring {
                name: "every node's file".to_owned(),
                bytes: bytes.to_vec(),
            });
        }
        None => asked
            .notes
            .push("nothing is synced to the nodes: there is no additional pull secret".to_owned()),
    }
    Ok(asked)
}

async fn there<T>(
    cluster: &Cluster<'_>,
    named: &Named,
    kind: &str,
    request: impl Future<Output = kube::Result<Option<T>>>,
) -> Result<T, Failure> {
    cluster
        .call(&format!("get {kind} `{named}`"), request)
        .await?
        .ok_or_else(|| {
            Failure::new(
                format!("there is no {kind} `{named}`"),
                "name it as NAMESPACE/NAME",
            )
        })
}

async fn secret(
    cluster: &Cluster<'_>,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>, Failure> {
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), namespace);
    cluster
        .call(
            &format!("get Secret `{namespace}/{name}`"),
            api.get_opt(name),
        )
        .await
}

/// The Secrets that a pod names. Those that are not there a kubelet goes on without.
async fn secrets(
    cluster: &Cluster<'_>,
    namespace: &str,
    references: &[LocalObjectReference],
    asked: &mut Asked,
) -> Result<(), Failure> {
    for reference in references {
        let title = format!("Secret {namespace}/{}", reference.name);
        let found = secret(cluster, namespace, &reference.name).await?;
        match found.as_ref().map(|found| data_of(found, names::DATA_KEY)) {
            Some(Some(bytes)) => asked.of_pod.push(Keyring {
                name: title,
                bytes: bytes.to_vec(),
            }),
            Some(None) => asked
                .notes
                .push(format!("{title} has no key `{}`", names::DATA_KEY)),
            None => asked.notes.push(format!(
                "{title} is not there, and the kubelet goes on without it"
            )),
        }
    }
    if references.is_empty() {
        asked
            .notes
            .push("no Secret is named in `imagePullSecrets`".to_owned());
    }
    Ok(())
}

/// Why the pod's container waits, in the kubelet's words.
fn words_of_kubelet(pod: &Pod, image: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let all = [&status.init_container_statuses, &status.container_statuses];
    let waiting = all
        .into_iter()
        .flatten()
        .flatten()
        .filter(|container| container.image == image)
        .find_map(|container| container.state.as_ref()?.waiting.as_ref())?;
    let (reason, message) = (waiting.reason.as_deref()?, waiting.message.as_deref());
    Some(format!(
        "the kubelet says {reason}: {}",
        message.unwrap_or_default()
    ))
}

/// Whether the pod's node has something else than what is shown.
async fn node_lags(cluster: &Cluster<'_>, node: &str) -> Result<Option<String>, Failure> {
    let (gps, nps) = (
        cluster.api::<GlobalPullSecret>(),
        cluster.api::<NodePullSecret>(),
    );
    let (gps, object) = tokio::try_join!(
        cluster.call(
            "get the GlobalPullSecret",
            gps.get_opt(names::GLOBAL_SECRET)
        ),
        cluster.call("get the node's NodePullSecret", nps.get_opt(node)),
    )?;
    let wanted = gps
        .and_then(|gps| gps.status)
        .map_or(0, |status| status.revision);
    let status = object.and_then(|object| object.status).unwrap_or_default();
    Ok(
        (status.phase != Phase::Synced || status.revision < wanted).then(|| {
            format!(
                "{node} is {} with revision {} of {wanted}, so its file may be another one",
                status.phase, status.revision
            )
        }),
    )
}
