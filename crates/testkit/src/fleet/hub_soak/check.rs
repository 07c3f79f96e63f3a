//! Checks after each iteration of the soak, and at every moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt as _;
use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus};
use globalps_core::names::{
    DATA_KEY, FLEET_ANNOTATION, FLEET_LABEL, REVISION_ANNOTATION, cluster_pull_secret,
    fleet_revision,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::sleep;

use super::objects::config;
use super::place::{KEY, Place, theirs};
use super::{FLEETS, Hubs};
use crate::fleet::hub_stage::{CLUSTERS, is_changing};

/// Interval of the checks of the revisions.
const LOOK: Duration = Duration::from_millis(50);
/// Number of recent changes that an error shows.
const RECENT: usize = 24;
/// Interval between retries of failed clusters.
const RETRY: Duration = Duration::from_secs(5);
/// After this time, an unreachable cluster no longer counts as in flight. The hub waits a second longer.
const AWAY: i64 = 29;

/// The maximum in flight of each `FleetPullSecret` in this iteration, and the observations.
#[derive(Default)]
pub(super) struct Limits {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    limits: [usize; FLEETS.len()],
    most: usize,
    /// Finished assignments, by UID and generation: later changes of such a cluster don't count.
    over: BTreeSet<(String, i64)>,
    /// The recent changes of clusters, oldest first.
    recent: VecDeque<String>,
    /// The content of each revision, by the name of its Secret.
    contents: BTreeMap<String, Vec<u8>>,
    error: Option<String>,
}

impl Limits {
    fn seen<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Raises the limit of this iteration, which may have been lower before.
    pub(super) fn raise(&self, fleet: usize, limit: usize) {
        self.seen(|seen| seen.limits[fleet] = seen.limits[fleet].max(limit));
    }

    /// Starts an iteration with these limits. Nothing is in flight then.
    fn reset(&self, limits: [usize; FLEETS.len()]) {
        self.seen(|seen| seen.limits = limits);
    }

    pub(super) fn most_seen(&self) -> usize {
        self.seen(|seen| seen.most)
    }

    fn check(&self) -> Result<()> {
        let error = self.seen(|seen| seen.error.take());
        error.map_or(Ok(()), |error| bail!(error))
    }
}

/// Checks every change of a cluster, and the revisions at intervals. A list would miss a phase that is shorter than the
/// interval between two lists, and with it the end of an assignment.
pub(super) async fn watch_limits(client: Client, limits: Arc<Limits>) {
    tokio::join!(
        watch_clusters(client.clone(), &limits),
        watch_revisions(client, &limits),
    );
}

async fn watch_clusters(client: Client, limits: &Limits) {
    let api: Api<ClusterPullSecret> = Api::namespaced(client, CLUSTERS);
    let mut events = watcher(api, watcher::Config::default())
        .default_backoff()
        .boxed();
    let mut objects = BTreeMap::new();
    let mut listing = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(object)) => {
                limits.seen(|seen| seen.remember(&object));
                objects.insert(object.name_any(), object);
            }
            Ok(watcher::Event::Delete(object)) => {
                objects.remove(&object.name_any());
            }
            Ok(watcher::Event::Init) => listing.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listing.insert(object.name_any(), object);
                continue;
            }
            Ok(watcher::Event::InitDone) => objects = std::mem::take(&mut listing),
            // The API server may be unavailable.
            Err(_) => continue,
        }
        let now = Timestamp::now();
        limits.seen(|seen| seen.look(objects.values(), now));
    }
}

async fn watch_revisions(client: Client, limits: &Limits) {
    let secrets: Api<Secret> = Api::namespaced(client, CLUSTERS);
    let revisions = ListParams::default().labels(FLEET_LABEL);
    loop {
        // The API server may be unavailable.
        if let Ok(revisions) = secrets.list(&revisions).await {
            limits.seen(|seen| seen.look_at_revisions(&revisions.items));
        }
        sleep(LOOK).await;
    }
}

impl Seen {
    fn remember(&mut self, object: &ClusterPullSecret) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let line = format!("{} {}", Timestamp::now(), shown(object));
        self.recent.push_back(line);
    }

    fn look<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a ClusterPullSecret> + Clone,
        now: Timestamp,
    ) {
        for (fleet, name) in FLEETS.iter().enumerate() {
            let of = format!("{CLUSTERS}/{name}");
            let mut in_flight = Vec::new();
            for object in objects.clone().filter(|it| it.spec.fleet == of) {
                let generation = object.metadata.generation.unwrap_or_default();
                let assignment = (object.uid().unwrap_or_default(), generation);
                if !is_changing(object) {
                    self.over.insert(assignment);
                } else if !self.over.contains(&assignment) && is_limited(object, now) {
                    in_flight.push(object);
                }
            }
            self.most = self.most.max(in_flight.len());
            let limit = self.limits[fleet];
            if in_flight.len() > limit {
                let shown: Vec<String> = in_flight.into_iter().map(shown).collect();
                let shown = shown.join("; ");
                let recent = self.recent.make_contiguous().join("\n");
                self.error.get_or_insert(format!(
                    "{name}: more than {limit} in flight at {now}: {shown}\nbefore:\n{recent}"
                ));
            }
        }
    }

    fn look_at_revisions(&mut self, revisions: &[Secret]) {
        for secret in revisions {
            let name = secret.name_any();
            let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
            let Some(content) = data.map(|data| data.0.clone()) else {
                self.error.get_or_insert(format!("{name} has no content"));
                continue;
            };
            let first = self.contents.entry(name.clone()).or_insert(content.clone());
            if *first != content {
                self.error.get_or_insert(format!("{name} has two contents"));
            }
        }
    }
}

