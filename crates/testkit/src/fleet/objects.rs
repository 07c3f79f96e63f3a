//! Reads and writes of users' objects that several modules share.

use std::fmt::Display;

use anyhow::{Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::api::{GlobalPullSecret, GlobalPullSecretStatus};
use globalps_core::names::GLOBAL_SECRET;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::product::{NAMESPACE, pull_secret};

fn configs(client: &Client) -> Api<GlobalPullSecret> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Changes these fields of the configuration.
pub(super) async fn configure(client: &Client, spec: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    let params = PatchParams::default();
    configs(client)
        .patch(GLOBAL_SECRET, &params, &patch)
        .await?;
    Ok(())
}

pub(super) async fn status(client: &Client) -> Result<GlobalPullSecretStatus> {
    let config = configs(client).get(GLOBAL_SECRET).await?;
    Ok(config.status.unwrap_or_default())
}

/// Applies a pull secret with this content.
pub(super) async fn apply_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    config: impl Display,
) -> Result<()> {
    let secret = pull_secret(namespace, name, &config.to_string());
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams::apply("user").force();
    api.patch(name, &params, &Patch::Apply(&secret)).await?;
    Ok(())
}

/// Content of a pull secret, with a number in the password for each registry.
pub(super) fn config(entries: &[(&str, u32)]) -> Value {
    let entry = |(registry, number): &(&str, u32)| {
        let auth = BASE64_STANDARD.encode(format!("u:p{number}"));
        ((*registry).to_owned(), json!({"auth": auth}))
    };
    let auths: serde_json::Map<String, Value> = entries.iter().map(entry).collect();
    json!({"auths": auths})
}

/// Returns false if the write failed with one of these codes, because another event, or the program, changed the object before.
pub(super) fn unless<T>(codes: &[u16], done: kube::Result<T>) -> Result<bool> {
    match done {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if codes.contains(&status.code) => Ok(false),
        Err(error) => bail!(error),
    }
}

/// Ignores an error because another event, or the program, deleted the object.
pub(super) fn unless_gone<T>(done: kube::Result<T>) -> Result<()> {
    unless(&[404], done).map(drop)
}
