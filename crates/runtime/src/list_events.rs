//! The objects of a list, page by page, and then the events of its watch, each request with a deadline. kube's own watcher has pages of
//! one size: one that is too large would end the list, and with it everything that waits for it.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::bounds::TooLarge;
use crate::request::{RESPONSE, within_limit};

/// Limits of the requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds until the API server ends a watch, which then resumes.
    pub watch_seconds: u32,
    /// Until a page of the list, or the begin of a watch.
    pub response: Duration,
}

impl Limits {
    /// The limits of long-running programs.
    pub const USUAL: Self = Self {
        watch_seconds: 60,
        response: RESPONSE,
    };
}

/// A watch without traffic for longer than its time and this counts as dead.
const MARGIN: u32 = 5;
/// A watch that lasted this long after its list worked, so that the next error is a first one.
pub const SETTLED: Duration = Duration::from_secs(10);
/// A watch that ends earlier is followed by a pause.
const EARLY: Duration = Duration::from_secs(1);
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// A page that is too large is listed again with this fraction of its objects. After this many pages, there are as many times more
/// in a page.
const FRACTION: u32 = 8;
/// Only one list at a time may have pages of large objects in memory.
static LARGE: Semaphore = Semaphore::const_new(1);

/// Each list starts with [`Event::Init`] and is complete at [`Event::InitDone`].
#[derive(Clone, Debug)]
pub enum Event<K> {
    /// A list begins: what it does not contain is gone at its end.
    Init,
    /// An object of the list.
    InitApply(K),
    /// The list is complete.
    InitDone,
    /// An object was created or changed.
    Apply(K),
    /// An object was deleted; this is its last state.
    Delete(K),
}

impl<K> Event<K> {
    /// The same event with another value.
    pub fn map<T>(self, f: impl FnOnce(K) -> T) -> Event<T> {
        match self {
            Self::Init => Event::Init,
            Self::InitApply(object) => Event::InitApply(f(object)),
            Self::InitDone => Event::InitDone,
            Self::Apply(object) => Event::Apply(f(object)),
            Self::Delete(object) => Event::Delete(f(object)),
        }
    }
}

/// Selects the object of this name in a namespace. It may be large, so it is a page of its own.
pub fn one(name: &str) -> ListParams {
    ListParams::default()
        .limit(1)
        .fields(&format!("metadata.name={name}"))
}

/// The objects that `params` select, `limit` in a page, and each change of them. `listed`: version of a complete list, after which
/// there are only changes. After an error it must not be polled again.
pub fn list_events<K>(
    api: Api<K>,
    params: ListParams,
    limits: Limits,
    listed: Option<String>,
) -> impl Stream<Item = kube::Result<Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = ListEvents {
        page: params.limit.unwrap_or(u32::MAX),
        api,
        params,
        limits,
        pages: 0,
        turn: None,
        backoff: PAUSES,
        state: listed.map_or(ListState::Begins, |version| {
            ListState::Watches(version, None)
        }),
    };
    stream::unfold(events, |mut events| async move {
        let event = events.next().await;
        Some((event, events))
    })
}

struct ListEvents<K> {
    api: Api<K>,
    params: ListParams,
    limits: Limits,
    /// Objects in the next page, and the number of pages of that size.
    page: u32,
    pages: u32,
    /// Held while a page that is smaller than usual is in memory.
    turn: Option<SemaphorePermit<'static>>,
    backoff: Backoff,
    state: ListState<K>,
}

