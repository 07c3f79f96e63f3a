//! Reasons of events.

use super::{Finding, Of, Reason};

const NORMAL: Of = ("Normal", "");
const WARNING: Of = ("Warning", "");

/// `section`: of the guide; empty: none.
const fn see(section: &'static str) -> Finding {
    super::warning(section, "", "")
}

rows! {
    /// On the additional Secret, from the controller.
    EVENTS
    NORMAL => Merged, None, "A new revision is ready to roll out";
    NORMAL => RolledOut, None, "Every reachable node has it";
    NORMAL => Restored, None, "Every node has its own file again";
    NORMAL => NamespacesSynced, None, "Every namespace has its Secret";
    NORMAL => OperatorsSynced, None, "Every operator has the pull secrets of its catalog";
    NORMAL => CredentialsRenewed, None, "The credentials that expired or expire soon were renewed or removed";
    NORMAL => CredentialsAccepted, None, "Every registry accepts its credentials again";
    NORMAL => OldForgotten, None, "Earlier content is forgotten, as requested";
    WARNING => Invalid, Some(see("additional-invalid")), "The additional Secret is invalid";
    WARNING => SourceInvalid, Some(see("sources-invalid")), "A Secret in `spec.sources` is invalid";
    WARNING => Conflict, Some(see("additional-invalid")), "Two Secrets have credentials for one registry; the note names the effective one";
    WARNING => NodeFailed, Some(see("node-failed")), "A node is `Failed`; once for each revision";
    WARNING => NodeRolledBack, Some(see("node-rolled-back")), "A node is `RolledBack`";
    WARNING => RolloutHalted, Some(see("rollout-halted")), "Too many nodes have failed";
    WARNING => NamespacesFailed, Some(see("namespaces-synced")), "Not every namespace has its Secret";
    WARNING => OperatorsFailed, Some(see("operators-synced")), "Not every operator has the pull secrets of its catalog";
    WARNING => CredentialsExpiring, Some(see("credentials-expiring")), "Credentials in force expire within 3 days, and again within an hour";
    WARNING => CredentialsExpired, Some(see("credentials-expiring")), "Credentials in force have expired";
    WARNING => CredentialsRejected, Some(see("credentials-rejected")), "A registry rejects credentials in force";
    WARNING => Unreadable, Some(see("unreadable")), "An object can't be decoded; once for each field";
    WARNING => ReconcileFailed, Some(see("reconcile-failed")), "The API server refuses writes of the controller";
    WARNING => DriftCorrected, Some(see("")), "Another client changed or deleted an object of the controller, which reverted this";
    WARNING => ConfigMissing, Some(see("no-configuration")), "The GlobalPullSecret was deleted; nothing changes until it is created again";
}

rows! {
    /// On a `ClusterPullSecret`, from the hub.
    CLUSTER_EVENTS
    NORMAL => IdentityAccepted, None, "The hub accepts the cluster's new identity, as requested";
    WARNING => IdentityChanged, Some(see("")), "The kubeconfig leads to another cluster than before";
}

/// The type of an event with this reason: `Normal` or `Warning`.
pub fn event_type(reason: Reason) -> &'static str {
    let mut rows = EVENTS.iter().chain(CLUSTER_EVENTS);
    rows.find(|row| row.reason == reason)
        .map_or("Warning", |row| row.of)
}
