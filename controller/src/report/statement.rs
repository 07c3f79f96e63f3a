//! What all conditions are made of.

use globalps_core::dockerconfig::Finding;

pub(super) const WAITS_FOR_PODS: &str = "nodes get the credential provider once each syncer's pod was replaced by one with the \
    directories that `spec.kubelet.credentialProvider` names";

pub(super) const MAY_NOT_READ: &str = "the controller may not read it";

/// A condition without its transition time.
pub(super) struct Statement {
    pub(super) type_: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

pub(super) fn statement(
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
) -> Statement {
    Statement {
        type_,
        status,
        reason,
        message,
    }
}

/// At most 20 findings in one line, each with its registry.
pub(super) fn sentences(findings: &[Finding]) -> String {
    const MOST: usize = 20;
    let mut sentences: Vec<String> = findings
        .iter()
        .take(MOST)
        .map(ToString::to_string)
        .collect();
    if findings.len() > MOST {
        sentences.push(format!("and {} more", findings.len() - MOST));
    }
    sentences.join("; ")
}
