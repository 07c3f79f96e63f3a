//! The nodes as members of the rollout. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec};
use globalps_core::names::{ABANDON_ANNOTATION, RETRY_ANNOTATION};
use globalps_core::provider::{MIN_KUBELET_FOR_SCOPES, kubelet_version};
use globalps_core::rollout::{self, Goal, Member, Progress};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::input::{NodeView, Snapshot, is_selected, is_skipped};
use super::progress::{Context, is_retry_due, lost, progress, up_to_date};

/// The nodes with a goal: the selected ones, and those that restore. `canary_passed`: enough canaries have had the goal.
/// `provider_since`: the first revision with the present configuration of the provider; 0: none.
pub(crate) fn members(
    snapshot: &Snapshot,
    goal: Goal,
    canary_passed: bool,
    provider_since: i64,
) -> Vec<Member> {
    if snapshot.is_without_nodes() {
        return Vec::new();
    }
    let restoring = goal == Goal::Restore;
    let canaries = Canaries::of(snapshot);
    let nodes = snapshot.nodes.values().filter_map(|node| {
        let object = snapshot.node_pull_secrets.get(&node.name);
        let object = object.map(AsRef::as_ref);
        let is_selected = !restoring && is_selected(&snapshot.spec, node);
        let goal = if is_selected { goal } else { Goal::Restore };
        let is_canary = is_selected && canaries.has(node);
        let min_ready = min_ready(&snapshot.spec, is_canary && !canary_passed);
        let member = member(snapshot, node, object, goal, min_ready);
        let has_goal = is_selected || member.assigned.is_some() || restoring && node.is_linux();
        let in_place = is_selected
            && object.is_some_and(|object| takes_in_place(object, node, provider_since));
        has_goal.then_some(Member {
            is_canary,
            in_place,
            ..member
        })
    });
    nodes.collect()
}

/// The node's kubelet runs the provider as it is configured now, so that another content takes no restart. What a node
/// reports wrongly is its own loss.
fn takes_in_place(object: &NodePullSecret, node: &NodeView, provider_since: i64) -> bool {
    let gives_tokens = |version: &str| kubelet_version(version) >= Some(MIN_KUBELET_FOR_SCOPES);
    provider_since > 0
        && object.status.as_ref().is_some_and(|status| {
            status.delivery == DeliveryType::CredentialProvider.as_str()
                && status.delivery_revision == status.revision
                && status.revision >= provider_since
        })
        // An upgraded kubelet gets one more provider.
        && gives_tokens(&object.spec.kubelet_version) == gives_tokens(&node.kubelet_version)
}

fn min_ready(spec: &GlobalPullSecretSpec, is_canary: bool) -> SignedDuration {
    let seconds = if is_canary {
        let canary = spec.rollout.canary.min_ready_seconds;
        spec.rollout.min_ready_seconds.max(canary)
    } else {
        spec.rollout.min_ready_seconds
    };
    SignedDuration::from_secs(seconds.into())
}

fn member(
    snapshot: &Snapshot,
    node: &NodeView,
    object: Option<&NodePullSecret>,
    goal: Goal,
    min_ready: SignedDuration,
) -> Member {
    let Snapshot {
        spec, clock, now, ..
    } = snapshot;
    let context = Context {
        clock,
        now: *now,
        min_ready,
        fleet_has_content: snapshot.fleet_has_content(),
    };
    let is_abandoned = goal == Goal::Restore && object.is_some_and(is_abandoned);
    let asked = retry(snapshot, object);
    let is_asked = object.is_some_and(|object| !asked.is_empty() && asked != object.spec.retry);
    let mut member = Member {
        name: node.name.clone(),
        goal,
        not_ready: node.not_ready_for(*now),
        assigned: match object {
            _ if node.is_foreign && goal != Goal::Restore => Some((goal, Progress::Foreign)),
            Some(object) => progress(object, node, context),
            // Nobody knows what is on it.
            None if goal == Goal::Restore => Some((Goal::Revision(0), Progress::Blocked)),
            // Its object is written in this very plan, and says so from the next one on.
            None if node.ready.is_ok() && node.is_linux() && may_have_something(snapshot, node) => {
                Some((Goal::Revision(0), Progress::Unknown))
            }
            None => None,
        },
        assigned_for: object.map_or(SignedDuration::ZERO, |object| {
            clock.assigned_for(object, *now)
        }),
        is_up_to_date: object.is_some_and(|object| up_to_date(object).is_some()),
        is_revoked: object.is_some_and(|object| object.spec.revoked),
        retry: is_asked,
        zone: node.zone().to_owned(),
        is_last: node.is_control_plane(),
        is_canary: false,
        is_skipped: goal != Goal::Restore && is_skipped(spec, node),
        in_place: false,
    };
    if is_abandoned && (member.not_ready.is_some() || member.is_unresponsive()) {
        // Nothing is left to do for it, and it takes no slot: as done it would count as unavailable.
        member.assigned = None;
    }
    if member.is_blocked() {
        member.retry |= object.is_some_and(|object| is_retry_due(object, clock, *now));
    }
    member
}

