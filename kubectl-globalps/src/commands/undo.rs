//! `undo`: goes back to an additional pull secret, or to the source Secret of a hub, that was rolled out before.

use globalps_core::names;
use globalps_dockerconfig::DockerConfig;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::change::forget::withdraw;
use crate::change::restarts;
use crate::change::restore_configuration::must_not_be_held;
use crate::change::waiting_pods::after_wait;
use crate::cli::{Connection, DryRun, FleetUndo, Undo};
use crate::cluster::fleet::find;
use crate::cluster::{Cluster, must_watch};
use crate::error::{Exit, Failure, Result};
use crate::secret::additional::{may_change_key, refuse_deleted, refuse_immutable, valid_in};
use crate::secret::changes::{
    ChangeKind, InForce, RegistryChange, changes, reach_nodes, text_of_all,
};
use crate::secret::effects::Differs;
use crate::secret::history::{StoredRevision, last_other};
use crate::secret::openshift::IntoOpenShift;
use crate::target::fleet_history::revisions_of;
use crate::target::history;
use crate::target::openshift;
use crate::target::pull_secret;
use crate::target::wait::{follow_if, may_wait};
use crate::target::wait_clusters::{follow_clusters_if, taken_up};
use crate::terminal::output::{show_change, show_done};
use crate::terminal::{Printer, confirm};
use crate::view::fleet::verdict::FleetGoal;
use crate::view::status::{ANOTHER_CHANGED, NodesGoal};

/// Of the source Secret of a hub.
const IF_IMMUTABLE: &str = "delete it and create it again without `immutable: true`; meanwhile every cluster keeps what it has";

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
    let changed = changes(&in_force, &revision.config);
    let is_restored = |change: &&RegistryChange| {
        !matches!(change.change, ChangeKind::Removed | ChangeKind::Shadowed)
    };
    let restored = changed.iter().filter(is_restored);
    let restored: Vec<String> = restored.map(|it| it.registry.clone()).collect();
    let (global, gps) = pull_secret::seen(&cluster).await;
    let deliveries = restarts::deliveries(&cluster, global.as_ref(), gps.as_ref()).await;
    let differs = Differs {
        any: !changed.is_empty(),
        on_nodes: reach_nodes(&changed),
        has_scope: false,
    };
    let spec = gps.as_ref().map(|gps| &gps.spec);
    let on_nodes = (
        in_force.effective(&in_force.additional),
        in_force.effective(&revision.config),
    );
    let into_openshift = openshift::planned(&cluster, spec, &on_nodes.0, &on_nodes.1).await?;
    let mut effects = deliveries.effects(&revision.config, differs).sentences();
    effects.extend(into_openshift.iter().flat_map(IntoOpenShift::sentences));
    let is_written = roll_back(
        &cluster,
        RollBack {
            place,
            existing,
            revision,
            already: format!("the additional pull secret is already the one of revision {number}"),
            if_immutable: None,
            force: args.owner.force_conflicts,
            change: text_of_all(&changed, "on the nodes"),
            effects,
            question: format!("Go back to the additional pull secret of revision {number}?"),
            yes: args.yes,
            dry_run: args.dry_run,
        },
    );
    if !is_written.await? {
        return Ok(Exit::Done);
    }
    withdraw(&cluster, number).await?;
    let exit = follow_if(&cluster, NodesGoal::Synced, &args.wait.rollout).await?;
    if args.wait.rollout.wait && exit == Exit::Done {
        after_wait(&cluster, &restored, None, &args.wait).await?;
    }
    Ok(exit)
}

