//! Kills the hub at each of its writes, on the management cluster and in the simulated members.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::names::{
    CLUSTER_LABEL, DATA_KEY, FLEET_LABEL, HUB, RETRY_ANNOTATION, REVISION_ANNOTATION, SECRET_TYPE,
    cluster_pull_secret, fleet_revision,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::gate::Gate;
use super::{Objects, Outcome, Scene, kill_at_each_write};
use crate::fleet::hub_stage::{CLUSTERS, HubStage};
use crate::fleet::member::Admission;
use crate::fleet::members::Members;

/// Name of the `FleetPullSecret` and of its source.
const FLEET: &str = "shared";
/// Time until each node of a member has a new Secret.
const TIME: Duration = Duration::from_millis(20);
/// The members: the first one to get a revision; one whose Secret has another client's key; one that is only selected
/// at times; and one that is never selected and has another client's Secret.
const CANARY: usize = 0;
const SHARED: usize = 1;
const GUEST: usize = 2;
const OTHER: usize = 3;
const MEMBERS: usize = 4;
const KEY: &str = "of-others";

/// A change to which the hub reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Create,
    Rotate,
    Fail,
    Retry,
    FailAgain,
    RotateOn,
    Add,
    Unselect,
    Delete,
}

/// Made in turn; each change starts from the state after the previous one.
const CHANGES: [Change; 9] = [
    Change::Create,
    Change::Rotate,
    Change::Fail,
    Change::Retry,
    Change::FailAgain,
    Change::RotateOn,
    Change::Add,
    Change::Unselect,
    Change::Delete,
];

struct World<'a> {
    stage: &'a HubStage,
    client: Client,
    members: Members,
    /// Secrets of other clients, in their original state.
    others: Objects,
    /// UID of the `FleetPullSecret`; `None`: it does not exist.
    fleet: Option<String>,
    /// Number of the newest revision.
    revision: i64,
    /// Number in the source's password.
    content: u32,
    retries: u32,
    /// Expected revision and content of each member.
    has: [Option<(i64, u32)>; MEMBERS],
    /// Whether the canary's nodes failed with the newest revision.
    has_failed: bool,
    /// The content of each revision seen so far, by the UID of its `FleetPullSecret` and its number.
    seen: Mutex<BTreeMap<(String, i64), String>>,
}

pub fn run() -> Result<Vec<Outcome<Change>>> {
    let stage = HubStage::up("hub-kills")?;
    let operations = ["CREATE", "UPDATE", "DELETE"];
    let rules = json!([
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": operations},
        {"apiGroups": ["globalps.io"], "apiVersions": ["*"], "operations": operations, "resources": [
            "fleetpullsecrets", "fleetpullsecrets/status", "clusterpullsecrets", "clusterpullsecrets/status",
        ]},
    ]);
    let gate = Gate::new(&stage.stage, HUB, &rules)?;
    let admission: Admission = Arc::new(gate.admission());
    kill_at_each_write(&gate, World::new(&stage, admission), &CHANGES)
}

