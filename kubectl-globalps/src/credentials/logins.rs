//! The logins that a user means to add, of all places on this machine and in the cluster where there may be some.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use globalps_core::api::SecretRef;
use globalps_dockerconfig::{Credential, Lifetime, lifetime, shown_key};
use jiff::Timestamp;

use crate::cli::Credentials;
use crate::credentials::auth_file::{AuthFile, Place};
use crate::credentials::{helper, password};
use crate::error::Failure;
use crate::platform;
use crate::registry::name::registry_key;
use crate::secret::additional::Login;

/// Podman's variable, skopeo's and buildah's too.
pub(crate) const AUTH_FILE: &str = "REGISTRY_AUTH_FILE";

/// Where the credentials are to come from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// A user, and a password that is given or asked for.
    User,
    /// Files of docker or podman, on this machine.
    AuthFiles(&'a [PathBuf]),
    /// One such file, which nobody named but [`AUTH_FILE`].
    Variable(PathBuf),
    Secret(&'a SecretRef),
    File(&'a PathBuf),
}

/// `variable`: what [`AUTH_FILE`] says.
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

/// What the flags mean together, and the registries that they name. Nothing is read yet.
pub(crate) fn understand(flags: &Credentials) -> Result<(Source<'_>, BTreeSet<String>), Failure> {
    let source = choose(flags, std::env::var_os(AUTH_FILE));
    let registries = flags.registry.iter().map(|text| registry_key(text));
    let registries = registries.collect::<Result<BTreeSet<String>, Failure>>()?;
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

/// Whether a person will be asked for the password.
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

/// Files of docker or podman.
pub(crate) fn auth_files(paths: &[PathBuf]) -> Result<Vec<AuthFile>, Failure> {
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

/// The credentials of these registries, or with `all` of every one.
pub(crate) async fn of_files(
    files: &[AuthFile],
    registries: &BTreeSet<String>,
    all: bool,
) -> Result<Vec<Login>, Failure> {
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

pub(crate) async fn look_up(
    file: &AuthFile,
    registry: &str,
) -> Result<Option<Credential>, Failure> {
    for place in file.places(registry)? {
        let credential = match place {
            Place::Here(credential) => Some(credential),
            Place::Helper { helper, server } => helper::get(&helper, &server, registry).await?,
        };
        if credential.is_some() {
            return Ok(credential);
        }
    }
    Ok(None)
}

/// Without a word on which, one registry is meant, and not several: a file that grew over the years holds things that
/// nobody means to put on every node.
fn chosen(
    files: &[AuthFile],
    registries: &BTreeSet<String>,
    all: bool,
) -> Result<BTreeSet<String>, Failure> {
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

/// Credentials that will expire, or have: registry and sentence.
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
mod tests {
    use super::*;

    fn set(registries: &[&str]) -> BTreeSet<String> {
        registries.iter().map(|name| (*name).to_owned()).collect()
    }

    fn files(texts: &[&str]) -> Vec<AuthFile> {
        let file =
            |(text, name): (&&str, char)| AuthFile::new(format!("`{name}`"), text.as_bytes());
        let files = texts.iter().zip('a'..).map(file);
        files.collect::<Result<_, _>>().expect("files")
    }

    fn shown(logins: &Result<Vec<Login>, Failure>) -> String {
        match logins {
            Ok(logins) => logins
                .iter()
                .map(|login| {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let password = text(login.credential.password.expose());
                    format!("{} {password}\n", login.registry)
                })
                .collect::<Vec<_>>()
                .concat(),
            Err(failure) => format!("{}\n  hint: {}\n", failure.message, failure.hint),
        }
    }

    #[tokio::test]
    async fn registries_are_chosen_by_name_and_never_all_by_chance() {
        const ONE: &str = r#"{"auths":{"https://one.example.com/v1/":{"auth":"dTox"}}}"#;
        const TWO: &str =
            r#"{"auths":{"one.example.com":{"auth":"dTox"},"two.example.com":{"auth":"dToy"}}}"#;
        const OTHER: &str = r#"{"auths":{"one.example.com":{"auth":"dTpw"}}}"#;
        const EMPTY: &str = r#"{"auths":{}}"#;
        const MARK: &str = r#"{"auths":{"one.example.com":{}}}"#;
        for (sentence, texts, registries, all, expected) in [
            (
                "one is meant",
                &[ONE][..],
                &[][..],
                false,
                "one.example.com 1\n",
            ),
            (
                "several are not",
                &[TWO],
                &[],
                false,
                "`a` has 2 registries: `one.example.com`, `two.example.com`\n  \
                 hint: choose with `--registry`, or take them all with `--all`\n",
            ),
            (
                "unless said so",
                &[TWO],
                &[],
                true,
                "one.example.com 1\ntwo.example.com 2\n",
            ),
            (
                "by name",
                &[TWO],
                &["two.example.com"],
                false,
                "two.example.com 2\n",
            ),
            (
                "several by name",
                &[TWO],
                &["two.example.com", "one.example.com"],
                false,
                "one.example.com 1\ntwo.example.com 2\n",
            ),
            (
                "twice the same",
                &[TWO, ONE],
                &["one.example.com"],
                false,
                "one.example.com 1\n",
            ),
            (
                "twice, and not the same",
                &[OTHER, ONE],
                &["one.example.com"],
                false,
                "`a` and `b` have different credentials for `one.example.com`\n  \
                 hint: name one of the two files, and the other registries in another run\n",
            ),
            (
                "one file each",
                &[OTHER, TWO],
                &["two.example.com"],
                false,
                "two.example.com 2\n",
            ),
            (
                "not there",
                &[ONE],
                &["quay.io"],
                false,
                "`a` has no credentials for `quay.io`\n  hint: there are some for `one.example.com`\n",
            ),
            (
                "a path is another key",
                &[ONE],
                &["one.example.com/team"],
                false,
                "`a` has no credentials for `one.example.com/team`\n  hint: there are some for `one.example.com`\n",
            ),
            (
                "nothing there",
                &[EMPTY],
                &[],
                false,
                "`a` has no credentials\n  \
                 hint: log in first (`docker login REGISTRY`, `podman login --authfile FILE REGISTRY`), or name another file\n",
            ),
            (
                "a mark is none",
                &[MARK],
                &[],
                false,
                "`a` has no credentials for `one.example.com`\n  \
                 hint: log in once more, as with `docker login one.example.com`, or name another file\n",
            ),
        ] {
            let found = of_files(&files(texts), &set(registries), all).await;
            assert_eq!(shown(&found), expected, "{sentence}");
        }
    }

    #[tokio::test]
    async fn a_password_in_the_name_of_a_registry_is_in_no_failure() {
        let entries = |value: &str| {
            let keys = [
                "https://robot:pa/s3cret@quay.io",
                "robot:s3cret@ghcr.io/v1/",
            ];
            keys.map(|key| format!(r#""{key}":{value}"#)).join(",")
        };
        let auths = |value: &str| format!(r#"{{"auths":{{{}}}}}"#, entries(value));
        let helpers = |name: &str| {
            format!(
                r#"{{"credHelpers":{{{}}}}}"#,
                entries(&format!(r#""{name}""#))
            )
        };
        let own = |text: String| AuthFile::new("`f`", text.as_bytes()).expect("a file");
        let of_others = |text: String| AuthFile::of_others("`f`", text.as_bytes()).expect("a file");
        let mut failures = 0;
        for files in [
            vec![
                own(auths(r#"{"auth":"dTox"}"#)),
                own(auths(r#"{"auth":"dToy"}"#)),
            ],
            vec![own(auths("{}"))],
            vec![own(auths(r#"{"auth":"cGFudHM="}"#))],
            vec![own(auths(r#"{"auth":"MDo=","identitytoken":"t"}"#))],
            vec![own(helpers("globalps-is-not-there"))],
            vec![own(helpers("a/b"))],
            vec![of_others(helpers("pass"))],
        ] {
            for all in [true, false] {
                let named: Vec<String> = files[0].registries().into_iter().collect();
                let named = named.iter().map(|name| set(&[name]));
                for chosen in named.chain([set(&[]), set(&["r.io"])]) {
                    let found = of_files(&files, &chosen, all).await;
                    failures += usize::from(found.is_err());
                    let shown = shown(&found.map(|_| Vec::new()));
                    assert!(!shown.contains("s3cret"), "{shown}");
                }
            }
        }
        assert!(failures > 40, "{failures}");
    }

    #[test]
    fn a_user_goes_before_the_variable_and_a_flag_before_both() {
        use clap::Parser as _;
        for (line, variable, expected) in [
            ("--registry r -u u", Some("v"), "User"),
            ("--registry r", None, "User"),
            ("--registry r", Some(""), "User"),
            ("--registry r", Some("v"), r#"Variable("v")"#),
            ("--all", Some("v"), r#"Variable("v")"#),
            (
                "--authfile a --authfile b",
                Some("v"),
                r#"AuthFiles(["a", "b"])"#,
            ),
            ("--from-file -", Some("v"), r#"File("-")"#),
        ] {
            let words = ["kubectl-globalps", "add"].into_iter();
            let cli = crate::cli::Cli::parse_from(words.chain(line.split_whitespace()));
            let crate::cli::Command::Add(add) = cli.command else {
                unreachable!("it is `add`")
            };
            let found = choose(&add.from, variable.map(OsString::from));
            assert_eq!(format!("{found:?}"), expected, "{line}");
        }
    }

    #[test]
    fn credentials_that_expire_are_named_with_the_time() {
        // `{"exp":1800000000}`
        const TOKEN: &str = "e30.eyJleHAiOjE4MDAwMDAwMDB9.c2ln";
        let login = |registry: &str, user: &str, password: &str| Login {
            registry: registry.to_owned(),
            credential: Credential {
                username: globalps_dockerconfig::Secret::new(user),
                password: globalps_dockerconfig::Secret::new(password),
            },
        };
        let logins = [
            login("1.dkr.ecr.eu-west-1.amazonaws.com", "AWS", "p"),
            login("gcr.io", "oauth2accesstoken", "p"),
            login("jwt.example.com", "u", TOKEN),
            login("quay.io", "team+robot", "p"),
            login("registry.gitlab.example.com", "gitlab-ci-token", "p"),
        ];
        for (now, jwt) in [
            (1_799_999_999, "expire at 2027-01-15T08:00:00Z"),
            (1_800_000_000, "expired at 2027-01-15T08:00:00Z"),
        ] {
            let now = Timestamp::from_second(now).expect("a time");
            let found: Vec<String> = short_lived(&logins, now).into_values().collect();
            assert_eq!(
                found,
                [
                    "the credentials of `1.dkr.ecr.eu-west-1.amazonaws.com` expire 12 hours after they were issued".to_owned(),
                    "the credentials of `gcr.io` expire an hour after they were issued".to_owned(),
                    format!("the credentials of `jwt.example.com` {jwt}"),
                    "the credentials of `registry.gitlab.example.com` expire with the CI job that they were issued for, or after hours".to_owned(),
                ]
            );
        }
    }
}
