//! Objects that users write on the management cluster.

use anyhow::{Context, Result};
use globalps_core::api::{ClusterPhase, ClusterPullSecret, FleetPullSecret};
use globalps_core::names::{CLUSTER_LABEL, DATA_KEY, RETRY_ANNOTATION, SECRET_TYPE};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{FLEETS, Hubs};
use crate::fleet::hub_stage::CLUSTERS;
use crate::fleet::objects::unless_gone;
use crate::secrecy;

impl Hubs<'_> {
    pub(super) fn objects(&self) -> Api<FleetPullSecret> {
        Api::namespaced(self.client.clone(), CLUSTERS)
    }

    pub(super) fn clusters(&self) -> Api<ClusterPullSecret> {
        Api::namespaced(self.client.clone(), CLUSTERS)
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), CLUSTERS)
    }

    /// `is_good`: whether the kubeconfig has valid credentials.
    pub(super) async fn register(&self, at: usize, is_good: bool) -> Result<()> {
        self.register_as(at, at, is_good).await
    }

    /// Like [`Self::register`], with the kubeconfig of the member `to`.
    pub(super) async fn register_as(&self, at: usize, to: usize, is_good: bool) -> Result<()> {
        let place = &self.places[at];
        let kubeconfig = self.places[to].kubeconfig(&self.members)?;
        let mut kubeconfig: Value = serde_json::from_str(&kubeconfig)?;
        if !is_good {
            kubeconfig["users"][0]["user"] = json!({"token": "unkn0wn"});
        }
        let labels = json!({
            CLUSTER_LABEL: "true", "fleet": FLEETS[self.fleet_of(at)], "selected": place.is_selected.to_string(),
        });
        let metadata = json!({"name": place.name, "labels": labels});
        let data = json!({"kubeconfig": kubeconfig.to_string()});
        self.apply_secret(&json!({"metadata": metadata, "stringData": data}))
            .await
    }

    pub(super) async fn apply_secret(&self, fields: &Value) -> Result<()> {
        let mut secret = fields.clone();
        (secret["apiVersion"], secret["kind"]) = (json!("v1"), json!("Secret"));
        let name = fields["metadata"]["name"].as_str().context("a name")?;
        let (params, secret) = (PatchParams::apply("soak").force(), Patch::Apply(&secret));
        self.secrets().patch(name, &params, &secret).await?;
        Ok(())
    }

    /// Changes the source's content.
    pub(super) async fn rotate(&mut self, fleet: usize) -> Result<()> {
        self.fleets[fleet].content += 1;
        self.write_source(fleet).await
    }

    pub(super) async fn write_source(&self, fleet: usize) -> Result<()> {
        let fleet = &self.fleets[fleet];
        let config = config(fleet.name, fleet.content);
        self.apply_source(fleet.name, &config).await
    }

    pub(super) async fn apply_source(&self, name: &str, config: &str) -> Result<()> {
        let (metadata, data) = (json!({"name": name}), json!({DATA_KEY: config}));
        let secret = json!({"metadata": metadata, "type": SECRET_TYPE, "stringData": data});
        self.apply_secret(&secret).await
    }

    pub(super) async fn configure(&self, fleet: usize, rollout: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"rollout": rollout}}));
        let params = PatchParams::default();
        self.objects().patch(FLEETS[fleet], &params, &patch).await?;
        Ok(())
    }

    /// Requests a retry for every cluster of this kind.
    pub(super) async fn retry(
        &mut self,
        is_meant: impl Fn(&ClusterPullSecret) -> bool,
    ) -> Result<()> {
        let objects = self.clusters().list(&ListParams::default()).await?;
        for object in objects.iter().filter(|object| is_meant(object)) {
            self.retries += 1;
            let annotations = json!({RETRY_ANNOTATION: self.retries.to_string()});
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let params = PatchParams::default();
            let name = object.name_any();
            let patched = self.clusters().patch(&name, &params, &patch).await;
            unless_gone(patched)?;
        }
        Ok(())
    }

    pub(super) async fn retry_failed(&mut self) -> Result<()> {
        let has_failed = |object: &ClusterPullSecret| {
            let status = object.status.as_ref();
            status.is_some_and(|status| status.phase == ClusterPhase::Failed)
        };
        self.retry(has_failed).await
    }
}

pub(super) fn config(fleet: &str, number: u32) -> String {
    let password = format!("s0ak-{fleet}-{number}-s3cret");
    secrecy::remember_login("soak", &password);
    let entry = json!({"username": "soak", "password": password});
    json!({"auths": {"soak.example.com": entry}}).to_string()
}
