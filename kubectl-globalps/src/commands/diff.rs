//! `diff`: what the additional pull secret changes.

use globalps_core::dockerconfig::DockerConfig;
use globalps_core::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::{additional, read};
use crate::additional::data_of;
use crate::changes::{Difference, InForce, changes, text};
use crate::cli::{Connection, Diff, TextFormat};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::facts::Facts;
use crate::manifest::{proposed, valid};
use crate::printer::Printer;
use crate::status::Status;

pub(super) async fn run(
    args: &Diff,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let file = args.filename.as_deref().map(read).transpose()?;
    let file = file.as_deref().map(proposed).transpose()?;
    let cluster = Cluster::connect(flags, printer).await?;
    let facts = Facts::observe(&cluster).await?;
    let wanted = match file {
        Some(config) => config,
        None => in_cluster(&cluster).await?,
    };
    let api = cluster.api::<Secret>();
    let global = cluster
        .call(
            &format!(
                "get Secret `{}/{}`",
                cluster.namespace,
                names::GLOBAL_SECRET
            ),
            api.get_opt(names::GLOBAL_SECRET),
        )
        .await?;
    let precedence = facts.gps().map(|gps| gps.spec.precedence);
    let in_force = InForce::of(global.as_ref(), precedence.unwrap_or_default());
    let status = Status::of(&facts, Timestamp::now());
    let difference = Difference {
        changes: changes(&in_force, &wanted),
        lagging_nodes: status.lagging().map(|row| row.name.clone()).collect(),
    };
    show(printer, &difference, args.output)?;
    if !facts.installed {
        printer.warning("globalps is not installed in this cluster, so nothing is in force");
    }
    // Nodes that lag are no fault of a proposal.
    let lag = args.filename.is_none() && !difference.lagging_nodes.is_empty();
    Ok(if difference.changes.is_empty() && !lag {
        Exit::Done
    } else {
        Exit::No
    })
}

fn show(printer: &Printer, difference: &Difference, format: TextFormat) -> Result<(), Failure> {
    match format {
        TextFormat::Json => {
            let json = serde_json::to_string_pretty(difference).map_err(|_| {
                Failure::new(
                    "the difference could not be written as JSON",
                    "leave out `-o`",
                )
            })?;
            printer.data(&json);
        }
        TextFormat::Text => {
            let text = text(&difference.changes);
            if !text.is_empty() {
                printer.data(&text);
            }
            if !difference.lagging_nodes.is_empty() {
                let nodes = difference.lagging_nodes.join(", ");
                printer.note(format_args!("nodes that lag: {nodes}"));
            }
        }
    }
    Ok(())
}

/// No Secret is the same as one without registries.
async fn in_cluster(cluster: &Cluster<'_>) -> Result<DockerConfig, Failure> {
    match additional(cluster).await? {
        Some(secret) => valid(data_of(&secret, names::DATA_KEY).unwrap_or_default()),
        None => Ok(DockerConfig::default()),
    }
}
