//! Docker's config.json and podman's auth.json on a workstation, where credential helpers may hold the passwords. Pure.

use std::collections::BTreeSet;

use globalps_dockerconfig::{
    Credential, DockerConfig, Entry, FileForm, ParseError, parse, shown_key,
};
use globalps_registry::HUB;
use globalps_registry::registry_name;

use crate::error::{Failure, Result};

/// Docker's key for Docker Hub.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// Credentials in a file or in a Secret.
#[derive(Debug)]
pub(crate) struct AuthFile {
    /// Name of the file or Secret in messages.
    pub name: String,
    config: DockerConfig,
    /// The user wrote the file on this machine, so the helpers that it names may run.
    is_own: bool,
}

/// Where the password of a registry is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PasswordLocation {
    Here(Credential),
    /// In `docker-credential-HELPER`, under this server name.
    Helper {
        helper: String,
        server: String,
    },
}

impl AuthFile {
    pub(crate) fn new(name: impl Into<String>, bytes: &[u8]) -> Result<Self> {
        let name = name.into();
        let config = parse(bytes).and_then(|config| {
            // A kubelet reads a manifest as a file without entries.
            let is_manifest = config.is_manifest();
            (!is_manifest)
                .then_some(config)
                .ok_or(ParseError::Form(FileForm::Manifest))
        });
        let config = config.map_err(|error| {
            let hint = match error {
                ParseError::Form(FileForm::Manifest) => "`--from-file` reads manifests",
                ParseError::Form(form) => form.hint(),
                _ => "name docker's config.json or podman's auth.json; `kubectl globalps validate FILE` says more",
            };
            Failure::new(format!("{name} is no registry credentials file: {error}"), hint)
        })?;
        if !config.helpers().is_readable() {
            return Err(Failure::new(
                format!("{name} names its credential helpers in a way that can't be read"),
                "`credHelpers` is an object of texts, `credsStore` is a text",
            ));
        }
        Ok(Self {
            name,
            config,
            is_own: true,
        })
    }

    /// The content of a Secret, or of a file for one. Such content must not choose programs that run on this machine.
    pub(crate) fn of_others(name: impl Into<String>, bytes: &[u8]) -> Result<Self> {
        Ok(Self {
            is_own: false,
            ..Self::new(name, bytes)?
        })
    }

    /// Canonical names of all registries with an entry or a helper.
    pub(crate) fn registries(&self) -> BTreeSet<String> {
        let entries = self.config.entries().iter().map(Entry::key);
        let helpers = self.config.helpers().of_registries().iter();
        let helpers = helpers.filter(|(_, helper)| !helper.is_empty());
        let helpers = helpers.map(|(key, _)| key.as_str());
        entries.chain(helpers).map(registry_name).collect()
    }

    /// Where a registry's password is stored, in docker's order. Helpers are omitted if the file is not the user's own.
    /// Empty if the file doesn't mention the registry.
    pub(crate) fn places(&self, registry: &str) -> Result<Vec<PasswordLocation>> {
        let mut places = self.all_places(registry)?;
        if self.is_own {
            return Ok(places);
        }
        let mut helper = None;
        places.retain(|place| match place {
            PasswordLocation::Here(_) => true,
            PasswordLocation::Helper { helper: name, .. } => {
                helper = Some(name.clone());
                false
            }
        });
        match helper.filter(|_| places.is_empty()) {
            Some(helper) => Err(Failure::new(
                format!(
                    "{} leaves the password of `{}` to the program `docker-credential-{helper}`, which is not run for it",
                    self.name,
                    shown_key(registry)
                ),
                "credential helpers are run for `--authfile` only; name the registries that it has a password for with `--registry`",
            )),
            None => Ok(places),
        }
    }

