//! Earlier revisions: which one new clusters get, which one a rollback goes to, and which ones must therefore be kept. Pure.

use std::sync::Arc;

use globalps_core::api::OnFailure;
use globalps_core::rollout::{self, Goal, Member, Outcome, Revision, rejection};

use super::assignments::{Assignment, assigned};
use super::input::{ClusterKey, FleetInput};
use super::installation::Installation;
use super::limits::limits;
use super::progress::{Context, failed_revision, has_nothing, up_to_date};
use super::revision::FleetRevision;
use crate::content::source::Data;

/// The revisions before this number, newest first. Where the content of one is not known, it may have replaced what is before it, which
/// may be revoked.
fn before<'a>(input: &'a FleetInput, number: i64) -> impl Iterator<Item = &'a FleetRevision> {
    let revisions = input.revisions.iter().rev();
    let earlier = revisions.skip_while(move |it| it.number >= number);
    earlier.take_while(|it| it.revision().is_identified())
}

/// The last revision before this number that every cluster had.
fn rolled_out<'a>(input: &'a FleetInput, number: i64) -> Option<&'a FleetRevision> {
    before(input, number).find(|it| it.rolled_out.is_some())
}

/// The last revision before this number that passed its canary and did not fail: some clusters have had it, and what it replaced
/// may be revoked.
fn passed<'a>(input: &'a FleetInput, number: i64) -> Option<&'a FleetRevision> {
    before(input, number)
        .find(|it| it.canary_passed && it.rejected.is_none() && !has_failed(input, it.revision()))
}

/// As many clusters as halt a rollout have failed with it, and have not recovered.
fn has_failed(input: &FleetInput, revision: Revision) -> bool {
    let failed = input.objects.iter().filter(|(key, object)| {
        failed_revision(object, Context::of(input, key, input.joins(key))) == revision
    });
    let limits = limits(&input.fleet.spec.rollout);
    rollout::is_halted(failed.count(), &limits, input.objects.len())
}

/// What the newest revision, which failed, is replaced by. `None`: nothing else is known to be good.
pub(super) fn rollback<'a>(
    input: &'a FleetInput,
    newest: &FleetRevision,
) -> Option<&'a FleetRevision> {
    let good = rolled_out(input, newest.number)?;
    let is_last = passed(input, newest.number)
        .is_none_or(|last| last.number <= good.number || is_same(last, good));
    (is_last && !is_same(good, newest)).then_some(good)
}

fn is_same(one: &FleetRevision, other: &FleetRevision) -> bool {
    one.is_equivalent(&other.content, other.install.as_deref())
}

/// The revision that was rolled back, if the source still has its content, and the one whose content is in force instead. It
/// counts while nothing else was rolled out since. `data`: the valid content of the source; without one it has not changed.
pub(super) fn rolled_back<'a>(
    input: &'a FleetInput,
    data: Option<&Data>,
) -> Option<(&'a FleetRevision, &'a FleetRevision)> {
    let mut revisions = input.revisions.iter().rev();
    let rejected = revisions.find(|it| it.rejected.is_some())?;
    let good = revisions.find(|it| it.rolled_out.is_some())?;
    let later = input.revisions.iter();
    let mut later = later.filter(|it| it.number > rejected.number).peekable();
    // With `Halt` nothing is rolled back any more, even if the revision has the mark. What was rolled back stays so.
    let limits = limits(&input.fleet.spec.rollout);
    if limits.on_failure == OnFailure::Halt && later.peek().is_none() {
        return None;
    }
    let is_source = match (data, &input.install) {
        (Some(data), Ok(install)) => rejected.is_equivalent(data, install.as_deref()),
        _ => true,
    };
    (is_source && later.all(|it| is_same(it, good))).then_some((rejected, good))
}

/// Content and installation to roll out for the source.
pub(super) fn desired(
    input: &FleetInput,
    data: &Data,
    install: Option<Arc<Installation>>,
) -> (Arc<Data>, Option<Arc<Installation>>) {
    match rolled_back(input, Some(data)) {
        Some((_, good)) => (Arc::clone(&good.content), good.install.clone()),
        None => (Arc::new(data.clone()), install),
    }
}

/// Why the newest revision failed, if it is to be rolled back.
pub(super) fn rejected(
    input: &FleetInput,
    newest: &FleetRevision,
    members: &[Member],
    outcome: Outcome,
) -> Option<String> {
    let limits = limits(&input.fleet.spec.rollout);
    let is_due = outcome.rolls_back(&limits) && newest.rejected.is_none();
    rollback(input, newest).filter(|_| is_due)?;
    Some(rejection(
        newest.number,
        members,
        ("in", "in every cluster"),
    ))
}

/// Numbers of the revisions that later plans need, besides the newest, the history and the assigned ones.
pub(super) fn needed(input: &FleetInput, data: Option<&Data>) -> Vec<i64> {
    let rolled_back = rolled_back(input, data).map(|(rejected, good)| [rejected, good]);
    let newest = input.revisions.last();
    let open = newest.filter(|newest| newest.rolled_out.is_none());
    let passed = open.and_then(|newest| passed(input, newest.number));
    // No rollback may go past what is not known.
    let unknown = input.revisions.iter();
    let unknown = unknown.filter(|it| open.is_some() && !it.revision().is_identified());
    let needed = rolled_back.into_iter().flatten().chain(passed);
    needed.chain(unknown).map(|it| it.number).collect()
}

/// What new clusters get. `is_halted`: the rollout of the newest revision.
fn for_new(input: &FleetInput, is_halted: bool) -> Option<Revision> {
    let newest = input.revisions.last();
    let newest = newest.filter(|it| it.revision().is_identified())?;
    let outcome = Outcome {
        ledger: newest.ledger(),
        is_halted: is_halted || newest.rejected.is_some(),
    };
    let older = passed(input, newest.number).map(FleetRevision::revision);
    outcome.for_new(older, input.fleet.spec.rollout.paused)
}

/// New clusters get what the fleet has, outside the limits.
pub(super) fn bootstrapped(
    input: &FleetInput,
    members: &[(ClusterKey, Member)],
    is_halted: bool,
) -> Vec<Assignment> {
    let Some(revision) = for_new(input, is_halted) else {
        return Vec::new();
    };
    let goal = Goal::Revision(revision);
    let new = members.iter().filter(|(key, member)| {
        let object = input.objects.get(key);
        object.is_some_and(|object| {
            let is_new = !object.spec.has_assignment() && has_nothing(object);
            let is_reached = up_to_date(object).is_some() && member.not_ready.is_none();
            is_new
                && is_reached
                && !member.is_skipped
                && member.goal != Goal::Restore
                && input.joins(key)
        })
    });
    new.map(|(key, _)| (key.clone(), assigned(input, key, goal)))
        .collect()
}
