//! Odd values for the hub: its own kinds, and the `Cluster` of Cluster API. API server and hub are real; no cluster can
//! be reached.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use globalps_core::names::{HUB, cluster_pull_secret};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::ODD;
use super::objects::{CRD, Objects, POLL, Probe, Target, Tried, target, try_all};
use crate::fleet::hub_stage::{CLUSTERS, HubStage};
use crate::product::pull_secret;
use crate::wait::retry;

const SOON: Duration = crate::DEADLINE;
/// Time until the status names an unreadable object.
const NAMED: Duration = crate::DEADLINE;
const PROBE: &str = "probe";
const FLEET: (&str, &str, &str) = (CRD, "v1alpha1", "FleetPullSecret");
const OBJECT: (&str, &str, &str) = (CRD, "v1alpha1", "ClusterPullSecret");
const CLUSTER: (&str, &str, &str) = ("cluster.x-k8s.io", "v1beta2", "Cluster");

static TARGETS: [Target<'static>; 3] = [
    target(FLEET, Some(CLUSTERS), ODD, &[]),
    target(OBJECT, Some(CLUSTERS), "odd.clusters.odd", &[]),
    target(CLUSTER, Some(CLUSTERS), ODD, &[]),
];

pub fn run() -> Result<Tried> {
    let stage = HubStage::up("hub-odd-values")?;
    crate::fleet::block_on(async {
        let client = stage.admin_client().await?;
        let objects = Objects { client };
        let mut scene = Scene {
            stage: &stage,
            objects,
            probes: 0,
        };
        scene.run().await
    })
}

struct Scene<'a> {
    stage: &'a HubStage,
    objects: Objects,
    probes: usize,
}

