//! Lists of thousands of objects, a page at a time, as the few fields that matter.

use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cluster::client::Cluster;
use crate::error::Failure;

/// Objects that are asked for at a time: more would only need more memory.
const PAGE: u32 = 500;

/// The little of a list's own that matters.
#[derive(Default, Deserialize)]
pub(super) struct PageMeta {
    /// Token of the next page; empty: there is none.
    #[serde(default, rename = "continue")]
    pub next: String,
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    items: Vec<T>,
}

/// Hands every object of the list to `keep`. `doing`: part of the error where it fails.
pub(crate) async fn pages<T: DeserializeOwned>(
    cluster: &Cluster<'_>,
    doing: &str,
    list: &Request,
    params: ListParams,
    mut keep: impl FnMut(T),
) -> Result<(), Failure> {
    let mut params = params.limit(PAGE);
    loop {
        let request = list
            .list(&params)
            .map_err(|error| unsendable(doing, &error.to_string()))?;
        let answer = cluster.client.request::<Page<T>>(request);
        let page = cluster.call(doing, answer).await?;
        page.items.into_iter().for_each(&mut keep);
        if page.metadata.next.is_empty() {
            return Ok(());
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