fn shown(object: &ClusterPullSecret) -> String {
    let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0.to_string());
    format!(
        "{}: revision {} (remove: {}) assigned at {:?}, generation {:?}; {} {} with revision {} for generation {} since {:?}",
        spec.cluster,
        spec.revision,
        spec.remove,
        time(&spec.assigned_at),
        object.metadata.generation,
        status.phase,
        status.reason,
        status.revision,
        status.observed_generation,
        time(&status.last_transition_time)
    )
}

/// New clusters get the fleet's revision outside the limit, and an unreachable cluster blocks no other.
fn is_limited(object: &ClusterPullSecret, now: Timestamp) -> bool {
    let status = object.status.clone().unwrap_or_default();
    let is_new = status.revision == 0 && !object.spec.remove;
    let since = status.last_transition_time.map_or(now, |time| time.0);
    let is_away =
        status.phase == ClusterPhase::Unreachable && now.duration_since(since).as_secs() >= AWAY;
    !is_new && !is_away
}

impl Hubs<'_> {
    /// Fails if more than the maximum is in flight. Every few seconds retries failed clusters, like an admin.
    pub(super) async fn attend_clusters(&mut self) -> Result<()> {
        self.limits.check()?;
        if self.retried.elapsed() > RETRY {
            self.retry_failed().await?;
            self.accept().await?;
            self.retried = Instant::now();
        }
        Ok(())
    }

    /// Starts the next iteration with the current limits.
    pub(super) fn reset_limits(&self) {
        self.limits
            .reset([0, 1].map(|fleet: usize| self.fleets[fleet].most));
    }

    pub(super) async fn check_clusters(&self) -> Result<()> {
        for fleet in 0..FLEETS.len() {
            self.check_fleet(fleet).await?;
        }
        let objects = self.clusters().list(&ListParams::default()).await?;
        let objects: BTreeMap<String, ClusterPullSecret> = objects
            .into_iter()
            .map(|object| (object.name_any(), object))
            .collect();
        for at in 0..self.places.len() {
            let place = &self.places[at];
            let name = cluster_pull_secret(&place.name, CLUSTERS, FLEETS[self.fleet_of(at)]);
            let object = objects.get(&name);
            let secret = place.secret(&self.members).await?;
            let checked = if place.is_selected {
                self.check_selected(at, object, secret.as_ref())
            } else {
                self.check_other(at, object, secret.as_ref())
            };
            let name = &self.places[at].name;
            checked.with_context(|| {
                let status = object.and_then(|object| object.status.clone());
                format!("{name}: {status:?}, {secret:?}")
            })?;
        }
        Ok(())
    }

    /// Checks that the status describes the current spec, and that the newest revision is the last valid content.
    async fn check_fleet(&self, fleet: usize) -> Result<()> {
        let name = FLEETS[fleet];
        let object = self.objects().get(name).await?;
        let status = object.status.unwrap_or_default();
        ensure!(
            Some(status.observed_generation) == object.metadata.generation,
            "{name}: the status is about another spec: {status:?}"
        );
        let revision = fleet_revision(name, status.revision);
        let secret = self.secrets().get_opt(&revision).await?;
        let data = secret.and_then(|secret| secret.data);
        let content = data.and_then(|mut data| data.remove(DATA_KEY));
        let content = content.context(revision.clone())?.0;
        let wanted = config(name, self.fleets[fleet].content);
        ensure!(content == wanted.as_bytes(), "{revision} has wrong content");
        Ok(())
    }

    fn check_selected(
        &self,
        at: usize,
        object: Option<&ClusterPullSecret>,
        secret: Option<&Value>,
    ) -> Result<()> {
        let place = &self.places[at];
        let secret = secret.context("it has no Secret")?;
        let status = status(object.context("it has no ClusterPullSecret")?)?;
        check_key(place, secret)?;
        if place.takeover.is_some() {
            check_theirs(secret)?;
            let is_named = ["Conflict", "WrongType"].contains(&status.reason.as_str());
            ensure!(
                status.phase == ClusterPhase::Blocked && is_named,
                "the status does not report that the Secret belongs to another client"
            );
            return Ok(());
        }
        let fleet = &self.fleets[self.fleet_of(at)];
        let content = BASE64_STANDARD.encode(config(fleet.name, fleet.content));
        ensure!(
            secret["data"][DATA_KEY] == content,
            "its content is not that of {}",
            fleet.content
        );
        let annotations = &secret["metadata"]["annotations"];
        let of = format!("{CLUSTERS}/{}", fleet.name);
        ensure!(annotations[FLEET_ANNOTATION] == of, "of another fleet");
        let revision = annotations[REVISION_ANNOTATION].as_str();
        let revision = revision.context("it has no revision")?.parse();
        ensure!(
            status.phase == ClusterPhase::Synced && revision == Ok(status.revision),
            "it is not synced"
        );
        Ok(())
    }

    fn check_other(
        &self,
        at: usize,
        object: Option<&ClusterPullSecret>,
        secret: Option<&Value>,
    ) -> Result<()> {
        let place = &self.places[at];
        let Some(secret) = secret else {
            let is_others = place.has_key || place.takeover.is_some();
            ensure!(!is_others, "another client's Secret is gone");
            ensure!(object.is_none(), "its ClusterPullSecret still exists");
            return Ok(());
        };
        check_key(place, secret)?;
        if place.takeover.is_some() {
            check_theirs(secret)?;
            ensure!(object.is_none(), "its ClusterPullSecret still exists");
            return Ok(());
        }
        ensure!(place.has_key, "its Secret still exists");
        let status =
            status(object.context("no ClusterPullSecret reports why the Secret still exists")?)?;
        ensure!(
            status.reason == "KeysOfOthers",
            "the status does not report other clients' keys"
        );
        Ok(())
    }
}