pub(super) async fn undo_in_clusters(
    args: &FleetUndo,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    may_wait(args.wait.wait, args.dry_run)?;
    let cluster = Cluster::connect(flags, printer)?;
    let fleet = find(&cluster, &args.fleet).await?;
    let source = &fleet.spec.secret_ref;
    let place = (source.name.as_str(), source.key.as_str());
    let revisions = revisions_of(&cluster, &fleet).await?;
    let existing = pull_secret::get(&cluster, place.0).await?;
    let now = existing
        .as_ref()
        .and_then(|secret| valid_in(secret, place.1));
    // Clusters keep the last valid content of a source that isn't valid.
    let in_clusters = match (&now, &existing) {
        (None, Some(_)) => revisions.first().map(|newest| newest.config.clone()),
        _ => now.clone(),
    };
    let before = (now.as_ref(), &InForce::default());
    let revision = choose(&revisions, args.to_revision, before, kept)?;
    let number = revision.number;
    let in_clusters = InForce::only(in_clusters.unwrap_or_default());
    let is_written = roll_back(
        &cluster,
        RollBack {
            place,
            existing,
            revision,
            already: format!(
                "source Secret `{}` has the credentials of revision {number} already",
                place.0
            ),
            if_immutable: Some(IF_IMMUTABLE),
            force: args.force_conflicts,
            change: text_of_all(&changes(&in_clusters, &revision.config), "in the clusters"),
            effects: Vec::new(),
            question: format!(
                "Write the credentials of revision {number} into Secret `{}/{}` and roll them out?",
                cluster.namespace, place.0
            ),
            yes: args.yes,
            dry_run: args.dry_run,
        },
    );
    if !is_written.await? {
        return Ok(Exit::Done);
    }
    if args.wait.wait {
        taken_up(&cluster, &args.fleet, args.wait.timeout).await?;
    }
    follow_clusters_if(&cluster, &args.fleet, FleetGoal::Synced, &args.wait).await
}

/// The revision of this number, or the newest that changes something on nodes that have what there is `now`. `hint`: from the numbers that are kept.
fn choose<'a>(
    revisions: &'a [StoredRevision],
    number: Option<i64>,
    (now, in_force): (Option<&DockerConfig>, &InForce),
    hint: impl Fn(&[StoredRevision]) -> String,
) -> Result<&'a StoredRevision> {
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

fn kept(revisions: &[StoredRevision]) -> String {
    if revisions.is_empty() {
        return "no revision has been in force in every cluster yet".to_owned();
    }
    let numbers: Vec<String> = revisions.iter().map(|it| it.number.to_string()).collect();
    format!(
        "the revisions that every cluster had are kept: {}; `spec.historyLimit` says how many",
        numbers.join(", ")
    )
}

/// A Secret that gets the content of a revision.
struct RollBack<'a> {
    /// Name of the Secret, and key.
    place: (&'a str, &'a str),
    existing: Option<Secret>,
    revision: &'a StoredRevision,
    /// The message where the Secret means the same.
    already: String,
    /// The hint for an immutable Secret, if it is another one than for every Secret.
    if_immutable: Option<&'a str>,
    /// Disregards other owners.
    force: bool,
    /// What the user sees before the change.
    change: String,
    /// What it does beside, each a sentence.
    effects: Vec<String>,
    question: String,
    /// The flag that answers it.
    yes: bool,
    dry_run: DryRun,
}

/// Shows what changes and what it does beside, asks, and writes the revision into the Secret; whatever else is in it stays.
/// `false`: it wrote nothing.
async fn roll_back(cluster: &Cluster<'_>, back: RollBack<'_>) -> Result<bool> {
    let printer = cluster.printer();
    let (name, key) = back.place;
    let (revision, dry_run) = (back.revision, back.dry_run);
    if let Some(secret) = &back.existing {
        if valid_in(secret, key).is_some_and(|now| now.means_the_same(&revision.config)) {
            printer.note(back.already);
            return Ok(false);
        }
        let owner = may_write(secret, key, back.if_immutable, back.force)?;
        pull_secret::warn_of_owners(printer, owner);
    }
    show_change(printer, &back.change, dry_run);
    for sentence in back.effects {
        printer.note(sentence);
    }
    if dry_run == DryRun::None {
        confirm(&cluster.title(), &back.question, back.yes)?;
    }
    if dry_run != DryRun::Client {
        let secret = with_content(back.existing, back.place, revision.bytes.clone());
        pull_secret::put(cluster, secret, dry_run).await?;
    }
    let number = revision.number;
    let done = format_args!("secret/{name} rolled back to revision {number}");
    show_done(printer, done, dry_run);
    Ok(dry_run == DryRun::None)
}

