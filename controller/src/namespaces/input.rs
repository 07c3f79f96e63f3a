//! The plan's input, and the desired Secrets. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::Attach;
use globalps_core::namespaces::{Selected, Selection, parts_of};
use globalps_core::provider::Pattern;
use jiff::{SignedDuration, Timestamp};

use super::clock::SecretClock;
use super::identity::Parts;
use super::summary::Summary;
use super::views::PullSecretView;
use crate::targets::account::AccountView;
use crate::targets::memory::Memory;
use crate::targets::namespace::NamespaceView;

/// The plan's input. The maps are by namespace, and by [`AccountView::key_of`].
pub(crate) struct Input<'a> {
    /// `None`: everything that the controller created is removed.
    pub(crate) delivery: Option<Delivery<'a>>,
    /// Namespace of the pull secrets themselves. A Secret with the delivered name there is the controller's state.
    pub(crate) own_namespace: &'a str,
    /// Name of the Secret in each namespace.
    pub(crate) secret_name: &'a str,
    pub(crate) namespaces: &'a BTreeMap<String, NamespaceView>,
    pub(crate) secrets: &'a BTreeMap<String, PullSecretView>,
    /// `None`: they can't be listed. Their references stay as they are, and no Secret waits for them.
    pub(crate) accounts: Option<&'a BTreeMap<String, AccountView>>,
    /// Namespaces in which some service accounts are not known: there are too many.
    pub(crate) crowded: &'a BTreeSet<String>,
    pub(crate) memory: &'a Memory,
    /// As of now.
    pub(crate) clock: &'a SecretClock,
    /// By the monotonic clock, as the times of the memory.
    pub(crate) now: Timestamp,
}

/// What namespaces get, and how.
#[derive(Clone, Copy)]
pub(crate) struct Delivery<'a> {
    pub(crate) selection: &'a Selection,
    pub(crate) parts: Parts<'a>,
    /// The last content that was rolled out to all nodes: for new namespaces, while the current content waits for its canary.
    pub(crate) stable: Option<Parts<'a>>,
    pub(crate) attach: Attach,
    pub(crate) accounts: &'a [Pattern],
    /// `None`: any namespace.
    pub(crate) canary: Option<&'a str>,
    /// A canary has passed once it has had its Secret for this long.
    pub(crate) min_ready: SignedDuration,
    pub(crate) paused: bool,
}

/// The desired Secret of a namespace.
pub(super) struct Wanted {
    pub(super) parts: Vec<usize>,
    pub(super) identity: String,
}

impl Wanted {
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.identity.split(',')
    }
}

/// The desired Secrets by namespace.
pub(super) fn wanted<'a>(input: &Input<'a>, summary: &mut Summary) -> BTreeMap<&'a str, Wanted> {
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
        let parts = parts_of(delivery.parts.content, name);
        if let Some(identity) = delivery.parts.identity(&parts) {
            summary.total += 1;
            wanted.insert(name.as_str(), Wanted { parts, identity });
        }
    }
    wanted
}

pub(super) fn is_as(secret: &PullSecretView, wanted: &Wanted) -> bool {
    secret.is_managed
        && secret.is_intact
        && !secret.is_being_deleted
        && *secret.content == *wanted.identity
}