/// What asks for one more try on the node: its own annotation, and that of the additional Secret; empty: neither.
fn retry(snapshot: &Snapshot, object: Option<&NodePullSecret>) -> String {
    // Together no longer than the field.
    const LONGEST: usize = 500;
    let own = object.and_then(|object| object.annotations().get(RETRY_ANNOTATION));
    let both = own.into_iter().chain(&snapshot.additional_retry);
    let both: Vec<String> = both
        .map(|value| value.chars().take(LONGEST).collect())
        .collect();
    both.join(" ")
}

/// The user lets the cleanup finish without this node.
fn is_abandoned(object: &NodePullSecret) -> bool {
    object
        .annotations()
        .get(ABANDON_ANNOTATION)
        .is_some_and(|value| value == "true")
}

/// Which nodes may be canaries.
struct Canaries<'a> {
    spec: &'a GlobalPullSecretSpec,
    /// A node outside the control plane can be one.
    has_worker: bool,
}

impl<'a> Canaries<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let spec = &snapshot.spec;
        let can_go = |node: &NodeView| {
            let object = snapshot.node_pull_secrets.get(&node.name);
            let is_unresponsive = object.is_some_and(|object| {
                let assigned_for = snapshot.clock.assigned_for(object, snapshot.now);
                up_to_date(object).is_none() && assigned_for >= rollout::UNRESPONSIVE_AFTER
            });
            is_selected(spec, node)
                && !is_skipped(spec, node)
                && !node.is_foreign
                && node.ready.is_ok()
                && !is_unresponsive
        };
        let mut nodes = snapshot.nodes.values();
        Self {
            spec,
            has_worker: nodes.any(|node| !node.is_control_plane() && can_go(node)),
        }
    }

    fn has(&self, node: &NodeView) -> bool {
        let selector = &self.spec.rollout.canary.node_selector;
        if selector.is_empty() {
            return !node.is_control_plane() || !self.has_worker;
        }
        selector.iter().all(|(key, value)| node.has(key, value))
    }
}

/// Assignments of one plan, at most.
const AT_ONCE: usize = 1024;

/// Specs to write, in this order: missing objects, revocations, then assignments.
pub(crate) fn assignments(
    snapshot: &Snapshot,
    members: &[Member],
    canary_passed: bool,
) -> Vec<(String, NodePullSecretSpec)> {
    let Snapshot { spec, syncers, .. } = snapshot;
    let most = rollout::share(&spec.rollout.max_unavailable, members.len());
    let next = rollout::next(&rollout::Fleet {
        members,
        limits: &spec.rollout,
        canary_passed,
        // One syncer that is down is its node's own trouble.
        unavailable: if syncers.down > most { syncers.down } else { 0 },
    });
    let goals: BTreeMap<&str, Goal> = members.iter().map(|m| (m.name.as_str(), m.goal)).collect();
    let revocations = next.revocations.into_iter().map(|name| {
        let spec = revoked(snapshot, &name);
        (name, spec)
    });
    let assignments = next
        .assignments
        .into_iter()
        .filter(|_| !syncers.are_rolling)
        // Thousands may change in place, more than one reconcile writes.
        .take(AT_ONCE);
    let assignments = assignments.map(|name| {
        let spec = assigned(snapshot, &name, goals.get(name.as_str()).copied());
        (name, spec)
    });
    let restores = members.iter().all(|member| member.goal == Goal::Restore);
    missing(snapshot, restores)
        .chain(revocations)
        .chain(assignments)
        .collect()
}

