//! Sends one request, through a proxy and TLS if necessary. Every stage has its own error; one deadline covers all of them.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::select_ok;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION,
    PROXY_AUTHORIZATION, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::{Peer, RegistryError, Why};
use crate::url::{bad_url, host, host_and_port, parse, path, port, resolve, shown};

/// Larger than any token. A server that sends more is not a registry.
const MAX_BODY: usize = 1 << 20;
const MAX_REDIRECTS: u32 = 5;
/// The media types of manifests that container runtimes accept, and any other.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, */*";
/// Delay without a connection before the next address of the host is tried in parallel.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Media type and bytes that a request sends.
pub(crate) type RequestBody<'a> = (&'a str, Bytes);

pub(crate) struct Answer {
    /// URL of the response, after all redirects.
    pub url: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// How a program connects to registries.
pub struct Connection {
    /// Creates the TLS configuration, once, before the first TLS connection. The error says why there is none.
    pub tls: Box<dyn Fn() -> Result<ClientConfig, String> + Send + Sync>,
    /// Allow plain HTTP if the server doesn't speak TLS, and tokens without encryption.
    pub insecure: bool,
    /// Timeout of each request, including its connection.
    pub time: Duration,
    /// `User-Agent` of the requests.
    pub user_agent: &'static str,
    /// Which addresses are permitted for a registry or its token server. Addresses of proxies are not restricted.
    pub allows: fn(IpAddr) -> bool,
}

/// An HTTP client. Reads nothing from the disk before the first TLS connection.
pub(crate) struct Http {
    connection: Connection,
    tls: OnceLock<TlsConnector>,
    proxies: Matcher,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}
type Line = Box<dyn Stream>;

/// The time limit of one request.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    time: Duration,
}

impl Deadline {
    async fn hold<T>(
        self,
        peer: &Peer,
        late: fn(Duration) -> Why,
        work: impl Future<Output = Result<T, Why>>,
    ) -> Result<T, RegistryError> {
        match timeout_at(self.at, work).await {
            Ok(done) => done,
            Err(_) => Err(late(self.time)),
        }
        .map_err(|why| RegistryError::Way {
            to: peer.clone(),
            why,
        })
    }
}

