//! `undo`: an additional pull secret that was rolled out before comes back.

use globalps_core::dockerconfig::{DockerConfig, Finding, validate_bytes};
use globalps_core::names;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;

use super::{additional, follow_if, history};
use crate::additional::data_of;
use crate::changes::{changes, text};
use crate::cli::{Connection, DryRun, Undo};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::history::{Revision, last_other};
use crate::printer::Printer;
use crate::prompt::{can_confirm, confirm};
use crate::status::Goal;

pub(super) async fn run(
    args: &Undo,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let dry = args.dry_run != DryRun::None;
    if args.wait.wait && dry {
        return Err(Failure::new(
            "a dry run changes nothing, so there is nothing to wait for",
            "leave out `--wait` or `--dry-run`",
        ));
    }
    can_confirm(args.yes || dry)?;
    let cluster = Cluster::connect(flags, printer).await?;
    let (revisions, in_force) = history::observe(&cluster).await?;
    let existing = additional(&cluster).await?;
    let now = existing.as_ref().and_then(config_of);
    let revision = choose(&revisions, args.to_revision, now.as_ref())?;
    let number = revision.number;
    if now.is_some_and(|now| now.means_the_same(&revision.config)) {
        printer.note(format_args!(
            "the additional pull secret is that of revision {number} already"
        ));
        return Ok(Exit::Done);
    }
    let change = match changes(&in_force, &revision.config) {
        none if none.is_empty() => "no credential on the nodes changes\n".to_owned(),
        some => text(&some),
    };
    if dry {
        printer.data(&change);
    } else {
        printer.note(change.trim_end());
        confirm(
            &format!("Go back to the additional pull secret of revision {number}?"),
            args.yes,
        )?;
    }
    if args.dry_run != DryRun::Client {
        let place = (names::ADDITIONAL_SECRET, names::DATA_KEY);
        write_back(&cluster, existing, place, revision.bytes.clone(), dry).await?;
    }
    let how = match args.dry_run {
        DryRun::None => "",
        DryRun::Client => " (dry run)",
        DryRun::Server => " (server dry run)",
    };
    let done = format!(
        "secret/{} rolled back to revision {number}{how}",
        names::ADDITIONAL_SECRET
    );
    if dry {
        printer.note(done);
        return Ok(Exit::Done);
    }
    printer.data(&done);
    follow_if(&cluster, Goal::Synced, &args.wait).await
}

/// What the Secret means; `None`: nothing that nodes would take.
fn config_of(secret: &Secret) -> Option<DockerConfig> {
    let (config, findings) = validate_bytes(data_of(secret, names::DATA_KEY)?);
    config.filter(|_| !findings.iter().any(Finding::is_error))
}

fn choose<'a>(
    revisions: &'a [Revision],
    number: Option<i64>,
    now: Option<&DockerConfig>,
) -> Result<&'a Revision, Failure> {
    const HINT: &str = "see `kubectl globalps history`; `spec.historyLimit` of GlobalPullSecret `global-pull-secret` says how many are kept";
    match number {
        Some(number) => revisions
            .iter()
            .find(|revision| revision.number == number)
            .ok_or_else(|| Failure::new(format!("revision {number} is not kept"), HINT)),
        None => last_other(revisions, now)
            .ok_or_else(|| Failure::new("there is nothing to go back to", HINT)),
    }
}

/// Writes the content into the Secret, if it is still what it was when it was read: else the API server says 409. `place`:
/// name of the Secret, and key.
pub(super) async fn write_back(
    cluster: &Cluster<'_>,
    existing: Option<Secret>,
    (name, key): (&str, &str),
    bytes: Vec<u8>,
    dry_run: bool,
) -> Result<(), Failure> {
    let api = cluster.api::<Secret>();
    let params = PostParams {
        dry_run,
        field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
    };
    let shown = format!("{}/{name}", cluster.namespace);
    let is_new = existing.is_none();
    let secret = with_content(existing, (name, key), bytes);
    if is_new {
        let doing = format!("create Secret `{shown}`");
        cluster.call(&doing, api.create(&params, &secret)).await?;
    } else {
        let doing = format!("update Secret `{shown}`");
        let replaced = api.replace(name, &params, &secret);
        cluster.call(&doing, replaced).await?;
    }
    Ok(())
}

/// The Secret with this content; whatever else is in it stays.
fn with_content(existing: Option<Secret>, (name, key): (&str, &str), bytes: Vec<u8>) -> Secret {
    let mut secret = existing.unwrap_or_else(|| {
        // The API server takes this type only with its own key.
        let type_ = (key == names::DATA_KEY).then(|| names::SECRET_TYPE.to_owned());
        let mut secret = Secret {
            type_,
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        secret
    });
    secret
        .data
        .get_or_insert_default()
        .insert(key.to_owned(), ByteString(bytes));
    secret
}
