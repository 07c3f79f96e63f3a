//! What the metadata of the Secrets in namespaces says of their content.

use std::collections::BTreeMap;

use globalps_core::names;
use globalps_core::namespaces::{applied, parts_of_annotation};
use globalps_core::rollout::{Revision, RevisionId};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;

use super::is_ours;

/// What the metadata of a namespace's Secret says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecretSeen {
    pub is_ours: bool,
    /// Annotation `globalps.io/content`.
    pub content: String,
    /// When the controller wrote it.
    pub written: Option<Timestamp>,
}

impl SecretSeen {
    pub(crate) fn of(secret: &PartialObjectMeta<Secret>) -> Self {
        let content = secret.annotations().get(names::CONTENT_ANNOTATION);
        Self {
            is_ours: is_ours(secret),
            content: content.cloned().unwrap_or_default(),
            written: applied(secret)
                .and_then(|own| own.time.as_ref())
                .map(|time| time.0),
        }
    }
}

/// Since which revision each part of the content is as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartsInForce {
    since: BTreeMap<String, Revision>,
    revision: Revision,
}

impl PartsInForce {
    /// Of the annotations of `global-pull-secret`.
    pub(crate) fn of(global: &impl ResourceExt) -> Self {
        let annotation = |name: &str| global.annotations().get(name);
        let since = annotation(names::CONTENT_SINCE_ANNOTATION);
        let number = annotation(names::REVISION_ANNOTATION);
        let id = annotation(names::REVISION_ID_ANNOTATION);
        Self {
            since: since
                .and_then(|since| serde_json::from_str(since).ok())
                .unwrap_or_default(),
            revision: Revision::new(
                number
                    .and_then(|number| number.parse().ok())
                    .unwrap_or_default(),
                id.map_or(RevisionId::UNKNOWN, |id| id.as_str().into()),
            ),
        }
    }

    /// The revision that introduced the content of a source; of the empty name, the part for every pod.
    pub(crate) fn of_source(&self, source: &str) -> Revision {
        self.since.get(source).copied().unwrap_or(self.revision)
    }

    /// Whether each part that the Secret has is the present one.
    pub(crate) fn is_in(&self, content: &str) -> bool {
        !content.is_empty() && parts_of_annotation(content).all(|part| self.is_present(part))
    }

    /// Whether the Secret has the present part of this source.
    pub(crate) fn has_source(&self, content: &str, source: &str) -> bool {
        let mut parts = parts_of_annotation(content);
        parts.any(|(name, since)| name == source && self.is_present((name, since)))
    }

    fn is_present(&self, (source, since): (&str, Revision)) -> bool {
        since.is_identified() && since == self.of_source(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: i64) -> Revision {
        Revision::new(number, RevisionId::from_random(0xab))
    }

    fn in_force() -> PartsInForce {
        let since = [
            (String::new(), revision(3)),
            ("team".to_owned(), revision(4)),
        ];
        PartsInForce {
            since: since.into(),
            revision: revision(5),
        }
    }

    #[test]
    fn content_is_present_part_by_part() {
        for (content, expected) in [
            ("3#", true),
            ("3#,team@4#", true),
            ("3#,new@5#", true),
            ("2#", false),
            ("3#,team@3#", false),
            ("3", false),
            ("3-0000000000000001", false),
            ("3#,team@4", false),
            ("", false),
            ("x", false),
        ] {
            let content = content.replace('#', "-00000000000000ab");
            assert_eq!(in_force().is_in(&content), expected, "{content}");
        }
    }
}
