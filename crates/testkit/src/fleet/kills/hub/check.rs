//! Checks at each kill and at the end.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::api::{ClusterPullSecret, condition};
use globalps_core::names::{DATA_KEY, FLEET_ANNOTATION, FLEET_LABEL, REVISION_ANNOTATION};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{CANARY, FLEET, GUEST, KEY, MEMBERS, OTHER, SHARED, World};
use crate::fleet::hub_stage::is_changing;

impl World<'_> {
    /// The parts of the hub's Secret in a member that are compared.
    pub(super) fn seen_in(&self, at: usize) -> Result<Option<Value>> {
        let Some(secret) = self.members.member(at).secret() else {
            return Ok(None);
        };
        if at == OTHER {
            return Ok(Some(secret));
        }
        let annotations = &secret["metadata"]["annotations"];
        let content = secret["data"][DATA_KEY].as_str().context("no content")?;
        let content = String::from_utf8(BASE64_STANDARD.decode(content)?)?;
        let (revision, key) = (&annotations[REVISION_ANNOTATION], &secret["data"][KEY]);
        let of = &annotations[FLEET_ANNOTATION];
        Ok(Some(json!([of, revision, content, key])))
    }

    /// Checks that each revision has one content, and that a member has the content of its revision.
    pub(super) async fn check_contents(&self) -> Result<()> {
        let of_fleet = ListParams::default().labels(&format!("{FLEET_LABEL}={FLEET}"));
        let revisions = self.secrets().list(&of_fleet).await?;
        let mut seen = self.seen.lock().unwrap();
        for secret in revisions {
            let owner = secret.owner_references().first().context("an owner")?;
            let number = &secret.annotations()[REVISION_ANNOTATION];
            let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
            let content = String::from_utf8(data.context("no content")?.0.clone())?;
            let id = (owner.uid.clone(), number.parse()?);
            let first = seen.entry(id).or_insert_with(|| content.clone());
            ensure!(*first == content, "revision {number} has two contents");
        }
        let Some(fleet) = &self.fleet else {
            return Ok(());
        };
        for at in [CANARY, SHARED, GUEST] {
            let Some(found) = self.seen_in(at)? else {
                continue;
            };
            let number = found[1].as_str().context("no revision")?.parse()?;
            let known = seen.get(&(fleet.clone(), number));
            let is_known = known.is_some_and(|content| found[2] == content.as_str());
            ensure!(is_known, "member {at} has content of no revision: {found}");
        }
        Ok(())
    }

    /// Checks that only one member changes at a time, according to the hub's objects and the members.
    pub(super) async fn check_limit(&self) -> Result<()> {
        let all = ListParams::default();
        let objects = self.clusters().list(&all).await?;
        let changing: Vec<&ClusterPullSecret> =
            objects.iter().filter(|it| is_changing(it)).collect();
        ensure!(
            changing.len() <= 1,
            "more than one member changes: {changing:?}"
        );
        let most = self.members.most_changing();
        ensure!(most <= 1, "{most} members changed at once");
        Ok(())
    }

    /// Checks the hub's objects and their statuses.
    pub(super) async fn check_objects(&self) -> Result<()> {
        let objects = self.clusters().list(&ListParams::default()).await?;
        let members = self.has.iter().flatten().count();
        let Some(uid) = &self.fleet else {
            let left = objects.items.len();
            ensure!(left == 0, "{left} objects about clusters are left");
            let is_gone = self.fleets().get_opt(FLEET).await?.is_none();
            ensure!(is_gone, "the FleetPullSecret is still there");
            return Ok(());
        };
        let is_selected = |name: &str| {
            let mut selected = (0..MEMBERS).filter(|at| self.has[*at].is_some());
            selected.any(|at| name == self.object_name(at))
        };
        ensure!(
            objects.items.len() == members && objects.iter().all(|it| is_selected(&it.name_any())),
            "these clusters have objects: {:?}",
            objects.iter().map(|it| it.name_any()).collect::<Vec<_>>()
        );
        let fleet = self.fleets().get(FLEET).await?;
        ensure!(fleet.uid().as_ref() == Some(uid), "another FleetPullSecret");
        let status = fleet.status.unwrap_or_default();
        let ready = status
            .conditions
            .iter()
            .find(|it| it.type_ == condition::READY);
        let ready = ready.map(|it| (it.status.as_str(), it.reason.as_str()));
        let wanted = if self.has_failed {
            ("False", "ClustersFailed")
        } else {
            ("True", "Synced")
        };
        let synced = if self.has_failed { 0 } else { members };
        ensure!(
            ready == Some(wanted)
                && Some(status.observed_generation) == fleet.metadata.generation
                && status.revision == self.revision
                && usize::try_from(status.counts.synced)? == synced
                && usize::try_from(status.counts.total)? == members,
            "not {wanted:?} with revision {}: {status:?}",
            self.revision
        );
        Ok(())
    }
}
