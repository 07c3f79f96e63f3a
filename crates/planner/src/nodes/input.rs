//! The plan's input: a snapshot of the cluster, reduced to what matters.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, NodePullSecret};
use globalps_core::decode::Unreadable;
use globalps_core::names::{InvalidForget, SYNCER};
use globalps_core::rollout::{Revision, RevisionId};
use globalps_dockerconfig::DockerConfig;
use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;

use super::absence::{Absence, absence};
use super::clock::{LeaderClock, Uptime};
pub(super) use super::node::is_skipped;
pub use super::node::{NodeView, NotReady, is_selected};
use super::provider_paths::Deviation;
use super::syncers::Syncers;
use crate::content::scope::Namespaces;
use crate::content::secret::Global;
use crate::content::source::Source;
use crate::refused::{Failure, Failures};

/// The input of the plan.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// What the user wants.
    pub config: Configuration,
    /// What the content comes from.
    pub secrets: PullSecrets<'a>,
    /// What earlier plans left.
    pub recorded: Recorded,
    /// The syncers and their objects.
    pub agents: Agents<'a>,
    /// The Nodes, and what they report.
    pub nodes: Nodes<'a>,
    /// The time, and what the leader saw when.
    pub clock: Clock<'a>,
    /// Writes that failed.
    pub refused: Cow<'a, Failures>,
    /// Every object that can't be decoded: kind, name and why. For the report.
    pub unreadable_objects: Vec<String>,
    /// Random id for the revision that this plan may write.
    pub new_id: RevisionId,
}

/// What the user wants.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Defaults if there is no `GlobalPullSecret`; the last one in force while a change of it is held
    /// ([`Absence::OnlyUnnamed`](super::absence::Absence::OnlyUnnamed)).
    pub spec: GlobalPullSecretSpec,
    /// How `spec` deviates from the `GlobalPullSecret`.
    pub deviation: Deviation,
    /// There is no `GlobalPullSecret`.
    pub is_missing: bool,
    /// Why the newest `GlobalPullSecret` can't be decoded, as a clause; `spec` is the last one that could.
    pub unreadable: Option<String>,
    /// `spec` is that of a `GlobalPullSecret`; otherwise it has the defaults.
    pub is_known: bool,
    /// It restores every node on purpose, although sources exist that it no longer names.
    pub restore_is_meant: bool,
    /// Revision up to which the annotation `globalps.io/forget-up-to` of the `GlobalPullSecret` wants content forgotten.
    pub forget_request: Option<Result<i64, InvalidForget>>,
}

/// The Secrets that the content comes from, and the namespaces that it may be for.
#[derive(Clone, Debug)]
pub struct PullSecrets<'a> {
    /// The Secret that users write.
    pub additional: Source,
    /// Type of the additional Secret.
    pub additional_type: Option<String>,
    /// Annotation `globalps.io/retry` of the additional Secret: each new value requests one more attempt on every node that
    /// failed.
    pub retry: Option<String>,
    /// The cluster's own, if one is configured.
    pub original: Source,
    /// The configuration's sources by name, in order.
    pub sources: Vec<(String, Source)>,
    /// Sources in force that the configuration no longer names.
    pub unnamed_sources: Vec<(String, Source)>,
    /// `None`: no source selects namespaces by labels, or the controller may not list them.
    pub namespaces: Option<Cow<'a, Namespaces>>,
}

