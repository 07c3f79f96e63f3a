//! A watch of one object that may be there, or not, or not be readable: each of it is told, and when it is over too.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use kube::runtime::watcher::{self, DefaultBackoff, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::objects::apply::without_content;

/// How long the API server may take to say what is there.
const LIST: Duration = Duration::from_secs(15);

/// What a look at one object gave.
#[derive(Clone, Debug)]
pub(crate) enum Seen<K> {
    There(K),
    Absent,
    /// The API server does not allow it.
    Forbidden,
    /// Nobody said what is there: why, without anything of an answer.
    Unknown(String),
}

struct Following<K> {
    api: Api<K>,
    config: watcher::Config,
    /// `None`: it is to be started anew, after a pause.
    watch: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
    backoff: DefaultBackoff,
    is_listing: bool,
    /// What the list has shown so far.
    found: Option<K>,
}

/// The object of this name, told again whenever it changes. A watch that failed begins anew with a list, and not where it
/// was: a watch that goes on says nothing until something changes, and an error would seem to last as long. `what` is its
/// name in the log.
pub(crate) fn follow<K>(api: Api<K>, name: &str, what: &'static str) -> BoxStream<'static, Seen<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let following = Following {
        watch: Some(watcher::watcher(api.clone(), config.clone()).boxed()),
        api,
        config,
        backoff: DefaultBackoff::default(),
        is_listing: true,
        found: None,
    };
    stream::unfold(following, move |mut following| async move {
        let seen = following.next().await;
        if let Seen::Unknown(error) = &seen {
            tracing::warn!(watch = what, error, "a watch failed and begins anew");
        }
        Some((seen, following))
    })
    .boxed()
}

impl<K> Following<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    async fn next(&mut self) -> Seen<K> {
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
                Ok(Some(Err(error))) => why(&error),
                Ok(None) => Seen::Unknown("the watch has ended".to_owned()),
                Err(_) => Seen::Unknown(format!("no answer within {} s", LIST.as_secs())),
            };
            self.watch = None;
            return failed;
        }
    }

    fn begin_list(&mut self) {
        self.is_listing = true;
        self.found = None;
    }

    fn take(&mut self, event: Event<K>) -> Option<Seen<K>> {
        match event {
            Event::Init => self.begin_list(),
            Event::InitApply(object) => self.found = Some(object),
            Event::InitDone => {
                self.is_listing = false;
                return Some(self.found.take().map_or(Seen::Absent, Seen::There));
            }
            Event::Apply(object) => return Some(Seen::There(object)),
            Event::Delete(_) => return Some(Seen::Absent),
        }
        None
    }
}

fn why<K>(error: &watcher::Error) -> Seen<K> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) if status.code == 403 => Seen::Forbidden,
            other => Seen::Unknown(without_content(other)),
        },
        other => Seen::Unknown(other.to_string()),
    }
}
