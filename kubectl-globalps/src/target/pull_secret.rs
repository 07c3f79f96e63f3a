//! Reads and writes the Secrets with credentials.

use globalps_core::api::GlobalPullSecret;
use globalps_core::decode::{Item, Owned};
use globalps_core::names::{self, LAST_APPLIED_ANNOTATION, REVISION_ANNOTATION};
use globalps_dockerconfig::parse;
use globalps_provider::{Content, Delivery, parse_scoped};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::cli::DryRun;
use crate::cluster::{Cluster, FINALIZERS, hypershift, or_not_installed, params, waits_for};
use crate::credentials::auth_file::AuthFile;
use crate::error::{Failure, Result, allowed, or_absent};
use crate::secret::additional::data_of;
use crate::terminal::printer::Printer;

/// The metadata that may be shown.
const METADATA: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
];
const MANIFEST: [&str; 4] = ["name", "namespace", "labels", "annotations"];
const OWN_ANNOTATIONS: &str = "globalps.io/";

/// A Secret in the namespace of the pull secrets.
pub(crate) async fn get(cluster: &Cluster<'_>, name: &str) -> Result<Option<Secret>> {
    get_in(cluster, &cluster.namespace, name).await
}

/// The Secret with the revision in force: where `global-pull-secret` is `HyperShift`'s, it has another name.
pub(crate) async fn in_force(cluster: &Cluster<'_>) -> Result<Option<Secret>> {
    let global = get(cluster, names::GLOBAL_SECRET).await?;
    let is_others = |secret: &Secret| !secret.annotations().contains_key(REVISION_ANNOTATION);
    if global.as_ref().is_some_and(|secret| !is_others(secret)) {
        return Ok(global);
    }
    // A user who may not read it sees the other one.
    let record = get(cluster, names::RECORD_SECRET).await;
    Ok(allowed(record)?.flatten().or(global))
}

pub(crate) async fn get_in(
    cluster: &Cluster<'_>,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>> {
    let api: Api<Owned<Secret>> = Api::namespaced(cluster.client.clone(), namespace);
    let doing = format!("get Secret `{namespace}/{name}`");
    cluster.read(&doing, api.get_opt(name)).await
}

