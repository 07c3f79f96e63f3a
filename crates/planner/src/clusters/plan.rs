//! The plan for one `FleetPullSecret`: the hub's next writes.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{ClusterPullSecret, ClusterPullSecretSpec, DeletionPolicy, MAX_REVISION};
use globalps_core::names::fleet_revision;
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_core::rollout::{self, Goal, Ledger, Member, Outcome, Progress, Revision, Step};
use kube::ResourceExt as _;

use super::assignments::{Assignment, assigned, missing, reverted, revoked, upkeep};
use super::earlier::{bootstrapped, desired, needed, rejected, rolled_back};
use super::hidden;
use super::input::{ClusterKey, ClusterView, FleetInput, Selection, title};
use super::limits::{limits, too_many};
use super::progress::{Context, has_nothing, member};
use super::revision::{FleetRevision, outdated};
use crate::content::source::{Data, Verdict};

/// Maximum number of assignments in one plan.
const MAX_ASSIGNMENTS: usize = 256;

/// Why clusters keep what they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetHold {
    /// The newest `FleetPullSecret` can't be decoded: why, as a clause.
    Unreadable(String),
    /// A selector is invalid.
    Selector(String),
    /// The hub may not read namespaces that concern the fleet: why and what to do, as clauses.
    Hidden(String),
    /// The hub's installation does not trust the fleet's namespace with a field: which one and what to do, as clauses.
    NotTrusted(String),
    /// There is no valid source, and no revision yet.
    NothingYet,
    /// globalps can't be installed.
    Install(String),
    /// There is no valid source.
    NoValidContent,
    /// The revision number has reached its maximum.
    NoRevisionLeft,
    /// The hub does not keep the content of all revisions: why, as a clause.
    LeftOut(String),
}

/// What the hub writes for a fleet, and what it reports.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts do not depend on each other"
)]
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// Of the source.
    pub verdict: Verdict,
    /// Why no new revision is written; `None`: nothing prevents it.
    pub hold: Option<FleetHold>,
    /// Newest revision; `NONE`: none.
    pub revision: Revision,
    /// Enough canaries have had it, as recorded.
    pub canary_passed: bool,
    /// Revisions to write before anything else.
    pub revisions: Vec<FleetRevision>,
    /// Why the source's content was rolled back, if that is why other content is in force.
    pub rolled_back: Option<String>,
    /// Numbers of revisions to delete.
    pub outdated: Vec<i64>,
    /// Failures have halted the rollout of that revision.
    pub is_halted: bool,
    /// The clusters with a goal.
    pub members: Vec<(ClusterKey, Member)>,
    /// Selected clusters that get nothing, with reason and message.
    pub obstacles: BTreeMap<ClusterKey, ReasonAndMessage>,
    /// In the order in which they are written.
    pub assignments: Vec<(ClusterKey, ClusterPullSecretSpec)>,
    /// Clusters whose objects are deleted: they no longer have anything from the fleet, or it stays there unmanaged.
    pub released: Vec<ClusterKey>,
    /// The plan only writes a new revision. The next one plans the rest.
    pub is_first_step: bool,
    /// The `FleetPullSecret` is being deleted, and none of its objects is left, or only until others remove their finalizers.
    pub is_finished: bool,
}

/// Decides everything for one fleet. Pure: the same input has the same plan.
pub fn plan(input: &FleetInput) -> FleetPlan {
    let mut plan = rollout(input);
    let is_written =
        |known: &FleetRevision| plan.revisions.iter().any(|it| it.number == known.number);
    let changed = |known: &&FleetRevision| input.drift.revisions.contains(&known.number);
    let changed = input.revisions.iter().filter(changed);
    let reverted: Vec<FleetRevision> = changed.filter(|it| !is_written(it)).cloned().collect();
    plan.revisions.extend(reverted);
    plan
}

