//! What is wrong with a credentials file, for people.

use globalps_dockerconfig::Finding;

/// One finding after the other, each with its way out.
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
