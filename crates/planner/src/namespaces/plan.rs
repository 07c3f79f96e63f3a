//! The plan for namespaces: which Secrets and references to write and remove next. Pure.

use std::collections::BTreeMap;

use globalps_core::api::Attach;
use globalps_core::names::ATTACHED_ANNOTATION;
use globalps_core::namespaces::parts_of;
use globalps_core::reasons::Reason;
use globalps_core::references::Change;
use jiff::{SignedDuration, Timestamp};

use super::clock::STUCK_AFTER;
use super::digest::Digests;
use super::identity::Parts;
use super::input::{Delivery, Input, Wanted, wanted};
use super::references::{ReasonAndMessage, Reference, managed_references, references};
use super::stage::Stage;
use super::summary::Summary;
use super::views::PullSecretView;
use crate::targets::{PER_NAMESPACE, WRITES};

/// One request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Write the Secret of the namespace, with these parts of the scoped sources.
    Apply {
        /// Of the Secret.
        namespace: String,
        /// Indices in the content.
        parts: Vec<usize>,
        /// Of the revisions in it, for its annotation.
        identity: String,
        /// The content is [`Delivery::stable`].
        is_stable: bool,
        /// Another client has changed or deleted what the controller wrote.
        is_restore: bool,
    },
    /// Delete the Secret, if the controller created it.
    Delete {
        /// Of the Secret.
        namespace: String,
    },
    /// Change the references of the service account with this key.
    Account {
        /// `namespace/name`.
        key: String,
        /// What to add and what to remove.
        change: Change,
        /// Another client has removed a reference.
        is_restore: bool,
    },
}

/// What the controller writes, and what it reports.
#[derive(Clone, Debug, Default)]
pub struct NamespacesPlan {
    /// In order: no reference is added before its Secret, and no Secret removed before its references.
    pub writes: Vec<Write>,
    /// New namespaces wait for [`Delivery::stable`].
    pub needs_stable: bool,
    /// When to plan again without an event.
    pub again_at: Option<Timestamp>,
    /// For the status and the metrics.
    pub summary: Summary,
}

/// `digests`: those of earlier plans, to compare content without keeping it.
pub fn plan(input: &Input, digests: &mut Digests) -> NamespacesPlan {
    let mut plan = NamespacesPlan::default();
    let wanted = wanted(input, digests, &mut plan.summary);
    let stage = input
        .delivery
        .as_ref()
        .map(|delivery| Stage::of(input, delivery, &wanted));
    if let Some(stage) = &stage {
        plan.summary.canary.clone_from(&stage.canary_error);
        plan.again_at = stage.again_at;
    }
    let mut references = references(input, &wanted);
    let is_full = |plan: &NamespacesPlan| plan.writes.len() >= WRITES;
    for (namespace, wanted) in &wanted {
        let Some((delivery, stage)) = input.delivery.as_ref().zip(stage.as_ref()) else {
            continue;
        };
        let next = next(input, delivery, stage, namespace, wanted);
        let account = references.remove(namespace);
        let secret = input.secrets.get(*namespace);
        let has_secret = secret.is_some_and(|secret| !input.is_foreign(secret, wanted));
        plan.needs_stable |= next.needs_stable;
        let has_references = input.accounts.is_some() || delivery.attach == Attach::Admission;
        let mut is_synced = next.is_synced && has_references;
        let mut failure = next.failure;
        plan.writes.extend(next.write.filter(|_| !is_full(&plan)));
        for reference in account.into_iter().flatten() {
            is_synced &= reference.change.is_none();
            failure = failure.or(reference.failure);
            let is_due = reference.may_retry && !is_full(&plan);
            if let (Some(change), true) = (reference.change, is_due)
                && (has_secret || change.added.is_empty())
            {
                plan.writes.push(Write::Account {
                    key: reference.key,
                    change,
                    is_restore: reference.is_restore,
                });
            }
        }
        if delivery.attach == Attach::ServiceAccounts && input.crowded.contains(*namespace) {
            failure = failure.or_else(|| Some(too_many_accounts(namespace)));
        }
        match failure {
            Some((reason, message)) => plan.summary.fail(namespace, reason, &message),
            None if is_synced => plan.summary.synced += 1,
            None => plan.summary.waiting += 1,
        }
    }
    remove(input, &wanted, references, &mut plan);
    plan.summary.accounts = managed_references(input).count();
    let retry_at = input.memory.next_retry(input.now);
    let times = plan.again_at.into_iter().chain(retry_at);
    plan.again_at = times.chain(next_stuck(input)).min();
    plan
}

fn too_many_accounts(namespace: &str) -> ReasonAndMessage {
    let message = format!(
        "namespace `{namespace}` has more ServiceAccounts that match `serviceAccounts` or have the annotation `{ATTACHED_ANNOTATION}` than the {PER_NAMESPACE} that globalps keeps, so it does not change the others: delete some, or narrow the patterns"
    );
    (Reason::TooManyAccounts, message)
}

/// Why the namespace's Secret can't be removed. `None`: its deletion did not begin, or not long ago.
fn terminating(input: &Input, secret: &PullSecretView) -> Option<ReasonAndMessage> {
    let is_stuck = secret.is_being_deleted && input.clock.unchanged_for(secret) >= STUCK_AFTER;
    is_stuck.then(|| {
        let (namespace, name) = (&secret.namespace, input.secret_name);
        let message = format!(
            "Secret `{namespace}/{name}` can't be deleted while it has the finalizers {}, which other programs added",
            secret.finalizers
        );
        (Reason::Terminating, message)
    })
}

