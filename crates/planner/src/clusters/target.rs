//! The hub's Secret in a member cluster, as it was found there. Pure.

use std::sync::Arc;

use globalps_core::api::MAX_REVISION;
use globalps_core::names::{
    CLUSTER_ANNOTATION, DATA_KEY, FLEET_ANNOTATION, RETRY_ANNOTATION, REVISION_ANNOTATION,
};
use globalps_core::rollout::{Revision, RevisionId};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::desired::{Desired, Release};
use super::known::Known;
use super::text::sanitized;
use crate::content::digest::Digest;
use crate::content::source::Data;

/// What the hub's Secret in a cluster names, each as `NAMESPACE/NAME`.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The `FleetPullSecret` that wants it.
    pub fleet: &'a str,
    /// The cluster itself, as the hub knows it.
    pub cluster: &'a str,
}

/// The target Secret in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// Changes if another client deletes and creates the Secret.
    pub uid: String,
    /// Its `resourceVersion`.
    pub version: String,
    pub(super) type_: String,
    pub(super) is_immutable: bool,
    /// `NAMESPACE/NAME` of the `FleetPullSecret` that wrote it.
    pub(super) fleet: Option<String>,
    /// `NAMESPACE/NAME` of the cluster that it was written for.
    cluster: Option<String>,
    revision: Option<i64>,
    retry: String,
    content: TargetContent,
    /// It has other keys besides the hub's.
    pub(super) has_other_keys: bool,
    /// Another field manager that owns the content.
    pub(super) other_manager: Option<String>,
    pub(super) owner: Owner,
}

/// Maximum length of a uid or a `resourceVersion`, which a member can choose, as everything below.
pub(super) const VERSION_LIMIT: usize = 64;
/// The same of names, and of the value of a request, which is the longest.
const NAME_LIMIT: usize = 1024;

fn name(text: &str) -> String {
    sanitized(text, NAME_LIMIT)
}

/// The content, of which the hub keeps only its own: each of a thousand members may have another megabyte.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetContent {
    Desired(Arc<Data>),
    /// `None`: there is none.
    Other(Option<Digest>),
}

fn digest(data: &Data) -> Option<Digest> {
    data.0.as_ref().map(Digest::of)
}

/// Who owns the content, by `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    /// This hub alone.
    Hub,
    /// This hub and another client.
    Both,
    /// Another client, and the hub no longer does.
    Others,
}

impl TargetView {
    /// The hub has written its content, maybe beside another client.
    pub fn is_own(&self) -> bool {
        matches!(self.owner, Owner::Hub | Owner::Both)
    }

    pub(super) fn has_content(&self, content: &Arc<Data>) -> bool {
        match &self.content {
            TargetContent::Desired(known) => known == content,
            TargetContent::Other(other) => *other == digest(content),
        }
    }

    /// What this hub wrote there for the fleet or for one that is gone, if no object says which revision that is; `NONE`: nothing. The
    /// number is the cluster's own word, so it has no id.
    pub fn unknown_revision(&self, names: Names, known: &Known) -> Revision {
        let of = self.fleet.as_deref();
        let is_of = of.is_some_and(|of| of == names.fleet || !known.may_exist(of));
        if !self.is_own() || !is_of || self.other_cluster(names, known).is_some() {
            return Revision::NONE;
        }
        let number = self.revision.filter(|it| (1..=MAX_REVISION).contains(it));
        Revision::new(number.unwrap_or(1), RevisionId::UNKNOWN)
    }

    /// The other cluster of this hub that it was written for: both kubeconfigs lead here. What only the cluster says of itself, such as
    /// its uid, would let a member block another one.
    pub(super) fn other_cluster(&self, names: Names, known: &Known) -> Option<&str> {
        let other = self.cluster.as_deref()?;
        let is_other = other != names.cluster && known.may_have_cluster(other);
        (is_other && self.is_own()).then_some(other)
    }

    /// `manager`: the hub's field manager. `desired`: if it has the same content, both share it, to save memory.
    pub fn new(secret: &Secret, manager: &str, desired: &Desired) -> Self {
        let content = match (Data::of(secret, DATA_KEY), desired) {
            (found, Desired::Revision(release)) if *release.content == found => {
                TargetContent::Desired(Arc::clone(&release.content))
            }
            (found, _) => TargetContent::Other(digest(&found)),
        };
        let annotations = secret.annotations();
        let owns_content = |fields: &serde_json::Value| {
            fields
                .pointer("/f:data")
                .is_some_and(|data| data.get(format!("f:{DATA_KEY}")).is_some())
        };
        let owners = secret.managed_fields().iter().filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|it| owns_content(&it.0))
        });
        let (own, others): (Vec<_>, Vec<_>) =
            owners.partition(|entry| entry.manager.as_deref() == Some(manager));
        Self {
            uid: sanitized(&secret.uid().unwrap_or_default(), VERSION_LIMIT),
            version: sanitized(
                &secret.resource_version().unwrap_or_default(),
                VERSION_LIMIT,
            ),
            type_: sanitized(&secret.type_.clone().unwrap_or_default(), NAME_LIMIT),
            is_immutable: secret.immutable == Some(true),
            fleet: annotations.get(FLEET_ANNOTATION).map(|it| name(it)),
            cluster: annotations.get(CLUSTER_ANNOTATION).map(|it| name(it)),
            revision: annotations
                .get(REVISION_ANNOTATION)
                .and_then(|number| number.parse().ok()),
            retry: annotations
                .get(RETRY_ANNOTATION)
                .map(|it| name(it))
                .unwrap_or_default(),
            content,
            has_other_keys: secret.data.as_ref().is_some_and(|data| data.len() > 1),
            owner: match (own.is_empty(), others.is_empty()) {
                (true, true) => Owner::Nobody,
                (false, true) => Owner::Hub,
                (false, false) => Owner::Both,
                (true, false) => Owner::Others,
            },
            other_manager: others
                .first()
                .map(|it| name(it.manager.as_deref().unwrap_or_default())),
        }
    }

    /// Whether content and annotations match.
    pub(super) fn has(&self, names: Names, release: &Release) -> bool {
        self.fleet.as_deref() == Some(names.fleet)
            && self.cluster.as_deref() == Some(names.cluster)
            && self.revision == Some(release.revision.number)
            // Without a request of its own, the hub does not care whether others have made one there.
            && (release.retry.is_empty() || self.retry == release.retry)
            && self.has_content(&release.content)
    }
}
