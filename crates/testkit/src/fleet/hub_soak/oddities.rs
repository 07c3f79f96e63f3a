//! Odd values in objects of the management cluster that others may write, and refused writes of the hubs.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use globalps_core::names::{
    ADDITIONAL_SECRET, CONTROLLER_NAMESPACE, HUB, cluster_pull_secret, fleet_revision,
};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use super::place::{HUB_USER, Server};
use super::{FLEETS, Hubs};
use crate::fleet::hub_stage::CLUSTERS;
use crate::fleet::objects::unless_gone;
use crate::fleet::odd_values::fields::{ANNOTATION, LABEL, at_path, paths, replaced, values};
use crate::fleet::odd_values::objects::{CRD, Objects, Target, resource, target};
use crate::product::NAMESPACE;
use crate::refuser::{REFUSER, Refused, Refuser};
use crate::rights::service_account;

const SECRET: (&str, &str, &str) = ("", "v1", "Secret");
const LEASE: (&str, &str, &str) = ("coordination.k8s.io", "v1", "Lease");
const FLEET: (&str, &str, &str) = (CRD, "v1alpha1", "FleetPullSecret");
const OBJECT: (&str, &str, &str) = (CRD, "v1alpha1", "ClusterPullSecret");

/// Where the hubs' writes are refused: in the management cluster, or in the real member with this index.
type Where = Option<usize>;

/// The disturbances of the hubs until the end of the iteration.
pub(super) struct Oddities<'a> {
    refuser: &'a Refuser,
    refused: BTreeSet<Where>,
    left: Vec<Odd>,
}

/// An odd value that was written.
struct Odd {
    kind: (&'static str, &'static str, &'static str),
    namespace: &'static str,
    name: String,
    path: String,
    before: Value,
    /// The value as the API server stored it.
    odd: Value,
}

impl<'a> Oddities<'a> {
    pub(super) fn new(refuser: &'a Refuser) -> Self {
        Self {
            refuser,
            refused: BTreeSet::new(),
            left: Vec::new(),
        }
    }
}

impl Hubs<'_> {
    /// Writes an odd value to an object that the API server accepts.
    pub(super) async fn put_odd_value(&mut self) -> Result<()> {
        let place = self.events.random.usize(0..self.places.len());
        let fleet = self.events.random.usize(0..FLEETS.len());
        let (what, at) = (self.events.random.u8(0..4), self.events.random.u16(..));
        let mut values = values();
        self.events.random.shuffle(&mut values);
        let cluster = self.places[place].name.clone();
        let (kind, namespace, name) = match what {
            0 => (SECRET, CLUSTERS, cluster),
            1 => (
                OBJECT,
                CLUSTERS,
                cluster_pull_secret(&cluster, CLUSTERS, FLEETS[self.fleet_of(place)]),
            ),
            2 => (FLEET, CLUSTERS, FLEETS[fleet].to_owned()),
            _ => (LEASE, CONTROLLER_NAMESPACE, HUB.to_owned()),
        };
        let (objects, target) = (self.objects_of_all(), aim(kind, namespace, &name));
        let Some(object) = there(objects.get(&target).await)? else {
            return Ok(());
        };
        let found = odd_paths(&object, kind);
        let path = found
            .get(usize::from(at) % found.len().max(1))
            .context("no field")?;
        for value in values {
            let patch = replaced(&object, path, value);
            let is_status = path.starts_with("/status");
            let Ok(stored) = objects.patch(&target, &patch, is_status).await else {
                continue;
            };
            self.events.count("odd value accepted", true);
            self.oddities.left.push(Odd {
                kind,
                namespace,
                path: path.clone(),
                before: at_path(&object, path),
                odd: at_path(&stored, path),
                name,
            });
            break;
        }
        Ok(())
    }

