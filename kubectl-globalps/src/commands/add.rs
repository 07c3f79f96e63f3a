//! `add`: one registry more in the additional pull secret.

use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;

use super::{ATTEMPTS, additional, follow_if, pause};
use crate::additional::{Outcome, registry_key, with_registry};
use crate::cli::{Add, Connection, DryRun, ObjectFormat};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::password;
use crate::printer::Printer;
use crate::status::Goal;

pub(super) async fn run(
    args: &Add,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    if args.wait.wait && args.dry_run != DryRun::None {
        return Err(Failure::new(
            "a dry run changes nothing, so there is nothing to wait for",
            "leave out `--wait` or `--dry-run`",
        ));
    }
    let key = registry_key(&args.registry)?;
    let credential = password::credential(args, printer)?;
    let cluster = Cluster::connect(flags, printer).await?;
    let mut attempt = 1;
    let (secret, outcome) = loop {
        let existing = additional(&cluster).await?;
        let (planned, outcome) = with_registry(existing, &cluster.namespace, &key, &credential)?;
        match send(&cluster, planned, outcome, args.dry_run).await {
            Err(failure) if failure.is(409) && attempt < ATTEMPTS => pause(attempt).await,
            sent => break (sent?, outcome),
        }
        attempt += 1;
    };
    show(printer, secret, outcome, args)?;
    if args.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    follow_if(&cluster, Goal::Synced, &args.wait).await
}

/// Sends the Secret, if it is still what it was when it was read: else the API server says 409.
async fn send(
    cluster: &Cluster<'_>,
    secret: Secret,
    outcome: Outcome,
    dry_run: DryRun,
) -> Result<Secret, Failure> {
    if dry_run == DryRun::Client || outcome == Outcome::Unchanged {
        return Ok(secret);
    }
    let api = cluster.api::<Secret>();
    let params = PostParams {
        dry_run: dry_run == DryRun::Server,
        field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
    };
    let name = format!("{}/{}", cluster.namespace, names::ADDITIONAL_SECRET);
    if outcome == Outcome::Created {
        cluster
            .call(
                &format!("create Secret `{name}`"),
                api.create(&params, &secret),
            )
            .await
    } else {
        cluster
            .call(
                &format!("update Secret `{name}`"),
                api.replace(names::ADDITIONAL_SECRET, &params, &secret),
            )
            .await
    }
}

fn show(
    printer: &Printer,
    mut secret: Secret,
    outcome: Outcome,
    args: &Add,
) -> Result<(), Failure> {
    // As kubectl: nobody reads them.
    secret.metadata.managed_fields = None;
    let unprintable = |_| {
        Failure::new(
            "the Secret could not be written in that format",
            "leave out `-o`",
        )
    };
    match args.output {
        Some(ObjectFormat::Yaml) => {
            let object = serde_json::to_value(&secret).map_err(unprintable)?;
            printer.data(globalps_core::manifests::to_yaml(&[object]).trim_start_matches("---\n"));
        }
        Some(ObjectFormat::Json) => {
            printer.data(&serde_json::to_string_pretty(&secret).map_err(unprintable)?);
        }
        Some(ObjectFormat::Name) => printer.data(&format!("secret/{}", names::ADDITIONAL_SECRET)),
        None => {
            let how = match args.dry_run {
                DryRun::None => "",
                DryRun::Client => " (dry run)",
                DryRun::Server => " (server dry run)",
            };
            let (name, word) = (names::ADDITIONAL_SECRET, outcome.word());
            printer.data(&format!("secret/{name} {word}{how}"));
        }
    }
    Ok(())
}
