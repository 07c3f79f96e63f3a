//! The writes of all deliveries into namespaces. Pure.

use std::collections::BTreeSet;

use globalps_core::references::Change;

use super::Id;

/// One request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Write the Secret.
    Secret {
        /// Namespace and name.
        id: Id,
        /// What it gets.
        content: SecretContent,
        /// Another client has changed or deleted what the controller wrote.
        is_restore: bool,
    },
    /// Delete the Secret, if the controller created it.
    Delete {
        /// Namespace and name.
        id: Id,
        /// Of the one that was seen; `None`: it is never read.
        version: Option<u64>,
    },
    /// Change the references of the service account with this key.
    Account {
        /// `namespace/name`.
        key: String,
        /// What to add and what to remove.
        change: Change,
        /// All that it should have: names of Secrets, separated by commas.
        what: String,
        /// Another client has removed a reference.
        is_restore: bool,
    },
}

/// What a Secret gets. Only the delivery has the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretContent {
    /// In a namespace.
    Namespace(NamespaceContent),
    /// For an operator.
    Copy(CopyContent),
}

/// The credentials for every pod, and parts of the scoped sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceContent {
    /// Indices in the content.
    pub parts: Vec<usize>,
    /// Of the revisions in it, for its annotation.
    pub identity: String,
    /// The content is the last one that was rolled out to all nodes.
    pub is_stable: bool,
    /// Of the Secret to replace; `None`: there is none.
    pub version: Option<u64>,
}

/// The content of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyContent {
    /// The catalog's Secret.
    pub source: Id,
    /// It increases with each change of the catalog's Secret.
    pub edition: u64,
    /// Name and uid of each `ClusterServiceVersion` that needs it. The garbage collector removes the copy with the last of them.
    pub owners: BTreeSet<(String, String)>,
}

/// The key of a Secret in the memory, distinct from those of service accounts.
pub(crate) fn secret_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/secrets/{name}")
}

impl Write {
    /// The key of its object in the memory.
    pub fn key(&self) -> String {
        match self {
            Self::Secret { id, .. } | Self::Delete { id, .. } => secret_key(&id.0, &id.1),
            Self::Account { key, .. } => key.clone(),
        }
    }

    /// What it writes, for the memory. Whether a copy is as it was written, nobody knows.
    pub fn what(&self) -> &str {
        match self {
            Self::Secret {
                content: SecretContent::Namespace(of),
                ..
            } => &of.identity,
            Self::Account { what, .. } => what,
            Self::Secret { .. } | Self::Delete { .. } => "",
        }
    }

    /// Another client has undone an earlier one.
    pub fn is_restore(&self) -> bool {
        match self {
            Self::Secret { is_restore, .. } | Self::Account { is_restore, .. } => *is_restore,
            Self::Delete { .. } => false,
        }
    }

    /// It adds a reference.
    pub(crate) fn adds(&self) -> bool {
        matches!(self, Self::Account { change, .. } if !change.added.is_empty())
    }

    /// Message for what is not restored for a while.
    pub(crate) fn conflict(&self) -> String {
        match self {
            Self::Account { key, .. } => format!(
                "another client has removed the reference of ServiceAccount `{key}` five times, so globalps stopped restoring it for ten minutes"
            ),
            Self::Secret { id, .. } | Self::Delete { id, .. } => format!(
                "another client has changed or deleted Secret `{}/{}` five times, so globalps stopped restoring it for ten minutes",
                id.0, id.1
            ),
        }
    }
}
