//! Which earlier content is forgotten, and where it still exists. Pure.

use std::collections::BTreeMap;

use globalps_core::api::condition;
use globalps_core::names::FORGET_ANNOTATION;
use globalps_core::reasons::Reason;
use globalps_core::rollout::Member;
use globalps_planner::nodes::forget::{Forget, Wait, may_have_old};
use globalps_planner::nodes::input::Snapshot;

use super::statement::{NAMED, Statement, list, statement};

/// `None` if there is no request.
pub(super) fn old_forgotten(
    snapshot: &Snapshot,
    forget: Forget,
    members: &[Member],
) -> Option<Statement> {
    let new =
        |status, reason, message| statement(condition::OLD_FORGOTTEN, status, reason, message);
    let (up_to, wait) = match forget {
        Forget::NotAsked => return None,
        Forget::Invalid => {
            let message = format!(
                "annotation `{FORGET_ANNOTATION}` of the GlobalPullSecret names no revision"
            );
            return Some(new("False", Reason::InvalidRequest, message));
        }
        Forget::Due(up_to) => {
            let message =
                format!("the Secrets with content up to revision {up_to} are being deleted");
            return Some(new("False", Reason::Deleting, message));
        }
        Forget::Done(up_to) => return Some(on_nodes(snapshot, up_to, members)),
        Forget::Waits(up_to, wait) => (up_to, wait),
    };
    let (reason, why) = match wait {
        Wait::StillInForce if snapshot.recorded.is_content_back => (
            Reason::StillInForce,
            "the content in force is the one that is to be forgotten",
        ),
        Wait::StillInForce => (Reason::StillInForce, "no later revision is in force"),
        Wait::NotInForce => (
            Reason::WaitingForRollout,
            "the additional pull secret as it is now is not in force",
        ),
        Wait::Held => (
            Reason::WaitingForRollout,
            "the credentials in force don't change now",
        ),
        Wait::Halted => (
            Reason::WaitingForRollout,
            "the rollout of the newest revision has halted",
        ),
        Wait::RollingOut => (
            Reason::WaitingForRollout,
            "not every reachable node has the newest revision yet",
        ),
        Wait::Namespaces => (
            Reason::WaitingForRollout,
            "not every namespace has the newest revision yet",
        ),
    };
    let message = format!("content up to revision {up_to} is kept: {why}");
    Some(new("False", reason, message))
}

/// No Secret of the controller has it any more.
fn on_nodes(snapshot: &Snapshot, up_to: i64, members: &[Member]) -> Statement {
    let new =
        |status, reason, message| statement(condition::OLD_FORGOTTEN, status, reason, message);
    let members: BTreeMap<&str, &Member> = members
        .iter()
        .map(|member| (member.name.as_str(), member))
        .collect();
    let is_away = |name: &String| {
        let member = members.get(name.as_str());
        member.is_none_or(|member| member.not_ready.is_some() || member.is_unresponsive())
    };
    let objects = snapshot.nodes.objects.iter();
    let with_old = objects.filter(|(_, object)| may_have_old(object, up_to));
    let with_old = with_old.map(|(name, _)| name.clone());
    let (away, here): (Vec<String>, Vec<String>) = with_old.partition(is_away);
    let mut message = format!("content up to revision {up_to} is deleted from the cluster");
    if !here.is_empty() {
        message = format!(
            "{message}; nodes that may still have it: {}",
            list(&here, NAMED)
        );
    }
    if !away.is_empty() {
        let away = list(&away, NAMED);
        message = format!("{message}; unreachable nodes drop it when they return: {away}");
    }
    if here.is_empty() {
        new("True", Reason::Forgotten, message)
    } else {
        new("False", Reason::NodesHaveOld, message)
    }
}

#[cfg(test)]
mod tests {
    use globalps_planner::content::secret::Global;
    use globalps_planner::nodes::plan::plan;
    use globalps_planner::nodes::testing::{A, found, global, snapshot};

    use super::*;

    fn said(global: Global, nodes: &str, change: impl Fn(&mut Snapshot)) -> String {
        let mut snapshot = snapshot(found(A), Some(global), nodes);
        snapshot.config.forget_request = Some(Ok(4));
        change(&mut snapshot);
        let plan = plan(&snapshot);
        let found = old_forgotten(&snapshot, plan.forget, &plan.members);
        found.map_or(String::new(), |it| {
            format!("{} {}: {}", it.status, it.reason, it.message)
        })
    }

    #[test]
    fn the_condition_names_who_still_has_it_and_why_it_is_kept() {
        let gone = "content up to revision 4 is deleted from the cluster";
        let nodes = "a=5:Synced b=5:Synced !c=4:Synced d=0";
        assert_eq!(
            said(global(5, A), nodes, |it| it.config.forget_request = None),
            ""
        );
        assert_eq!(
            said(global(5, A), nodes, |_| {}),
            "False Deleting: the Secrets with content up to revision 4 are being deleted"
        );
        assert_eq!(
            said(global(5, A), nodes, |it| it.recorded.forgotten = 4),
            format!(
                "False NodesHaveOld: {gone}; nodes that may still have it: a, b; unreachable nodes drop it when they return: c"
            )
        );
        let answered = |it: &mut Snapshot| {
            it.recorded.forgotten = 4;
            for name in ["a", "b"] {
                let object = it.nodes.objects.to_mut().get_mut(name);
                if let Some(status) = object.and_then(|object| object.status.as_mut()) {
                    status.forgotten_revision = 4;
                }
            }
        };
        assert_eq!(
            said(global(5, A), nodes, answered),
            format!("True Forgotten: {gone}; unreachable nodes drop it when they return: c")
        );
        let halted = Global {
            rolled_out: None,
            ..global(5, A)
        };
        assert_eq!(
            said(halted, "a=5:RolledBack/4 b=4:Synced", |_| {}),
            "False WaitingForRollout: content up to revision 4 is kept: the rollout of the newest revision has halted"
        );
        assert_eq!(
            said(global(5, A), nodes, |it| it.recorded.is_content_back = true),
            "False StillInForce: content up to revision 4 is kept: the content in force is the one that is to be forgotten"
        );
    }
}