    fn all_places(&self, registry: &str) -> Result<Vec<PasswordLocation>> {
        let helpers = self.config.helpers();
        let mut own = helpers.of_registries().iter();
        let store = match own.find(|(key, _)| registry_name(key) == registry) {
            Some((server, helper)) if !helper.is_empty() => {
                return Ok(vec![PasswordLocation::Helper {
                    helper: helper.clone(),
                    server: server.clone(),
                }]);
            }
            Some(_) => "",
            None => helpers.store(),
        };
        let entries = self.config.entries().iter();
        let entries: Vec<&Entry> = entries
            .filter(|entry| registry_name(entry.key()) == registry)
            .collect();
        let mut places = Vec::new();
        if !store.is_empty() {
            places.push(PasswordLocation::Helper {
                helper: store.to_owned(),
                server: match entries.first() {
                    Some(entry) => entry.key().to_owned(),
                    None if registry == HUB => HUB_KEY.to_owned(),
                    None => registry.to_owned(),
                },
            });
        }
        for entry in entries {
            if let Some(credential) = self.credential(registry, entry)? {
                places.push(PasswordLocation::Here(credential));
            }
        }
        Ok(places)
    }

    /// `None` if the entry only marks a login: the password is stored elsewhere.
    fn credential(&self, registry: &str, entry: &Entry) -> Result<Option<Credential>> {
        let credential = entry.credential().map_err(|error| {
            Failure::new(
                format!(
                    "the entry of `{}` in {} is not valid: {error}",
                    shown_key(registry),
                    self.name
                ),
                "log in to the registry once more, or take the entry out",
            )
        })?;
        // Neither a user without a password nor a password without a user can authenticate.
        let complete = credential.filter(|credential| credential.is_complete());
        if complete.is_none() && entry.has_identity_token() {
            return Err(identity_token(registry, &self.name));
        }
        Ok(complete.cloned())
    }
}