fn rollout(input: &FleetInput) -> FleetPlan {
    let (verdict, data) = input.validated();
    let newest = input.revisions.last().map(FleetRevision::revision);
    let mut plan = FleetPlan {
        verdict,
        hold: None,
        revision: newest.unwrap_or_default(),
        canary_passed: input.revisions.last().is_some_and(|it| it.canary_passed),
        revisions: Vec::new(),
        rolled_back: rolled_back(input, data)
            .filter(|(rejected, _)| newest != Some(rejected.revision()))
            .and_then(|(rejected, _)| rejected.rejected.clone()),
        outdated: Vec::new(),
        is_halted: false,
        members: Vec::new(),
        obstacles: BTreeMap::new(),
        assignments: Vec::new(),
        released: Vec::new(),
        is_first_step: false,
        is_finished: false,
    };
    if let Some(reason) = &input.unreadable {
        plan.hold = Some(FleetHold::Unreadable(reason.clone()));
        plan.assignments = reverted(input).collect();
        return plan;
    }
    let selection = match Selection::new(input.fleet) {
        Ok(selection) => selection,
        Err(reason) => {
            plan.hold = Some(FleetHold::Selector(reason));
            plan.assignments = reverted(input).collect();
            return plan;
        }
    };
    if let Some(reason) = hidden::hold(input, &selection) {
        plan.hold = Some(FleetHold::Hidden(reason));
        let is_visible = |key: &ClusterKey| !input.hidden.contains_key(&key.0);
        let reverted = reverted(input).filter(|(key, _)| is_visible(key));
        plan.assignments = reverted.collect();
        return plan;
    }
    if let Some(reason) = input.trust.hold(input.fleet) {
        plan.hold = Some(FleetHold::NotTrusted(reason));
        plan.assignments = reverted(input).collect();
        return plan;
    }
    let is_deleted = input.fleet.metadata.deletion_timestamp.is_some();
    if let Some(reason) = input.left_out.as_ref().filter(|_| !is_deleted) {
        plan.hold = Some(FleetHold::LeftOut(reason.clone()));
        plan.assignments = reverted(input).collect();
        return plan;
    }
    if !is_deleted {
        match next_revision(input, data) {
            NextRevision::Same => {}
            // While it can't be written, the existing one stays the goal.
            NextRevision::New(revision) if input.is_revision_refused(revision.number) => {
                plan.revisions.push(revision);
            }
            NextRevision::New(revision) => {
                plan.revisions.extend(outcome(input, &selection, &plan));
                plan.revision = revision.revision();
                plan.canary_passed = false;
                plan.revisions.push(revision);
                plan.is_first_step = true;
                plan.assignments = reverted(input).collect();
                return plan;
            }
            NextRevision::Hold(hold) => plan.hold = Some(hold),
        }
    }
    with_members(input, &selection, &mut plan);
    let (members, step) = stepped(input, &plan);
    plan.is_halted = step.outcome.is_halted;
    if let Some(newest) = input.revisions.last().filter(|_| !is_deleted) {
        plan.revisions
            .extend(with_progress(input, newest, &members, step.outcome));
    }
    assign(input, is_deleted, &step, &mut plan);
    let assigned = input.objects.values().map(|object| object.spec.revision);
    let assigned = assigned.chain(plan.assignments.iter().map(|(_, spec)| spec.revision));
    let needed: Vec<i64> = assigned.chain(needed(input, data)).collect();
    let history = input.fleet.spec.history_limit;
    plan.outdated = outdated(&input.revisions, &needed, history);
    // What other programs' finalizers keep of an object is nothing in its cluster.
    let is_gone = |(key, object): (&ClusterKey, &&ClusterPullSecret)| {
        object.metadata.deletion_timestamp.is_some() && plan.released.contains(key)
    };
    plan.is_finished = is_deleted && plan.members.is_empty() && input.objects.iter().all(is_gone);
    plan
}

/// How far the revision got that another one replaces now: clusters may have reported since its progress was written.
fn outcome(input: &FleetInput, selection: &Selection, plan: &FleetPlan) -> Option<FleetRevision> {
    let replaced = input.revisions.last()?;
    let mut plan = plan.clone();
    with_members(input, selection, &mut plan);
    let (members, step) = stepped(input, &plan);
    let revision = with_progress(input, replaced, &members, step.outcome)?;
    // Another revision replaces it already.
    let rejected = replaced.rejected.clone();
    let revision = FleetRevision {
        rejected,
        ..revision
    };
    (revision != *replaced).then_some(revision)
}

