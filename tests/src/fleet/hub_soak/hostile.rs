//! A member that reports the identity of another one, and a tenant who writes the kubeconfig of another member into a Secret. Both harm
//! only the cluster itself. What an admin does about it follows at the end of the iteration.

use anyhow::Result;
use globalps_core::names::{ACCEPTED_IDENTITY_ANNOTATION, CLUSTER_ANNOTATION};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::objects::unless_gone;
use super::place::Server;
use super::{REAL, World};
use crate::fleet::hub_stage::CLUSTERS;

impl World<'_> {
    /// A simulated member reports the identity of another one.
    pub(super) async fn lie(&mut self) -> Result<()> {
        let at = self.rng.usize(REAL..self.places.len());
        let other = self.rng.usize(REAL..self.places.len());
        let name = self.places[other].name.clone();
        self.outcome.lies += 1;
        self.places[at].claim(&self.members, Some(&name)).await;
        Ok(())
    }

    /// The Secret of a member has the kubeconfig of another one of its fleet.
    pub(super) async fn redirect(&mut self) -> Result<()> {
        let all = if self.rng.bool() {
            0..REAL
        } else {
            REAL..self.places.len()
        };
        let (at, to) = (self.rng.usize(all.clone()), self.rng.usize(all));
        self.outcome.lies += 1;
        self.register_as(at, to, true).await
    }

    pub(super) async fn end_lies(&mut self) {
        for at in REAL..self.places.len() {
            self.places[at].claim(&self.members, None).await;
        }
    }

    /// What `fleet accept` does for each cluster that the hub found to be another one, and what the owner of a cluster does about a
    /// Secret that was written for another one.
    pub(super) async fn accept(&mut self) -> Result<()> {
        let objects = self.clusters().list(&ListParams::default()).await?;
        for object in objects {
            let found = object.status.as_ref();
            let Some(found) = found.and_then(|it| it.found_identity.clone()) else {
                continue;
            };
            let annotations = json!({ACCEPTED_IDENTITY_ANNOTATION: found});
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let (name, params) = (object.name_any(), PatchParams::default());
            let patched = self.clusters().patch(&name, &params, &patch).await;
            unless_gone(patched.map(drop))?;
        }
        for place in &mut self.places {
            if place.server != Server::Up {
                continue;
            }
            let secret = place.secret(&self.members).await?.unwrap_or_default();
            let written_for = secret["metadata"]["annotations"][CLUSTER_ANNOTATION].as_str();
            let own = format!("{CLUSTERS}/{}", place.name);
            if written_for.is_some_and(|it| it != own) {
                place.delete(&self.members).await?;
            }
        }
        Ok(())
    }
}