impl<'a> World<'a> {
    /// Creates the members, and objects of other clients in the same places.
    async fn new(stage: &'a HubStage, admission: Admission) -> Result<Self> {
        let mut world = Self {
            stage,
            client: stage.admin_client().await?,
            members: Members::start(MEMBERS, TIME, true, Some(admission)).await?,
            others: Objects::new(),
            fleet: None,
            revision: 0,
            content: 0,
            retries: 0,
            has: [None; MEMBERS],
            has_failed: false,
            seen: Mutex::default(),
        };
        for at in [CANARY, SHARED, OTHER] {
            world.register(at, at != OTHER).await?;
        }
        let theirs = json!({"metadata": {"name": "theirs"}, "stringData": {"key": "theirs"}});
        world.apply_secret(theirs).await?;
        // A revision of a FleetPullSecret that does not exist.
        let revision = json!({
            "metadata": {
                "name": "other-revision-1", "labels": {FLEET_LABEL: "other"},
                "annotations": {REVISION_ANNOTATION: "1"},
            },
            "type": SECRET_TYPE, "stringData": {DATA_KEY: config(1)},
        });
        world.apply_secret(revision).await?;
        world.members.member(OTHER).interfere(|secret| {
            *secret = Some(json!({
                "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
                "metadata": {"name": "additional-pull-secret", "uid": "theirs"},
                "data": {DATA_KEY: BASE64_STANDARD.encode(config(1))},
            }));
        });
        let theirs = world.members.member(OTHER).secret();
        let key = world.members.member(OTHER).name().to_owned();
        world.others.insert(key, theirs.context("a Secret")?);
        Ok(world)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), CLUSTERS)
    }

    fn fleets(&self) -> Api<FleetPullSecret> {
        Api::namespaced(self.client.clone(), CLUSTERS)
    }

    fn clusters(&self) -> Api<ClusterPullSecret> {
        Api::namespaced(self.client.clone(), CLUSTERS)
    }

    /// Applies a Secret of another client.
    async fn apply_secret(&mut self, mut secret: Value) -> Result<()> {
        (secret["apiVersion"], secret["kind"]) = (json!("v1"), json!("Secret"));
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply("kills").force();
        let secret = Patch::Apply(&secret);
        let secret = self.secrets().patch(name, &params, &secret).await?;
        self.others.insert(secret_key(&secret), all_of(&secret)?);
        Ok(())
    }

    async fn register(&mut self, at: usize, is_selected: bool) -> Result<()> {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let labels = json!({
            CLUSTER_LABEL: "true", "selected": yes(is_selected), "canary": yes(at == CANARY),
        });
        let secret = json!({
            "metadata": {"name": self.members.member(at).name(), "labels": labels},
            "stringData": {"kubeconfig": self.members.kubeconfig(at)},
        });
        self.apply_secret(secret).await
    }

    /// The garbage collector does not run: revisions of the previous `FleetPullSecret` still exist and must not be used.
    async fn create(&mut self) -> Result<()> {
        self.rotate(&[CANARY, SHARED]).await?;
        let fleet = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret", "metadata": {"name": FLEET},
            "spec": {
                "secretRef": {"name": FLEET},
                "registered": {"selector": {"matchLabels": {"selected": "yes"}}},
                "rollout": {
                    "maxUnavailable": 1, "canary": {"clusterSelector": {"matchLabels": {"canary": "yes"}}},
                },
            },
        });
        let params = PatchParams::apply("kills").force();
        let fleet = Patch::Apply(&fleet);
        let fleet = self.fleets().patch(FLEET, &params, &fleet).await?;
        self.fleet = fleet.uid();
        Ok(())
    }

    /// The number of the next revision. Skips numbers in the names of Secrets that belong to another `FleetPullSecret`.
    async fn next_revision(&self) -> Result<i64> {
        let of_fleet = ListParams::default().labels(&format!("{FLEET_LABEL}={FLEET}"));
        let secrets = self.secrets().list(&of_fleet).await?;
        let is_of_another = |secret: &&Secret| {
            let mut owners = secret.owner_references().iter();
            owners.all(|owner| Some(&owner.uid) != self.fleet.as_ref())
        };
        let names = secrets.iter().filter(is_of_another);
        let taken: BTreeSet<String> = names.map(kube::ResourceExt::name_any).collect();
        let last = self.fleet.as_ref().map_or(0, |_| self.revision);
        let is_free = |number: &i64| !taken.contains(&fleet_revision(FLEET, *number));
        (last + 1..).find(is_free).context("a number")
    }

    /// Changes the source's content, which these members get.
    async fn rotate(&mut self, members: &[usize]) -> Result<()> {
        self.revision = self.next_revision().await?;
        self.content += 1;
        self.assign(members);
        let source = json!({
            "metadata": {"name": FLEET}, "type": SECRET_TYPE, "stringData": {DATA_KEY: config(self.content)},
        });
        self.apply_secret(source).await
    }

    fn assign(&mut self, members: &[usize]) {
        for at in members {
            self.has[*at] = Some((self.revision, self.content));
        }
    }

    async fn fail(&mut self) -> Result<()> {
        self.has_failed = true;
        self.members.member(CANARY).set_failing(true);
        self.rotate(&[CANARY]).await
    }

    async fn recover(&mut self, is_retried: bool) -> Result<()> {
        self.has_failed = false;
        self.members.member(CANARY).set_failing(false);
        if !is_retried {
            return self.rotate(&[CANARY, SHARED]).await;
        }
        self.assign(&[CANARY, SHARED]);
        self.retries += 1;
        let patch =
            json!({"metadata": {"annotations": {RETRY_ANNOTATION: self.retries.to_string()}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let name = self.object_name(CANARY);
        self.clusters().patch(&name, &params, &patch).await?;
        Ok(())
    }

    fn object_name(&self, at: usize) -> String {
        cluster_pull_secret(self.members.member(at).name(), CLUSTERS, FLEET)
    }

    fn set_key_of_others(&self, is_there: bool) {
        self.members.member(SHARED).interfere(|secret| {
            let data = secret.as_mut().map(|secret| &mut secret["data"]);
            if let Some(Value::Object(data)) = data {
                data.remove(KEY);
                if is_there {
                    data.insert(KEY.to_owned(), json!("eA=="));
                }
            }
        });
    }
}

fn config(content: u32) -> String {
    let entry = json!({"username": "u", "password": format!("p{content}")});
    json!({"auths": {"fleet.example.com": entry}}).to_string()
}

fn secret_key(secret: &Secret) -> String {
    format!("Secret {}", secret.name_any())
}

fn all_of(secret: &Secret) -> Result<Value> {
    let mut secret = secret.clone();
    secret.metadata.managed_fields = None;
    Ok(serde_json::to_value(secret)?)
}

impl Scene for World<'_> {
    type Change = Change;
    const PROGRAM: &'static str = HUB;

    fn client(&self) -> &Client {
        &self.client
    }

    fn start(&self) -> Result<u32> {
        Ok(self.stage.start()?.pid)
    }

    async fn make(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Create => self.create().await,
            Change::Rotate => self.rotate(&[CANARY, SHARED]).await,
            Change::Add => {
                self.set_key_of_others(true);
                let name = self.members.member(GUEST).name().to_owned();
                // A new Secret replaces the previous one of the same name.
                if self.others.remove(&format!("Secret {name}")).is_some() {
                    let params = DeleteParams::default();
                    self.secrets().delete(&name, &params).await?;
                }
                self.assign(&[GUEST]);
                self.register(GUEST, true).await
            }
            Change::Fail | Change::FailAgain => self.fail().await,
            Change::Retry => self.recover(true).await,
            Change::RotateOn => self.recover(false).await,
            Change::Unselect => {
                self.set_key_of_others(false);
                self.has[GUEST] = None;
                self.register(GUEST, false).await
            }
            Change::Delete => {
                (self.fleet, self.has) = (None, [None; MEMBERS]);
                let params = DeleteParams::default();
                self.fleets().delete(FLEET, &params).await?;
                Ok(())
            }
        }
    }

    fn circle(&self, change: Change) -> &'static [Change] {
        use Change::{Add, Create, Delete, Fail, FailAgain, Retry, Rotate, RotateOn, Unselect};
        match change {
            Rotate => &[Rotate],
            Fail | Retry => &[Fail, Retry],
            FailAgain | RotateOn => &[FailAgain, RotateOn],
            Add | Unselect => &[Add, Unselect],
            Create | Delete => &[],
        }
    }

    async fn found(&self) -> Result<Objects> {
        let mut found = Objects::new();
        for secret in self.secrets().list(&ListParams::default()).await? {
            let of = secret.labels().get(FLEET_LABEL);
            if of.is_none_or(|of| of != FLEET) {
                found.insert(secret_key(&secret), all_of(&secret)?);
            }
        }
        for at in 0..MEMBERS {
            let key = self.members.member(at).name().to_owned();
            found.extend(self.seen_in(at)?.map(|seen| (key, seen)));
        }
        Ok(found)
    }

    fn wanted(&self) -> Objects {
        let mut wanted = self.others.clone();
        let has_key = self.has[GUEST].is_some();
        let of = format!("{CLUSTERS}/{FLEET}");
        for (at, has) in self.has.iter().enumerate() {
            let Some((revision, content)) = has else {
                continue;
            };
            let key = if at == SHARED && has_key {
                json!("eA==")
            } else {
                Value::Null
            };
            let seen = json!([of, revision.to_string(), config(*content), key]);
            wanted.insert(self.members.member(at).name().to_owned(), seen);
        }
        wanted
    }

    async fn check_between(&self, _: &Objects) -> Result<()> {
        self.check_contents().await?;
        self.check_limit().await
    }

    async fn check_status(&self) -> Result<()> {
        self.check_contents().await?;
        self.check_limit().await?;
        self.check_objects().await
    }
}