/// What the controller recorded of earlier plans.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// `None`: there is no `global-pull-secret`.
    pub global: Option<Global>,
    /// Another client deleted or changed it; `global` is its last state, as far as that is known.
    pub global_is_lost: bool,
    /// When `global-pull-secret` was created, by the API server's clock as `creationTimestamp` of Nodes.
    pub first_written: Option<Timestamp>,
    /// Revision in the Secret `global-pull-secret-rolled-out`, or before another client deleted or changed it; `None`: there is no such
    /// Secret.
    pub rolled_out_revision: Option<Revision>,
    /// `status.revision` of the `GlobalPullSecret`, which the controller wrote; 0: none.
    pub reported_revision: i64,
    /// The controller's copies of content up to this revision are deleted on request; 0: none.
    pub forgotten: i64,
    /// What is to be forgotten is in force again, with a later revision.
    pub is_content_back: bool,
    /// The revision that has reached every namespace that should and can have it; `None`: not known yet.
    pub namespaces_have: Option<Revision>,
    /// Namespaces or operators may have Secrets of the controller.
    pub has_copies: bool,
}

/// The syncers and restorers.
#[derive(Clone, Debug)]
pub struct Agents<'a> {
    /// Nodes with a syncer pod, and those without.
    pub syncers: Cow<'a, Syncers>,
    /// A `DaemonSet` of the syncer or the restorer exists, and is not being deleted.
    pub daemon_set: bool,
    /// Some object of the syncer or the restorer exists, or some node's, even if it is being deleted.
    pub has_leftovers: bool,
    /// Every node was restored, and the leader is deleting the objects: a missing one is not created again.
    pub are_cleaned_up: bool,
}

/// The Nodes, and what they report.
#[derive(Clone, Debug)]
pub struct Nodes<'a> {
    /// By name.
    pub views: Cow<'a, BTreeMap<String, Box<NodeView>>>,
    /// By name of the node.
    pub objects: Cow<'a, BTreeMap<String, Box<NodePullSecret>>>,
    /// The API server serves `NodePullSecret`s. Otherwise they are the last known ones, or none.
    pub are_known: bool,
    /// Nodes whose `NodePullSecret` can't be decoded; `objects` has the last version that could.
    pub unreadable: Cow<'a, BTreeMap<String, Box<Unreadable>>>,
    /// Nodes whose `NodePullSecret` another client deleted.
    pub deleted_out_of_band: Cow<'a, BTreeSet<String>>,
    /// The Secret that another program writes for them, where observers compare; `None`: there is none.
    pub merged: Option<Merged>,
    /// Registries that other programs have where entries of globalps are merged in: a removal leaves them on the nodes.
    pub of_others: BTreeSet<String>,
    /// Nodes whose assignment another client changed. `objects` has what this controller assigned.
    pub changed_out_of_band: Cow<'a, BTreeSet<String>>,
}

/// The Secret `global-pull-secret` of another program.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Of the Secret.
    pub uid: String,
    /// Of the Secret.
    pub resource_version: String,
    /// Its credentials; `None`: it has none that can be read.
    pub content: Option<DockerConfig>,
}

/// The time, and what the leader saw when.
#[derive(Clone, Debug)]
pub struct Clock<'a> {
    /// When it first saw each assignment, report and heartbeat.
    pub leader: Cow<'a, LeaderClock>,
    /// For durations.
    pub uptime: Uptime,
    /// To be shown, and written to objects.
    pub now: Timestamp,
}

impl Clock<'_> {
    /// How long the object has had its generation.
    pub fn assigned_for(&self, object: &NodePullSecret) -> SignedDuration {
        self.leader.assigned_for(object, self.uptime)
    }

    /// How long the node has been `NotReady`; `None`: it is ready.
    pub fn not_ready_for(&self, node: &NodeView) -> Option<SignedDuration> {
        self.leader.not_ready_for(node, self.uptime)
    }

    pub(super) fn is_new(&self, node: &NodeView) -> bool {
        self.leader.is_new(node, self.uptime, self.now)
    }
}

impl Recorded {
    /// A restore has begun, which only valid content ends.
    pub fn is_restoring(&self) -> bool {
        self.global.as_ref().is_some_and(|global| global.restoring)
    }

    /// Whether a Secret of this cluster has the content of this revision.
    pub(super) fn knows(&self, revision: Revision) -> bool {
        let newest = self.global.as_ref().map(|global| global.revision);
        revision.is_identified() && [newest, self.rolled_out_revision].contains(&Some(revision))
    }

