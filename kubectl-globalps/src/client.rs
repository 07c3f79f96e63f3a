//! From flags to a cluster: the kubeconfig as kubectl reads it, and a deadline on every call.

use std::future::Future;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use k8s_openapi::NamespaceResourceScope;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config, Resource};

use crate::cli::{Connection, Span};
use crate::error::Failure;
use crate::printer::Printer;

pub(crate) struct Cluster<'a> {
    pub client: Client,
    /// Where the pull secrets are.
    pub namespace: String,
    server: String,
    request_timeout: Duration,
    printer: &'a Printer,
}

impl<'a> Cluster<'a> {
    pub(crate) async fn connect(flags: &Connection, printer: &'a Printer) -> Result<Self, Failure> {
        let config = config(flags).await?;
        let server = config.cluster_url.to_string();
        let server = server.trim_end_matches('/').to_owned();
        printer.detail(format_args!("API server {server}"));
        let client = Client::try_from(config)
            .map_err(|error| Failure::from_kube("connect to the cluster", &error))?;
        Ok(Self {
            client,
            namespace: flags.namespace.clone(),
            server,
            request_timeout: flags.request_timeout.0,
            printer,
        })
    }

    /// The API of a kind in the pull secrets' namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// One request, under the request timeout. `doing` completes "could not ...".
    pub(crate) async fn call<T>(
        &self,
        doing: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failure> {
        let start = Instant::now();
        let answer = tokio::time::timeout(self.request_timeout, request).await;
        let millis = start.elapsed().as_millis();
        match answer {
            Ok(Ok(value)) => {
                self.printer.detail(format_args!("{doing}: {millis} ms"));
                Ok(value)
            }
            Ok(Err(error)) => {
                let failure = Failure::from_kube(doing, &error).of_server(&self.server);
                self.printer
                    .detail(format_args!("{}: {millis} ms", failure.message));
                Err(failure)
            }
            Err(_) => Err(Failure::new(
                format!(
                    "could not {doing}: no answer from the API server `{}` within {}",
                    self.server,
                    Span(self.request_timeout)
                ),
                "is the cluster reachable? More time: `--request-timeout`",
            )),
        }
    }

    pub(crate) fn printer(&self) -> &'a Printer {
        self.printer
    }
}

async fn config(flags: &Connection) -> Result<Config, Failure> {
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let mut config = match kubeconfig(flags) {
        Ok(Some(kubeconfig)) => from_kubeconfig(kubeconfig, &options, flags).await?,
        Ok(None) => match &flags.server {
            Some(server) => Config::new(address(server)?),
            // As kubectl in a pod.
            None => Config::incluster().map_err(|_| {
                Failure::new(
                    "no cluster is configured: there is no kubeconfig",
                    "name one with `--kubeconfig` or `$KUBECONFIG`",
                )
            })?,
        },
        Err(error) => return Err(Failure::from_kubeconfig(&error)),
    };
    override_with(&mut config, flags)?;
    if !is_proxied(&config.cluster_url, &Matcher::from_env()) {
        config.proxy_url = config.proxy_url.filter(|proxy| !is_of_environment(proxy));
    }
    Ok(config)
}

/// Whether the environment names a proxy for this server. kube asks `NO_PROXY` for the proxy, not for the server; and
/// kubectl, as a program in Go, never uses one for the machine itself.
fn is_proxied(server: &Uri, proxies: &Matcher) -> bool {
    let host = server.host().unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    !is_here && proxies.intercept(server).is_some()
}

