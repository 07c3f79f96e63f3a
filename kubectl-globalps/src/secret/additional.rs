//! Adds registries to the additional pull secret or the Secret of another source, and removes registries from it. Pure.

use std::collections::BTreeSet;

use globalps_core::names;
use globalps_dockerconfig::{
    Credential, DockerConfig, Entry, Finding, parse, validate, validate_bytes,
};
use globalps_registry::registry_name;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::cluster::facts::{FINALIZERS, waits_for};
use crate::error::{Failure, Result};

/// What happened to the Secret, in kubectl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Created,
    Configured,
    Unchanged,
}

impl WriteOutcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// A registry's credentials in the form that the Secret stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    /// See [`registry_name`].
    pub registry: String,
    pub credential: Credential,
}

/// The Secret with these credentials. All other registries in `existing` stay unchanged.
pub(crate) fn with_logins(
    existing: Option<Secret>,
    namespace: &str,
    name: &str,
    logins: &[Login],
) -> Result<(Secret, WriteOutcome)> {
    let (mut secret, config, outcome) = match existing {
        Some(secret) => {
            refuse_deleted(&secret)?;
            let config = config_of(&secret)?;
            (secret, config, WriteOutcome::Configured)
        }
        None => (
            empty(namespace, name),
            DockerConfig::default(),
            WriteOutcome::Created,
        ),
    };
    let names: BTreeSet<String> = logins.iter().map(|login| login.registry.clone()).collect();
    let mut entries = without(&config, &names);
    entries.extend(
        logins
            .iter()
            .map(|login| Entry::from_credential(&login.registry, &login.credential)),
    );
    let result = config.with_entries(entries);
    refuse_invalid(name, &validate(&result)).map_err(|failure| match name {
        // The Secret still has an invalid entry.
        names::ADDITIONAL_SECRET if validate(&config).iter().any(Finding::is_error) => {
            let undo = "`kubectl globalps undo` goes back to the last valid Secret";
            Failure::new(failure.message, format!("{}; {undo}", failure.hint))
        }
        _ => failure,
    })?;
    if outcome == WriteOutcome::Configured && config.means_the_same(&result) {
        return Ok((secret, WriteOutcome::Unchanged));
    }
    refuse_immutable(&secret)?;
    set(&mut secret, &result);
    Ok((secret, outcome))
}

/// An immutable Secret can only be deleted.
pub(crate) fn refuse_immutable(secret: &Secret) -> Result<()> {
    if secret.immutable != Some(true) {
        return Ok(());
    }
    Err(Failure::new(
        format!("Secret `{}` is immutable", name_of(secret)),
        "its owner must replace it without `immutable: true`, in one step: `kubectl replace --force -f FILE`; if it is absent for longer, its credentials are removed until it exists again",
    ))
}

/// A Secret that is being deleted takes new content with it, and the controller doesn't read it.
pub(crate) fn refuse_deleted(secret: &Secret) -> Result<()> {
    match waits_for(&secret.metadata) {
        Some(waits) => Err(Failure::new(
            format!("Secret `{}` {waits}", name_of(secret)),
            FINALIZERS,
        )),
        None => Ok(()),
    }
}

/// Refuses to change credentials that another program would revert; with `force`, returns only that program's name.
pub(crate) fn may_change(secret: &Secret, force: bool) -> Result<Option<String>> {
    may_change_key(secret, names::DATA_KEY, force)
}

/// The same of another key.
pub(crate) fn may_change_key(secret: &Secret, key: &str, force: bool) -> Result<Option<String>> {
    let key = format!("f:{key}");
    let holds = |fields: &Value| fields["f:data"].get(&key).is_some();
    let title = format!("Secret `{}`", name_of(secret));
    may_change_of(&title, &secret.metadata, holds, force)
}

/// Like [`may_change`], for any object. `holds`: whether a field manager owns the fields to change.
pub(crate) fn may_change_of(
    title: &str,
    metadata: &ObjectMeta,
    holds: impl Fn(&Value) -> bool,
    force: bool,
) -> Result<Option<String>> {
    match foreign_owner(metadata, holds) {
        Some(owner) if !force => Err(Failure::new(
            format!("{title} belongs to `{owner}`, which would undo the change"),
            "change it at that program's source; `--force-conflicts` changes it here anyway",
        )),
        owner => Ok(owner),
    }
}

/// Labels and annotations by which programs mark their objects: key, value if it matters, and program.
const MARKS: [(&str, &str, &str); 6] = [
    ("app.kubernetes.io/managed-by", "Helm", "Helm"),
    ("kustomize.toolkit.fluxcd.io/name", "", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "", "Flux"),
    ("argocd.argoproj.io/instance", "", "Argo CD"),
    ("argocd.argoproj.io/tracking-id", "", "Argo CD"),
    (
        "reconcile.external-secrets.io/managed",
        "true",
        "External Secrets",
    ),
];

/// The program that would revert a change: the controlling owner, another manager of these fields in `managedFields`,
/// or the program whose mark the object carries.
pub(crate) fn foreign_owner(
    metadata: &ObjectMeta,
    holds: impl Fn(&Value) -> bool,
) -> Option<String> {
    let marked = |(key, value, program): &(&str, &str, &'static str)| {
        let marks = [&metadata.labels, &metadata.annotations];
        let mut found = marks.into_iter().flatten().filter_map(|all| all.get(*key));
        found
            .any(|found| value.is_empty() || found == value)
            .then_some(*program)
    };
    let mut references = metadata.owner_references.iter().flatten();
    references
        .find(|reference| reference.controller == Some(true))
        .map(|it| format!("{}/{}", it.kind, it.name))
        .or_else(|| foreign_manager(metadata, holds).map(program))
        .or_else(|| MARKS.iter().find_map(marked).map(str::to_owned))
}

