//! The revisions of the source Secret of a hub that are kept.

use crate::cli::completion::Suggestion;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::secret::history::StoredRevision;
use crate::view::fleet::title;
use globalps_core::api::FleetPullSecret;
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::ListParams;

/// Revisions that may be gone back to, each with the time when all had it.
pub(crate) fn revision_choices(revisions: &[StoredRevision]) -> Vec<Suggestion> {
    let choice = |revision: &StoredRevision| {
        let time = revision.rolled_out.map(|time| time.to_string());
        (revision.number.to_string(), time.unwrap_or_default())
    };
    revisions.iter().map(choice).collect()
}

/// The revisions that every cluster had, the newest first.
pub(crate) async fn revisions_of(
    cluster: &Cluster<'_>,
    fleet: &FleetPullSecret,
) -> Result<Vec<StoredRevision>> {
    let labels = format!("{}={}", names::FLEET_LABEL, fleet.name_any());
    let api = cluster.api::<Secret>();
    let doing = format!("list the revisions of `{}`", title(fleet));
    let params = ListParams::default().labels(&labels);
    let secrets = cluster.call(&doing, api.list(&params)).await?;
    Ok(rolled_out(fleet, &secrets.items))
}

pub(crate) fn rolled_out(fleet: &FleetPullSecret, secrets: &[Secret]) -> Vec<StoredRevision> {
    let own = secrets
        .iter()
        .filter_map(|secret| own_revision(fleet, secret));
    let mut revisions: Vec<StoredRevision> = own
        .filter(|revision| revision.rolled_out.is_some())
        .collect();
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    revisions
}

/// The hub rolls out only Secrets that this `FleetPullSecret` owns. Those of an earlier one with its name may hold a revoked
/// password, and anybody who may create Secrets can give one the label and the annotations.
pub(crate) fn own_revision(fleet: &FleetPullSecret, secret: &Secret) -> Option<StoredRevision> {
    let uid = fleet.metadata.uid.as_ref()?;
    let owner = secret.owner_references().first()?;
    let revision = StoredRevision::of(secret).filter(|_| owner.uid == *uid)?;
    let name = names::fleet_revision(&fleet.name_any(), revision.number);
    (secret.name_any() == name).then_some(revision)
}
