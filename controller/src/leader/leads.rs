//! Whether a controller leads, for `helm test`.

use std::time::Duration;

use anyhow::ensure;
use kube::Client;
use tokio::time::{Instant, sleep};

use super::lease::LeaseApi;

/// Several times the time between two renewals.
const DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_secs(1);

/// Waits until a controller renews this Lease, and returns the holder's identity. Times of other machines' clocks say nothing.
pub(crate) async fn leads(client: Client, lease: &str) -> anyhow::Result<String> {
    let leases = LeaseApi::new(client, lease, None, "").leases;
    let (started, mut first) = (Instant::now(), None);
    loop {
        let found = leases.get_opt(lease).await?;
        let found = found.and_then(|found| found.into_result().ok());
        if let Some(found) = found {
            let holder = found.spec.holder_identity.filter(|name| !name.is_empty());
            let version = found.metadata.resource_version;
            if first.get_or_insert_with(|| version.clone()) != &version
                && let Some(holder) = holder
            {
                return Ok(holder);
            }
        }
        ensure!(
            started.elapsed() < DEADLINE,
            "no controller has renewed the Lease `{lease}` for {} seconds",
            DEADLINE.as_secs()
        );
        sleep(POLL).await;
    }
}
