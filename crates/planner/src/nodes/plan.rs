//! The plan: what the controller writes next. Pure: every decision of the controller is made here.

use globalps_core::names::GLOBAL_SECRET;
use globalps_core::rollout::{Goal, Member};

use super::abandoned::no_longer_abandoned;
use super::assignments::{Scope, assignments};
use super::forget::{forget, to_annotate};
use super::hold::{hold, keeps_selector, why_held};
use super::input::Snapshot;
use super::members::members;
use super::outcome::failed;
pub use super::output::{Aim, Hold, Plan};
use super::reach::reach;
use super::restore::{clean_up, restore};
use super::selection::{resolved, resolved_for_rollout};
use super::state::{NodeState, node_states};
use crate::content::secret::Global;
use crate::content::source::{Data, Source};

/// The members of the revision in force are asked for once, since each step needs them: whether its rollout has to end first, how
/// far it got, and what to do next.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let Snapshot {
        config,
        secrets,
        recorded,
        ..
    } = snapshot;
    let before = recorded.global.as_ref();
    let states = node_states(snapshot);
    let in_force = before.map_or_else(Vec::new, |global| {
        let goal = Goal::Revision(global.revision);
        members(&states, goal, global.canary_passed, global.provider_since)
    });
    let resolved = resolved_for_rollout(&config.spec, secrets, before, &in_force);
    let absence = snapshot.absence();
    let held = why_held(snapshot, &absence, resolved.desired.is_some());
    let (plan, scope) = match (held, &resolved.desired) {
        (Some(reason), _) => hold(snapshot, &states, resolved, reason, in_force),
        (None, Some(desired)) if !snapshot.is_removal_held(&absence) => {
            reach(snapshot, &states, &resolved, desired, before, in_force)
        }
        _ if snapshot.is_in_force() => restore(snapshot, &states, resolved, in_force),
        _ => (Plan::new(resolved, Aim::Nothing), None),
    };
    completed(snapshot, &states, plan, scope)
}

/// The plan that rejects the current additional Secret, once the history is read. `last`: the last one of it that was rolled out.
/// If the current one equals that, a rollback would not help.
pub fn roll_back(snapshot: &Snapshot, plan: Plan, last: &Source) -> Plan {
    let desired = plan.resolved.desired.as_ref();
    let additional = desired.and_then(|desired| desired.additional.as_ref());
    let global = snapshot.recorded.global.as_ref();
    let (Some(global), Some(additional), Source::Found(good)) = (global, additional, last) else {
        return plan;
    };
    if good == additional {
        return plan;
    }
    let before = rejecting(global, additional, good, &plan.members);
    let resolved = resolved(&snapshot.config.spec, &snapshot.secrets, Some(&before));
    match &resolved.desired {
        // If both do not fit, nothing changes.
        Some(desired) if resolved.too_large.is_none() => {
            let states = node_states(snapshot);
            let members = plan.members;
            let (plan, scope) = reach(
                snapshot,
                &states,
                &resolved,
                desired,
                Some(&before),
                members,
            );
            completed(snapshot, &states, plan, scope)
        }
        _ => plan,
    }
}

fn rejecting(global: &Global, additional: &Data, good: &Data, members: &[Member]) -> Global {
    let failed: Vec<&str> = failed(members).map(|m| m.name.as_str()).take(3).collect();
    Global {
        rejected: Some(additional.clone()),
        rejected_reason: Some(format!(
            "revision {} failed on {} and was rolled back on every node",
            global.revision.number,
            failed.join(", ")
        )),
        last_additional: Some(good.clone()),
        // It comes from the history.
        additional_was_rolled_out: true,
        ..global.clone()
    }
}

/// Adds what nodes are assigned, and what does not depend on why.
fn completed(
    snapshot: &Snapshot,
    states: &[NodeState],
    mut plan: Plan,
    scope: Option<Scope>,
) -> Plan {
    let Snapshot {
        config,
        recorded,
        agents,
        nodes,
        clock,
        refused,
        ..
    } = snapshot;
    if let Some(scope) = scope {
        plan.assignments = assignments(states, nodes, &plan.members, scope, clock.now);
    }
    let is_refused = refused.of("Secret", GLOBAL_SECRET).is_some();
    clean_up(&mut plan, recorded.global.as_ref(), is_refused);
    plan.removes_agents = agents.has_leftovers && (plan.removes_agents || plan.aim == Aim::Nothing);
    plan.keeps_selector = keeps_selector(&config.spec, nodes);
    plan.no_longer_abandoned = no_longer_abandoned(clock, nodes, &plan.members);
    for name in &plan.no_longer_abandoned {
        let object = nodes.objects.get(name);
        if let Some(object) = object
            && plan.assignments.iter().all(|(other, _)| other != name)
        {
            plan.assignments.push((name.clone(), object.spec.clone()));
        }
    }
    let goal = match plan.aim {
        Aim::Hold(_) => None,
        Aim::Reach(goal) => Some(goal),
        Aim::Nothing | Aim::CleanUp => Some(Goal::Restore),
    };
    let additional = &plan.resolved.additional;
    plan.forget = forget(config, recorded, goal, additional, &plan.members);
    let annotated = to_annotate(nodes, plan.forget, &plan.assignments);
    plan.assignments.extend(annotated);
    plan
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
