//! Formats the findings of a credentials file for users.

use globalps_dockerconfig::Finding;

/// The findings, each with its hint.
pub(crate) fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let severity = if finding.is_error() {
            "error"
        } else {
            "warning"
        };
        [
            format!("{severity}: {finding}\n"),
            format!("  hint: {}\n", finding.hint),
        ]
    };
    findings.iter().flat_map(line).collect()
}
