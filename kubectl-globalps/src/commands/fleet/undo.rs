//! `fleet undo`: the credentials of an earlier revision come back into the source Secret.

use globalps_core::api::FleetPullSecret;
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;

use super::super::pull_secret;
use super::super::undo::{Asked, choose, roll_back};
use super::super::wait::may_wait;
use super::wait::{follow_if, taken_up};
use crate::cli::completion::Suggestion;
use crate::cli::{Connection, DryRun, FleetUndo};
use crate::cluster::client::Cluster;
use crate::error::{Exit, Failure, Result};
use crate::secret::additional::{may_change_of, refuse_deleted, valid_in};
use crate::secret::changes::{InForce, changes, text_of_all};
use crate::secret::history::Revision;
use crate::terminal::printer::Printer;
use crate::view::fleet::facts::find;
use crate::view::fleet::verdict::Goal;

pub(super) async fn run(args: &FleetUndo, flags: &Connection, printer: &Printer) -> Result<Exit> {
    may_wait(args.wait.wait, args.dry_run)?;
    let cluster = Cluster::connect(flags, printer)?;
    let fleet = find(&cluster, &args.fleet).await?;
    let source = &fleet.spec.secret_ref;
    let place = (source.name.as_str(), source.key.as_str());
    let revisions = revisions(&cluster, &fleet).await?;
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
    if now
        .as_ref()
        .is_some_and(|now| now.means_the_same(&revision.config))
    {
        printer.note(format_args!(
            "source Secret `{}` has the credentials of revision {number} already",
            place.0
        ));
        return Ok(Exit::Done);
    }
    may_write(existing.as_ref(), &fleet, args.force_conflicts, printer)?;
    let in_clusters = InForce::only(in_clusters.unwrap_or_default());
    let change = text_of_all(&changes(&in_clusters, &revision.config), "in the clusters");
    let question = format!(
        "Write the credentials of revision {number} into Secret `{}/{}` and roll them out?",
        cluster.namespace, place.0
    );
    let asked = Asked {
        change: &change,
        effects: &[],
        question: &question,
        yes: args.yes,
    };
    roll_back(&cluster, existing, place, revision, asked, args.dry_run).await?;
    if args.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    if args.wait.wait {
        taken_up(&cluster, &args.fleet, args.wait.timeout).await?;
    }
    follow_if(&cluster, &args.fleet, Goal::Synced, &args.wait).await
}

/// The revisions that every cluster had, the newest first.
async fn revisions(cluster: &Cluster<'_>, fleet: &FleetPullSecret) -> Result<Vec<Revision>> {
    let labels = format!("{}={}", names::FLEET_LABEL, fleet.name_any());
    let api = cluster.api::<Secret>();
    let doing = format!(
        "list the revisions of `{}`",
        crate::view::fleet::title(fleet)
    );
    let params = ListParams::default().labels(&labels);
    let secrets = cluster.call(&doing, api.list(&params)).await?;
    Ok(rolled_out(fleet, &secrets.items))
}

/// Revisions that may be gone back to, each with the time when every cluster had it.
pub(super) async fn choices(
    cluster: &Cluster<'_>,
    fleet: &FleetPullSecret,
) -> Result<Vec<Suggestion>> {
    let time = |revision: &Revision| {
        let time = revision.rolled_out.map(|time| time.to_string());
        (revision.number.to_string(), time.unwrap_or_default())
    };
    let revisions = revisions(cluster, fleet).await?;
    Ok(revisions.iter().map(time).collect())
}

fn rolled_out(fleet: &FleetPullSecret, secrets: &[Secret]) -> Vec<Revision> {
    let own = secrets
        .iter()
        .filter_map(|secret| own_revision(fleet, secret));
    let mut revisions: Vec<Revision> = own
        .filter(|revision| revision.rolled_out.is_some())
        .collect();
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    revisions
}

/// The hub rolls out only Secrets that this `FleetPullSecret` owns. Those of an earlier one with its name may hold a revoked
/// password, and anybody who may create Secrets can give one the label and the annotations.
pub(super) fn own_revision(fleet: &FleetPullSecret, secret: &Secret) -> Option<Revision> {
    let uid = fleet.metadata.uid.as_ref()?;
    let owner = secret.owner_references().first()?;
    let revision = Revision::of(secret).filter(|_| owner.uid == *uid)?;
    let name = names::fleet_revision(&fleet.name_any(), revision.number);
    (secret.name_any() == name).then_some(revision)
}

fn kept(revisions: &[Revision]) -> String {
    if revisions.is_empty() {
        return "no revision has been in force in every cluster yet".to_owned();
    }
    let numbers: Vec<String> = revisions.iter().map(|it| it.number.to_string()).collect();
    format!(
        "the revisions that every cluster had are kept: {}; `spec.historyLimit` says how many",
        numbers.join(", ")
    )
}

/// Refuses to write into a Secret that can't be changed, or that another program would restore.
fn may_write(
    existing: Option<&Secret>,
    fleet: &FleetPullSecret,
    force: bool,
    printer: &Printer,
) -> Result<()> {
    let Some(secret) = existing else {
        return Ok(());
    };
    refuse_deleted(secret)?;
    let name = secret.name_any();
    if secret.immutable == Some(true) {
        return Err(Failure::new(
            format!("Secret `{name}` is immutable"),
            "delete it and create it again without `immutable: true`; meanwhile every cluster keeps what it has",
        ));
    }
    let key = format!("f:{}", fleet.spec.secret_ref.key);
    let holds = |fields: &Value| fields["f:data"].get(&key).is_some();
    let title = format!("Secret `{name}`");
    let owner = may_change_of(&title, &secret.metadata, holds, force)?;
    pull_secret::warn_of_owners(printer, owner);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

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
        let fleet = crate::view::fleet::tests::fleet("Synced", 11);
        let revisions = rolled_out(&fleet, &secrets);
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
    fn a_source_of_another_program_is_left_to_it() {
        let fleet = crate::view::fleet::tests::fleet("Synced", 3);
        let printer = Printer::silent();
        for (manager, immutable, force, expected) in [
            ("kubectl-edit", false, false, Ok(())),
            ("argocd-controller", false, true, Ok(())),
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
            let entry = serde_json::json!({
                "manager": manager,
                "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}},
            });
            let entry = serde_json::from_value(entry).expect("an entry");
            secret.metadata.managed_fields = Some(vec![entry]);
            let found = may_write(Some(&secret), &fleet, force, &printer);
            assert_eq!(
                found.map_err(|failure| failure.message),
                expected.map_err(str::to_owned),
                "{manager}"
            );
        }
    }
}
