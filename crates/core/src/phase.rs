//! The phase of a node as status counts, metrics and the plugin show it. Pure.

// Times and numbers of other programs must not overflow.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use jiff::SignedDuration;

use crate::api::{NodePullSecret, NodePullSecretStatus, Phase};
use crate::rollout::Revision;

/// A restarted kubelet may report `NotReady` for some seconds, so shorter periods are ignored.
pub const NOT_READY_GRACE: SignedDuration = SignedDuration::from_mins(1);

/// Why a Node is `NotReady`, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// The kubelet reports it.
    Reported(SignedDuration),
    /// The kubelet is unresponsive.
    Unknown(SignedDuration),
}

impl NotReady {
    /// How long the node has been so, by the clock of the caller.
    pub fn duration(self) -> SignedDuration {
        match self {
            Self::Reported(duration) | Self::Unknown(duration) => duration,
        }
    }
}

/// Facts about a node that its `NodePullSecret` doesn't contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Excluded by label, or not selected by `spec.nodeSelector`.
    pub excluded: bool,
    /// The node can't run a syncer, or none has ever run there, and it has nothing of globalps.
    pub unsupported: bool,
    /// `None`: it is Ready.
    pub not_ready: Option<NotReady>,
    /// The node's syncer hasn't responded to the assignment in time.
    pub unresponsive: bool,
}

/// Whether the node reports that it has nothing of globalps, or never got anything and never reported.
pub fn has_nothing(object: &NodePullSecret) -> bool {
    let spec = &object.spec;
    let generation = object.metadata.generation.unwrap_or_default();
    match &object.status {
        None => spec.revision == 0 && !spec.restore && !spec.revoked,
        Some(status) => {
            let is_up_to_date = status.observed_generation == generation && generation > 0;
            // Otherwise it has an assignment that it may be following.
            is_up_to_date
                && status.restored
                && matches!(status.phase, Phase::Pending | Phase::Restored)
        }
    }
}

