//! The node's view of the API server: its `NodePullSecret` and the Secrets with content.

mod fetch;
mod secret;
mod watch;

use std::time::Duration;

use globalps_core::api::{NodePullSecret, NodePullSecretStatus};
use globalps_core::decode::Item;
use globalps_core::names::SYNCER_MANAGER;
use globalps_core::rollout::Revision;
use globalps_runtime::backoff::Backoff;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use tokio::time::timeout;

pub(crate) use fetch::FetchError;
pub(crate) use secret::{KnownSecret, ReadSecret};
pub(crate) use watch::{SeenObject, Watched};

use crate::node::state::Task;

/// Deadline of one request, except a watch.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Delay between failed requests.
pub(crate) const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    namespace: String,
    node: String,
}

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("the API server did not respond within {} s", TIMEOUT.as_secs())]
    Timeout,
}

impl WriteError {
    /// The object no longer exists.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 404)
    }
}

impl Cluster {
    pub(crate) fn new(client: Client, namespace: &str, node: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            node: node.to_owned(),
        }
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    fn objects(&self) -> Api<Item<NodePullSecret>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Writes the status of the object with this uid. If another object has the name now, the API server answers with a conflict.
    pub(crate) async fn write_status(
        &self,
        uid: &str,
        status: &NodePullSecretStatus,
    ) -> Result<(), WriteError> {
        let body = serde_json::json!({"metadata": {"uid": uid}, "status": status});
        let params = PatchParams {
            field_manager: Some(SYNCER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (objects, body) = (self.objects(), Patch::Merge(&body));
        let write = objects.patch_status(&self.node, &params, &body);
        timeout(TIMEOUT, write)
            .await
            .map_err(|_| WriteError::Timeout)??;
        Ok(())
    }
}

/// uid and generation.
pub(crate) fn identity(object: &NodePullSecret) -> (String, i64) {
    let meta = &object.metadata;
    (
        meta.uid.clone().unwrap_or_default(),
        meta.generation.unwrap_or_default(),
    )
}

/// The object's assignment to the node; `None`: there is none yet.
pub(crate) fn task(object: &NodePullSecret) -> Option<Task> {
    let spec = &object.spec;
    let is_assigned = !spec.restore && spec.revision > 0;
    let revision = if is_assigned {
        spec.assigned()
    } else {
        Revision::NONE
    };
    let (uid, generation) = identity(object);
    (spec.restore || is_assigned).then_some(Task {
        uid,
        generation,
        revision,
    })
}
