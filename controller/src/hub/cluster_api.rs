//! Cluster API's `Cluster`s, in a version that the API server serves. A discovery that fails is repeated: only one that succeeds tells
//! that Cluster API is not installed, and then every cluster of it counts as gone. It may be installed later.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use globalps_core::decode::Item;
use globalps_runtime::backoff::Backoff;
use globalps_runtime::list_watch::{NOT_SERVED, Update, list_watch};
use globalps_runtime::request::{within, without_content};
use kube::api::ListParams;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use tokio::time::sleep;

use super::views::{ClusterObject, cluster};

const GROUP: &str = "cluster.x-k8s.io";
pub(super) const KIND: &str = "Cluster";
const PLURAL: &str = "clusters";
/// Longest pause before another discovery after one that failed.
const RETRY: Duration = Duration::from_secs(30);

/// The API server's answer about `Cluster`s.
pub(super) enum Clusters {
    NotServed,
    Listed(Update<ClusterObject>),
}

/// The next step.
enum DiscoveryStep {
    Discover,
    /// `Discover` after a pause.
    Wait(Duration),
    Watch(String, BoxStream<'static, Update<DynamicObject>>),
}

/// The `Cluster`s of a scope, and each change of them.
pub(super) fn clusters(
    client: Client,
    scope: String,
    config: ListParams,
) -> BoxStream<'static, Clusters> {
    let begin = (
        DiscoveryStep::Discover,
        Backoff::new(Duration::from_secs(1), RETRY),
    );
    stream::unfold(begin, move |(mut step, mut backoff)| {
        let (client, scope, config) = (client.clone(), scope.clone(), config.clone());
        async move {
            loop {
                step = match step {
                    DiscoveryStep::Wait(pause) => {
                        sleep(pause).await;
                        DiscoveryStep::Discover
                    }
                    DiscoveryStep::Discover => match discover(&client).await {
                        Ok(Some(resource)) => {
                            backoff.reset();
                            let version = resource.api_version.clone();
                            DiscoveryStep::Watch(version, watch(&client, &scope, &resource, &config))
                        }
                        Ok(None) => {
                            backoff.reset();
                            let next = (DiscoveryStep::Wait(NOT_SERVED), backoff);
                            return Some((Clusters::NotServed, next));
                        }
                        Err(error) => {
                            tracing::warn!(
                                error = without_content(&error),
                                "the API server does not say whether it serves Cluster API; the hub asks again"
                            );
                            DiscoveryStep::Wait(backoff.pause())
                        }
                    },
                    DiscoveryStep::Watch(version, mut updates) => {
                        let update = updates.next().await?;
                        // Another version is served, or none.
                        let is_over =
                            matches!(&update, Update::Failed(error) if error.is_not_served);
                        let event = update.map(|it| cluster(&it, &version));
                        let next = if is_over {
                            DiscoveryStep::Wait(RETRY)
                        } else {
                            DiscoveryStep::Watch(version, updates)
                        };
                        return Some((Clusters::Listed(event), (next, backoff)));
                    }
                };
            }
        }
    })
    .boxed()
}

fn watch(
    client: &Client,
    scope: &str,
    resource: &ApiResource,
    config: &ListParams,
) -> BoxStream<'static, Update<DynamicObject>> {
    let clusters: Api<Item<DynamicObject>> = if scope.is_empty() {
        Api::all_with(client.clone(), resource)
    } else {
        Api::namespaced_with(client.clone(), scope, resource)
    };
    list_watch(clusters, config.clone(), "clusters")
}

