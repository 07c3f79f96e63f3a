//! The hub's only watch in a member cluster.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use globalps_core::api::GlobalPullSecret;
use globalps_core::names::GLOBAL_SECRET;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::sleep;

use super::order::Order;
use crate::clusters::member::{Answer, Said};

/// The API server ends a watch after this time, and the watch resumes. A watch without a response for longer counts as dead.
const WATCH_SECONDS: u32 = 60;
/// Interval of the attempts to watch, while globalps is not installed.
const NOT_SERVED: Duration = Duration::from_secs(30);

/// An event of the watch.
pub(super) enum Seen {
    Answer(Answer),
    Target,
    Failed(watcher::Error),
}

/// Watches the cluster's `GlobalPullSecret` if the order requires its status, otherwise the target.
pub(super) fn watched(client: &Client, order: &Order) -> BoxStream<'static, Seen> {
    let config = |name: &str| {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        config.fields(&format!("metadata.name={name}"))
    };
    let namespace = &order.target.namespace;
    if order.require_nodes && order.target.is_additional() {
        let api: Api<GlobalPullSecret> = Api::namespaced(client.clone(), namespace);
        let mut listed = false;
        watcher(api, config(GLOBAL_SECRET))
            .filter_map(move |event| {
                let seen = match event {
                    Ok(Event::Apply(object)) => Some(answer(&object)),
                    Ok(Event::InitApply(object)) => {
                        listed = true;
                        Some(answer(&object))
                    }
                    Ok(Event::Init) => {
                        listed = false;
                        None
                    }
                    Ok(Event::InitDone) => (!listed).then_some(Seen::Answer(Answer::Silent)),
                    Ok(Event::Delete(_)) => Some(Seen::Answer(Answer::Silent)),
                    Err(error) => Some(Seen::Failed(error)),
                };
                std::future::ready(seen)
            })
            .boxed()
    } else {
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
        watcher(secrets, config(&order.target.name))
            .filter_map(|event| {
                let seen = match event {
                    Ok(Event::Init) => None,
                    Ok(_) => Some(Seen::Target),
                    Err(error) => Some(Seen::Failed(error)),
                };
                std::future::ready(seen)
            })
            .boxed()
    }
}

/// Watches again after a pause: globalps may be installed by then.
pub(super) fn later(client: &Client, order: &Order) -> BoxStream<'static, Seen> {
    let (client, order) = (client.clone(), order.clone());
    futures::stream::once(async move {
        sleep(NOT_SERVED).await;
        watched(&client, &order)
    })
    .flatten()
    .boxed()
}

fn answer(object: &GlobalPullSecret) -> Seen {
    let said = Said::of(object).map(Box::new);
    Seen::Answer(said.map_or(Answer::Silent, Answer::Said))
}
