//! Simulates more clusters than a machine could run: each has its own loopback address, on which one program simulates
//! its API server. All share one listener, because ten thousand listeners would exceed the limit of open files.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::lies::{Lie, write_forever};
use super::member::{Admission, Counts, Member};
use crate::web::{Authority, Validity, acceptor};

/// Name in the certificate of all members.
const SERVER_NAME: &str = "member.example.com";

/// Long enough for the hub to notice the disconnection.
const AWAY: Duration = Duration::from_millis(300);

/// Delay before the next accept, after a failed one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// Number of members per network of the loopback.
const IN_NETWORK: usize = 250;

pub struct Members {
    places: Arc<[Place]>,
    counts: Arc<Counts>,
    authority: Authority,
    has_tls: bool,
    /// Dropping this ends the listener.
    _accepting: JoinSet<()>,
}

struct Place {
    member: Arc<Member>,
    address: SocketAddr,
    /// Open connections; `None`: the member is unreachable, and each new connection is reset.
    connections: Mutex<Option<JoinSet<()>>>,
}

/// Settings that all members share.
struct Terms {
    /// `None`: plain HTTP.
    tls: Option<TlsAcceptor>,
    /// `None`: every write is admitted.
    admission: Option<Admission>,
}

impl Members {
    /// `time`: until each node of a member has a new Secret.
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
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let port = listener.local_addr()?.port();
        let place = |at: usize| {
            let member = Member::new(format!("member-{at}"), time, &counts);
            Ok(Place {
                member: Arc::new(member),
                address: (address(at)?, port).into(),
                connections: Mutex::new(Some(JoinSet::new())),
            })
        };
        let places: Result<Arc<[Place]>> = (0..number).map(place).collect();
        let places = places?;
        let mut accepting = JoinSet::new();
        let terms = Arc::new(Terms { tls, admission });
        accepting.spawn(serve(listener, Arc::clone(&places), terms));
        Ok(Self {
            places,
            counts,
            authority,
            has_tls,
            _accepting: accepting,
        })
    }

    /// Name and kubeconfig of each member.
    pub fn kubeconfigs(&self) -> impl Iterator<Item = (&str, String)> {
        let numbers = 0..self.places.len();
        numbers.map(|at| (self.member(at).name(), self.kubeconfig(at)))
    }

    pub(super) fn member(&self, at: usize) -> &Arc<Member> {
        &self.places[at].member
    }

    /// Always contains the CA, because a client without one would load all CAs of the machine.
    pub fn kubeconfig(&self, at: usize) -> String {
        let place = &self.places[at];
        let scheme = if self.has_tls { "https" } else { "http" };
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

    /// Makes every third member reset its old and new connections. Returns the number of these members.
    pub(super) async fn take_third_away(&self) -> usize {
        let third = (0..self.places.len()).step_by(3);
        for at in third.clone() {
            self.take_away(at).await;
        }
        third.len()
    }

    /// Makes each of these members send its lie or, with `None`, true responses. First disconnects it for a moment, so
    /// that the hub reconnects.
    pub async fn lie(&self, lies: impl IntoIterator<Item = (usize, Option<Lie>)>) {
        for (at, lie) in lies {
            self.places[at].member.set_lie(lie);
            self.take_away(at).await;
        }
        sleep(AWAY).await;
        self.bring_all_back();
    }

    /// The Secret in a member.
    pub fn secret(&self, at: usize) -> Option<Value> {
        self.places[at].member.secret()
    }

    pub(super) async fn take_away(&self, at: usize) {
        let connections = self.places[at].connections.lock().unwrap().take();
        if let Some(mut connections) = connections {
            connections.shutdown().await;
        }
    }

    pub(super) fn bring_back(&self, at: usize) {
        let mut connections = self.places[at].connections.lock().unwrap();
        connections.get_or_insert_default();
    }

    pub(super) fn bring_all_back(&self) {
        (0..self.places.len()).for_each(|at| self.bring_back(at));
    }

    /// The maximum number of members whose nodes had not yet followed the hub's last write.
    pub(super) fn most_changing(&self) -> usize {
        self.counts.most_changing()
    }

    /// Number of open watches.
    pub(super) fn watches(&self) -> usize {
        self.places.iter().map(|it| it.member.watches()).sum()
    }

    /// Number of requests so far, by kind.
    pub(super) fn requests(&self) -> BTreeMap<String, usize> {
        self.counts.requests()
    }
}

fn address(at: usize) -> Result<Ipv4Addr> {
    let third = u8::try_from(at / IN_NETWORK).context("too many members")?;
    let fourth = u8::try_from(at % IN_NETWORK + 1)?;
    Ok(Ipv4Addr::new(127, 1, third, fourth))
}

/// The member with this address; `None` if the address is in no network of the members.
fn number(address: IpAddr) -> Option<usize> {
    let IpAddr::V4(address) = address else {
        return None;
    };
    let [127, 1, third, fourth] = address.octets() else {
        return None;
    };
    let fourth = usize::from(fourth).checked_sub(1)?;
    Some(usize::from(third) * IN_NETWORK + fourth)
}

