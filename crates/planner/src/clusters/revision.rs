//! Revisions of a `FleetPullSecret`. One Secret holds the content of each revision as long as a cluster may need it.

use std::sync::Arc;

use globalps_core::api::FleetPullSecret;
use globalps_core::checksum::{add_checksum, has_checksum};
use globalps_core::names::{
    CANARY_PASSED_ANNOTATION, DATA_KEY, FLEET_LABEL, INSTALLATION_ANNOTATION, REJECTED_ANNOTATION,
    REVISION_ANNOTATION, REVISION_ID_ANNOTATION, ROLLED_OUT_ANNOTATION, SECRET_TYPE,
    fleet_revision,
};
use globalps_core::rollout::{Goal, Ledger, Revision, RevisionId};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};

use super::installation::Installation;
use crate::content::source::Data;

/// Key of the pull secret of globalps' own images.
const IMAGES_KEY: &str = "images";
/// What the hub writes into a revision that exists.
const MARKS: [&str; 3] = [
    CANARY_PASSED_ANNOTATION,
    ROLLED_OUT_ANNOTATION,
    REJECTED_ANNOTATION,
];

/// A revision of a fleet, as its Secret on the hub has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRevision {
    /// From 1 on, unique in the fleet.
    pub number: i64,
    /// Random: a number is used again if the fleet is created again.
    pub id: RevisionId,
    /// When the API server created its Secret; `None`: not yet.
    pub created: Option<Timestamp>,
    /// Shared to save memory: there may be a thousand clusters.
    pub content: Arc<Data>,
    /// What to install; `None`: the hub does not install globalps.
    pub install: Option<Arc<Installation>>,
    /// Enough canaries have had it.
    pub canary_passed: bool,
    /// When every cluster had it.
    pub rolled_out: Option<Timestamp>,
    /// Why it was rolled back.
    pub rejected: Option<String>,
}

impl FleetRevision {
    /// A revision that no cluster has had.
    pub fn new(
        Revision { number, id }: Revision,
        content: Arc<Data>,
        install: Option<Arc<Installation>>,
    ) -> Self {
        Self {
            number,
            id,
            created: None,
            content,
            install,
            canary_passed: false,
            rolled_out: None,
            rejected: None,
        }
    }

    /// Without the content.
    pub fn revision(&self) -> Revision {
        Revision::new(self.number, self.id)
    }

    /// How far its rollout is, as recorded.
    pub(super) fn ledger(&self) -> Ledger {
        Ledger {
            goal: Goal::Revision(self.revision()),
            canary_passed: self.canary_passed,
            rolled_out: self.rolled_out,
        }
    }

    /// `None`: the Secret is not a revision.
    pub fn decode(secret: &Secret) -> Option<Self> {
        let fleet = secret.labels().get(FLEET_LABEL)?;
        let annotations = secret.annotations();
        let number = annotations.get(REVISION_ANNOTATION)?.parse().ok()?;
        // Another Secret may have the annotation, too.
        (secret.name_any() == fleet_revision(fleet, number)).then_some(())?;
        if !has_checksum(secret, &MARKS) {
            // Another client has created it again with other content: only its number is used.
            let unknown = Revision::new(number, RevisionId::UNKNOWN);
            return Some(Self::new(unknown, Arc::new(Data(None)), None));
        }
        let is = |key| annotations.get(key).is_some_and(|value| value == "true");
        let rolled_out = annotations.get(ROLLED_OUT_ANNOTATION);
        let record = annotations.get(INSTALLATION_ANNOTATION);
        let install =
            record.and_then(|it| Installation::from_record(it, Data::of(secret, IMAGES_KEY)));
        let id = annotations.get(REVISION_ID_ANNOTATION);
        Some(Self {
            number,
            id: id.map_or(RevisionId::UNKNOWN, |id| id.as_str().into()),
            created: secret.metadata.creation_timestamp.as_ref().map(|it| it.0),
            content: Arc::new(Data::of(secret, DATA_KEY)),
            install: install.map(Arc::new),
            canary_passed: is(CANARY_PASSED_ANNOTATION),
            rolled_out: rolled_out.and_then(|time| time.parse().ok()),
            rejected: annotations.get(REJECTED_ANNOTATION).cloned(),
        })
    }

