//! Namespaces of the hub that it may no longer read. What is in them is not known, so the fleets that may have clusters there change
//! nothing, anywhere; all others go on. Pure.

use super::input::{FleetInput, Selection};

/// Why and what to do, as a clause.
pub fn sentence(namespace: &str, is_deleting: bool) -> String {
    if is_deleting {
        format!(
            "the hub may no longer read namespace `{namespace}`, which is being deleted: clusters keep what they have until it is gone"
        )
    } else {
        format!(
            "the hub may not read namespace `{namespace}`: clusters keep what they have until `kubectl globalps fleet install` grants it again"
        )
    }
}

/// Why the fleet changes nothing: it is in such a namespace, or its clusters may be. `None`: it continues.
pub(super) fn hold(input: &FleetInput, selection: &Selection) -> Option<String> {
    let fleet = &input.fleet.metadata;
    let is_deleted = fleet.deletion_timestamp.is_some();
    let concerns = |namespace: &str| {
        fleet.namespace.as_deref() == Some(namespace)
            || selection.selects_in(namespace, input.namespaces)
            // Once it is gone, nobody removes the Secret from what it selected before.
            || is_deleted && selection.is_of_many_namespaces()
            || input.objects.keys().any(|(it, _)| it == namespace)
    };
    let found = input.hidden.iter().filter(|(name, _)| concerns(name));
    let sentences: Vec<String> = found
        .map(|(name, is_deleting)| sentence(name, *is_deleting))
        .collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}
