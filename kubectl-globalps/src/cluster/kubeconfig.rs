//! Kubeconfigs as kubectl reads them: merges several files, and lets flags override a part of a context.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use hyper::Uri;
use jiff::Timestamp;
use kube::Config;
use kube::config::{
    AuthProviderConfig, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError,
};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::cli::Connection;
use crate::cluster::proxy;
use crate::error::{Failure, Result};

/// Reads and merges the files of `--kubeconfig` or `$KUBECONFIG`. Skips files of that list that don't exist, like kubectl.
pub(crate) fn read(flags: &Connection) -> Result<Option<Kubeconfig>, KubeconfigError> {
    match &flags.kubeconfig {
        Some(path) => file(path).map(Some),
        None => merged(paths()),
    }
}

/// The error if the files from the flags or the environment configure no cluster.
pub(crate) fn none_configured(flags: &Connection) -> Failure {
    none_in(
        &flags
            .kubeconfig
            .clone()
            .map_or_else(paths, |path| vec![path]),
    )
}

fn none_in(paths: &[PathBuf]) -> Failure {
    let state = |path: &PathBuf| {
        let what = if path.exists() {
            "has no cluster"
        } else {
            "does not exist"
        };
        format!("`{}` {what}", path.display())
    };
    let files: Vec<String> = paths.iter().map(state).collect();
    let reason = match files.as_slice() {
        [] => "there is no kubeconfig".to_owned(),
        files => files.join(", "),
    };
    Failure::new(
        format!("no cluster is configured: {reason}"),
        "name a kubeconfig with `--kubeconfig` or `$KUBECONFIG`",
    )
}

/// The paths of `$KUBECONFIG`, or the default.
fn paths() -> Vec<PathBuf> {
    let listed: Vec<PathBuf> = std::env::var_os("KUBECONFIG")
        .map(|list| std::env::split_paths(&list).collect())
        .unwrap_or_default();
    let mut paths: Vec<PathBuf> = listed
        .into_iter()
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if paths.is_empty() {
        paths.extend(std::env::home_dir().map(|home| home.join(".kube").join("config")));
    }
    paths
}

/// Treats an empty `current-context` as missing, so that it does not hide that of a later file.
fn file(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let mut read = Kubeconfig::read_from(path)?;
    read.current_context = read.current_context.filter(|name| !name.is_empty());
    Ok(read)
}

fn merged(paths: impl IntoIterator<Item = PathBuf>) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let next = match file(&path) {
            Err(KubeconfigError::ReadConfig(cause, _)) if cause.kind() == ErrorKind::NotFound => {
                continue;
            }
            other => other?,
        };
        merged = Some(match merged {
            Some(first) => first.merge(next)?,
            None => next,
        });
    }
    Ok(merged)
}

/// The client configuration for a context. kube's own reader also reads the proxy variables, but differently from
/// kubectl. `server` takes precedence; with it, context and cluster are optional.
pub(crate) fn config(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
    server: Option<&Uri>,
) -> Result<Config> {
    let failure = |error| Failure::from_kubeconfig(&error);
    let named = options.context.as_ref();
    let named = named.or(kubeconfig.current_context.as_ref());
    let context = match named {
        Some(name) => {
            let mut contexts = kubeconfig.contexts.iter();
            let found = contexts.find(|it| it.name == *name);
            let found = found.and_then(|it| it.context.clone());
            Some(found.ok_or_else(|| no_context(name, &kubeconfig))?)
        }
        None => None,
    };
    let of_context = context.as_ref().map(|it| &it.cluster);
    let cluster = match (options.cluster.as_ref().or(of_context), server) {
        (Some(name), _) => {
            let mut clusters = kubeconfig.clusters.into_iter();
            let found = clusters.find(|it| it.name == *name);
            let found = found.and_then(|it| it.cluster);
            found.ok_or_else(|| failure(KubeconfigError::LoadClusterOfContext(name.clone())))?
        }
        (None, Some(_)) => Cluster::default(),
        (None, None) => return Err(failure(KubeconfigError::CurrentContextNotSet)),
    };
    let of_context = context.as_ref().and_then(|it| it.user.as_ref());
    let user = options.user.as_ref().or(of_context);
    let mut users = kubeconfig.auth_infos.into_iter();
    // Like kubectl, treats a missing user as anonymous.
    let user = user.and_then(|name| users.find(|it| it.name == *name)?.auth_info);
    let mut user = user.unwrap_or_default();
    if let Some(exec) = user.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some((&cluster).try_into().map_err(failure)?);
    }
    if let Some(provider) = &user.auth_provider {
        usable(provider)?;
    }
    let server = match (server, cluster.server.as_deref()) {
        (Some(server), _) => Ok(server.clone()),
        (None, Some(server)) => server.parse().map_err(KubeconfigError::ParseClusterUrl),
        (None, None) => Err(KubeconfigError::MissingClusterUrl),
    };
    let mut config = Config::new(server.map_err(failure)?);
    let namespace = context.as_ref().and_then(|it| it.namespace.clone());
    if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
        config.default_namespace = namespace;
    }
    config.root_cert = authority(&cluster)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name = cluster.tls_server_name;
    config.auth_info = user;
    if let Some(address) = cluster.proxy_url.filter(|address| !address.is_empty()) {
        config.proxy_url = Some(proxy::named("proxy-url", &address)?);
    }
    Ok(config)
}

