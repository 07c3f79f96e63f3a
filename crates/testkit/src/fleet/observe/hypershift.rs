//! A stand-in of `HyperShift`'s own controller and syncer: it merges the pull secrets, the original wins, and each node's file is
//! compared every few seconds and written in place.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use globalps_core::hypershift::HASH_LABEL;
use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, SYNCER};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fleet::observed::content_of;
use crate::product::{NAMESPACE, pull_secret};

pub(super) const ORIGINAL: &str = "original-pull-secret";
/// Until its controller merges a change.
const MERGES: Duration = Duration::from_millis(300);

/// What its controller leaves in each cluster on AWS and Azure.
pub(super) fn objects(original: &str) -> Vec<Value> {
    let metadata = json!({"name": SYNCER, "namespace": NAMESPACE});
    let labels = json!({"name": SYNCER, HASH_LABEL: "0"});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {
            "selector": {"matchLabels": {"name": SYNCER}},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": SYNCER,
                "containers": [{"name": "syncer", "image": "hypershift"}],
            }},
        }}),
        pull_secret(NAMESPACE, ORIGINAL, original),
    ]
}

/// The credentials in a Secret; `None`: there is no Secret.
pub(super) async fn content(client: &Client, name: &str) -> Result<Option<Vec<u8>>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api.get_opt(name).await?;
    Ok(found.map(|secret| content_of(&secret)))
}

/// As its controller merges: by the literal key, and the original wins.
pub(super) fn merged(original: &[u8], additional: &[u8]) -> Result<Vec<u8>> {
    let mut merged: Value = serde_json::from_slice(additional)?;
    let original: Value = serde_json::from_slice(original)?;
    let auths = merged["auths"].as_object_mut().context("no `auths`")?;
    let of_original = original["auths"].as_object().into_iter().flatten();
    auths.extend(of_original.map(|(key, value)| (key.clone(), value.clone())));
    Ok(merged.to_string().into_bytes())
}

/// Its controller. Never ends.
pub(super) async fn merge(client: Client) {
    loop {
        if let Err(error) = merge_once(&client).await {
            eprintln!("HyperShift's controller: {error:#}");
        }
        sleep(MERGES).await;
    }
}

async fn merge_once(client: &Client) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let there = api.get_opt(GLOBAL_SECRET).await?;
    let Some(additional) = content(client, ADDITIONAL_SECRET).await? else {
        if there.is_some() {
            api.delete(GLOBAL_SECRET, &DeleteParams::default()).await?;
        }
        return Ok(());
    };
    let original = content(client, ORIGINAL).await?.unwrap_or_default();
    let wanted = merged(&original, &additional)?;
    let wanted = pull_secret(NAMESPACE, GLOBAL_SECRET, std::str::from_utf8(&wanted)?);
    let mut secret: Secret = serde_json::from_value(wanted)?;
    let params = PostParams::default();
    match there {
        None => drop(api.create(&params, &secret).await?),
        Some(there) if content_of(&there) == of_text(&secret) => {}
        Some(there) => {
            secret.metadata.resource_version = there.metadata.resource_version;
            api.replace(GLOBAL_SECRET, &params, &secret).await?;
        }
    }
    Ok(())
}

/// The same of a Secret that was not written yet, which may have it as text.
fn of_text(secret: &Secret) -> Vec<u8> {
    let texts = secret.string_data.as_ref();
    let text = texts.and_then(|texts| texts.get(DATA_KEY));
    text.map_or_else(|| content_of(secret), |text| text.clone().into_bytes())
}

/// Its syncer on the node with this file, every `poll`. Never ends.
pub(super) async fn sync(client: Client, file: PathBuf, poll: Duration) {
    sleep(poll.mul_f64(fastrand::f64())).await;
    loop {
        if let Err(error) = sync_once(&client, &file).await {
            eprintln!("HyperShift's syncer: {error:#}");
        }
        sleep(poll).await;
    }
}

async fn sync_once(client: &Client, file: &Path) -> Result<()> {
    let wanted = match content(client, GLOBAL_SECRET).await? {
        Some(merged) => merged,
        None => content(client, ORIGINAL).await?.unwrap_or_default(),
    };
    if std::fs::read(file).ok().as_ref() != Some(&wanted) {
        // In place, as its syncer does it.
        std::fs::write(file, wanted)?;
    }
    Ok(())
}
