//! Input of the plan: clusters, selectors and objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use globalps_core::api::{ClusterPullSecret, ClusterPullSecretSpec, FleetPullSecret};
use globalps_core::labels;
use globalps_core::names::{cluster_pull_secret, fleet_revision};
use globalps_core::reasons::ReasonAndMessage;
use globalps_core::rollout::RevisionId;
use globalps_dockerconfig::{Finding, validate_replacement};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use super::clock::ClusterClock;
use super::installation::Installation;
use super::revision::FleetRevision;
use super::trust::Trust;
use crate::content::source::{Data, Source, Verdict};
use crate::refused::{self, Failure, Failures};

/// Namespace and name of a `Cluster`, or of the Secret that registers a cluster.
pub type ClusterKey = (String, String);

/// Namespaces that the hub may not read: whether each is being deleted.
pub type Hidden = BTreeMap<String, bool>;

/// A cluster on the hub: a `Cluster` of Cluster API, a Secret that registers it, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Labels of the `Cluster`; `None`: there is none.
    pub labels: Option<BTreeMap<String, String>>,
    /// Labels of the Secret that registers it; `None`: there is none.
    pub registered: Option<BTreeMap<String, String>>,
    /// It gets nothing new.
    pub is_deleting: bool,
    /// uids of the `Cluster` and of the Secret with its name.
    pub owners: Vec<String>,
    /// There is a Secret with the name of the `Cluster`, which does not name it.
    pub ignores_secret: bool,
    /// When the API server created the first of both.
    pub created: Option<Timestamp>,
    /// Reason and message if the hub must not write into it.
    pub obstacle: Option<ReasonAndMessage>,
}

impl ClusterView {
    /// The object is of an earlier cluster with this name.
    pub(super) fn has_replaced_owner(&self, object: &ClusterPullSecret) -> bool {
        let owner = object.owner_references().first();
        !self.owners.is_empty() && owner.is_some_and(|it| !self.owners.contains(&it.uid))
    }
}

/// What other clients did to the `ClusterPullSecret`s and the revisions of a fleet. It is undone, and nothing is planned from it.
#[derive(Clone, Debug, Default)]
pub struct Drift {
    /// They changed the spec. The object in the input has the one that the hub wrote.
    pub changed: BTreeSet<ClusterKey>,
    /// They deleted it: with what the hub had written.
    pub deleted: BTreeMap<ClusterKey, ClusterPullSecretSpec>,
    /// They deleted it, and since the hub wrote it again, the cluster has not reported what it has.
    pub recreated: BTreeSet<ClusterKey>,
    /// Numbers of the revisions whose annotations they changed. Those in the input are as the hub wrote them.
    pub revisions: BTreeSet<i64>,
}

/// One `FleetPullSecret` with everything that its plan depends on.
pub struct FleetInput<'a> {
    /// The last version that could be decoded.
    pub fleet: &'a FleetPullSecret,
    /// Why its newest version can't be decoded; `fleet` is the last one that could.
    pub unreadable: Option<String>,
    /// The Secret that `spec.secretRef` names.
    pub source: &'a Source,
    /// What to install in the clusters; `Err`: the message if it can't be installed.
    pub install: Result<Option<Arc<Installation>>, String>,
    /// Oldest first.
    pub revisions: Vec<FleetRevision>,
    /// Random id for the revision that this plan may write.
    pub new_id: RevisionId,
    /// Names of Secrets that are named like its revisions and have another owner, e.g. an earlier `FleetPullSecret` with its name.
    pub foreign: BTreeSet<String>,
    /// All that the hub knows, selected or not.
    pub clusters: &'a BTreeMap<ClusterKey, ClusterView>,
    /// Labels of the namespaces.
    pub namespaces: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// Its `ClusterPullSecret`s, by cluster.
    pub objects: BTreeMap<ClusterKey, &'a ClusterPullSecret>,
    /// What other clients changed since the last plan.
    pub drift: Drift,
    /// Clusters that another `FleetPullSecret` with the same target writes, with the name of that one.
    pub taken: BTreeMap<ClusterKey, String>,
    /// Namespaces that the hub may no longer read, and whether each is being deleted.
    pub hidden: Hidden,
    /// How many more objects of clusters each namespace may have.
    pub room: &'a BTreeMap<String, usize>,
    /// Why the fleet can change nothing: the hub does not keep the content of all its revisions.
    pub left_out: Option<String>,
    /// Namespaces that the installation trusts.
    pub trust: &'a Trust,
    /// Writes that failed.
    pub refused: &'a Failures,
    /// What has waited how long.
    pub clock: &'a ClusterClock,
    /// Only for what people read.
    pub now: Timestamp,
}

