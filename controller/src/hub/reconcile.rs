//! One pass of the hub: what the connections say is written, each fleet is planned, and the connections get their orders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, FleetPullSecret};
use globalps_core::names::{FLEET_FINALIZER, HUB};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::order::Order;
use super::report::report;
use super::source::SourceRef;
use super::views::pair;
use super::{CONCURRENT, Hub, RESYNC};
use crate::clusters::input::{ClusterKey, ClusterView, Input, title};
use crate::clusters::member::{Release, Wanted};
use crate::clusters::plan::{FleetPlan, plan};
use crate::clusters::progress::up_to_date;
use crate::clusters::revision::Revision;
use crate::content::source::Source;
use crate::objects::apply::ApplyError;

/// Until the next look at clusters in flight: some of what they wait for is time.
const IN_FLIGHT: Duration = Duration::from_secs(5);

/// Clusters of one fleet by their key.
type Objects<'a> = BTreeMap<ClusterKey, &'a ClusterPullSecret>;

impl Hub {
    /// Returns the time until the next reconcile without an event.
    pub(super) async fn reconcile(&mut self) -> Result<Duration, ApplyError> {
        self.write_statuses().await?;
        let fleets = self.cache.fleets();
        let references: Vec<SourceRef> = fleets.iter().map(source_of).collect();
        let is_known = self.watch_sources(&references);
        if !is_known {
            return Ok(RESYNC);
        }
        let clusters = self.clusters();
        let namespaces = self.cache.namespaces();
        let mut taken: BTreeMap<(String, ClusterKey), String> = BTreeMap::new();
        let (mut is_at_rest, mut has_written) = (true, false);
        let mut revisions = BTreeMap::new();
        for fleet in fleets {
            let fleet = self.with_finalizer(fleet).await?;
            let of = fleet_title(&fleet);
            let target = &fleet.spec.target;
            let place = format!("{}/{}", target.namespace, target.name);
            let found = self.sources.get(&source_of(&fleet)).cloned().flatten();
            let (plan, input_revisions) = {
                let known = found.as_ref().map(|found| &found.source);
                let taken_here = taken.iter().filter(|((it, _), _)| *it == place);
                let input = Input {
                    fleet: &fleet,
                    source: known.unwrap_or(&Source::Absent),
                    revisions: self.cache.revisions(&fleet),
                    clusters: &clusters,
                    namespaces: &namespaces,
                    objects: self.objects_of(&fleet),
                    taken: taken_here
                        .map(|((_, key), other)| (key.clone(), other.clone()))
                        .collect(),
                    now: Timestamp::now(),
                };
                (plan(&input), input.revisions)
            };
            for (key, member) in &plan.members {
                if !member.is_skipped {
                    taken.insert((place.clone(), key.clone()), of.clone());
                }
            }
            is_at_rest &= plan.members.iter().all(|(_, member)| member.is_done());
            has_written |= self.perform(&fleet, &plan).await?;
            revisions.insert(of, self.cache.revisions(&fleet));
            let version = found.map(|found| found.version).unwrap_or_default();
            self.write_report(&fleet, &plan, &input_revisions, &version)
                .await?;
        }
        self.order(&clusters, &revisions);
        // The watch events of these writes are no changes any more, but the next plan depends on them.
        Ok(match (has_written, is_at_rest) {
            (true, _) => Duration::ZERO,
            (false, true) => RESYNC,
            (false, false) => IN_FLIGHT,
        })
    }

    /// The clusters, each with why nothing may be written into it.
    fn clusters(&mut self) -> BTreeMap<ClusterKey, ClusterView> {
        let mut clusters = self.cache.clusters();
        self.identities.retain(|key, _| clusters.contains_key(key));
        let own = self.cache.identity();
        let mut names: BTreeMap<&str, Vec<&ClusterKey>> = BTreeMap::new();
        for (key, identity) in &self.identities {
            names.entry(identity).or_default().push(key);
        }
        for (key, view) in &mut clusters {
            let Some(identity) = self.identities.get(key).filter(|it| !it.is_empty()) else {
                continue;
            };
            let names = names.get(identity.as_str()).into_iter().flatten();
            let mut others = names.filter(|other| **other != key);
            view.obstacle = match others.next() {
                _ if own == Some(identity.as_str()) => Some((
                    "IsHub",
                    "its kubeconfig is of the management cluster itself".to_owned(),
                )),
                Some(other) => Some((
                    "DuplicateCluster",
                    format!(
                        "its kubeconfig is of the same cluster as that of `{}`: none of them is written",
                        title(other)
                    ),
                )),
                None => None,
            };
        }
        clusters
    }

