//! A real registry on the loopback address, with TLS and a login: a password, or tokens of a token server that the test
//! starts.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use hyper::Request;
use hyper::body::Bytes;
use rcgen::{CertificateParams, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use crate::registry::htpasswd;
use crate::web::{Identity, Reply, Server};
use crate::{DEADLINE, until};

/// The only user of every registry here.
pub const USER: &str = "puller";
/// The only repository that a token of the token server gives access to.
pub const REPOSITORY: &str = "team/app";
const SERVICE: &str = "a test's registry";
const ISSUER: &str = "a test's token server";

/// Port 0: the registry chooses a port itself, because one that was free a moment ago may be in use.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A `docker-registry` process, which ends when this is dropped or when the thread that started it ends.
pub struct LoneRegistry {
    address: SocketAddr,
    process: Child,
}

impl LoneRegistry {
    /// A registry that requires [`USER`] and the password with each request. Without an identity it speaks plain HTTP.
    pub fn basic(dir: &Path, identity: Option<&Identity>, password: &str) -> Result<Self> {
        Self::basic_at(ANY_PORT, dir, identity, password)
    }

    /// Like [`Self::basic`], at this address. With port 0, the registry chooses a free port: see [`Self::address`].
    pub fn basic_at(
        address: SocketAddr,
        dir: &Path,
        identity: Option<&Identity>,
        password: &str,
    ) -> Result<Self> {
        let file = dir.join("htpasswd");
        fs::create_dir_all(dir)?;
        fs::write(&file, htpasswd(USER, password)?)?;
        let auth = json!({"htpasswd": {"realm": "test", "path": file}});
        Self::start(address, dir, identity, &auth)
    }

    /// A registry that requires a token of this server.
    pub fn bearer(dir: &Path, identity: &Identity, tokens: &TokenServer) -> Result<Self> {
        let bundle = dir.join("tokens.pem");
        fs::create_dir_all(dir)?;
        fs::write(&bundle, &tokens.certificate)?;
        let auth = json!({"token": {
            "realm": tokens.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": bundle,
        }});
        Self::start(ANY_PORT, dir, Some(identity), &auth)
    }

    /// Host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    fn start(
        address: SocketAddr,
        dir: &Path,
        identity: Option<&Identity>,
        auth: &Value,
    ) -> Result<Self> {
        let mut http = json!({"addr": address.to_string()});
        if let Some(identity) = identity {
            let (certificate, key) = (dir.join("tls.crt"), dir.join("tls.key"));
            fs::write(&certificate, &identity.certificate)?;
            fs::write(&key, &identity.key)?;
            http["tls"] = json!({"certificate": certificate, "key": key});
        }
        let config = json!({
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": false}},
            "storage": {"filesystem": {"rootdirectory": dir.join("storage")}},
            "http": http,
            "auth": auth,
        });
        let file = dir.join("registry.yml");
        fs::write(&file, config.to_string())?;
        let log_file = dir.join("registry.log");
        let log = fs::File::create(&log_file)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "docker-registry", "serve"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut registry = Self {
            address,
            process: command.spawn().context("could not start the registry")?,
        };
        registry.address = until(
            "the registry to listen",
            DEADLINE,
            Duration::from_millis(20),
            || {
                let ended = registry.process.try_wait()?;
                let log = fs::read_to_string(&log_file)?;
                ensure!(ended.is_none(), "the registry exited: {log}");
                Ok(listens_on(&log))
            },
        )?;
        Ok(registry)
    }
}

/// The address in a registry's log, which appears once the registry listens.
fn listens_on(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("listening on ")?;
    // Incomplete while the registry writes the line.
    let end = rest.find(['"', ',', ' '])?;
    rest[..end].parse().ok()
}

impl Drop for LoneRegistry {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Issues tokens to users with the password: one without access, which is enough to log in, one to pull [`REPOSITORY`],
/// and those to pull from and push to any repository.
pub struct TokenServer {
    pub server: Server,
    realm: String,
    /// Certificate of the key that signs the tokens.
    certificate: String,
}

impl TokenServer {
    /// `identity`: for TLS; without one the server speaks plain HTTP.
    pub fn start(identity: Option<&Identity>, password: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(Vec::new())?.self_signed(&key)?;
        let signer = Signer {
            key: EcdsaKeyPair::from_pkcs8(
                &ECDSA_P256_SHA256_FIXED_SIGNING,
                &key.serialize_der(),
                &SystemRandom::new(),
            )
            .map_err(|_| anyhow::anyhow!("the key is not an ECDSA key"))?,
            certificate: BASE64_STANDARD.encode(certificate.der()),
        };
        let login = format!(
            "Basic {}",
            BASE64_STANDARD.encode(format!("{USER}:{password}"))
        );
        let server = Server::web(identity, move |request| signer.answer(request, &login))?;
        let scheme = if identity.is_some() { "https" } else { "http" };
        Ok(Self {
            realm: format!("{scheme}://{}/token", server.address()),
            server,
            certificate: certificate.pem(),
        })
    }
}

struct Signer {
    key: EcdsaKeyPair,
    /// DER in base64.
    certificate: String,
}

impl Signer {
    fn answer(&self, request: &Request<Bytes>, login: &str) -> Reply {
        let authorization = request.headers().get("authorization");
        if authorization.is_none_or(|value| value != login) {
            let body = json!({"errors": [{"code": "UNAUTHORIZED"}]}).to_string();
            return (401, Vec::new(), body);
        }
        let query = request.uri().query().unwrap_or_default();
        let scope = format!(
            "scope=repository%3A{}%3Apull",
            REPOSITORY.replace('/', "%2F")
        );
        let pushes = query.split('&').find_map(|part| {
            let name = part.strip_prefix("scope=repository%3A")?;
            name.strip_suffix("%3Apull%2Cpush")
        });
        let access = if let Some(name) = pushes {
            let name = name.replace("%2F", "/");
            json!([{"type": "repository", "name": name, "actions": ["pull", "push"]}])
        } else if query.split('&').any(|part| part == scope) {
            json!([{"type": "repository", "name": REPOSITORY, "actions": ["pull"]}])
        } else {
            json!([])
        };
        let token = self.token(&access);
        (200, Vec::new(), json!({"token": token}).to_string())
    }

    /// A JSON Web Token, signed with ES256.
    fn token(&self, access: &Value) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [self.certificate]});
        let claims = json!({
            "iss": ISSUER, "sub": USER, "aud": SERVICE, "jti": now.to_string(),
            "nbf": now - 60, "iat": now, "exp": now + 300, "access": access,
        });
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let text = [header, claims]
            .map(|part| encode(part.to_string().as_bytes()))
            .join(".");
        let signature = self
            .key
            .sign(&SystemRandom::new(), text.as_bytes())
            .unwrap();
        format!("{text}.{}", encode(signature.as_ref()))
    }
}
