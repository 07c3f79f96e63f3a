//! The plan's input, and the desired Secrets. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::Attach;
use globalps_core::namespaces::{Selected, Selection, config_of, parts_of};
use globalps_provider::Pattern;
use jiff::{SignedDuration, Timestamp};

use super::clock::SecretClock;
use super::digest::Digests;
use super::identity::Parts;
use super::ownership::Ownership;
use super::views::PullSecretView;
use crate::content::digest::Digest;
use crate::targets::account::AccountView;
use crate::targets::memory::Memory;
use crate::targets::namespace::NamespaceView;
use crate::targets::summary::Summary;
use crate::targets::write::{NamespaceContent, secret_key};

/// The plan's input. The maps are by namespace, and by [`AccountView::key_of`].
pub struct NamespacesInput<'a> {
    /// `None`: everything that the controller created is removed.
    pub delivery: Option<Delivery<'a>>,
    /// Namespace of the pull secrets themselves. A Secret with the delivered name there is the controller's state.
    pub own_namespace: &'a str,
    /// Name of the Secret in each namespace.
    pub secret_name: &'a str,
    /// By name.
    pub namespaces: &'a BTreeMap<String, NamespaceView>,
    /// By namespace: each has one Secret with this name.
    pub secrets: &'a BTreeMap<String, PullSecretView>,
    /// `None`: they can't be listed. Their references stay as they are, and no Secret waits for them.
    pub accounts: Option<&'a BTreeMap<String, AccountView>>,
    /// Namespaces in which some service accounts are not known: there are too many.
    pub crowded: &'a BTreeSet<String>,
    /// What this leader wrote and what failed.
    pub memory: &'a Memory,
    /// As of now.
    pub clock: &'a SecretClock,
    /// As of now.
    pub ownership: &'a Ownership,
    /// By the monotonic clock, as the times of the memory.
    pub now: Timestamp,
}

/// What namespaces get, and how.
#[derive(Clone, Copy)]
pub struct Delivery<'a> {
    /// Which namespaces get the Secret.
    pub selection: &'a Selection,
    /// The content to deliver.
    pub parts: Parts<'a>,
    /// The last content that was rolled out to all nodes: for new namespaces, while the current content waits for its canary.
    pub stable: Option<Parts<'a>>,
    /// How pods get the reference.
    pub attach: Attach,
    /// Names of the service accounts that get it.
    pub accounts: &'a [Pattern],
    /// `None`: any namespace.
    pub canary: Option<&'a str>,
    /// A canary has passed once it has had its Secret for this long.
    pub min_ready: SignedDuration,
    /// Secrets that namespaces have stay as they are.
    pub paused: bool,
}

impl Delivery<'_> {
    /// The credentials of a Secret.
    pub fn render(&self, of: &NamespaceContent) -> Vec<u8> {
        let stable = self.stable.filter(|_| of.is_stable);
        config_of(stable.unwrap_or(self.parts).content, &of.parts).render()
    }
}

/// The desired Secret of a namespace.
pub(super) struct Wanted {
    /// In the memory.
    pub(super) key: String,
    pub(super) parts: Vec<usize>,
    pub(super) identity: String,
    pub(super) digest: Digest,
}

impl Wanted {
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.identity.split(',')
    }
}

/// The desired Secrets by namespace.
pub(super) fn wanted<'a>(
    input: &NamespacesInput<'a>,
    digests: &mut Digests,
    summary: &mut Summary,
) -> BTreeMap<&'a str, Wanted> {
    let mut wanted = BTreeMap::new();
    let Some(delivery) = &input.delivery else {
        return wanted;
    };
    for (name, namespace) in input.namespaces {
        if namespace.is_terminating || name == input.own_namespace {
            continue;
        }
        let selected = delivery.selection.covers(
            name,
            || namespace.labels.to_map(),
            namespace.is_marked_excluded,
        );
        if selected != Selected::Yes {
            summary.excluded += 1;
            continue;
        }
        let content = delivery.parts.content;
        let parts = parts_of(content, name);
        if let Some(identity) = delivery.parts.identity(&parts) {
            let digest = digests.of(&identity, || config_of(content, &parts).render());
            let desired = Wanted {
                key: secret_key(name, input.secret_name),
                parts,
                identity,
                digest,
            };
            wanted.insert(name.as_str(), desired);
        }
    }
    digests.forget_others();
    wanted
}

impl NamespacesInput<'_> {
    /// Whether the Secret is as desired, whatever its annotations and managers say.
    pub(super) fn is_as(&self, secret: &PullSecretView, wanted: &Wanted) -> bool {
        self.ownership.is_proved(secret)
            && !secret.is_being_deleted
            && secret.content == Some(wanted.digest)
    }

    /// Whether the Secret is another client's. One with exactly what the controller would write, by a manager of its name, is not:
    /// the key of its proof was lost, or it came from another cluster.
    pub(super) fn is_foreign(&self, secret: &PullSecretView, wanted: &Wanted) -> bool {
        let is_same = secret.is_applied && secret.content == Some(wanted.digest);
        !is_same && !self.ownership.is_own(secret)
    }
}
