//! What a plan writes to `global-pull-secret`, and keeps of what that had. Pure.

use globalps_core::api::{DeliveryType, Kubelet};
use globalps_core::rollout::{Member, Outcome, Revision};
use globalps_provider::Content;
use jiff::Timestamp;

use super::input::{Recorded, Snapshot};
use super::members::{Rollout, RolloutTarget};
use crate::content::history::HistoryWrite;
use crate::content::resolve::{DesiredContent, Resolved};
use crate::content::secret::{Global, GlobalWrite, RolledOutWrite};
use crate::content::since::since;

#[derive(Default)]
pub(super) struct Written {
    pub(super) global: Option<GlobalWrite>,
    pub(super) history: Option<HistoryWrite>,
    pub(super) rolled_out: Option<RolledOutWrite>,
    /// Nodes no longer get anything, all of them are restored, and that is recorded.
    pub(super) removes_agents: bool,
    /// The revision that new nodes get.
    pub(super) for_new_nodes: Option<Revision>,
}

/// Every node keeps its content; new nodes get the fleet's, if any node has some. What needs no limits continues.
pub(super) fn held(recorded: &Recorded, next: &Rollout) -> Written {
    let older = recorded.rolled_out_revision;
    // The limits may not be the user's: what is recorded counts.
    let for_new = |target: RolloutTarget| {
        let outcome = Outcome {
            ledger: target.ledger,
            ..next.step.outcome
        };
        outcome.for_new(older, true)
    };
    Written {
        global: lost(recorded),
        for_new_nodes: next.target.and_then(for_new),
        ..Written::default()
    }
}

/// `global-pull-secret` as it was, if another client deleted or changed it.
fn lost(recorded: &Recorded) -> Option<GlobalWrite> {
    let global = recorded.global.as_ref();
    let global = global.filter(|_| recorded.global_is_lost)?;
    Some(GlobalWrite {
        content: global.content.clone()?,
        global: global.clone(),
    })
}

/// The state with the desired content. `last`: how far `before`'s revision got. `next`: its own rollout.
pub(super) fn reached(
    snapshot: &Snapshot,
    resolved: &Resolved,
    desired: &DesiredContent,
    revision: Revision,
    before: Option<&Global>,
    last: Outcome,
    next: &Rollout,
) -> Written {
    let (spec, recorded, now) = (
        &snapshot.config.spec,
        &snapshot.recorded,
        snapshot.clock.now,
    );
    let same = before.filter(|global| global.revision == revision);
    let members = &next.members;
    let is_off_nodes =
        spec.kubelet.delivery == DeliveryType::None && members.iter().all(Member::is_done);
    let had_config_file = before.is_some_and(|global| global.config_file.is_some());
    // First record that nothing is left on the nodes.
    let removes_agents = is_off_nodes && !had_config_file;
    let outcome = next.step.outcome;
    let ledger = outcome.ledger;
    let global = Global {
        revision,
        content: None,
        last_scopes: desired.scopes.clone(),
        provider_since: next.target.map_or(0, |target| target.provider_since),
        last_additional: desired.additional.clone(),
        last_original: desired.original.clone(),
        last_sources: desired.sources.clone(),
        canary_passed: ledger.canary_passed,
        rolled_out: ledger.rolled_out,
        restoring: false,
        additional_was_rolled_out: ledger.rolled_out.is_none()
            && before.is_some_and(|global| {
                global.last_additional == desired.additional
                    && (global.additional_was_rolled_out || global.rolled_out.is_some())
            }),
        rejected: resolved.rejected.clone(),
        rejected_reason: before
            .filter(|_| resolved.rejected.is_some())
            .and_then(|global| global.rejected_reason.clone()),
        config_file: config_file(&spec.kubelet, before).filter(|_| !is_off_nodes),
        content_since: since(before, &desired.content, revision),
    };
    let replaced = before.filter(|_| same.is_none());
    let history = replaced
        .filter(|global| spec.history_limit > 0 && global.last_additional != desired.additional);
    let is_written =
        !recorded.global_is_lost && same.is_some_and(|before| before.has_same_state(&global));
    let replaced = replaced.and_then(|global| replaced_content(last, global));
    // What is written now replaces the one before it.
    let older = replaced.as_ref().map(|write| write.revision);
    let older = older.or(recorded.rolled_out_revision);
    Written {
        for_new_nodes: outcome.for_new(older, spec.rollout.paused),
        history: history.and_then(|global| replaced_additional(last, global, now)),
        rolled_out: replaced,
        removes_agents,
        global: (!is_written).then(|| GlobalWrite {
            content: content(same, desired),
            global,
        }),
    }
}

/// Until the nodes are restored, `undo` brings back what is removed. `last`: how far its revision got.
pub(super) fn restored(snapshot: &Snapshot, last: Outcome) -> Written {
    let spec = &snapshot.config.spec;
    let begins = snapshot.recorded.global.as_ref();
    let begins = begins.filter(|global| !global.restoring);
    let history = begins.filter(|_| spec.history_limit > 0);
    Written {
        // The restore has begun: an invalid Secret that appears now must not bring the last valid content back, and no new node
        // gets the content that is being removed.
        global: begins.and_then(|global| {
            let config_file = config_file(&spec.kubelet, Some(global));
            restoring(global, config_file)
        }),
        history: history.and_then(|global| replaced_additional(last, global, snapshot.clock.now)),
        ..Written::default()
    }
}

/// Nothing is left on the nodes: the next leader continues the cleanup, though a finalizer keeps some object.
pub(super) fn cleaned_up(recorded: &Recorded) -> Option<GlobalWrite> {
    let global = recorded.global.as_ref();
    let global = global.filter(|global| global.config_file.is_some())?;
    restoring(global, None)
}

/// The replaced additional Secret for the history, if it was rolled out to every node, with this revision or an earlier one.
fn replaced_additional(last: Outcome, global: &Global, now: Timestamp) -> Option<HistoryWrite> {
    let rolled_out = last.ledger.rolled_out.filter(|_| !global.restoring);
    let earlier = global.additional_was_rolled_out.then_some(now);
    Some(HistoryWrite {
        revision: global.revision.number,
        rolled_out: rolled_out.or(earlier)?,
        additional: global.last_additional.clone()?,
    })
}

/// The replaced content, if it passed its canary and did not fail: new nodes get it until a later one has.
fn replaced_content(last: Outcome, global: &Global) -> Option<RolledOutWrite> {
    let for_new = last.for_new(None, false);
    let is_for_new = for_new.is_some() && !global.restoring;
    let content = global.content.clone().filter(|_| is_for_new)?;
    Some(RolledOutWrite {
        revision: global.revision,
        content,
    })
}

/// Equivalent content keeps the bytes that the nodes have.
fn content(same: Option<&Global>, desired: &DesiredContent) -> Content {
    let content = same.and_then(|global| global.content.clone());
    content.unwrap_or_else(|| desired.content.clone())
}

/// The file that the nodes first got stays: at another path the original content would be lost. `None`: no node has content of
/// globalps.
fn config_file(kubelet: &Kubelet, before: Option<&Global>) -> Option<String> {
    let before = before.and_then(|global| global.config_file.clone());
    let given = || (kubelet.delivery != DeliveryType::None).then(|| kubelet.config_file.clone());
    before.or_else(given)
}

/// The state during a restore.
fn restoring(global: &Global, config_file: Option<String>) -> Option<GlobalWrite> {
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
