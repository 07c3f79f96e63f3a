//! Plans that roll out a revision. Pure.

use globalps_core::api::{DeliveryType, Kubelet, MAX_REVISION, OnFailure};
use globalps_core::rollout::{self, Goal, Member, Revision, RevisionId};
use globalps_provider::{Content, Delivery};

use super::assignments::Scope;
use super::input::{Recorded, Snapshot};
use super::members::members;
use super::outcome::{Outcome, fleet_revision, has_halted, is_complete};
use super::output::{Aim, Plan};
use super::state::NodeState;
use crate::content::resolve::{Desired, Resolved};
use crate::content::secret::{Global, GlobalWrite};
use crate::content::since::since;

/// Rolls out the desired content. `in_force`: the members of `before`'s revision.
pub(super) fn reach<'a>(
    snapshot: &'a Snapshot,
    states: &[NodeState],
    resolved: &Resolved,
    desired: &Desired,
    before: Option<&Global>,
    in_force: Vec<Member>,
) -> (Plan, Option<Scope<'a>>) {
    let (spec, recorded, now) = (
        &snapshot.config.spec,
        &snapshot.recorded,
        snapshot.clock.now,
    );
    let same =
        before.filter(|global| global.revision.is_identified() && global.has(&desired.content));
    let revision = same.map_or_else(
        || next_revision(recorded, snapshot.new_id),
        |global| global.revision,
    );
    let goal = Goal::Revision(revision);
    let mut plan = Plan::new(resolved.clone(), Aim::Reach(goal));
    let last = before.filter(|_| same.is_none());
    let last = last.map(|global| (global, Outcome::of(spec, recorded, global, &in_force, now)));
    let provider_since = provider_since(before, &desired.content, revision.number);
    let had_passed = same.is_some_and(|global| global.canary_passed && !global.restoring);
    let are_known = same.is_some_and(|it| !it.restoring && it.provider_since == provider_since);
    plan.members = if are_known {
        in_force
    } else {
        // Each has thousands.
        drop(in_force);
        members(states, goal, had_passed, provider_since)
    };
    let members = &plan.members;
    plan.canary_passed = had_passed || rollout::has_canary_passed(members, goal, &spec.rollout);
    let is_off_nodes =
        spec.kubelet.delivery == DeliveryType::None && members.iter().all(Member::is_done);
    let had_config_file = before.is_some_and(|global| global.config_file.is_some());
    // First record that nothing is left on the nodes.
    plan.removes_agents = is_off_nodes && !had_config_file;
    let rolled_out = same
        .and_then(|global| global.rolled_out)
        .or_else(|| is_complete(spec, recorded, members, revision).then_some(now));
    let next = Global {
        revision,
        content: None,
        last_scopes: desired.scopes.clone(),
        provider_since,
        last_additional: desired.additional.clone(),
        last_original: desired.original.clone(),
        last_sources: desired.sources.clone(),
        canary_passed: plan.canary_passed,
        rolled_out,
        restoring: false,
        additional_was_rolled_out: rolled_out.is_none()
            && before.is_some_and(|global| {
                global.last_additional == desired.additional
                    && (global.additional_was_rolled_out || global.rolled_out.is_some())
            }),
        rejected: resolved.rejected.clone(),
        rejected_reason: before
            .filter(|_| resolved.rejected.is_some())
            .and_then(|global| global.rejected_reason.clone()),
        config_file: config_file(&spec.kubelet, before).filter(|_| !is_off_nodes),
        content_since: since(before, &desired.content, revision),
    };
    if let Some((global, last)) = last {
        let is_kept = spec.history_limit > 0 && global.last_additional != desired.additional;
        plan.history = last.history(global, now).filter(|_| is_kept);
        plan.rolled_out = last.content(global);
    }
    // What is written now replaces the one before it.
    let older = plan.rolled_out.as_ref().map(|write| write.revision);
    let older = older.or(recorded.rolled_out_revision);
    let is_halted = has_halted(spec, members);
    let scope = Scope {
        limits: Some(&spec.rollout),
        canary_passed: plan.canary_passed,
        restores: members.iter().all(|member| member.goal == Goal::Restore),
        for_new_nodes: fleet_revision(older, &next, spec.rollout.paused, is_halted),
    };
    // The additional Secret of this revision is at fault, and the user wants the last valid one back.
    plan.needs_history = is_halted
        && same.is_some()
        && spec.rollout.on_failure == OnFailure::Rollback
        && !spec.rollout.paused
        && desired.additional.is_some()
        && next.rolled_out.is_none()
        && !next.additional_was_rolled_out
        && resolved.rejected.is_none();
    let is_written =
        !recorded.global_is_lost && same.is_some_and(|global| global.has_same_state(&next));
    if !is_written {
        plan.global = Some(GlobalWrite {
            content: content(same, desired),
            global: next,
        });
    }
    (plan, Some(scope))
}

/// Equivalent content keeps the bytes that the nodes have.
fn content(same: Option<&Global>, desired: &Desired) -> Content {
    let content = same.and_then(|global| global.content.clone());
    content.unwrap_or_else(|| desired.content.clone())
}

/// A new configuration of the provider restarts each kubelet; later revisions with the same one need no restart.
pub(super) fn provider_since(before: Option<&Global>, content: &Content, revision: i64) -> i64 {
    let known = before.filter(|global| {
        let before = global.content.as_ref().map(|content| &content.delivery);
        before == Some(&content.delivery)
    });
    match &content.delivery {
        Delivery::ConfigFile => 0,
        Delivery::CredentialProvider(_) => known
            .map(|global| global.provider_since)
            .filter(|since| *since > 0)
            .unwrap_or(revision),
    }
}

/// The next revision. Its number follows the last one that the controller wrote; if that is lost, it may repeat one, and the id
/// tells both apart. Numbers in the nodes' objects don't count: other clients can write those.
fn next_revision(recorded: &Recorded, id: RevisionId) -> Revision {
    let written = recorded
        .global
        .as_ref()
        .map(|global| global.revision.number);
    let written = written.filter(|number| *number > 0).unwrap_or_else(|| {
        let rolled_out = recorded.rolled_out_revision;
        rolled_out
            .map_or(0, |revision| revision.number)
            .max(recorded.reported_revision)
    });
    let next = written.checked_add(1);
    let number = next.filter(|number| (1..=MAX_REVISION).contains(number));
    Revision::new(number.unwrap_or(1), id)
}

/// The file that the nodes first got stays: at another path the original content would be lost. `None`: no node has content of
/// globalps.
pub(super) fn config_file(kubelet: &Kubelet, before: Option<&Global>) -> Option<String> {
    let before = before.and_then(|global| global.config_file.clone());
    let given = || (kubelet.delivery != DeliveryType::None).then(|| kubelet.config_file.clone());
    before.or_else(given)
}
