//! Watches one object by name and reports whether it is present, absent, forbidden or unknown.

use std::fmt::Debug;
use std::future::ready;

use futures::stream::{BoxStream, StreamExt as _};
use globalps_core::decode::Item;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::list_events::{Event, one};
use crate::list_watch::{Update, list_watch};

/// The known state of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState<K> {
    /// The last state that could be decoded.
    Present(K),
    /// The object can't be decoded, for this reason (a clause).
    Unreadable(String),
    /// The object does not exist, or is being deleted.
    Absent,
    /// The API server does not allow it.
    Forbidden,
    /// The request failed: the error, without content of a response.
    Unknown(String),
    /// The request has been failing for long: the last known state may be outdated.
    Stale,
}

/// The state of the object of this name, and each change of it. `what` names the watch in the log.
pub fn watch_object<K>(
    api: Api<Item<K>>,
    name: &str,
    what: &'static str,
) -> BoxStream<'static, ObjectState<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    let mut listed = None;
    list_watch(api, one(name), what)
        .filter_map(move |update| ready(state(update, &mut listed)))
        .boxed()
}

/// The object as a list has it, or why it is unreadable.
type ListedObject<K> = Option<Result<K, String>>;

/// `listed`: the object in the list in progress; `None`: no list is in progress.
fn state<K: Resource>(
    update: Update<K>,
    listed: &mut Option<ListedObject<K>>,
) -> Option<ObjectState<K>> {
    let found = match update {
        Update::Event(Event::Init) => {
            *listed = Some(None);
            return None;
        }
        Update::Event(Event::InitApply(object)) => {
            *listed = Some(Some(Ok(object)));
            return None;
        }
        Update::Event(Event::InitDone) => listed.take().flatten(),
        Update::Event(Event::Apply(object)) => Some(Ok(object)),
        Update::Event(Event::Delete(_))
        | Update::Unreadable {
            is_deleted: true, ..
        } => None,
        Update::Unreadable { object, .. } => {
            let found = Some(Err(object.to_string()));
            if let Some(listed) = listed {
                *listed = found;
                return None;
            }
            found
        }
        Update::Stale => return Some(ObjectState::Stale),
        Update::Failed(error) if error.is_forbidden => return Some(ObjectState::Forbidden),
        Update::Failed(error) => return Some(ObjectState::Unknown(error.message)),
    };
    Some(match found {
        // A finalizer may keep a deleted object for long.
        Some(Ok(object)) if object.meta().deletion_timestamp.is_none() => {
            ObjectState::Present(object)
        }
        Some(Err(reason)) => ObjectState::Unreadable(reason),
        Some(Ok(_)) | None => ObjectState::Absent,
    })
}

#[cfg(test)]
mod tests {
    use globalps_core::decode::Unreadable;
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::ObjectMeta;
    use serde_json::json;

    use super::*;
    use crate::list_watch::WatchError;

    fn secret(deleted: bool) -> Secret {
        let time = deleted.then_some("2026-01-01T00:00:00Z");
        let secret = json!({"metadata": {"name": "a", "deletionTimestamp": time}});
        serde_json::from_value(secret).expect("a Secret")
    }

    #[test]
    fn a_state_follows_from_each_update() {
        let unreadable = |is_deleted| Update::Unreadable {
            object: Box::new(Unreadable {
                metadata: ObjectMeta::default(),
                field: "data.a".to_owned(),
            }),
            is_deleted,
        };
        let named = || {
            let reason = "its field `data.a` can't be decoded";
            Some(ObjectState::Unreadable(reason.to_owned()))
        };
        let failed = |is_forbidden| {
            Update::Failed(WatchError {
                message: "refused".to_owned(),
                is_forbidden,
                is_not_served: false,
            })
        };
        let event = Update::Event;
        let present = || Some(ObjectState::Present(secret(false)));
        let mut listed = None;
        for (case, update, expected) in vec![
            ("a list starts", event(Event::Init), None),
            (
                "it finds the object",
                event(Event::InitApply(secret(false))),
                None,
            ),
            ("it is complete", event(Event::InitDone), present()),
            ("a change", event(Event::Apply(secret(false))), present()),
            (
                "a finalizer holds it",
                event(Event::Apply(secret(true))),
                Some(ObjectState::Absent),
            ),
            (
                "it is gone",
                event(Event::Delete(secret(true))),
                Some(ObjectState::Absent),
            ),
            (
                "an outage",
                failed(false),
                Some(ObjectState::Unknown("refused".to_owned())),
            ),
            ("a long one", Update::Stale, Some(ObjectState::Stale)),
            ("no permission", failed(true), Some(ObjectState::Forbidden)),
            ("an unreadable change", unreadable(false), named()),
            (
                "an unreadable deletion",
                unreadable(true),
                Some(ObjectState::Absent),
            ),
            ("another list", event(Event::Init), None),
            ("it finds an unreadable object", unreadable(false), None),
            ("it is complete", event(Event::InitDone), named()),
            ("another list", event(Event::Init), None),
            (
                "it finds a deleted object",
                event(Event::InitApply(secret(true))),
                None,
            ),
            (
                "it is complete",
                event(Event::InitDone),
                Some(ObjectState::Absent),
            ),
            ("another list", event(Event::Init), None),
            (
                "it finds the object",
                event(Event::InitApply(secret(false))),
                None,
            ),
            ("it starts again", event(Event::Init), None),
            (
                "it finds nothing",
                event(Event::InitDone),
                Some(ObjectState::Absent),
            ),
        ] {
            assert_eq!(state(update, &mut listed), expected, "{case}");
        }
    }
}
