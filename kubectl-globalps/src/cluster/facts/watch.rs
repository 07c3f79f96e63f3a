//! Watches: a list of objects, then each change. A watch lasts some seconds, and the next one continues where it ended.
//! This detects a dead connection and an expired login.

use std::fmt::Debug;
use std::future::ready;

use futures::TryStreamExt as _;
use futures::stream::{LocalBoxStream, Stream, StreamExt as _};
use globalps_core::decode::{Item, Unreadable};
use globalps_runtime::list_events::{Event, list_events};
use globalps_runtime::list_watch::{self, WatchError, restarting};
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::pages::PAGE;
use super::store::Store;
use crate::cluster::client::Cluster;
use crate::error::{Failure, Result};

/// A change of a store.
#[derive(Debug)]
pub(crate) enum Update<V> {
    All(Store<V>),
    /// Objects by name; `None`: deleted.
    Some(Vec<(String, Option<V>)>),
}

/// A result of a watch.
#[derive(Debug)]
pub(crate) enum Signal<T> {
    Changed(T),
    /// The watch failed; it retries by itself.
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
/// Objects by name; `None`: the object can't be decoded, and its last known state stays.
pub(super) type Objects<V> = Vec<(String, Option<V>)>;

pub(super) fn name_of(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

/// What to watch, and how to decode it.
pub(crate) struct WatchedKind<K, V> {
    /// Part of the error if the watch fails.
    pub doing: &'static str,
    pub api: Api<Item<K>>,
    pub params: ListParams,
    /// `resourceVersion` of a list that was read already.
    pub listed: Option<String>,
    pub key: fn(&ObjectMeta) -> String,
    /// `None` hides an object that can't be decoded.
    pub keep: fn(Result<K, Box<Unreadable>>) -> Option<V>,
}

/// Never ends.
pub(crate) fn watch_kind<'a, K, V>(
    cluster: &'a Cluster<'a>,
    kind: WatchedKind<K, V>,
) -> Signals<'a, V>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    V: 'static,
{
    let WatchedKind {
        doing,
        api,
        mut params,
        mut listed,
        key,
        keep,
    } = kind;
    params.limit = params.limit.or(Some(PAGE));
    let begin = move || {
        let (api, params) = (api.clone(), params.clone());
        let events = list_events(api, params, cluster.watch_limits(), listed.take());
        let object = move |item: Item<K>| {
            let name = key(item.meta());
            vec![(name, keep(item.into_result()))]
        };
        events
            .map_ok(move |event| event.map(object))
            .map_err(move |error| cluster.failure(doing, &error))
    };
    watch(begin, doing)
}

/// Converts events to signals. Never ends.
pub(super) fn watch<'a, S, V: 'a>(
    begin: impl FnMut() -> S + 'a,
    doing: &'static str,
) -> Signals<'a, V>
where
    S: Stream<Item = Result<Event<Objects<V>>>> + 'a,
{
    let mut listed = Store::default();
    let mut is_known = true;
    let signal = move |update: list_watch::Update<_, Failure>| match update {
        list_watch::Update::Event(Event::InitApply(objects)) => {
            listed.extend(objects);
            None
        }
        list_watch::Update::Event(Event::InitDone) => {
            is_known = true;
            Some(Signal::Changed(Update::All(std::mem::take(&mut listed))))
        }
        list_watch::Update::Event(Event::Apply(objects)) => {
            let readable = objects.into_iter().filter(|(_, value)| value.is_some());
            Some(Signal::Changed(Update::Some(readable.collect())))
        }
        list_watch::Update::Event(Event::Delete(objects)) => {
            let gone = objects.into_iter().map(|(name, _)| (name, None));
            Some(Signal::Changed(Update::Some(gone.collect())))
        }
        // The list that follows shows whether the API server can be reached.
        list_watch::Update::Failed(failure) => {
            listed = Store::default();
            let was_known = std::mem::replace(&mut is_known, false);
            (!was_known || !failure.may_pass()).then_some(Signal::Lost(failure))
        }
        _ => None,
    };
    let signals = restarting(begin, doing).map(signal);
    signals.filter_map(ready).boxed_local()
}

impl From<&Failure> for WatchError {
    fn from(failure: &Failure) -> Self {
        Self {
            message: failure.message.clone(),
            is_forbidden: failure.is(403),
            is_not_served: failure.is(404),
        }
    }
}
