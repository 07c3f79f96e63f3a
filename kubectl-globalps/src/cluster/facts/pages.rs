//! Lists thousands of objects page by page and keeps only the relevant fields.

use globalps_core::decode::{Item, Owned};
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cluster::client::Cluster;
use crate::error::{Failure, Result};

/// Objects per page. Larger pages would only need more memory.
pub(super) const PAGE: u32 = 500;

/// The relevant fields of a list's metadata.
#[derive(Default, Deserialize)]
pub(super) struct PageMeta {
    /// Token of the next page; empty on the last page.
    #[serde(default, rename = "continue")]
    pub next: String,
    #[serde(default, rename = "resourceVersion")]
    pub version: String,
}

/// The format in which the API server returns objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Objects,
    Metadata,
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    /// `null` if the API server has no objects for a metadata request.
    items: Option<Vec<T>>,
}

/// Passes each object that can be decoded to `keep`. `doing`: part of the error. Returns the list's `resourceVersion`.
pub(crate) async fn pages<T: DeserializeOwned>(
    cluster: &Cluster<'_>,
    doing: &str,
    list: &Request,
    params: ListParams,
    mut keep: impl FnMut(T),
) -> Result<String> {
    let keep = |item: Item<T>| {
        if let Item::Readable(object) = item {
            keep(object);
        }
    };
    pages_as(cluster, doing, list, params, Format::Objects, keep).await
}

/// The metadata of each object that can be decoded, with its managed fields.
pub(crate) async fn metadata_pages<K>(
    cluster: &Cluster<'_>,
    doing: &str,
    list: &Request,
    params: ListParams,
) -> Result<Vec<PartialObjectMeta<K>>> {
    let mut found = Vec::new();
    let keep = |item: Owned<PartialObjectMeta<K>>| found.extend(item.into_result().ok());
    pages_as(cluster, doing, list, params, Format::Metadata, keep).await?;
    Ok(found)
}

pub(super) async fn pages_as<T: DeserializeOwned, const OWNERS: bool>(
    cluster: &Cluster<'_>,
    doing: &str,
    list: &Request,
    params: ListParams,
    format: Format,
    mut keep: impl FnMut(Item<T, OWNERS>),
) -> Result<String> {
    let mut params = params.limit(PAGE);
    loop {
        let request = match format {
            Format::Metadata => list.list_metadata(&params),
            Format::Objects => list.list(&params),
        };
        let request = request.map_err(|error| unsendable(doing, &error.to_string()))?;
        let answer = cluster.client.request::<Page<Item<T, OWNERS>>>(request);
        let page = cluster.call(doing, answer).await?;
        page.items.into_iter().flatten().for_each(&mut keep);
        if page.metadata.next.is_empty() {
            return Ok(page.metadata.version);
        }
        params = params.continue_token(&page.metadata.next);
    }
}

pub(super) fn unsendable(doing: &str, why: &str) -> Failure {
    Failure::new(
        format!("could not {doing}: {why}"),
        "is the selector one that `kubectl get nodes -l` takes?",
    )
}
