//! Lists and watches objects, with deadlines. After an error it lists again, because a resumed watch yields nothing
//! until something changes, so that it would be unknown whether it works. An object that can't be decoded is not an
//! error, and does not affect others.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use globalps_core::decode::{Item, Unreadable};
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use crate::backoff::Backoff;
use crate::list_events::{Event, Limits, SETTLED, list_events};
use crate::request::{RESPONSE, without_content};

/// Deadline of a list.
const LIST: Duration = RESPONSE;
/// Interval between lists of a resource that the API server doesn't serve; it may never be installed.
pub const NOT_SERVED: Duration = Duration::from_secs(30);
/// Maximum backoff, so that the end of an outage is noticed soon.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// Before the objects are listed again.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_millis(800), LONGEST_BACKOFF);

/// An event of a list-watch.
#[derive(Debug)]
pub enum Update<K, E = WatchError> {
    /// Each list starts with [`Event::Init`] and is complete at [`Event::InitDone`].
    Event(Event<K>),
    /// An object of the list or watch can't be decoded.
    Unreadable {
        /// The object's name, and the reason.
        object: Box<Unreadable>,
        /// The event is its deletion.
        is_deleted: bool,
    },
    /// A list is not complete within its deadline: the known objects may be outdated until it is.
    Stale,
    /// The objects are listed again.
    Failed(E),
}

impl<K> Update<K> {
    /// The same update with another type of objects.
    pub fn map<T>(self, f: impl Fn(K) -> T) -> Update<T> {
        match self {
            Self::Event(event) => Update::Event(event.map(f)),
            Self::Unreadable { object, is_deleted } => Update::Unreadable { object, is_deleted },
            Self::Stale => Update::Stale,
            Self::Failed(error) => Update::Failed(error),
        }
    }
}

impl<K, const OWNERS: bool> From<Update<Item<K, OWNERS>, kube::Error>> for Update<K> {
    fn from(update: Update<Item<K, OWNERS>, kube::Error>) -> Self {
        type Wrap<K> = fn(K) -> Event<K>;
        let (item, wrap, is_deleted) = match update {
            Update::Event(Event::Apply(item)) => (item, Event::Apply as Wrap<K>, false),
            Update::Event(Event::InitApply(item)) => (item, Event::InitApply as Wrap<K>, false),
            Update::Event(Event::Delete(item)) => (item, Event::Delete as Wrap<K>, true),
            Update::Event(Event::Init) => return Self::Event(Event::Init),
            Update::Event(Event::InitDone) => return Self::Event(Event::InitDone),
            Update::Unreadable { object, is_deleted } => {
                return Self::Unreadable { object, is_deleted };
            }
            Update::Stale => return Self::Stale,
            Update::Failed(error) => return Self::Failed(WatchError::from(&error)),
        };
        match item.into_result() {
            Ok(object) => Self::Event(wrap(object)),
            Err(object) => Self::Unreadable { object, is_deleted },
        }
    }
}

/// Why a list or watch failed; it is repeated with backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchError {
    /// Contains nothing of a response's content.
    pub message: String,
    /// The API server does not allow it.
    pub is_forbidden: bool,
    /// The API server does not serve the resource, so no such objects exist.
    pub is_not_served: bool,
}

/// The objects that `params` select, and each change of them, as [`list_events`] takes them.
pub fn list_watch<K, const OWNERS: bool>(
    api: Api<Item<K, OWNERS>>,
    params: ListParams,
    what: &'static str,
) -> BoxStream<'static, Update<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    let begin = move || list_events(api.clone(), params.clone(), Limits::USUAL, None);
    restarting(begin, what).map(Update::from).boxed()
}

/// The events that `begin` returns, which it begins again after an error. `what` names the watch in the log.
pub fn restarting<S, K, E>(
    mut begin: impl FnMut() -> S,
    what: &'static str,
) -> impl Stream<Item = Update<K, E>>
where
    S: Stream<Item = Result<Event<K>, E>>,
    for<'a> WatchError: From<&'a E>,
{
    let list_watch = ListWatch {
        events: Some(Box::pin(begin())),
        begin,
        what,
        backoff: BACKOFF,
        complete_since: None,
        is_not_served: false,
        stale_at: Some(Instant::now() + LIST),
    };
    stream::unfold(list_watch, |mut list_watch| async move {
        let update = list_watch.next().await;
        Some((update, list_watch))
    })
}

struct ListWatch<B, S> {
    begin: B,
    /// Name of the watch in the log.
    what: &'static str,
    /// `None`: they begin again after a backoff.
    events: Option<Pin<Box<S>>>,
    backoff: Backoff,
    /// When the list was complete; since then the watch reports changes.
    complete_since: Option<Instant>,
    /// The resource did not exist.
    is_not_served: bool,
    /// When the list must be complete; `None`: it is, or [`Update::Stale`] was reported.
    stale_at: Option<Instant>,
}

