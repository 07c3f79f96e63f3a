//! Whether a source reaches pods, according to the controller's report; for `add --source --wait`.

use std::time::Duration;

use globalps_core::api::{DeliveryType, GlobalPullSecret};
use tokio::time::{Instant, sleep};

use crate::cluster::client::Cluster;
use crate::error::{Failure, Result};
use crate::target::pull_secret::configuration;

/// Maximum time until the controller reports a change of a source.
const REPORT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// A state that the rollout can still change is not a failure yet.
    BeforeTheRollout,
    AfterTheRollout,
}

/// The controller's report about a source.
#[derive(Debug, PartialEq, Eq)]
enum SourceReport {
    /// No report about this configuration yet.
    Stale,
    Reaches,
    /// The controller may lack the permission to read its Secret yet.
    Invalid(String),
    NotDeliverable(String),
}

/// Fails if no pod can get the credentials of the source. Waits some seconds for the controller's report; a missing
/// report is left to the wait for the rollout.
pub(crate) async fn must_reach_pods(cluster: &Cluster<'_>, source: &str, when: When) -> Result<()> {
    let deadline = Instant::now() + REPORT;
    loop {
        let found = match configuration(cluster).await {
            // The wait for the rollout reports a lasting outage.
            Err(failure) if !failure.may_pass() => return Err(failure),
            found => found.ok().flatten(),
        };
        let report = found
            .as_ref()
            .map_or(SourceReport::Stale, |gps| report(gps, source));
        let is_final = match &report {
            SourceReport::Reaches => return Ok(()),
            SourceReport::NotDeliverable(_) => true,
            SourceReport::Stale | SourceReport::Invalid(_) => Instant::now() >= deadline,
        };
        let can_change =
            found.is_some_and(|gps| gps.spec.kubelet.delivery == DeliveryType::CredentialProvider);
        match report {
            SourceReport::NotDeliverable(_) if can_change && when == When::BeforeTheRollout => {
                return Ok(());
            }
            _ if !is_final => sleep(LOOK_AGAIN).await,
            SourceReport::Stale | SourceReport::Reaches => return Ok(()),
            SourceReport::Invalid(why) => {
                return Err(Failure::no(
                    format!("source `{source}` is not valid: {why}"),
                    "`kubectl globalps check` shows the cause and what to do",
                ));
            }
            SourceReport::NotDeliverable(why) => {
                return Err(Failure::no(
                    format!("source `{source}` reaches no node and no namespace: {why}"),
                    "`kubectl globalps install --delivery CredentialProvider` delivers it to nodes, `--deliver-to-namespaces` into namespaces",
                ));
            }
        }
    }
}

fn report(gps: &GlobalPullSecret, source: &str) -> SourceReport {
    let Some(status) = &gps.status else {
        return SourceReport::Stale;
    };
    let found = status.sources.iter().find(|found| found.name == source);
    let is_fresh = status.observed_generation >= gps.metadata.generation.unwrap_or_default();
    match found.filter(|_| is_fresh) {
        None => SourceReport::Stale,
        Some(found) if !found.valid => SourceReport::Invalid(found.message.clone()),
        Some(found) if found.delivery == "NotDeliverable" => {
            SourceReport::NotDeliverable(found.message.clone())
        }
        Some(_) => SourceReport::Reaches,
    }
}
