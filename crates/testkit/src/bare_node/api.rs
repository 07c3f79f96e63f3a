//! The part of an API server that one syncer uses: the node's object with list, watch and status patches, and the
//! Secrets with its content, on the loopback address.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::checksum::add_checksum;
use globalps_core::names::{
    DATA_KEY, DELIVERY_ANNOTATION, GLOBAL_SECRET, GROUP, NAMESPACE, REVISION_ANNOTATION,
    REVISION_ID_ANNOTATION, VERSION,
};
use globalps_provider::Delivery;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret as CoreSecret;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::web::{Authority, Validity, acceptor};

pub(super) const NODE: &str = "bare";

/// The assignment of a node.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub generation: i64,
    /// The assigned revision; `None`: the node must restore its original state.
    pub revision: Option<i64>,
    /// The registry credentials of that revision, in `global-pull-secret`.
    pub credentials: String,
    /// How the kubelet gets the credentials.
    pub delivery: Delivery,
    /// kubelet version of the Node; empty: unknown.
    pub kubelet_version: &'static str,
    /// The program that manages the file; empty: none.
    pub foreign_owner: &'static str,
}

/// The API server's response for a Secret.
#[derive(Clone, Debug)]
pub enum Secret {
    /// This HTTP status.
    Error(u16),
    Content {
        revision: i64,
        credentials: String,
        delivery: Delivery,
    },
}

/// Id of every revision.
const REVISION_ID: &str = "00000000000000a1";

impl Secret {
    fn value(&self, name: &str) -> (u16, Value) {
        let (revision, credentials, delivery) = match self {
            Self::Error(code) => return (*code, failure(*code, name)),
            Self::Content {
                revision,
                credentials,
                delivery,
            } => (revision, credentials, delivery),
        };
        let mut annotations = json!({
            REVISION_ANNOTATION: revision.to_string(), REVISION_ID_ANNOTATION: REVISION_ID,
        });
        if *delivery != Delivery::ConfigFile {
            annotations[DELIVERY_ANNOTATION] = serde_json::to_string(delivery).unwrap().into();
        }
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "resourceVersion": "7",
                "annotations": annotations,
            },
            "data": {DATA_KEY: BASE64_STANDARD.encode(credentials)},
        });
        let mut secret: CoreSecret = serde_json::from_value(secret).unwrap();
        add_checksum(&mut secret, &[]);
        (200, serde_json::to_value(secret).unwrap())
    }
}

impl Ask {
    fn object(&self, version: u64) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "NodePullSecret",
            "metadata": {
                "name": NODE, "namespace": NAMESPACE, "uid": "5f0c8ab2-0000-4000-8000-000000000001",
                "generation": self.generation, "resourceVersion": version.to_string(),
            },
            "spec": {
                "revision": self.revision.unwrap_or(0), "revisionId": REVISION_ID,
                "restore": self.revision.is_none(),
                "kubeletVersion": self.kubelet_version, "foreignOwner": self.foreign_owner,
            },
        })
    }

    fn secret(&self) -> Secret {
        Secret::Content {
            revision: self.revision.unwrap_or(0),
            credentials: self.credentials.clone(),
            delivery: self.delivery.clone(),
        }
    }
}

/// The last status that a syncer wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    pub phase: String,
    pub reason: String,
    pub message: String,
    /// Generation of the object that the status is about.
    generation: i64,
    asked: i64,
}

impl Reported {
    fn new(status: &Value, asked: i64) -> Self {
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        Self {
            phase: text("phase"),
            reason: text("reason"),
            message: text("message"),
            generation: status["observedGeneration"].as_i64().unwrap_or_default(),
            asked,
        }
    }

    /// Whether the phase is final for this assignment.
    pub(super) fn stays(&self) -> bool {
        self.generation == self.asked && !matches!(&*self.phase, "" | "Syncing" | "Restoring")
    }
}

pub(super) struct Api {
    address: SocketAddr,
    authority: Authority,
    shared: Arc<Shared>,
}

struct Shared {
    /// Every request is rejected.
    is_rejecting: AtomicBool,
    asked: watch::Sender<Asked>,
    secrets: Mutex<BTreeMap<String, Secret>>,
    status: Mutex<Option<Value>>,
}

/// The node's object; `None`: it does not exist.
#[derive(Clone, Debug)]
struct Asked {
    version: u64,
    ask: Option<Ask>,
}

impl Shared {
    /// The object as it is stored.
    fn object(&self, asked: &Asked) -> Option<Value> {
        let mut object = asked.ask.as_ref()?.object(asked.version);
        if let Some(status) = self.status.lock().unwrap().clone() {
            object["status"] = status;
        }
        Some(object)
    }
}

