//! Which slot of the history an additional Secret goes to, and which holds the newest. Pure.

use globalps_core::names::REVISION_ANNOTATION;
use kube::ResourceExt;

use crate::content::resolve::Data;
use crate::nodes::plan::HistoryWrite;

/// An additional Secret that every node had.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The last revision that it was part of.
    pub(crate) revision: i64,
    pub(crate) additional: Data,
}

/// The slot for it, given what is in the slots: the one that holds the same already, else an empty one, else the oldest.
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

/// `None`: all slots are empty.
pub(crate) fn newest(slots: Vec<Option<Kept>>) -> Option<Data> {
    let newest = slots.into_iter().flatten().max_by_key(|kept| kept.revision);
    newest.map(|kept| kept.additional)
}

/// Of a Secret of ours; 0: it tells none.
pub(crate) fn revision(secret: &impl ResourceExt) -> i64 {
    let annotation = secret.annotations().get(REVISION_ANNOTATION);
    annotation
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

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
    fn the_oldest_makes_room_and_nothing_is_kept_twice() {
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
    fn the_newest_is_the_one_of_the_highest_revision() {
        assert_eq!(newest(slots("- -")), None);
        assert_eq!(newest(slots("3c 2b -")), Some(Data(Some(b"c".to_vec()))));
    }
}