/// The common name of a field manager; unknown managers are shown as recorded.
fn program(manager: &str) -> String {
    if let Some(name) = manager.strip_prefix("externalsecrets.external-secrets.io/") {
        return format!("ExternalSecret/{name}");
    }
    match manager {
        "kustomize-controller" | "helm-controller" => format!("Flux ({manager})"),
        other => other.to_owned(),
    }
}

/// Managers of manual changes, such as kubectl, don't revert a change; neither does globalps.
fn foreign_manager(metadata: &ObjectMeta, holds: impl Fn(&Value) -> bool) -> Option<&str> {
    // `before-first-apply` stands for unknown managers before the first server-side apply.
    const BY_HAND: [&str; 7] = [
        "kubectl", "oc", "k9s", "Mozilla", "curl", "globalps", "before",
    ];
    let managers = metadata.managed_fields.iter().flatten();
    managers
        .filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| holds(&fields.0))
        })
        .filter_map(|entry| entry.manager.as_deref())
        .find(|manager| {
            let name = manager.split(['-', '/']).next().unwrap_or_default();
            !BY_HAND.contains(&name)
        })
}

/// What remains after registries were removed.
#[derive(Debug)]
pub(crate) enum Rest {
    /// The Secret has none of the registries.
    Same,
    Some(Box<Secret>),
    /// No registry remains, so the Secret is deleted.
    Nothing,
}

/// Removes registries from the Secret. Also returns those that it didn't contain, as the user wrote them.
pub(crate) fn without_registries(
    mut secret: Secret,
    registries: &[String],
) -> Result<(Rest, Vec<String>)> {
    refuse_deleted(&secret)?;
    let config = config_of(&secret)?;
    let entries = config.entries().iter();
    let present: BTreeSet<String> = entries.map(|entry| registry_name(entry.key())).collect();
    let missing: Vec<String> = registries
        .iter()
        .filter(|registry| !present.contains(*registry))
        .cloned()
        .collect();
    if missing.len() == registries.len() {
        return Ok((Rest::Same, missing));
    }
    let entries = without(&config, &registries.iter().cloned().collect());
    // The controller rejects entries without any credentials and keeps the content in force.
    let is_readable = entries.iter().all(|entry| entry.credential().is_ok());
    let rest = config.with_entries(entries);
    if is_readable && rest.is_without_credentials() {
        return Ok((Rest::Nothing, missing));
    }
    refuse_immutable(&secret)?;
    set(&mut secret, &rest);
    Ok((Rest::Some(Box::new(secret)), missing))
}

/// Combines the errors among a Secret's findings into one error.
pub(crate) fn refuse_invalid(name: &str, findings: &[Finding]) -> Result<()> {
    let errors: Vec<&Finding> = findings.iter().filter(|f| f.is_error()).collect();
    let Some(first) = errors.first() else {
        return Ok(());
    };
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let what = match name {
        names::ADDITIONAL_SECRET => "the additional pull secret".to_owned(),
        name => format!("Secret `{name}`"),
    };
    Err(Failure::new(
        format!("{what} is not valid: {}", words.join("; ")),
        first.hint,
    ))
}

pub(crate) fn data_of<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    let data = secret.data.as_ref()?.get(key)?;
    Some(&data.0)
}

fn without(config: &DockerConfig, registries: &BTreeSet<String>) -> Vec<Entry> {
    config
        .entries()
        .iter()
        .filter(|entry| !registries.contains(&registry_name(entry.key())))
        .cloned()
        .collect()
}

/// The Secret's valid content; `None` if nothing in it would be rolled out.
pub(crate) fn valid_in(secret: &Secret, key: &str) -> Option<DockerConfig> {
    validate_bytes(data_of(secret, key)?).0
}

/// The Secret's content; empty if the key is missing.
pub(crate) fn config_of(secret: &Secret) -> Result<DockerConfig> {
    let Some(bytes) = data_of(secret, names::DATA_KEY) else {
        return Ok(DockerConfig::default());
    };
    parse(bytes).map_err(|error| {
        let name = name_of(secret);
        let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
        // The last valid content is still in force. Deleting the Secret would end that.
        let go_back = match name {
            names::ADDITIONAL_SECRET => {
                "go back to the last valid one with `kubectl globalps undo`, or "
            }
            _ => "",
        };
        Failure::new(
            format!("Secret `{name}` can't be extended or cut: {error}"),
            format!("{go_back}fix it with `kubectl edit secret {name} -n {namespace}`"),
        )
    })
}

fn name_of(secret: &Secret) -> &str {
    secret.metadata.name.as_deref().unwrap_or_default()
}

fn empty(namespace: &str, name: &str) -> Secret {
    let mut secret = Secret {
        type_: Some(names::SECRET_TYPE.to_owned()),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.namespace = Some(namespace.to_owned());
    secret
}

fn set(secret: &mut Secret, config: &DockerConfig) {
    secret
        .data
        .get_or_insert_default()
        .insert(names::DATA_KEY.to_owned(), ByteString(config.render()));
}

#[cfg(test)]
mod tests;