    fn objects_of(&self, fleet: &FleetPullSecret) -> Objects<'_> {
        let of = fleet_title(fleet);
        let objects = self.cache.objects();
        objects
            .filter_map(|object| {
                let (fleet, key) = pair(object)?;
                (fleet == of).then_some((key, object))
            })
            .collect()
    }

    async fn with_finalizer(
        &mut self,
        fleet: FleetPullSecret,
    ) -> Result<FleetPullSecret, ApplyError> {
        let has = fleet.finalizers().iter().any(|it| it == FLEET_FINALIZER);
        if has || fleet.metadata.deletion_timestamp.is_some() {
            return Ok(fleet);
        }
        let fleet = self.writer.finalizer(&fleet, true).await?;
        self.cache.put_fleet(fleet.clone());
        Ok(fleet)
    }

    /// Writes what the plan says: revisions first, so that nobody is assigned what is not there. Whether the next plan is another
    /// one by that.
    async fn perform(
        &mut self,
        fleet: &FleetPullSecret,
        plan: &FleetPlan,
    ) -> Result<bool, ApplyError> {
        for revision in &plan.revisions {
            tracing::info!(
                fleet = fleet_title(fleet),
                revision = revision.number,
                "writing the revision"
            );
            let secret = self.writer.revision(fleet, revision).await?;
            self.cache.put_revision(&secret);
        }
        let assigned = self.assign(fleet, &plan.assignments).await?;
        for number in &plan.outdated {
            self.writer.forget_revision(fleet, *number).await?;
        }
        let objects = self.objects_of(fleet);
        let released = plan.released.iter().filter_map(|key| objects.get(key));
        let released: Vec<ClusterPullSecret> = released.map(|it| (*it).clone()).collect();
        for object in released {
            self.writer.release(&object).await?;
        }
        let has_finalizer = fleet.finalizers().iter().any(|it| it == FLEET_FINALIZER);
        if plan.is_finished && has_finalizer {
            self.writer.finalizer(fleet, false).await?;
        }
        Ok(assigned > 0 || !plan.revisions.is_empty())
    }

    async fn assign(
        &mut self,
        fleet: &FleetPullSecret,
        assignments: &[(ClusterKey, ClusterPullSecretSpec)],
    ) -> Result<usize, ApplyError> {
        let writes: Vec<_> = assignments
            .iter()
            .filter_map(|(key, spec)| Some((key, spec, self.cache.owner(key)?)))
            .collect();
        let hub = &self.writer;
        let mut written = stream::iter(writes)
            .map(|(key, spec, owner)| async move {
                if spec.revision > 0 {
                    tracing::info!(
                        cluster = title(key),
                        revision = spec.revision,
                        remove = spec.remove,
                        "assigning"
                    );
                }
                hub.object(key, fleet, owner, spec).await
            })
            .buffer_unordered(CONCURRENT);
        let mut objects = Vec::new();
        let mut failed = None;
        while let Some(done) = written.next().await {
            match done {
                Ok(object) => objects.push(object),
                Err(error) => failed = Some(error),
            }
        }
        drop(written);
        let assigned = objects.len();
        for object in objects {
            self.cache.put_object(object);
        }
        failed.map_or(Ok(assigned), Err)
    }

    async fn write_report(
        &mut self,
        fleet: &FleetPullSecret,
        plan: &FleetPlan,
        revisions: &[Revision],
        observed_secret: &str,
    ) -> Result<(), ApplyError> {
        // A revision that was written only now is planned with next.
        if plan.is_finished || plan.is_first_step {
            return Ok(());
        }
        let objects = self.objects_of(fleet);
        let mut status = report(fleet, plan, revisions, &objects, Timestamp::now());
        observed_secret.clone_into(&mut status.observed_secret);
        if fleet.status.as_ref() == Some(&status) {
            return Ok(());
        }
        match self.writer.fleet_status(fleet, &status).await {
            Ok(fleet) => self.cache.put_fleet(fleet),
            Err(error) if error.is_code(404) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Tells each connection what is wanted now.
    fn order(
        &mut self,
        clusters: &BTreeMap<ClusterKey, ClusterView>,
        revisions: &BTreeMap<String, Vec<Revision>>,
    ) {
        let fleets = self.cache.fleets();
        let fleets: BTreeMap<String, &FleetPullSecret> = fleets
            .iter()
            .map(|fleet| (fleet_title(fleet), fleet))
            .collect();
        let Some(own) = self.cache.identity() else {
            return;
        };
        let manager: Arc<str> = format!("{HUB}-{own}").into();
        let mut wanted = BTreeSet::new();
        let mut orders = Vec::new();
        for object in self.cache.objects() {
            let Some(pair) = pair(object) else { continue };
            let (Some(fleet), Some(cluster)) = (fleets.get(&pair.0), clusters.get(&pair.1)) else {
                continue;
            };
            let known = revisions.get(&pair.0).map_or(&[][..], Vec::as_slice);
            let order = Order {
                kubeconfig: self.cache.kubeconfig(&pair.1),
                generation: object.metadata.generation.unwrap_or_default(),
                wanted: wanted_of(object, known),
                target: fleet.spec.target.clone(),
                fleet: pair.0.clone(),
                require_nodes: fleet.spec.require_nodes,
                identity: self
                    .identities
                    .get(&pair.1)
                    .filter(|_| cluster.obstacle.is_none() && !cluster.is_deleting)
                    .cloned(),
                revision: object.status.as_ref().map_or(0, |status| status.revision),
                is_settled: up_to_date(object)
                    .is_some_and(|status| status.phase == ClusterPhase::Synced),
            };
            wanted.insert(pair.clone());
            orders.push((pair, order));
        }
        for (pair, order) in orders {
            self.sessions.order(pair, order, &manager);
        }
        self.sessions.keep(&wanted);
    }
}

fn source_of(fleet: &FleetPullSecret) -> SourceRef {
    let reference = &fleet.spec.secret_ref;
    (
        fleet.namespace().unwrap_or_default(),
        reference.name.clone(),
        reference.key.clone(),
    )
}

fn fleet_title(fleet: &FleetPullSecret) -> String {
    title(&(fleet.namespace().unwrap_or_default(), fleet.name_any()))
}

/// A revoked cluster is left as it is: it goes on in its own time.
fn wanted_of(object: &ClusterPullSecret, revisions: &[Revision]) -> Wanted {
    let spec = &object.spec;
    if spec.revoked {
        return Wanted::Nothing;
    }
    if spec.remove {
        return Wanted::Removed;
    }
    let revision = revisions.iter().find(|it| it.number == spec.revision);
    revision.map_or(Wanted::Nothing, |it| {
        Wanted::Revision(Release {
            number: it.number,
            content: Arc::clone(&it.content),
            retry: spec.retry.clone(),
        })
    })
}
