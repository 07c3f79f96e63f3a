//! A member cluster of the soak and its events: a real API server, or a simulated one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, GROUP, HUB, SECRET_TYPE};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::fleet::lies::{Asked, Lie};
use crate::fleet::member::Member;
use crate::fleet::members::Members;
use crate::fleet::objects::unless;
use crate::fleet::stage::Stage;
use crate::pki::Authority;
use crate::product::NAMESPACE;

/// Field manager of another client.
const PERSON: &str = "person";
/// Another client's key in the Secret.
pub(super) const KEY: &str = "of-others";
/// Group in the client certificates with which a real member authenticates the hub.
const HUBS: &str = "hubs";
/// User name in them.
pub(super) const HUB_USER: &str = "hub";

/// Whether a member's API server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Up,
    /// Accepts connections but does not respond.
    Frozen,
    /// Refuses connections.
    Down,
}

/// How another client changed the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takeover {
    /// It replaced the content.
    Content,
    /// It replaced the Secret by one of another type.
    Type,
}

pub(super) struct Place {
    pub(super) name: String,
    kind: Kind,
    pub(super) server: Server,
    pub(super) is_selected: bool,
    pub(super) takeover: Option<Takeover>,
    pub(super) has_key: bool,
}

enum Kind {
    Real(Box<Real>),
    Simulated(usize),
}

struct Real {
    stage: Stage,
    client: Client,
    /// Token of the hub's service account in the member.
    token: String,
    /// Whether the hub uses the token; otherwise it uses a certificate.
    has_token: bool,
}

impl Real {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }
}

impl Place {
    pub(super) fn simulated(members: &Members, at: usize) -> Self {
        Self::of(members.member(at).name(), Kind::Simulated(at))
    }

    /// A control plane without nodes, in which the hub may access one Secret.
    pub(super) async fn real(number: usize) -> Result<Self> {
        let name = format!("real-{number}");
        let stage = Stage::bare(&format!("hub-soak-{number}"))?;
        stage.apply(permissions())?;
        let create = ["create", "token", HUB, "-n", NAMESPACE, "--duration=12h"];
        let real = Real {
            client: stage.admin_client().await?,
            token: stage.cluster.kubectl(&create)?.trim().to_owned(),
            stage,
            has_token: false,
        };
        Ok(Self::of(&name, Kind::Real(Box::new(real))))
    }

