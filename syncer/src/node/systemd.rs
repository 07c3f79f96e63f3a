//! The kubelet's unit, through the node's system bus: restarts it and checks whether it serves afterwards.

mod answers;
mod bus;
mod commands;
mod facts;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use zbus::Connection;

use bus::ManagerProxy;

use super::units::Candidate;
pub(crate) use commands::{ProviderFlag, is_kubelet};
pub(crate) use facts::UnitFacts;

/// Deadline of one restart job: longer than systemd's default timeouts for stop and start, 90 s each.
const JOB_TIMEOUT: Duration = Duration::from_secs(200);
/// Deadline of one call to systemd.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a kubelet to serve after its unit became active.
const SERVE_TIMEOUT: Duration = Duration::from_secs(30);
/// A kubelet whose socket never appears counts as serving once its unit has been active for this long.
const STEADY: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(20);

/// Why a restart is not known to have succeeded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestartError {
    #[error("the node's system bus at `{path}` does not respond: {source}")]
    Bus { path: PathBuf, source: zbus::Error },
    #[error("the node's system bus did not respond within {} s", CALL_TIMEOUT.as_secs())]
    Unresponsive,
    #[error("there is no systemd on the node's system bus at `{path}`")]
    NoSystemd { path: PathBuf },
    #[error("systemd answered with an error about `{unit}`: {source}")]
    Answered { unit: String, source: zbus::Error },
    #[error("systemd has no unit `{unit}` (state: {state})")]
    NoUnit { unit: String, state: String },
    #[error(
        "`{units}`: none of these units is known to run the kubelet; set `spec.kubelet.unit`, or remove the one that is left over"
    )]
    Unclear { units: String },
    #[error("systemd did not restart `{unit}`: {source}")]
    Refused { unit: String, source: zbus::Error },
    #[error("the restart of `{unit}` ended as `{result}`")]
    Job { unit: String, result: String },
    #[error("the restart of `{unit}` did not finish within {} s", JOB_TIMEOUT.as_secs())]
    JobTimeout { unit: String },
    #[error("`{unit}` was started but is {state} again")]
    Died { unit: String, state: String },
    #[error("`{unit}` runs but does not accept connections at `{socket}` after {} s", SERVE_TIMEOUT.as_secs())]
    NotServing { unit: String, socket: PathBuf },
}

impl RestartError {
    /// The unit's state is unknown because systemd does not respond.
    pub(crate) fn is_of_the_bus(&self) -> bool {
        matches!(self, Self::Bus { .. } | Self::Unresponsive)
    }

    /// The unit's state is unknown because systemd answered with an error.
    pub(crate) fn is_of_systemd(&self) -> bool {
        matches!(self, Self::NoSystemd { .. } | Self::Answered { .. })
    }
}

/// The kubelet must have been started after this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Time(SystemTime),
    /// The `InvocationID` that it had, in hexadecimal.
    Start(String),
}

/// The unit, and the paths to reach it.
#[derive(Clone, Debug)]
pub(crate) struct Systemd {
    pub(crate) bus: PathBuf,
    pub(crate) unit: String,
    /// A socket that accepts connections only while the kubelet serves.
    pub(crate) socket: PathBuf,
}

impl Systemd {
    /// The unit's name for messages.
    pub(crate) fn unit(&self) -> &str {
        &self.unit
    }

    /// A new connection for each use: the bus may have been restarted.
    async fn connect(&self) -> Result<Connection, RestartError> {
        let address = format!("unix:path={}", self.bus.display());
        let connect = async {
            zbus::connection::Builder::address(address.as_str())
                .method_timeout(CALL_TIMEOUT)
                .build()
                .await
        };
        match timeout(CALL_TIMEOUT, connect).await {
            Ok(connection) => connection.map_err(|source| RestartError::Bus {
                path: self.bus.clone(),
                source,
            }),
            Err(_) => Err(RestartError::Unresponsive),
        }
    }

