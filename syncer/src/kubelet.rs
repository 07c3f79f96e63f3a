//! The kubelet as a change needs it: which unit it is, restarted no more often than it can bear, and asked whether it
//! took a change up.

use std::time::Duration;

use globalps_core::names::KUBELET_UNIT_AUTO;
use tokio::time::Instant;

use crate::systemd::{RestartError, Since, Systemd, UnitFacts};

/// Units that run a kubelet and little else. The first that is active is it.
const AGENTS: [&str; 4] = [
    "kubelet.service",
    "k3s-agent.service",
    "rke2-agent.service",
    "snap.microk8s.daemon-kubelite.service",
];
/// Units that are the control plane too, so that a restart takes more along than the kubelet.
const SERVERS: [&str; 2] = ["k3s.service", "rke2-server.service"];

/// Between two restarts that are asked for one after the other. systemd gives a unit up that is started 5 times in 10 s.
const REST: Duration = Duration::from_secs(10);

/// Why a change is not known to be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// systemd can't be asked, so nothing is known of the kubelet.
    #[error("{0}")]
    Bus(String),
    /// It did not come up.
    #[error("{0}")]
    Kubelet(String),
}

impl From<RestartError> for Trouble {
    fn from(error: RestartError) -> Self {
        if error.is_of_the_bus() {
            Self::Bus(error.to_string())
        } else {
            Self::Kubelet(error.to_string())
        }
    }
}

pub(crate) trait Kubelet {
    /// The start that it runs by: another text after each start.
    async fn invocation(&mut self) -> Result<String, Trouble>;
    /// How long it is still to be left alone after its last restart.
    fn rests(&self) -> Duration;
    /// Restarts it, `anew` after a failure; returns when it serves.
    async fn restart(&mut self, anew: bool) -> Result<(), Trouble>;
    /// Whether it serves and was started since then.
    async fn serves_since(&mut self, since: &Since) -> Result<bool, Trouble>;
}

/// What may be restarted on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Restartable {
    Yes,
    /// Why not, as a sentence.
    No(String),
}

/// The real kubelet, behind systemd.
pub(crate) struct Unit {
    pub(crate) systemd: Systemd,
    /// The unit as it was when it was seen to serve last.
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

    /// Whether there is a unit to restart, found once where it is to be found.
    pub(crate) async fn restartable(&mut self) -> Result<Restartable, Trouble> {
        if let Some(known) = &self.restartable {
            return Ok(known.clone());
        }
        let path = self.systemd.bus.display();
        if !self.systemd.bus.exists() {
            // Not remembered: it may be on its way.
            let why = format!("the node has no system bus at `{path}`");
            return Ok(Restartable::No(why));
        }
        let found = if self.systemd.unit == KUBELET_UNIT_AUTO {
            match self.find().await {
                Ok(Some(found)) => found,
                // Not remembered either: a kubelet that is down comes back as one of them.
                Ok(None) => {
                    let why = format!("none of the units {} is active", AGENTS.join(", "));
                    return Ok(Restartable::No(why));
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

impl Kubelet for Unit {
    async fn invocation(&mut self) -> Result<String, Trouble> {
        Ok(self.systemd.facts().await?.invocation())
    }

    fn rests(&self) -> Duration {
        self.restarted
            .map_or(Duration::ZERO, |then| REST.saturating_sub(then.elapsed()))
    }

    async fn restart(&mut self, anew: bool) -> Result<(), Trouble> {
        let begun = Instant::now();
        self.restarted = Some(begun);
        let facts = self.systemd.restart(anew).await?;
        tracing::info!(
            unit = self.systemd.unit(),
            "restarted, and it serves after {} ms",
            begun.elapsed().as_millis()
        );
        self.served = Some(facts);
        self.restarted = Some(Instant::now());
        Ok(())
    }

    async fn serves_since(&mut self, since: &Since) -> Result<bool, Trouble> {
        let facts = self.systemd.serves_since(since).await?;
        let serves = facts.is_some();
        self.served = facts.or(self.served.take());
        Ok(serves)
    }
}
