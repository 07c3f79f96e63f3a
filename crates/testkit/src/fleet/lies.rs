//! Responses of a member cluster that an attacker controls.

use std::convert::Infallible;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use globalps_core::names::{ADDITIONAL_SECRET, GLOBAL_SECRET, GROUP, VERSION};
use globalps_fake_api::Body;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Response, Uri};
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::sleep;

use crate::product::NAMESPACE;

/// Chunk of an endless response, which at this rate would fill a machine's memory within a minute or two.
const CHUNK: usize = 64 << 10;
const PAUSE: Duration = Duration::from_millis(5);
/// Number of events between two pauses of an endless watch.
const EVENTS: u64 = 50;

/// A request of the hub to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Namespace,
    Secret,
    List,
    Watch,
}

impl Asked {
    /// `None` if the hub never makes such a request.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let is_watch = uri.query().unwrap_or_default().contains("watch=true");
        let list = if is_watch { Self::Watch } else { Self::List };
        let object = |it: Self| {
            it.object()
                .trim_end_matches(&format!("/{GLOBAL_SECRET}"))
                .to_owned()
        };
        let mut all = [Self::Namespace, Self::Secret, list].into_iter();
        all.find(|it| object(*it) == uri.path())
    }

    /// The path of the object in the response.
    pub(super) fn object(self) -> String {
        let core = "/api/v1/namespaces";
        match self {
            Self::Namespace => format!("{core}/kube-system"),
            Self::Secret => format!("{core}/{NAMESPACE}/secrets/{ADDITIONAL_SECRET}"),
            Self::List | Self::Watch => format!(
                "/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/globalpullsecrets/{GLOBAL_SECRET}"
            ),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Lie {
    /// Merges this into the object of each response.
    Says(Asked, Value),
    /// Redirects every request to this URL, with this status code.
    Redirects(u16, String),
    /// The response never ends.
    Endless(Asked),
    /// The watch never stops sending events; the function makes each from its number.
    Events(fn(u64) -> Value),
    /// Replaces HTTP by the first text, then the second one, repeated endlessly.
    Bytes(&'static str, &'static str),
}

impl Lie {
    /// The response that replaces the true one; `None`: the true one is sent, with the changes of [`Lie::Says`].
    pub(super) fn response(&self, asked: Asked) -> Option<Response<Body>> {
        match self {
            Self::Redirects(code, place) => {
                let empty = StreamBody::new(stream::empty()).boxed_unsync();
                let mut response = Response::new(empty);
                *response.status_mut() = (*code).try_into().unwrap_or_default();
                let place = place.parse().ok()?;
                let headers = response.headers_mut();
                headers.insert(hyper::header::LOCATION, place);
                Some(response)
            }
            Self::Endless(it) if *it == asked => {
                let text = "{\"x\": \"".to_owned() + &"x".repeat(CHUNK);
                let text = Bytes::from(text);
                Some(endless(stream::repeat(text)))
            }
            Self::Events(event) if asked == Asked::Watch => {
                let event = *event;
                let batch = move |at: u64| {
                    let events = at * EVENTS..(at + 1) * EVENTS;
                    let lines = events.map(|number| format!("{}\n", event(number)));
                    Bytes::from(lines.collect::<String>())
                };
                Some(endless(stream::iter(0..).map(batch)))
            }
            _ => None,
        }
    }
}

fn endless(parts: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = parts.then(|part| async {
        sleep(PAUSE).await;
        Ok::<_, Infallible>(Frame::data(part))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// Writes until the peer disconnects.
pub(super) async fn write_forever(
    mut stream: impl AsyncWrite + Unpin,
    (head, rest): (&str, &str),
) -> std::io::Result<()> {
    stream.write_all(head.as_bytes()).await?;
    let rest = rest.repeat(CHUNK / rest.len());
    loop {
        stream.write_all(rest.as_bytes()).await?;
        sleep(PAUSE).await;
    }
}
