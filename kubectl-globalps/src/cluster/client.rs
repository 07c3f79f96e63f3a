//! Connects to the cluster that the flags select, with the kubeconfig as kubectl reads it, and limits the time of each request.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use globalps_core::decode::{Item, Unreadable};
use globalps_core::kubeconfig::{Unsupported, reject_unsupported};
use globalps_core::names;
use globalps_runtime::list_events::Limits;
use globalps_runtime::request::{RESPONSE, is_timeout};
use hyper::Uri;
use hyper::http::uri::Scheme;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{ApiResource, DeleteParams, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cli::{Connection, Span};
use crate::cluster::clock::{ServerClock, timed};
use crate::cluster::kubeconfig;
use crate::cluster::overrides;
use crate::cluster::proxy::Proxies;
use crate::cluster::renewal;
use crate::error::{Failure, Result, without_user};
use crate::platform;
use crate::terminal::printer::Printer;

/// Seconds after which the API server ends a watch.
const WATCH_SECONDS: u32 = 20;

pub(crate) struct Cluster<'a> {
    pub client: Client,
    /// Namespace of the pull secrets; for `fleet`, of its objects.
    pub namespace: String,
    /// Namespace of `-n` or the context, for pods without one.
    pub own_namespace: String,
    server: String,
    /// Context of the kubeconfig; `None` if no kubeconfig is used.
    context: Option<String>,
    clock: Arc<ServerClock>,
    /// `None`: no limit.
    request_timeout: Option<Span>,
    /// Time limit of all requests together, and when it ends.
    limit: Option<(Span, Instant)>,
    printer: &'a Printer,
}

impl<'a> Cluster<'a> {
    pub(crate) fn connect(flags: &Connection, printer: &'a Printer) -> Result<Self> {
        Self::find(flags, printer)?.ok_or_else(|| kubeconfig::none_configured(flags))
    }

    /// Like [`Self::connect`]; `None` if no cluster is configured.
    pub(crate) fn find(flags: &Connection, printer: &'a Printer) -> Result<Option<Self>> {
        let Some((mut config, context)) = config(flags)? else {
            return Ok(None);
        };
        if let Some(warning) = warning(flags) {
            printer.warning(warning);
        }
        let server = prepare(&mut config, printer)?;
        let own = flags.namespace.as_ref();
        let own_namespace = own.unwrap_or(&config.default_namespace).clone();
        let (client, clock) = connected(config)
            .map_err(|error| Failure::from_kube("connect to the cluster", &error))?;
        Ok(Some(Self {
            client,
            clock,
            namespace: if flags.is_of_fleet {
                own_namespace.clone()
            } else {
                flags.pull_secret_namespace.clone()
            },
            own_namespace,
            server,
            context,
            request_timeout: flags.request_timeout.0,
            limit: None,
            printer,
        }))
    }

    /// Fails all requests that don't finish within this time from now.
    pub(crate) fn within(self, limit: Span) -> Self {
        let limit = Some((limit, Instant::now() + limit.0));
        Self { limit, ..self }
    }

    /// The cluster for messages: context and address, or only the address.
    pub(crate) fn title(&self) -> String {
        match &self.context {
            Some(context) => format!("`{context}` ({})", self.server),
            None => self.server.clone(),
        }
    }

