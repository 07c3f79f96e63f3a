//! What a new revision keeps from the previous state. Pure.

use globalps_core::api::DeliveryType;
use globalps_core::provider::{Content, Delivery};

use super::input::Snapshot;
use crate::content::resolve::Desired;
use crate::content::secret::Global;

/// Equivalent content keeps the bytes that the nodes have.
pub(super) fn content(same: Option<&Global>, desired: &Desired) -> Content {
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

/// The highest revision that the controller has written. If the Secret or its revision was lost, the other objects that it wrote
/// have it: a number must never get another meaning. What nodes report does not count.
pub(super) fn last_revision(snapshot: &Snapshot) -> i64 {
    let written = snapshot.global.as_ref().map_or(0, |global| global.revision);
    let objects = snapshot.node_pull_secrets.values();
    let assigned = objects.map(|object| object.spec.revision).max();
    let last = assigned.unwrap_or_default().max(written);
    if written > 0 {
        return last;
    }
    let rolled_out = snapshot.rolled_out_revision.unwrap_or_default();
    last.max(rolled_out).max(snapshot.reported_revision)
}

/// The file that the nodes first got stays: at another path the original content would be lost. `None`: no node has content of
/// globalps.
pub(super) fn config_file(snapshot: &Snapshot, before: Option<&Global>) -> Option<String> {
    let before = before.and_then(|global| global.config_file.clone());
    let given = || {
        let kubelet = &snapshot.spec.kubelet;
        (kubelet.delivery != DeliveryType::None).then(|| kubelet.config_file.clone())
    };
    before.or_else(given)
}
