//! Which of the waiting members go first: disruption is spread over zones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use jiff::SignedDuration;

use super::Member;

/// Members per zone: how many there are, and how many are unavailable.
pub(super) struct Spread<'a> {
    zones: BTreeMap<&'a str, Zone>,
}

#[derive(Clone, Copy, Default)]
struct Zone {
    members: usize,
    unavailable: usize,
}

impl<'a> Spread<'a> {
    pub(super) fn of(members: &'a [Member]) -> Self {
        let mut zones: BTreeMap<&str, Zone> = BTreeMap::new();
        for member in members {
            zones.entry(&member.zone).or_default().members += 1;
        }
        Self { zones }
    }

    /// Counts this member as unavailable.
    pub(super) fn takes(&mut self, member: &Member) {
        if let Some(zone) = self.zones.get_mut(member.zone.as_str()) {
            zone.unavailable += 1;
        }
    }

    /// At most `room` of the waiting members: first from zones with the smallest share of unavailable members, then those that
    /// held a slot in vain longest ago, then by name.
    pub(super) fn choose<'m>(
        &mut self,
        mut waiting: Vec<&'m Member>,
        room: usize,
    ) -> Vec<&'m Member> {
        waiting.sort_unstable_by_key(|member| (Reverse(held_ago(member)), &member.name));
        let mut by_zone: BTreeMap<&str, VecDeque<&Member>> = BTreeMap::new();
        for member in waiting {
            by_zone.entry(&member.zone).or_default().push_back(member);
        }
        let mut chosen = Vec::new();
        while chosen.len() < room {
            let share = |zone: &str| {
                let zone = self.zones.get(zone).copied().unwrap_or_default();
                (zone.unavailable + 1, zone.members.max(1))
            };
            // Compares a/b < c/d without rounding.
            let smallest = by_zone
                .iter()
                .filter(|(_, queue)| !queue.is_empty())
                .map(|(zone, _)| *zone)
                .min_by(|a, b| {
                    let ((a, all_a), (b, all_b)) = (share(a), share(b));
                    (a * all_b).cmp(&(b * all_a))
                });
            let Some(member) = smallest
                .and_then(|zone| by_zone.get_mut(zone))
                .and_then(VecDeque::pop_front)
            else {
                break;
            };
            self.takes(member);
            chosen.push(member);
        }
        chosen
    }
}

/// Zero if it never held a slot in vain.
pub(super) fn held_ago(member: &Member) -> SignedDuration {
    if member.goes_later() {
        member.assigned_for
    } else {
        SignedDuration::ZERO
    }
}