impl Scene<'_> {
    async fn run(&mut self) -> Result<Tried> {
        self.define_clusters().await?;
        let data = json!({"auths": {"r.example.com": {"auth": "dTpw"}}}).to_string();
        // The older of the two `FleetPullSecret`s writes to their common target.
        for name in [PROBE, ODD] {
            let source = pull_secret(CLUSTERS, name, &data);
            self.objects
                .create("Secret", Some(CLUSTERS), source)
                .await?;
            let labels = json!({"matchLabels": {"fleet": name}});
            let fleet = json!({
                "metadata": {"name": name, "namespace": CLUSTERS, "labels": {"a": "b"}, "annotations": {"a": "b"}},
                "spec": {
                    "secretRef": {"name": name}, "requireNodes": false,
                    "clusterSelector": labels, "registered": {"selector": labels},
                },
            });
            self.objects.create_as(FLEET, CLUSTERS, fleet).await?;
            // Times of creation have a resolution of one second.
            sleep(Duration::from_millis(1100)).await;
        }
        let cluster = json!({
            "metadata": {"name": ODD, "namespace": CLUSTERS, "labels": {"fleet": ODD}, "annotations": {"a": "b"}},
            "spec": {"paused": false, "controlPlaneRef": {"kind": "A", "name": "a"}},
            "status": {"phase": "Provisioned", "conditions": []},
        });
        self.objects.create_as(CLUSTER, CLUSTERS, cluster).await?;
        self.stage.start()?;
        self.probe("at the start").await?;
        self.has_phase(TARGETS[1].name, "at the start").await?;
        let mut tried = Tried::default();
        for target in &TARGETS {
            try_all(self, target, false, &mut tried).await?;
        }
        self.undo_a_status().await?;
        self.name_what_no_schema_refuses().await?;
        // A new leader has no last readable version.
        self.stage.stop()?;
        self.stage.start()?;
        self.probe("by the next hub").await?;
        let log = self.stage.cluster().layout().log(HUB);
        let log = std::fs::read_to_string(log)?;
        ensure!(
            !log.contains("could not decode"),
            "a list or watch as a whole was not decoded"
        );
        Ok(tried)
    }

    /// Like Cluster API's definition, but any value is valid.
    async fn define_clusters(&self) -> Result<()> {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({
            "name": CLUSTER.1, "served": true, "storage": true, "schema": {"openAPIV3Schema": open},
        });
        let names = json!({"kind": "Cluster", "plural": "clusters", "singular": "cluster", "listKind": "ClusterList"});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "clusters.cluster.x-k8s.io"},
            "spec": {"group": CLUSTER.0, "names": names, "scope": "Namespaced", "versions": [version]},
        });
        self.stage.apply(&definition)?;
        let crd = "crd/clusters.cluster.x-k8s.io";
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", crd];
        self.stage.cluster().kubectl(&wait)?;
        Ok(())
    }

    /// Checks that the hub ignores a status that another client wrote, and rewrites it even if the cluster has nothing
    /// new to report.
    async fn undo_a_status(&self) -> Result<()> {
        let object = &TARGETS[1];
        let odd = json!({"status": {"phase": "Failed", "message": "odd", "revision": 99}});
        self.objects.patch(object, &odd, true).await?;
        retry(SOON, POLL, async || {
            let found = self.objects.get(object).await?;
            let status = &found["status"];
            let is_its_own = status["phase"] == "Unreachable" && status["revision"] == 0;
            ensure!(
                is_its_own && status["message"] != "odd",
                "it stays: {status}"
            );
            Ok(())
        })
        .await
    }

    /// Removes the bounds of the definitions: the hub then names unreadable objects, and nothing else is affected.
    async fn name_what_no_schema_refuses(&mut self) -> Result<()> {
        for plural in ["clusterpullsecrets", "fleetpullsecrets"] {
            self.objects.forget_schema(plural).await?;
        }
        let [fleet, object, _] = &TARGETS;
        let odd = json!({"spec": {"assignedAt": {"odd": true}, "revision": "many"}});
        self.objects.patch_when_possible(object, &odd).await?;
        self.is_named(
            "`clusters/odd`: its ClusterPullSecret can't be read",
            "spec.",
        )
        .await?;
        self.probe("an unreadable ClusterPullSecret").await?;
        let odd = json!({"spec": {"rollout": {"maxUnavailable": 3_000_000_000_u32}}});
        self.objects.patch_when_possible(fleet, &odd).await?;
        self.is_named("FleetPullSecret", "spec.rollout.maxUnavailable")
            .await?;
        self.probe("an unreadable FleetPullSecret").await
    }

    /// Checks that the status of the fleet has the reason `Unreadable`, and names the object and its field.
    async fn is_named(&self, object: &str, field: &str) -> Result<()> {
        retry(NAMED, POLL, async || {
            let status = self.objects.get(&TARGETS[0]).await?["status"].to_string();
            let words = ["Unreadable", object, field];
            let is_named = words.iter().all(|it| status.contains(it));
            ensure!(is_named, "{object} is not named: {status}");
            Ok(())
        })
        .await
    }

    /// Waits until the cluster's session has reported; returns the status.
    async fn has_phase(&self, name: &str, after: &str) -> Result<Value> {
        let api = self.objects.api(OBJECT, Some(CLUSTERS));
        retry(SOON, POLL, async || {
            let found = api.get_opt(name).await?;
            let found = found.and_then(|it| it.into_result().ok());
            let status = found.map(|it| it.data["status"].clone());
            let status = status.filter(|status| status["phase"] == "Unreachable");
            status.with_context(|| format!("{after}: no report of {name}"))
        })
        .await
    }
}

impl Probe for Scene<'_> {
    fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Checks that a new cluster of another fleet gets its object, and that its session reports.
    async fn probe(&mut self, after: &str) -> Result<()> {
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        let labels = json!({"globalps.io/cluster": "true", "fleet": PROBE});
        let secret = json!({
            "metadata": {"name": name, "namespace": CLUSTERS, "labels": labels},
            "stringData": {"kubeconfig": "{}"},
        });
        self.objects
            .create("Secret", Some(CLUSTERS), secret)
            .await?;
        let object = cluster_pull_secret(&name, CLUSTERS, PROBE);
        self.has_phase(&object, after)
            .await
            .map(drop)
            .context("a cluster of another fleet")
    }
}
