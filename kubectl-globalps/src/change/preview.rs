//! A change as it is shown before it is written.

use crate::cli::DryRun;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::secret::additional::WriteOutcome;
use crate::target::pull_secret;
use crate::terminal::printer::Printer;
use globalps_dockerconfig::{DockerConfig, validate};
use k8s_openapi::api::core::v1::Secret;

/// A change as it is shown before it is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Preview {
    /// The changes, with every credential masked.
    pub changes: String,
    pub warnings: Vec<String>,
}

impl Preview {
    pub(crate) fn show(&self, printer: &Printer) {
        printer.note(self.changes.trim_end());
        for warning in &self.warnings {
            printer.warning(warning);
        }
    }

    /// Warnings about the new content that don't apply to the old one.
    pub(crate) fn warnings(before: &DockerConfig, after: &DockerConfig) -> Vec<String> {
        let (known, new) = (validate(before), validate(after));
        let new = new.iter().filter(|finding| !known.contains(finding));
        new.map(ToString::to_string).collect()
    }
}

/// Writes the Secret if it differs.
pub(crate) async fn send(
    cluster: &Cluster<'_>,
    secret: Secret,
    outcome: WriteOutcome,
    dry_run: DryRun,
) -> Result<Secret> {
    if dry_run == DryRun::Client || outcome == WriteOutcome::Unchanged {
        return Ok(secret);
    }
    pull_secret::put(cluster, secret, dry_run).await
}
