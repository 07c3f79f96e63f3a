//! Nodes without a machine: a program simulates their kubelet, and no syncer can run there. Pure.
//!
//! The list is short on purpose: each mark is set by the named project itself on every such node, and on no other.

use std::fmt;

/// Labels, each with the values that mark a virtual node: AWS Fargate; Virtual Kubelet, by default, and KWOK, as in its
/// documentation; Liqo.
pub const VIRTUAL_NODE_LABELS: [(&str, &[&str]); 3] = [
    ("eks.amazonaws.com/compute-type", &["fargate"]),
    ("type", &["virtual-kubelet", "kwok"]),
    ("liqo.io/type", &["virtual-node"]),
];

/// Keys of taints, each with its value, or `None` for any: Virtual Kubelet names the provider in the value, AWS its kind of nodes.
const VIRTUAL_NODE_TAINTS: [(&str, Option<&str>); 3] = [
    ("virtual-kubelet.io/provider", None),
    ("eks.amazonaws.com/compute-type", Some("fargate")),
    ("kwok.x-k8s.io/node", None),
];

/// The mark of a virtual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualMark {
    /// Key and value.
    Label(&'static str, &'static str),
    /// Key.
    Taint(&'static str),
}

/// A clause: `it is virtual, by its label …`.
impl fmt::Display for VirtualMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key, value) => write!(f, "it is virtual, by its label `{key}={value}`"),
            Self::Taint(key) => write!(f, "it is virtual, by its taint `{key}`"),
        }
    }
}

/// The mark of a virtual node among these labels and taints (key and value); `None` if there is none.
pub fn virtual_mark<'a, 'b>(
    label: impl Fn(&str) -> Option<&'a str>,
    taints: impl IntoIterator<Item = (&'b str, &'b str)>,
) -> Option<VirtualMark> {
    let of_label = |(key, values): (&'static str, &'static [&'static str])| {
        let found = label(key)?;
        let value = values.iter().find(|value| **value == found)?;
        Some(VirtualMark::Label(key, value))
    };
    let of_taint = |(key, value): (&str, &str)| {
        let mut known = VIRTUAL_NODE_TAINTS.into_iter();
        let is = |of: &(&str, Option<&str>)| of.0 == key && of.1.is_none_or(|it| it == value);
        Some(VirtualMark::Taint(known.find(is)?.0))
    };
    let by_label = VIRTUAL_NODE_LABELS.into_iter().find_map(of_label);
    by_label.or_else(|| taints.into_iter().find_map(of_taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_nodes_are_recognized_by_labels_and_taints() {
        type Pairs = &'static [(&'static str, &'static str)];
        #[rustfmt::skip]
        let cases: [(&str, Pairs, Pairs, Option<&str>); 14] = [
            ("an ordinary node", &[("kubernetes.io/os", "linux")], &[], None),
            (
                "Fargate",
                &[("eks.amazonaws.com/compute-type", "fargate")],
                &[],
                Some("it is virtual, by its label `eks.amazonaws.com/compute-type=fargate`"),
            ),
            (
                "a hybrid node has a machine",
                &[("eks.amazonaws.com/compute-type", "hybrid")],
                &[("eks.amazonaws.com/compute-type", "hybrid")],
                None,
            ),
            (
                "Virtual Kubelet",
                &[("type", "virtual-kubelet")],
                &[],
                Some("it is virtual, by its label `type=virtual-kubelet`"),
            ),
            ("KWOK", &[("type", "kwok")], &[], Some("it is virtual, by its label `type=kwok`")),
            ("another type", &[("type", "worker")], &[], None),
            ("no type", &[("type", "")], &[], None),
            (
                "Liqo",
                &[("liqo.io/type", "virtual-node")],
                &[],
                Some("it is virtual, by its label `liqo.io/type=virtual-node`"),
            ),
            (
                "a taint with any value",
                &[],
                &[("virtual-kubelet.io/provider", "azure")],
                Some("it is virtual, by its taint `virtual-kubelet.io/provider`"),
            ),
            (
                "a taint without a value",
                &[],
                &[("other", ""), ("virtual-kubelet.io/provider", "")],
                Some("it is virtual, by its taint `virtual-kubelet.io/provider`"),
            ),
            (
                "a taint of KWOK",
                &[],
                &[("kwok.x-k8s.io/node", "fake")],
                Some("it is virtual, by its taint `kwok.x-k8s.io/node`"),
            ),
            (
                "a taint of Fargate",
                &[],
                &[("eks.amazonaws.com/compute-type", "fargate")],
                Some("it is virtual, by its taint `eks.amazonaws.com/compute-type`"),
            ),
            ("another taint", &[], &[("dedicated", "virtual-kubelet")], None),
            (
                "the label comes first",
                &[("type", "kwok")],
                &[("kwok.x-k8s.io/node", "fake")],
                Some("it is virtual, by its label `type=kwok`"),
            ),
        ];
        for (case, labels, taints, expected) in cases {
            let label = |key: &str| labels.iter().find(|it| it.0 == key).map(|it| it.1);
            let found = virtual_mark(label, taints.iter().copied());
            let found = found.map(|mark| mark.to_string());
            assert_eq!(found.as_deref(), expected, "{case}");
        }
    }
}
