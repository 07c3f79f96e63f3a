//! Reasons of deliveries to namespaces and operators, which the controller writes: those of the condition, and those of a single one
//! in the status.

use super::{Finding, NO, Of, UNKNOWN, YES, error, ok, warning};
use crate::api::condition::{NAMESPACES_SYNCED, OPERATORS_SYNCED, PULL_SECRET_SYNCED};

/// A single namespace or operator.
const ONE: Of = ("", "");
const SYNCED: &str = "namespaces-synced";
const OPERATORS_CHECK: &str = "operators-synced";
const PULL_SECRET_CHECK: &str = "pull-secret-synced";
/// The hint for every permission that the delivery to operators needs.
pub const OPERATORS_INSTALL: &str =
    "`kubectl globalps install --operators NAMESPACE/SECRET` allows it";

rows! { /** Of the delivery into namespaces. */ NAMESPACES
    (NAMESPACES_SYNCED, NO) => NamespacesFailed,
        Some(error(SYNCED, "", "`kubectl globalps status --namespaces` shows each namespace with the reason; the controller tries again")),
        "The message is the API server's: a quota allows no more Secrets, a webhook rejects the Secret, the content is above 1 MiB. The write is retried, at most five minutes later. `can't be deleted while it has the finalizers`: the programs that added them must remove them. `ServiceAccounts can't be listed`: the Secrets are up to date, the references may not be";
    (NAMESPACES_SYNCED, NO) => ForeignSecret,
        Some(error(SYNCED, "", "delete that Secret if nothing needs it, or exclude the namespace: `kubectl label namespace NAMESPACE globalps.io/exclude=true`")),
        "See [namespace-foreign-secret](#namespace-foreign-secret)";
    (NAMESPACES_SYNCED, NO) => Conflict,
        Some(warning(SYNCED, "", "find the other client in the object's `managedFields`, and stop it or exclude the namespace: `kubectl label namespace NAMESPACE globalps.io/exclude=true`")),
        "Another client changed or deleted the Secret, or removed the reference, five times. Stop it; the next change of the content writes the Secret again, and without one globalps restores it ten minutes later";
    (NAMESPACES_SYNCED, NO) => WaitingForCanary,
        Some(warning(SYNCED, "", "`spec.imagePullSecrets.canaryNamespace` must name a namespace that gets the Secret")),
        "No namespace can get new content first. Check whether `spec.imagePullSecrets.canaryNamespace` names a namespace that gets no Secret. If the message names another client that changes the Secret there again and again, stop it, or set another `canaryNamespace`";
    (NAMESPACES_SYNCED, NO) => Forbidden,
        Some(error(SYNCED, "", "`kubectl globalps install --deliver-to-namespaces` grants it")),
        "See [namespaces-permission](#namespaces-permission)";
    (NAMESPACES_SYNCED, NO) => InvalidSettings,
        Some(error(SYNCED, "", "change that field of the GlobalPullSecret; until then the namespaces keep their Secrets")),
        "The selector or a pattern in `spec.imagePullSecrets` is invalid; existing Secrets stay";
    (NAMESPACES_SYNCED, NO) => RollingOut,
        Some(ok(SYNCED, "")),
        "Namespaces still get the Secret";
    (NAMESPACES_SYNCED, YES) => Synced,
        Some(ok(SYNCED, "")),
        "Every namespace has it";
    (NAMESPACES_SYNCED, UNKNOWN) => Listing,
        Some(ok(SYNCED, "")),
        "The controller lists the namespaces";
}

rows! { /** Of the delivery to operators. */ OPERATORS
    (OPERATORS_SYNCED, NO) => RollingOut,
        Some(ok(OPERATORS_CHECK, "")),
        "Operators still get the pull secrets";
    (OPERATORS_SYNCED, NO) => OperatorsFailed, None, "The message names the first operator that failed, which has one of these reasons";
    (OPERATORS_SYNCED, NO) => Forbidden,
        Some(error(OPERATORS_CHECK, "", OPERATORS_INSTALL)),
        "See [operators-permission](#operators-permission)";
    (OPERATORS_SYNCED, YES) => Synced,
        Some(ok(OPERATORS_CHECK, "")),
        "Every operator has them";
    (OPERATORS_SYNCED, YES) => NotInstalled,
        Some(warning(OPERATORS_CHECK, "", "install the Operator Lifecycle Manager, or set `spec.operators.enabled: false`")),
        "The cluster has no Operator Lifecycle Manager: install it, or set `spec.operators.enabled: false`";
    (OPERATORS_SYNCED, UNKNOWN) => Listing,
        Some(ok(OPERATORS_CHECK, "")),
        "The controller lists the operators";
    ONE => SourceMissing,
        Some(error(OPERATORS_CHECK, "", "the catalog's owner must create that Secret, or remove its name from `spec.secrets` of the CatalogSource")),
        "The CatalogSource names a Secret that does not exist: create it, or remove its name from `spec.secrets`. Copies stay as they are";
    ONE => SourceForbidden,
        Some(error(OPERATORS_CHECK, "", OPERATORS_INSTALL)),
        "See [operators-permission](#operators-permission)";
    ONE => SourceInvalid,
        Some(error(OPERATORS_CHECK, "", "the catalog's owner must repair that Secret; until then the copies keep their content")),
        "The Secret has an entry that a kubelet can't decode: repair it. Copies stay as they are";
    ONE => SourceUnreadable,
        Some(error(OPERATORS_CHECK, "", "the copies keep their content; the controller tries again")),
        "The API server did not return the Secret; the controller retries";
    ONE => ForeignSecret,
        Some(error(OPERATORS_CHECK, "", "delete that Secret if nothing needs it; the controller tries again, at most five minutes later")),
        "globalps did not create the Secret with the copy's name, or another client changed the copy. It stays as it is: delete it if nobody needs it";
    ONE => Conflict,
        Some(warning(OPERATORS_CHECK, "", "find the other client in the `managedFields` of the ServiceAccount, and stop it")),
        "Another client removed the reference of the service account five times. Stop it; globalps restores the reference ten minutes later";
    ONE => ServiceAccountMissing,
        Some(error(OPERATORS_CHECK, "", "the Operator Lifecycle Manager creates it with the operator: see `kubectl get csv -A` for the reason")),
        "A Deployment of the operator names a service account that does not exist: `kubectl get csv -A` shows why";
}

