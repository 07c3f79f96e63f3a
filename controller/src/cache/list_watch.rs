//! Lists and watches objects, with deadlines. After an error it lists again: a resumed watch yields nothing until something
//! changes, so nobody could tell whether it works. An object that can't be decoded is no error: the others are not affected.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use globalps_core::decode::{Item, Unreadable};
use kube::runtime::watcher::{self, DefaultBackoff, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use super::list_events::list_events;
use crate::telemetry::client::without_content;

/// Deadline of a list, and of each page of it.
const LIST: Duration = Duration::from_secs(15);
/// Interval between lists of a resource that the API server doesn't serve; it may never be installed.
pub(crate) const NOT_SERVED: Duration = Duration::from_secs(30);
/// Maximum backoff, so that the end of an outage is noticed soon.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) enum Update<K> {
    /// Each list starts with [`Event::Init`] and is complete at [`Event::InitDone`].
    Event(Event<K>),
    /// An object of the list or watch can't be decoded. `is_deleted`: that was its last event.
    Unreadable {
        object: Box<Unreadable>,
        is_deleted: bool,
    },
    /// A list is not complete within its deadline: the known objects may be outdated until it is.
    Stale,
    /// The objects are listed again.
    Failed(WatchError),
}

impl<K> Update<K> {
    pub(crate) fn map<T>(self, f: impl Fn(K) -> T) -> Update<T> {
        match self {
            Self::Event(Event::Apply(object)) => Update::Event(Event::Apply(f(object))),
            Self::Event(Event::Delete(object)) => Update::Event(Event::Delete(f(object))),
            Self::Event(Event::Init) => Update::Event(Event::Init),
            Self::Event(Event::InitApply(object)) => Update::Event(Event::InitApply(f(object))),
            Self::Event(Event::InitDone) => Update::Event(Event::InitDone),
            Self::Unreadable { object, is_deleted } => Update::Unreadable { object, is_deleted },
            Self::Stale => Update::Stale,
            Self::Failed(error) => Update::Failed(error),
        }
    }
}

