//! Labels of a Node or a namespace in compact form: thousands of nodes have a dozen each.

use std::collections::BTreeMap;

/// Alternating keys and values, each terminated by a character that no label contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labels(Box<str>);

const END: char = '\0';

impl Labels {
    pub(crate) fn get(&self, label: &str) -> Option<&str> {
        let mut parts = self.0.split_terminator(END);
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            if key == label {
                return Some(value);
            }
        }
        None
    }
}

impl Labels {
    pub(crate) fn to_map(&self) -> BTreeMap<String, String> {
        let mut parts = self.0.split_terminator(END).map(str::to_owned);
        let mut map = BTreeMap::new();
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            map.insert(key, value);
        }
        map
    }
}

impl From<&BTreeMap<String, String>> for Labels {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        let mut packed = String::new();
        for part in labels.iter().flat_map(|(key, value)| [key, value]) {
            packed.push_str(part);
            packed.push(END);
        }
        Self(packed.into_boxed_str())
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
        let again = Labels::from(&labels.to_map());
        assert_eq!((labels.to_map().len(), again), (4, labels));
    }
}