impl Http {
    /// Uses the proxies of the environment, by curl's rules.
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            tls: OnceLock::new(),
            proxies: Matcher::from_env(),
        }
    }

    /// Returns the response with any status. Follows redirects, but sends `authorization` only to the first server.
    pub(crate) async fn get(
        &self,
        url: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        self.ask(Method::GET, url, authorization).await
    }

    /// Like [`Self::get`], without the body. Docker Hub does not count these requests towards its rate limit for pulls.
    pub(crate) async fn head(
        &self,
        url: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        self.ask(Method::HEAD, url, authorization).await
    }

    /// Sends to this server only: does not follow redirects.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        authorization: Option<&HeaderValue>,
        content: Option<RequestBody<'_>>,
    ) -> Result<Answer, RegistryError> {
        self.ask_once(&method, &parse(url)?, authorization, content)
            .await
    }

    async fn ask(
        &self,
        method: Method,
        url: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        let first = parse(url)?;
        let mut here = first.clone();
        for _ in 0..=MAX_REDIRECTS {
            let same = here.scheme() == first.scheme() && here.authority() == first.authority();
            let answer = self
                .ask_once(&method, &here, authorization.filter(|_| same), None)
                .await?;
            let location = answer.headers.get(LOCATION).and_then(|l| l.to_str().ok());
            match location.filter(|_| answer.status.is_redirection()) {
                Some(location) => here = resolve(&here, location)?,
                None => return Ok(answer),
            }
            if first.scheme_str() == Some("https") && here.scheme_str() != Some("https") {
                return Err(RegistryError::Unencrypted {
                    url: here.to_string(),
                });
            }
        }
        Err(RegistryError::Redirects {
            url: url.to_owned(),
        })
    }

    async fn ask_once(
        &self,
        method: &Method,
        url: &Uri,
        authorization: Option<&HeaderValue>,
        content: Option<RequestBody<'_>>,
    ) -> Result<Answer, RegistryError> {
        let deadline = Deadline {
            at: Instant::now() + self.connection.time,
            time: self.connection.time,
        };
        let peer = Peer::Host {
            host: host(url)?,
            port: port(url),
        };
        let proxy = self.proxies.intercept(url);
        let secure = url.scheme_str() == Some("https");
        let line = match &proxy {
            None => connect(&peer, self.connection.allows, deadline).await?,
            Some(proxy) => self.by_proxy(proxy, url, secure, deadline).await?,
        };
        let line = if secure {
            self.encrypt(line, &peer, deadline).await?
        } else {
            line
        };
        let mut request = Request::builder()
            .method(method)
            .uri(match (&proxy, secure) {
                // A proxy that forwards plain HTTP needs the absolute URL.
                (Some(_), false) => url.clone(),
                _ => path(url)?,
            })
            .header(HOST, host_and_port(url))
            .header(USER_AGENT, self.connection.user_agent)
            .header(ACCEPT, ACCEPTED)
            .header(CONNECTION, "close");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let (Some(auth), false) = (proxy.as_ref().and_then(Intercept::basic_auth), secure) {
            request = request.header(PROXY_AUTHORIZATION, auth);
        }
        if let Some((media_type, _)) = &content {
            request = request.header(CONTENT_TYPE, *media_type);
        }
        let body = Full::new(content.map(|(_, bytes)| bytes).unwrap_or_default());
        let request = request.body(body).map_err(|_| bad_url(url))?;
        let (url, work) = (url.to_string(), async {
            let answer = send(line, request).await?;
            let (head, body) = answer.into_parts();
            #[expect(clippy::disallowed_methods, reason = "it is limited")]
            let body = Limited::new(body, MAX_BODY).collect().await;
            Ok((head, body.map_err(|error| Why::Http(error.to_string()))?))
        });
        let (head, body) = deadline.hold(&peer, Why::Silent, work).await?;
        Ok(Answer {
            url,
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }

    /// Connects to the proxy; if `secure`, through it to the host of `url`.
    async fn by_proxy(
        &self,
        proxy: &Intercept,
        url: &Uri,
        secure: bool,
        deadline: Deadline,
    ) -> Result<Line, RegistryError> {
        let name = shown(proxy.uri());
        let peer = Peer::Proxy {
            url: name.clone(),
            host: host(proxy.uri())?,
            port: port(proxy.uri()),
        };
        let line = match proxy.uri().scheme_str() {
            Some("http") => connect(&peer, any_address, deadline).await?,
            Some("https") => {
                let line = connect(&peer, any_address, deadline).await?;
                self.encrypt(line, &peer, deadline).await?
            }
            _ => return Err(RegistryError::ProxyKind { proxy: name }),
        };
        if !secure {
            return Ok(line);
        }
        let target = format!("{}:{}", url.host().unwrap_or_default(), port(url));
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(&target)
            .header(HOST, &target);
        if let Some(auth) = proxy.basic_auth() {
            request = request.header(PROXY_AUTHORIZATION, auth);
        }
        let request = request.body(Full::default()).map_err(|_| bad_url(url))?;
        let answer = deadline
            .hold(&peer, Why::Silent, send(line, request))
            .await?;
        if !answer.status().is_success() {
            return Err(RegistryError::ProxyAnswer {
                proxy: name,
                status: answer.status().as_u16(),
            });
        }
        let upgraded = async {
            let upgraded = hyper::upgrade::on(answer).await;
            upgraded.map_err(|error| Why::Http(error.to_string()))
        };
        let upgraded = deadline.hold(&peer, Why::Silent, upgraded).await?;
        Ok(Box::new(TokioIo::new(upgraded)))
    }

    async fn encrypt(
        &self,
        line: Line,
        peer: &Peer,
        deadline: Deadline,
    ) -> Result<Line, RegistryError> {
        let connector = self.tls()?;
        let (host, _) = peer.address();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| RegistryError::BadUrl {
            url: format!("https://{host}"),
        })?;
        let work = async {
            let stream = connector.connect(name, line).await;
            stream.map_err(|error| Why::of_tls(&error))
        };
        let stream = deadline.hold(peer, Why::Silent, work).await?;
        Ok(Box::new(stream))
    }

    fn tls(&self) -> Result<TlsConnector, RegistryError> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let config = (self.connection.tls)().map_err(|why| RegistryError::NoRoots { why })?;
        let tls = TlsConnector::from(Arc::new(config));
        Ok(self.tls.get_or_init(|| tls).clone())
    }
}

fn any_address(_: IpAddr) -> bool {
    true
}

/// Connects to the first address of the host that accepts.
async fn connect(
    peer: &Peer,
    allows: fn(IpAddr) -> bool,
    deadline: Deadline,
) -> Result<Line, RegistryError> {
    let (host, port) = peer.address();
    let addresses = async {
        let found = lookup_host((host, port)).await;
        let mut found: Vec<_> = found
            .map_err(|error| Why::Name(error.to_string()))?
            .collect();
        if found.is_empty() {
            return Err(Why::Name("it has no address".to_owned()));
        }
        found.retain(|address| allows(address.ip()));
        if found.is_empty() {
            return Err(Why::NotAllowed);
        }
        Ok(found)
    };
    let addresses = deadline.hold(peer, Why::NoConnection, addresses).await?;
    let attempts = addresses.into_iter().zip(0..).map(|(address, turn)| {
        Box::pin(async move {
            sleep(NEXT_ADDRESS * turn).await;
            TcpStream::connect(address).await
        })
    });
    let stream = async {
        let stream: Result<_, io::Error> = select_ok(attempts).await;
        stream.map_err(|error| Why::of_connect(&error))
    };
    let (stream, _) = deadline.hold(peer, Why::NoConnection, stream).await?;
    Ok(Box::new(stream))
}

async fn send(line: Line, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Why> {
    let failed = |error: hyper::Error| Why::Http(error.to_string());
    let (mut sender, connection): (SendRequest<_>, _) =
        handshake(TokioIo::new(line)).await.map_err(failed)?;
    // The task ends with the connection. The request reports the connection's error, too.
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(failed)
}
