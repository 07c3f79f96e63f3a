//! The Secret `global-pull-secret`, which has the content and the state of the rollout: encoding and decoding.

use std::collections::BTreeMap;

use globalps_core::api::MAX_REVISION;
use globalps_core::checksum::{add_checksum, has_checksum};
use globalps_core::names::{
    ADDITIONAL_ROLLED_OUT_ANNOTATION, CANARY_PASSED_ANNOTATION, CONFIG_FILE_ANNOTATION,
    CONTENT_SINCE_ANNOTATION, DATA_KEY, DELIVERY_ANNOTATION, GLOBAL_SECRET, LAST_ADDITIONAL_KEY,
    LAST_ORIGINAL_KEY, LAST_SCOPES_KEY, LAST_SOURCE_KEY_PREFIX, PROVIDER_SINCE_ANNOTATION,
    REJECTED_ANNOTATION, REJECTED_KEY, RESTORING_ANNOTATION, REVISION_ANNOTATION,
    REVISION_ID_ANNOTATION, ROLLED_OUT_ANNOTATION, ROLLED_OUT_REVISION_ANNOTATION,
    ROLLED_OUT_SECRET, SCOPED_KEY, SECRET_TYPE,
};
use globalps_core::rollout::{Revision, RevisionId};
use globalps_provider::{Content, Delivery, Scope};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use super::source::Data;

/// The revision that introduced each part of the content, by the name of the scoped source; the empty name stands for the part
/// for every pod.
pub type Since = BTreeMap<String, Revision>;

/// The state in `global-pull-secret`.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// The newest one.
    pub revision: Revision,
    /// Content of that revision; `None` if it can't be decoded.
    pub content: Option<Content>,
    /// The last valid one, of which the content consists.
    pub last_additional: Option<Data>,
    /// The last valid content of the original.
    pub last_original: Option<Data>,
    /// By source name.
    pub last_sources: BTreeMap<String, Data>,
    /// By source name; sources without a scope are for every pod.
    pub last_scopes: BTreeMap<String, Scope>,
    /// First revision with the current configuration of the provider; 0: the content is not delivered by it.
    pub provider_since: i64,
    /// Enough canaries have had the revision.
    pub canary_passed: bool,
    /// When every reachable node had the revision; `None`: not yet.
    pub rolled_out: Option<Timestamp>,
    /// The revision is not rolled out, but its additional Secret was, with another original or other sources.
    pub additional_was_rolled_out: bool,
    /// The additional Secret that was rolled back, and the reason.
    pub rejected: Option<Data>,
    /// A clause for people.
    pub rejected_reason: Option<String>,
    /// Every node restores; only valid content ends this.
    pub restoring: bool,
    /// Path of the nodes' credentials file; `None`: no node has content of globalps.
    pub config_file: Option<String>,
    /// The revision that introduced each part of the content.
    pub content_since: Since,
}

impl Global {
    /// The part that stays valid if another client may have changed the Secret: the sources' content, but no decisions.
    #[must_use]
    pub fn unconfirmed(self) -> Self {
        Self {
            revision: Revision::NONE,
            content: None,
            provider_since: 0,
            canary_passed: false,
            rolled_out: None,
            additional_was_rolled_out: false,
            rejected: None,
            rejected_reason: None,
            restoring: false,
            content_since: Since::default(),
            ..self
        }
    }

    /// Whether nodes get the same with this content.
    pub fn has(&self, content: &Content) -> bool {
        let own = self.content.as_ref();
        own.is_some_and(|own| own.means_the_same(content))
    }

    /// Whether all content came from sources of the configuration; false if there was none.
    pub fn is_of_sources(&self) -> bool {
        self.last_additional.is_none() && !self.last_sources.is_empty()
    }

    /// Whether everything except the content is equal.
    pub fn has_same_state(&self, other: &Self) -> bool {
        let Self {
            revision,
            content: _,
            last_additional,
            last_original,
            last_sources,
            last_scopes,
            provider_since,
            canary_passed,
            rolled_out,
            additional_was_rolled_out,
            rejected,
            rejected_reason,
            restoring,
            config_file,
            content_since,
        } = self;
        *revision == other.revision
            && *last_additional == other.last_additional
            && *last_original == other.last_original
            && *last_sources == other.last_sources
            && *last_scopes == other.last_scopes
            && *provider_since == other.provider_since
            && *canary_passed == other.canary_passed
            && *rolled_out == other.rolled_out
            && *additional_was_rolled_out == other.additional_was_rolled_out
            && *rejected == other.rejected
            && *rejected_reason == other.rejected_reason
            && *restoring == other.restoring
            && *config_file == other.config_file
            && *content_since == other.content_since
    }
}

/// New content of `global-pull-secret`.
#[derive(Clone, Debug)]
pub struct GlobalWrite {
    /// The content that is in force from now on.
    pub content: Content,
    /// Everything else; its own `content` is not written.
    pub global: Global,
}