impl FleetInput<'_> {
    /// The source's verdict, and its content if that is valid.
    pub(super) fn validated(&self) -> (Verdict, Option<&Data>) {
        let last = self.revisions.last();
        let before = last.and_then(|last| last.content.0.as_deref());
        match self.source {
            Source::Absent => (Verdict::Absent, None),
            Source::Forbidden => (Verdict::Forbidden, None),
            Source::Unreadable(reason) => (Verdict::Unreadable(reason.clone()), None),
            Source::Found(data) => match validate_replacement(data.0.as_deref(), before) {
                (Some(_), findings) => {
                    let findings = findings.into_iter().filter(Finding::limits_use);
                    (Verdict::Valid(findings.collect()), Some(data))
                }
                (None, findings) => (Verdict::Invalid(findings), None),
            },
        }
    }

    /// The clusters that get no object because their namespace has too many. The oldest ones get one first.
    pub(super) fn crowded<'b>(
        &self,
        selected: impl Iterator<Item = (&'b ClusterKey, &'b ClusterView)>,
    ) -> BTreeSet<&'b ClusterKey> {
        let has = |key| self.objects.contains_key(key) || self.drift.deleted.contains_key(key);
        let new = selected.filter(|(key, _)| !has(*key));
        let mut new: Vec<_> = new.map(|(key, it)| (it.created, key)).collect();
        new.sort();
        let mut room = self.room.clone();
        let has_room = |(_, key): &(_, &ClusterKey)| match room.get_mut(&key.0) {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        };
        let (_, crowded): (Vec<_>, Vec<_>) = new.into_iter().partition(has_room);
        crowded.into_iter().map(|(_, key)| key).collect()
    }

    /// The last write of the cluster's `ClusterPullSecret` failed.
    pub(super) fn refused_object(&self, key: &ClusterKey) -> (Option<&Failure>, Timestamp) {
        // A thousand clusters ask in each plan.
        let is_any = !self.refused.is_empty();
        let title = is_any.then(|| object_title(key, self.fleet));
        let failure = title.and_then(|title| self.refused.get(&title));
        (failure, self.refused.now())
    }

    /// Whether the cluster is new, so that nothing runs there yet with what the fleet has. Until a revision is in every cluster, the
    /// others without content wait for their turn: those that are older than the first revision that a canary passed. The API server
    /// sets both times.
    pub(super) fn joins(&self, key: &ClusterKey) -> bool {
        let Some(cluster) = self.clusters.get(key) else {
            return false;
        };
        let mut revisions = self.revisions.iter();
        let first = revisions.find(|it| it.canary_passed && it.rejected.is_none());
        let first = first.and_then(|it| it.created);
        let is_later = || cluster.created.zip(first).is_some_and(|(it, of)| it > of);
        self.revisions.iter().any(|it| it.rolled_out.is_some()) || is_later()
    }

    /// The last write of this revision failed.
    pub(super) fn is_revision_refused(&self, number: i64) -> bool {
        self.refused
            .get(&revision_title(self.fleet, number))
            .is_some()
    }
}

/// `NAMESPACE/NAME`.
pub fn fleet_title(fleet: &FleetPullSecret) -> String {
    title(&(fleet.namespace().unwrap_or_default(), fleet.name_any()))
}

