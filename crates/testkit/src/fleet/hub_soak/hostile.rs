//! A member reports the identity of another one, and a tenant writes the kubeconfig of another member into a Secret:
//! both harm only the cluster itself. Another tenant, with members of its own, tries to exhaust the hubs from its
//! namespace. The admin's reaction follows at the end of the iteration.

use anyhow::{Result, ensure};
use globalps_core::names::{ACCEPTED_IDENTITY_ANNOTATION, CLUSTER_ANNOTATION};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::place::Server;
use super::{FLEETS, HOSTILE, Hubs, MEMORY, REAL, SIMULATED};
use crate::fleet::hub_stage::CLUSTERS;
use crate::fleet::objects::unless_gone;
use crate::fleet::tenant::lie;

impl Hubs<'_> {
    /// Makes a simulated member report the identity of another one.
    pub(super) async fn lie(&mut self) -> Result<()> {
        let at = self.events.random.usize(REAL..self.places.len());
        let other = self.events.random.usize(REAL..self.places.len());
        let name = self.places[other].name.clone();
        self.places[at].claim(&self.members, Some(&name)).await;
        Ok(())
    }

    /// Writes the kubeconfig of another member of the fleet into a member's Secret.
    pub(super) async fn redirect(&mut self) -> Result<()> {
        let all = if self.events.random.bool() {
            0..REAL
        } else {
            REAL..self.places.len()
        };
        let (at, to) = (
            self.events.random.usize(all.clone()),
            self.events.random.usize(all),
        );
        self.register_as(at, to, true).await
    }

    /// Registers the tenant's members in its namespace. Nothing waits for them.
    pub(super) async fn register_hostile(&self) -> Result<()> {
        for at in SIMULATED..SIMULATED + HOSTILE {
            let name = format!("hostile-{at}");
            let kubeconfig = self.members.kubeconfig(at);
            self.tenant.register(&name, &kubeconfig).await?;
        }
        Ok(())
    }

    /// Makes the tenant, or one of its members, do something that must harm no one else.
    pub(super) async fn attack(&mut self) -> Result<()> {
        match self.events.random.u8(0..8) {
            0 | 1 => self.tenant.fill(12, 1_000_000, None).await,
            2 => {
                // Of another namespace.
                let owner = self.objects().get(FLEETS[0]).await?.uid();
                self.tenant.fill(8, 1_000_000, owner.as_deref()).await
            }
            3 => self.tenant.empty().await,
            4 => self.tenant.pass_names(50).await,
            5 => self.tenant.replace_objects().await,
            6 => {
                // The address of a member of another owner, without its credentials.
                let at = self.events.random.usize(0..self.places.len());
                let name = self.places[at].name.clone();
                let kubeconfig = self.places[at].kubeconfig(&self.members)?;
                let mut kubeconfig: Value = serde_json::from_str(&kubeconfig)?;
                kubeconfig["users"][0]["user"] = json!({"token": "unkn0wn"});
                self.tenant.register(&name, &kubeconfig.to_string()).await
            }
            _ => {
                let at = self.events.random.usize(SIMULATED..SIMULATED + HOSTILE);
                let other = self.events.random.usize(REAL..self.places.len());
                let lie = lie(&mut self.events.random, &self.places[other].name);
                self.members.member(at).set_lie(Some(lie));
                self.members.take_away(at).await;
                self.members.bring_back(at);
                Ok(())
            }
        }
    }

    /// Checks that no hub uses more than its share of memory.
    pub(super) fn check_memory(&mut self) -> Result<()> {
        for hub in &self.hubs {
            let most = hub.usage()?.most_resident;
            self.memory = self.memory.max(most);
            ensure!(most < MEMORY, "a hub has needed {most} KiB");
        }
        Ok(())
    }

    pub(super) async fn end_lies(&mut self) {
        for at in REAL..self.places.len() {
            self.places[at].claim(&self.members, None).await;
        }
    }

    /// Does what `fleet accept` does for each cluster with a changed identity, and what the owner of a cluster does
    /// about a Secret that was written for another one.
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
            unless_gone(patched)?;
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
