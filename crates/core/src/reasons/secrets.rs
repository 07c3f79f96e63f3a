//! Reasons of the conditions about pull secrets and their credentials, which the controller writes.

use super::{Finding, NO, UNKNOWN, YES, error, ok, warning};
use crate::api::condition::{
    ADDITIONAL_VALID, CREDENTIALS_EXPIRING, CREDENTIALS_REJECTED, OLD_FORGOTTEN, ORIGINAL_VALID,
    SOURCES_VALID,
};

const ADDITIONAL: &str = "additional-invalid";
const ADDITIONAL_FAULT: &str = "the additional pull secret is not valid";
const ADDITIONAL_FINE: Option<Finding> =
    Some(ok(ADDITIONAL, "the additional pull secret is valid"));
const ORIGINAL: &str = "original-invalid";
const ORIGINAL_FAULT: &str = "the original pull secret is not valid";
const BAD_ORIGINAL: Option<Finding> = Some(error(
    ORIGINAL,
    ORIGINAL_FAULT,
    "globalps ignores the bad entries; the owner of the Secret must fix them",
));
const INVALID: &str = "sources-invalid";
const SOURCES_FAULT: &str = "a Secret in `spec.sources` is not valid";
const TRIES_AGAIN: &str = "the last valid content stays in force; the controller tries again";
const EXPIRING: &str = "credentials-expiring";
const REJECTED: &str = "credentials-rejected";
const OLD: &str = "old-forgotten";
const NOT_ASKED: &str = "the controller asks with TLS only, never a registry that you use with `--insecure`; check that pods of namespace `globalps-system` reach the others and trust their certificates";

rows! { /** Of the `GlobalPullSecret`: its sources. */ SECRETS
    (ADDITIONAL_VALID, NO) => Invalid,
        Some(error(ADDITIONAL, ADDITIONAL_FAULT, "the last valid content stays in force; fix the Secret, or go back to that content with `kubectl globalps undo`")),
        "A kubelet can't decode an entry. The last valid Secret stays in force";
    (ADDITIONAL_VALID, NO) => Forbidden,
        Some(error(ADDITIONAL, ADDITIONAL_FAULT, "`kubectl globalps install` grants it again")),
        "The controller may not read it";
    (ADDITIONAL_VALID, NO) => Unreadable,
        Some(error(ADDITIONAL, ADDITIONAL_FAULT, TRIES_AGAIN)),
        "The API server can't read it. The last valid one stays in force";
    (ADDITIONAL_VALID, YES) => Valid, ADDITIONAL_FINE, "The message names entries that are not used";
    (ADDITIONAL_VALID, YES) => RolledBack, ADDITIONAL_FINE, "It is valid, but failed on nodes; see `Ready`";
    (ADDITIONAL_VALID, UNKNOWN) => Absent,
        Some(ok(ADDITIONAL, "")),
        "It does not exist";
    (ORIGINAL_VALID, NO) => Invalid, BAD_ORIGINAL, "It is no credentials file";
    (ORIGINAL_VALID, NO) => BadEntries, BAD_ORIGINAL, "The bad entries are left out";
    (ORIGINAL_VALID, NO) => Forbidden,
        Some(error(ORIGINAL, ORIGINAL_FAULT, "`kubectl globalps install --original NAMESPACE/NAME` grants it")),
        "The controller may not read it";
    (ORIGINAL_VALID, NO) => Unreadable,
        Some(error(ORIGINAL, ORIGINAL_FAULT, TRIES_AGAIN)),
        "The last valid original stays in force. The message names the object and the cause: a permission, a deleted object, an API server that can't read it, a management cluster that does not respond. The controller retries every few seconds, and notices within 30 that it may now read `openshift-config/pull-secret`";
    (ORIGINAL_VALID, YES) => Valid,
        Some(ok(ORIGINAL, "the original pull secret is valid")),
        "The message names entries that are not used";
    (ORIGINAL_VALID, YES) => NodeFile,
        Some(ok(ORIGINAL, "")),
        "There is none: each node's own file is the base";
    (SOURCES_VALID, NO) => Invalid,
        Some(error(INVALID, SOURCES_FAULT, "the owner of the Secret must fix it; the other sources are in force")),
        "The message names each invalid source; the others are rolled out, and an invalid one keeps its last valid content";
    (SOURCES_VALID, NO) => Absent,
        Some(error(INVALID, SOURCES_FAULT, "create the Secret, or remove it from `spec.sources`")),
        "The Secret does not exist";
    (SOURCES_VALID, NO) => Forbidden,
        Some(error(INVALID, SOURCES_FAULT, "`kubectl globalps install --source NAME` grants it")),
        "The controller may not read it. The message has the command that grants the permission";
    (SOURCES_VALID, NO) => Unreadable,
        Some(error(INVALID, SOURCES_FAULT, TRIES_AGAIN)),
        "The API server can't read it";
    (SOURCES_VALID, YES) => Valid,
        Some(ok(INVALID, "a Secret in `spec.sources` is valid")),
        "The message names entries that are not used";
}