impl<B, S, K, E> ListWatch<B, S>
where
    B: FnMut() -> S,
    S: Stream<Item = Result<Event<K>, E>>,
    for<'a> WatchError: From<&'a E>,
{
    async fn next(&mut self) -> Update<K, E> {
        loop {
            if self.stale_at.is_some_and(|at| at <= Instant::now()) {
                self.stale_at = None;
                return Update::Stale;
            }
            let Some(events) = &mut self.events else {
                sleep(if self.is_not_served {
                    NOT_SERVED
                } else {
                    self.backoff.pause()
                })
                .await;
                self.events = Some(Box::pin((self.begin)()));
                continue;
            };
            let event = match self.stale_at {
                Some(at) => timeout_at(at, events.next()).await,
                None => Ok(events.next().await),
            };
            let error = match event {
                Ok(Some(Ok(event))) => {
                    if matches!(event, Event::InitDone) {
                        self.complete_since = Some(Instant::now());
                        self.stale_at = None;
                    }
                    // A list begins with `Init` before the API server has answered.
                    self.is_not_served &= matches!(event, Event::Init);
                    return Update::Event(event);
                }
                Ok(Some(Err(error))) => error,
                Ok(None) | Err(_) => continue,
            };
            self.events = None;
            if let Some(since) = self.complete_since.take() {
                self.stale_at = Some(Instant::now() + LIST);
                if since.elapsed() >= SETTLED {
                    self.backoff.reset();
                }
            }
            let why = WatchError::from(&error);
            let was_not_served = std::mem::replace(&mut self.is_not_served, why.is_not_served);
            if !(was_not_served && self.is_not_served) {
                let message = &why.message;
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

impl From<&kube::Error> for WatchError {
    fn from(error: &kube::Error) -> Self {
        let is_code = |code| matches!(error, kube::Error::Api(status) if status.code == code);
        Self {
            message: without_content(error),
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

    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use hyper::{Request, Response};
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::Body;
    use kube::{Client, ResourceExt as _};
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    enum Reply {
        Json(u16, Value),
        /// A watch that stays open after this event.
        Open(Value),
        Empty,
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
                let line = |json: Value| {
                    let frame = Frame::data(Bytes::from(format!("{json}\n")));
                    stream::iter([Ok::<_, BoxError>(frame)])
                };
                let (code, frames) = match reply {
                    Some(Reply::Json(code, json)) => (code, line(json).boxed()),
                    Some(Reply::Open(event)) => (200, line(event).chain(stream::pending()).boxed()),
                    Some(Reply::Empty) => (200, stream::empty().boxed()),
                    Some(Reply::Never) | None => return pending().await,
                };
                let body = StreamBody::new(frames);
                Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        Client::new(service, "default")
    }

    /// The updates, each with the second in which it comes.
    async fn updates(replies: impl IntoIterator<Item = Reply>, count: usize) -> Vec<(u64, String)> {
        let begun = Instant::now();
        let api: Api<Item<Secret>> = Api::default_namespaced(client(replies));
        let updates = list_watch(api, ListParams::default(), "secrets");
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
    async fn a_resource_that_is_not_served_is_logged_once() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let away = (0..3).map(|_| error(404));
        updates(away.chain([list(), error(404)]).chain([error(404)]), 15).await;
        let log = std::fs::read_to_string(log.path()).unwrap();
        // Once, and once more after it was served meanwhile.
        assert_eq!(log.lines().count(), 2, "{log}");
    }

    fn bookmark() -> Value {
        let metadata = json!({"resourceVersion": "3"});
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
        json!({"type": "BOOKMARK", "object": object})
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_does_not_begin_is_an_error_after_its_deadline() {
        let updates = updates([list(), Reply::Never], 4).await;
        assert_eq!(updates[3], (RESPONSE.as_secs(), "failed".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_restart_after_growing_pauses() {
        let change = json!({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "b", "resourceVersion": "4"}}});
        let replies = [list()].into_iter().chain((0..8).map(|_| Reply::Empty));
        let updates = updates(replies.chain([Reply::Json(200, change)]), 4).await;
        assert_eq!(updates[3].1, "change", "{updates:?}");
        assert!((25..=51).contains(&updates[3].0), "{updates:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_a_change_is_not_stale() {
        let replies = [list(), Reply::Open(bookmark())];
        let api: Api<Item<Secret>> = Api::default_namespaced(client(replies));
        let mut updates = list_watch(api, ListParams::default(), "secrets");
        for _ in 0..3 {
            updates.next().await;
        }
        let quiet = tokio::time::timeout(LIST * 3, updates.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
}