fn no_context(name: &str, kubeconfig: &Kubeconfig) -> Failure {
    let contexts = kubeconfig.contexts.iter();
    let names: Vec<&str> = contexts.map(|it| it.name.as_str()).collect();
    let hint = if names.is_empty() {
        "it has no context; choose another file with `--kubeconfig`".to_owned()
    } else {
        format!("it has `{}`", names.join("`, `"))
    };
    Failure::new(format!("the kubeconfig has no context `{name}`"), hint)
}

/// kubectl renews an expired token of `oidc` and writes it into the kubeconfig; it no longer supports any other provider.
fn usable(provider: &AuthProviderConfig) -> Result<()> {
    if provider.name != "oidc" {
        let name = &provider.name;
        return Err(Failure::new(
            format!("the kubeconfig's `auth-provider` `{name}` is not supported"),
            "kubectl does not support it either: log in with an `exec` plugin",
        ));
    }
    let token = provider.config.get("id-token");
    let expiry = token.and_then(|token| expiry(token));
    if expiry.is_some_and(|expiry| expiry <= Timestamp::now().as_second()) {
        return Err(Failure::new(
            "the token of the kubeconfig's `auth-provider` `oidc` has expired",
            "run `kubectl version`, which renews it, and then this command again",
        ));
    }
    Ok(())
}

/// `exp` of a JSON Web Token, in seconds since 1970; `None` if the text isn't such a token, or it has no `exp`.
fn expiry(token: &str) -> Option<i64> {
    let payload = token.split('.').nth(1)?;
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    claims["exp"].as_i64()
}

