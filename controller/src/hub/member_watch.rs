//! The hub's only watch in a member cluster.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use globalps_core::api::GlobalPullSecret;
use globalps_core::decode::Item;
use globalps_core::names::GLOBAL_SECRET;
use globalps_core::reasons::ReasonAndMessage;
use globalps_planner::clusters::member_report::{MemberReport, MemberStatus};
use globalps_runtime::list_events::{Event, Limits, list_events, one};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;
use kube::{Api, Client};
use tokio::time::sleep;

use super::messages::MemberSpec;
use crate::remote::unreachable;

/// Interval of the attempts to watch, while globalps is not installed.
const NOT_SERVED: Duration = Duration::from_secs(30);

/// An event of the watch.
pub(super) enum WatchEvent {
    Report(MemberReport),
    Target,
    Failed(kube::Error),
}

/// Watches the cluster's `GlobalPullSecret` if the spec requires its status, otherwise the target.
pub(super) fn member_events(client: &Client, spec: &MemberSpec) -> BoxStream<'static, WatchEvent> {
    let namespace = &spec.target.namespace;
    if spec.require_nodes && spec.target.is_additional() {
        let api: Api<Item<GlobalPullSecret>> = Api::namespaced(client.clone(), namespace);
        let mut listed = false;
        list_events(api, one(GLOBAL_SECRET), Limits::USUAL, None)
            .filter_map(move |event| {
                let event = match event {
                    Ok(Event::Apply(object)) => Some(report(&object)),
                    Ok(Event::InitApply(object)) => {
                        listed = true;
                        Some(report(&object))
                    }
                    Ok(Event::Init) => {
                        listed = false;
                        None
                    }
                    Ok(Event::InitDone) => {
                        (!listed).then_some(WatchEvent::Report(MemberReport::NoConfig))
                    }
                    Ok(Event::Delete(_)) => Some(WatchEvent::Report(MemberReport::NoConfig)),
                    Err(error) => Some(WatchEvent::Failed(error)),
                };
                std::future::ready(event)
            })
            .boxed()
    } else {
        let secrets: Api<Item<PartialObjectMeta<Secret>>> =
            Api::namespaced(client.clone(), namespace);
        list_events(secrets, one(&spec.target.name), Limits::USUAL, None)
            .filter_map(|event| {
                let event = match event {
                    Ok(Event::Init) => None,
                    Ok(_) => Some(WatchEvent::Target),
                    Err(error) => Some(WatchEvent::Failed(error)),
                };
                std::future::ready(event)
            })
            .boxed()
    }
}

/// Watches again after a pause: globalps may be installed by then.
pub(super) fn member_events_later(
    client: &Client,
    spec: &MemberSpec,
) -> BoxStream<'static, WatchEvent> {
    let (client, spec) = (client.clone(), spec.clone());
    futures::stream::once(async move {
        sleep(NOT_SERVED).await;
        member_events(&client, &spec)
    })
    .flatten()
    .boxed()
}

fn report(object: &Item<GlobalPullSecret>) -> WatchEvent {
    let report = match object {
        Item::Readable(object) => MemberStatus::of(object).map_or(MemberReport::NoStatus, |it| {
            MemberReport::Status(Box::new(it))
        }),
        Item::Unreadable(unreadable) => MemberReport::Unreadable(unreadable.to_string()),
    };
    WatchEvent::Report(report)
}

/// What an error of the watch means for the cluster's globalps. `Err`: the cluster is unreachable.
pub(super) fn failed(error: &kube::Error) -> Result<MemberReport, ReasonAndMessage> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(MemberReport::NoGlobalps),
        _ => Err(unreachable::reason(error)),
    }
}