/// The Secret for server-side apply, with the checksum of all its values.
pub fn encode(write: &GlobalWrite) -> Secret {
    let Global {
        revision,
        // The observed content; the new one is separate.
        content: _,
        last_additional,
        last_original,
        last_sources,
        last_scopes,
        provider_since,
        canary_passed,
        rolled_out,
        additional_was_rolled_out,
        rejected,
        rejected_reason,
        restoring,
        config_file,
        content_since,
    } = &write.global;
    let kept = [
        (LAST_ADDITIONAL_KEY, last_additional),
        (LAST_ORIGINAL_KEY, last_original),
        (REJECTED_KEY, rejected),
    ];
    let annotations = [
        (REVISION_ANNOTATION, Some(revision.number.to_string())),
        (
            REVISION_ID_ANNOTATION,
            (revision.id != RevisionId::UNKNOWN).then(|| revision.id.to_string()),
        ),
        (
            CANARY_PASSED_ANNOTATION,
            canary_passed.then(|| revision.number.to_string()),
        ),
        (
            ROLLED_OUT_ANNOTATION,
            rolled_out.map(|time| time.to_string()),
        ),
        (
            ROLLED_OUT_REVISION_ANNOTATION,
            rolled_out.map(|_| revision.number.to_string()),
        ),
        (
            ADDITIONAL_ROLLED_OUT_ANNOTATION,
            additional_was_rolled_out.then(|| revision.number.to_string()),
        ),
        (REJECTED_ANNOTATION, rejected_reason.clone()),
        (
            RESTORING_ANNOTATION,
            restoring.then(|| revision.number.to_string()),
        ),
        (CONFIG_FILE_ANNOTATION, config_file.clone()),
        (DELIVERY_ANNOTATION, delivery(&write.content)),
        (
            CONTENT_SINCE_ANNOTATION,
            serde_json::to_string(content_since)
                .ok()
                .filter(|_| !content_since.is_empty()),
        ),
        (
            PROVIDER_SINCE_ANNOTATION,
            (*provider_since > 0).then(|| provider_since.to_string()),
        ),
    ];
    let annotations = annotations
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let mut data = content_data(&write.content);
    data.extend(kept.into_iter().filter_map(|(key, source)| {
        let bytes = source.as_ref()?.0.clone()?;
        Some((key.to_owned(), ByteString(bytes)))
    }));
    data.extend(last_sources.iter().filter_map(|(name, source)| {
        let key = format!("{LAST_SOURCE_KEY_PREFIX}{name}");
        Some((key, ByteString(source.0.clone()?)))
    }));
    data.extend(scopes_value(last_scopes).map(|scopes| (LAST_SCOPES_KEY.to_owned(), scopes)));
    secret(GLOBAL_SECRET, annotations.collect(), data)
}

/// The value with the scopes; `None`: no source has one.
pub(super) fn scopes_value(scopes: &BTreeMap<String, Scope>) -> Option<ByteString> {
    (!scopes.is_empty()).then(|| ByteString(serde_json::to_vec(scopes).unwrap_or_default()))
}

/// The part that a node reads: values, and an annotation that only the provider needs.
pub(super) fn content_data(content: &Content) -> Vec<(String, ByteString)> {
    let mut data = vec![(DATA_KEY.to_owned(), ByteString(content.config.render()))];
    if !content.scoped.is_empty() {
        let scoped = ByteString(globalps_provider::render_scoped(&content.scoped));
        data.push((SCOPED_KEY.to_owned(), scoped));
    }
    data
}

fn delivery(content: &Content) -> Option<String> {
    match &content.delivery {
        Delivery::ConfigFile => None,
        provider @ Delivery::CredentialProvider(_) => serde_json::to_string(provider).ok(),
    }
}

/// `None`: a part is missing or can't be parsed.
fn decode_content(secret: &Secret) -> Option<Content> {
    let config = Data::of(secret, DATA_KEY).0?;
    let scoped = Data::of(secret, SCOPED_KEY).0;
    let delivery = secret.annotations().get(DELIVERY_ANNOTATION);
    Some(Content {
        config: globalps_dockerconfig::parse(&config).ok()?,
        scoped: match scoped {
            Some(scoped) => globalps_provider::parse_scoped(&scoped).ok()?,
            None => Vec::new(),
        },
        delivery: match delivery {
            Some(delivery) => serde_json::from_str(delivery).ok()?,
            None => Delivery::ConfigFile,
        },
    })
}

/// The last revision before the newest one that passed its canary.
#[derive(Clone, Debug)]
pub struct RolledOutWrite {
    /// The revision's number and id at that time.
    pub revision: Revision,
    /// The revision's merged content.
    pub content: Content,
}