enum NextRevision {
    Same,
    New(FleetRevision),
    Hold(FleetHold),
}

/// Whether the source needs a new revision. If its content was rolled back, the last good content stays until the source changes.
fn next_revision(input: &FleetInput, data: Option<&Data>) -> NextRevision {
    let newest = input.revisions.last();
    let Some(data) = data else {
        return NextRevision::Hold(if newest.is_some() {
            FleetHold::NoValidContent
        } else {
            FleetHold::NothingYet
        });
    };
    let install = match &input.install {
        Ok(install) => install.clone(),
        Err(reason) => return NextRevision::Hold(FleetHold::Install(reason.clone())),
    };
    let (content, install) = desired(input, data, install);
    let is_same = |newest: &FleetRevision| {
        newest.revision().is_identified() && newest.is_equivalent(&content, install.as_deref())
    };
    if newest.is_some_and(is_same) {
        return NextRevision::Same;
    }
    match next_number(input, newest.map_or(0, |newest| newest.number)) {
        Some(number) => {
            let revision = Revision::new(number, input.new_id);
            NextRevision::New(FleetRevision::new(revision, content, install))
        }
        None => NextRevision::Hold(FleetHold::NoRevisionLeft),
    }
}

/// If a user deleted the newest revision, its number is used again, and the id tells both apart. Numbers that other clients write
/// are not counted from: those in the clusters' objects mean nothing, and a Secret of another owner only has its own name.
fn next_number(input: &FleetInput, last: i64) -> Option<i64> {
    let name = input.fleet.name_any();
    let is_free = |number: &i64| !input.foreign.contains(&fleet_revision(&name, *number));
    (last.checked_add(1)?..=MAX_REVISION).find(is_free)
}

fn with_members(input: &FleetInput, selection: &Selection, plan: &mut FleetPlan) {
    let absent = ClusterView::default();
    let is_selected =
        |key: &ClusterKey, cluster: &ClusterView| selection.selects(key, cluster, input.namespaces);
    let selected = input
        .clusters
        .iter()
        .filter(|(key, it)| is_selected(key, it));
    let crowded = input.crowded(selected.clone());
    let orphans = input.fleet.spec.deletion_policy == DeletionPolicy::Orphan;
    for (key, cluster) in selected {
        let obstacle = match (input.taken.get(key), &cluster.obstacle) {
            _ if crowded.contains(key) => Some(too_many(&key.0)),
            (Some(other), _) => Some((
                Reason::TargetTaken,
                format!("FleetPullSecret `{other}` writes the same Secret"),
            )),
            (None, obstacle) => obstacle.clone(),
        };
        let object = input.objects.get(key).copied();
        if object.is_some_and(|it| cluster.has_replaced_owner(it)) {
            // The next plan begins with a new object, as for a new cluster.
            plan.released.push(key.clone());
            continue;
        }
        let goal = Goal::Revision(plan.revision);
        let context = Context::of(input, key, input.joins(key));
        let mut member = member(title(key), object, goal, context);
        member.is_canary = selection.is_canary(cluster);
        member.is_skipped |= cluster.is_deleting || obstacle.is_some();
        if let Some(obstacle) = obstacle {
            // The hub writes nothing there, so the cluster must not occupy a slot.
            if let Some((_, progress @ Progress::InFlight)) = &mut member.assigned {
                *progress = Progress::Blocked;
            }
            plan.obstacles.insert(key.clone(), obstacle);
        }
        plan.members.push((key.clone(), member));
    }
    for (key, object) in &input.objects {
        let cluster = input.clusters.get(key).unwrap_or(&absent);
        if is_selected(key, cluster) {
            continue;
        }
        let context = Context::of(input, key, false);
        let member = member(title(key), Some(object), Goal::Restore, context);
        // Behind an obstacle is another cluster's content.
        let has_nothing =
            !object.spec.has_assignment() && (has_nothing(object) || cluster.obstacle.is_some());
        let is_gone = !input.clusters.contains_key(key)
            || cluster.is_deleting
            || cluster.has_replaced_owner(object);
        if orphans || has_nothing || is_gone || member.is_done() {
            plan.released.push(key.clone());
        } else {
            plan.members.push((key.clone(), member));
        }
    }
    // Its cluster still has what the deleted object said.
    for (key, spec) in &input.drift.deleted {
        let cluster = input.clusters.get(key).filter(|it| !it.is_deleting);
        let is_left = cluster.is_some_and(|it| !is_selected(key, it)) && spec.has_assignment();
        if is_left && !orphans && !input.objects.contains_key(key) {
            let context = Context::of(input, key, false);
            let member = member(title(key), None, Goal::Restore, context);
            plan.members.push((key.clone(), member));
        }
    }
}