/// Runs until it is aborted.
async fn serve(listener: TcpListener, places: Arc<[Place]>, terms: Arc<Terms>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files: connections wait until some have ended.
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let at = stream.local_addr().ok().and_then(|it| number(it.ip()));
        let Some(place) = at.and_then(|at| places.get(at)) else {
            continue;
        };
        let mut connections = place.connections.lock().unwrap();
        let Some(connections) = &mut *connections else {
            // Resets the connection. An error means that the hub already disconnected.
            let _ = stream.set_zero_linger();
            continue;
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(accept(
            Arc::clone(&place.member),
            stream,
            Arc::clone(&terms),
        ));
    }
}

async fn accept(member: Arc<Member>, stream: TcpStream, terms: Arc<Terms>) {
    // Like Go's servers.
    let _ = stream.set_nodelay(true);
    if let Some(Lie::Bytes(head, rest)) = member.lie() {
        // The hub may disconnect at any time.
        let _ = write_forever(stream, (head, rest)).await;
        return;
    }
    match &terms.tls {
        None => talk(member, stream, terms).await,
        // The hub reports a failed handshake.
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                talk(member, stream, terms).await;
            }
        }
    }
}

async fn talk(
    member: Arc<Member>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    terms: Arc<Terms>,
) {
    let service = service_fn(move |request| {
        let (member, terms) = (Arc::clone(&member), Arc::clone(&terms));
        async move {
            let answer = member.answer(request, terms.admission.as_ref());
            Ok::<_, std::convert::Infallible>(answer.await)
        }
    });
    let talked = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // The hub may disconnect at any time.
    let _ = talked.await;
}

#[cfg(test)]
mod tests {
    use globalps_core::api::GlobalPullSecret;
    use globalps_core::names::DATA_KEY;
    use k8s_openapi::api::core::v1::{Namespace, Secret};
    use kube::Api;
    use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchParams};
    use kube::core::WatchEvent;

    use super::*;
    use crate::fleet::lies::Asked;
    use crate::objects::client;

    #[tokio::test]
    async fn a_member_follows_what_the_hub_writes() {
        use futures::TryStreamExt as _;

        let members = Members::start(2, Duration::from_millis(1), false, None).await;
        let members = members.unwrap();
        let uid = json!({"metadata": {"uid": "false"}});
        members
            .member(1)
            .set_lie(Some(Lie::Says(Asked::Namespace, uid)));
        let client = async |at| client(&members.kubeconfig(at)).await.unwrap();
        for (at, expected) in [(0, "uid-of-member-0"), (1, "false")] {
            let namespaces: Api<Namespace> = Api::all(client(at).await);
            let namespace = namespaces.get_metadata("kube-system").await.unwrap();
            assert_eq!(namespace.metadata.uid.as_deref(), Some(expected));
        }

        let (client, member) = (client(0).await, members.member(0));
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
        let configs: Api<GlobalPullSecret> = Api::namespaced(client, "kube-system");
        let listed = configs.list(&ListParams::default()).await.unwrap();
        assert_eq!(listed.items.len(), 1);
        let since = listed.metadata.resource_version.unwrap();
        let mut watch = Box::pin(
            configs
                .watch(&WatchParams::default(), &since)
                .await
                .unwrap(),
        );
        let name = "additional-pull-secret";
        let apply = async |content: &str| {
            let secret = json!({"metadata": {"name": name}, "data": {DATA_KEY: content}});
            let params = PatchParams::apply("hub");
            let written = secrets.patch(name, &params, &Patch::Apply(secret)).await;
            written.map_err(|error| matches!(error, kube::Error::Api(it) if it.code == 409))
        };
        for content in ["eA==", "eQ=="] {
            let written = apply(content).await.unwrap();
            assert_eq!(members.most_changing(), 1);
            let Some(WatchEvent::Modified(config)) = watch.try_next().await.unwrap() else {
                panic!("no event");
            };
            let status = config.status.unwrap();
            let about = Some(status.observed_additional);
            assert_eq!(about, written.metadata.resource_version);
        }
        assert_eq!(members.watches(), 1);
        let entry =
            json!({"manager": "other", "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}}});
        member.interfere(|secret| {
            secret.as_mut().unwrap()["metadata"]["managedFields"] = json!([entry]);
        });
        assert!(apply("eA==").await.unwrap_err(), "it is another client's");
        assert!(apply("eQ==").await.is_ok(), "the same content");
        secrets
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        assert_eq!(member.secret(), None);
        assert_eq!(members.requests()["PATCH Secret"], 4);
    }

    #[test]
    fn each_member_has_an_address_of_its_own() {
        for at in [0, 249, 250, 9_999] {
            assert_eq!(number(address(at).unwrap().into()), Some(at));
        }
        assert_eq!(number([127, 0, 0, 1].into()), None);
    }
}
