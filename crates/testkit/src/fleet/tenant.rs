//! A user who may write every object in one namespace of the hub and owns clusters tries to exhaust the hub, and to
//! access other users' objects.

use anyhow::Result;
use fastrand::Rng;
use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::names::{
    CLUSTER_LABEL, DATA_KEY, FLEET_LABEL, REVISION_ANNOTATION, cluster_pull_secret,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::lies::{Asked, Lie};
use super::objects::unless_gone;
use crate::product::pull_secret;

/// The tenant's namespace.
pub const TENANT: &str = "tenant";
/// Name of its `FleetPullSecret`.
const NAME: &str = "shared";
const FILLING: &str = "filling";

pub struct Tenant {
    client: Client,
    /// Number in the names of its objects.
    number: usize,
}

impl Tenant {
    /// Creates a `FleetPullSecret` that selects every cluster in the namespace.
    pub async fn new(client: Client) -> Result<Self> {
        let tenant = Self {
            client,
            // Doesn't collide with the hub's numbers.
            number: 1000,
        };
        let config = json!({"auths": {"tenant.example.com": {"auth": "dTpw"}}});
        let secret = pull_secret(TENANT, NAME, &config.to_string());
        tenant.apply(NAME, &secret).await?;
        let fleet = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret", "metadata": {"name": NAME},
            "spec": {
                "secretRef": {"name": NAME}, "requireNodes": false, "registered": {},
                "rollout": {"maxUnavailable": "100%"},
            },
        });
        let fleets: Api<FleetPullSecret> = Api::namespaced(tenant.client.clone(), TENANT);
        let (params, patch) = (PatchParams::apply("tenant").force(), Patch::Apply(&fleet));
        fleets.patch(NAME, &params, &patch).await?;
        Ok(tenant)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), TENANT)
    }

    fn objects(&self) -> Api<ClusterPullSecret> {
        Api::namespaced(self.client.clone(), TENANT)
    }

    async fn apply(&self, name: &str, secret: &Value) -> Result<()> {
        let (params, patch) = (PatchParams::apply("tenant").force(), Patch::Apply(secret));
        self.secrets().patch(name, &params, &patch).await?;
        Ok(())
    }

    fn next(&mut self) -> usize {
        self.number += 1;
        self.number
    }

    /// Creates Secrets of this size that register a cluster, have the label of Cluster API, and are named like
    /// revisions of its own `FleetPullSecret` or of another one (`owner`: its uid).
    pub async fn fill(&mut self, number: usize, size: usize, owner: Option<&str>) -> Result<()> {
        for _ in 0..number {
            let at = self.next();
            let owners = owner.map(|uid| {
                json!([{
                    "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret", "name": NAME, "uid": uid,
                }])
            });
            let content = vec![b'x'; size / 2];
            let secret = json!({
                "metadata": {
                    "name": format!("{NAME}-revision-{at}"),
                    "labels": {
                        CLUSTER_LABEL: "true", FLEET_LABEL: NAME, "cluster.x-k8s.io/cluster-name": "x",
                        "of": FILLING,
                    },
                    "annotations": {REVISION_ANNOTATION: at.to_string()},
                    "ownerReferences": owners,
                },
                "data": {"value": ByteString(content.clone()), DATA_KEY: ByteString(content)},
            });
            let secret = serde_json::from_value(secret)?;
            let params = PostParams::default();
            self.secrets().create(&params, &secret).await?;
        }
        Ok(())
    }

    /// Deletes the objects with which it filled the namespace.
    pub async fn empty(&self) -> Result<()> {
        let filling = ListParams::default().labels(&format!("of={FILLING}"));
        let params = DeleteParams::default();
        self.secrets().delete_collection(&params, &filling).await?;
        Ok(())
    }

    /// Creates and deletes objects of clusters, each with a new name, an assignment of the newest revision, and another
    /// identity in its status.
    pub async fn pass_names(&mut self, number: usize) -> Result<()> {
        for _ in 0..number {
            let cluster = format!("none-{}", self.next());
            let (fleet, is_named) = match self.number % 3 {
                0 => (format!("{TENANT}/{NAME}"), true),
                1 => (format!("{TENANT}/none-{}", self.number), true),
                _ => (format!("{TENANT}/{NAME}"), false),
            };
            let (namespace, of) = fleet.split_once('/').unwrap_or_default();
            let name = if is_named {
                cluster_pull_secret(&cluster, namespace, of)
            } else {
                cluster.clone()
            };
            let object = json!({
                "metadata": {"name": name, "annotations": {"x": "y".repeat(10_000)}},
                "spec": {"fleet": fleet, "cluster": cluster, "revision": 1, "remove": self.number.is_multiple_of(2)},
            });
            let object = serde_json::from_value(object)?;
            let params = PostParams::default();
            self.objects().create(&params, &object).await?;
            let deleted = self.objects().delete(&name, &DeleteParams::default()).await;
            unless_gone(deleted)?;
        }
        Ok(())
    }

    /// Replaces the object of each of its clusters by one with an assignment and a status.
    pub async fn replace_objects(&self) -> Result<()> {
        for object in self.objects().list(&ListParams::default()).await? {
            let name = object.name_any();
            let deleted = self.objects().delete(&name, &DeleteParams::default()).await;
            unless_gone(deleted)?;
            let mut forged = ClusterPullSecret::new(&name, object.spec);
            forged.spec.remove ^= true;
            // The hub may create the object first.
            let _ = self.objects().create(&PostParams::default(), &forged).await;
        }
        Ok(())
    }

    /// Registers a cluster with this kubeconfig.
    pub async fn register(&self, name: &str, kubeconfig: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": {CLUSTER_LABEL: "true"}},
            "stringData": {"kubeconfig": kubeconfig},
        });
        self.apply(name, &secret).await
    }
}

/// The next lie of a hostile member.
pub fn lie(rng: &mut Rng, other: &str) -> Lie {
    let long = "x".repeat(1 << 20);
    let ready = json!({
        "type": "Ready", "status": "False", "reason": long, "message": long,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let asked = [Asked::Namespace, Asked::Secret, Asked::List, Asked::Watch];
    match rng.u8(0..5) {
        0 => Lie::Endless(asked[rng.usize(0..asked.len())]),
        1 => Lie::Events(news),
        2 => Lie::Says(Asked::Watch, json!({"status": {"conditions": [ready]}})),
        3 => Lie::Says(
            Asked::Namespace,
            json!({"metadata": {"uid": format!("uid-of-{other}")}}),
        ),
        _ => Lie::Says(Asked::Secret, json!({"data": {DATA_KEY: long}})),
    }
}

/// A different status each time.
pub fn news(number: u64) -> Value {
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "RollingOut", "message": number.to_string(),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({"type": "MODIFIED", "object": {
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
        "metadata": {
            "name": "global-pull-secret", "namespace": "kube-system", "generation": 1,
            "resourceVersion": (number + 1000).to_string(),
        },
        "spec": {},
        "status": {
            "observedGeneration": 1, "observedAdditional": number.to_string(),
            "counts": {"total": number % 1000, "synced": number % 999}, "conditions": [ready],
        },
    }})
}