/// The certificates of the cluster's authority; `None`: the machine's trusted ones apply.
fn authority(cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>> {
    let data = cluster.certificate_authority_data.as_deref();
    let file = cluster.certificate_authority.as_ref();
    let unusable = || {
        Failure::new(
            "the certificate authority of the kubeconfig is no certificate in PEM",
            "check with `kubectl config view`",
        )
    };
    let pem = match (data.filter(|data| !data.is_empty()), file) {
        (Some(data), _) => BASE64_STANDARD.decode(data).map_err(|_| unusable())?,
        (None, Some(file)) => std::fs::read(file).map_err(|cause| {
            let error = LoadDataError::ReadFile(cause, PathBuf::from(file));
            Failure::from_kubeconfig(&KubeconfigError::LoadCertificateAuthority(error))
        })?,
        (None, None) => return Ok(None),
    };
    let certificates: Result<Vec<Vec<u8>>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| certificate.map(|it: CertificateDer| it.to_vec()))
        .collect();
    let certificates = certificates.ok().filter(|all| !all.is_empty());
    certificates.map(Some).ok_or_else(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;
    use std::ffi::OsString;

    const TWO: &str = "
current-context: one
contexts:
- {name: one, context: {cluster: c1, user: u1}}
- {name: two, context: {cluster: c2, user: absent, namespace: team}}
- {name: empty, context: {cluster: c2, namespace: ''}}
clusters:
- {name: c1, cluster: {server: 'https://one:6443', proxy-url: 'http://proxy:3128'}}
- {name: c2, cluster: {server: 'https://two:6443', insecure-skip-tls-verify: true, tls-server-name: two}}
users:
- {name: u1, user: {token: t}}
";

    fn parsed(text: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(text).expect("a kubeconfig")
    }

    #[test]
    fn a_context_or_its_parts_are_found_as_by_kubectl() {
        const OTHER: &str = "https://other";
        let no_context = TWO.replace("current-context: one", "");
        for (text, context, cluster, server, expected) in [
            (TWO, "", "", "", "https://one:6443/ t"),
            (TWO, "two", "", "", "https://two:6443/ -"),
            (TWO, "", "c2", "", "https://two:6443/ t"),
            (&no_context, "", "c2", "", "https://two:6443/ -"),
            (&no_context, "", "", "", "no current context"),
            (TWO, "three", "", "", "no context `three`"),
            (TWO, "", "c3", "", "no such cluster"),
            (TWO, "", "", OTHER, "https://other/ t"),
            (&no_context, "", "", OTHER, "https://other/ -"),
            (&no_context, "user u1", "", OTHER, "https://other/ t"),
            (&no_context, "user u1", "", "", "no current context"),
            (TWO, "three", "", OTHER, "no context `three`"),
            (TWO, "", "c3", OTHER, "no such cluster"),
        ] {
            let set = |name: &str| (!name.is_empty()).then(|| name.to_owned());
            let user = context.strip_prefix("user ");
            let options = KubeConfigOptions {
                context: set(context).filter(|_| user.is_none()),
                cluster: set(cluster),
                user: user.map(str::to_owned),
            };
            let server = set(server).map(|it| it.parse().expect("an address"));
            let found = config(parsed(text), &options, server.as_ref()).map(|config| {
                let has_token = config.auth_info.token.is_some();
                format!(
                    "{} {}",
                    config.cluster_url,
                    if has_token { "t" } else { "-" }
                )
            });
            let found = found.unwrap_or_else(|failure| failure.message);
            assert!(found.contains(expected), "{found}: {expected}");
        }
        let one =
            config(parsed(TWO), &KubeConfigOptions::default(), None).expect("a configuration");
        for (context, expected) in [("one", "default"), ("two", "team"), ("empty", "default")] {
            let options = KubeConfigOptions {
                context: Some(context.to_owned()),
                ..KubeConfigOptions::default()
            };
            let found = config(parsed(TWO), &options, None).expect("a configuration");
            assert_eq!(found.default_namespace, expected, "{context}");
        }
        let proxy = one.proxy_url.map(|it| it.to_string());
        assert_eq!(proxy.as_deref(), Some("http://proxy:3128/"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let options = KubeConfigOptions {
            context: Some("three".to_owned()),
            ..KubeConfigOptions::default()
        };
        let failure = config(parsed(TWO), &options, None).expect_err("refused");
        assert_eq!(failure.message, "the kubeconfig has no context `three`");
        assert_eq!(failure.hint, "it has `one`, `two`, `empty`");
        let failure = none_in(&["/nope".into(), "/dev/null".into()]);
        assert_eq!(
            failure.message,
            "no cluster is configured: `/nope` does not exist, `/dev/null` has no cluster"
        );
        assert!(none_in(&[]).message.ends_with(": there is no kubeconfig"));
    }

    #[test]
    fn an_empty_context_of_the_first_file_hides_no_second_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let (first, second) = (
            directory.path().join("first"),
            directory.path().join("second"),
        );
        std::fs::write(&first, "current-context: ''\n").expect("written");
        std::fs::write(&second, TWO).expect("written");
        let merged = merged([first, directory.path().join("absent"), second]);
        let merged = merged.expect("readable").expect("a kubeconfig");
        assert_eq!(merged.current_context.as_deref(), Some("one"));
    }

    #[test]
    fn an_empty_current_context_of_a_file_that_is_named_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config");
        let text = TWO.replace("current-context: one", "current-context: ''");
        std::fs::write(&path, text).expect("written");
        let words = ["kubectl-globalps", "version", "--kubeconfig"];
        let words = words.map(OsString::from).into_iter().chain([path.into()]);
        let flags = Cli::try_parse_from(words).expect("flags").connection;
        let read = read(&flags).expect("readable").expect("a kubeconfig");
        assert_eq!(read.current_context, None);
    }

    #[test]
    fn a_login_that_can_not_work_is_named_with_what_to_do() {
        let token = |exp: i64| {
            let claims = BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"exp\": {exp}}}"));
            format!("h.{claims}.s")
        };
        let later = Timestamp::now().as_second() + 600;
        for (name, token, expected) in [
            ("oidc", token(later), None),
            ("oidc", "opaque".to_owned(), None),
            ("oidc", token(1), Some("has expired")),
            ("azure", String::new(), Some("is not supported")),
        ] {
            let provider = AuthProviderConfig {
                name: name.to_owned(),
                config: [("id-token".to_owned(), token)].into(),
                other: std::collections::BTreeMap::default(),
            };
            let found = usable(&provider).err().map(|failure| failure.message);
            let is_as_expected = match (&found, expected) {
                (Some(found), Some(part)) => found.contains(part),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_as_expected, "{name}: {found:?}");
        }
    }

    #[test]
    fn an_authority_that_is_no_certificate_is_an_error() {
        let text = TWO.replace(
            "proxy-url: 'http://proxy:3128'",
            "certificate-authority-data: aGk=",
        );
        let failure = config(parsed(&text), &KubeConfigOptions::default(), None).err();
        assert!(failure.is_some_and(|it| it.message.contains("no certificate in PEM")));
    }
}
