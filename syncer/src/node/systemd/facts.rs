//! Properties of the kubelet's unit at one point in time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::timeout;
use zbus::Connection;
use zbus::proxy::CacheProperties;

use super::bus::{ManagerProxy, ServiceProxy, UnitProxy};
use super::{CALL_TIMEOUT, RestartError, Systemd};
use crate::node::units::SETTLED;

/// Properties of a unit at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitFacts {
    pub(super) active_state: String,
    /// Differs for each start; empty: never started.
    pub(super) invocation: Vec<u8>,
    /// When it became active.
    pub(super) active_since: SystemTime,
    /// Like `active_since`, by the node's monotonic clock, which is never set.
    pub(super) active_from: Duration,
    /// How often systemd restarted it automatically.
    pub(super) restarts: u32,
    /// Whether the unit is being started or stopped.
    pub(super) has_job: bool,
}

impl UnitFacts {
    /// Whether the kubelet died since `before`. A deliberate restart or stop does not count.
    pub(crate) fn has_died_since(&self, before: &Self) -> bool {
        self.restarts > before.restarts || self.active_state == "failed"
    }

    /// The `InvocationID` in hexadecimal.
    pub(crate) fn invocation(&self) -> String {
        use std::fmt::Write as _;
        self.invocation
            .iter()
            .fold(String::new(), |mut text, byte| {
                // Writing to a string does not fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
    }

    pub(crate) fn active_state(&self) -> &str {
        &self.active_state
    }

    pub(crate) fn is_down(&self) -> bool {
        matches!(self.active_state.as_str(), "failed" | "inactive")
    }

    /// Whether the unit isn't in a restart loop.
    pub(crate) fn runs_steadily(&self) -> bool {
        matches!(self.active_state.as_str(), "active" | "reloading")
            && (self.restarts == 0 || self.active_for() >= SETTLED)
    }

    pub(super) fn active_for(&self) -> Duration {
        uptime().saturating_sub(self.active_from)
    }
}

/// The clock of systemd's monotonic timestamps. Containers have the node's.
pub(super) fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Systemd {
    pub(crate) async fn facts(&self) -> Result<UnitFacts, RestartError> {
        self.facts_over(&self.connect().await?).await
    }

    pub(super) async fn facts_over(
        &self,
        connection: &Connection,
    ) -> Result<UnitFacts, RestartError> {
        let ask = async {
            let path = ManagerProxy::new(connection)
                .await?
                .load_unit(&self.unit)
                .await?;
            let unit = UnitProxy::builder(connection)
                .path(&path)
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            let service = ServiceProxy::builder(connection)
                .path(&path)
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            // All at once, and the answers come together: a node asks this several times for each restart.
            let (load_state, active_state, invocation, since, from, restarts, job) = tokio::try_join!(
                unit.load_state(),
                unit.active_state(),
                unit.invocation_id(),
                unit.active_enter_timestamp(),
                unit.active_enter_timestamp_monotonic(),
                service.n_restarts(),
                unit.job(),
            )?;
            let facts = UnitFacts {
                active_state,
                invocation,
                active_since: UNIX_EPOCH + Duration::from_micros(since),
                active_from: Duration::from_micros(from),
                restarts,
                has_job: job.0 != 0,
            };
            zbus::Result::Ok((load_state, facts))
        };
        match timeout(CALL_TIMEOUT, ask).await {
            Ok(Ok((state, facts))) if state == "loaded" => Ok(facts),
            Ok(Ok((state, _))) => Err(RestartError::NoUnit {
                unit: self.unit.clone(),
                state,
            }),
            Ok(Err(source)) => Err(self.error(source)),
            Err(_) => Err(RestartError::Unresponsive),
        }
    }
}
