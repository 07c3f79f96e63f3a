//! One reconcile of the hub: writes the statuses from the sessions, plans each fleet, and sends new specs to the sessions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use globalps_core::api::{ClusterPullSecret, Counts, FleetPullSecret, FleetSecretRef};
use globalps_core::names::{FLEET_FINALIZER, cluster_pull_secret};
use globalps_core::reasons::Reason;
use globalps_core::rollout::RevisionId;
use globalps_planner::clusters::hidden::sentence;
use globalps_planner::clusters::identity::is_hub;
use globalps_planner::clusters::input::{
    ClusterKey, ClusterView, FleetInput, fleet_title, object_title, revision_title,
};
use globalps_planner::clusters::installation::{Installation, pull_secret_of, requested};
use globalps_planner::clusters::plan::{FleetPlan, plan};
use globalps_planner::content::source::Source;
use globalps_planner::refused;
use globalps_runtime::backoff::random_bits;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Hub;
use super::cache::HubCache;
use super::common_targets::Targets;
use super::pins::identity_of;
use super::report::report;
use super::source::SourceRef;
use super::statuses::titles;
use super::views::pair;
use super::writes::{WrittenRevision, object_name};
use crate::cache::uptime;
use crate::leader::reconciling::RESYNC;

/// Interval of reconciles while a rollout is in progress, because deadlines cause no event.
const IN_FLIGHT: Duration = Duration::from_secs(5);

/// `ClusterPullSecret`s of one fleet, by cluster.
type FleetObjects<'a> = BTreeMap<ClusterKey, &'a ClusterPullSecret>;

/// Data that the fleets of one reconcile share.
#[derive(Default)]
struct ReconcileState {
    targets: Targets,
    /// How many more objects of clusters each namespace may have.
    room: BTreeMap<String, usize>,
    counts: Counts,
    is_at_rest: bool,
    has_written: bool,
    /// Titles of objects whose failed write is still needed.
    open: BTreeSet<String>,
}

impl Hub {
    /// Returns the time until the next reconcile without an event.
    pub(super) async fn reconcile(&mut self) -> Duration {
        self.refusals.begin();
        let is_left = self.write_statuses().await;
        let resync = if is_left { Duration::ZERO } else { RESYNC };
        // Before the next event may delete one of the objects.
        self.pins.observe(&self.cache);
        if !self.shard.plans() {
            self.update_sessions(&with_obstacles(&self.cache));
            let pause = self.refusals.end(|_| false);
            return pause.map_or(resync, |pause| pause.min(resync));
        }
        let fleets = self.cache.fleets();
        let references = fleets.iter().flat_map(sources_of).collect();
        let is_known = self.watch_sources(&references);
        if !is_known {
            return RESYNC;
        }
        self.cache.forget_foreign();
        self.log_unreadable();
        self.clock.observe(self.cache.objects(), uptime());
        let clusters = with_obstacles(&self.cache);
        let namespaces = self.cache.namespaces();
        let mut state = ReconcileState {
            is_at_rest: true,
            has_written: is_left,
            targets: Targets::new(&self.cache, &fleets),
            room: self.cache.room(&clusters),
            ..ReconcileState::default()
        };
        for fleet in fleets {
            Box::pin(self.roll_out(fleet, &clusters, &namespaces, &mut state)).await;
        }
        self.metrics.set_clusters(state.counts);
        self.update_sessions(&clusters);
        let refused = self.refusals.end(|object| state.open.contains(object));
        // The responses are in the cache already, so the watch events of these writes don't cause the next reconcile.
        let pause = match (state.has_written, state.is_at_rest) {
            (true, _) => Duration::ZERO,
            (false, true) => RESYNC,
            (false, false) => IN_FLIGHT,
        };
        refused.map_or(pause, |refused| pause.min(refused))
    }