    /// Whether this unit has been active for this long.
    pub(crate) async fn is_active_for(
        &self,
        name: &str,
        least: Duration,
    ) -> Result<bool, RestartError> {
        let unit = Self {
            unit: name.to_owned(),
            ..self.clone()
        };
        match unit.facts().await {
            Ok(facts) => Ok(facts.active_state == "active" && facts.active_for() >= least),
            Err(RestartError::NoUnit { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Those of these units that are not inactive, in order, and those that are masked. Failed units count as not
    /// inactive; `owed` is included in any state.
    pub(crate) async fn candidates(
        &self,
        names: impl IntoIterator<Item = &'static str>,
        owed: Option<&str>,
    ) -> Result<(Vec<Candidate>, Vec<&'static str>), RestartError> {
        let connection = self.connect().await?;
        let (mut found, mut masked) = (Vec::new(), Vec::new());
        for name in names {
            let unit = Self {
                unit: name.to_owned(),
                ..self.clone()
            };
            match unit.facts_over(&connection).await {
                Ok(facts) if facts.active_state != "inactive" || owed == Some(name) => {
                    found.push((name, unit, facts));
                }
                Err(RestartError::NoUnit { state, .. }) if state == "masked" => masked.push(name),
                Ok(_) | Err(RestartError::NoUnit { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let is_single = found.len() == 1;
        let mut candidates = Vec::new();
        for (name, unit, facts) in found {
            candidates.push(Candidate {
                name,
                // There is nothing to choose from, so this saves the calls.
                runs_kubelet: is_single && facts.runs_steadily()
                    || unit.commands().await?.run_kubelet(),
                active_for: facts.active_for(),
                restarts: facts.restarts,
                active_state: facts.active_state,
            });
        }
        Ok((candidates, masked))
    }

    /// Restarts the unit, and returns once the new kubelet serves. `reset_failed` clears its start limit first.
    pub(crate) async fn restart(&self, reset_failed: bool) -> Result<UnitFacts, RestartError> {
        let connection = self.connect().await?;
        let before = self.facts_over(&connection).await?;
        let result = timeout(JOB_TIMEOUT, self.run_job(&connection, reset_failed)).await;
        let result = result.map_err(|_| RestartError::JobTimeout {
            unit: self.unit.clone(),
        })??;
        if result != "done" {
            return Err(RestartError::Job {
                unit: self.unit.clone(),
                result,
            });
        }
        self.serves(&connection, Some(&before)).await
    }

    async fn run_job(
        &self,
        connection: &Connection,
        reset_failed: bool,
    ) -> Result<String, RestartError> {
        let failed = |source| self.error(source);
        let manager = ManagerProxy::new(connection).await.map_err(failed)?;
        // Subscribe before the call, so that the end of a quick job is not missed.
        let mut removed = manager.receive_job_removed().await.map_err(failed)?;
        manager.subscribe().await.map_err(failed)?;
        if reset_failed {
            // systemd does not start a unit that hit its start limit before this. If it refuses, the restart may still succeed.
            match manager.reset_failed_unit(&self.unit).await.map_err(failed) {
                Err(RestartError::Answered { source, .. }) => {
                    tracing::warn!(unit = self.unit, %source, "systemd did not reset the unit's start limit");
                }
                reset => reset?,
            }
        }
        let asked = manager.restart_unit(&self.unit, "replace").await;
        let job = asked.map_err(|source| match self.error(source) {
            RestartError::Answered { unit, source } => RestartError::Refused { unit, source },
            unknown => unknown,
        })?;
        while let Some(signal) = removed.next().await {
            let args = signal.args().map_err(failed)?;
            if *args.job() == job {
                return Ok((*args.result()).to_owned());
            }
        }
        Err(RestartError::Unresponsive)
    }

    /// Whether the kubelet has been started since then and serves. Waits for a job in progress, which may be the start.
    pub(crate) async fn serves_since(
        &self,
        since: &Since,
    ) -> Result<Option<UnitFacts>, RestartError> {
        let connection = self.connect().await?;
        let begun = Instant::now();
        let mut facts = self.facts_over(&connection).await?;
        while facts.has_job && begun.elapsed() < JOB_TIMEOUT {
            sleep(POLL).await;
            facts = self.facts_over(&connection).await?;
        }
        let started = match since {
            Since::Time(time) => facts.active_since > *time,
            Since::Start(invocation) => facts.invocation() != *invocation,
        };
        if !started || !matches!(facts.active_state.as_str(), "active" | "activating") {
            return Ok(None);
        }
        match self.serves(&connection, None).await {
            Ok(facts) => Ok(Some(facts)),
            Err(error) if error.is_of_the_bus() || error.is_of_systemd() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Waits until the kubelet serves: the unit is active from another start than `before`, and the kubelet's socket accepts a
    /// connection. Fails if the unit failed, or died and was started again meanwhile.
    async fn serves(
        &self,
        connection: &Connection,
        before: Option<&UnitFacts>,
    ) -> Result<UnitFacts, RestartError> {
        let begun = Instant::now();
        let mut first: Option<UnitFacts> = None;
        loop {
            let facts = self.facts_over(connection).await?;
            let is_new = before.is_none_or(|before| before.invocation != facts.invocation);
            if is_new {
                first.get_or_insert_with(|| facts.clone());
            }
            let since = first.as_ref().unwrap_or(&facts);
            let is_down = is_new && facts.active_state == "inactive";
            if is_down || facts.has_died_since(since) || facts.invocation != since.invocation {
                return Err(RestartError::Died {
                    unit: self.unit.clone(),
                    state: facts.active_state,
                });
            }
            if is_new && facts.active_state == "active" {
                if self.takes_connections().await {
                    return Ok(facts);
                }
                if begun.elapsed() >= STEADY && !self.socket.exists() {
                    return Ok(facts);
                }
            }
            if begun.elapsed() >= SERVE_TIMEOUT {
                return Err(RestartError::NotServing {
                    unit: self.unit.clone(),
                    socket: self.socket.clone(),
                });
            }
            sleep(POLL).await;
        }
    }

    /// Whether a kubelet serves, in whichever unit.
    pub(crate) async fn takes_connections(&self) -> bool {
        let connect = timeout(Duration::from_secs(1), UnixStream::connect(&self.socket));
        matches!(connect.await, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests;
