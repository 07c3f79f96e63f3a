//! Servers that a test starts, usually on the loopback address: a web server, with or without TLS; a proxy; and one
//! that accepts connections and never responds. Each runs until it is dropped.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Status, headers, body.
pub type Reply<B = String> = (u16, Vec<(&'static str, String)>, B);

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A server's certificate and key, both PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Now,
    Over,
}

impl Authority {
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let params = authority_params("a test's authority");
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for these host names and addresses.
    pub fn issue(&self, names: &[&str], validity: Validity) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        if validity == Validity::Over {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate()?;
        Ok(Identity {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// A self-signed CA certificate, like that of `openssl req -x509`.
pub fn self_signed(names: &[&str]) -> Result<Identity> {
    let key = KeyPair::generate()?;
    let mut params = authority_params("a server");
    for name in names {
        params
            .subject_alt_names
            .extend(CertificateParams::new(vec![(*name).to_owned()])?.subject_alt_names);
    }
    Ok(Identity {
        certificate: params.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
    })
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

/// A server, and the requests that it received.
pub struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

impl Server {
    /// Host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// For a web server, the method and URL of each request; for a proxy, each target.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Starts a web server that responds to each request with the result of `answer`.
    pub fn web<B: Into<Bytes>>(
        identity: Option<&Identity>,
        answer: impl Fn(&Request<Bytes>) -> Reply<B> + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::web_on(LOOPBACK, identity, answer)
    }

    /// Like [`Self::web`], on another address of this machine.
    pub fn web_on<B: Into<Bytes>>(
        ip: IpAddr,
        identity: Option<&Identity>,
        answer: impl Fn(&Request<Bytes>) -> Reply<B> + Send + Sync + 'static,
    ) -> Result<Self> {
        let acceptor = identity.map(acceptor).transpose()?;
        let answer = Arc::new(answer);
        Self::start(ip, move |stream, asked| {
            let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
            async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let line = format!("{} {}", request.method(), request.uri());
                    asked.lock().unwrap().push(line);
                    let answer = Arc::clone(&answer);
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let reply = answer(&Request::from_parts(head, body));
                        Ok::<_, hyper::Error>(response(reply))
                    }
                });
                let server = http1::Builder::new();
                // A test may want a client that disconnects or does not trust the certificate.
                match acceptor {
                    None => {
                        let _ = server.serve_connection(TokioIo::new(stream), service).await;
                    }
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            let _ = server.serve_connection(TokioIo::new(stream), service).await;
                        }
                    }
                }
            }
        })
    }

    /// Accepts every connection, and never responds.
    pub fn silent() -> Result<Self> {
        Self::start(LOOPBACK, |mut stream, _| async move {
            let mut sink = [0; 1024];
            while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {}
        })
    }

    /// Forwards every request, by `CONNECT` or by an absolute URL. With `login`, only requests with that
    /// `Proxy-Authorization`.
    pub fn proxy(login: Option<&str>) -> Result<Self> {
        let login = login.map(str::to_owned);
        Self::start(LOOPBACK, move |stream, asked| {
            let login = login.clone();
            async move {
                // The client or the server reports a broken connection.
                let _ = pass_on(stream, login.as_deref(), &asked).await;
            }
        })
    }

    fn start<F: Future<Output = ()> + Send + 'static>(
        ip: IpAddr,
        serve: impl Fn(TcpStream, Arc<Mutex<Vec<String>>>) -> F + Send + Sync + 'static,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind((ip, 0)))?;
        let address = listener.local_addr()?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&log)));
            }
        });
        Ok(Self {
            address,
            asked,
            _runtime: runtime,
        })
    }
}

pub(crate) fn acceptor(identity: &Identity) -> Result<TlsAcceptor> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn response<B: Into<Bytes>>((status, headers, body): Reply<B>) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Full::new(body.into())).unwrap()
}

async fn pass_on(
    mut stream: TcpStream,
    login: Option<&str>,
    asked: &Mutex<Vec<String>>,
) -> Result<()> {
    let head = read_head(&mut stream).await?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut words = text.split(' ');
    let (method, target) = (words.next().context("no method")?, words.next());
    let target = target.context("no target")?;
    asked.lock().unwrap().push(format!("{method} {target}"));
    let may_pass = login.is_none_or(|login| {
        let wanted = format!("proxy-authorization: {login}").to_lowercase();
        text.lines().any(|line| line.to_lowercase() == wanted)
    });
    if !may_pass {
        let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
        return Ok(stream.write_all(answer).await?);
    }
    let host = target.strip_prefix("http://").unwrap_or(target);
    let host = host.split('/').next().unwrap_or_default();
    let Ok(mut onward) = TcpStream::connect(host).await else {
        let answer = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";
        return Ok(stream.write_all(answer).await?);
    };
    if method == "CONNECT" {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    } else {
        onward.write_all(&head).await?;
    }
    copy_bidirectional(&mut stream, &mut onward).await?;
    Ok(())
}

/// Reads up to the empty line; a client waits for the response before it sends more.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        head.extend_from_slice(&part[..read]);
    }
    Ok(head)
}