/// `newest`: revision that is rolled out; `NONE`: not known. `None`: globalps doesn't manage this node.
pub fn phase(object: Option<&NodePullSecret>, node: NodeView, newest: Revision) -> Option<Phase> {
    let Some(object) = object else {
        return match node {
            NodeView { excluded: true, .. } => Some(Phase::Excluded),
            NodeView { unsupported, .. } => unsupported.then_some(Phase::Unsupported),
        };
    };
    let is_unreadable = |status: &NodePullSecretStatus| status.phase == Phase::Unreadable;
    if object.status.as_ref().is_some_and(is_unreadable) {
        return Some(Phase::Unreadable);
    }
    if node.unsupported && !node.excluded {
        return Some(Phase::Unsupported);
    }
    // There is nothing to wait for, so it doesn't matter whether its syncer responds.
    if node.excluded && has_nothing(object) {
        return Some(Phase::Excluded);
    }
    let is_absent = match node.not_ready {
        Some(NotReady::Unknown(_)) => true,
        Some(NotReady::Reported(duration)) => duration > NOT_READY_GRACE,
        None => node.unresponsive,
    };
    if is_absent {
        return Some(Phase::Unreachable);
    }
    let status = object.status.as_ref();
    let reported = status.map_or(Phase::Pending, |status| status.phase.clone());
    let generation = object.metadata.generation.unwrap_or_default();
    let is_up_to_date = status.map_or(0, |status| status.observed_generation) >= generation;
    let spec = &object.spec;
    let assigned = spec.assigned();
    let is_in_force = status.is_some_and(|status| status.in_force() == assigned);
    let is_newest = newest == Revision::NONE || assigned == newest;
    Some(match reported {
        // While a node restores, the progress of that matters, not the target revision.
        reported if spec.restore && is_up_to_date => match reported {
            Phase::Restored if node.excluded => Phase::Excluded,
            reported => reported,
        },
        _ if spec.restore => Phase::Restoring,
        _ if node.excluded => Phase::Excluded,
        Phase::SteppedAside if is_up_to_date => Phase::SteppedAside,
        _ if spec.revision == 0 => Phase::Pending,
        _ if !is_up_to_date => Phase::Syncing,
        Phase::Synced | Phase::Restored if !is_newest => Phase::Pending,
        Phase::Synced if !is_in_force => Phase::Syncing,
        reported => reported,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NodePullSecretSpec;
    use crate::rollout::RevisionId;

    /// `5x`: a revision with another id than `5`.
    fn revision(text: &str) -> Option<Revision> {
        let number = text.trim_end_matches('x').parse().ok()?;
        let id = RevisionId::from_random(if text.ends_with('x') { 2 } else { 1 });
        Some(Revision::new(number, id))
    }

    /// `5:Synced/4`: assigned revision (`R`: restore), reported phase and revision (absent: the assigned one); without a phase
    /// the node hasn't responded yet; `-`: no object.
    fn object(text: &str) -> Option<NodePullSecret> {
        let (assigned, reported) = text.split_once(':').unwrap_or((text, ""));
        let target = revision(assigned).or_else(|| revision("5")).unwrap();
        let spec = NodePullSecretSpec {
            revision: target.number,
            revision_id: target.id,
            restore: assigned == "R",
            ..NodePullSecretSpec::default()
        };
        let (reported, in_force) = match reported.split_once('/') {
            Some((reported, in_force)) => (reported, revision(in_force).unwrap()),
            None => (reported, target),
        };
        let mut object = NodePullSecret::new("a", spec);
        object.metadata.generation = Some(2);
        object.status = (!reported.is_empty()).then(|| NodePullSecretStatus {
            observed_generation: 2,
            revision: in_force.number,
            revision_id: in_force.id,
            phase: reported.into(),
            ..NodePullSecretStatus::default()
        });
        (assigned != "-").then_some(object)
    }

    #[test]
    fn every_node_has_one_phase() {
        let here = NodeView::default();
        let excluded = NodeView {
            excluded: true,
            ..here
        };
        let unresponsive = NodeView {
            unresponsive: true,
            ..here
        };
        let excluded_and_unresponsive = NodeView {
            excluded: true,
            ..unresponsive
        };
        let unsupported = NodeView {
            unsupported: true,
            ..unresponsive
        };
        let neither = NodeView {
            excluded: true,
            ..unsupported
        };
        let not_ready = |not_ready| NodeView {
            not_ready: Some(not_ready),
            ..here
        };
        let briefly = not_ready(NotReady::Reported(NOT_READY_GRACE));
        let long = not_ready(NotReady::Reported(SignedDuration::from_mins(2)));
        for reason in [NotReady::Reported, NotReady::Unknown] {
            assert_eq!(reason(NOT_READY_GRACE).duration(), NOT_READY_GRACE);
        }
        let silent = not_ready(NotReady::Unknown(SignedDuration::ZERO));
        for (assigned, node, expected) in [
            ("-", here, None),
            ("-", excluded, Some("Excluded")),
            ("0", here, Some("Pending")),
            ("5", here, Some("Syncing")),
            ("5:Synced", here, Some("Synced")),
            ("4:Synced", here, Some("Pending")),
            ("5:Synced/4", here, Some("Syncing")),
            ("5:Synced/6", here, Some("Syncing")),
            ("5:Synced/5x", here, Some("Syncing")),
            ("5x:Synced", here, Some("Pending")),
            ("6:Synced", here, Some("Pending")),
            ("4:Restored", here, Some("Pending")),
            ("4:Failed", here, Some("Failed")),
            ("5:RolledBack", here, Some("RolledBack")),
            ("5:ForeignOwner", here, Some("ForeignOwner")),
            ("5:SteppedAside", here, Some("SteppedAside")),
            ("0:SteppedAside", here, Some("SteppedAside")),
            ("0:Unreadable", silent, Some("Unreadable")),
            ("5:Dreaming", here, Some("Dreaming")),
            ("R", here, Some("Restoring")),
            ("R:Restoring", here, Some("Restoring")),
            ("R:Restored", here, Some("Restored")),
            ("R:Failed", here, Some("Failed")),
            ("R", excluded, Some("Restoring")),
            ("R:Restored", excluded, Some("Excluded")),
            ("5:Synced", excluded, Some("Excluded")),
            ("0", excluded_and_unresponsive, Some("Excluded")),
            ("5", excluded_and_unresponsive, Some("Unreachable")),
            ("5:Synced", briefly, Some("Synced")),
            ("5:Synced", long, Some("Unreachable")),
            ("5:Synced", silent, Some("Unreachable")),
            ("5", unresponsive, Some("Unreachable")),
            ("-", silent, None),
            ("-", unsupported, Some("Unsupported")),
            ("0", unsupported, Some("Unsupported")),
            ("0:Unreadable", unsupported, Some("Unreadable")),
            ("-", neither, Some("Excluded")),
        ] {
            let phase = phase(object(assigned).as_ref(), node, revision("5").unwrap());
            assert_eq!(
                phase.as_ref().map(Phase::as_str),
                expected,
                "{assigned} {node:?}"
            );
        }
        let unknown = phase(object("4:Synced").as_ref(), here, Revision::default());
        assert_eq!(unknown, Some(Phase::Synced), "the newest is not known");
    }
}