rows! { /** Of the `GlobalPullSecret`: whether registries accept the credentials, and until when. */ CREDENTIALS
    (CREDENTIALS_EXPIRING, YES) => ExpiringSoon,
        Some(warning(EXPIRING, "", "")),
        "Within 3 days";
    (CREDENTIALS_EXPIRING, YES) => ExpiringWithinAnHour,
        Some(warning(EXPIRING, "", "")),
        "Within an hour";
    (CREDENTIALS_EXPIRING, YES) => Expired,
        Some(error(EXPIRING, "", "")),
        "Pulls with the credential fail; images that a node already has still start";
    (CREDENTIALS_EXPIRING, NO) => NoneExpiring, None, "None of the known times is near";
    (CREDENTIALS_REJECTED, YES) => Rejected,
        Some(error(REJECTED, "", "")),
        "The registries in the message reject the credentials, with this HTTP status, twice in a row: the password changed, the token expired or was revoked, the account is locked. Pods that need an image from there can't pull it, not even a public one if the entry is for the whole registry: if only some images need a login, use an entry for their path (`ghcr.io/ORG`). Write new credentials into the Secret that the message names: `kubectl globalps add REGISTRY --source NAME` for one of `spec.sources`. Without a Secret in the message, `kubectl globalps list` shows it: `kubectl globalps add REGISTRY` changes the additional pull secret, the owner the original";
    (CREDENTIALS_REJECTED, NO) => Accepted,
        Some(warning(REJECTED, "", NOT_ASKED)),
        "No registry rejects credentials. The message names registries that could not be asked, and the reason";
    (CREDENTIALS_REJECTED, UNKNOWN) => NotReachable,
        Some(warning(REJECTED, "", NOT_ASKED)),
        "No registry could be asked. The controller asks from its own pod: check the network of namespace `globalps-system`, a proxy, and the certificate authorities ([how](user-guide.md#known-bad-credentials-before-a-pull-fails))";
    (CREDENTIALS_REJECTED, UNKNOWN) => Verifying,
        Some(ok(REJECTED, "")),
        "The controller has not asked all registries yet";
    (OLD_FORGOTTEN, YES) => Forgotten,
        Some(ok(OLD, "")),
        "No Secret of globalps has it, and no reachable node. Unreachable nodes in the message drop it when they return; delete the Node of one that does not";
    (OLD_FORGOTTEN, NO) => WaitingForRollout,
        Some(ok(OLD, "")),
        "It is kept for a rollback until every reachable node and every namespace has newer content. The message says what it waits for; repair the rollout (`kubectl globalps status`)";
    (OLD_FORGOTTEN, NO) => Deleting,
        Some(ok(OLD, "")),
        "The Secrets are being deleted. If that lasts, `Degraded` names the refused write";
    (OLD_FORGOTTEN, NO) => NodesHaveOld,
        Some(warning(OLD, "", "`kubectl globalps list --where-old` names every place; the lines about these nodes say what to do")),
        "The Secrets are deleted. The nodes in the message still drop it, for 30 seconds after their last change; one that stays has an error of its own, lost its state (`StateLost`), is excluded and not restored yet, or runs an older syncer";
    (OLD_FORGOTTEN, NO) => StillInForce,
        Some(warning(OLD, "", "replace the leaked password: `kubectl globalps add REGISTRY -u USER --password-stdin --forget-old`")),
        "The revision in force is not later, or has the content that is to be forgotten. Replace the password: `kubectl globalps add REGISTRY -u USER --password-stdin --forget-old`. After a removal of everything, revisions begin with 1 again: remove an old annotation with `kubectl annotate globalpullsecret global-pull-secret -n kube-system globalps.io/forget-up-to-`";
    (OLD_FORGOTTEN, NO) => InvalidRequest,
        Some(warning(OLD, "", "`kubectl globalps add REGISTRY -u USER --password-stdin --forget-old` writes it again")),
        "The annotation is not a revision, a number from 1";
}
