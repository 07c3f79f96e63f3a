//! A fake API server for tests: it stores objects, enforces permissions, serves watches, and fails as the test
//! requests. A `kube` client calls it directly, other clients through a local port.

mod answers;
mod faults;
mod objects;
mod request;
mod state;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame};
use hyper::header::{CONTENT_TYPE, DATE, HeaderValue};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};
use tower::service_fn;

pub use answers::{Answer, failure};
pub use faults::{Fault, REFUSALS};
pub use objects::Objects;
pub use request::{Request, Right};
pub use state::{Rule, State};

use state::Reply;

/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A fake API server. A clone is the same server.
#[derive(Clone, Default)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    address: Arc<OnceLock<SocketAddr>>,
}

impl FakeApi {
    /// A server with these objects.
    pub fn new(objects: &[(&str, Value)]) -> Self {
        let api = Self::default();
        api.state().version = 100;
        for (path, object) in objects {
            api.state().store(path, object.clone());
        }
        api
    }

    /// Stops recording requests, so that nothing grows.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        self.state().is_unrecorded = true;
        self
    }

    /// Allows nothing else.
    #[must_use]
    pub fn allow_only(self, rights: Vec<Right>) -> Self {
        self.state().rights = Some(rights);
        self
    }

    /// Another client writes the object.
    #[must_use]
    pub fn with_object(self, path: &str, object: Value) -> Self {
        self.state().store(path, object);
        self
    }

    /// Another client removes the object.
    #[must_use]
    pub fn without(self, path: &str) -> Self {
        self.state().remove(path);
        self
    }

    /// `change` runs when the first watch starts, and the watch reports what it changed.
    #[must_use]
    pub fn with_controller(self, change: fn(&mut Objects)) -> Self {
        self.state().controller = Some(change);
        self
    }

    /// Sets its clock behind that of this machine by this many seconds.
    #[must_use]
    pub fn with_clock_behind(self, seconds: i64) -> Self {
        self.state().is_behind = Some(SignedDuration::from_secs(seconds));
        self
    }

    /// The rule decides about requests first.
    #[must_use]
    pub fn with_rule(
        self,
        rule: impl FnMut(&mut Request, &mut Objects) -> Option<Answer> + Send + 'static,
    ) -> Self {
        self.state().rule = Some(Box::new(rule));
        self
    }

    /// Fails the first `times` changes with this name in [`State::changes`], or requests with this verb and this path
    /// or one below it.
    #[must_use]
    pub fn with_fault(self, request: &str, fault: Fault, times: usize) -> Self {
        let fault = (request.to_owned(), fault, times);
        self.state().faults.push(fault);
        self
    }

    /// Like [`Self::with_fault`], for all of them from now on; `None` ends the fault.
    pub fn fail(&self, request: &str, fault: impl Into<Option<Fault>>) {
        let mut state = self.state();
        state.faults.retain(|(of, ..)| of != request);
        let fault = fault.into().into_iter();
        let fault = fault.map(|fault| (request.to_owned(), fault, usize::MAX));
        state.faults.extend(fault);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// The state. Other requests get no response while it is locked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the object as it is. Its labels, annotations and content are those of the last apply.
    pub fn put(&self, path: &str, object: &impl serde::Serialize) {
        let object = serde_json::to_value(object).unwrap();
        self.state().put(path, object);
    }

    /// The object at the path.
    pub fn object(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Verb and path of each request.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Requests that change something.
    pub fn writes(&self) -> Vec<String> {
        let is_read = |request: &String| {
            ["get ", "list ", "watch "]
                .iter()
                .any(|verb| request.starts_with(verb))
        };
        self.requests()
            .into_iter()
            .filter(|it| !is_read(it))
            .collect()
    }

    /// The successful changes since the last call, called as in [`State::changes`].
    pub fn written(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.state().changes)
            .into_iter()
            .collect()
    }

    /// A client in the namespace `kube-system`.
    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        });
        Client::new(service, "kube-system")
    }

    /// Its URL on a local port, which is served until the process ends.
    pub fn address(&self) -> String {
        static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
        let address = self.address.get_or_init(|| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let address = listener.local_addr().expect("an address");
            listener.set_nonblocking(true).expect("non-blocking");
            let api = self.clone();
            RUNTIME.spawn(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(api.clone().serve(stream));
                }
            });
            address
        });
        format!("http://{address}")
    }

    /// Serves one connection.
    pub async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let service = hyper::service::service_fn(move |request| {
            let api = self.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        });
        let mut server = http1::Builder::new();
        server.auto_date_header(false);
        // An error here means that the client has disconnected.
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    }

    /// The response to one request.
    pub async fn respond<B: hyper::body::Body>(
        &self,
        request: hyper::Request<B>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        let mut request = Request::new(parts, &body.unwrap_or_default());
        let reply = self.state().reply(&mut request);
        let mut response = match reply {
            Reply::Answer(answer) => response(answer),
            Reply::Watch => json(StreamBody::new(self.watch(request)).boxed_unsync()),
            Reply::Silence => std::future::pending().await,
        };
        let headers = response.headers_mut();
        if let Some(behind) = self.state().is_behind {
            let date = Timestamp::now() - behind;
            let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            headers.insert(DATE, date.try_into().expect("a header"));
        }
        response
    }

    /// Number of open watches.
    pub fn watches(&self) -> usize {
        self.state().news.receiver_count()
    }

    /// The changes after the version in the request.
    fn watch(
        &self,
        request: Request,
    ) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + use<> {
        let since: u64 = request.parameter("resourceVersion").parse().unwrap_or(0);
        let seconds = request.parameter("timeoutSeconds").parse().unwrap_or(300);
        let until = Instant::now() + Duration::from_secs(seconds);
        let news = self.state().news.subscribe();
        let begin = (self.clone(), request, news, since);
        futures::stream::unfold(begin, move |(api, request, mut news, since)| async move {
            loop {
                news.borrow_and_update();
                let (events, now) = api.state().events(&request, since);
                if !events.is_empty() {
                    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
                    let begin = (api, request, news, now);
                    return Some((Ok(Frame::data(Bytes::from(lines))), begin));
                }
                tokio::select! {
                    changed = news.changed() => changed.ok()?,
                    () = sleep_until(until) => return None,
                }
            }
        })
    }
}

/// The response with this status code and body.
pub fn response((code, object): Answer) -> Response<Body> {
    let body = Full::new(Bytes::from(object.to_string()));
    let mut response = json(body.boxed_unsync());
    *response.status_mut() = code.try_into().expect("a status code");
    response
}

fn json(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