    fn of(name: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            server: Server::Up,
            is_selected: true,
            takeover: None,
            has_key: false,
        }
    }

    pub(super) fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real(_))
    }

    /// A client of a real member's admin.
    pub(super) fn client(&self) -> Option<&Client> {
        match &self.kind {
            Kind::Real(real) => Some(&real.client),
            Kind::Simulated(_) => None,
        }
    }

    /// Gives the hub a new identity in the member; the previous one may become invalid.
    pub(super) fn rotate(&mut self, members: &Members) {
        match &mut self.kind {
            Kind::Real(real) => real.has_token ^= true,
            Kind::Simulated(at) => members.member(*at).rotate_token(),
        }
    }

    pub(super) fn kubeconfig(&self, members: &Members) -> Result<String> {
        let real = match &self.kind {
            Kind::Real(real) => real,
            Kind::Simulated(at) => return Ok(members.kubeconfig(*at)),
        };
        let layout = real.stage.cluster.layout();
        let config = Authority::load(layout)?.kubeconfig(layout, HUB_USER, Some(HUBS))?;
        if !real.has_token {
            return Ok(config);
        }
        let mut config: Value = serde_json::from_str(&config)?;
        config["users"][0]["user"] = json!({"token": real.token});
        Ok(config.to_string())
    }

    pub(super) async fn cut(&mut self, members: &Members, server: Server) -> Result<()> {
        self.server = server;
        match (&self.kind, server) {
            (_, Server::Up) => {}
            (Kind::Real(real), Server::Frozen) => {
                real.stage.cluster.signal("kube-apiserver", "STOP")?;
            }
            (Kind::Real(real), Server::Down) => {
                real.stage.cluster.signal("kube-apiserver", "KILL")?;
            }
            (Kind::Simulated(at), Server::Frozen) => members.member(*at).set_frozen(true),
            (Kind::Simulated(at), Server::Down) => members.take_away(*at).await,
        }
        Ok(())
    }

    pub(super) async fn mend(&mut self, members: &Members) -> Result<()> {
        match (&self.kind, self.server) {
            (_, Server::Up) => {}
            (Kind::Real(real), Server::Frozen) => {
                real.stage.cluster.signal("kube-apiserver", "CONT")?;
            }
            (Kind::Real(real), Server::Down) => {
                let cluster = &real.stage.cluster;
                tokio::task::block_in_place(|| cluster.restart_api_server(Duration::ZERO))?;
            }
            (Kind::Simulated(at), Server::Frozen) => members.member(*at).set_frozen(false),
            (Kind::Simulated(at), Server::Down) => members.bring_back(*at),
        }
        self.server = Server::Up;
        Ok(())
    }

    /// Sets whether the nodes of a simulated member fail.
    pub(super) fn set_failing(&self, members: &Members, fails: bool) {
        if let Kind::Simulated(at) = self.kind {
            members.member(at).set_failing(fails);
        }
    }

    /// Makes a simulated member report the identity of the one with this name; `None`: its own. The hub reconnects.
    pub(super) async fn claim(&self, members: &Members, name: Option<&str>) {
        let Kind::Simulated(at) = self.kind else {
            return;
        };
        if name.is_none() && members.member(at).lie().is_none() {
            return;
        }
        let uid = name.map(|name| json!({"metadata": {"uid": format!("uid-of-{name}")}}));
        let lie = uid.map(|uid| Lie::Says(Asked::Namespace, uid));
        members.member(at).set_lie(lie);
        if self.server == Server::Up {
            members.take_away(at).await;
            members.bring_back(at);
        }
    }

    pub(super) async fn secret(&self, members: &Members) -> Result<Option<Value>> {
        match &self.kind {
            Kind::Simulated(at) => Ok(members.member(*at).secret()),
            Kind::Real(real) => {
                let secret = real.secrets().get_opt(ADDITIONAL_SECRET).await?;
                Ok(secret.map(serde_json::to_value).transpose()?)
            }
        }
    }

    /// Takes over the Secret like another client: forces the ownership of fields, or recreates the Secret with another
    /// type. Like the next two functions, does nothing if no client can reach the member.
    pub(super) async fn take_over(&mut self, members: &Members, how: Takeover) -> Result<()> {
        if self.server != Server::Up {
            return Ok(());
        }
        if how == Takeover::Type {
            self.delete(members).await?;
        }
        let is_done = match (&self.kind, how) {
            (Kind::Simulated(at), Takeover::Content) => {
                members.member(*at).interfere(force_content);
                true
            }
            (Kind::Simulated(at), Takeover::Type) => {
                let secret = of_type("Opaque");
                members.member(*at).interfere(|it| *it = Some(secret));
                true
            }
            (Kind::Real(real), Takeover::Content) => {
                let patch = Patch::Apply(of_type(SECRET_TYPE));
                let (api, params) = (real.secrets(), PatchParams::apply(PERSON).force());
                let written = api.patch(ADDITIONAL_SECRET, &params, &patch).await;
                // A Secret of another type stays.
                unless(&[422], written)?
            }
            (Kind::Real(real), Takeover::Type) => {
                let secret = serde_json::from_value(of_type("Opaque"))?;
                let created = real.secrets().create(&PostParams::default(), &secret).await;
                // The hub may recreate it first.
                unless(&[409], created)?
            }
        };
        if is_done {
            self.takeover = Some(how);
        }
        Ok(())
    }

    pub(super) async fn put_key(&mut self, members: &Members) -> Result<()> {
        if self.server != Server::Up {
            return Ok(());
        }
        let is_there = match &self.kind {
            Kind::Simulated(at) => put_key(members.member(*at)),
            Kind::Real(real) => {
                let patch = Patch::Merge(json!({"data": {KEY: "eA=="}}));
                let (api, params) = (real.secrets(), PatchParams::default());
                unless(&[404], api.patch(ADDITIONAL_SECRET, &params, &patch).await)?
            }
        };
        self.has_key |= is_there;
        Ok(())
    }

    pub(super) async fn delete(&mut self, members: &Members) -> Result<()> {
        if self.server != Server::Up {
            return Ok(());
        }
        match &self.kind {
            Kind::Simulated(at) => members.member(*at).interfere(|secret| *secret = None),
            Kind::Real(real) => {
                let (api, params) = (real.secrets(), DeleteParams::default());
                unless(&[404], api.delete(ADDITIONAL_SECRET, &params).await)?;
            }
        }
        (self.takeover, self.has_key) = (None, false);
        Ok(())
    }
}

/// Content of the other client's Secret.
pub(super) fn theirs() -> String {
    let config =
        json!({"auths": {"theirs.example.com": {"auth": BASE64_STANDARD.encode("u:th3irs")}}});
    BASE64_STANDARD.encode(config.to_string())
}

fn of_type(type_: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": type_, "data": {DATA_KEY: theirs()},
        "metadata": {"name": ADDITIONAL_SECRET, "namespace": NAMESPACE},
    })
}

/// Changes the content; the hub's other fields stay.
fn force_content(secret: &mut Option<Value>) {
    let mut taken = secret.take().unwrap_or_else(|| of_type(SECRET_TYPE));
    taken["data"][DATA_KEY] = json!(theirs());
    let entry = json!({
        "manager": PERSON, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}},
    });
    taken["metadata"]["managedFields"] = json!([entry]);
    *secret = Some(taken);
}

fn put_key(member: &Arc<Member>) -> bool {
    let mut is_there = false;
    member.interfere(|secret| {
        if let Some(secret) = secret {
            secret["data"][KEY] = json!("eA==");
            is_there = true;
        }
    });
    is_there
}

/// The hub's permissions in a member, for its certificate or its token.
fn permissions() -> Value {
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({"name": HUB, "namespace": NAMESPACE});
    let subjects = json!([
        {"kind": "Group", "name": HUBS, "apiGroup": rbac},
        {"kind": "ServiceAccount", "name": HUB, "namespace": NAMESPACE},
    ]);
    let verbs = ["get", "list", "watch", "create", "patch", "delete"];
    let role = |kind: &str| json!({"kind": kind, "name": HUB, "apiGroup": rbac});
    let version = format!("{rbac}/v1");
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [ADDITIONAL_SECRET], "verbs": verbs},
            {"apiGroups": [GROUP], "resources": ["globalpullsecrets"], "resourceNames": [GLOBAL_SECRET],
                "verbs": ["get", "list", "watch"]},
        ]},
        {"apiVersion": version, "kind": "RoleBinding", "metadata": metadata, "roleRef": role("Role"),
            "subjects": subjects},
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": HUB}, "rules": [
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": [NAMESPACE], "verbs": ["get"]},
        ]},
        {"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": HUB},
            "roleRef": role("ClusterRole"), "subjects": subjects},
    ]})
}
