//! The kubelet: which unit runs it, its restarts at a bounded rate, and whether it serves since a change.

use std::time::{Duration, UNIX_EPOCH};

use globalps_core::names::KUBELET_UNIT_AUTO;
use tokio::time::Instant;

use crate::node::systemd::{RestartError, Since, Systemd, UnitFacts};

/// Units that run a kubelet and little else. The first active one is used.
const AGENTS: [&str; 4] = [
    "kubelet.service",
    "k3s-agent.service",
    "rke2-agent.service",
    "snap.microk8s.daemon-kubelite.service",
];
/// Units that run the control plane too: a restart would interrupt more than the kubelet.
const SERVERS: [&str; 2] = ["k3s.service", "rke2-server.service"];

/// Least time between two restarts. systemd's default start limit is 5 starts in 10 s.
const COOLDOWN: Duration = Duration::from_secs(10);

/// Why the kubelet is not known to serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubeletError {
    /// systemd can't be asked, so nothing is known of the kubelet.
    #[error("{0}")]
    Bus(String),
    /// It did not start.
    #[error("{0}")]
    Kubelet(String),
}

impl From<RestartError> for KubeletError {
    fn from(error: RestartError) -> Self {
        if error.is_of_the_bus() {
            Self::Bus(error.to_string())
        } else {
            Self::Kubelet(error.to_string())
        }
    }
}

pub(crate) trait Kubelet {
    /// Its `InvocationID`: different after each start.
    async fn invocation(&mut self) -> Result<String, KubeletError>;
    /// Time until the next restart may be requested.
    fn cooldown(&self) -> Duration;
    /// Restarts it, and returns once it serves. `reset_failed` clears its start limit first.
    async fn restart(&mut self, reset_failed: bool) -> Result<(), KubeletError>;
    /// Whether it serves and was started since.
    async fn serves_since(&mut self, since: &Since) -> Result<bool, KubeletError>;
}

/// What may be restarted on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Restartable {
    Yes,
    /// Why not, as a clause.
    No(String),
}

/// The real kubelet, behind systemd.
pub(crate) struct Unit {
    pub(crate) systemd: Systemd,
    /// The unit when it was last seen to serve.
    pub(crate) served: Option<UnitFacts>,
    restarted: Option<Instant>,
    restartable: Option<Restartable>,
}

impl Unit {
    pub(crate) fn new(systemd: Systemd) -> Self {
        Self {
            systemd,
            served: None,
            restarted: None,
            restartable: None,
        }
    }

    /// Whether there is a unit to restart. With `Auto` it is found once.
    pub(crate) async fn restartable(&mut self) -> Result<Restartable, KubeletError> {
        if let Some(known) = &self.restartable {
            return Ok(known.clone());
        }
        let path = self.systemd.bus.display();
        if !self.systemd.bus.exists() {
            // Not remembered: it may appear later.
            let reason = format!("the node has no system bus at `{path}`");
            return Ok(Restartable::No(reason));
        }
        let found = if self.systemd.unit == KUBELET_UNIT_AUTO {
            match self.find().await {
                Ok(Some(found)) => found,
                // Not remembered either: a kubelet that is down may come back as one of them.
                Ok(None) => {
                    let reason = format!("none of the units {} is active", AGENTS.join(", "));
                    return Ok(Restartable::No(reason));
                }
                Err(error @ RestartError::NoSystemd { .. }) => {
                    return Ok(Restartable::No(error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
        } else {
            Restartable::Yes
        };
        self.restartable = Some(found.clone());
        Ok(found)
    }

    async fn find(&mut self) -> Result<Option<Restartable>, RestartError> {
        if let Some(name) = self.systemd.active_among(&AGENTS).await? {
            tracing::info!(unit = name, "this unit runs the kubelet");
            name.clone_into(&mut self.systemd.unit);
            return Ok(Some(Restartable::Yes));
        }
        let server = self.systemd.active_among(&SERVERS).await?;
        Ok(server.map(|name| Restartable::No(format!("`{name}` is the control plane too"))))
    }
}

impl Unit {
    /// Whether it serves now.
    pub(crate) async fn serves(&mut self) -> Result<bool, KubeletError> {
        self.serves_since(&Since::Time(UNIX_EPOCH)).await
    }
}

impl Kubelet for Unit {
    async fn invocation(&mut self) -> Result<String, KubeletError> {
        Ok(self.systemd.facts().await?.invocation())
    }

    fn cooldown(&self) -> Duration {
        self.restarted.map_or(Duration::ZERO, |then| {
            COOLDOWN.saturating_sub(then.elapsed())
        })
    }

    async fn restart(&mut self, reset_failed: bool) -> Result<(), KubeletError> {
        let begun = Instant::now();
        self.restarted = Some(begun);
        let facts = self.systemd.restart(reset_failed).await?;
        tracing::info!(
            unit = self.systemd.unit(),
            "restarted, and it serves after {} ms",
            begun.elapsed().as_millis()
        );
        self.served = Some(facts);
        self.restarted = Some(Instant::now());
        Ok(())
    }

    async fn serves_since(&mut self, since: &Since) -> Result<bool, KubeletError> {
        let facts = self.systemd.serves_since(since).await?;
        let serves = facts.is_some();
        self.served = facts.or(self.served.take());
        Ok(serves)
    }
}
