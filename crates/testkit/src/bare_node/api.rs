//! The part of an API server that one syncer uses, on the loopback address: the node's object with list, watch and
//! status patches, and the Secrets with its content.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::checksum::add_checksum;
use globalps_core::names::{
    DATA_KEY, DELIVERY_ANNOTATION, GLOBAL_SECRET, GROUP, MAY_REPLACE_ANNOTATION, NAMESPACE,
    REVISION_ANNOTATION, REVISION_ID_ANNOTATION, VERSION,
};
use globalps_fake_api::{FakeApi, Fault, failure};
use globalps_provider::Delivery;
use k8s_openapi::api::core::v1::Secret as CoreSecret;
use serde_json::{Value, json};
use tokio::net::TcpListener;

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
    /// A daemon may update the node in place.
    pub updated_in_place: bool,
    /// The files of others that the syncer may replace; empty: none.
    pub may_replace: String,
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

/// Id of every revision here.
const REVISION_ID: &str = "00000000000000a1";

impl Secret {
    /// The stored object, or the status code of the response.
    fn value(&self) -> Result<Value, u16> {
        let (revision, credentials, delivery) = match self {
            Self::Error(code) => return Err(*code),
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
            "metadata": {"annotations": annotations},
            "data": {DATA_KEY: BASE64_STANDARD.encode(credentials)},
        });
        let mut secret: CoreSecret = serde_json::from_value(secret).unwrap();
        add_checksum(&mut secret, &[]);
        Ok(serde_json::to_value(secret).unwrap())
    }
}

impl Ask {
    fn object(&self) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "NodePullSecret",
            "metadata": {
                "uid": "5f0c8ab2-0000-4000-8000-000000000001", "generation": self.generation,
                "annotations": {MAY_REPLACE_ANNOTATION: self.may_replace},
            },
            "spec": {
                "revision": self.revision.unwrap_or(0), "revisionId": REVISION_ID,
                "restore": self.revision.is_none(),
                "kubeletVersion": self.kubelet_version, "foreignOwner": self.foreign_owner,
                "updatedInPlace": self.updated_in_place,
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
    /// Generation of the object that the status describes.
    generation: i64,
    asked: i64,
}

impl Reported {
    fn new(object: &Value) -> Self {
        let status = &object["status"];
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        Self {
            phase: text("phase"),
            reason: text("reason"),
            message: text("message"),
            generation: status["observedGeneration"].as_i64().unwrap_or_default(),
            asked: object["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default(),
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
    api: FakeApi,
}

/// The path of the node's object.
fn node_path() -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/nodepullsecrets/{NODE}")
}

impl Api {
    /// Serves until the runtime ends.
    pub(super) async fn serve(ask: Ask) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let authority = Authority::new()?;
        let acceptor = acceptor(&authority.issue(&["127.0.0.1"], Validity::Now)?)?;
        let api = FakeApi::default().unrecorded();
        let served = api.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (accepted, api) = (acceptor.accept(stream), served.clone());
                // An error here means that the client has disconnected.
                tokio::spawn(async move {
                    api.serve(accepted.await?).await;
                    anyhow::Ok(())
                });
            }
        });
        let api = Self {
            address,
            authority,
            api,
        };
        api.ask(Some(ask));
        Ok(api)
    }

    /// Host and port.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes the files of a pod's service account.
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

    /// Changes the object; `None` deletes it. Its content is then in `global-pull-secret`.
    pub(super) fn ask(&self, ask: Option<Ask>) {
        if let Some(ask) = &ask {
            self.secret(GLOBAL_SECRET, ask.secret());
        }
        self.assign(ask);
    }

    /// Changes only the object, but not its status.
    pub(super) fn assign(&self, ask: Option<Ask>) {
        let mut state = self.api.state();
        let Some(mut object) = ask.map(|ask| ask.object()) else {
            state.remove(&node_path());
            return;
        };
        if let Some(before) = state.objects.get(&node_path()) {
            object["status"] = before["status"].clone();
        }
        state.store(&node_path(), object);
    }

    /// From now on answers every request with 401, and ends the watches.
    pub(super) fn reject(&self) {
        let rejected = |_: &mut _, _: &mut _| Some(failure(401, "Unauthorized", "Unauthorized"));
        let _ = self.api.clone().with_rule(rejected);
        self.api.state().end_watches();
    }

    pub(super) fn secret(&self, name: &str, secret: Secret) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let value = secret.value();
        let fault = value.as_ref().err().map(|code| Fault::Code(*code));
        self.api.fail(&format!("get {path}"), fault);
        if let Ok(secret) = value {
            self.api.state().store(&path, secret);
        }
    }

    pub(super) fn status(&self) -> Option<Value> {
        let object = self.api.object(&node_path())?;
        object.get("status").filter(|it| !it.is_null()).cloned()
    }

    pub(super) fn reported(&self) -> Option<Reported> {
        self.status()?;
        Some(Reported::new(&self.api.object(&node_path())?))
    }
}
