//! What the API server serves, and so which platform a cluster is.

use globalps_core::names::OPENSHIFT_ORIGINAL;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use crate::cluster::client::Cluster;
use crate::error::{Result, allowed};

/// The group of `SecurityContextConstraints`.
const CONSTRAINTS: &str = "security.openshift.io";
/// Group and resource that a hosted cluster does not serve.
const MACHINE_CONFIGS: &str = "machineconfiguration.openshift.io";
const POOLS: &str = "machineconfigpools";

/// How much of `OpenShift` a cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenShift {
    /// No pod runs without a `SecurityContextConstraints`.
    pub has_constraints: bool,
    /// The Machine Config Operator writes the nodes' files.
    pub has_machine_configs: bool,
    /// From the cluster's own pull secret, which is there, or which this user may not see.
    pub has_pull_secret: bool,
}

impl OpenShift {
    /// Without permission for the discovery, it is none.
    pub(crate) async fn look(cluster: &Cluster<'_>) -> Result<Self> {
        let doing = "see which API groups the API server serves";
        let found = cluster.call(doing, cluster.client.list_api_groups()).await;
        let groups = allowed(found)?.unwrap_or_default().groups;
        let has_group = |name: &str| groups.iter().any(|group| group.name == name);
        let has_machine_configs = has_group(MACHINE_CONFIGS)
            && serves(cluster, &format!("{MACHINE_CONFIGS}/v1"), POOLS).await?;
        Ok(Self {
            has_constraints: has_group(CONSTRAINTS),
            has_machine_configs,
            has_pull_secret: has_machine_configs && has_pull_secret(cluster).await?,
        })
    }

    pub(crate) fn is_standalone(self) -> bool {
        self.has_machine_configs && self.has_pull_secret
    }
}

async fn has_pull_secret(cluster: &Cluster<'_>) -> Result<bool> {
    let (namespace, name) = OPENSHIFT_ORIGINAL;
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), namespace);
    let doing = format!("see whether Secret `{namespace}/{name}` exists");
    let found = allowed(cluster.call(&doing, api.get_metadata_opt(name)).await)?;
    Ok(found.is_none_or(|found| found.is_some()))
}

/// Whether the API server serves this resource. `version`: `GROUP/VERSION`.
pub(crate) async fn serves(cluster: &Cluster<'_>, version: &str, resource: &str) -> Result<bool> {
    let doing = format!("see whether the API server serves {resource} of `{version}`");
    let call = cluster.client.list_api_group_resources(version);
    match cluster.call(&doing, call).await {
        Ok(list) => Ok(list.resources.iter().any(|found| found.name == resource)),
        Err(failure) if failure.is(404) => Ok(false),
        Err(failure) => Err(failure),
    }
}
