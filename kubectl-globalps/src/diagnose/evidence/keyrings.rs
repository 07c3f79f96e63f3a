//! Reads the Secrets of a pod like the kubelet.

use globalps_core::api::{ConflictStatus, GlobalPullSecret};
use globalps_core::names;
use globalps_dockerconfig::may_serve;
use k8s_openapi::api::core::v1::{LocalObjectReference, Secret};
use kube::ResourceExt;

use crate::cli::CatalogSecret;
use crate::cluster::client::Cluster;
use crate::diagnose::pull::{Asked, Keyring};
use crate::diagnose::tried::Origin;
use crate::error::Result;
use crate::secret::additional::{data_of, may_change};
use crate::target::pull_secret;

/// Type of Secrets with registries at the top level, without `auths`. `OpenShift` creates such Secrets for service accounts.
const OLD_TYPE: &str = "kubernetes.io/dockercfg";
const OLD_KEY: &str = ".dockercfg";

/// The Secrets to which a pod refers. The kubelet ignores missing ones.
pub(crate) async fn secrets(
    cluster: &Cluster<'_>,
    namespace: &str,
    references: &[LocalObjectReference],
    asked: &mut Asked,
) -> Result<()> {
    for reference in references {
        let title = format!("Secret {namespace}/{}", reference.name);
        let found = match pull_secret::get_in(cluster, namespace, &reference.name).await {
            Err(failure) if asked.may_hide && failure.is(403) => {
                let note = format!(
                    "{title} can't be read by this user, so its credentials are not listed"
                );
                asked.notes.push(note);
                continue;
            }
            found => found?,
        };
        match found.as_ref().map(credentials) {
            Some(Ok(bytes)) => asked.of_pod.push(Keyring {
                name: format!("{title}{}", of_catalog(found.as_ref())),
                bytes,
                origin: origin(found.as_ref()),
            }),
            Some(Err(why)) => asked
                .notes
                .push(format!("{title} {why}: the kubelet ignores it")),
            None => asked
                .notes
                .push(format!("{title} does not exist; the kubelet ignores it")),
        }
    }
    if references.is_empty() {
        asked
            .notes
            .push("no Secret is named in `imagePullSecrets`".to_owned());
    }
    Ok(())
}

/// The bytes that the kubelet reads, which depend on the Secret's type; `Err`: why it ignores the Secret.
fn credentials(secret: &Secret) -> Result<Vec<u8>, String> {
    let type_ = secret.type_.as_deref().unwrap_or_default();
    let (key, is_old_form) = match type_ {
        names::SECRET_TYPE => (names::DATA_KEY, false),
        OLD_TYPE => (OLD_KEY, true),
        _ => return Err(format!("has type `{type_}`")),
    };
    match data_of(secret, key).filter(|bytes| !bytes.is_empty()) {
        Some(bytes) if is_old_form => Ok([br#"{"auths":"#, bytes, b"}"].concat()),
        Some(bytes) => Ok(bytes.to_vec()),
        None => Err(format!("has nothing under the key `{key}`")),
    }
}

/// Who has to change the Secret's credentials: the controller reverts changes of its Secrets in namespaces.
fn origin(secret: Option<&Secret>) -> Origin {
    if let Some(CatalogSecret((namespace, name))) = catalog(secret) {
        return Origin::Catalog(namespace, name);
    }
    let label = secret.and_then(|secret| secret.labels().get(names::IMAGE_PULL_SECRET_LABEL));
    match label.map(String::as_str) {
        Some("true") => Origin::Globalps,
        _ => secret.and_then(kept).map_or(Origin::Pod, Origin::Kept),
    }
}

/// Why an edit would have no effect; `None` if it would have one.
fn kept(secret: &Secret) -> Option<String> {
    if secret.immutable == Some(true) {
        let how =
            "the Secret is immutable: delete it, and create it again with the new credentials";
        return Some(how.to_owned());
    }
    let failure = may_change(secret, false).err()?;
    Some(format!("{}: change it there", failure.message))
}

/// The catalog's pull secret of which this Secret is a copy.
fn catalog(secret: Option<&Secret>) -> Option<CatalogSecret> {
    let is_marked = |secret: &&Secret| {
        let label = secret.labels().get(names::OPERATOR_SECRET_LABEL);
        label.is_some_and(|label| label == "true")
    };
    CatalogSecret::of_copy(&secret.filter(is_marked)?.name_any())
}

/// Empty if the Secret is not a copy.
fn of_catalog(secret: Option<&Secret>) -> String {
    match catalog(secret) {
        Some(CatalogSecret((namespace, name))) => {
            format!(", copied from the catalog's pull secret {namespace}/{name}")
        }
        None => String::new(),
    }
}

/// Pull secrets whose credentials for the image are shadowed by another one's.
pub(crate) fn shadowed(gps: Option<&GlobalPullSecret>, image: &str) -> Vec<String> {
    let status = gps.and_then(|gps| gps.status.as_ref());
    let Some((status, serves)) = status.zip(may_serve(image).ok()) else {
        return Vec::new();
    };
    let conflicts = status.conflicts.iter();
    let conflicts = conflicts.filter(|conflict| serves(&conflict.registry));
    let note = |conflict: &ConflictStatus| {
        let (effective, shadowed) = conflict.sides();
        let registry = &conflict.registry;
        format!(
            "`{registry}`: the credentials of {effective} are effective, those of {shadowed} are shadowed"
        )
    };
    conflicts.map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kubelet_reads_what_the_type_says() {
        let content = r#"{"auths":{"r":{}}}"#;
        for (type_, key, value, expected) in [
            (names::SECRET_TYPE, names::DATA_KEY, content, Ok(content)),
            (OLD_TYPE, OLD_KEY, r#"{"r":{}}"#, Ok(content)),
            ("Opaque", names::DATA_KEY, content, Err("has type `Opaque`")),
            ("Opaque", OLD_KEY, "{}", Err("has type `Opaque`")),
            (
                OLD_TYPE,
                names::DATA_KEY,
                content,
                Err("has nothing under the key `.dockercfg`"),
            ),
            (
                names::SECRET_TYPE,
                names::DATA_KEY,
                "",
                Err("has nothing under the key `.dockerconfigjson`"),
            ),
        ] {
            let value = k8s_openapi::ByteString(value.as_bytes().to_vec());
            let secret = json!({"metadata": {}, "type": type_, "data": {key: value}});
            let secret: Secret = serde_json::from_value(secret).expect("a Secret");
            let expected = expected
                .map(|text| text.as_bytes().to_vec())
                .map_err(str::to_owned);
            assert_eq!(credentials(&secret), expected, "{type_} {key}");
        }
    }

    #[test]
    fn a_copy_is_shown_with_the_catalogs_pull_secret() {
        for (name, label, expected) in [
            (
                "globalps-olm.pull.v2",
                Some("true"),
                ", copied from the catalog's pull secret olm/pull.v2",
            ),
            ("globalps-olm.pull", Some("false"), ""),
            ("globalps-olm.pull", None, ""),
            ("team", Some("true"), ""),
        ] {
            let mut secret = Secret::default();
            secret.metadata.name = Some(name.to_owned());
            let label =
                label.map(|label| (names::OPERATOR_SECRET_LABEL.to_owned(), label.to_owned()));
            secret.metadata.labels = Some(label.into_iter().collect());
            assert_eq!(of_catalog(Some(&secret)), expected, "{name}");
        }
        assert_eq!(of_catalog(None), "");
    }
}