    async fn roll_out(
        &mut self,
        fleet: FleetPullSecret,
        clusters: &BTreeMap<ClusterKey, ClusterView>,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
        state: &mut ReconcileState,
    ) {
        let found = self.sources.get(&source_of(&fleet)).cloned().flatten();
        let unreadable = self.cache.unreadable_fleet(&fleet);
        let clusters = &self.with_unreadable(&fleet, clusters);
        let plan = {
            let known = found.as_ref().map(|found| &found.source);
            let input = FleetInput {
                fleet: &fleet,
                unreadable,
                source: known.unwrap_or(&Source::Absent),
                install: self.installation(&fleet),
                revisions: self.cache.revisions(&fleet),
                new_id: RevisionId::from_random(random_bits()),
                foreign: self.cache.foreign_revisions(&fleet),
                clusters,
                namespaces,
                objects: self.objects_of(&fleet),
                drift: self.cache.drift(&fleet),
                taken: state.targets.of_others(&fleet),
                hidden: self.cache.hidden(),
                room: &state.room,
                left_out: self.cache.left_out(&fleet),
                trust: &self.trust,
                refused: &self.refusals.failures,
                clock: &self.clock,
                now: Timestamp::now(),
            };
            plan(&input)
        };
        let objects = self.objects_of(&fleet);
        for (key, _) in &plan.members {
            if !objects.contains_key(key)
                && let Some(left) = state.room.get_mut(&key.0)
            {
                *left = left.saturating_sub(1);
            }
        }
        for (key, member) in &plan.members {
            if member.refused.is_some() && !member.is_done() {
                state.open.insert(object_title(key, &fleet));
            }
            if !member.is_skipped {
                state.targets.take(&fleet, key.clone());
            }
        }
        if plan.members.is_empty() {
            // The fleet is held, or only writes a revision: its clusters still belong to it.
            for key in self.objects_of(&fleet).into_keys() {
                state.targets.take(&fleet, key);
            }
        }
        state.is_at_rest &= plan.members.iter().all(|(_, member)| member.is_done());
        let (fleet, has_finalizer) = Box::pin(self.with_finalizer(fleet)).await;
        // Without the finalizer, a deletion would leave the Secret in the clusters.
        if has_finalizer || !self.objects_of(&fleet).is_empty() {
            state.has_written |= self.perform(&fleet, &plan).await;
        }
        let version = found.map(|found| found.version).unwrap_or_default();
        let reported = self.write_report(&fleet, &plan, &version).await;
        state.counts = sum(state.counts, reported);
    }

    /// A cluster whose `ClusterPullSecret` can't be decoded gets nothing of the fleet.
    fn with_unreadable<'a>(
        &self,
        fleet: &FleetPullSecret,
        clusters: &'a BTreeMap<ClusterKey, ClusterView>,
    ) -> Cow<'a, BTreeMap<ClusterKey, ClusterView>> {
        let mut clusters = Cow::Borrowed(clusters);
        let (namespace, name) = (fleet.namespace().unwrap_or_default(), fleet.name_any());
        for object in self.cache.unreadable_objects() {
            let is_of = |(place, cluster): &&ClusterKey| {
                *place == object.namespace()
                    && cluster_pull_secret(cluster, &namespace, &name) == object.name()
            };
            let Some(key) = clusters.keys().find(is_of).cloned() else {
                continue;
            };
            if let Some(view) = clusters.to_mut().get_mut(&key) {
                let message = format!("its ClusterPullSecret can't be read: {object}");
                view.obstacle.get_or_insert((Reason::Unreadable, message));
            }
        }
        clusters
    }

    /// Logs each object that can't be decoded, and each namespace that can't be read, once.
    fn log_unreadable(&mut self) {
        let unreadable = self.cache.unreadable();
        for object in unreadable.difference(&self.unreadable) {
            tracing::warn!("an object can't be read; it has no effect on others: {object}");
        }
        self.unreadable = unreadable;
        let hidden = self.cache.hidden();
        let hidden = hidden.iter().map(|(name, is)| sentence(name, *is));
        let hidden: BTreeSet<String> = hidden.collect();
        for namespace in hidden.difference(&self.hidden) {
            tracing::warn!("{namespace}; fleets without clusters there go on");
        }
        self.hidden = hidden;
    }

    fn installation(&self, fleet: &FleetPullSecret) -> Result<Option<Arc<Installation>>, String> {
        let pull_secret = pull_secret_of(fleet).map(|it| reference(fleet, it));
        let found = pull_secret.and_then(|it| self.sources.get(&it)?.as_ref());
        requested(fleet, found.map(|found| &found.source)).map(|install| install.map(Arc::new))
    }

    fn objects_of(&self, fleet: &FleetPullSecret) -> FleetObjects<'_> {
        self.cache.objects_of(fleet).collect()
    }

    /// The fleet, and whether its deletion waits for the hub.
    async fn with_finalizer(&mut self, fleet: FleetPullSecret) -> (FleetPullSecret, bool) {
        let has = fleet.finalizers().iter().any(|it| it == FLEET_FINALIZER);
        if has || fleet.metadata.deletion_timestamp.is_some() {
            return (fleet, true);
        }
        let call = self.writer.finalizer(&fleet, true);
        match self.refusals.one(fleet_object(&fleet), call).await {
            Some(fleet) => {
                self.cache.put_fleet(fleet.clone());
                (fleet, true)
            }
            None => (fleet, false),
        }
    }

    /// Performs the writes of the plan. Revisions come first, since assignments refer to them: a plan assigns only those that it
    /// has found. Returns whether the writes affect the next plan.
    async fn perform(&mut self, fleet: &FleetPullSecret, plan: &FleetPlan) -> bool {
        let writer = &self.writer;
        let known = self.cache.revisions(fleet);
        for revision in &plan.revisions {
            self.cache.expect_revision(fleet, revision);
        }
        let revisions = plan.revisions.iter().map(|revision| {
            let is_new = known.iter().all(|it| it.number != revision.number);
            let call = async move {
                tracing::info!(
                    fleet = fleet_title(fleet),
                    revision = revision.number,
                    "writing revision"
                );
                writer.revision(fleet, revision, is_new).await
            };
            (revision_title(fleet, revision.number), call)
        });
        let written = self.refusals.all(revisions).await.done;
        let has_revision = !written.is_empty();
        for written in written {
            match written {
                WrittenRevision::Revision(secret) => self.cache.put_revision(&secret),
                WrittenRevision::Taken(number) => self.cache.put_taken(fleet, number),
            }
        }
        let has_assigned = self.assign(fleet, &plan.assignments).await;
        let writer = &self.writer;
        let outdated = plan.outdated.iter().map(|number| {
            let call = writer.delete_revision(fleet, *number);
            (revision_title(fleet, *number), call)
        });
        self.refusals.all(outdated).await;
        let released = plan.released.iter().map(|key| {
            let call = async move {
                let deleted = writer.delete_object(key, fleet).await;
                deleted.map(|()| key)
            };
            (object_title(key, fleet), call)
        });
        for (namespace, cluster) in self.refusals.all(released).await.done {
            self.cache.release(namespace, &object_name(cluster, fleet));
        }
        let has_finalizer = fleet.finalizers().iter().any(|it| it == FLEET_FINALIZER);
        if plan.is_finished && has_finalizer {
            for object in self.objects_of(fleet).values() {
                let (object, finalizers) = (object.name_any(), object.finalizers().join(", "));
                tracing::warn!(
                    object,
                    finalizers,
                    "a ClusterPullSecret stays until other programs remove their finalizers"
                );
            }
            let call = self.writer.finalizer(fleet, false);
            self.refusals.one(fleet_object(fleet), call).await;
        }
        has_revision || has_assigned
    }

    async fn write_report(
        &mut self,
        fleet: &FleetPullSecret,
        plan: &FleetPlan,
        observed_secret: &str,
    ) -> Counts {
        // The plan after a new revision reports the counts.
        if plan.is_finished || plan.is_first_step {
            let before = fleet.status.as_ref().filter(|_| !plan.is_finished);
            return before.map(|before| before.counts).unwrap_or_default();
        }
        let objects = self.objects_of(fleet);
        let now = Timestamp::now();
        let failures = &self.refusals.failures;
        let titles = titles(fleet, plan, &objects, fleet_object(fleet));
        let refused = failures.messages(|object| titles.contains(object));
        let failure = |key: &ClusterKey| failures.get(&object_title(key, fleet));
        let mut status = report(fleet, plan, &objects, (&refused, &failure), now);
        observed_secret.clone_into(&mut status.observed_secret);
        let counts = status.counts;
        if fleet.status.as_ref() == Some(&status) {
            return counts;
        }
        let writer = &self.writer;
        let call = async {
            match writer.fleet_status(fleet, &status).await {
                Err(error) if error.is_absent() => Ok(None),
                done => done.map(Some),
            }
        };
        let object = refused::title("status of FleetPullSecret", &fleet_title(fleet));
        if let Some(Some(fleet)) = self.refusals.one(object, call).await {
            self.cache.put_fleet(fleet);
        }
        counts
    }
}

