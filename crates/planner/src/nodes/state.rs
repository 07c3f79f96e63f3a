//! What is known of each node, judged once in a plan: before it has a goal. Pure.

use globalps_core::api::{
    DeliveryType, GlobalPullSecretSpec, NodePullSecret, NodePullSecretStatus, Phase,
};
use globalps_core::names::{requested_retry, shortened_retry};
use globalps_core::rollout::{self, Goal, Progress, Refused, Revision, UNRESPONSIVE_AFTER};
use globalps_provider::{MIN_KUBELET_FOR_SCOPES, kubelet_version};
use jiff::SignedDuration;
use kube::ResourceExt as _;

use super::clock::up_to_date;
use super::input::{NodeView, PullSecrets, Recorded, Snapshot, is_selected, is_skipped};
use super::node::is_abandoned;
use super::progress::{Case, Context, Judged, is_at_rest, is_retry_due, unassigned};

/// A node, as far as it does not depend on its goal.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct NodeState<'a> {
    pub(super) node: &'a NodeView,
    /// The last version that could be decoded.
    pub(super) object: Option<&'a NodePullSecret>,
    /// The newest one can't be.
    pub(super) is_unreadable: bool,
    /// Nobody waits for it.
    pub(super) is_unsupported: bool,
    pub(super) is_selected: bool,
    pub(super) is_skipped: bool,
    pub(super) is_canary: bool,
    /// A cleanup may finish without it.
    pub(super) is_abandoned: bool,
    pub(super) judged: Judged,
    /// The same if it must stay ready for as long as a canary.
    pub(super) as_canary: Judged,
    pub(super) is_up_to_date: bool,
    /// The revision that it has, though its object assigns something else.
    unassigned: Option<Revision>,
    /// The revision that it reports to have; `NONE`: none, or one that the controller can't have assigned.
    pub(super) reported: Revision,
    /// Another program changes it: it counts as changing in place.
    pub(super) is_observed: bool,
    /// By the credential provider, and another revision of the same configuration needs no restart: the number of this one.
    pub(super) in_place: Option<i64>,
    /// It is new, has reported that it has nothing, and waits for the fleet's revision.
    pub(super) is_new: bool,
    /// The value that requests one more attempt; empty: none.
    pub(super) retry: String,
    /// It is blocked, and may retry.
    pub(super) is_retry_due: bool,
    /// Its object needs the present owner of its file.
    pub(super) has_new_owner: bool,
    /// Its syncer needs an object, and there is none.
    pub(super) lacks_object: bool,
    /// It may have had an assignment by a deleted object.
    pub(super) may_have_something: bool,
    /// Something is in force, and the leader did not see the node join.
    pub(super) was_there: bool,
    /// Every node was restored.
    pub(super) is_cleaned_up: bool,
    pub(super) refused: Option<Refused>,
    /// A failed write of its object may still take effect.
    pub(super) is_write_open: bool,
    pub(super) not_ready: Option<SignedDuration>,
    pub(super) assigned_for: SignedDuration,
    pub(super) agent_down: Option<SignedDuration>,
    pub(super) awaits_agent: bool,
    pub(super) unable: Option<SignedDuration>,
}

/// All nodes by name; none if nodes get nothing, and none has anything.
pub fn node_states<'a>(snapshot: &'a Snapshot) -> Vec<NodeState<'a>> {
    let mut states = Vec::new();
    if snapshot.is_without_nodes() {
        return states;
    }
    // Grown by doubling it would take twice as much.
    states.reserve_exact(snapshot.nodes.views.len());
    let nodes = snapshot.nodes.views.values();
    states.extend(nodes.map(|node| NodeState::of(snapshot, node)));
    let has_worker = states
        .iter()
        .any(|state| !state.node.is_control_plane() && state.can_be_canary());
    let selector = &snapshot.config.spec.rollout.canary.node_selector;
    for state in &mut states {
        state.is_canary = if selector.is_empty() {
            !state.node.is_control_plane() || !has_worker
        } else {
            selector
                .iter()
                .all(|(key, value)| state.node.has(key, value))
        };
    }
    states
}

