//! Which slot of the history an additional Secret goes to, and which holds the newest. Pure.

use globalps_core::names::REVISION_ANNOTATION;
use kube::ResourceExt;

/// The slot for this revision, given those in the slots: the one that has it, else an empty one, else the oldest.
pub(crate) fn slot_for(revision: i64, slots: &[Option<i64>]) -> u32 {
    let has_it = slots.iter().position(|held| *held == Some(revision));
    let slot = has_it.or_else(|| {
        let numbered = slots.iter().enumerate();
        let oldest = numbered.min_by_key(|(_, held)| **held);
        oldest.map(|(slot, _)| slot)
    });
    number(slot.unwrap_or_default())
}

/// The slot of the newest one; `None`: all of them are empty.
pub(crate) fn newest(slots: &[Option<i64>]) -> Option<u32> {
    let held = slots.iter().enumerate();
    let (slot, _) = held
        .filter(|(_, held)| held.is_some())
        .max_by_key(|(_, held)| **held)?;
    Some(number(slot))
}

fn number(slot: usize) -> u32 {
    u32::try_from(slot).unwrap_or_default()
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
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_the_same_revision_is_never_kept_twice() {
        for (slots, revision, expected) in [
            (&[None, None][..], 1, 0),
            (&[Some(1), None], 2, 1),
            (&[Some(1), Some(2)], 3, 0),
            (&[Some(3), Some(2)], 4, 1),
            (&[Some(3), Some(2)], 3, 0),
        ] {
            assert_eq!(slot_for(revision, slots), expected, "{revision} {slots:?}");
        }
    }

    #[test]
    fn the_newest_is_the_one_of_the_highest_revision() {
        assert_eq!(newest(&[None, None]), None);
        assert_eq!(newest(&[Some(3), Some(2), None]), Some(0));
    }
}
