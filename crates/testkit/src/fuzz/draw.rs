//! A random generator that records the kinds it chose.

use std::collections::BTreeSet;

use super::kind::Kind;

pub(super) struct Draw {
    random: fastrand::Rng,
    pub(super) kinds: BTreeSet<Kind>,
}

/// A possible change of a text, with its kind.
pub(super) type Change = (Kind, fn(&mut Draw, &mut String));

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            kinds: BTreeSet::new(),
        }
    }

    pub(super) fn note(&mut self, kind: Kind) {
        self.kinds.insert(kind);
    }

    /// A number below the limit.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random.usize(..limit)
    }

    pub(super) fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.random.u8(..)
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// One of these words.
    pub(super) fn word(&mut self, words: &'static str) -> &'static str {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.pick(&words)
    }

    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        self.random.shuffle(list);
    }

    /// Applies one of the changes.
    pub(super) fn change(&mut self, changes: &[Change], text: &mut String) {
        let (kind, change) = self.pick(changes);
        self.note(kind);
        change(self, text);
    }

    /// One of the values; records its kind.
    pub(super) fn kind<T: Copy>(&mut self, from: &[(Kind, T)]) -> T {
        let (kind, value) = self.pick(from);
        self.note(kind);
        value
    }

    /// An index between two characters, or at an end.
    pub(super) fn place(&mut self, text: &str) -> usize {
        let mut at = self.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    pub(super) fn insert(&mut self, text: &mut String, piece: &str) {
        let at = self.place(text);
        text.insert_str(at, piece);
    }
}
