//! Nodes with errors, and other programs that manage their files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use globalps_core::api::NodePullSecret;
use globalps_core::reasons::{self, Finding, NODE_UNREACHABLE};

use super::{Check, found, well};
use crate::terminal::{few, nodes};

const NODES: &str = "nodes";
/// Maximum number of names in a message.
const MOST: usize = 3;

/// Other programs that manage the nodes' credentials, detected on the Nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    pub hypershift: u32,
    /// Nodes of these that a Machine Config Daemon updates in place.
    pub in_place: u32,
    pub machine_config: u32,
    /// globalps writes into what the Machine Config Operator brings to these nodes.
    pub is_into_openshift: bool,
}

pub(crate) fn of_nodes<'a>(
    objects: impl Iterator<Item = (&'a String, &'a NodePullSecret)>,
    (unreachable, unsupported): (&[&str], &[&str]),
    owners: Owners,
) -> Vec<Check> {
    let mut checks = Vec::new();
    if owners.machine_config > 0 {
        let whose = nodes(owners.machine_config);
        let message = format!("the Machine Config Operator manages the file of {whose}");
        let check = well(NODES, "machine-config-operator", message);
        checks.push(if owners.is_into_openshift {
            check
        } else {
            check.warn("`kubectl globalps install --delivery OpenShift` reaches them through `openshift-config/pull-secret`, once nothing else is in force: `kubectl globalps remove --all --wait`")
        });
    }
    if owners.hypershift > 0 {
        let mut message = format!("{} of HyperShift", nodes(owners.hypershift));
        if owners.in_place > 0 {
            let _ = write!(
                message,
                "; a Machine Config Daemon updates {} in place, and globalps leaves its file alone meanwhile",
                nodes(owners.in_place)
            );
        }
        checks.push(well(NODES, "hypershift", message));
    }
    if !unsupported.is_empty() {
        let message = format!(
            "{}: no syncer can run there, or none ever has; nobody waits for these nodes, and `kubectl globalps status -o wide` shows why",
            few(unsupported, MOST)
        );
        checks.push(well(NODES, "nodes-unsupported", message));
    }
    // Grouped by error; an error with many causes is also grouped by the node's message.
    let mut errors: BTreeMap<(&str, &str), (Finding, Vec<&str>)> = BTreeMap::new();
    let mut total = 0_u32;
    for (name, object) in objects {
        total += 1;
        let Some(status) = &object.status else {
            continue;
        };
        if let Some(finding) = reasons::of_node(&status.phase, &status.reason) {
            let message = match finding.section {
                "node-provider" | "node-provider-config" | "node-unreadable" => &status.message,
                _ => "",
            };
            let key = (finding.section, message);
            let (_, affected) = errors.entry(key).or_insert((finding, Vec::new()));
            affected.push(name);
        }
    }
    if !unreachable.is_empty() {
        let finding = NODE_UNREACHABLE;
        errors.insert((finding.section, ""), (finding, unreachable.to_vec()));
    }
    for ((_, message), (finding, affected)) in &errors {
        let who = format!("{}: {}", few(affected, MOST), finding.message(message));
        checks.push(found(NODES, finding, who));
    }
    if total > 0 && errors.is_empty() {
        checks.push(well(
            NODES,
            "nodes",
            format!("{}, none with an error", nodes(total)),
        ));
    }
    checks
}