/// The Secret `global-pull-secret-rolled-out`. It has no owner: it stays while `global-pull-secret` is recreated.
pub fn encode_rolled_out(write: &RolledOutWrite) -> Secret {
    let mut annotations = BTreeMap::from([
        (
            REVISION_ANNOTATION.to_owned(),
            write.revision.number.to_string(),
        ),
        (
            REVISION_ID_ANNOTATION.to_owned(),
            write.revision.id.to_string(),
        ),
    ]);
    annotations.extend(delivery(&write.content).map(|text| (DELIVERY_ANNOTATION.to_owned(), text)));
    let data = content_data(&write.content);
    secret(ROLLED_OUT_SECRET, annotations, data)
}

fn secret(
    name: &str,
    annotations: BTreeMap<String, String>,
    data: Vec<(String, ByteString)>,
) -> Secret {
    let mut secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(data.into_iter().collect()),
        ..Secret::default()
    };
    add_checksum(&mut secret, &[]);
    secret
}

/// `None`: it has no revision or no content, or another client changed it.
pub fn decode_rolled_out(secret: &Secret) -> Option<RolledOutWrite> {
    let revision = revision(secret);
    let content = decode_content(secret)?;
    revision
        .is_identified()
        .then_some(RolledOutWrite { revision, content })
}

/// Missing or unparsable parts count as absent. Which revision a Secret has that another client changed, how far that got, and whether
/// it was rejected or is being removed is unknown: only the sources themselves can say so.
pub fn decode(secret: &Secret) -> Global {
    if has_checksum(secret, &[]) {
        return decode_all(secret, named_revision(secret));
    }
    decode_all(secret, Revision::NONE).unconfirmed()
}

fn decode_all(secret: &Secret, revision: Revision) -> Global {
    let kept = |key: &str| Some(Data::of(secret, key)).filter(|data| data.0.is_some());
    let annotation = |key: &str| secret.annotations().get(key);
    // Values that another client leaves here must not count for a later revision.
    let is_of_revision = |key: &str| {
        annotation(key).is_some_and(|text| annotation(REVISION_ANNOTATION) == Some(text))
    };
    Global {
        revision,
        content: decode_content(secret),
        last_additional: kept(LAST_ADDITIONAL_KEY),
        last_original: kept(LAST_ORIGINAL_KEY),
        last_sources: secret
            .data
            .iter()
            .flatten()
            .filter_map(|(key, bytes)| {
                let name = key.strip_prefix(LAST_SOURCE_KEY_PREFIX)?;
                Some((name.to_owned(), Data(Some(bytes.0.clone()))))
            })
            .collect(),
        last_scopes: Data::of(secret, LAST_SCOPES_KEY)
            .0
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default(),
        provider_since: annotation(PROVIDER_SINCE_ANNOTATION)
            .and_then(|text| text.parse().ok())
            .filter(|since| (1..=revision.number).contains(since))
            .unwrap_or_default(),
        canary_passed: is_of_revision(CANARY_PASSED_ANNOTATION),
        rolled_out: annotation(ROLLED_OUT_ANNOTATION)
            .filter(|_| is_of_revision(ROLLED_OUT_REVISION_ANNOTATION))
            .and_then(|text| text.parse().ok()),
        additional_was_rolled_out: is_of_revision(ADDITIONAL_ROLLED_OUT_ANNOTATION),
        rejected: kept(REJECTED_KEY),
        rejected_reason: annotation(REJECTED_ANNOTATION).cloned(),
        restoring: is_of_revision(RESTORING_ANNOTATION),
        config_file: annotation(CONFIG_FILE_ANNOTATION).cloned(),
        content_since: annotation(CONTENT_SINCE_ANNOTATION)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default(),
    }
}

/// Revision of a Secret that the controller wrote. Number 0: none, not a valid one, or another client changed the Secret.
pub fn revision(secret: &Secret) -> Revision {
    if has_checksum(secret, &[]) {
        named_revision(secret)
    } else {
        Revision::NONE
    }
}

fn named_revision(secret: &Secret) -> Revision {
    let id = secret.annotations().get(REVISION_ID_ANNOTATION);
    Revision::new(
        number(secret),
        id.map_or(RevisionId::UNKNOWN, |id| id.as_str().into()),
    )
}

/// Number of the revision that the Secret names; 0: none, or not a valid one.
pub(super) fn number(secret: &Secret) -> i64 {
    let text = secret.annotations().get(REVISION_ANNOTATION);
    text.and_then(|text| text.parse().ok())
        .filter(|number| (1..=MAX_REVISION).contains(number))
        .unwrap_or_default()
}

/// A fixed id for each number; 0: none.
#[cfg(any(test, feature = "testing"))]
pub fn revision_of_test(number: i64) -> Revision {
    Revision::new(number, RevisionId::from_random(u64::from(number > 0)))
}

#[cfg(test)]
mod tests;
