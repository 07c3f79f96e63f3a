//! Of an API server as much as one syncer asks for: the node's object, listed, watched and its status patched, and the
//! Secret that the object is about. Plain HTTP on the loopback, no credentials.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::names::{
    DATA_KEY, GLOBAL_SECRET, GROUP, NAMESPACE, REVISION_ANNOTATION, VERSION,
};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(super) const NODE: &str = "bare";

/// What a node is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub generation: i64,
    /// Revision to be in force; `None`: the node is to be put back as it was.
    pub revision: Option<i64>,
    /// The registry credentials of that revision.
    pub credentials: String,
}

impl Ask {
    fn object(&self) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "NodePullSecret",
            "metadata": {
                "name": NODE, "namespace": NAMESPACE, "uid": "5f0c8ab2-0000-4000-8000-000000000001",
                "generation": self.generation, "resourceVersion": "7",
            },
            "spec": {"revision": self.revision.unwrap_or(0), "restore": self.revision.is_none()},
        })
    }

    fn secret(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {
                "name": GLOBAL_SECRET, "namespace": NAMESPACE, "resourceVersion": "7",
                "annotations": {REVISION_ANNOTATION: self.revision.unwrap_or(0).to_string()},
            },
            "data": {DATA_KEY: BASE64_STANDARD.encode(&self.credentials)},
        })
    }
}

/// What a syncer told of itself last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub phase: String,
    pub reason: String,
    pub message: String,
    /// Of the object that this is about.
    generation: i64,
    asked: i64,
}

impl Told {
    fn new(status: &Value, ask: &Ask) -> Self {
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        Self {
            phase: text("phase"),
            reason: text("reason"),
            message: text("message"),
            generation: status["observedGeneration"].as_i64().unwrap_or_default(),
            asked: ask.generation,
        }
    }

    /// Whether it is the end of what the node was asked for.
    pub(super) fn stays(&self) -> bool {
        self.generation == self.asked && !matches!(&*self.phase, "" | "Syncing" | "Restoring")
    }
}

pub(super) struct Api {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    ask: Ask,
    status: Mutex<Option<Value>>,
}

impl Api {
    /// Serves for as long as the runtime runs.
    pub(super) async fn serve(ask: Ask) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            ask,
            status: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&served);
                let service = service_fn(move |request| answer(Arc::clone(&shared), request));
                // A client that goes away is its own business.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { address, shared })
    }

    pub(super) fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        config.to_string()
    }

    pub(super) fn told(&self) -> Option<Told> {
        let status = self.shared.status.lock().unwrap();
        let status = status.as_ref()?;
        Some(Told::new(status, &self.shared.ask))
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let objects = format!("/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/nodepullsecrets");
    let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{GLOBAL_SECRET}");
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default();
    if path == objects && query.contains("watch=true") {
        // Nothing ever happens, and the connection stays.
        let silence = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        return Ok(response(200, BoxBody::new(StreamBody::new(silence))));
    }
    let ask = &shared.ask;
    let (code, value) = if method == Method::GET && path == objects {
        let list = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NodePullSecretList",
            "metadata": {"resourceVersion": "7"}, "items": [ask.object()],
        });
        (200, list)
    } else if method == Method::GET && path == secret {
        (200, ask.secret())
    } else if method == Method::PATCH && path == format!("{objects}/{NODE}/status") {
        let body = request.into_body().collect().await?.to_bytes();
        let patch: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut object = ask.object();
        object["status"] = patch["status"].clone();
        *shared.status.lock().unwrap() = Some(patch["status"].clone());
        (200, object)
    } else {
        let message = format!("{method} {path} is not served here");
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": message,
        });
        (404, status)
    };
    let body = Full::new(Bytes::from(value.to_string()));
    Ok(response(code, body.boxed()))
}

fn response(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code.try_into().unwrap_or_default();
    let json = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    response
}
