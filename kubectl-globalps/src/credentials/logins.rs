//! The credentials that a user wants to add, from any source on this machine or in the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use globalps_core::api::SecretRef;
use globalps_dockerconfig::{Credential, Lifetime, lifetime, shown_key};
use jiff::Timestamp;

use crate::cli::Credentials;
use crate::credentials::auth_file::{AuthFile, PasswordLocation};
use crate::credentials::{helper, password};
use crate::error::{Failure, Result};
use crate::platform;
use crate::registry::name::registry_key;
use crate::secret::additional::Login;

/// Environment variable of podman, skopeo and buildah.
pub(crate) const AUTH_FILE: &str = "REGISTRY_AUTH_FILE";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// A user and a password, from flags or a prompt.
    User,
    /// Docker or podman files on this machine.
    AuthFiles(&'a [PathBuf]),
    /// Such a file, named only by [`AUTH_FILE`].
    Variable(PathBuf),
    Secret(&'a SecretRef),
    File(&'a PathBuf),
}

/// `variable`: the value of [`AUTH_FILE`].
fn choose(flags: &Credentials, variable: Option<OsString>) -> Source<'_> {
    if let Some(secret) = &flags.from_secret {
        return Source::Secret(&secret.0);
    }
    if let Some(file) = &flags.from_file {
        return Source::File(file);
    }
    if !flags.authfile.is_empty() {
        return Source::AuthFiles(&flags.authfile);
    }
    match variable.filter(|path| !path.is_empty()) {
        Some(path) if flags.username.is_none() => Source::Variable(path.into()),
        _ => Source::User,
    }
}

/// The source that the flags choose, and the registries that they name. Reads nothing yet.
pub(crate) fn understand(flags: &Credentials) -> Result<(Source<'_>, BTreeSet<String>)> {
    let source = choose(flags, std::env::var_os(AUTH_FILE));
    let registries = flags.registry.iter().map(|text| registry_key(text));
    let registries = registries.collect::<Result<BTreeSet<String>>>()?;
    if source == Source::User {
        if flags.all {
            return Err(Failure::new(
                "`--all` needs a source of credentials",
                "name a source: `--authfile`, `--from-secret` or `--from-file`",
            ));
        }
        if registries.is_empty() {
            return Err(Failure::new(
                "`REGISTRY` is missing",
                "name the registry, such as `quay.io`, or a source of credentials with `--authfile`, `--from-secret` or `--from-file`",
            ));
        }
    }
    Ok((source, registries))
}

/// Whether the command prompts for the password.
pub(crate) fn is_password_asked(flags: &Credentials) -> bool {
    let is_of_user = matches!(understand(flags), Ok((Source::User, _)));
    is_of_user && password::is_asked(flags)
}

/// The same user and password for each registry.
pub(crate) fn same_for_all(registries: &BTreeSet<String>, credential: &Credential) -> Vec<Login> {
    let login = |registry: &String| Login {
        registry: registry.clone(),
        credential: credential.clone(),
    };
    registries.iter().map(login).collect()
}

pub(crate) fn auth_files(paths: &[PathBuf]) -> Result<Vec<AuthFile>> {
    let read = |path: &PathBuf| {
        let name = format!("`{}`", path.display());
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::new(
                format!("{name} could not be read: {error}"),
                format!("name {}", platform::HERE.auth_files()),
            )
        })?;
        AuthFile::new(name, &bytes)
    };
    paths.iter().map(read).collect()
}

/// The credentials of these registries; with `all`, of every registry in the files.
pub(crate) async fn of_files(
    files: &[AuthFile],
    registries: &BTreeSet<String>,
    all: bool,
) -> Result<Vec<Login>> {
    let chosen = chosen(files, registries, all)?;
    let mut logins = Vec::new();
    for registry in chosen {
        let mut found: Option<(&str, Credential)> = None;
        for file in files {
            let Some(credential) = look_up(file, &registry).await? else {
                continue;
            };
            match &found {
                Some((other, first)) if *first != credential => {
                    return Err(Failure::new(
                        format!(
                            "{other} and {} have different credentials for `{}`",
                            file.name,
                            shown_key(&registry)
                        ),
                        "name one of the two files, and the other registries in another run",
                    ));
                }
                Some(_) => {}
                None => found = Some((&file.name, credential)),
            }
        }
        let (_, credential) = found.ok_or_else(|| missing(files, &registry))?;
        logins.push(Login {
            registry,
            credential,
        });
    }
    Ok(logins)
}

pub(crate) async fn look_up(file: &AuthFile, registry: &str) -> Result<Option<Credential>> {
    for place in file.places(registry)? {
        let credential = match place {
            PasswordLocation::Here(credential) => Some(credential),
            PasswordLocation::Helper { helper, server } => {
                helper::get(&helper, &server, registry).await?
            }
        };
        if credential.is_some() {
            return Ok(credential);
        }
    }
    Ok(None)
}

/// Without `--registry` or `--all`, the files must have exactly one registry. A file that has grown over the years may contain
/// credentials that don't belong on every node.
fn chosen(
    files: &[AuthFile],
    registries: &BTreeSet<String>,
    all: bool,
) -> Result<BTreeSet<String>> {
    if !registries.is_empty() {
        return Ok(registries.clone());
    }
    let there: BTreeSet<String> = files.iter().flat_map(AuthFile::registries).collect();
    match there.len() {
        0 => Err(Failure::new(
            format!("{} has no credentials", names(files)),
            "log in first (`docker login REGISTRY`, `podman login --authfile FILE REGISTRY`), or name another file",
        )),
        1 => Ok(there),
        _ if all => Ok(there),
        number => Err(Failure::new(
            format!("{} has {number} registries: {}", names(files), list(&there)),
            "choose with `--registry`, or take them all with `--all`",
        )),
    }
}

fn missing(files: &[AuthFile], registry: &str) -> Failure {
    let there: BTreeSet<String> = files.iter().flat_map(AuthFile::registries).collect();
    let is_there = there.is_empty() || there.contains(registry);
    let registry = shown_key(registry);
    let hint = if is_there {
        format!("log in once more, as with `docker login {registry}`, or name another file")
    } else {
        format!("there are some for {}", list(&there))
    };
    Failure::new(
        format!("{} has no credentials for `{registry}`", names(files)),
        hint,
    )
}

fn names(files: &[AuthFile]) -> String {
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    names.join(" or ")
}

fn list(registries: &BTreeSet<String>) -> String {
    let names: Vec<String> = registries.iter().map(|it| shown_key(it)).collect();
    format!("`{}`", names.join("`, `"))
}

/// The credentials that have expired or will expire: registry and message.
pub(crate) fn short_lived(logins: &[Login], now: Timestamp) -> BTreeMap<&str, String> {
    let sentence = |login: &Login| {
        let registry = shown_key(&login.registry);
        let when = match lifetime(&login.registry, &login.credential)? {
            Lifetime::Until(time) if time <= now => format!("expired at {time}"),
            Lifetime::Until(time) => format!("expire at {time}"),
            Lifetime::Hours(1) => "expire an hour after they were issued".to_owned(),
            Lifetime::Hours(hours) => format!("expire {hours} hours after they were issued"),
            Lifetime::Job => {
                "expire with the CI job that they were issued for, or after hours".to_owned()
            }
        };
        Some(format!("the credentials of `{registry}` {when}"))
    };
    logins
        .iter()
        .filter_map(|login| Some((login.registry.as_str(), sentence(login)?)))
        .collect()
}

#[cfg(test)]
mod tests;