enum ListState<K> {
    Begins,
    /// The objects of the page; how the list continues, or the version of the complete list.
    Lists(std::vec::IntoIter<K>, Continuation),
    /// The version up to which events were seen, and the open watch with its start.
    Watches(String, Option<(Instant, Events<K>)>),
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

enum Continuation {
    Page(Option<String>),
    Watch(String),
}

impl<K> ListEvents<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    async fn next(&mut self) -> kube::Result<Event<K>> {
        loop {
            match &mut self.state {
                ListState::Begins => {
                    self.state = ListState::Lists(Vec::new().into_iter(), Continuation::Page(None));
                    return Ok(Event::Init);
                }
                ListState::Lists(objects, next) => {
                    if let Some(object) = objects.next() {
                        return Ok(Event::InitApply(object));
                    }
                    self.turn = None;
                    match next {
                        Continuation::Page(token) => {
                            let token = token.take();
                            let list = self.page(token).await?;
                            let token = list.metadata.continue_.filter(|token| !token.is_empty());
                            let version = list.metadata.resource_version.unwrap_or_default();
                            let next = match token {
                                Some(_) => Continuation::Page(token),
                                None => Continuation::Watch(version),
                            };
                            self.state = ListState::Lists(list.items.into_iter(), next);
                        }
                        Continuation::Watch(version) => {
                            self.state = ListState::Watches(std::mem::take(version), None);
                            return Ok(Event::InitDone);
                        }
                    }
                }
                ListState::Watches(version, watch) => {
                    let Some((begun, events)) = watch else {
                        let params = WatchParams {
                            label_selector: self.params.label_selector.clone(),
                            field_selector: self.params.field_selector.clone(),
                            timeout: Some(self.limits.watch_seconds),
                            bookmarks: true,
                            send_initial_events: false,
                        };
                        let events =
                            within_limit(self.limits.response, self.api.watch(&params, version))
                                .await?;
                        *watch = Some((Instant::now(), events.boxed()));
                        continue;
                    };
                    let idle = Duration::from_secs((self.limits.watch_seconds + MARGIN).into());
                    let Ok(Some(event)) = timeout(idle, events.next()).await else {
                        let is_early = begun.elapsed() < EARLY;
                        *watch = None;
                        if is_early {
                            sleep(self.backoff.pause()).await;
                        }
                        continue;
                    };
                    let (event, at) = match event? {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            let at = object.resource_version();
                            (Some(Event::Apply(object)), at)
                        }
                        WatchEvent::Deleted(object) => {
                            let at = object.resource_version();
                            (Some(Event::Delete(object)), at)
                        }
                        WatchEvent::Bookmark(mark) => (None, Some(mark.metadata.resource_version)),
                        WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
                    };
                    self.backoff.reset();
                    if let Some(at) = at {
                        *version = at;
                    }
                    if let Some(event) = event {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Requests the next page, with fewer objects if they are large.
    async fn page(&mut self, token: Option<String>) -> kube::Result<ObjectList<K>> {
        let usual = self.params.limit.unwrap_or(u32::MAX);
        loop {
            if self.page < usual && self.turn.is_none() {
                self.turn = LARGE.acquire().await.ok();
            }
            let params = ListParams {
                limit: Some(self.page),
                continue_token: token.clone(),
                ..self.params.clone()
            };
            match within_limit(self.limits.response, self.api.list(&params)).await {
                Err(error) if self.page > 1 && TooLarge::is_cause_of(&error) => {
                    self.page = (self.page / FRACTION).max(1);
                    self.pages = 0;
                }
                Err(error) => return Err(error),
                Ok(list) => {
                    self.pages += 1;
                    if self.pages == FRACTION {
                        self.page = self.page.saturating_mul(FRACTION).min(usual);
                        self.pages = 0;
                    }
                    return Ok(list);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::FutureExt as _;
    use globalps_core::decode::Item;
    use hyper::{Request, Response};
    use k8s_openapi::api::core::v1::Secret;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::bounds::{self, Bounded};

    const USUAL: u32 = 100;
    const MIB: usize = 1 << 20;

    /// The objects per page that were requested.
    type Requested = Arc<Mutex<Vec<u32>>>;

    /// An API server with a Secret of each of these sizes. Its responses are limited as the real one's.
    fn api(sizes: Vec<usize>) -> (Api<Item<Secret>>, Requested) {
        let requested = Requested::default();
        let (requests, sizes) = (Arc::clone(&requested), Arc::new(sizes));
        let service = service_fn(move |request: Request<Body>| {
            let (requests, sizes) = (Arc::clone(&requests), Arc::clone(&sizes));
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let number = |key: &str| {
                    let mut found = query.split('&').filter_map(|pair| pair.strip_prefix(key));
                    found.next().and_then(|number| number.parse::<u32>().ok())
                };
                let Some(limit) = number("limit=") else {
                    return futures::future::pending().await;
                };
                requests.lock().expect("no panic").push(limit);
                let begin = number("continue=").unwrap_or_default();
                let end = (begin + limit).min(u32::try_from(sizes.len())?);
                let items = (begin..end).map(|at| {
                    let metadata = json!({"name": at.to_string(), "resourceVersion": "1"});
                    let text = "x".repeat(sizes[at as usize]);
                    json!({"metadata": metadata, "type": text})
                });
                let items: Vec<_> = items.collect();
                let token = if end as usize == sizes.len() {
                    String::new()
                } else {
                    end.to_string()
                };
                let list = json!({"metadata": {"resourceVersion": "2", "continue": token}, "items": items});
                let body = Body::from(list.to_string().into_bytes());
                let limit = bounds::limit(&request);
                Ok::<_, BoxError>(Response::new(Bounded::new(body, limit, false)))
            }
        });
        let client = Client::new(service, "default");
        (Api::default_namespaced(client), requested)
    }

    fn events(api: Api<Item<Secret>>) -> BoxStream<'static, kube::Result<Event<Item<Secret>>>> {
        list_events(api, ListParams::default().limit(USUAL), Limits::USUAL, None).boxed()
    }

    /// Names until the list is complete.
    async fn names(api: Api<Item<Secret>>) -> kube::Result<Vec<String>> {
        let mut events = events(api);
        let mut names = Vec::new();
        while let Some(event) = events.next().await {
            match event? {
                Event::InitApply(object) => names.push(object.name_any()),
                Event::InitDone => break,
                _ => assert!(names.is_empty(), "one list"),
            }
        }
        Ok(names)
    }

    #[tokio::test]
    async fn where_objects_are_large_a_page_has_fewer_of_them() {
        let sizes = |large: &[usize]| {
            let mut sizes = vec![10; 1000];
            for at in large {
                sizes[*at] = 3 * MIB / 2;
            }
            sizes
        };
        let crowd: Vec<usize> = (100..110).collect();
        for (case, sizes, most) in [
            ("none is large", sizes(&[]), 10),
            ("two far apart", sizes(&[7, 500]), 10),
            ("two in a page", sizes(&[7, 17]), 19),
            ("two beside each other", sizes(&[100, 101]), 34),
            ("a crowd", sizes(&crowd), 44),
        ] {
            let (api, requested) = api(sizes);
            let names = names(api).await.expect("a list");
            let expected = (0..1000).map(|at| at.to_string());
            assert!(names.into_iter().eq(expected), "{case}");
            let requested = requested.lock().expect("no panic").clone();
            assert!(requested.len() <= most, "{case}: {requested:?}");
            assert_eq!(requested.last(), Some(&USUAL), "{case}: {requested:?}");
        }
    }

    #[tokio::test]
    async fn an_object_that_is_too_large_alone_is_an_error() {
        let (api, requested) = api(vec![10, 11 * MIB]);
        let error = names(api).await.expect_err("too large");
        assert!(error.to_string().contains("more than 10 MiB"), "{error}");
        assert_eq!(*requested.lock().expect("no panic"), [100, 12, 1, 1]);
    }

    #[tokio::test]
    async fn one_list_at_a_time_has_large_objects_in_memory() {
        let large = || api(vec![3 * MIB / 2; 3]).0;
        let mut first = events(large());
        while !matches!(first.next().await, Some(Ok(Event::InitApply(_)))) {}
        let mut second = events(large());
        assert!(matches!(second.next().await, Some(Ok(Event::Init))));
        for _ in 0..100 {
            assert!(second.next().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(first);
        assert!(matches!(second.next().await, Some(Ok(Event::InitApply(_)))));
    }
}