    /// The Secret in the fleet's namespace, owned by the fleet.
    pub fn encode(&self, fleet: &FleetPullSecret) -> Secret {
        let mut annotations = vec![
            (REVISION_ANNOTATION, self.number.to_string()),
            (REVISION_ID_ANNOTATION, self.id.to_string()),
        ];
        if self.canary_passed {
            annotations.push((CANARY_PASSED_ANNOTATION, "true".to_owned()));
        }
        if let Some(time) = self.rolled_out {
            annotations.push((ROLLED_OUT_ANNOTATION, time.to_string()));
        }
        if let Some(reason) = &self.rejected {
            annotations.push((REJECTED_ANNOTATION, reason.clone()));
        }
        let mut data = vec![(DATA_KEY, self.content.0.clone())];
        if let Some(install) = &self.install {
            annotations.push((INSTALLATION_ANNOTATION, install.record()));
            let pull_secret = install.pull_secret.clone();
            data.push((IMAGES_KEY, pull_secret.and_then(|it| it.0)));
        }
        let data = data
            .into_iter()
            .filter_map(|(key, bytes)| Some((key.to_owned(), ByteString(bytes?))));
        let annotations = annotations
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value));
        let mut secret = Secret {
            metadata: ObjectMeta {
                name: Some(fleet_revision(&fleet.name_any(), self.number)),
                labels: Some([(FLEET_LABEL.to_owned(), fleet.name_any())].into()),
                annotations: Some(annotations.collect()),
                owner_references: fleet.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            // A hub that was frozen while another one led can't replace the content of a number.
            immutable: Some(true),
            data: Some(data.collect()),
            ..Secret::default()
        };
        add_checksum(&mut secret, &MARKS);
        secret
    }
}

impl FleetRevision {
    /// Whether it has the same credentials and the same installation.
    pub(super) fn is_equivalent(&self, content: &Data, install: Option<&Installation>) -> bool {
        self.install.as_deref() == install && has_same_credentials(&self.content, content)
    }
}

/// Whether both contain the same credentials, possibly in another form.
fn has_same_credentials(one: &Data, other: &Data) -> bool {
    let parsed = |data: &Data| globalps_dockerconfig::parse(data.0.as_deref()?).ok();
    one == other
        || parsed(one)
            .zip(parsed(other))
            .is_some_and(|(one, other)| one.means_the_same(&other))
}

/// The revisions to delete: all except the newest, the last `1 + history` that every cluster had, and those that are needed.
pub(super) fn outdated(revisions: &[FleetRevision], needed: &[i64], history: u32) -> Vec<i64> {
    let newest = revisions.last().map(|revision| revision.number);
    let rolled_out = revisions.iter().rev().filter(|it| it.rolled_out.is_some());
    let kept: Vec<i64> = rolled_out
        .take(1 + history as usize)
        .map(|it| it.number)
        .collect();
    let numbers = revisions.iter().map(|revision| revision.number);
    numbers
        .filter(|n| Some(*n) != newest && !kept.contains(n) && !needed.contains(n))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::secret::revision_of_test;

    #[test]
    fn a_revision_with_other_content_is_unknown_under_its_number() {
        let spec = json!({"secretRef": {"name": "shared"}});
        let fleet = FleetPullSecret::new("shared", serde_json::from_value(spec).unwrap());
        let data = |text: &str| Arc::new(Data(Some(text.as_bytes().to_vec())));
        let mut revision = FleetRevision::new(revision_of_test(2), data("A"), None);
        let mut secret = revision.encode(&fleet);
        assert_eq!(FleetRevision::decode(&secret).unwrap(), revision);
        let annotations = secret.annotations_mut();
        annotations.insert(CANARY_PASSED_ANNOTATION.to_owned(), "true".to_owned());
        revision.canary_passed = true;
        assert_eq!(FleetRevision::decode(&secret).unwrap(), revision, "a mark");
        let other = FleetRevision::new(revision_of_test(2), data("B"), None).encode(&fleet);
        let (key, content) = (DATA_KEY, other.data.unwrap().remove(DATA_KEY).unwrap());
        let mut changed = secret.clone();
        changed
            .data
            .get_or_insert_default()
            .insert(key.to_owned(), content);
        let mut renamed = secret;
        let id = (REVISION_ID_ANNOTATION.to_owned(), "x".to_owned());
        renamed.annotations_mut().extend([id]);
        for (case, secret) in [("other content", changed), ("another id", renamed)] {
            let found = FleetRevision::decode(&secret).unwrap();
            let unknown = Revision::new(2, RevisionId::UNKNOWN);
            assert_eq!(
                found,
                FleetRevision::new(unknown, Arc::new(Data(None)), None),
                "{case}"
            );
        }
    }
}
