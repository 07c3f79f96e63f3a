//! Watches: a list of objects, then each change of them. A watch lasts some seconds, and the next one continues where it ended:
//! so a connection that is dead without saying so is noticed, and a login that is not valid any more.

use std::io;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use futures::io::AsyncBufReadExt as _;
use futures::stream::{self, BoxStream, LocalBoxStream, StreamExt as _};
use globalps_core::decode::{Item, Unreadable, decode};
use globalps_runtime::backoff::Backoff;
use hyper::header::{ACCEPT, HeaderValue};
use kube::Resource;
use kube::api::{ListParams, ObjectMeta, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::pages::{Format, pages_as, unsendable};
use super::store::Store;
use crate::cli::Span;
use crate::cluster::client::Cluster;
use crate::error::{Failure, Result};

/// Seconds after which the API server ends a watch.
const SECONDS: u32 = 20;
/// A watch that was silent for that long is dead: its end would have come.
const SILENCE: Duration = Duration::from_secs(25);
/// The API server begins to answer a watch at once.
const BEGIN: Span = Span(Duration::from_secs(10));
/// After failures.
pub(crate) const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(8));
/// A watch that ended earlier than this without an event is followed by a pause too.
const SHORT: Duration = Duration::from_secs(1);

/// Of a watch of all objects.
pub(super) const PARAMS: WatchParams = WatchParams {
    label_selector: None,
    field_selector: None,
    timeout: Some(SECONDS),
    bookmarks: true,
    send_initial_events: false,
};

/// A change of a store.
#[derive(Debug)]
pub(crate) enum Update<V> {
    All(Store<V>),
    /// By name; `None`: deleted.
    Some(Vec<(String, Option<V>)>),
}

/// What a watch brings.
#[derive(Debug)]
pub(crate) enum Signal<T> {
    Changed(T),
    /// The API server answers.
    Reached,
    /// It tries again by itself.
    Lost(Failure),
}

impl<V> Store<V> {
    pub(crate) fn update(&mut self, update: Update<V>) {
        match update {
            Update::All(store) => *self = store,
            Update::Some(objects) => {
                for (name, value) in objects {
                    self.set(name, value);
                }
            }
        }
    }
}

pub(crate) type Signals<'a, V> = LocalBoxStream<'a, Signal<Update<V>>>;
pub(super) type Listing<'a, V> = LocalBoxFuture<'a, Result<Store<V>>>;
/// Objects by name; `None`: it can't be decoded, and its last known state stays.
type Objects<V> = Vec<(String, Option<V>)>;
type Read<V> = Box<dyn FnMut(&RawValue) -> serde_json::Result<Objects<V>>>;

/// What to watch.
pub(super) struct Watched<'a, V> {
    /// Part of the error where it fails.
    pub doing: &'static str,
    pub request: Request,
    pub params: WatchParams,
    pub format: Format,
    /// Of a list that is known already.
    pub version: Option<String>,
    pub list: Box<dyn Fn() -> Listing<'a, V> + 'a>,
    /// The objects of an event, by name. It is called with bookmarks too.
    pub read: Read<V>,
}

struct Watching<'a, V> {
    cluster: &'a Cluster<'a>,
    watched: Watched<'a, V>,
    /// The watch that is open.
    lines: Option<BoxStream<'static, io::Result<String>>>,
    began: Instant,
    backoff: Backoff,
    /// Before the next watch begins.
    pause: Duration,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Objects of a kind.
pub(crate) struct Kind<K, V> {
    /// Part of the error where it fails.
    pub doing: &'static str,
    /// Of the API.
    pub path: String,
    /// `None`: all.
    pub name: Option<String>,
    pub format: Format,
    pub key: fn(&ObjectMeta) -> String,
    /// `None`: an object that can't be decoded is not shown.
    pub keep: fn(Result<K, Box<Unreadable>>) -> Option<V>,
}

/// Never ends.
pub(crate) fn watch_kind<'a, K, V>(cluster: &'a Cluster<'a>, kind: Kind<K, V>) -> Signals<'a, V>
where
    K: Resource + DeserializeOwned + 'static,
    V: 'static,
{
    let Kind {
        doing,
        path,
        name,
        format,
        key,
        keep,
    } = kind;
    let field_selector = name.map(|name| format!("metadata.name={name}"));
    let params = ListParams {
        field_selector: field_selector.clone(),
        ..ListParams::default()
    };
    let request = Request::new(path);
    let to_list = request.clone();
    let list = move || {
        let (request, params) = (to_list.clone(), params.clone());
        let listing = async move {
            let mut store = Store::default();
            let listed = pages_as(cluster, doing, &request, params, format, |item: Item<K>| {
                let name = key(item.meta());
                if let Some(value) = keep(item.into_result()) {
                    store.insert(name, value);
                }
            });
            store.version = listed.await?;
            Ok(store)
        };
        listing.boxed_local()
    };
    let watched = Watched {
        doing,
        request,
        params: WatchParams {
            field_selector,
            ..PARAMS
        },
        format,
        version: None,
        list: Box::new(list),
        read: Box::new(move |object| {
            let item: Item<K> = decode(object)?;
            let name = key(item.meta());
            Ok(vec![(name, keep(item.into_result()))])
        }),
    };
    watch(cluster, watched)
}

