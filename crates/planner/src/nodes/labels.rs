//! Labels of a Node or a namespace in compact form: thousands of nodes have a dozen each. What every plan needs of a Node's
//! labels is read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use globalps_core::names::{LINUX_LABEL, NODE_POOL_LABEL, is_node_excluded};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
const CONTROL_PLANE_LABELS: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

/// Keys, and their values in the same order, each terminated by a character that no label contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Those of a pool of nodes have the same ones.
    keys: Arc<str>,
    values: Box<str>,
}

const END: char = '\0';

impl Labels {
    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let values = self.values.split_terminator(END);
        self.keys.split_terminator(END).zip(values)
    }

    /// The label's value.
    pub fn get(&self, label: &str) -> Option<&str> {
        let mut labels = self.iter();
        labels.find_map(|(key, value)| (key == label).then_some(value))
    }

    /// A copy.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        self.iter().map(owned).collect()
    }

    /// Keeps the keys once for both if they are equal.
    pub fn share_keys(&mut self, other: &Self) {
        if self.keys == other.keys {
            self.keys = Arc::clone(&other.keys);
        }
    }
}

impl From<&BTreeMap<String, String>> for Labels {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        let mut keys = String::new();
        let mut values = String::new();
        for (key, value) in labels {
            for (packed, part) in [(&mut keys, key), (&mut values, value)] {
                packed.push_str(part);
                packed.push(END);
            }
        }
        Self {
            keys: keys.into(),
            values: values.into_boxed_str(),
        }
    }
}

/// Labels of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct NodeLabels {
    all: Labels,
    /// Of `kubernetes.io/os`.
    pub is_linux: bool,
    /// It has a label that excludes it.
    pub is_excluded: bool,
    /// It has a label of control planes.
    pub is_control_plane: bool,
    /// It belongs to a `NodePool` of `HyperShift`.
    pub is_of_pool: bool,
    /// Empty: it has none.
    pub zone: Box<str>,
}

impl NodeLabels {
    /// The label's value.
    pub fn get(&self, label: &str) -> Option<&str> {
        self.all.get(label)
    }

    /// Saves memory if both have the same keys: nodes mostly do.
    pub fn share_keys(&mut self, other: &Self) {
        self.all.share_keys(&other.all);
    }
}

impl From<&BTreeMap<String, String>> for NodeLabels {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        let get = |label: &str| labels.get(label).map(String::as_str);
        Self {
            all: labels.into(),
            is_linux: get(LINUX_LABEL.0) == Some(LINUX_LABEL.1),
            is_excluded: is_node_excluded(get),
            is_control_plane: CONTROL_PLANE_LABELS.iter().any(|it| get(it).is_some()),
            is_of_pool: get(NODE_POOL_LABEL).is_some(),
            zone: get(ZONE_LABEL).unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_by_its_key_and_never_by_a_value() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            Labels::from(&pairs.collect::<BTreeMap<_, _>>())
        };
        let labels = of(&[("a", "b"), ("b", ""), ("c", "a"), ("d", "")]);
        for (key, value) in [
            ("a", Some("b")),
            ("b", Some("")),
            ("c", Some("a")),
            ("d", Some("")),
            ("", None),
            ("e", None),
        ] {
            assert_eq!(labels.get(key), value, "{key}");
        }
        assert_eq!(of(&[]).get(""), None);
        let mut again = Labels::from(&labels.to_map());
        assert_eq!((labels.to_map().len(), &again), (4, &labels));
        let same = of(&[("a", "x"), ("b", "y"), ("c", "z"), ("d", "")]);
        for (other, shares) in [(of(&[("a", "b")]), false), (same, true)] {
            again.share_keys(&other);
            assert_eq!(again, labels, "values are its own");
            assert_eq!(Arc::ptr_eq(&again.keys, &other.keys), shares);
        }
    }
}