fn check_key(place: &Place, secret: &Value) -> Result<()> {
    let key = &secret["data"][KEY];
    ensure!(
        place.has_key != key.is_null(),
        "another client's key: {key}"
    );
    Ok(())
}

fn check_theirs(secret: &Value) -> Result<()> {
    ensure!(
        secret["data"][DATA_KEY] == theirs(),
        "the Secret that another client took over has changed"
    );
    Ok(())
}

/// The status, which must describe the current spec.
fn status(object: &ClusterPullSecret) -> Result<&ClusterPullSecretStatus> {
    let status = object.status.as_ref().context("no status yet")?;
    let is_about = Some(status.observed_generation) == object.metadata.generation;
    ensure!(is_about, "the status is about an earlier assignment");
    Ok(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `phase`: of the current assignment; empty if the status is about an earlier assignment.
    fn object(name: &str, phase: &str, had: i64, seconds: i64) -> ClusterPullSecret {
        let time = Timestamp::from_second(1000 - seconds).unwrap();
        let object = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "ClusterPullSecret",
            "metadata": {"name": name, "uid": name, "generation": 2},
            "spec": {"fleet": format!("{CLUSTERS}/{}", FLEETS[0]), "cluster": name, "revision": 5},
            "status": {
                "observedGeneration": if phase.is_empty() { 1 } else { 2 }, "revision": had,
                "phase": if phase.is_empty() { "Synced" } else { phase }, "lastTransitionTime": time.to_string(),
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn more_in_flight_than_the_limit_are_seen() {
        let synced = object("a", "Synced", 5, 0);
        let drifted = object("a", "Syncing", 5, 0);
        let changing = object("b", "Syncing", 4, 0);
        for (case, other, expected) in [
            ("assigned", object("c", "", 4, 0), 2),
            ("on its way", object("c", "Syncing", 4, 0), 2),
            ("away for a moment", object("c", "Unreachable", 4, 10), 2),
            ("away for long", object("c", "Unreachable", 4, 30), 1),
            ("new", object("c", "Syncing", 0, 0), 1),
            ("failed", object("c", "Failed", 4, 0), 1),
        ] {
            let mut seen = Seen {
                limits: [1; FLEETS.len()],
                ..Seen::default()
            };
            let now = Timestamp::from_second(1000).unwrap();
            seen.look([&synced].into_iter(), now);
            // It had reached its assignment; then another client changed its Secret.
            seen.look([&drifted, &changing, &other].into_iter(), now);
            assert_eq!(seen.most, expected, "{case}");
            assert_eq!(seen.error.is_some(), expected > 1, "{case}");
        }
    }

    #[test]
    fn a_revision_with_two_contents_is_seen() {
        let revision = |content: &str| -> Secret {
            let metadata = json!({"name": "bare-revision-1"});
            let secret =
                json!({"metadata": metadata, "data": {DATA_KEY: BASE64_STANDARD.encode(content)}});
            serde_json::from_value(secret).unwrap()
        };
        let mut seen = Seen::default();
        seen.look_at_revisions(&[revision("a"), revision("a")]);
        assert_eq!(seen.error, None);
        seen.look_at_revisions(&[revision("b")]);
        assert!(seen.error.is_some());
    }
}
