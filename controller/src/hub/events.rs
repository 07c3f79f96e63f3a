//! Events about the identities of clusters, on their `ClusterPullSecret`s.

use globalps_core::api::{ClusterPullSecret, ClusterPullSecretStatus};
use globalps_core::names::HUB;
use globalps_core::reasons::Reason;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::time::timeout;

use crate::report::events::{self, Note, TIMEOUT};

/// The event for the change from the object's status to this one.
pub(super) fn event(object: &ClusterPullSecret, status: &ClusterPullSecretStatus) -> Option<Event> {
    let before = object.status.clone().unwrap_or_default();
    let note: Note = if status.reason == Reason::IdentityChanged {
        let is_new = before.reason != Reason::IdentityChanged;
        is_new.then(|| (Reason::IdentityChanged, status.message.clone()))?
    } else {
        let known = before.identity.filter(|it| !it.is_empty())?;
        let new = status.identity.as_ref().filter(|it| **it != known)?;
        let note = format!("the cluster has the identity `{new}` from now on, not `{known}`");
        (Reason::IdentityAccepted, note)
    };
    // A member that changes its identity again and again writes no second one while the first one is kept.
    let metadata = ObjectMeta {
        name: Some(format!(
            "{}.{}",
            object.uid()?,
            note.0.as_str().to_lowercase()
        )),
        ..ObjectMeta::default()
    };
    Some(events::event(HUB, object.object_ref(&()), metadata, note))
}

/// Writes it in the background, so that no rollout waits for an event.
pub(super) fn record(client: &Client, event: Event) {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    tokio::spawn(async move {
        let params = PostParams::default();
        match timeout(TIMEOUT, api.create(&params, &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
            Ok(Err(error)) => tracing::warn!(%error, "could not write an event"),
            Err(_) => tracing::warn!("could not write an event in time"),
        }
    });
}

#[cfg(test)]
mod tests {
    use globalps_core::api::ClusterPullSecretSpec;

    use super::*;

    #[test]
    fn an_identity_change_and_its_acceptance_are_one_event_each() {
        let status = |reason: &str, identity: Option<&str>| ClusterPullSecretStatus {
            reason: reason.to_owned(),
            message: "m".to_owned(),
            identity: identity.map(str::to_owned),
            ..ClusterPullSecretStatus::default()
        };
        let (none, changed) = (Some("1"), "IdentityChanged");
        for (before, after, expected) in [
            (status("", None), status("", none), None),
            (status("", Some("")), status("", none), None),
            (status("", none), status("Conflict", none), None),
            (
                status("", none),
                status(changed, none),
                Some((changed, "m")),
            ),
            (status(changed, none), status(changed, none), None),
            (
                status(changed, none),
                status("", Some("2")),
                Some((
                    "IdentityAccepted",
                    "the cluster has the identity `2` from now on, not `1`",
                )),
            ),
        ] {
            let mut object = ClusterPullSecret::new("m", ClusterPullSecretSpec::default());
            object.metadata.uid = Some("u".to_owned());
            object.metadata.namespace = Some("ns".to_owned());
            object.status = Some(before);
            let found = event(&object, &after);
            let found = found.map(|it| (it.reason.unwrap(), it.note.unwrap()));
            let expected = expected.map(|(reason, note)| (reason.to_owned(), note.to_owned()));
            assert_eq!(found, expected, "{after:?}");
        }
    }
}