/// Refuses to write into a Secret that can't be changed, or that another program would restore.
fn may_write(
    secret: &Secret,
    key: &str,
    if_immutable: Option<&str>,
    force: bool,
) -> Result<Option<String>> {
    refuse_deleted(secret)?;
    refuse_immutable(secret).map_err(|failure| match if_immutable {
        Some(hint) => Failure::new(failure.message, hint),
        None => failure,
    })?;
    may_change_key(secret, key, force)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::fleet_history::rolled_out;
    use crate::view::fleet::tests::fleet;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::ResourceExt as _;

    fn owner(uid: &str) -> OwnerReference {
        OwnerReference {
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }

    fn secret(number: &str, is_rolled_out: bool, content: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("team-a-revision-{number}"));
        secret.metadata.owner_references = Some(vec![owner("fleet-1")]);
        let annotations = secret.annotations_mut();
        annotations.insert(names::REVISION_ANNOTATION.to_owned(), number.to_owned());
        if is_rolled_out {
            let time = "2026-01-01T00:00:00Z".to_owned();
            annotations.insert(names::ROLLED_OUT_ANNOTATION.to_owned(), time);
        }
        let content = format!(r#"{{"auths":{{"{content}":{{"auth":"dTpw"}}}}}}"#);
        let content = ByteString(content.into_bytes());
        secret.data = Some([(names::DATA_KEY.to_owned(), content)].into());
        secret
    }

    #[test]
    fn only_revisions_that_every_cluster_had_come_back() {
        let mut other = secret("5", true, "other");
        other.metadata.name = Some("something-else".to_owned());
        let mut of_earlier = secret("98", true, "revoked");
        of_earlier.metadata.owner_references = Some(vec![owner("fleet-0")]);
        let mut of_nobody = secret("99", true, "planted");
        of_nobody.metadata.owner_references = None;
        let secrets = [
            of_earlier,
            of_nobody,
            secret("2", true, "a"),
            secret("10", true, "b"),
            secret("11", false, "c"),
            other,
        ];
        let owner_fleet = fleet("Synced", 11);
        let revisions = rolled_out(&owner_fleet, &secrets);
        let numbers: Vec<i64> = revisions.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [10, 2]);
        let config = |registry: &str| {
            let secret = secret("1", true, registry);
            valid_in(&secret, names::DATA_KEY)
        };
        let hint = "the revisions that every cluster had are kept: 10, 2; `spec.historyLimit` says how many";
        for (asked, now, expected) in [
            (None, config("c"), Ok(10)),
            (None, config("b"), Ok(2)),
            (None, None, Ok(10)),
            (Some(2), config("b"), Ok(2)),
            (
                Some(11),
                config("b"),
                Err(("revision 11 is not kept", hint)),
            ),
        ] {
            let found = choose(&revisions, asked, (now.as_ref(), &InForce::default()), kept);
            let found = found
                .map(|it| it.number)
                .map_err(|it| (it.message, it.hint));
            let expected = expected.map_err(|(a, b): (&str, &str)| (a.to_owned(), b.to_owned()));
            assert_eq!(found, expected, "{asked:?}");
        }
        let failure =
            choose(&[], None, (None, &InForce::default()), kept).expect_err("none is kept");
        assert_eq!(
            (failure.message.as_str(), failure.hint.as_str()),
            (
                "there is nothing to go back to",
                "no revision has been in force in every cluster yet"
            )
        );
    }

    #[test]
    fn a_secret_of_another_program_is_left_to_it() {
        for (manager, immutable, force, expected) in [
            ("kubectl-edit", false, false, Ok(None)),
            (
                "argocd-controller",
                false,
                true,
                Ok(Some("argocd-controller")),
            ),
            (
                "argocd-controller",
                false,
                false,
                Err("Secret `s` belongs to `argocd-controller`, which would undo the change"),
            ),
            ("kubectl", true, true, Err("Secret `s` is immutable")),
        ] {
            let mut secret = Secret {
                immutable: Some(immutable),
                ..Secret::default()
            };
            secret.metadata.name = Some("s".to_owned());
            let entry =
                serde_json::json!({"manager": manager, "fieldsV1": {"f:data": {"f:config": {}}}});
            let entry = serde_json::from_value(entry).expect("an entry");
            secret.metadata.managed_fields = Some(vec![entry]);
            let found = may_write(&secret, "config", Some("a hint"), force);
            let found = found.map_err(|failure| {
                assert_eq!(failure.hint == "a hint", immutable, "{failure:?}");
                failure.message
            });
            let expected = expected
                .map(|it| it.map(str::to_owned))
                .map_err(str::to_owned);
            assert_eq!(found, expected, "{manager}");
        }
    }
}