    /// Refuses the hubs' writes of one object, in the management cluster or in a real member.
    pub(super) async fn refuse_writes(&mut self) -> Result<()> {
        let place = self.events.random.usize(0..self.places.len());
        let fleet = FLEETS[self.events.random.usize(0..FLEETS.len())];
        let (what, is_silent) = (
            self.events.random.u8(0..4),
            self.events.random.u8(0..3) == 0,
        );
        let of_cluster = &self.places[place];
        let real = (what == 0 && of_cluster.is_real()).then_some(place);
        let (client, kind, namespace, name) = match (real, what) {
            // No client can reach the member.
            (Some(_), _) if of_cluster.server != Server::Up => return Ok(()),
            (Some(_), _) => {
                let client = of_cluster.client().context("no client")?;
                let name = ADDITIONAL_SECRET.to_owned();
                (client, "secrets", NAMESPACE, name)
            }
            (None, 1) => {
                let name = fleet_revision(fleet, 0);
                let name = name.trim_end_matches('0').to_owned();
                (&self.client, "secrets", CLUSTERS, name)
            }
            (None, 2) => (&self.client, "fleetpullsecrets", CLUSTERS, fleet.to_owned()),
            (None, _) => {
                let fleet = FLEETS[self.fleet_of(place)];
                let name = cluster_pull_secret(&of_cluster.name, CLUSTERS, fleet);
                (&self.client, "clusterpullsecrets", CLUSTERS, name)
            }
        };
        let account = service_account(
            if real.is_some() {
                NAMESPACE
            } else {
                CONTROLLER_NAMESPACE
            },
            HUB,
        );
        let refused = Refused {
            kind,
            namespace: namespace.to_owned(),
            name,
        };
        let refuser = self.oddities.refuser;
        let webhook = refuser.configuration(&[&account, HUB_USER], &refused, is_silent);
        let params = PatchParams::apply("soak").force();
        let webhooks = webhooks(client);
        // Set even if the response is lost.
        self.oddities.refused.insert(real);
        webhooks
            .patch(REFUSER, &params, &Patch::Apply(&webhook))
            .await?;
        self.events.count("writes of an object refused", true);
        Ok(())
    }

    /// Allows all writes, and reverts the values that no other client has replaced. Every API server must be up.
    pub(super) async fn end_oddities(&mut self) -> Result<()> {
        while let Some(real) = self.oddities.refused.first().copied() {
            let client = match real {
                Some(at) => self.places[at].client().context("no client")?,
                None => &self.client,
            };
            let (webhooks, params) = (webhooks(client), DeleteParams::default());
            let deleted = webhooks.delete(REFUSER, &params).await;
            unless_gone(deleted)?;
            self.oddities.refused.remove(&real);
        }
        let objects = self.objects_of_all();
        while let Some(odd) = self.oddities.left.pop() {
            let target = aim(odd.kind, odd.namespace, &odd.name);
            let Some(now) = there(objects.get(&target).await)? else {
                continue;
            };
            if at_path(&now, &odd.path) == odd.odd && odd.odd != odd.before {
                let patch = replaced(&now, &odd.path, odd.before);
                let is_status = odd.path.starts_with("/status");
                there(objects.patch(&target, &patch, is_status).await)?;
            }
        }
        Ok(())
    }

    fn objects_of_all(&self) -> Objects {
        Objects {
            client: self.client.clone(),
        }
    }
}

fn aim<'a>(
    kind: (&'static str, &'static str, &'static str),
    namespace: &'a str,
    name: &'a str,
) -> Target<'a> {
    target(kind, Some(namespace), name, &[])
}

/// Excludes fields whose meaning is up to other clients: a label selects clusters, and with another holder another hub leads.
fn odd_paths(object: &Value, kind: (&str, &str, &str)) -> Vec<String> {
    let mut found = paths(object, kind.2);
    found.extend([ANNOTATION, LABEL].map(str::to_owned));
    found.retain(|path| match kind.2 {
        "Lease" => path.starts_with("/spec/") && path != "/spec/holderIdentity",
        "FleetPullSecret" => path.starts_with("/status/") || path == ANNOTATION || path == LABEL,
        _ => path.starts_with("/metadata/annotations/") || path == LABEL,
    });
    found.into_iter().collect()
}

fn webhooks(client: &Client) -> Api<DynamicObject> {
    let kind = (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    );
    Api::all_with(client.clone(), &resource(kind))
}

/// `None` if the object does not exist.
fn there(found: Result<Value>) -> Result<Option<Value>> {
    match found {
        Ok(object) => Ok(Some(object)),
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            _ => Err(error),
        },
    }
}