/// Whether the proxy is one that kube found in the environment, and not the kubeconfig's own.
fn is_of_environment(proxy: &Uri) -> bool {
    ["HTTPS_PROXY", "https_proxy"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .any(|value| value.parse().is_ok_and(|value: Uri| value == *proxy))
}

async fn from_kubeconfig(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
    flags: &Connection,
) -> Result<Config, Failure> {
    let named = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    if kubeconfig.current_context.is_none()
        && !named
        && let Some(server) = &flags.server
    {
        return Ok(Config::new(address(server)?));
    }
    Config::from_custom_kubeconfig(kubeconfig, options)
        .await
        .map_err(|error| Failure::from_kubeconfig(&error))
}

/// The files of `--kubeconfig` or `$KUBECONFIG`, merged; files of that list that do not exist are skipped, as kubectl does.
pub(crate) fn kubeconfig(flags: &Connection) -> Result<Option<Kubeconfig>, KubeconfigError> {
    if let Some(path) = &flags.kubeconfig {
        return Kubeconfig::read_from(path).map(Some);
    }
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
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let next = match Kubeconfig::read_from(&path) {
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

fn override_with(config: &mut Config, flags: &Connection) -> Result<(), Failure> {
    if flags.insecure_skip_tls_verify && flags.certificate_authority.is_some() {
        return Err(Failure::new(
            "`--certificate-authority` and `--insecure-skip-tls-verify` contradict each other",
            "leave out one of them",
        ));
    }
    for file in [
        &flags.certificate_authority,
        &flags.client_certificate,
        &flags.client_key,
    ]
    .into_iter()
    .flatten()
    {
        std::fs::File::open(file).map_err(|error| {
            Failure::new(
                format!("`{}` could not be read: {error}", file.display()),
                "name a file that you may read",
            )
        })?;
    }
    if let Some(server) = &flags.server {
        config.cluster_url = address(server)?;
    }
    if let Some(file) = &flags.certificate_authority {
        config.root_cert_file = Some(file.clone());
    }
    if flags.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
        config.root_cert = None;
        config.root_cert_file = None;
    }
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    let auth = &mut config.auth_info;
    if let Some(token) = &flags.token {
        auth.token = Some(token.clone().into());
        auth.token_file = None;
        auth.exec = None;
        auth.auth_provider = None;
        auth.username = None;
        auth.password = None;
        // An API server takes a certificate before it looks at a token.
        auth.client_certificate = None;
        auth.client_certificate_data = None;
        auth.client_key = None;
        auth.client_key_data = None;
    }
    let path = |file: &PathBuf| Some(file.display().to_string());
    if let Some(file) = &flags.client_certificate {
        auth.client_certificate = path(file);
        auth.client_certificate_data = None;
    }
    if let Some(file) = &flags.client_key {
        auth.client_key = path(file);
        auth.client_key_data = None;
    }
    if let Some(user) = &flags.as_user {
        auth.impersonate = Some(user.clone());
    }
    if !flags.as_group.is_empty() {
        auth.impersonate_groups = Some(flags.as_group.clone());
    }
    if let Some(uid) = &flags.as_uid {
        auth.impersonate_uid = Some(uid.clone());
    }
    if auth.impersonate.is_none()
        && (auth.impersonate_groups.is_some() || auth.impersonate_uid.is_some())
    {
        return Err(Failure::new(
            "`--as-group` and `--as-uid` need a user to impersonate",
            "name one with `--as`",
        ));
    }
    Ok(())
}

fn address(server: &str) -> Result<Uri, Failure> {
    let address = if server.contains("://") {
        server.to_owned()
    } else {
        format!("https://{server}")
    };
    address.parse().map_err(|_| {
        Failure::new(
            format!("`{server}` is not the address of an API server"),
            "the form is `https://HOST:PORT`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_through_a_proxy_as_by_kubectl() {
        for (server, no_proxy, expected) in [
            ("https://api.example.com:6443", "", true),
            ("https://api.example.com:6443", "example.com", false),
            ("https://api.example.com:6443", "proxy.example.org", true),
            ("https://10.0.0.1:6443", "10.0.0.0/8", false),
            ("https://10.0.0.1:6443", "", true),
            ("http://api.example.com", "", false),
            ("https://127.0.0.1:6443", "", false),
            ("https://[::1]:6443", "", false),
            ("https://localhost:6443", "", false),
        ] {
            let proxies = Matcher::builder()
                .https("http://proxy.example.org:3128")
                .no(no_proxy)
                .build();
            let server: Uri = server.parse().expect("a URL");
            assert_eq!(
                is_proxied(&server, &proxies),
                expected,
                "{server} {no_proxy:?}"
            );
        }
    }
}