/// The clusters with their obstacles.
pub(super) fn with_obstacles(cache: &HubCache) -> BTreeMap<ClusterKey, ClusterView> {
    let mut clusters = cache.clusters();
    let Some(own) = cache.identity() else {
        return clusters;
    };
    for object in cache.objects().filter(|it| identity_of(it) == Some(own)) {
        let view = pair(object).and_then(|(_, cluster)| clusters.get_mut(&cluster));
        if let Some(view) = view {
            view.obstacle = Some(is_hub());
        }
    }
    clusters
}

fn sum(one: Counts, other: Counts) -> Counts {
    Counts {
        total: one.total.saturating_add(other.total),
        synced: one.synced.saturating_add(other.synced),
        progressing: one.progressing.saturating_add(other.progressing),
        failed: one.failed.saturating_add(other.failed),
        unreachable: one.unreachable.saturating_add(other.unreachable),
        unsupported: one.unsupported.saturating_add(other.unsupported),
    }
}

fn source_of(fleet: &FleetPullSecret) -> SourceRef {
    reference(fleet, &fleet.spec.secret_ref)
}

/// The fleet's source, and the pull secret of globalps' own images.
fn sources_of(fleet: &FleetPullSecret) -> impl Iterator<Item = SourceRef> {
    let pull_secret = pull_secret_of(fleet).map(|it| reference(fleet, it));
    [source_of(fleet)].into_iter().chain(pull_secret)
}

/// The reference with the namespace of the `FleetPullSecret`.
fn reference(fleet: &FleetPullSecret, reference: &FleetSecretRef) -> SourceRef {
    (
        fleet.namespace().unwrap_or_default(),
        reference.name.clone(),
        reference.key.clone(),
    )
}

fn fleet_object(fleet: &FleetPullSecret) -> String {
    refused::title("FleetPullSecret", &fleet_title(fleet))
}
