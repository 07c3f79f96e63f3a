//! Watches one object by name and reports whether it is present, absent, forbidden or unknown.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use kube::runtime::watcher::{self, DefaultBackoff, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::telemetry::client::without_content;

/// Deadline of the initial list.
const LIST: Duration = Duration::from_secs(15);

/// What is known about the object.
#[derive(Clone, Debug)]
pub(crate) enum ObjectState<K> {
    Present(K),
    Absent,
    /// The API server does not allow it.
    Forbidden,
    /// The request failed: the error, without any content of a response.
    Unknown(String),
}

struct ObjectWatch<K> {
    api: Api<K>,
    config: watcher::Config,
    /// `None`: restarts after a backoff.
    watch: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
    backoff: DefaultBackoff,
    is_listing: bool,
    /// The object of the list in progress.
    found: Option<K>,
}

/// The state of the object of this name, and each change of it. A failed watch restarts with a list instead of resuming: a
/// resumed watch yields nothing until the object changes, and the failure would seem to last until then. `what` names the
/// watch in the log.
pub(crate) fn watch_object<K>(
    api: Api<K>,
    name: &str,
    what: &'static str,
) -> BoxStream<'static, ObjectState<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let watch = ObjectWatch {
        watch: Some(watcher::watcher(api.clone(), config.clone()).boxed()),
        api,
        config,
        backoff: DefaultBackoff::default(),
        is_listing: true,
        found: None,
    };
    stream::unfold(watch, move |mut watch| async move {
        let seen = watch.next().await;
        if let ObjectState::Unknown(error) = &seen {
            tracing::warn!(watch = what, error, "a watch failed and begins anew");
        }
        Some((seen, watch))
    })
    .boxed()
}

impl<K> ObjectWatch<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    async fn next(&mut self) -> ObjectState<K> {
        loop {
            let Some(watch) = &mut self.watch else {
                sleep(self.backoff.next().unwrap_or(LIST)).await;
                self.watch = Some(watcher::watcher(self.api.clone(), self.config.clone()).boxed());
                self.begin_list();
                continue;
            };
            let event = if self.is_listing {
                timeout(LIST, watch.next()).await
            } else {
                Ok(watch.next().await)
            };
            let failed = match event {
                Ok(Some(Ok(event))) => match self.take(event) {
                    Some(seen) => return seen,
                    None => continue,
                },
                Ok(Some(Err(error))) => failure(&error),
                Ok(None) => ObjectState::Unknown("the watch has ended".to_owned()),
                Err(_) => ObjectState::Unknown(format!("no answer within {} s", LIST.as_secs())),
            };
            self.watch = None;
            return failed;
        }
    }

    fn begin_list(&mut self) {
        self.is_listing = true;
        self.found = None;
    }

    fn take(&mut self, event: Event<K>) -> Option<ObjectState<K>> {
        match event {
            Event::Init => self.begin_list(),
            Event::InitApply(object) => self.found = Some(object),
            Event::InitDone => {
                self.is_listing = false;
                return Some(
                    self.found
                        .take()
                        .map_or(ObjectState::Absent, ObjectState::Present),
                );
            }
            Event::Apply(object) => return Some(ObjectState::Present(object)),
            Event::Delete(_) => return Some(ObjectState::Absent),
        }
        None
    }
}

fn failure<K>(error: &watcher::Error) -> ObjectState<K> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) if status.code == 403 => ObjectState::Forbidden,
            other => ObjectState::Unknown(without_content(other)),
        },
        other => ObjectState::Unknown(other.to_string()),
    }
}