/// When the next Secret that is being deleted takes too long.
fn next_stuck(input: &Input) -> Option<Timestamp> {
    let secrets = input.secrets.values();
    let secrets =
        secrets.filter(|secret| secret.is_being_deleted && input.ownership.is_own(secret));
    let left = secrets.map(|secret| STUCK_AFTER - input.clock.unchanged_for(secret));
    let left = left.filter(SignedDuration::is_positive).min()?;
    Some(input.now + left)
}

#[derive(Default)]
struct Next {
    is_synced: bool,
    failure: Option<ReasonAndMessage>,
    write: Option<Write>,
    needs_stable: bool,
}

fn next(
    input: &Input,
    delivery: &Delivery,
    stage: &Stage,
    namespace: &str,
    wanted: &Wanted,
) -> Next {
    let mut next = Next::default();
    let secret = input.secrets.get(namespace);
    if secret.is_some_and(|secret| input.is_as(secret, wanted)) {
        next.is_synced = true;
        return next;
    }
    let name = input.secret_name;
    if secret.is_some_and(|secret| input.is_foreign(secret, wanted)) {
        let message = format!(
            "Secret `{namespace}/{name}` was not created by globalps, so it is not changed"
        );
        next.failure = Some((Reason::ForeignSecret, message));
        return next;
    }
    if let Some(secret) = secret.filter(|secret| secret.is_being_deleted) {
        next.failure = terminating(input, secret);
        return next;
    }
    let is_restore = input.memory.has_written(namespace, &wanted.identity);
    if input
        .memory
        .is_contested(namespace, &wanted.identity, input.now)
    {
        let message = format!(
            "another client has changed or deleted Secret `{namespace}/{name}` five times, so globalps stopped restoring it for ten minutes"
        );
        next.failure = Some((Reason::Conflict, message));
        return next;
    }
    if let Some(failure) = input.memory.failure(namespace) {
        next.failure = Some((failure.reason, failure.message.clone()));
        if failure.retry_at > input.now {
            return next;
        }
    }
    let is_due = stage.may_have(namespace, wanted) && !(delivery.paused && secret.is_some());
    next.write = match (secret, is_restore || is_due) {
        (_, true) => Some(Write::Apply {
            namespace: namespace.to_owned(),
            parts: wanted.parts.clone(),
            identity: wanted.identity.clone(),
            is_stable: false,
            is_restore,
        }),
        // A namespace that already has a Secret keeps it.
        (Some(_), false) => None,
        (None, false) => {
            next.needs_stable = delivery.stable.is_none();
            delivery
                .stable
                .and_then(|stable| with_stable(stable, namespace))
        }
    };
    next
}

fn with_stable(stable: Parts, namespace: &str) -> Option<Write> {
    let parts = parts_of(stable.content, namespace);
    let identity = stable.identity(&parts)?;
    Some(Write::Apply {
        namespace: namespace.to_owned(),
        parts,
        identity,
        is_stable: true,
        is_restore: false,
    })
}

/// Removes the references, and then the Secrets, from namespaces that should have none.
fn remove(
    input: &Input,
    wanted: &BTreeMap<&str, Wanted>,
    mut referring: BTreeMap<&str, Vec<Reference>>,
    plan: &mut NamespacesPlan,
) {
    let is_terminating = |namespace: &str| {
        let namespace = input.namespaces.get(namespace);
        namespace.is_none_or(|namespace| namespace.is_terminating)
    };
    let mut is_clean = wanted.is_empty();
    let mut is_over = is_clean;
    for (namespace, secret) in input.secrets {
        let is_own = input.ownership.is_own(secret) && namespace != input.own_namespace;
        if !is_own || wanted.contains_key(namespace.as_str()) || is_terminating(namespace) {
            continue;
        }
        is_clean = false;
        let references = referring.get(namespace.as_str());
        let failure = input.memory.failure(namespace);
        let is_due = failure.is_none_or(|failure| failure.retry_at <= input.now);
        let terminating = terminating(input, secret);
        is_over &= terminating.is_some()
            || failure.is_some_and(|failure| failure.lasts_for(input.now) >= STUCK_AFTER)
            || references.is_some_and(|all| all.iter().all(|reference| reference.is_stuck));
        let failure = failure.map(|failure| (failure.reason, failure.message.clone()));
        if let Some((reason, message)) = terminating.or(failure) {
            plan.summary.fail(namespace, reason, &message);
        }
        if is_due && references.is_none() && !secret.is_being_deleted {
            plan.writes.push(Write::Delete {
                namespace: namespace.clone(),
            });
        }
    }
    for (namespace, references) in &mut referring {
        if is_terminating(namespace) {
            continue;
        }
        for reference in references.drain(..) {
            is_clean = false;
            is_over &= reference.is_stuck;
            if let Some((reason, message)) = &reference.failure {
                plan.summary.fail(namespace, *reason, message);
            }
            if let (Some(change), true) = (reference.change, reference.may_retry) {
                plan.writes.push(Write::Account {
                    key: reference.key,
                    change,
                    is_restore: false,
                });
            }
        }
    }
    plan.summary.is_clean = is_clean && input.accounts.is_some();
    plan.summary.is_over = is_over;
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "plan_properties.rs"]
mod properties;
