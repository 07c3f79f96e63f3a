//! Condition types of a `GlobalPullSecret`.

/// The desired revision is in force everywhere.
pub const READY: &str = "Ready";
/// A rollout, or the restore of nodes, is under way.
pub const PROGRESSING: &str = "Progressing";
/// The user must act; the reason says on what.
pub const DEGRADED: &str = "Degraded";
/// The additional Secret can be used. Otherwise its last valid content stays in force.
pub const ADDITIONAL_VALID: &str = "AdditionalValid";
/// The same of the original pull secret.
pub const ORIGINAL_VALID: &str = "OriginalValid";
/// Only if `spec.sources` isn't empty.
pub const SOURCES_VALID: &str = "SourcesValid";
/// The syncer runs on every node on which it should.
pub const SYNCERS_HEALTHY: &str = "SyncersHealthy";
/// Only while there is content.
pub const CREDENTIALS_EXPIRING: &str = "CredentialsExpiring";
/// Only while namespaces get pull secrets or still have some.
pub const NAMESPACES_SYNCED: &str = "NamespacesSynced";
/// Only while operators get pull secrets or still have some.
pub const OPERATORS_SYNCED: &str = "OperatorsSynced";
/// `openshift-config/pull-secret` has the entries.
pub const PULL_SECRET_SYNCED: &str = "PullSecretSynced";
/// Content before a leaked password was replaced is forgotten. Only while an annotation asks for that.
pub const OLD_FORGOTTEN: &str = "OldForgotten";
/// A registry rejects credentials. Only with `spec.verify`.
pub const CREDENTIALS_REJECTED: &str = "CredentialsRejected";
/// Only of a `FleetPullSecret`.
pub const SOURCE_VALID: &str = "SourceValid";