/// Title of the cluster's `ClusterPullSecret` among the failed writes.
pub fn object_title((namespace, cluster): &ClusterKey, fleet: &FleetPullSecret) -> String {
    let of = fleet.namespace().unwrap_or_default();
    let name = cluster_pull_secret(cluster, &of, &fleet.name_any());
    refused::title("ClusterPullSecret", &format!("{namespace}/{name}"))
}

/// The same of the Secret of a revision.
pub fn revision_title(fleet: &FleetPullSecret, number: i64) -> String {
    let namespace = fleet.namespace().unwrap_or_default();
    let name = fleet_revision(&fleet.name_any(), number);
    refused::title("Secret", &format!("{namespace}/{name}"))
}

/// The selectors of a `FleetPullSecret`.
pub struct Selection {
    /// It selects no cluster.
    is_deleted: bool,
    namespace: String,
    clusters: Option<Selector>,
    namespaces: Option<Selector>,
    registered: Option<Selector>,
    canaries: Selector,
}

impl Selection {
    /// `Err`: a message about the invalid selector. One of a `FleetPullSecret` that is being deleted does not matter: it selects no
    /// cluster any more, and nothing may keep it from being removed.
    pub fn new(fleet: &FleetPullSecret) -> Result<Self, String> {
        let spec = &fleet.spec;
        let is_deleted = fleet.metadata.deletion_timestamp.is_some();
        let selector = |field: &str, selector: &_| match labels::selector(selector) {
            Err(_) if is_deleted => Ok(Selector::default()),
            found => found.map_err(|error| format!("`spec.{field}` is invalid: {error}")),
        };
        let clusters = spec.cluster_selector.as_ref();
        let namespaces = spec.namespace_selector.as_ref();
        let registered = spec.registered.as_ref();
        Ok(Self {
            is_deleted,
            namespace: fleet.metadata.namespace.clone().unwrap_or_default(),
            clusters: clusters
                .map(|it| selector("clusterSelector", it))
                .transpose()?,
            namespaces: namespaces
                .map(|it| selector("namespaceSelector", it))
                .transpose()?,
            registered: registered
                .map(|it| selector("registered.selector", &it.selector))
                .transpose()?,
            canaries: selector(
                "rollout.canary.clusterSelector",
                &spec.rollout.canary.cluster_selector,
            )?,
        })
    }

    /// Whether the fleet's selectors match the cluster and its namespace.
    pub fn selects(
        &self,
        (namespace, _): &ClusterKey,
        cluster: &ClusterView,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> bool {
        let matches = |selector: &Option<Selector>, labels: &Option<BTreeMap<String, String>>| {
            let both = selector.as_ref().zip(labels.as_ref());
            both.is_some_and(|(selector, labels)| selector.matches(labels))
        };
        !self.is_deleted
            && self.selects_in(namespace, namespaces)
            && (matches(&self.clusters, &cluster.labels)
                || matches(&self.registered, &cluster.registered))
    }

    /// Whether it selects clusters in this namespace.
    pub(super) fn selects_in(
        &self,
        namespace: &str,
        namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> bool {
        let none = BTreeMap::new();
        match &self.namespaces {
            None => namespace == self.namespace,
            Some(selector) => selector.matches(namespaces.get(namespace).unwrap_or(&none)),
        }
    }

    pub(super) fn is_of_many_namespaces(&self) -> bool {
        self.namespaces.is_some()
    }

    pub(super) fn is_canary(&self, cluster: &ClusterView) -> bool {
        let labels = cluster.labels.as_ref().or(cluster.registered.as_ref());
        labels.is_some_and(|labels| self.canaries.matches(labels))
    }
}

/// `NAMESPACE/NAME`, for statuses and messages.
pub fn title((namespace, name): &ClusterKey) -> String {
    format!("{namespace}/{name}")
}