    /// Connects with another kubeconfig. `Err` completes a sentence whose subject is the kubeconfig, and quotes none of
    /// its content.
    pub(crate) fn of_others(&self, kubeconfig: Kubeconfig) -> Result<Self, &'static str> {
        reject_unsupported(&kubeconfig).map_err(|why| match why {
            Unsupported::NoContext => "has no context that `current-context` names",
            Unsupported::Program => "runs a program to authenticate (`exec` or `auth-provider`), which is not supported here",
            Unsupported::File(_) => "names a file, which is not supported here",
        })?;
        let config = kubeconfig::config(kubeconfig, &KubeConfigOptions::default(), None);
        let mut config = config.map_err(|_| "has a cluster or a login that can't be used")?;
        let server = prepare(&mut config, self.printer)
            .map_err(|_| "is reached through a proxy, and the environment's can't be used")?;
        let (client, clock) = connected(config)
            .map_err(|_| "has a certificate, key, token or proxy that can't be used")?;
        Ok(Self {
            client,
            clock,
            namespace: names::NAMESPACE.to_owned(),
            own_namespace: names::NAMESPACE.to_owned(),
            server,
            context: None,
            ..*self
        })
    }

    /// The current time by the API server's clock, if known.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The API of a kind in the pull secrets' namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Untyped, because a typed object would write all of today's defaults and drop the fields of a newer release.
    pub(crate) fn untyped<K>(&self) -> Api<DynamicObject>
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Sends one request with the request timeout. `doing` completes "could not ...".
    pub(crate) fn call<T>(
        &self,
        doing: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> impl Future<Output = Result<T>> {
        self.call_within(None, doing, request)
    }

    /// Like [`Self::call`], for an object that other clients write: if it can't be decoded, the error names the field.
    pub(crate) async fn read<K, const OWNERS: bool>(
        &self,
        doing: &str,
        request: impl Future<Output = kube::Result<Option<Item<K, OWNERS>>>>,
    ) -> Result<Option<K>> {
        let found = self.call(doing, request).await?;
        let found = found.map(Item::into_result).transpose();
        found.map_err(|why| unreadable(doing, &why))
    }

    /// Like [`Self::call`], with an additional time limit.
    pub(crate) async fn call_within<T>(
        &self,
        limit: Option<Span>,
        doing: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        let left = self.limit.map(|(_, end)| Span(end - start.min(end)));
        let limits = [limit, self.request_timeout, left].into_iter().flatten();
        let mut request = Box::pin(request);
        let answer = tokio::select! {
            answer = &mut request => Ok(answer),
            limit = expired(limits.min()) => Err(limit),
        };
        let millis = start.elapsed().as_millis();
        match answer {
            Ok(Ok(value)) => {
                self.printer.detail(format_args!("{doing}: {millis} ms"));
                Ok(value)
            }
            Ok(Err(error)) => {
                let failure = self.failure(doing, &error);
                self.printer
                    .detail(format_args!("{}: {millis} ms", failure.message));
                Err(failure)
            }
            Err(limit) if left == Some(limit) => Err(Failure::unreachable(
                format!("could not {doing}: the time limit of the command was reached"),
                "is the cluster reachable? `-v` shows how long each request takes",
            )),
            Err(limit) => Err(self.no_answer(doing, limit)),
        }
    }

    fn no_answer(&self, doing: &str, limit: Span) -> Failure {
        Failure::unreachable(
            format!(
                "could not {doing}: no answer from the API server `{}` within {limit}",
                self.server,
            ),
            "is the cluster reachable? More time: `--request-timeout`",
        )
    }

    /// The error of a request, including requests with [`Self::watch_limits`].
    pub(crate) fn failure(&self, doing: &str, error: &kube::Error) -> Failure {
        if is_timeout(error) {
            return self.no_answer(doing, Span(self.watch_limits().response));
        }
        Failure::from_kube(doing, error).of_server(&self.server)
    }

    /// Time limits of a watch's requests.
    pub(crate) fn watch_limits(&self) -> Limits {
        let response = self.request_timeout.map_or(RESPONSE, |limit| limit.0);
        Limits {
            watch_seconds: WATCH_SECONDS,
            response,
        }
    }

    /// `false` if the object or its kind doesn't exist.
    pub(crate) async fn delete<K: Clone + DeserializeOwned + Debug>(
        &self,
        title: &str,
        api: &Api<K>,
        name: &str,
        params: &DeleteParams,
    ) -> Result<bool> {
        let doing = format!("delete {title}");
        match self.call(&doing, api.delete(name, params)).await {
            Err(failure) if failure.is(404) => Ok(false),
            deleted => deleted.map(|_| true),
        }
    }

    pub(crate) fn printer(&self) -> &'a Printer {
        self.printer
    }
}

/// `doing` completes "could not ...".
pub(crate) fn unreadable(doing: &str, why: &Unreadable) -> Failure {
    Failure::new(
        format!("could not {doing}: {why}"),
        "correct the field with `kubectl edit`",
    )
}

fn connected(mut config: Config) -> kube::Result<(Client, Arc<ServerClock>)> {
    // Plain HTTP verifies no certificates, and reading the system's certificates takes longer than a request.
    if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
        config.root_cert.get_or_insert_default();
    }
    let namespace = config.default_namespace.clone();
    let clock = Arc::new(ServerClock::default());
    let client = timed(renewal::client(config)?, &namespace, &clock);
    Ok((client, clock))
}

/// Without a limit, never returns.
async fn expired(limit: Option<Span>) -> Span {
    match limit {
        Some(limit) => {
            tokio::time::sleep(limit.0).await;
            limit
        }
        None => std::future::pending().await,
    }
}

fn warning(flags: &Connection) -> Option<&'static str> {
    flags.token.as_ref().map(|_| {
        "a token on the command line can be seen by others on this machine; one in a kubeconfig is not"
    })
}

/// The configuration and the kubeconfig's context; `None` if no cluster is configured.
fn config(flags: &Connection) -> Result<Option<(Config, Option<String>)>> {
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let server = flags.server.as_deref().map(address).transpose()?;
    let mut context = None;
    let mut config = match kubeconfig::read(flags) {
        Ok(Some(kubeconfig)) if kubeconfig.clusters.is_empty() && server.is_none() => {
            return Ok(None);
        }
        Ok(Some(kubeconfig)) => {
            context = flags.context.clone().or(kubeconfig.current_context.clone());
            kubeconfig::config(kubeconfig, &options, server.as_ref())?
        }
        Ok(None) => match &server {
            Some(server) => Config::new(server.clone()),
            // In a pod, like kubectl.
            None => match Config::incluster() {
                Ok(config) => config,
                Err(_) => return Ok(None),
            },
        },
        Err(error) => return Err(Failure::from_kubeconfig(&error)),
    };
    overrides::apply(&mut config, flags)?;
    Ok(Some((config, context)))
}

