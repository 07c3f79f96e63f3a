//! The hub's writes in the management cluster.

use globalps_core::api::{
    ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus, FleetPullSecret,
    FleetPullSecretStatus,
};
use globalps_core::decode::Item;
use globalps_core::names::{FLEET_FINALIZER, HUB, cluster_pull_secret, fleet_revision};
use globalps_planner::clusters::input::{ClusterKey, fleet_title};
use globalps_planner::clusters::revision::FleetRevision;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::cluster_api::KIND;
use crate::objects::apply::{ApplyError, readable, within};
use crate::objects::recreate::{write_alone, write_or_recreate};

pub(super) struct Writer {
    client: Client,
}

/// The result of writing a revision.
pub(super) enum WrittenRevision {
    Revision(Box<Secret>),
    /// A Secret of another client has the name of this number.
    Taken(i64),
}

fn merge() -> PatchParams {
    PatchParams {
        field_manager: Some(HUB.to_owned()),
        ..PatchParams::default()
    }
}

impl Writer {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Applies a `ClusterPullSecret`. Its owner is the `Cluster`, or the Secret that registers the cluster.
    pub(super) async fn object(
        &self,
        (namespace, cluster): &ClusterKey,
        fleet: &FleetPullSecret,
        (cluster_version, uid): (Option<String>, String),
        spec: &ClusterPullSecretSpec,
    ) -> Result<ClusterPullSecret, ApplyError> {
        let name = object_name(cluster, fleet);
        let (api_version, kind) = match cluster_version {
            Some(version) => (version, KIND),
            None => ("v1".to_owned(), "Secret"),
        };
        let mut object = ClusterPullSecret::new(&name, spec.clone());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version,
            kind: kind.to_owned(),
            name: cluster.clone(),
            uid,
            ..OwnerReference::default()
        }]);
        let api: Api<Item<ClusterPullSecret>> = Api::namespaced(self.client.clone(), namespace);
        let params = PatchParams::apply(HUB).force();
        let patch = Patch::Apply(&object);
        let call = api.patch(&name, &params, &patch);
        let title = format!("{namespace}/{name}");
        readable("apply", "ClusterPullSecret", &title, call).await
    }

    pub(super) async fn object_status(
        &self,
        object: &ClusterPullSecret,
        status: &ClusterPullSecretStatus,
    ) -> Result<ClusterPullSecret, ApplyError> {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let api: Api<Item<ClusterPullSecret>> = Api::namespaced(self.client.clone(), &namespace);
        let patch = Patch::Merge(json!({"status": status}));
        let params = merge();
        let call = api.patch_status(&name, &params, &patch);
        let title = format!("{namespace}/{name}");
        readable("write status of", "ClusterPullSecret", &title, call).await
    }

    pub(super) async fn delete_object(
        &self,
        (namespace, cluster): &ClusterKey,
        fleet: &FleetPullSecret,
    ) -> Result<(), ApplyError> {
        let name = object_name(cluster, fleet);
        let api: Api<Item<ClusterPullSecret>> = Api::namespaced(self.client.clone(), namespace);
        let params = DeleteParams::default();
        let title = format!("{namespace}/{name}");
        let deleted = within(
            "delete",
            "ClusterPullSecret",
            &title,
            api.delete(&name, &params),
        );
        gone(deleted.await)
    }

    /// `is_new`: the hub knows no such Secret. Then one of another client is left alone; not each of them is in the hub's watch.
    pub(super) async fn revision(
        &self,
        fleet: &FleetPullSecret,
        revision: &FleetRevision,
        is_new: bool,
    ) -> Result<WrittenRevision, ApplyError> {
        let secret = revision.encode(fleet);
        if is_new {
            match self.create(fleet, &secret).await {
                Err(error) if error.is_taken() => {
                    if !self.owns(fleet, &secret.name_any()).await? {
                        return Ok(WrittenRevision::Taken(revision.number));
                    }
                }
                done => return done.map(|it| WrittenRevision::Revision(Box::new(it))),
            }
        }
        let written = self.replace(fleet, &secret).await?;
        Ok(WrittenRevision::Revision(Box::new(written)))
    }

    async fn create(&self, fleet: &FleetPullSecret, secret: &Secret) -> Result<Secret, ApplyError> {
        let namespace = fleet.namespace().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let params = PostParams {
            field_manager: Some(HUB.to_owned()),
            ..PostParams::default()
        };
        let title = format!("{namespace}/{}", secret.name_any());
        within("create", "Secret", &title, api.create(&params, secret)).await
    }

    /// Whether the fleet owns the Secret with this name. The hub may not read single Secrets, but the response to a change of nothing
    /// tells.
    async fn owns(&self, fleet: &FleetPullSecret, name: &str) -> Result<bool, ApplyError> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {}}}));
        let api = self.secrets(fleet);
        let title = format!("{}/{name}", fleet.namespace().unwrap_or_default());
        let params = PatchParams::default();
        let call = api.patch_metadata(name, &params, &patch);
        let found = within("patch", "Secret", &title, call).await?;
        let owners = found.owner_references();
        Ok(owners
            .iter()
            .any(|it| Some(&it.uid) == fleet.uid().as_ref()))
    }

    async fn replace(
        &self,
        fleet: &FleetPullSecret,
        secret: &Secret,
    ) -> Result<Secret, ApplyError> {
        let name = secret.name_any();
        let api = self.secrets(fleet);
        let title = format!("{}/{name}", fleet.namespace().unwrap_or_default());
        let write = || write_alone(&api, &title, secret, HUB);
        write_or_recreate(&api, &name, &title, &json!({}), write).await
    }

    pub(super) async fn delete_revision(
        &self,
        fleet: &FleetPullSecret,
        number: i64,
    ) -> Result<(), ApplyError> {
        let name = fleet_revision(&fleet.name_any(), number);
        let api = self.secrets(fleet);
        let params = DeleteParams::default();
        let title = format!("{}/{name}", fleet.namespace().unwrap_or_default());
        gone(within("delete", "Secret", &title, api.delete(&name, &params)).await)
    }

    fn secrets(&self, fleet: &FleetPullSecret) -> Api<Item<Secret>> {
        let namespace = fleet.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }

    /// Adds or removes the hub's finalizer.
    pub(super) async fn finalizer(
        &self,
        fleet: &FleetPullSecret,
        has: bool,
    ) -> Result<FleetPullSecret, ApplyError> {
        let mut finalizers = fleet.finalizers().to_vec();
        finalizers.retain(|it| it != FLEET_FINALIZER);
        if has {
            finalizers.push(FLEET_FINALIZER.to_owned());
        }
        let body = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": fleet.resource_version(),
        }});
        let name = fleet.name_any();
        let api = self.fleets(fleet);
        let (params, patch) = (merge(), Patch::Merge(body));
        let call = api.patch(&name, &params, &patch);
        readable("patch", "FleetPullSecret", &fleet_title(fleet), call).await
    }

    pub(super) async fn fleet_status(
        &self,
        fleet: &FleetPullSecret,
        status: &FleetPullSecretStatus,
    ) -> Result<FleetPullSecret, ApplyError> {
        let name = fleet.name_any();
        let api = self.fleets(fleet);
        let (params, patch) = (merge(), Patch::Merge(json!({"status": status})));
        let call = api.patch_status(&name, &params, &patch);
        readable(
            "write status of",
            "FleetPullSecret",
            &fleet_title(fleet),
            call,
        )
        .await
    }

    fn fleets(&self, fleet: &FleetPullSecret) -> Api<Item<FleetPullSecret>> {
        let namespace = fleet.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }
}

/// Name of the `ClusterPullSecret` of a cluster.
pub(super) fn object_name(cluster: &str, fleet: &FleetPullSecret) -> String {
    let namespace = fleet.namespace().unwrap_or_default();
    cluster_pull_secret(cluster, &namespace, &fleet.name_any())
}

/// An object that does not exist counts as deleted.
fn gone<T>(deleted: Result<T, ApplyError>) -> Result<(), ApplyError> {
    match deleted {
        Ok(_) => Ok(()),
        Err(error) if error.is_absent() => Ok(()),
        Err(error) => Err(error),
    }
}
