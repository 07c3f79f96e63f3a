//! The history of additional Secrets: slots, and the Secret of each slot. Pure.

use globalps_core::names::{
    DATA_KEY, REVISION_ANNOTATION, ROLLED_OUT_ANNOTATION, SECRET_TYPE, history_secret,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::secret::number;
use super::source::Data;

/// An additional Secret that was rolled out to every node.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The last revision with it.
    pub(crate) revision: i64,
    pub(crate) additional: Data,
}

/// An additional Secret to keep for a rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistoryWrite {
    /// The last revision with it.
    pub(crate) revision: i64,
    pub(crate) rolled_out: Timestamp,
    pub(crate) additional: Data,
}

/// The slot to write: the one with the same content or revision, otherwise an empty one, otherwise the oldest.
pub(crate) fn slot_for(write: &HistoryWrite, slots: &[Option<Kept>]) -> u32 {
    let is_same =
        |kept: &Kept| kept.revision == write.revision || kept.additional == write.additional;
    let holds_it = slots
        .iter()
        .position(|kept| kept.as_ref().is_some_and(is_same));
    let slot = holds_it.or_else(|| {
        let revisions = slots
            .iter()
            .map(|kept| kept.as_ref().map(|kept| kept.revision));
        let oldest = revisions.enumerate().min_by_key(|(_, revision)| *revision);
        oldest.map(|(slot, _)| slot)
    });
    slot.and_then(|slot| u32::try_from(slot).ok())
        .unwrap_or_default()
}

/// The Secret of this slot.
pub(crate) fn encode(slot: u32, write: &HistoryWrite) -> Secret {
    let bytes = write.additional.0.clone().unwrap_or_default();
    let annotations = [
        (REVISION_ANNOTATION, write.revision.to_string()),
        (ROLLED_OUT_ANNOTATION, write.rolled_out.to_string()),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(history_secret(slot)),
            annotations: Some(
                annotations
                    .map(|(key, value)| (key.to_owned(), value))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some([(DATA_KEY.to_owned(), ByteString(bytes))].into()),
        ..Secret::default()
    }
}

pub(crate) fn decode(secret: &Secret) -> Kept {
    Kept {
        revision: number(secret),
        additional: Data::of(secret, DATA_KEY),
    }
}

/// What a rollback goes to: what the fleet had last. `passed`: the last revision before the newest one that passed its canary.
/// `None`: nothing is kept, or some nodes have had a later one than that, and what it replaced may be revoked.
pub(crate) fn last(slots: Vec<Option<Kept>>, passed: Option<i64>) -> Option<Data> {
    let newest = slots.into_iter().flatten().max_by_key(|kept| kept.revision);
    let last = newest.filter(|kept| passed.is_none_or(|passed| kept.revision >= passed));
    last.map(|kept| kept.additional)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1a 2b -`: revision and content, `-`: empty.
    fn slots(text: &str) -> Vec<Option<Kept>> {
        text.split(' ').map(kept).collect()
    }

    fn kept(word: &str) -> Option<Kept> {
        let (revision, content) = word.split_at(1);
        Some(Kept {
            revision: revision.parse().ok()?,
            additional: Data(Some(content.as_bytes().to_vec())),
        })
    }

    #[test]
    fn the_oldest_slot_is_replaced_without_duplicates() {
        for (held, new, expected) in [
            ("- -", "1a", 0),
            ("1a -", "2b", 1),
            ("1a 2b", "3c", 0),
            ("3c 2b", "4d", 1),
            ("1a 2b", "2b", 1),
            ("1a 2b", "3a", 0),
            ("1a 2b", "4b", 1),
        ] {
            let new = kept(new).expect("one");
            let write = HistoryWrite {
                revision: new.revision,
                rolled_out: Timestamp::UNIX_EPOCH,
                additional: new.additional,
            };
            assert_eq!(slot_for(&write, &slots(held)), expected, "{held}");
        }
    }

    #[test]
    fn a_slot_decodes_to_what_was_encoded() {
        let Kept {
            revision,
            additional,
        } = kept("7x").expect("one");
        let write = HistoryWrite {
            revision,
            rolled_out: Timestamp::UNIX_EPOCH,
            additional: additional.clone(),
        };
        let secret = encode(3, &write);
        let name = secret.metadata.name.as_deref();
        assert_eq!(name, Some(&*history_secret(3)));
        assert_eq!(secret.type_.as_deref(), Some(SECRET_TYPE));
        let decoded = decode(&secret);
        assert_eq!((decoded.revision, decoded.additional), (7, additional));
    }

    #[test]
    fn a_rollback_goes_to_what_the_fleet_had_last_or_nowhere() {
        for (case, held, passed, expected) in [
            ("nothing is kept", "- -", None, None),
            ("the highest revision", "3c 2b -", Some(3), Some("c")),
            (
                "it is newer than what passed",
                "3c 2b -",
                Some(2),
                Some("c"),
            ),
            ("nothing else has passed", "3c 2b -", None, Some("c")),
            ("some nodes have had a later one", "3c 2b -", Some(4), None),
        ] {
            let expected = expected.map(|text| Data(Some(text.as_bytes().to_vec())));
            assert_eq!(last(slots(held), passed), expected, "{case}");
        }
    }
}