/// Never ends.
pub(super) fn watch<'a, V: 'a>(
    cluster: &'a Cluster<'a>,
    watched: Watched<'a, V>,
) -> Signals<'a, V> {
    let watching = Watching {
        cluster,
        watched,
        lines: None,
        began: Instant::now(),
        backoff: BACKOFF,
        pause: Duration::ZERO,
    };
    let next = |mut watching: Watching<'a, V>| async move {
        let signal = watching.next().await;
        Some((signal, watching))
    };
    stream::unfold(watching, next).boxed_local()
}

impl<V> Watching<'_, V> {
    async fn next(&mut self) -> Signal<Update<V>> {
        loop {
            match self.step().await {
                Ok(Some(signal)) => return signal,
                Ok(None) => {}
                Err(failure) => {
                    self.lines = None;
                    self.pause = self.backoff.pause();
                    return Signal::Lost(failure);
                }
            }
        }
    }

    /// `None`: there is nothing to report.
    async fn step(&mut self) -> Result<Option<Signal<Update<V>>>> {
        let Some(lines) = &mut self.lines else {
            return self.begin().await.map(Some);
        };
        if let Ok(Some(Ok(line))) = timeout(SILENCE, lines.next()).await {
            self.backoff.reset();
            return self.read(&line);
        }
        // It ended, broke or is dead. Whether the API server can be reached is seen when the next one begins.
        self.lines = None;
        if self.began.elapsed() < SHORT {
            self.pause = self.backoff.pause();
        }
        Ok(None)
    }

    async fn begin(&mut self) -> Result<Signal<Update<V>>> {
        sleep(std::mem::take(&mut self.pause)).await;
        let doing = self.watched.doing;
        let Some(version) = &self.watched.version else {
            let store = (self.watched.list)().await?;
            if store.version.is_empty() {
                let why = "the list has no `resourceVersion`";
                return Err(unsendable(doing, why));
            }
            self.watched.version = Some(store.version.clone());
            return Ok(Signal::Changed(Update::All(store)));
        };
        let request = self.watched.request.watch(&self.watched.params, version);
        let mut request = request.map_err(|error| unsendable(doing, &error.to_string()))?;
        self.watched.format.of_watch(doing, &mut request)?;
        let answer = self.cluster.client.request_stream(request);
        self.began = Instant::now();
        match self.cluster.call_within(Some(BEGIN), doing, answer).await {
            Ok(reader) => {
                self.lines = Some(reader.lines().boxed());
                Ok(Signal::Reached)
            }
            Err(failure) => Err(self.again(failure)),
        }
    }

    /// Lists again where the API server no longer has the changes since the last list.
    fn again(&mut self, failure: Failure) -> Failure {
        if failure.is(410) {
            self.watched.version = None;
        }
        failure
    }

    fn read(&mut self, line: &str) -> Result<Option<Signal<Update<V>>>> {
        let doing = self.watched.doing;
        let unreadable = |error| Failure::from_kube(doing, &kube::Error::SerdeError(error));
        let event: Event<'_> = serde_json::from_str(line).map_err(unreadable)?;
        if event.kind == "ERROR" {
            let status: Status = serde_json::from_str(event.object.get()).map_err(unreadable)?;
            let failure = Failure::from_kube(doing, &kube::Error::Api(status.boxed()));
            return Err(self.again(failure));
        }
        let is_bookmark = event.kind == "BOOKMARK";
        // A bookmark is no object, but the columns of a table come with the first event.
        let objects = if is_bookmark && self.watched.format != Format::Table {
            Vec::new()
        } else {
            (self.watched.read)(event.object).map_err(unreadable)?
        };
        let version: Versioned = serde_json::from_str(event.object.get()).map_err(unreadable)?;
        self.watched.version = Some(version.metadata.resource_version);
        let objects = objects.into_iter();
        let objects: Objects<V> = match event.kind {
            "ADDED" | "MODIFIED" => objects.filter(|(_, value)| value.is_some()).collect(),
            "DELETED" => objects.map(|(name, _)| (name, None)).collect(),
            _ => return Ok(None),
        };
        Ok(Some(Signal::Changed(Update::Some(objects))))
    }
}

impl Format {
    /// Asks for it, and for no more.
    fn of_watch(self, doing: &str, request: &mut hyper::Request<Vec<u8>>) -> Result<()> {
        let accept = match self {
            Self::Objects => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Self::Table => "application/json;as=Table;v=v1;g=meta.k8s.io",
        };
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if self == Self::Table {
            let uri = format!("{}&includeObject=Metadata", request.uri());
            *request.uri_mut() = uri
                .parse()
                .map_err(|_| unsendable(doing, "its address is none"))?;
        }
        Ok(())
    }
}
