//! Watches the Secret that an observer compares the node's file with.

use futures::StreamExt as _;
use globalps_core::decode::Item;
use globalps_core::names::{DATA_KEY, GLOBAL_SECRET};
use globalps_core::rollout::Revision;
use globalps_dockerconfig::{DockerConfig, parse};
use globalps_runtime::object_watch::{ObjectState, watch_object};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use tokio::sync::watch;

use super::Cluster;
use super::fetch::own_revision;

/// The Secret as last seen.
#[derive(Clone, Debug)]
pub(crate) enum KnownSecret {
    /// Why it is not known, as a sentence.
    Unknown(String),
    Absent,
    Present(Box<ReadSecret>),
}

/// A version of the Secret.
#[derive(Clone, Debug)]
pub(crate) struct ReadSecret {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// `None`: globalps did not write it.
    pub(crate) revision: Option<Revision>,
    /// Its credentials, or why there are none.
    pub(crate) content: Result<DockerConfig, String>,
}

impl Cluster {
    /// Starts the watch of the Secret. What was read before an outage of the API server stays known.
    pub(crate) fn watch_secret(&self) -> watch::Receiver<KnownSecret> {
        let nothing = "it has not been read yet".to_owned();
        let (sender, receiver) = watch::channel(KnownSecret::Unknown(nothing));
        let secrets: Api<Item<Secret>> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut states = watch_object(secrets, GLOBAL_SECRET, "global pull secret");
        tokio::spawn(async move {
            while let Some(state) = states.next().await {
                let known = match state {
                    ObjectState::Present(secret) => KnownSecret::Present(Box::new(read(&secret))),
                    ObjectState::Absent => KnownSecret::Absent,
                    ObjectState::Unreadable(reason) | ObjectState::Unknown(reason) => {
                        KnownSecret::Unknown(format!(
                            "could not read Secret `{GLOBAL_SECRET}`: {reason}"
                        ))
                    }
                    ObjectState::Forbidden => KnownSecret::Unknown(format!(
                        "this node may not read Secret `{GLOBAL_SECRET}`: `kubectl globalps install` allows it"
                    )),
                    ObjectState::Stale => KnownSecret::Unknown(format!(
                        "the API server has not answered for long, so Secret `{GLOBAL_SECRET}` may have changed"
                    )),
                };
                if sender.send(known).is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

fn read(secret: &Secret) -> ReadSecret {
    let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    let content = match data {
        None => Err(format!("Secret `{GLOBAL_SECRET}` has no key `{DATA_KEY}`")),
        Some(bytes) => parse(&bytes.0).map_err(|error| {
            format!("Secret `{GLOBAL_SECRET}` has no valid registry credentials: {error}")
        }),
    };
    ReadSecret {
        uid: secret.metadata.uid.clone().unwrap_or_default(),
        resource_version: secret.metadata.resource_version.clone().unwrap_or_default(),
        revision: own_revision(secret),
        content,
    }
}