/// `Cluster` in the version that the API server prefers among those with it; `None`: it is not served.
async fn discover(client: &Client) -> kube::Result<Option<ApiResource>> {
    let groups = within(client.list_api_groups()).await?;
    let group = groups.groups.into_iter().find(|group| group.name == GROUP);
    let Some(group) = group else {
        return Ok(None);
    };
    let preferred = group.preferred_version.into_iter();
    for version in preferred.chain(group.versions) {
        let resources = within(client.list_api_group_resources(&version.group_version)).await?;
        if resources.resources.iter().any(|it| it.name == PLURAL) {
            let kind = GroupVersionKind::gvk(GROUP, &version.version, KIND);
            return Ok(Some(ApiResource::from_gvk(&kind)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use globalps_fake_api::{FakeApi, Objects, Request, failure};
    use globalps_runtime::list_events::Event;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    /// An API server that answers the discovery with these versions of Cluster API, the first one preferred, in order and then as
    /// the last one. Without a code, `Cluster` is in none of them.
    fn client(replies: &[(u16, &'static [&'static str])]) -> Client {
        let mut replies = replies.iter().copied().collect::<VecDeque<_>>();
        let rule = move |request: &mut Request, _: &mut Objects| {
            let path = &request.path;
            let (code, versions) = *replies.front().unwrap();
            let of = |version: &str| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version});
            let (code, body) = match path.rsplit('/').next().unwrap() {
                "apis" => {
                    let all: Vec<Value> = versions.iter().map(|it| of(it)).collect();
                    let mut groups = vec![json!({"name": "apps", "versions": []})];
                    if let Some(preferred) = all.first() {
                        groups.push(
                            json!({"name": GROUP, "versions": all, "preferredVersion": preferred}),
                        );
                    }
                    if replies.len() > 1 {
                        replies.pop_front();
                    }
                    (code, json!({"groups": groups}))
                }
                "clusters" if versions.iter().any(|it| path.contains(*it)) => {
                    let metadata = json!({"name": "a", "namespace": "ns", "resourceVersion": "1"});
                    let items = [json!({"metadata": metadata})];
                    (
                        200,
                        json!({"metadata": {"resourceVersion": "2"}, "items": items}),
                    )
                }
                "clusters" => (404, Value::Null),
                version => {
                    let name = if version == "v1alpha1" {
                        "machines"
                    } else {
                        PLURAL
                    };
                    let resource = json!({"name": name, "singularName": "", "namespaced": true,
                        "kind": KIND, "verbs": ["list"]});
                    (
                        200,
                        json!({"groupVersion": format!("{GROUP}/{version}"), "resources": [resource]}),
                    )
                }
            };
            Some(if code == 200 {
                (code, body)
            } else {
                failure(code, "", "no")
            })
        };
        FakeApi::default().with_rule(rule).client()
    }

    /// The first events, each with the second in which it comes.
    async fn events(
        replies: &[(u16, &'static [&'static str])],
        count: usize,
    ) -> Vec<(u64, String)> {
        let begun = Instant::now();
        let events = clusters(client(replies), String::new(), ListParams::default());
        let described = events.take(count).map(|event| {
            let text = match event {
                Clusters::NotServed => "absent".to_owned(),
                Clusters::Listed(Update::Event(Event::Init)) => "init".to_owned(),
                Clusters::Listed(Update::Event(Event::InitApply(it))) => it.api_version,
                Clusters::Listed(Update::Event(Event::InitDone)) => "done".to_owned(),
                Clusters::Listed(_) => "other".to_owned(),
            };
            (begun.elapsed().as_secs(), text)
        });
        described.collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_discovery_is_repeated_and_says_nothing() {
        let served: &[_] = &["v1beta1"];
        let found = events(&[(503, &[]), (403, &[]), (200, served)], 3).await;
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["init", "cluster.x-k8s.io/v1beta1", "done"]);
        assert!(found[0].0 <= 3, "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn cluster_api_that_is_installed_later_is_found() {
        let served: &[_] = &["v1beta2", "v1beta1"];
        let found = events(&[(200, &[]), (500, &[]), (200, served)], 4).await;
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts,
            ["absent", "init", "cluster.x-k8s.io/v1beta2", "done"]
        );
        assert_eq!(found[0].0, 0);
        assert!(found[1].0 <= NOT_SERVED.as_secs() + 2, "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_version_that_has_clusters_counts() {
        for (versions, expected) in [
            (&["v1alpha1", "v1beta1"][..], "init"),
            (&["v1alpha1"], "absent"),
        ] {
            let found = events(&[(200, versions)], 1).await;
            assert_eq!(found[0].1, expected, "{versions:?}");
        }
    }
}