/// Sets the proxy that the environment defines for this server. Returns the server's address for messages.
fn prepare(config: &mut Config, printer: &Printer) -> Result<String> {
    if let Some(exec) = &mut config.auth_info.exec {
        let program = exec.command.as_deref().map(platform::program);
        exec.command = program.and_then(|program| program.into_string().ok());
    }
    if config.proxy_url.is_none() {
        config.proxy_url = Proxies::from_env().of(&config.cluster_url)?;
    }
    let server = without_user(&config.cluster_url.to_string());
    let server = server.trim_end_matches('/').to_owned();
    printer.detail(format_args!("API server {server}"));
    Ok(server)
}

fn address(server: &str) -> Result<Uri> {
    let address = if server.contains("://") {
        server.to_owned()
    } else {
        format!("https://{server}")
    };
    address.parse().map_err(|_| {
        // The address as given, without a password.
        let shown = without_user(&address);
        let scheme = if server.contains("://") {
            ""
        } else {
            "https://"
        };
        let shown = shown.strip_prefix(scheme).unwrap_or(&shown);
        Failure::new(
            format!("`{shown}` is not the address of an API server"),
            "the form is `https://HOST:PORT`",
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;
    use globalps_fake_api::{FakeApi, failure};
    use serde_json::Value;
    use std::time::Duration;

    /// A cluster whose API server answers reads of these paths, accepts every write, and answers 404 otherwise.
    pub(crate) fn mocked<'a>(answers: &[(&str, u16, Value)], printer: &'a Printer) -> Cluster<'a> {
        let answers: Vec<(String, u16, Value)> = answers
            .iter()
            .map(|(path, code, body)| ((*path).to_owned(), *code, body.clone()))
            .collect();
        let api = FakeApi::default().with_rule(move |request, _| {
            if !request.is_read() {
                return Some((200, request.body.clone()));
            }
            let found = answers.iter().find(|(known, ..)| *known == request.path);
            Some(match found {
                Some((_, 200, body)) => (200, body.clone()),
                Some((_, code, _)) if *code != 404 => failure(*code, "", "no"),
                _ => failure(404, "NotFound", "no"),
            })
        });
        Cluster {
            client: api.client(),
            clock: Arc::default(),
            namespace: "clusters".to_owned(),
            own_namespace: "default".to_owned(),
            server: "https://mocked".to_owned(),
            context: None,
            request_timeout: Some(Span(Duration::from_secs(5))),
            limit: None,
            printer,
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_foreign_kubeconfig_runs_and_reads_nothing_and_is_unquoted() {
        let printer = Printer::silent();
        let cluster = mocked(&[], &printer);
        for (user, expected) in [
            ("token: t", None),
            ("exec: {command: s3cret}", Some("runs a program")),
            ("tokenFile: /s3cret", Some("names a file")),
            (
                "client-certificate-data: s3cret, client-key-data: s3cret",
                Some("can't be used"),
            ),
        ] {
            let text = format!(
                "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
                 clusters: [{{name: c, cluster: {{server: 'https://m1:6443'}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
            );
            let kubeconfig = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
            let found = cluster.of_others(kubeconfig);
            let Some(expected) = expected else {
                let member = found
                    .map_err(str::to_owned)
                    .map(|it| (it.server, it.namespace));
                let wanted = ("https://m1:6443".to_owned(), "kube-system".to_owned());
                assert_eq!(member, Ok(wanted));
                continue;
            };
            let reason = found.err().unwrap_or_default();
            assert!(reason.contains(expected), "{user}: {reason}");
            assert!(!reason.contains("s3cret"), "{user}: {reason}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn messages_about_the_connection_contain_no_password() {
        let printer = Printer::silent();
        let line = "kubectl-globalps version --kubeconfig /dev/null";
        let parse = |more: &str| {
            let words = line.split_whitespace().chain(more.split_whitespace());
            Cli::try_parse_from(words).expect("flags").connection
        };
        let flags = parse("--server https://u:hunter2@h:6443 --token t");
        assert!(warning(&flags).is_some_and(|text| text.contains("can be seen by others")));
        let mut config = Config::new(address("https://u:hunter2@h:6443").expect("a URL"));
        let server = prepare(&mut config, &printer);
        assert_eq!(server.ok().as_deref(), Some("https://h:6443"));
        let flags = parse("");
        assert_eq!(warning(&flags), None);
        let failure = address("u:hunter2@h h").expect_err("no URL");
        assert!(!failure.message.contains("hunter2"), "{failure:?}");
    }
}
