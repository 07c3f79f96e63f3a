//! Changes that are not synced yet: the running system's view of them, and those that may survive a power cut.

use std::collections::{BTreeMap, BTreeSet};

/// Number of a file or a directory.
pub(super) type Id = usize;

/// The state that is certainly on the disk, and the changes since.
pub(super) enum Body {
    File {
        bytes: Vec<u8>,
        since: Vec<Change>,
    },
    Directory {
        names: BTreeMap<String, Id>,
        since: Vec<Names>,
    },
}

#[derive(Clone)]
pub(super) enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// Names that change together; each then refers to a node or to nothing.
pub(super) type Names = Vec<(String, Option<Id>)>;

impl Body {
    pub(super) fn file(bytes: Vec<u8>) -> Self {
        let since = Vec::new();
        Self::File { bytes, since }
    }

    pub(super) fn directory() -> Self {
        Self::Directory {
            names: BTreeMap::new(),
            since: Vec::new(),
        }
    }

    pub(super) fn sync(&mut self) {
        match self {
            Self::File { bytes, since } => *bytes = changed(bytes, &std::mem::take(since)),
            Self::Directory { names, since } => *names = newest(names, &std::mem::take(since)),
        }
    }
}

pub(super) fn newest(names: &BTreeMap<String, Id>, since: &[Names]) -> BTreeMap<String, Id> {
    let mut names = names.clone();
    for (name, id) in since.iter().flatten() {
        match id {
            Some(id) => names.insert(name.clone(), *id),
            None => names.remove(name),
        };
    }
    names
}

pub(super) fn changed(bytes: &[u8], since: &[Change]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for change in since {
        match change {
            Change::Write(offset, new) => {
                let end = offset + new.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(new);
            }
            Change::Truncate(length) => bytes.resize(*length, 0),
        }
    }
    bytes
}

/// The results of any number of the first changes; the next change may be missing, half done, or leave its length
/// without its bytes.
pub(super) fn possible_bytes(bytes: &[u8], since: &[Change]) -> BTreeSet<Vec<u8>> {
    let mut states = BTreeSet::from([changed(bytes, since)]);
    for (number, next) in since.iter().enumerate() {
        let done = changed(bytes, &since[..number]);
        if let Change::Write(offset, new) = next {
            let half = Change::Write(*offset, new[..new.len() / 2].to_vec());
            states.insert(changed(&done, &[half]));
            let mut longer = done.clone();
            longer.resize(done.len().max(offset + new.len()), 0);
            states.insert(longer);
        }
        states.insert(done);
    }
    states
}

/// The results of any subset of the changes; a change implies the earlier changes of its names.
pub(super) fn possible_names(
    names: &BTreeMap<String, Id>,
    since: &[Names],
) -> BTreeSet<BTreeMap<String, Id>> {
    let share = |one: &Names, other: &Names| {
        one.iter()
            .any(|(name, _)| other.iter().any(|(also, _)| also == name))
    };
    let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
    for (number, change) in since.iter().enumerate() {
        let needed: Vec<usize> = (0..number)
            .filter(|earlier| share(&since[*earlier], change))
            .collect();
        let with: Vec<_> = choices
            .iter()
            .filter(|choice| needed.iter().all(|earlier| choice.contains(earlier)))
            .map(|choice| [choice.as_slice(), &[number]].concat())
            .collect();
        choices.extend(with);
    }
    choices
        .iter()
        .map(|choice| {
            let chosen: Vec<_> = choice.iter().map(|number| since[*number].clone()).collect();
            newest(names, &chosen)
        })
        .collect()
}
