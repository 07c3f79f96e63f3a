//! The batches in which kubelets restart. Pure.

use globalps_core::api::{GlobalPullSecret, Rollout};
use globalps_core::rollout::share;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::terminal::layout::number;

/// Maximum number of batches that are listed.
const NAMED: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Nodes of the cluster; 0 if unknown.
    pub nodes: u32,
    /// `spec.rollout.maxUnavailable`.
    most: IntOrString,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(None)
    }
}

impl Pace {
    pub(crate) fn of(gps: Option<&GlobalPullSecret>) -> Self {
        let counts = gps.and_then(|gps| gps.status.as_ref()).map(|s| &s.counts);
        let rollout = gps.map_or_else(Rollout::default, |gps| gps.spec.rollout.clone());
        Self {
            nodes: counts.map_or(0, |counts| counts.total),
            most: rollout.max_unavailable,
        }
    }

    /// `restarts 6 kubelets once, 1 at a time, then 2; pods keep running`
    pub(crate) fn text(&self) -> String {
        let nodes = usize::try_from(self.nodes).unwrap_or(usize::MAX);
        if nodes == 0 {
            return "restarts each kubelet once, 1 first; pods keep running".to_owned();
        }
        let most = share(&self.most, nodes);
        let who = number(self.nodes, "kubelet");
        let how = if nodes == 1 {
            String::new()
        } else {
            format!(", {}", batches(nodes, most))
        };
        format!("restarts {who} once{how}; pods keep running")
    }
}

/// The canary, then batches that double up to `most` until no node is left.
fn batches(nodes: usize, most: usize) -> String {
    let mut sizes = vec![1];
    let mut left = nodes.saturating_sub(1);
    let mut size = 1;
    while size < most && left > 0 {
        size = (size * 2).min(most).min(left);
        left -= size;
        sizes.push(size);
    }
    let last = sizes.iter().copied().max().unwrap_or(1);
    let named: Vec<String> = sizes.iter().take(NAMED).map(ToString::to_string).collect();
    let first = format!("{} at a time", named[0]);
    let then = named[1..].iter().map(|size| format!(", then {size}"));
    let text: String = std::iter::once(first).chain(then).collect();
    if sizes.len() > NAMED {
        format!("{text}, and so on up to {last}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_how_many_restart_at_a_time() {
        #[rustfmt::skip]
        let cases = [
            (0, "10%", "restarts each kubelet once, 1 first; pods keep running"),
            (1, "10%", "restarts 1 kubelet once; pods keep running"),
            (6, "10%", "restarts 6 kubelets once, 1 at a time; pods keep running"),
            (6, "2", "restarts 6 kubelets once, 1 at a time, then 2; pods keep running"),
            (6, "50%", "restarts 6 kubelets once, 1 at a time, then 2, then 3; pods keep running"),
            (
                200,
                "10%",
                "restarts 200 kubelets once, 1 at a time, then 2, then 4, and so on up to 20; pods keep running",
            ),
            (3, "100", "restarts 3 kubelets once, 1 at a time, then 2; pods keep running"),
        ];
        for (nodes, most, expected) in cases {
            let most = match most.parse() {
                Ok(number) => IntOrString::Int(number),
                Err(_) => IntOrString::String(most.to_owned()),
            };
            assert_eq!(Pace { nodes, most }.text(), expected);
        }
    }
}