/// Every Linux node has an object, which asks for nothing at first: its syncer answers with what the node has. `restores`:
/// all of them restore, and afterwards nobody would look again.
pub(super) fn missing(
    snapshot: &Snapshot,
    restores: bool,
) -> impl Iterator<Item = (String, NodePullSecretSpec)> {
    let nodes = snapshot.nodes.values();
    let are_needed = !snapshot.is_without_nodes();
    let nodes = nodes.filter(move |node| {
        are_needed && node.is_linux() && !snapshot.node_pull_secrets.contains_key(&node.name)
    });
    nodes.map(move |node| {
        let spec = NodePullSecretSpec {
            assigned_at: Some(Time(snapshot.now)),
            // It may have anything, until it has reported.
            revoked: restores && snapshot.is_in_force() || may_have_something(snapshot, node),
            foreign_owner: node.foreign_owner(),
            ..NodePullSecretSpec::default()
        };
        (node.name.clone(), spec)
    })
}

/// Of a node without an object: whether it had one, by which it may have been assigned something. A new node is taken for
/// one that had none, unless the deletion was seen: a restore waits for what it reports, but not for ever.
fn may_have_something(snapshot: &Snapshot, node: &NodeView) -> bool {
    let had_object =
        !node.is_new(snapshot.now) || snapshot.deleted_out_of_band.contains(&node.name);
    had_object && snapshot.is_in_force()
}

/// A restore keeps the last revision, so that one look at the object shows what is being undone.
pub(super) fn assigned(snapshot: &Snapshot, node: &str, goal: Option<Goal>) -> NodePullSecretSpec {
    let object = snapshot.node_pull_secrets.get(node);
    let last = object.map_or(0, |object| object.spec.revision);
    let view = snapshot.nodes.get(node);
    NodePullSecretSpec {
        revision: match goal {
            Some(Goal::Revision(revision)) => revision,
            Some(Goal::Restore) | None => last,
        },
        restore: goal == Some(Goal::Restore),
        assigned_at: Some(Time(snapshot.now)),
        revoked: false,
        retry: retry(snapshot, object.map(AsRef::as_ref)),
        kubelet_version: view.map_or_else(String::new, |view| view.kubelet_version.to_string()),
        foreign_owner: view.map(NodeView::foreign_owner).unwrap_or_default(),
    }
}

/// What the node reports to have, instead of what it was assigned. A number that the controller never assigned is none.
fn revoked(snapshot: &Snapshot, node: &str) -> NodePullSecretSpec {
    let object = snapshot.node_pull_secrets.get(node);
    let status = object.and_then(|object| object.status.as_ref());
    let reported = status.map_or(0, |status| status.revision);
    let newest = snapshot.global.as_ref().map_or(0, |global| global.revision);
    let is_known = (1..=newest).contains(&reported);
    NodePullSecretSpec {
        revision: if is_known { reported } else { 0 },
        revoked: true,
        ..assigned(snapshot, node, None)
    }
}

