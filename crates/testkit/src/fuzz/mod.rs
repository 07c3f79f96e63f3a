//! Generates realistic credentials files and image names, including ones with mistakes: structured, never only random bytes.
//!
//! [`case`] always generates the same case for the same number, so the number is enough to reproduce a case. Most files are valid
//! except for one or two oddities, because a file that no reader accepts says little about matching.

mod auth;
mod document;
mod draw;
mod entry;
mod images;
mod json;
mod key_changes;
mod keys;
mod kind;
mod places;
mod provider;

use std::collections::{BTreeMap, BTreeSet};

pub use kind::Kind;
pub use provider::{PullCase, pull_case};

use crate::oracle;
use draw::Draw;

/// A file, images to match against it, and their oddities.
#[derive(Clone)]
pub struct Case {
    pub asked: oracle::Case,
    pub kinds: BTreeSet<Kind>,
}

/// Number of cases of each kind, including kinds without cases.
pub struct Histogram(pub BTreeMap<Kind, u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Kind::ALL.iter().map(|kind| (*kind, 0)).collect())
    }
}

impl Histogram {
    pub fn add(&mut self, case: &Case) {
        for kind in &case.kinds {
            *self.0.entry(*kind).or_default() += 1;
        }
    }

    /// The kinds without cases.
    pub fn missing(&self) -> Vec<Kind> {
        let never = self.0.iter().filter(|(_, number)| **number == 0);
        never.map(|(kind, _)| *kind).collect()
    }
}

impl std::fmt::Display for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (kind, number) in &self.0 {
            writeln!(f, "{number:>10}  {kind}")?;
        }
        Ok(())
    }
}

/// The case with this number.
pub fn case(number: u64) -> Case {
    let mut draw = Draw::new(number);
    let places = places::Places::draw(&mut draw);
    let keys = keys::keys(&mut draw, &places);
    let config = document::document(&mut draw, &keys, &places);
    let images = (0..1 + draw.below(4))
        .map(|_| images::image(&mut draw, &keys, &places))
        .collect();
    Case {
        asked: oracle::Case { config, images },
        kinds: draw.kinds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_always_makes_the_same_case() {
        for number in [0, 1, 4_242, u64::MAX] {
            let (one, other) = (case(number), case(number));
            assert_eq!(one.asked.config, other.asked.config);
            assert_eq!(one.asked.images, other.asked.images);
            assert_eq!(one.kinds, other.kinds);
        }
        assert_ne!(case(1).asked.config, case(2).asked.config);
    }

    #[test]
    fn ten_thousand_cases_have_every_kind() {
        let mut histogram = Histogram::default();
        (0..10_000).for_each(|number| histogram.add(&case(number)));
        assert_eq!(histogram.missing(), [], "\n{histogram}");
    }
}