impl Api {
    /// Serves until the runtime ends.
    pub(super) async fn serve(ask: Ask) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let authority = Authority::new()?;
        let acceptor = acceptor(&authority.issue(&["127.0.0.1"], Validity::Now)?)?;
        let shared = Arc::new(Shared {
            is_rejecting: AtomicBool::new(false),
            secrets: Mutex::new([(GLOBAL_SECRET.to_owned(), ask.secret())].into()),
            asked: watch::Sender::new(Asked {
                version: 7,
                ask: Some(ask),
            }),
            status: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&served);
                let service = service_fn(move |request| answer(Arc::clone(&shared), request));
                let accepted = acceptor.accept(stream);
                // An error here means that the client has disconnected.
                tokio::spawn(async move {
                    let stream = TokioIo::new(accepted.await?);
                    let served = http1::Builder::new().serve_connection(stream, service);
                    anyhow::Ok(served.await?)
                });
            }
        });
        Ok(Self {
            address,
            authority,
            shared,
        })
    }

    /// Host and port.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes what a pod has of its account.
    pub(super) fn write_account(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory)?;
        for (name, text) in [
            ("ca.crt", self.authority.pem()),
            ("namespace", NAMESPACE),
            ("token", "none"),
        ] {
            fs::write(directory.join(name), text)?;
        }
        Ok(())
    }

    /// Changes the object; `None` deletes it. From now on its content is in `global-pull-secret`.
    pub(super) fn ask(&self, ask: Option<Ask>) {
        if let Some(ask) = &ask {
            self.secret(GLOBAL_SECRET, ask.secret());
        }
        self.assign(ask);
    }

    /// Changes only the object.
    pub(super) fn assign(&self, ask: Option<Ask>) {
        self.shared.asked.send_modify(|asked| {
            asked.version += 1;
            asked.ask = ask;
        });
    }

    /// From now on responds to every request with 401, and ends the watches.
    pub(super) fn reject(&self) {
        self.shared.is_rejecting.store(true, Ordering::Relaxed);
        self.shared.asked.send_modify(|asked| asked.version += 1);
    }

    pub(super) fn secret(&self, name: &str, secret: Secret) {
        let mut secrets = self.shared.secrets.lock().unwrap();
        secrets.insert(name.to_owned(), secret);
    }

    pub(super) fn status(&self) -> Option<Value> {
        self.shared.status.lock().unwrap().clone()
    }

    pub(super) fn reported(&self) -> Option<Reported> {
        let asked = self.shared.asked.borrow().ask.as_ref()?.generation;
        Some(Reported::new(&self.status()?, asked))
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let objects = format!("/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/nodepullsecrets");
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets/");
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default();
    if shared.is_rejecting.load(Ordering::Relaxed) {
        let body = Full::new(Bytes::from(failure(401, &path).to_string()));
        return Ok(response(401, body.boxed()));
    }
    if path == objects && query.contains("watch=true") {
        return Ok(response(200, BoxBody::new(events(&shared, query))));
    }
    let asked = shared.asked.borrow().clone();
    let (code, value) = if method == Method::GET && path == objects {
        let object = shared.object(&asked);
        let list = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NodePullSecretList",
            "metadata": {"resourceVersion": asked.version.to_string()},
            "items": object.into_iter().collect::<Vec<_>>(),
        });
        (200, list)
    } else if method == Method::GET
        && let Some(name) = path.strip_prefix(&secrets)
    {
        let secret = shared.secrets.lock().unwrap().get(name).cloned();
        secret.unwrap_or(Secret::Error(404)).value(name)
    } else if method == Method::PATCH
        && path == format!("{objects}/{NODE}/status")
        && asked.ask.is_some()
    {
        let body = request.into_body().collect().await?.to_bytes();
        let patch: Value = serde_json::from_slice(&body).unwrap_or_default();
        let status = Some(patch["status"].clone());
        let before = std::mem::replace(&mut *shared.status.lock().unwrap(), status.clone());
        if before != status {
            shared.asked.send_modify(|asked| asked.version += 1);
        }
        let asked = shared.asked.borrow().clone();
        (200, shared.object(&asked).unwrap_or_default())
    } else {
        (404, failure(404, &format!("{method} {path}")))
    };
    let body = Full::new(Bytes::from(value.to_string()));
    Ok(response(code, body.boxed()))
}

fn failure(code: u16, what: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": "Failure", "message": format!("{what} is answered with {code}"),
    })
}

/// One event for each change after the version in the query. The connection stays open.
fn events(
    shared: &Arc<Shared>,
    query: &str,
) -> StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + use<>> {
    let mut changes = shared.asked.subscribe();
    let since = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion="))
        .and_then(|version| version.parse().ok());
    if Some(changes.borrow_and_update().version) != since {
        changes.mark_changed();
    }
    let shared = Arc::clone(shared);
    let begin = (shared, changes);
    StreamBody::new(futures::stream::unfold(
        begin,
        |(shared, mut changes)| async {
            changes.changed().await.ok()?;
            if shared.is_rejecting.load(Ordering::Relaxed) {
                return None;
            }
            let asked = changes.borrow_and_update().clone();
            let event = match shared.object(&asked) {
                Some(object) => json!({"type": "MODIFIED", "object": object}),
                None => {
                    json!({"type": "DELETED", "object": Ask::default().object(asked.version)})
                }
            };
            let frame = Frame::data(Bytes::from(format!("{event}\n")));
            Some((Ok(frame), (shared, changes)))
        },
    ))
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
