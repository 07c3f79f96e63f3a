//! The specs of `ClusterPullSecret`s to write, and which of them disrupt no cluster. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{ClusterPhase, ClusterPullSecretSpec, ClusterPullSecretStatus};
use globalps_core::names::requested_retry;
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_core::rollout::{Goal, Member, Revision};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::input::{ClusterKey, FleetInput, fleet_title};
use super::progress::{Context, failed_revision, has_unassigned};

pub(super) type Assignment = (ClusterKey, ClusterPullSecretSpec);

/// What other clients changed, as the hub had written it. The deadline of a cluster under way does not start again: else a client that
/// changes its spec again and again would keep its slot for it.
pub(super) fn reverted(input: &FleetInput) -> impl Iterator<Item = Assignment> {
    let changed = input.drift.changed.iter();
    changed.filter_map(|key| {
        let object = input.objects.get(key)?;
        let phase = object.status.as_ref().map(|status| status.phase);
        let is_under_way = matches!(phase, Some(ClusterPhase::Syncing | ClusterPhase::Removing));
        let known = object.spec.clone();
        let spec = if is_under_way {
            known
        } else {
            again(input, known)
        };
        Some((key.clone(), spec))
    })
}

/// The deadline of an assignment starts again with it.
fn again(input: &FleetInput, spec: ClusterPullSecretSpec) -> ClusterPullSecretSpec {
    ClusterPullSecretSpec {
        assigned_at: Some(Time(input.now)),
        ..spec
    }
}

/// Specs that disrupt no cluster, so no limit applies: changes by other clients are undone, and a cluster is assigned what it has.
pub(super) fn upkeep(
    input: &FleetInput,
    members: &[(ClusterKey, Member)],
    obstacles: &BTreeMap<ClusterKey, ReasonAndMessage>,
    released: &[ClusterKey],
) -> Vec<Assignment> {
    let had = members.iter().filter_map(|(key, member)| {
        let object = input.objects.get(key)?;
        let is_due = has_unassigned(object, member.goal) && !obstacles.contains_key(key);
        is_due.then(|| (key.clone(), assigned(input, key, member.goal)))
    });
    let released: BTreeSet<&ClusterKey> = released.iter().collect();
    let reverted = reverted(input).filter(|(key, _)| !released.contains(key));
    had.chain(reverted).collect()
}

/// Missing objects. One that another client deleted is written again as it was.
pub(super) fn missing(
    input: &FleetInput,
    members: &[(ClusterKey, Member)],
    obstacles: &BTreeMap<ClusterKey, ReasonAndMessage>,
) -> Vec<Assignment> {
    let is_unreadable = |key: &ClusterKey| {
        let reason = obstacles.get(key).map(|(reason, _)| *reason);
        matches!(reason, Some(Reason::Unreadable | Reason::TooManyClusters))
    };
    let keys = members.iter().map(|(key, _)| key);
    let missing = keys.filter(|key| !input.objects.contains_key(key) && !is_unreadable(key));
    let missing = missing.map(|key| {
        let lost = input.drift.deleted.get(key).cloned();
        let spec = lost.map_or_else(|| spec(input, key), |lost| again(input, lost));
        (key.clone(), spec)
    });
    missing.collect()
}

/// The spec without an assignment.
fn spec(input: &FleetInput, (_, name): &ClusterKey) -> ClusterPullSecretSpec {
    let fleet = input.fleet;
    ClusterPullSecretSpec {
        fleet: fleet_title(fleet),
        cluster: name.clone(),
        ..ClusterPullSecretSpec::default()
    }
}

pub(super) fn assigned(input: &FleetInput, key: &ClusterKey, goal: Goal) -> ClusterPullSecretSpec {
    let object = input.objects.get(key);
    let retry = object.and_then(|object| requested_retry(object.annotations()));
    let last = object.map_or(Revision::NONE, |object| object.spec.assigned());
    let revision = match goal {
        Goal::Revision(revision) => revision,
        Goal::Restore => last,
    };
    let failed = object.map_or(Revision::NONE, |object| {
        failed_revision(object, Context::of(input, key, input.joins(key)))
    });
    ClusterPullSecretSpec {
        revision: revision.number,
        revision_id: revision.id,
        remove: goal == Goal::Restore,
        assigned_at: Some(Time(input.now)),
        retry: retry.unwrap_or_default(),
        failed_revision: failed.number,
        failed_revision_id: failed.id,
        ..spec(input, key)
    }
}

/// Assigns what the cluster has instead of what it was assigned; nothing if that revision no longer exists.
pub(super) fn revoked(input: &FleetInput, key: &ClusterKey) -> ClusterPullSecretSpec {
    let object = input.objects.get(key);
    let status = object.and_then(|object| object.status.as_ref());
    let had = status.map(ClusterPullSecretStatus::in_force);
    let known = had.filter(|had| input.revisions.iter().any(|it| it.revision() == *had));
    ClusterPullSecretSpec {
        revoked: true,
        ..assigned(input, key, Goal::Revision(known.unwrap_or_default()))
    }
}