impl<K, const OWNERS: bool> From<Event<Item<K, OWNERS>>> for Update<K> {
    fn from(event: Event<Item<K, OWNERS>>) -> Self {
        type Wrap<K> = fn(K) -> Event<K>;
        let (item, wrap, is_deleted) = match event {
            Event::Apply(item) => (item, Event::Apply as Wrap<K>, false),
            Event::InitApply(item) => (item, Event::InitApply as Wrap<K>, false),
            Event::Delete(item) => (item, Event::Delete as Wrap<K>, true),
            Event::Init => return Self::Event(Event::Init),
            Event::InitDone => return Self::Event(Event::InitDone),
        };
        match item.into_result() {
            Ok(object) => Self::Event(wrap(object)),
            Err(object) => Self::Unreadable { object, is_deleted },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchError {
    /// Without content of a response.
    pub(crate) message: String,
    /// The API server does not allow it.
    pub(crate) is_forbidden: bool,
    /// The API server does not serve the resource, so there are no such objects.
    pub(crate) is_not_served: bool,
}

struct ListWatch<K, const OWNERS: bool> {
    api: Api<Item<K, OWNERS>>,
    config: watcher::Config,
    /// Name of the watch in the log.
    what: &'static str,
    /// `None`: restarts after a backoff.
    watch: Option<BoxStream<'static, kube::Result<Event<Item<K, OWNERS>>>>>,
    backoff: DefaultBackoff,
    /// The list is complete, and the watch reports changes.
    is_complete: bool,
    /// The resource did not exist.
    is_not_served: bool,
    /// When the list must be complete; `None`: [`Update::Stale`] was reported.
    stale_at: Option<Instant>,
    /// When the next page of the list must arrive.
    response_deadline: Instant,
}

/// The objects that `config` selects, and each change of them.
pub(crate) fn list_watch<K, const OWNERS: bool>(
    api: Api<Item<K, OWNERS>>,
    config: watcher::Config,
    what: &'static str,
) -> BoxStream<'static, Update<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    let deadline = Instant::now() + LIST;
    let list_watch = ListWatch {
        watch: Some(list_events(api.clone(), config.clone()).boxed()),
        api,
        config,
        what,
        backoff: DefaultBackoff::default(),
        is_complete: false,
        is_not_served: false,
        stale_at: Some(deadline),
        response_deadline: deadline,
    };
    stream::unfold(list_watch, |mut list_watch| async move {
        let update = list_watch.next().await;
        Some((update, list_watch))
    })
    .boxed()
}

impl<K, const OWNERS: bool> ListWatch<K, OWNERS>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    async fn next(&mut self) -> Update<K> {
        loop {
            if !self.is_complete && self.stale_at.is_some_and(|at| at <= Instant::now()) {
                self.stale_at = None;
                return Update::Stale;
            }
            let Some(watch) = &mut self.watch else {
                let pause = self.backoff.next().unwrap_or(LONGEST_BACKOFF);
                let pause = pause.min(LONGEST_BACKOFF);
                sleep(if self.is_not_served {
                    NOT_SERVED
                } else {
                    pause
                })
                .await;
                self.response_deadline = Instant::now() + LIST;
                let watch = list_events(self.api.clone(), self.config.clone());
                self.watch = Some(watch.boxed());
                continue;
            };
            let event = if self.is_complete {
                Ok(watch.next().await)
            } else {
                let stale_at = self.stale_at.unwrap_or(self.response_deadline);
                timeout_at(self.response_deadline.min(stale_at), watch.next()).await
            };
            let error = match event {
                Ok(Some(Ok(event))) => {
                    self.response_deadline = Instant::now() + LIST;
                    self.is_complete |= matches!(event, Event::InitDone);
                    self.is_not_served = false;
                    return event.into();
                }
                Ok(Some(Err(error))) => WatchError::from(error),
                Ok(None) => WatchError::new("the watch has ended"),
                Err(_) if self.response_deadline > Instant::now() => continue,
                Err(_) => WatchError::new("the API server does not respond"),
            };
            self.watch = None;
            if self.is_complete {
                self.is_complete = false;
                self.stale_at = Some(Instant::now() + LIST);
            }
            let was_not_served = std::mem::replace(&mut self.is_not_served, error.is_not_served);
            if !(was_not_served && self.is_not_served) {
                let message = &error.message;
                tracing::warn!(
                    watch = self.what,
                    error = message,
                    "listing again after a watch error"
                );
            }
            return Update::Failed(error);
        }
    }
}

impl WatchError {
    fn new(message: &str) -> Self {
        Self {
            message: message.to_owned(),
            is_forbidden: false,
            is_not_served: false,
        }
    }
}

impl From<kube::Error> for WatchError {
    fn from(error: kube::Error) -> Self {
        let is_code = |code| matches!(&error, kube::Error::Api(status) if status.code == code);
        Self {
            message: without_content(&error),
            is_forbidden: is_code(403),
            is_not_served: is_code(404),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use hyper::{Request, Response};
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::Body;
    use kube::{Client, ResourceExt as _};
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    enum Reply {
        Json(u16, Value),
        Never,
    }

    fn list() -> Reply {
        let secret = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
        let list = json!({"metadata": {"resourceVersion": "2"}, "items": [secret]});
        Reply::Json(200, list)
    }

    fn error(code: u16) -> Reply {
        let status = json!({"status": "Failure", "message": "no", "reason": "", "code": code});
        Reply::Json(code, status)
    }

    /// An API server that gives these replies in order.
    fn client(replies: impl IntoIterator<Item = Reply>) -> Client {
        let replies = Arc::new(Mutex::new(replies.into_iter().collect::<VecDeque<_>>()));
        let service = service_fn(move |_: Request<Body>| {
            let reply = replies.lock().expect("no panic").pop_front();
            async move {
                let Some(Reply::Json(code, body)) = reply else {
                    return pending().await;
                };
                let response = Response::builder().status(code);
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, BoxError>(response.body(body)?)
            }
        });
        Client::new(service, "default")
    }

    /// The updates, each with the second in which it comes.
    async fn updates(replies: impl IntoIterator<Item = Reply>, count: usize) -> Vec<(u64, String)> {
        let begun = Instant::now();
        let api: Api<Item<Secret>> = Api::default_namespaced(client(replies));
        let updates = list_watch(api, watcher::Config::default(), "secrets");
        let described = updates.take(count).map(|update| {
            let text = match update {
                Update::Event(Event::Init) => "init".to_owned(),
                Update::Event(Event::InitApply(secret)) => secret.name_any(),
                Update::Event(Event::InitDone) => "done".to_owned(),
                Update::Event(Event::Apply(_) | Event::Delete(_)) => "change".to_owned(),
                Update::Unreadable { object, .. } => format!("{}: {object}", object.name()),
                Update::Stale => "stale".to_owned(),
                Update::Failed(error) if error.is_forbidden => "forbidden".to_owned(),
                Update::Failed(_) => "failed".to_owned(),
            };
            ((Instant::now() - begun).as_secs(), text)
        });
        described.collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_without_a_response_becomes_stale_and_is_retried() {
        let watch_fails = error(500);
        let updates = updates([list(), watch_fails, Reply::Never, list()], 10).await;
        let texts: Vec<&str> = updates.iter().map(|(_, text)| text.as_str()).collect();
        let expected = ["init", "a", "done", "failed", "init", "stale"];
        assert_eq!(texts[..6], expected, "{updates:?}");
        assert_eq!(updates[5].0, LIST.as_secs(), "{updates:?}");
        // The attempt ends a little later, since it began after a backoff.
        assert_eq!(texts[6..], ["failed", "init", "a", "done"], "{updates:?}");
        assert!(updates[9].0 < 2 * LIST.as_secs() + 10, "{updates:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreadable_object_harms_no_other() {
        let secret = |name: &str, data| {
            let metadata = json!({"name": name, "resourceVersion": "1"});
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        };
        let items = [
            secret("a", json!({})),
            secret("b", json!({"k": 5})),
            secret("c", json!({})),
        ];
        let list = json!({"metadata": {"resourceVersion": "2"}, "items": items});
        let found = updates([Reply::Json(200, list), Reply::Never], 5).await;
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        let named = "b: its field `data.k` can't be decoded";
        assert_eq!(texts, ["init", "a", named, "c", "done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_outage_is_reported_once() {
        let updates = updates((0..100).map(|_| error(403)), 40).await;
        let stale: Vec<_> = updates.iter().filter(|(_, text)| text == "stale").collect();
        assert_eq!(stale.len(), 1, "{updates:?}");
        let latest = (LIST + LONGEST_BACKOFF).as_secs();
        assert!(
            (LIST.as_secs()..=latest).contains(&stale[0].0),
            "{updates:?}"
        );
        assert!(
            updates.contains(&(0, "forbidden".to_owned())),
            "{updates:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_a_change_is_not_stale() {
        let metadata = json!({"resourceVersion": "3"});
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
        let bookmark = Reply::Json(200, json!({"type": "BOOKMARK", "object": object}));
        let api: Api<Item<Secret>> = Api::default_namespaced(client([list(), bookmark]));
        let mut updates = list_watch(api, watcher::Config::default(), "secrets");
        for _ in 0..3 {
            updates.next().await;
        }
        let quiet = tokio::time::timeout(LIST * 3, updates.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
}