impl<'a> NodeState<'a> {
    fn of(snapshot: &'a Snapshot, node: &'a NodeView) -> Self {
        let Snapshot {
            config,
            secrets,
            recorded,
            agents,
            nodes,
            clock,
            ..
        } = snapshot;
        let spec = &config.spec;
        let object = nodes.objects.get(&node.name).map(AsRef::as_ref);
        let unreadable = nodes.unreadable.get(&node.name);
        let metadata = unreadable.map(|unreadable| &unreadable.metadata);
        let metadata = metadata.or(object.map(|object| &object.metadata));
        let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
        let may_have_something = snapshot.may_have_something(node);
        let (now, refused) = (snapshot.refused.now(), snapshot.refused(&node.name));
        let case = object.map(|object| case(snapshot, node, object));
        let (judged, as_canary) = if let Some(case) = case {
            let as_canary = case.ready_for(min_ready(spec, true));
            (case.judged(), as_canary.judged())
        } else {
            let is_refused = refused.is_some_and(|it| it.lasts_for(now) >= UNRESPONSIVE_AFTER);
            // This plan writes its object, which says so from the next plan on.
            let progress = if is_refused {
                Some(Progress::Blocked)
            } else {
                let may_report = node.ready.is_ok() && node.can_run_syncer();
                may_report.then_some(Progress::Unknown)
            };
            let progress = progress.filter(|_| may_have_something);
            let judged = Judged {
                assigned: progress.map(|progress| (Goal::Revision(Revision::NONE), progress)),
                failed: Revision::NONE,
            };
            (judged, judged)
        };
        let status = object.and_then(|object| object.status.as_ref());
        let reported = status.map_or(Revision::NONE, NodePullSecretStatus::in_force);
        let is_own = recorded.may_have_assigned(reported);
        let is_selected = is_selected(spec, node);
        let is_skipped = is_skipped(spec, node);
        let is_wanted = node.can_run_syncer() || nodes.deleted_out_of_band.contains(&node.name);
        let can_begin = is_selected && !is_skipped && unreadable.is_none();
        Self {
            node,
            object,
            is_unreadable: unreadable.is_some(),
            is_unsupported: snapshot.unsupported(node).is_some(),
            is_selected,
            is_skipped,
            is_canary: false,
            is_abandoned: annotations.is_some_and(is_abandoned),
            judged,
            as_canary,
            is_up_to_date: case.is_some_and(|case| case.status.is_some()),
            unassigned: object.and_then(unassigned),
            reported: if is_own { reported } else { Revision::NONE },
            is_observed: spec.kubelet.delivery.is_observed(),
            in_place: object.and_then(|object| in_place(recorded, object, node)),
            is_new: can_begin
                && object.is_some_and(|object| awaits_fleet(recorded, node, object))
                && snapshot.joins_the_fleet(node),
            retry: retry(secrets, object),
            is_retry_due: object
                .is_some_and(|object| is_retry_due(object, &clock.leader, clock.uptime)),
            has_new_owner: object.is_some_and(|object| has_new_owner(object, node)),
            lacks_object: object.is_none() && is_wanted,
            may_have_something,
            was_there: snapshot.is_in_force() && !clock.leader.saw_join(node),
            is_cleaned_up: agents.are_cleaned_up,
            refused: refused.map(|refused| refused.of_member(now)),
            is_write_open: object.is_some() && refused.is_some_and(|it| it.is_open(now)),
            not_ready: clock.not_ready_for(node),
            assigned_for: object.map_or(SignedDuration::ZERO, |it| clock.assigned_for(it)),
            agent_down: agents.syncers.down_for(&node.name, clock.uptime),
            awaits_agent: agents.syncers.is_replaced(&node.name),
            unable: clock.leader.unable_for(&node.name, clock.uptime),
        }
    }

    /// It can change now, so that the canary need not be a node of the control plane.
    fn can_be_canary(&self) -> bool {
        let is_silent = !self.is_up_to_date && self.assigned_for >= UNRESPONSIVE_AFTER;
        self.is_selected
            && !self.is_skipped
            && !self.is_unreadable
            && self.node.file_owner.is_empty()
            && self.node.ready.is_ok()
            && !is_silent
            && self.agent_down.is_none_or(|time| time < UNRESPONSIVE_AFTER)
            && !self.is_unsupported
            && self.refused.is_none()
    }

    /// One more attempt was asked for since its last assignment.
    pub(super) fn is_asked(&self) -> bool {
        let last = self.object.map(|object| &object.spec.retry);
        !self.retry.is_empty() && last.is_some_and(|last| *last != self.retry)
    }

    /// It is at rest with this goal, though its object assigns something else.
    pub(super) fn has_unassigned(&self, goal: Goal) -> bool {
        self.unassigned.map(Goal::Revision) == Some(goal)
    }
}