/// The error for an identity token, which a kubelet can't use.
pub(crate) fn identity_token(registry: &str, source: &str) -> Failure {
    Failure::new(
        format!(
            "what {source} has for `{}` is an identity token, which a kubelet can't use",
            shown_key(registry)
        ),
        "make a robot account, service principal or access token for the nodes, and add its user and password",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        "auths": {
            "https://index.docker.io/v1/": {"auth": "dTpw"},
            "quay.io": {"auth": "dTpx"},
            "https://ghcr.io": {},
            "registry.example.com/team": {"username": "u", "password": "p"},
            "bad.example.com": {"auth": "cGFudHM="},
            "acr.example.com": {"auth": "MDo=", "identitytoken": "t"}
        },
        "credHelpers": {"aws.example.com": "ecr-login", "quay.io": "pass"}
    }"#;

    fn shown(places: &Result<Vec<PasswordLocation>>) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match places {
            Ok(places) => places
                .iter()
                .map(|place| match place {
                    PasswordLocation::Here(c) => format!(
                        "{}:{}",
                        text(c.username.expose()),
                        text(c.password.expose())
                    ),
                    PasswordLocation::Helper { helper, server } => format!("{helper} {server}"),
                })
                .collect::<Vec<_>>()
                .join(", "),
            Err(failure) => failure.message.clone(),
        }
    }

    #[test]
    fn a_registrys_password_is_where_docker_would_look_for_it() {
        let store = FILE.replacen('{', r#"{"credsStore": "desktop", "#, 1);
        for (file, registry, expected) in [
            (FILE, "docker.io", "u:p"),
            (FILE, "quay.io", "pass quay.io"),
            (FILE, "aws.example.com", "ecr-login aws.example.com"),
            (FILE, "ghcr.io", ""),
            (FILE, "other.example.com", ""),
            (FILE, "registry.example.com/team", "u:p"),
            (FILE, "registry.example.com", ""),
            (
                FILE,
                "bad.example.com",
                "the entry of `bad.example.com` in `f` is not valid: `auth` has no colon between user and password once decoded",
            ),
            (
                FILE,
                "acr.example.com",
                "what `f` has for `acr.example.com` is an identity token, which a kubelet can't use",
            ),
            (
                &store,
                "docker.io",
                "desktop https://index.docker.io/v1/, u:p",
            ),
            (&store, "ghcr.io", "desktop https://ghcr.io"),
            (&store, "other.example.com", "desktop other.example.com"),
            (&store, "quay.io", "pass quay.io"),
        ] {
            let file = AuthFile::new("`f`", file.as_bytes()).expect("a file");
            assert_eq!(shown(&file.places(registry)), expected, "{registry}");
        }
        let auths = r#""auths":{"quay.io":{"auth":"dTpx"},"ghcr.io":{"auth":"OnA="}}"#;
        for helpers in [
            r#""credHelpers":null,"credsStore":null"#,
            r#""credHelpers":{"quay.io":null},"credsStore":"""#,
            r#""credHelpers":{"quay.io":""}"#,
            r#""credHelpers":{"quay.io":"","ghcr.io":null},"credsStore":"desktop""#,
            r#""credsStore":"desktop","CredsStore":"""#,
        ] {
            let file = format!("{{{helpers},{auths}}}");
            let file = AuthFile::new("`f`", file.as_bytes()).expect("a file");
            assert_eq!(shown(&file.places("quay.io")), "u:q", "{helpers}");
            assert_eq!(
                shown(&file.places("ghcr.io")),
                "",
                "a password without a user"
            );
        }
        for folded in [
            r#"{"CREDSSTORE": "desktop"}"#,
            r#"{"cred\u017fStore": "desktop", "credsStore": null, "\ud800": 1}"#,
            r#"{"CREDHELPERS": {"q.io": "x"}, "credHelpers": {"r.io": "desktop"}}"#,
        ] {
            let folded = AuthFile::new("`f`", folded.as_bytes()).expect("a file");
            assert_eq!(shown(&folded.places("r.io")), "desktop r.io");
        }
        let empty = AuthFile::new("`f`", br#"{"credsStore": "desktop"}"#).expect("a file");
        let hub = shown(&empty.places("docker.io"));
        assert_eq!(hub, "desktop https://index.docker.io/v1/");
    }

    #[test]
    fn a_program_runs_for_the_users_own_file_only() {
        let store = FILE.replacen('{', r#"{"credsStore": "desktop", "#, 1);
        for (file, registry, expected) in [
            (FILE, "docker.io", "u:p"),
            (
                FILE,
                "aws.example.com",
                "Secret `a/b` leaves the password of `aws.example.com` to the program `docker-credential-ecr-login`, which is not run for it",
            ),
            (&store, "docker.io", "u:p"),
            (
                &store,
                "ghcr.io",
                "Secret `a/b` leaves the password of `ghcr.io` to the program `docker-credential-desktop`, which is not run for it",
            ),
        ] {
            let file = AuthFile::of_others("Secret `a/b`", file.as_bytes()).expect("a file");
            assert_eq!(shown(&file.places(registry)), expected, "{registry}");
        }
    }

    #[test]
    fn every_registry_of_a_file_has_one_name() {
        let file = AuthFile::new("`f`", FILE.as_bytes()).expect("a file");
        let registries = file.registries().into_iter().collect::<Vec<_>>();
        assert_eq!(
            registries,
            [
                "acr.example.com",
                "aws.example.com",
                "bad.example.com",
                "docker.io",
                "ghcr.io",
                "quay.io",
                "registry.example.com/team"
            ]
        );
    }

    #[test]
    fn what_is_no_such_file_is_refused_without_a_quote() {
        for (text, expected) in [
            (
                "hunter2",
                "`f` is no registry credentials file: not JSON (line 1, column 1)",
            ),
            (
                "\u{feff}hunter2",
                "`f` is no registry credentials file: it contains a byte order mark (U+FEFF), so nodes reject it",
            ),
            (
                r#"{"kind": "Secret", "data": {"x": "hunter2"}}"#,
                "`f` is no registry credentials file: it is a Kubernetes manifest, not the credentials file in it",
            ),
            (
                r#"{"auths": "hunter2"}"#,
                "`f` is no registry credentials file: `auths` is not an object",
            ),
            (
                r#"{"credHelpers": {"a": {"hunter2": 1}}}"#,
                "`f` names its credential helpers in a way that can't be read",
            ),
        ] {
            let failure = AuthFile::new("`f`", text.as_bytes()).expect_err(text);
            assert_eq!(failure.message, expected);
        }
    }
}
