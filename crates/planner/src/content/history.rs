//! The history of additional Secrets: slots, and the Secret of each slot. Pure.

use globalps_core::names::{
    DATA_KEY, REVISION_ANNOTATION, ROLLED_OUT_ANNOTATION, SECRET_TYPE, history_secret,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use super::secret::{Global, RolledOutWrite, number};
use super::source::Data;

/// An additional Secret that was rolled out to every node.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The last revision with it.
    pub revision: i64,
    /// When it was rolled out; `None`: not known.
    pub rolled_out: Option<Timestamp>,
    /// The content as the user wrote it.
    pub additional: Data,
}

/// An additional Secret to keep for a rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryWrite {
    /// The last revision with it.
    pub revision: i64,
    /// When every reachable node had it.
    pub rolled_out: Timestamp,
    /// The content as the user wrote it.
    pub additional: Data,
}

/// The slot to write: the one with the same content or revision, otherwise an empty one, otherwise the oldest.
pub fn slot_for(write: &HistoryWrite, slots: &[Option<Kept>]) -> u32 {
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

/// The writes that are needed before the slots from `limit` on are deleted: each of the newest revisions in those slots
/// moves into the slot of an older one. Slots are not in the order of revisions.
pub fn compacted(slots: &[Option<Kept>], limit: u32) -> Vec<(u32, HistoryWrite)> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let revision = |slot: usize| slots[slot].as_ref().map(|kept| kept.revision);
    // A revision in two slots was moved already, before its first slot was deleted.
    let is_first = |slot: usize| (0..slot).all(|other| revision(other) != revision(slot));
    let newer = |slot: usize| {
        let all = 0..slots.len();
        all.filter(move |other| is_first(*other) && revision(*other) > revision(slot))
    };
    let is_kept =
        |slot: &usize| revision(*slot).is_some() && is_first(*slot) && newer(*slot).count() < limit;
    let free = (0..limit).filter(|slot| *slot >= slots.len() || !is_kept(slot));
    let moved = (limit..slots.len()).filter(is_kept);
    let moved = moved.filter_map(|slot| slots[slot].as_ref());
    free.zip(moved)
        .filter_map(|(slot, kept)| {
            let write = HistoryWrite {
                revision: kept.revision,
                rolled_out: kept.rolled_out.unwrap_or_default(),
                additional: kept.additional.clone(),
            };
            Some((u32::try_from(slot).ok()?, write))
        })
        .collect()
}

/// The Secret of this slot.
pub fn encode(slot: u32, write: &HistoryWrite) -> Secret {
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

/// Revision 0 if the annotation is missing or no number.
pub fn decode(secret: &Secret) -> Kept {
    let rolled_out = secret.annotations().get(ROLLED_OUT_ANNOTATION);
    Kept {
        revision: number(secret),
        rolled_out: rolled_out.and_then(|text| text.parse().ok()),
        additional: Data::of(secret, DATA_KEY),
    }
}

/// The target of a rollback: the previous content of the fleet. `passed`: the last revision before the newest one that
/// passed its canary. `None` if the history is empty, or if some nodes have had a later revision than that, whose
/// replaced content may be revoked.
pub fn last(slots: Vec<Option<Kept>>, passed: Option<i64>) -> Option<Data> {
    let newest = slots.into_iter().flatten().max_by_key(|kept| kept.revision);
    let last = newest.filter(|kept| passed.is_none_or(|passed| kept.revision >= passed));
    last.map(|kept| kept.additional)
}

/// The slots with content up to this revision.
pub fn slots_up_to(slots: &[Option<Kept>], up_to: i64) -> impl Iterator<Item = u32> {
    let is_old = move |kept: &Option<Kept>| kept.as_ref().is_some_and(|it| it.revision <= up_to);
    let slots = slots.iter().zip(0_u32..);
    slots
        .filter(move |(kept, _)| is_old(kept))
        .map(|(_, slot)| slot)
}

/// Whether the newest content up to this revision is in force again, with a later one. `rolled_out`: the content for new nodes, if
/// it is of such a revision.
pub fn is_back(
    slots: &[Option<Kept>],
    rolled_out: Option<&RolledOutWrite>,
    global: &Global,
    up_to: i64,
) -> bool {
    let old = slots.iter().flatten().filter(|it| it.revision <= up_to);
    let newest = old.max_by_key(|it| it.revision);
    newest.is_some_and(|it| Some(&it.additional) == global.last_additional.as_ref())
        || rolled_out.is_some_and(|it| global.has(&it.content))
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
            rolled_out: None,
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
            ..
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
        assert_eq!(decoded.rolled_out, Some(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn a_lowered_limit_keeps_the_newest() {
        for (held, limit, expected) in [
            ("1a 2b - -", 1, "0=2"),
            ("3c 2b - -", 1, ""),
            ("6f 2b 3c 4d 5e -", 2, "1=5"),
            ("1a 2b 3c 4d", 2, "0=3 1=4"),
            ("1a - 2b -", 2, "1=2"),
            ("1a 2b - -", 2, ""),
            ("1a 2b - -", 9, ""),
            ("1a 2b - -", 0, ""),
            ("4d 3c 3c 4d", 2, ""),
        ] {
            let writes = compacted(&slots(held), limit).into_iter();
            let writes = writes.map(|(slot, write)| format!("{slot}={}", write.revision));
            assert_eq!(
                writes.collect::<Vec<_>>().join(" "),
                expected,
                "{held} {limit}"
            );
        }
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

    #[test]
    fn what_is_to_be_forgotten_is_found_unless_in_force() {
        use globalps_core::rollout::Revision;
        use globalps_dockerconfig::parse;
        use globalps_provider::Content;
        let content = |text: &str| Content {
            config: parse(text.as_bytes()).expect("valid"),
            ..Content::default()
        };
        let a = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
        let slots = slots("3c 2b - 4d");
        for (up_to, expected) in [(1, &[][..]), (2, &[1]), (3, &[0, 1]), (9, &[0, 1, 3])] {
            assert_eq!(slots_up_to(&slots, up_to).collect::<Vec<_>>(), expected);
        }
        let in_force = |text: &str| Global {
            last_additional: Some(Data(Some(text.as_bytes().to_vec()))),
            content: Some(content(a)),
            ..Global::default()
        };
        for (case, up_to, now, expected) in [
            ("a new password", 4, "e", false),
            ("the last one again", 4, "d", true),
            ("an earlier one, because the last one leaked", 4, "c", false),
            ("the one that leaked", 3, "c", true),
            ("a later one", 3, "d", false),
        ] {
            let found = is_back(&slots, None, &in_force(now), up_to);
            assert_eq!(found, expected, "{case}");
        }
        let of = |text| RolledOutWrite {
            revision: Revision::NONE,
            content: content(text),
        };
        for (case, text, expected) in [("the same", a, true), ("another", r#"{"auths":{}}"#, false)]
        {
            assert_eq!(
                is_back(&[], Some(&of(text)), &in_force("e"), 4),
                expected,
                "{case}"
            );
        }
    }
}