/// The credentials in a Secret, in the current or the old format.
pub(crate) async fn auth_file(
    cluster: &Cluster<'_>,
    namespace: &str,
    name: &str,
) -> Result<AuthFile> {
    let shown = format!("Secret `{namespace}/{name}`");
    let secret = get_in(cluster, namespace, name).await?.ok_or_else(|| {
        Failure::new(
            format!("there is no {shown}"),
            format!("see `kubectl get secrets -n {namespace}`"),
        )
    })?;
    if let Some(bytes) = data_of(&secret, names::DATA_KEY) {
        return AuthFile::of_others(shown, bytes);
    }
    let Some(bytes) = data_of(&secret, ".dockercfg") else {
        return Err(Failure::new(
            format!(
                "{shown} has no registry credentials: it has no key `{}`",
                names::DATA_KEY
            ),
            "name a Secret of type `kubernetes.io/dockerconfigjson`",
        ));
    };
    AuthFile::of_others(shown, &[br#"{"auths":"#, bytes, b"}"].concat())
}

pub(crate) async fn configuration(cluster: &Cluster<'_>) -> Result<Option<GlobalPullSecret>> {
    let api = cluster.api::<Item<GlobalPullSecret>>();
    let call = api.get_opt(names::GLOBAL_SECRET);
    let found = cluster.read("get the GlobalPullSecret", call).await;
    found.map_err(|failure| or_not_installed(cluster, failure))
}

/// The merged Secret and the configuration, if this user may read them.
pub(crate) async fn seen(cluster: &Cluster<'_>) -> (Option<Secret>, Option<GlobalPullSecret>) {
    let (global, gps) = futures::join!(in_force(cluster), configuration(cluster));
    (global.ok().flatten(), gps.ok().flatten())
}

/// Like [`configuration`]; `None` also if its kind doesn't exist, because globalps is not installed.
pub(crate) async fn installed_configuration(
    cluster: &Cluster<'_>,
) -> Result<Option<GlobalPullSecret>> {
    or_absent(configuration(cluster).await)
}

/// Creates or replaces the Secret if it hasn't changed since it was read; otherwise the API server answers 409. Removes
/// the annotation in which `kubectl apply` stores a copy of the content, because the copy would keep rotated passwords.
pub(crate) async fn put(
    cluster: &Cluster<'_>,
    mut secret: Secret,
    dry_run: DryRun,
) -> Result<Secret> {
    let annotations = secret.metadata.annotations.as_mut();
    let has_copy = annotations.is_some_and(|all| all.remove(LAST_APPLIED_ANNOTATION).is_some());
    let api = cluster.api::<Secret>();
    let params = params::post(dry_run == DryRun::Server);
    let name = secret.name_any();
    let shown = format!("{}/{name}", cluster.namespace);
    // A Secret that was read has a version.
    if secret.resource_version().is_none() {
        let doing = format!("create Secret `{shown}`");
        return cluster.call(&doing, api.create(&params, &secret)).await;
    }
    let doing = format!("update Secret `{shown}`");
    let replaced = api.replace(&name, &params, &secret);
    let replaced = cluster.call(&doing, replaced).await?;
    if has_copy && dry_run == DryRun::None {
        cluster.printer().note(format_args!(
            "annotation `{LAST_APPLIED_ANNOTATION}` of Secret `{shown}` was removed, because it contained the credentials; the next `kubectl apply` writes it again"
        ));
    }
    Ok(replaced)
}

/// The Secret as kubectl prints it. Only a dry run includes the credentials, because its output is the only result;
/// `--dry-run=client` prints a manifest to commit, without the fields that the API server adds.
pub(crate) fn shown(secret: &Secret, dry_run: DryRun) -> Value {
    let has_credentials = dry_run != DryRun::None;
    let metadata_fields: &[&str] = match dry_run {
        DryRun::Client => &MANIFEST,
        DryRun::None | DryRun::Server => &METADATA,
    };
    let mut object = json!(secret);
    let metadata = object["metadata"].as_object_mut();
    let fields = metadata.into_iter().flatten();
    let fields = fields.filter(|(field, _)| metadata_fields.contains(&field.as_str()));
    let mut metadata: Map<String, Value> = fields.map(|(k, v)| (k.clone(), v.take())).collect();
    let annotations = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut);
    if let Some(all) = annotations {
        all.remove(LAST_APPLIED_ANNOTATION);
        let is_known = |key: &str| key.starts_with(OWN_ANNOTATIONS);
        for (_, value) in all.iter_mut().filter(|(key, _)| !is_known(key)) {
            mask_unless(has_credentials, value);
        }
    }
    let mut shown = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
    for field in ["type", "immutable"] {
        if !object[field].is_null() {
            shown[field] = object[field].take();
        }
    }
    let mut data = object["data"].take();
    for value in data.as_object_mut().into_iter().flat_map(Map::values_mut) {
        mask_unless(has_credentials, value);
    }
    if !data.is_null() {
        shown["data"] = data;
    }
    shown
}

fn mask_unless(has_credentials: bool, value: &mut Value) {
    if !has_credentials {
        *value = json!("***");
    }
}

/// The additional pull secret as the controller sees it: absent if it is being deleted.
pub(crate) async fn additional(cluster: &Cluster<'_>) -> Result<Option<Secret>> {
    let found = get(cluster, names::ADDITIONAL_SECRET).await?;
    Ok(found.filter(|secret| waits_for(&secret.metadata).is_none()))
}

/// Warns about a deleted Secret that a finalizer keeps: its credentials are still in the cluster.
pub(crate) async fn warn_if_kept(cluster: &Cluster<'_>, name: &str) {
    let api = cluster.api::<Secret>();
    let shown = format!("Secret `{}/{name}`", cluster.namespace);
    let doing = format!("see whether {shown} is gone");
    // The command itself has succeeded, whatever this request returns.
    let found = cluster.call(&doing, api.get_metadata_opt(name)).await;
    let found = found.ok().flatten();
    if let Some(waits) = found.and_then(|secret| waits_for(&secret.metadata)) {
        let printer = cluster.printer();
        printer.warning(format_args!("{shown} {waits}"));
        printer.hint(FINALIZERS);
    }
}

/// The content in force: for every pod, and for each scope.
pub(crate) fn content_of(global: &Secret, bytes: &[u8], delivery: Delivery) -> Result<Content> {
    let scoped = data_of(global, names::SCOPED_KEY).map(parse_scoped);
    Ok(Content {
        config: parse(bytes).map_err(|_| unreadable())?,
        scoped: scoped
            .transpose()
            .map_err(|_| unreadable())?
            .unwrap_or_default(),
        delivery,
    })
}

pub(crate) fn unreadable() -> Failure {
    Failure::new(
        format!(
            "Secret `{}` is not as this plugin knows it",
            names::GLOBAL_SECRET
        ),
        "check with `kubectl globalps version` that the plugin and the controller have the same version",
    )
}

/// Warns about the owners that `--force-conflicts` ignores.
pub(crate) fn warn_of_owners(printer: &Printer, owners: impl IntoIterator<Item = String>) {
    for owner in owners {
        printer.warning(format_args!("`{owner}` may revert the change"));
    }
}

pub(crate) const ANYWAY: &str = "`--force` writes the Secret anyway";

/// Refuses if nothing acts on the Secret. `HyperShift`'s own syncer does.
pub(crate) async fn must_be_installed(cluster: &Cluster<'_>) -> Result<()> {
    match configuration(cluster).await {
        Err(mut failure) if failure.is(404) && hypershift::look(cluster).await?.is_none() => {
            failure.hint = format!("{}; {ANYWAY}", failure.hint);
            Err(failure)
        }
        // The next request reports other errors.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::client::tests::mocked;
    use k8s_openapi::ByteString;

    fn applied() -> Secret {
        let object = json!({
            "metadata": {
                "name": "s", "namespace": "clusters", "uid": "u", "resourceVersion": "7",
                "labels": {"team": "a"},
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
                    "globalps.io/revision": "3",
                    "example.com/backup": "hunter2",
                },
                "managedFields": [{"manager": "hunter2"}],
            },
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": ByteString(b"hunter2".to_vec())},
            "stringData": {"x": "hunter2"},
        });
        serde_json::from_value(object).expect("a Secret")
    }

    #[test]
    fn what_is_printed_has_no_credential_but_in_a_dry_run() {
        let metadata = |backup: &str| {
            json!({
                "name": "s", "namespace": "clusters", "uid": "u", "resourceVersion": "7",
                "labels": {"team": "a"},
                "annotations": {"globalps.io/revision": "3", "example.com/backup": backup},
            })
        };
        let mut expected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata("***"),
            "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "***"},
        });
        assert_eq!(shown(&applied(), DryRun::None), expected);
        expected["metadata"] = metadata("hunter2");
        expected["data"] = json!({".dockerconfigjson": "aHVudGVyMg=="});
        assert_eq!(shown(&applied(), DryRun::Server), expected);
        for added in ["uid", "resourceVersion"] {
            let metadata = expected["metadata"].as_object_mut();
            metadata.and_then(|metadata| metadata.remove(added));
        }
        assert_eq!(shown(&applied(), DryRun::Client), expected);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_change_takes_the_copy_of_kubectl_apply_out() {
        let printer = Printer::silent();
        let hub = mocked(&[], &printer);
        let sent = put(&hub, applied(), DryRun::None).await.expect("replaced");
        let keys: Vec<&String> = sent.annotations().keys().collect();
        assert_eq!(keys, ["example.com/backup", "globalps.io/revision"]);
    }
}
