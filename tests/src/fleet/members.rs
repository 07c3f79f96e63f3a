//! Clusters that no machine could hold: each has an address of its own on the loopback, where one program plays its API server.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::lies::{Lie, write_forever};
use super::member::{Admission, Counts, Member};
use crate::web::{Authority, Validity, acceptor};

/// Name in the certificate of all members.
const SERVER_NAME: &str = "member.example.com";

/// Long enough for the hub to find out.
const AWAY: Duration = Duration::from_millis(300);

/// Addresses of the members in one network of the loopback.
const IN_NETWORK: usize = 250;

pub struct Members {
    places: Vec<Place>,
    counts: Arc<Counts>,
    authority: Authority,
    /// `None`: they speak plain HTTP.
    tls: Option<TlsAcceptor>,
    /// `None`: every write is admitted.
    admission: Option<Admission>,
}

struct Place {
    member: Arc<Member>,
    address: SocketAddr,
    /// `None`: connections are refused.
    serving: Option<JoinHandle<()>>,
}

impl Members {
    /// `time`: what a member needs until each of its nodes has a new Secret.
    pub async fn start(
        number: usize,
        time: Duration,
        has_tls: bool,
        admission: Option<Admission>,
    ) -> Result<Self> {
        let counts = Arc::<Counts>::default();
        let authority = Authority::new()?;
        let identity = authority.issue(&[SERVER_NAME], Validity::Now)?;
        let tls = has_tls.then(|| acceptor(&identity)).transpose()?;
        let mut places: Vec<Place> = Vec::new();
        for at in 0..number {
            // One that is free for the first is free for all, on addresses that nobody else has.
            let port = places.first().map_or(0, |first| first.address.port());
            let listener = TcpListener::bind((address(at)?, port)).await?;
            let member = Arc::new(Member::new(format!("member-{at}"), time, &counts));
            places.push(Place {
                address: listener.local_addr()?,
                serving: Some(tokio::spawn(serve(
                    Arc::clone(&member),
                    listener,
                    tls.clone(),
                    admission.clone(),
                ))),
                member,
            });
        }
        Ok(Self {
            places,
            counts,
            authority,
            tls,
            admission,
        })
    }

    /// Name and kubeconfig of each.
    pub fn kubeconfigs(&self) -> impl Iterator<Item = (&str, String)> {
        let numbers = 0..self.places.len();
        numbers.map(|at| (self.member(at).name(), self.kubeconfig(at)))
    }

    pub(super) fn member(&self, at: usize) -> &Arc<Member> {
        &self.places[at].member
    }

    /// With the authority in any case: a client without one would keep all those that the machine knows.
    pub(super) fn kubeconfig(&self, at: usize) -> String {
        let place = &self.places[at];
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let cluster = json!({
            "server": format!("{scheme}://{}", place.address), "tls-server-name": SERVER_NAME,
            "certificate-authority-data": BASE64_STANDARD.encode(self.authority.pem()),
        });
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "member",
            "clusters": [{"name": "member", "cluster": cluster}],
            "users": [{"name": "hub", "user": {"token": place.member.token()}}],
            "contexts": [{"name": "member", "context": {"cluster": "member", "user": "hub"}}],
        })
        .to_string()
    }

    /// Every third member closes its connections and takes no other. How many that are.
    pub(super) async fn take_third_away(&mut self) -> usize {
        let third = (0..self.places.len()).step_by(3);
        for at in third.clone() {
            self.take_away(at).await;
        }
        third.len()
    }

    /// Each of these says that from now on, and `None` what is so. It is away for a moment, so that the hub connects again.
    pub async fn lie(
        &mut self,
        lies: impl IntoIterator<Item = (usize, Option<Lie>)>,
    ) -> Result<()> {
        for (at, lie) in lies {
            self.places[at].member.set_lie(lie);
            self.take_away(at).await;
        }
        sleep(AWAY).await;
        self.bring_all_back().await
    }

    /// The Secret that a member has.
    pub fn secret(&self, at: usize) -> Option<Value> {
        self.places[at].member.secret()
    }

    pub(super) async fn take_away(&mut self, at: usize) {
        if let Some(serving) = self.places[at].serving.take() {
            serving.abort();
            // It ends as cancelled.
            let _ = serving.await;
        }
    }

    pub(super) async fn bring_back(&mut self, at: usize) -> Result<()> {
        let place = &mut self.places[at];
        if place.serving.is_none() {
            let listener = TcpListener::bind(place.address).await;
            let listener = listener.context("a member's address")?;
            place.serving = Some(tokio::spawn(serve(
                Arc::clone(&place.member),
                listener,
                self.tls.clone(),
                self.admission.clone(),
            )));
        }
        Ok(())
    }

    pub(super) async fn bring_all_back(&mut self) -> Result<()> {
        for at in 0..self.places.len() {
            self.bring_back(at).await?;
        }
        Ok(())
    }

    /// The most members that ever had nodes on their way to what the hub wrote last.
    pub(super) fn most_changing(&self) -> usize {
        self.counts.most_changing()
    }

    /// Watches that are open now.
    pub(super) fn watches(&self) -> usize {
        self.counts.watches()
    }

    /// All requests so far, by what was asked.
    pub(super) fn requests(&self) -> BTreeMap<&'static str, usize> {
        self.counts.requests()
    }
}

fn address(at: usize) -> Result<Ipv4Addr> {
    let third = u8::try_from(at / IN_NETWORK).context("too many members")?;
    let fourth = u8::try_from(at % IN_NETWORK + 1)?;
    Ok(Ipv4Addr::new(127, 1, third, fourth))
}

/// Until it is aborted, with all its connections.
async fn serve(
    member: Arc<Member>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    admission: Option<Admission>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(accept(Arc::clone(&member), stream, tls.clone(), admission.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(
    member: Arc<Member>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    admission: Option<Admission>,
) {
    // As Go's servers do.
    let _ = stream.set_nodelay(true);
    if let Some(Lie::Bytes(head, rest)) = member.lie() {
        // The hub may hang up at any time.
        let _ = write_forever(stream, (head, rest)).await;
        return;
    }
    match tls {
        None => talk(member, stream, admission).await,
        // A handshake that fails is the hub's to report.
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                talk(member, stream, admission).await;
            }
        }
    }
}

async fn talk(
    member: Arc<Member>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    admission: Option<Admission>,
) {
    let service = service_fn(move |request| {
        let (member, admission) = (Arc::clone(&member), admission.clone());
        async move {
            Ok::<_, std::convert::Infallible>(member.answer(request, admission.as_ref()).await)
        }
    });
    let talked = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // The hub may hang up at any time.
    let _ = talked.await;
}