/// What keeps a failed or blocked node from its goal, in words.
pub(crate) fn failure(snapshot: &Snapshot, name: &str) -> String {
    let object = snapshot.node_pull_secrets.get(name);
    let (Some(object), Some(node)) = (object, snapshot.nodes.get(name)) else {
        return name.to_owned();
    };
    let Some(status) = object.status.as_ref() else {
        return name.to_owned();
    };
    let context = Context {
        clock: &snapshot.clock,
        now: snapshot.now,
        min_ready: min_ready(&snapshot.spec, false),
        fleet_has_content: snapshot.fleet_has_content(),
    };
    match lost(object, node, context) {
        Some(clause) => format!("{name}: {clause}"),
        None => format!("{name}: {}: {}", status.phase, status.message),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::plan::tests::snapshot;
    use super::*;
    use crate::content::source::Source;

    /// Members of a cluster whose nodes are as [`snapshot`] describes them.
    fn members_of(nodes: &str, goal: Goal, change: impl FnOnce(&mut Snapshot)) -> Vec<Member> {
        let mut snapshot = snapshot(Source::Absent, None, nodes);
        change(&mut snapshot);
        members(&snapshot, goal, true, 3)
    }

    #[test]
    fn only_a_node_that_runs_the_provider_as_it_is_takes_content_in_place() {
        let by_provider = DeliveryType::CredentialProvider.as_str();
        for (case, delivery, delivered, revision, version, now, since, expected) in [
            (
                "it runs it",
                by_provider,
                5,
                5,
                "v1.36.3",
                "v1.36.3",
                3,
                true,
            ),
            (
                "since that very revision",
                by_provider,
                3,
                3,
                "v1.36.3",
                "v1.36.3",
                3,
                true,
            ),
            (
                "as it was before",
                by_provider,
                2,
                2,
                "v1.36.3",
                "v1.36.3",
                3,
                false,
            ),
            (
                "by the file",
                "ConfigFile",
                5,
                5,
                "v1.36.3",
                "v1.36.3",
                3,
                false,
            ),
            (
                "its data are another's",
                by_provider,
                4,
                5,
                "v1.36.3",
                "v1.36.3",
                3,
                false,
            ),
            (
                "nobody counts",
                by_provider,
                5,
                5,
                "v1.36.3",
                "v1.36.3",
                0,
                false,
            ),
            (
                "upgraded to tokens",
                by_provider,
                5,
                5,
                "v1.33.1",
                "v1.34.0",
                3,
                false,
            ),
            (
                "without tokens as before",
                by_provider,
                5,
                5,
                "v1.33.1",
                "v1.33.2",
                3,
                true,
            ),
        ] {
            let mut object = NodePullSecret::new("a", NodePullSecretSpec::default());
            object.spec.kubelet_version = version.to_owned();
            object.status = Some(globalps_core::api::NodePullSecretStatus {
                delivery: delivery.to_owned(),
                delivery_revision: delivered,
                revision,
                ..Default::default()
            });
            let mut node = NodeView::of_test("a", jiff::Timestamp::UNIX_EPOCH);
            node.kubelet_version = now.into();
            assert_eq!(takes_in_place(&object, &node, since), expected, "{case}");
        }
    }

    #[test]
    fn a_member_is_a_selected_node_or_one_that_has_something() {
        let line = |nodes: &str, goal| {
            let members = members_of(nodes, goal, |snapshot| {
                for object in snapshot.node_pull_secrets.to_mut().values_mut() {
                    let status = object.status.as_mut().unwrap();
                    status.delivery = DeliveryType::CredentialProvider.as_str().to_owned();
                    status.delivery_revision = status.revision;
                    object.spec.kubelet_version = "v1.36.3".to_owned();
                }
            });
            let word = |member: &Member| {
                let canary = if member.is_canary { "*" } else { "" };
                let in_place = if member.in_place { "=" } else { "" };
                format!("{}{canary}{in_place}", member.name)
            };
            members.iter().map(word).collect::<Vec<_>>().join(" ")
        };
        let goal = Goal::Revision(5);
        assert_eq!(line("a=5:Synced b=0 -c=0 -d=5:Synced", goal), "a*= b* d");
        assert_eq!(line("a=R:Restored b=0 -c=0", Goal::Restore), "a b c");
    }

    #[test]
    fn a_canary_may_have_to_be_ready_for_longer() {
        let mut spec = GlobalPullSecretSpec::default();
        spec.rollout.min_ready_seconds = 5;
        spec.rollout.canary.min_ready_seconds = 60;
        assert_eq!(min_ready(&spec, true), SignedDuration::from_secs(60));
        assert_eq!(min_ready(&spec, false), SignedDuration::from_secs(5));
        spec.rollout.min_ready_seconds = 90;
        assert_eq!(min_ready(&spec, true), SignedDuration::from_secs(90));
    }
}
