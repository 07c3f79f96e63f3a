//! The plan for namespaces: which Secrets and references to write and remove next. Pure.

use std::collections::BTreeMap;

use globalps_core::api::Attach;
use globalps_core::names::ATTACHED_ANNOTATION;
use globalps_core::namespaces::parts_of;
use globalps_core::reasons::{Reason, ReasonAndMessage};
use jiff::{SignedDuration, Timestamp};

use super::digest::Digests;
use super::identity::Parts;
use super::input::{Delivery, NamespacesInput, Wanted, wanted};
use super::stage::CanaryProgress;
use super::views::PullSecretView;
use crate::targets::namespace::is_going;
use crate::targets::plan::{DeliveryPlan, Diff};
use crate::targets::write::{NamespaceContent, SecretContent, Write};
use crate::targets::{Id, PER_NAMESPACE, STUCK_AFTER, WRITES};

/// In the plan, no reference is added before its Secret, and no Secret removed before its references. `digests`: those of earlier
/// plans, to compare content without keeping it.
pub fn plan(input: &NamespacesInput, digests: &mut Digests) -> DeliveryPlan {
    let mut plan = DeliveryPlan::default();
    let wanted = wanted(input, digests, &mut plan.summary);
    let mut references = references(input, &wanted);
    if let Some(delivery) = &input.delivery {
        let progress = CanaryProgress::of(input, delivery, &wanted);
        for (namespace, wanted) in &wanted {
            let needs_stable = &mut plan.needs_stable;
            let secret = secret_of(input, delivery, &progress, namespace, wanted, needs_stable);
            let known = input.secrets.get(*namespace);
            let has_secret = known.is_some_and(|known| !input.is_foreign(known, wanted));
            let mut diffs = vec![secret];
            for mut diff in references.remove(namespace).unwrap_or_default() {
                diff.write.take_if(|write| write.adds() && !has_secret);
                diffs.push(diff);
            }
            if delivery.attach == Attach::ServiceAccounts {
                // Nobody knows whether they have references.
                diffs.extend(input.accounts.is_none().then(Diff::default));
                let is_crowded = input.crowded.contains(*namespace);
                diffs.extend(is_crowded.then(|| Diff::failed(too_many_accounts(namespace))));
            }
            plan.count(namespace, "", &diffs);
            plan.writes
                .extend(diffs.into_iter().filter_map(|diff| diff.write));
        }
        plan.summary.canary = progress.canary_error;
        plan.again_at = progress.again_at;
    }
    plan.writes.truncate(WRITES);
    // They wait for no rotation, however many namespaces that has.
    remove(input, &wanted, references, &mut plan);
    let accounts = input.accounts.into_iter().flat_map(BTreeMap::values);
    plan.summary.accounts = accounts.filter(|account| account.is_attached()).count();
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

/// The service accounts that should have a reference or lose one, by namespace.
fn references<'a>(
    input: &NamespacesInput<'a>,
    wanted: &BTreeMap<&'a str, Wanted>,
) -> BTreeMap<&'a str, Vec<Diff>> {
    let mut references: BTreeMap<&str, Vec<Diff>> = BTreeMap::new();
    for account in input.accounts.into_iter().flat_map(BTreeMap::values) {
        let namespace = account.namespace.as_str();
        let delivery = input.delivery.as_ref().filter(|delivery| {
            let mut patterns = delivery.accounts.iter();
            delivery.attach == Attach::ServiceAccounts
                && wanted.contains_key(namespace)
                && patterns.any(|pattern| pattern.matches(&account.name))
        });
        let names = delivery.map(|_| input.secret_name).into_iter().collect();
        let diff = Diff::of_account(account, &names, false, |_| false, input.memory, input.now);
        if let Some(diff) = diff {
            references.entry(namespace).or_default().push(diff);
        }
    }
    references
}

