//! What a new revision keeps from the previous state. Pure.

use globalps_core::api::{DeliveryType, Kubelet, MAX_REVISION};
use globalps_core::rollout::{Revision, RevisionId};
use globalps_provider::{Content, Delivery};

use super::input::Recorded;
use crate::content::resolve::Desired;
use crate::content::secret::{Global, GlobalWrite};

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

/// The next revision. Its number follows the last one that the controller wrote; if that is lost, it may repeat one, and the id
/// tells both apart. Numbers in the nodes' objects don't count: other clients can write those.
pub(super) fn next_revision(recorded: &Recorded, id: RevisionId) -> Revision {
    let written = recorded
        .global
        .as_ref()
        .map(|global| global.revision.number);
    let written = written.filter(|number| *number > 0).unwrap_or_else(|| {
        let rolled_out = recorded.rolled_out_revision;
        rolled_out
            .map_or(0, |revision| revision.number)
            .max(recorded.reported_revision)
    });
    let next = written.checked_add(1);
    let number = next.filter(|number| (1..=MAX_REVISION).contains(number));
    Revision::new(number.unwrap_or(1), id)
}

/// The file that the nodes first got stays: at another path the original content would be lost. `None`: no node has content of
/// globalps.
pub(super) fn config_file(kubelet: &Kubelet, before: Option<&Global>) -> Option<String> {
    let before = before.and_then(|global| global.config_file.clone());
    let given = || (kubelet.delivery != DeliveryType::None).then(|| kubelet.config_file.clone());
    before.or_else(given)
}

/// The state during a restore.
pub(super) fn restoring(global: &Global, config_file: Option<String>) -> Option<GlobalWrite> {
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
