//! Objects by name, as a watch maintains them, and the relevant fields of a Node. Pure.

use std::collections::BTreeMap;

use globalps_core::virtual_nodes::VirtualMark;
use jiff::Timestamp;

use crate::error::{Result, allowed};

/// Objects by name.
#[derive(Clone, Debug)]
pub(crate) struct Store<V> {
    current: BTreeMap<String, V>,
    /// `resourceVersion` of the list, from which a watch continues; empty if unknown.
    pub(super) version: String,
}

impl<V> Default for Store<V> {
    fn default() -> Self {
        Self {
            current: BTreeMap::new(),
            version: String::new(),
        }
    }
}

impl<V> Store<V> {
    pub(crate) fn insert(&mut self, name: impl Into<String>, value: V) {
        self.current.insert(name.into(), value);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.current.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        self.current.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.current.len()
    }

    /// Adds the objects that could be decoded.
    pub(super) fn extend(&mut self, objects: Vec<(String, Option<V>)>) {
        let readable = objects.into_iter();
        let readable = readable.filter_map(|(name, value)| Some((name, value?)));
        self.current.extend(readable);
    }

    /// `None`: the object was deleted.
    pub(super) fn set(&mut self, name: String, value: Option<V>) {
        match value {
            Some(value) => drop(self.current.insert(name, value)),
            None => drop(self.current.remove(&name)),
        }
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (String, V)> {
        self.current.into_iter()
    }

    pub(super) fn map<W>(self, change: impl Fn(&str, V) -> W) -> Store<W> {
        let change = |(name, value): (String, V)| {
            let value = change(&name, value);
            (name, value)
        };
        Store {
            current: self.current.into_iter().map(change).collect(),
            version: self.version,
        }
    }

    /// The `resourceVersion` from which a watch continues; `None`: the watch begins with a list.
    pub(super) fn version(&self) -> Option<String> {
        Some(self.version.clone()).filter(|version| !version.is_empty())
    }
}

/// An object that this user may not read, or that may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight<T> {
    Hidden,
    Absent,
    Here(T),
}

impl<T> Sight<T> {
    /// Converts the API server's answer: 403 becomes `Hidden`.
    pub(crate) fn of(answer: Result<Option<T>>) -> Result<Self> {
        Ok(match allowed(answer)? {
            Some(Some(found)) => Self::Here(found),
            Some(None) => Self::Absent,
            None => Self::Hidden,
        })
    }

    pub(crate) fn map<U>(self, with: impl FnOnce(T) -> U) -> Sight<U> {
        match self {
            Self::Here(found) => Sight::Here(with(found)),
            Self::Absent => Sight::Absent,
            Self::Hidden => Sight::Hidden,
        }
    }

    /// Combines both; `Absent` if one of them is.
    pub(crate) fn and<U>(self, other: Sight<U>) -> Sight<(T, U)> {
        match (self, other) {
            (Self::Here(one), Sight::Here(other)) => Sight::Here((one, other)),
            (Self::Absent, _) | (_, Sight::Absent) => Sight::Absent,
            _ => Sight::Hidden,
        }
    }
}

/// The relevant fields of a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub excluded: bool,
    /// The mark of a virtual node, found in its labels or, if the whole Node was read, in its taints.
    pub virtual_by: Option<VirtualMark>,
    /// When the node became not ready, and whether the control plane lost contact with it.
    pub not_ready: Option<(Timestamp, Lost)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The kubelet reports that it is not ready.
    No,
    /// The kubelet is unresponsive.
    Yes,
}

impl NodeFacts {
    /// `ready`: status of the condition, and its last transition.
    pub(super) fn new(
        (excluded, virtual_by): (bool, Option<VirtualMark>),
        ready: Option<(&str, Option<Timestamp>)>,
    ) -> Self {
        let not_ready = ready
            .filter(|(status, _)| *status != "True")
            .map(|(status, since)| {
                let lost = if status == "False" {
                    Lost::No
                } else {
                    Lost::Yes
                };
                (since.unwrap_or(Timestamp::UNIX_EPOCH), lost)
            });
        Self {
            excluded,
            virtual_by,
            not_ready,
        }
    }
}
