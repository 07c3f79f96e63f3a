//! Plans that restore the nodes, and then clean up. Pure.

use globalps_core::rollout::{Goal, Member};

use super::assignments::Scope;
use super::input::Snapshot;
use super::members::members;
use super::outcome::Outcome;
use super::output::{Aim, Plan};
use super::reach::config_file;
use super::state::NodeState;
use crate::content::resolve::Resolved;
use crate::content::secret::{Global, GlobalWrite};

/// No additional Secret and no source: every node restores, then everything is deleted. `in_force`: the members of the revision in
/// force.
pub(super) fn restore<'a>(
    snapshot: &'a Snapshot,
    states: &[NodeState],
    resolved: Resolved,
    in_force: Vec<Member>,
) -> (Plan, Option<Scope<'a>>) {
    if !snapshot.may_be_on_nodes() {
        return (Plan::new(resolved, Aim::CleanUp), None);
    }
    let (spec, recorded, now) = (
        &snapshot.config.spec,
        &snapshot.recorded,
        snapshot.clock.now,
    );
    let mut plan = Plan::new(resolved, Aim::Reach(Goal::Restore));
    let begins = recorded.global.as_ref().filter(|it| !it.restoring);
    plan.history = begins.and_then(|global| {
        // Until the nodes are restored, `undo` brings it back.
        let last = Outcome::of(spec, recorded, global, &in_force, now).history(global, now);
        last.filter(|_| spec.history_limit > 0)
    });
    // Each has thousands.
    drop(in_force);
    plan.members = members(states, Goal::Restore, true, 0);
    // The restore has begun: an invalid Secret that appears now must not bring the last valid content back, and no new node gets
    // the content that is being removed.
    plan.global = begins.and_then(|global| {
        let config_file = config_file(&spec.kubelet, Some(global));
        restoring(global, config_file)
    });
    let scope = Scope {
        limits: Some(&spec.rollout),
        canary_passed: true,
        restores: true,
        for_new_nodes: None,
    };
    (plan, Some(scope))
}

/// Nothing is left on the nodes: the next leader continues the cleanup, though a finalizer keeps some object.
/// `is_refused`: recording that failed. The deletion is tried all the same.
pub(super) fn clean_up(plan: &mut Plan, global: Option<&Global>, is_refused: bool) {
    let is_restored = plan.assignments.is_empty() && plan.members.iter().all(Member::is_done);
    if plan.aim != Aim::Reach(Goal::Restore) || !is_restored {
        return;
    }
    plan.aim = Aim::CleanUp;
    plan.history = None;
    let global = global.filter(|global| global.config_file.is_some() && !is_refused);
    plan.global = global.and_then(|global| restoring(global, None));
}

/// The state during a restore.
fn restoring(global: &Global, config_file: Option<String>) -> Option<GlobalWrite> {
    Some(GlobalWrite {
        content: global.content.clone()?,
        global: Global {
            revision: global.revision,
            last_original: global.last_original.clone(),
            config_file,
            restoring: true,
            ..Global::default()
        },
    })
}