    /// Whether this controller may have assigned this revision: one that it knows, or an earlier one, whose id is no longer known.
    pub(super) fn may_have_assigned(&self, revision: Revision) -> bool {
        let newest = self
            .global
            .as_ref()
            .map_or(0, |global| global.revision.number);
        let is_earlier = newest == 0 || revision.number < newest;
        self.knows(revision) || revision.is_identified() && is_earlier
    }
}

impl Snapshot<'_> {
    /// Nodes may have content of globalps.
    pub fn is_in_force(&self) -> bool {
        self.recorded.global.is_some()
            || self.may_be_on_nodes()
            || self.recorded.rolled_out_revision.is_some()
    }

    /// Whether there is no pull secret, which restores every node.
    pub fn absence(&self) -> Absence {
        absence(
            &self.secrets.additional,
            self.recorded
                .global
                .as_ref()
                .is_some_and(Global::is_of_sources),
            &self.secrets.sources,
            &self.secrets.unnamed_sources,
            self.config.restore_is_meant,
        )
    }

    /// Otherwise its limits, and which nodes it selects, are not known.
    pub fn is_configuration_known(&self) -> bool {
        self.config.is_known || !self.config.is_missing && self.config.unreadable.is_none()
    }

    /// Nodes, namespaces or operators may have content, whose configuration must not be replaced by defaults.
    pub fn needs_configuration(&self) -> bool {
        self.is_in_force() || self.recorded.has_copies
    }

    /// Some node may have content of globalps, which only its syncer can restore. An object that is being deleted says nothing:
    /// after a cleanup a finalizer may keep it for long.
    pub fn may_be_on_nodes(&self) -> bool {
        let global = self.recorded.global.as_ref();
        let mut objects = self.nodes.objects.values().map(|it| &it.metadata);
        let mut unreadable = self.nodes.unreadable.values().map(|it| &it.metadata);
        let is_kept = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_none();
        self.agents.daemon_set
            || objects.any(is_kept)
            || unreadable.any(is_kept)
            || match global {
                Some(global) => global.config_file.is_some(),
                None => !self.nodes.are_known && self.recorded.rolled_out_revision.is_some(),
            }
    }

    /// Nodes get nothing, and none has anything.
    pub fn is_without_nodes(&self) -> bool {
        self.config.spec.kubelet.delivery == DeliveryType::None && !self.may_be_on_nodes()
    }

    /// The node is new, and not one of those that the first rollout began with: on a new cluster all nodes are new, and would
    /// change at once.
    pub(super) fn joins_the_fleet(&self, node: &NodeView) -> bool {
        let is_rolled_out = self
            .recorded
            .global
            .as_ref()
            .is_some_and(|g| g.rolled_out.is_some());
        let is_later = self
            .recorded
            .first_written
            .is_some_and(|time| time < node.created);
        self.clock.is_new(node) && (is_rolled_out || is_later)
    }

    /// Whether a node without an object may have had an assignment by a deleted object. A new node counts as having had none, unless
    /// the deletion was observed; a restore waits for its report, but not forever.
    pub(super) fn may_have_something(&self, node: &NodeView) -> bool {
        let had_object =
            !self.clock.is_new(node) || self.nodes.deleted_out_of_band.contains(&node.name);
        had_object && self.is_in_force()
    }

    /// The last write of the syncer's `DaemonSet` failed.
    pub fn refused_syncer(&self) -> Option<&Failure> {
        self.refused.of("DaemonSet", SYNCER)
    }

    /// The last write of this node's `NodePullSecret` failed.
    pub(super) fn refused(&self, node: &str) -> Option<&Failure> {
        self.refused.of("NodePullSecret", node)
    }

    /// The credentials file that the nodes have, if the spec has another one.
    pub fn other_config_file(&self) -> Option<&str> {
        let given = self.recorded.global.as_ref()?.config_file.as_deref()?;
        (given != self.config.spec.kubelet.config_file).then_some(given)
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::api::Cordoned;
    use globalps_core::phase;

    use super::*;

    #[test]
    fn labels_and_age_classify_a_node() {
        let created = Timestamp::UNIX_EPOCH;
        let node = |labels: &[(&str, &str)]| {
            let labels = labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            NodeView {
                labels: (&labels.collect::<BTreeMap<_, _>>()).into(),
                ..NodeView::of_test("a", created)
            }
        };
        for (labels, is_linux, is_control_plane, zone) in [
            (&[][..], false, false, ""),
            (&[("kubernetes.io/os", "windows")], false, false, ""),
            (&[("kubernetes.io/os", "linux")], true, false, ""),
            (
                &[("node-role.kubernetes.io/control-plane", "")],
                false,
                true,
                "",
            ),
            (
                &[("node-role.kubernetes.io/master", "true")],
                false,
                true,
                "",
            ),
            (&[("topology.kubernetes.io/zone", "z")], false, false, "z"),
        ] {
            let node = node(labels);
            let found = (node.is_linux(), node.is_control_plane(), node.zone());
            assert_eq!(found, (is_linux, is_control_plane, zone), "{labels:?}");
        }
    }

    #[test]
    fn each_label_excludes_a_node() {
        let spec = GlobalPullSecretSpec::default();
        for (label, value, expected) in [
            ("globalps.io/exclude", "true", false),
            ("globalps.io/exclude", "false", true),
            (
                "node-restriction.kubernetes.io/globalps-exclude",
                "true",
                false,
            ),
            (
                "node-restriction.kubernetes.io/globalps-exclude",
                "false",
                true,
            ),
            ("node-restriction.kubernetes.io/other", "true", true),
        ] {
            let labels = [("kubernetes.io/os", "linux"), (label, value)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let node = NodeView {
                labels: (&BTreeMap::from(labels)).into(),
                ..NodeView::of_test("a", Timestamp::UNIX_EPOCH)
            };
            assert_eq!(is_selected(&spec, &node), expected, "{label}={value}");
        }
    }

    #[test]
    fn nodes_in_deletion_get_nothing_new_cordoned_ones_by_choice() {
        let mut spec = GlobalPullSecretSpec::default();
        for (cordoned, unschedulable, is_being_deleted, expected) in [
            (Cordoned::Update, false, false, false),
            (Cordoned::Update, true, false, false),
            (Cordoned::Update, false, true, true),
            (Cordoned::Skip, false, false, false),
            (Cordoned::Skip, true, false, true),
        ] {
            spec.rollout.cordoned = cordoned;
            let node = NodeView {
                unschedulable,
                is_being_deleted,
                ..NodeView::of_test("a", Timestamp::UNIX_EPOCH)
            };
            let case = (cordoned, unschedulable, is_being_deleted);
            assert_eq!(is_skipped(&spec, &node), expected, "{case:?}");
        }
    }

    #[test]
    fn an_unresponsive_kubelet_is_not_one_that_reports_not_ready() {
        let mut node = NodeView::of_test("a", Timestamp::UNIX_EPOCH);
        let spec = GlobalPullSecretSpec::default();
        let for_7_seconds = SignedDuration::from_secs(7);
        for (unknown, expected) in [
            (true, phase::NotReady::Unknown(for_7_seconds)),
            (false, phase::NotReady::Reported(for_7_seconds)),
        ] {
            let since = Timestamp::UNIX_EPOCH;
            node.ready = Err(NotReady { since, unknown });
            let view = node.phase_view(&spec, (true, false), Some(for_7_seconds));
            assert_eq!((view.not_ready, view.unresponsive), (Some(expected), true));
            assert!(!view.excluded);
        }
    }
}