rows! { /** Of the delivery into `OpenShift`'s own pull secret. */ PULL_SECRET
    (PULL_SECRET_SYNCED, NO) => AnotherWriter,
        Some(error(PULL_SECRET_CHECK, "", "the `managedFields` of `openshift-config/pull-secret` name the other program: remove its entry there, or name the registry in `spec.kubelet.overrideRegistries`")),
        "Another program has an entry of its own for a registry, or removes what globalps writes. Its entry stays; all other registries are delivered. What is undone is written again three times at once, then at longer and longer intervals, at most ten minutes";
    (PULL_SECRET_SYNCED, NO) => PlatformKey,
        Some(error(PULL_SECRET_CHECK, "", "use a key with a path, such as `quay.io/ORGANIZATION`; `spec.kubelet.overrideRegistries` overrides the platform's entry all the same")),
        "The pull secrets have an entry for a registry that OpenShift can't be updated without: `quay.io`, `registry.redhat.io`, `registry.connect.redhat.com`, `cloud.openshift.com`, `*.arosvc.azurecr.io`. It is not written, even if the platform's entry is missing";
    (PULL_SECRET_SYNCED, NO) => Forbidden,
        Some(error(PULL_SECRET_CHECK, "", "`kubectl globalps install --delivery OpenShift` grants it")),
        "The controller may not read `openshift-config/pull-secret`";
    (PULL_SECRET_SYNCED, NO) => NotFound,
        Some(error(PULL_SECRET_CHECK, "", "this delivery needs a standalone OpenShift: create the Secret again with the entries from console.redhat.com")),
        "There is no `openshift-config/pull-secret`, and globalps does not create it: without the platform's entries it would be worse than none";
    (PULL_SECRET_SYNCED, NO) => Unreadable,
        Some(error(PULL_SECRET_CHECK, "", "repair that Secret first: until then the Machine Config Operator can't use it either")),
        "`openshift-config/pull-secret` is no credentials file, or programs read it differently: `auths` is missing or repeated, or a key in it is. globalps does not edit it";
    (PULL_SECRET_SYNCED, NO) => WriteFailed,
        Some(error(PULL_SECRET_CHECK, "", "the message has the API server's answer; the controller tries again")),
        "The Secret, or the controller's own record of it, could not be written";
    (PULL_SECRET_SYNCED, NO) => Paused,
        Some(ok(PULL_SECRET_CHECK, "")),
        "`spec.rollout.paused` is true: nothing is written";
    (PULL_SECRET_SYNCED, NO) => RollingOut,
        Some(ok(PULL_SECRET_CHECK, "")),
        "The Secret is being written";
    (PULL_SECRET_SYNCED, YES) => Synced,
        Some(ok(PULL_SECRET_CHECK, "")),
        "The Secret has the entries; the nodes' objects say which files have them";
    (PULL_SECRET_SYNCED, UNKNOWN) => Listing,
        Some(ok(PULL_SECRET_CHECK, "")),
        "The controller reads the Secret, or what is in force is not known";
}

rows! {
    /// Reasons of a single namespace or operator: the API server's answers to a write, and what globalps does not write.
    WRITES
    ONE => QuotaExceeded,
        Some(error(OPERATORS_CHECK, "", "raise the quota of that namespace; the controller tries again, at most five minutes later")),
        "A quota of the namespace allows no more Secrets: raise it";
    ONE => Terminating,
        Some(warning(OPERATORS_CHECK, "", "no action needed: this ends when the namespace is deleted")),
        "The namespace is being deleted, or the Secret has finalizers of other programs, which must remove them";
    ONE => Rejected, None, "A webhook or an admission policy rejects the write";
    ONE => Unavailable, None, "The API server or its webhook did not respond in time";
    ONE => Forbidden, None,
        "The controller may not write it; see [namespaces-permission](#namespaces-permission) or [operators-permission](#operators-permission)";
    ONE => Changed, None, "Another client changed the object at the same time";
    ONE => TooLarge, None, "The content is above 1 MiB";
    ONE => Invalid, None, "The API server does not accept the object";
    ONE => WriteFailed, None, "Any other answer of the API server";
    ONE => TooManyAccounts, None,
        "The namespace has more service accounts to change than globalps keeps: delete some, or narrow `serviceAccounts`";
    ONE => TooManyReferences, None, "A service account references more Secrets than globalps keeps";
}

/// The finding for a failed operator. Without a row, the message contains the reason.
pub fn of_operator(reason: &str) -> Finding {
    let rows = OPERATORS.iter().filter(|row| row.status.is_empty());
    let mut rows = rows.chain(WRITES);
    let found = rows.find(|row| *reason == row.reason);
    found.and_then(|row| row.finding).unwrap_or(error(
        OPERATORS_CHECK,
        "",
        "the message has the reason; the controller tries again, at most five minutes later",
    ))
}
