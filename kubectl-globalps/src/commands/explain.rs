//! `explain`: which credentials a pull of an image uses, and why, for a file or the cluster.

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;

use crate::cli::{Connection, Explain, PodName};
use crate::cluster::{Cluster, of_credentials};
use crate::credentials::file::read;
use crate::credentials::manifest::content;
use crate::diagnose::evidence::image::{PullerSeen, Shared, asked, there};
use crate::diagnose::evidence::keyrings::shadowed;
use crate::diagnose::pull::{Answer, Asked, Keyring};
use crate::diagnose::tried::Origin;
use crate::error::{Exit, Failure, Result};
use crate::target::pull_secret;
use crate::terminal::printer::Printer;

pub(super) async fn run(args: &Explain, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let asked = match &args.authfile {
        Some(file) => Asked {
            image: args.image.clone(),
            of_node: Some(Keyring {
                name: String::new(),
                bytes: content(&read(file)?)?,
                origin: Origin::Globalps,
            }),
            ..Asked::default()
        },
        None => ask(Cluster::connect(flags, printer)?, args).await?,
    };
    let answer = Answer::of(asked).map_err(|error| {
        Failure::new(
            format!("`{}` is no image's name: {error}", args.image),
            "write it as in a pod, for example `quay.io/org/app:1`",
        )
    })?;
    printer.print(&args.output, ("the answer", &answer.json()), [], || {
        printer.data(answer.text().trim_end());
    })?;
    if is_registry(&args.image) {
        printer.hint(format_args!(
            "`{0}` is read as an image with a tag; for a registry, name an image of it: `{0}/REPOSITORY`",
            args.image
        ));
    }
    Ok(Exit::of(answer.has_some()))
}

/// Whether the name is probably a registry with a port, which parses as a repository with a tag.
fn is_registry(image: &str) -> bool {
    let Some((host, port)) = image.split_once(':') else {
        return false;
    };
    let is_host = host == "localhost" || (host.contains('.') && !host.contains('/'));
    is_host && port.parse::<u16>().is_ok()
}

async fn ask(mut cluster: Cluster<'_>, args: &Explain) -> Result<Asked> {
    cluster.namespace = of_credentials(&cluster).await?;
    let cluster = &cluster;
    let named = |name: &PodName| name.named(&cluster.own_namespace);
    let gps = pull_secret::configuration(cluster).await;
    // An error of this request is reported later, because a missing pod is the more useful error.
    let of = match (
        args.pod.as_ref().map(named),
        args.service_account.as_ref().map(named),
    ) {
        (Some(named), _) => {
            let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &named.namespace);
            let pod = there(cluster, &named, "Pod", api.get_opt(&named.name)).await?;
            let is_on_node = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some());
            if let (true, Err(failure)) = (is_on_node, &gps) {
                return Err(failure.clone());
            }
            PullerSeen::Pod(named, Box::new(pod))
        }
        (None, Some(named)) => {
            let api: Api<ServiceAccount> =
                Api::namespaced(cluster.client.clone(), &named.namespace);
            let account =
                there(cluster, &named, "ServiceAccount", api.get_opt(&named.name)).await?;
            PullerSeen::Account(named, Box::new(account))
        }
        (None, None) => PullerSeen::Anybody,
    };
    let shared = Shared::of(cluster, gps.ok().flatten()).await?;
    let mut asked = asked(cluster, &shared, &args.image, &of, false).await?;
    let notes = &mut asked.notes;
    notes.extend(shadowed(shared.gps.as_ref(), &args.image));
    if asked.is_terminating {
        notes.push("the namespace is being deleted, and its pods with it".to_owned());
    }
    Ok(asked)
}
