//! `undo`: goes back to an additional pull secret that was rolled out before.

use globalps_core::names;
use globalps_dockerconfig::DockerConfig;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::forget::withdraw;
use super::history;
use super::pull_secret;
use super::restarts;
use super::restore_configuration::must_not_be_held;
use super::wait::{follow_if, may_wait};
use super::waiting_pods::after_wait;
use crate::cli::{Connection, DryRun, Undo};
use crate::cluster::{Cluster, must_watch};
use crate::error::{Exit, Failure, Result};
use crate::secret::additional::{may_change, refuse_deleted, refuse_immutable, valid_in};
use crate::secret::changes::{
    ChangeKind, InForce, RegistryChange, changes, reach_nodes, text_of_all,
};
use crate::secret::effects::Differs;
use crate::secret::history::{Revision, last_other};
use crate::terminal::{Printer, confirm};
use crate::view::status::{ANOTHER_CHANGED, Goal};

pub(super) async fn run(args: &Undo, flags: &Connection, printer: &Printer) -> Result<Exit> {
    may_wait(args.wait.rollout.wait, args.dry_run)?;
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    must_not_be_held(&cluster).await?;
    let observed = history::observe(&cluster).await?;
    let (revisions, in_force) = (observed.revisions, observed.in_force);
    let place = (names::ADDITIONAL_SECRET, names::DATA_KEY);
    let existing = pull_secret::get(&cluster, names::ADDITIONAL_SECRET).await?;
    if let Some(secret) = &existing {
        refuse_deleted(secret)?;
    }
    let now = existing
        .as_ref()
        .and_then(|secret| valid_in(secret, place.1));
    let is_in_force = |now: &DockerConfig| now.means_the_same(&in_force.additional);
    // One that was removed is not what changed either.
    let has_none = existing.is_none() && in_force.additional.is_without_credentials();
    if args.to_revision.is_none()
        && observed.was_additional_rolled_out
        && now.as_ref().map_or(has_none, is_in_force)
    {
        return Err(Failure::new(
            "the rollout that is not finished did not change the additional pull secret, so going back to another one leaves its cause",
            format!("{ANOTHER_CHANGED}; `--to-revision` goes back all the same"),
        ));
    }
    let before = (now.as_ref(), &in_force);
    let forgotten = observed.forgotten;
    let revision = choose(&revisions, args.to_revision, before, |_| {
        history::hint(args.to_revision, forgotten)
    })?;
    let number = revision.number;
    if now.is_some_and(|now| now.means_the_same(&revision.config)) {
        printer.note(format_args!(
            "the additional pull secret is already the one of revision {number}"
        ));
        return Ok(Exit::Done);
    }
    if let Some(secret) = &existing {
        refuse_immutable(secret)?;
        let owner = may_change(secret, args.owner.force_conflicts)?;
        pull_secret::warn_of_owners(printer, owner);
    }
    let changed = changes(&in_force, &revision.config);
    let is_restored = |change: &&RegistryChange| {
        !matches!(change.change, ChangeKind::Removed | ChangeKind::Shadowed)
    };
    let restored = changed.iter().filter(is_restored);
    let restored: Vec<String> = restored.map(|it| it.registry.clone()).collect();
    let change = text_of_all(&changed, "on the nodes");
    let (global, gps) = pull_secret::seen(&cluster).await;
    let deliveries = restarts::deliveries(&cluster, global.as_ref(), gps.as_ref()).await;
    let differs = Differs {
        any: !changed.is_empty(),
        on_nodes: reach_nodes(&changed),
        has_scope: false,
    };
    let effects = deliveries.effects(&revision.config, differs).sentences();
    let question = format!("Go back to the additional pull secret of revision {number}?");
    let asked = Asked {
        change: &change,
        effects: &effects,
        question: &question,
        yes: args.yes,
    };
    roll_back(&cluster, existing, place, revision, asked, args.dry_run).await?;
    if args.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    withdraw(&cluster, number).await?;
    let exit = follow_if(&cluster, Goal::Synced, &args.wait.rollout).await?;
    if args.wait.rollout.wait && exit == Exit::Done {
        after_wait(&cluster, &restored, None, &args.wait).await?;
    }
    Ok(exit)
}

/// The revision of this number, or the newest that changes something on nodes that have what there is `now`. `hint`: from the numbers that are kept.
pub(super) fn choose<'a>(
    revisions: &'a [Revision],
    number: Option<i64>,
    (now, in_force): (Option<&DockerConfig>, &InForce),
    hint: impl Fn(&[Revision]) -> String,
) -> Result<&'a Revision> {
    let (found, missing) = match number {
        Some(number) => (
            revisions.iter().find(|revision| revision.number == number),
            format!("revision {number} is not kept"),
        ),
        None => (
            last_other(revisions, now, in_force),
            "there is nothing to go back to".to_owned(),
        ),
    };
    found.ok_or_else(|| Failure::new(missing, hint(revisions)))
}

/// What the user sees before a change.
pub(super) struct Asked<'a> {
    pub change: &'a str,
    /// What it does beside, each a sentence.
    pub effects: &'a [String],
    pub question: &'a str,
    /// The flag that answers it.
    pub yes: bool,
}

/// Shows what changes and what it does beside, asks, and writes the revision into the Secret; whatever else is in it stays. `place`: name of the
/// Secret, and key.
pub(super) async fn roll_back(
    cluster: &Cluster<'_>,
    existing: Option<Secret>,
    place: (&str, &str),
    revision: &Revision,
    asked: Asked<'_>,
    dry_run: DryRun,
) -> Result<()> {
    let printer = cluster.printer();
    if dry_run == DryRun::None {
        printer.note(asked.change.trim_end());
    } else {
        printer.data(asked.change);
    }
    for sentence in asked.effects {
        printer.note(sentence);
    }
    if dry_run == DryRun::None {
        confirm(&cluster.title(), asked.question, asked.yes)?;
    }
    if dry_run != DryRun::Client {
        let secret = with_content(existing, place, revision.bytes.clone());
        pull_secret::put(cluster, secret, dry_run).await?;
    }
    let done = format!(
        "secret/{} rolled back to revision {}{}",
        place.0,
        revision.number,
        dry_run.suffix()
    );
    if dry_run == DryRun::None {
        printer.data(&done);
    } else {
        printer.note(done);
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