/// The members, and the next step of the newest revision's rollout.
fn stepped(input: &FleetInput, plan: &FleetPlan) -> (Vec<Member>, Step) {
    let newest = input.revisions.last().map(FleetRevision::ledger);
    let ledger = newest.unwrap_or(Ledger::new(Goal::Revision(plan.revision)));
    let members: Vec<Member> = plan.members.iter().map(|(_, it)| it.clone()).collect();
    let limits = limits(&input.fleet.spec.rollout);
    let step = rollout::step(ledger, &members, &limits, false, input.now);
    (members, step)
}

/// The newest revision with its progress: canary passed, rolled out, rejected. `None`: nothing changed.
fn with_progress(
    input: &FleetInput,
    newest: &FleetRevision,
    members: &[Member],
    outcome: Outcome,
) -> Option<FleetRevision> {
    let revision = FleetRevision {
        canary_passed: outcome.ledger.canary_passed,
        rolled_out: outcome.ledger.rolled_out,
        rejected: rejected(input, newest, members, outcome).or(newest.rejected.clone()),
        ..newest.clone()
    };
    (revision != *newest).then_some(revision)
}

/// Missing objects come first, because they hold the clusters' statuses. Then new clusters, what the rollout's rules say, and
/// [`upkeep`].
fn assign(input: &FleetInput, is_deleted: bool, step: &Step, plan: &mut FleetPlan) {
    plan.assignments = missing(input, &plan.members, &plan.obstacles);
    let new = bootstrapped(input, &plan.members, plan.is_halted);
    plan.assignments.extend(new);
    let is_held = plan.hold.is_some() || !plan.revision.is_identified();
    let rolled_out = if is_held && !is_deleted {
        Vec::new()
    } else {
        next_assignments(input, &step.next, plan)
    };
    let keys = plan.assignments.iter().map(|(key, _)| key.clone());
    let mut written: BTreeSet<ClusterKey> = keys.collect();
    let rest = rolled_out.into_iter().chain(upkeep(
        input,
        &plan.members,
        &plan.obstacles,
        &plan.released,
    ));
    let rest = rest.filter(|(key, _)| written.insert(key.clone()));
    plan.assignments.extend(rest);
}

/// Revocations, then assignments.
fn next_assignments(input: &FleetInput, next: &rollout::Next, plan: &FleetPlan) -> Vec<Assignment> {
    let keys = plan.members.iter();
    let keys: BTreeMap<&str, (&ClusterKey, Goal)> = keys
        .map(|(key, member)| (member.name.as_str(), (key, member.goal)))
        .collect();
    let of = |name: &String| keys.get(name.as_str()).copied();
    let revocations = next.revocations.iter().filter_map(of);
    let revocations = revocations.map(|(key, _)| (key.clone(), revoked(input, key)));
    let assignments = next.assignments.iter().filter_map(of);
    let assignments = assignments
        .filter(|(key, _)| input.objects.contains_key(*key))
        .take(MAX_ASSIGNMENTS)
        .map(|(key, goal)| (key.clone(), assigned(input, key, goal)));
    revocations.chain(assignments).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