/// Why the namespace's Secret can't be removed. `None`: its deletion did not begin, or not long ago.
fn terminating(input: &NamespacesInput, secret: &PullSecretView) -> Option<ReasonAndMessage> {
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
fn next_stuck(input: &NamespacesInput) -> Option<Timestamp> {
    let secrets = input.secrets.values();
    let secrets =
        secrets.filter(|secret| secret.is_being_deleted && input.ownership.is_own(secret));
    let left = secrets.map(|secret| STUCK_AFTER - input.clock.unchanged_for(secret));
    let left = left.filter(SignedDuration::is_positive).min()?;
    Some(input.now + left)
}

/// The Secret that the namespace should have.
fn secret_of(
    input: &NamespacesInput,
    delivery: &Delivery,
    progress: &CanaryProgress,
    namespace: &str,
    wanted: &Wanted,
    needs_stable: &mut bool,
) -> Diff {
    let known = input.secrets.get(namespace);
    let name = input.secret_name;
    if let Some(known) = known {
        if input.is_as(known, wanted) {
            return Diff::synced();
        }
        if input.is_foreign(known, wanted) {
            let message = format!(
                "Secret `{namespace}/{name}` was not created by globalps, so it is not changed"
            );
            return Diff::failed((Reason::ForeignSecret, message));
        }
        if known.is_being_deleted {
            return Diff {
                failure: terminating(input, known),
                ..Diff::default()
            };
        }
    }
    let id = (namespace.to_owned(), name.to_owned());
    let is_restore = input.memory.has_written(&wanted.key, &wanted.identity);
    let write = Write::Secret {
        id: id.clone(),
        content: SecretContent::Namespace(NamespaceContent {
            parts: wanted.parts.clone(),
            identity: wanted.identity.clone(),
            is_stable: false,
            version: known.map(|known| known.version),
        }),
        is_restore,
    };
    let mut diff = Diff::of(write, input.memory, input.now);
    let is_due = progress.may_have(namespace, wanted) && !(delivery.paused && known.is_some());
    if is_restore || is_due || diff.write.is_none() {
        return diff;
    }
    // A namespace that already has a Secret keeps it.
    let stable = delivery.stable.filter(|_| known.is_none());
    *needs_stable |= known.is_none() && stable.is_none();
    diff.write = stable.and_then(|stable| with_stable(stable, id));
    diff
}

fn with_stable(stable: Parts, id: Id) -> Option<Write> {
    let parts = parts_of(stable.content, &id.0);
    let content = NamespaceContent {
        identity: stable.identity(&parts)?,
        parts,
        is_stable: true,
        version: None,
    };
    Some(Write::Secret {
        id,
        content: SecretContent::Namespace(content),
        is_restore: false,
    })
}

/// Removes the references, and then the Secrets, from namespaces that should have none.
fn remove(
    input: &NamespacesInput,
    wanted: &BTreeMap<&str, Wanted>,
    references: BTreeMap<&str, Vec<Diff>>,
    plan: &mut DeliveryPlan,
) {
    let is_going = |namespace: &str| is_going(input.namespaces, namespace);
    let mut left_over: Vec<(&str, Diff)> = Vec::new();
    for (namespace, secret) in input.secrets {
        let is_own = input.ownership.is_own(secret) && namespace != input.own_namespace;
        if !is_own || wanted.contains_key(namespace.as_str()) || is_going(namespace) {
            continue;
        }
        let write = Write::Delete {
            id: (namespace.clone(), input.secret_name.to_owned()),
            version: Some(secret.version),
        };
        let mut diff = Diff::of(write, input.memory, input.now);
        let references = references.get(namespace.as_str());
        diff.is_stuck |= references.is_some_and(|all| all.iter().all(|diff| diff.is_stuck));
        if let Some(failure) = terminating(input, secret) {
            diff.failure = Some(failure);
            diff.is_stuck = true;
        }
        diff.write
            .take_if(|_| references.is_some() || secret.is_being_deleted);
        left_over.push((namespace, diff));
    }
    for (namespace, references) in references {
        if !is_going(namespace) {
            left_over.extend(references.into_iter().map(|diff| (namespace, diff)));
        }
    }
    let is_clean = wanted.is_empty() && left_over.is_empty();
    plan.summary.is_clean = is_clean && input.accounts.is_some();
    plan.summary.is_over = wanted.is_empty() && left_over.iter().all(|(_, diff)| diff.is_stuck);
    for (namespace, diff) in left_over {
        if let Some(failure) = &diff.failure {
            plan.summary.fail(namespace, "", failure);
        }
        plan.writes.extend(diff.write);
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "plan_properties.rs"]
mod properties;