/// The node with its object, as the leader sees both.
fn case<'a>(snapshot: &'a Snapshot, node: &'a NodeView, object: &'a NodePullSecret) -> Case<'a> {
    let (spec, recorded) = (&object.spec, &snapshot.recorded);
    let global = recorded.global.as_ref();
    let context = Context {
        clock: &snapshot.clock.leader,
        now: snapshot.clock.uptime,
        min_ready: min_ready(&snapshot.config.spec, false),
        joins_the_fleet: snapshot.joins_the_fleet(node),
        is_rolled_out: global.is_some_and(|global| global.rolled_out.is_some()),
        is_own: spec.revision == 0 || recorded.may_have_assigned(spec.assigned()),
        is_changed: snapshot.nodes.changed_out_of_band.contains(&node.name),
        is_observed: snapshot.config.spec.kubelet.delivery.is_observed(),
    };
    Case::of(object, node, context)
}

/// How long a node must be Ready to count as done.
fn min_ready(spec: &GlobalPullSecretSpec, is_canary: bool) -> SignedDuration {
    let seconds = if is_canary {
        let canary = spec.rollout.canary.min_ready_seconds;
        spec.rollout.min_ready_seconds.max(canary)
    } else {
        spec.rollout.min_ready_seconds
    };
    SignedDuration::from_secs(seconds.into())
}

/// The value that requests one more attempt on the node: from its own annotation and that of the additional Secret; empty:
/// neither.
fn retry(secrets: &PullSecrets, object: Option<&NodePullSecret>) -> String {
    let own = object.and_then(|object| requested_retry(object.annotations()));
    let additional = secrets.retry.as_deref().map(shortened_retry);
    let both: Vec<String> = own.into_iter().chain(additional).collect();
    both.join(" ")
}

/// The node's kubelet runs the provider, so other content of the same configuration needs no restart. A node that reports
/// this wrongly harms only itself. The number of a revision that isn't known proves nothing.
fn in_place(recorded: &Recorded, object: &NodePullSecret, node: &NodeView) -> Option<i64> {
    let gives_tokens = |version: &str| kubelet_version(version) >= Some(MIN_KUBELET_FOR_SCOPES);
    let status = object.status.as_ref()?;
    let is_in_place = status.delivery == DeliveryType::CredentialProvider.as_str()
        && recorded.knows(status.in_force())
        // An upgraded kubelet gets one more provider.
        && gives_tokens(&object.spec.kubelet_version) == gives_tokens(&node.kubelet_version);
    is_in_place.then_some(status.revision)
}

/// The owner of the node's file has changed since its object was written. A node that is being restored needs none.
fn has_new_owner(object: &NodePullSecret, node: &NodeView) -> bool {
    object.spec.foreign_owner != node.file_owner && !object.spec.restore
}

/// The node has reported that it has nothing: without an assignment, or with one whose content was replaced before it fetched it.
fn awaits_fleet(recorded: &Recorded, node: &NodeView, object: &NodePullSecret) -> bool {
    let spec = &object.spec;
    let can_be_fetched = spec.revision > 0 && recorded.knows(spec.assigned());
    let was_asked = can_be_fetched || spec.restore || spec.revoked;
    let has_nothing =
        up_to_date(object).is_some_and(|status| status.revision == 0 && is_at_rest(status));
    !was_asked && has_nothing && node.file_owner.is_empty()
}

/// Why a failed or blocked node doesn't reach its goal, as text.
pub fn failure(snapshot: &Snapshot, name: &str) -> String {
    if let Some(unreadable) = snapshot.nodes.unreadable.get(name) {
        return format!("{name}: its NodePullSecret can't be read: {unreadable}");
    }
    if let Some(refused) = snapshot.refused(name) {
        return format!("{name}: {}", refused.message);
    }
    let object = snapshot.nodes.objects.get(name);
    let (Some(object), Some(node)) = (object, snapshot.nodes.views.get(name)) else {
        return name.to_owned();
    };
    let Some(status) = object.status.as_ref() else {
        return name.to_owned();
    };
    let case = case(snapshot, node, object);
    let reason = case.lost().unwrap_or_else(|| match status.phase {
        Phase::Synced | Phase::Restored => {
            "it does not stay Ready and unchanged: `minReadySeconds` has not passed once since the change"
                .to_owned()
        }
        _ => format!("{}: {}", status.phase, status.message),
    });
    let failed = object.spec.failed();
    let counts = match case.progress() {
        Some((goal, Progress::Failed)) if rollout::has_failed_another(failed, goal) => {
            format!(
                "; it failed revision {} before and has not been synced since, so this does not halt the rollout",
                failed.number
            )
        }
        _ => String::new(),
    };
    let asked = retry(&snapshot.secrets, Some(object));
    let waits = if !asked.is_empty() && asked != object.spec.retry && node.ready.is_err() {
        "; it is tried again once it is Ready"
    } else {
        ""
    };
    format!("{name}: {reason}{counts}{waits}")
}

#[cfg(test)]
mod tests;
