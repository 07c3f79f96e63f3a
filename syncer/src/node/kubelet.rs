//! The kubelet: which unit runs it, rate-limited restarts, and whether it serves since a change.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use globalps_core::names::KUBELET_UNIT_AUTO;
use globalps_provider::{CONFIG_FLAG, FLAGS_VARIABLE};
use tokio::time::Instant;

use crate::node::state::NodeError;
use crate::node::systemd::{ProviderFlag, RestartError, Since, Systemd, UnitFacts, is_kubelet};
use crate::node::units::{UnitChoice, choose};

/// Units that run a kubelet and little else.
const AGENTS: [&str; 3] = ["kubelet.service", "k3s-agent.service", "rke2-agent.service"];
/// `MicroK8s` runs the kubelet in a unit that is the whole control plane on control-plane nodes.
const MICROK8S: &str = "snap.microk8s.daemon-kubelite.service";
/// Stays active only on `MicroK8s` workers. On other nodes it exits soon after its start.
const MICROK8S_WORKER: &str = "snap.microk8s.daemon-apiserver-proxy.service";
const MICROK8S_SETTLED: Duration = Duration::from_mins(1);
/// Units that also run the control plane: a restart would interrupt more than the kubelet.
const SERVERS: [&str; 3] = ["k3s.service", "rke2-server.service", "microshift.service"];

/// Minimum time between two restarts. systemd's default start limit is 5 starts in 10 s.
const COOLDOWN: Duration = Duration::from_secs(10);

/// Why the kubelet is not known to serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubeletError {
    /// systemd can't be reached, so the kubelet's state is unknown.
    #[error("{0}")]
    Bus(String),
    /// systemd answered with an error, so the kubelet's state is unknown.
    #[error("{0}")]
    Systemd(String),
    /// The kubelet did not start.
    #[error("{0}")]
    Kubelet(String),
}

impl From<RestartError> for KubeletError {
    fn from(error: RestartError) -> Self {
        if error.is_of_the_bus() {
            Self::Bus(error.to_string())
        } else if error.is_of_systemd() {
            Self::Systemd(error.to_string())
        } else {
            Self::Kubelet(error.to_string())
        }
    }
}

/// Before anything is changed.
impl From<KubeletError> for NodeError {
    fn from(error: KubeletError) -> Self {
        match error {
            KubeletError::Bus(error) => Self::Bus(error),
            KubeletError::Systemd(error) => Self::Systemd(error),
            KubeletError::Kubelet(error) => Self::Unit(error),
        }
    }
}

impl KubeletError {
    /// Why the kubelet did not come up. Fails if its state is unknown, which is no reason to roll back.
    pub(crate) fn verdict(self) -> Result<String, NodeError> {
        match self {
            Self::Kubelet(error) => Ok(error),
            unknown => Err(unknown.into()),
        }
    }
}

pub(crate) trait Kubelet {
    /// The kubelet's unit, to find it again while it is down.
    fn unit(&self) -> Option<String>;
    /// The unit's `InvocationID`, which differs for each start.
    async fn invocation(&mut self) -> Result<String, KubeletError>;
    /// Time until the next restart may be requested.
    fn cooldown(&self) -> Duration;
    /// Restarts it, and returns once it serves. `reset_failed` clears its start limit first.
    async fn restart(&mut self, reset_failed: bool) -> Result<(), KubeletError>;
    /// Whether it serves and was started since.
    async fn serves_since(&mut self, since: &Since) -> Result<bool, KubeletError>;
    /// The credential provider configuration in its process's flags. Fails with [`KubeletError::Systemd`] if systemd can't list the
    /// processes.
    async fn provider_flag(&mut self) -> Result<ProviderFlag, KubeletError>;
}

/// What may be restarted on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Restartable {
    Yes,
    /// Nothing can be restarted now, for this reason (a clause).
    No(String),
    /// Nothing can be restarted now, not even for a change that waits for its restart: no unit that globalps may
    /// restart runs the kubelet. The reason is a clause.
    Elsewhere(String),
    /// Nothing can ever be restarted: the kubelet's unit also runs the control plane. The reason is a clause.
    Never(String),
}

/// The real kubelet, behind systemd.
pub(crate) struct KubeletUnit {
    pub(crate) systemd: Systemd,
    /// The unit when it was last seen serving.
    pub(crate) served: Option<UnitFacts>,
    restarted: Option<Instant>,
    /// The agent knows the unit, and whether it may be restarted.
    pub(crate) is_found: bool,
    /// Whether the unit is configured rather than detected.
    is_configured: bool,
    /// Verified to run a kubelet.
    is_checked: bool,
}

impl KubeletUnit {
    pub(crate) fn new(systemd: Systemd) -> Self {
        Self {
            is_configured: systemd.unit != KUBELET_UNIT_AUTO,
            is_checked: false,
            is_found: false,
            systemd,
            served: None,
            restarted: None,
        }
    }

    /// Whether there is a unit to restart. It is detected each time, because the kubelet may move to another one. `restarted`: the
    /// unit that globalps last restarted; `is_owed`: it may be down because of that, so it is restarted again.
    pub(crate) async fn restartable(
        &mut self,
        restarted: Option<&str>,
        is_owed: bool,
    ) -> Result<Restartable, KubeletError> {
        if !self.systemd.bus.exists() {
            let path = self.systemd.bus.display();
            let reason = format!("the node has no system bus at `{path}`");
            return Ok(Restartable::No(reason));
        }
        let owed = restarted.filter(|_| is_owed);
        if self.is_configured {
            return Ok(self.configured(owed).await);
        }
        match self.find(restarted, owed).await {
            Err(error @ RestartError::NoSystemd { .. }) => Ok(Restartable::No(error.to_string())),
            found => Ok(found?),
        }
    }

    /// The unit to restart instead of the known one, if that one no longer seems to run the kubelet. `None` if it does,
    /// or if the obstacle to its restart is an error of the change.
    pub(crate) async fn moved(
        &mut self,
        restarted: Option<&str>,
        is_owed: bool,
    ) -> Result<Option<Restartable>, KubeletError> {
        let is_loaded = match self.systemd.facts().await {
            Ok(facts) if facts.runs_steadily() => return Ok(None),
            Ok(_) => true,
            Err(RestartError::NoUnit { .. }) => false,
            Err(_) => return Ok(None),
        };
        match self.restartable(restarted, is_owed).await {
            Ok(Restartable::No(_)) | Err(KubeletError::Bus(_) | KubeletError::Systemd(_)) => {
                Ok(None)
            }
            Ok(Restartable::Elsewhere(_)) if !is_loaded => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// The unit's programs are checked before its first restart, which also reports systemd's errors.
    async fn configured(&self, owed: Option<&str>) -> Restartable {
        let name = self.systemd.unit();
        match self.systemd.facts().await {
            Ok(facts) if facts.is_down() && owed != Some(name) => {
                let state = facts.active_state();
                let elsewhere = self.elsewhere(&format!("`{name}` is {state}")).await;
                elsewhere.unwrap_or(Restartable::Yes)
            }
            _ => Restartable::Yes,
        }
    }

    /// No unit that may be restarted runs a kubelet. If one serves nevertheless, a restart would start a second one.
    async fn elsewhere(&self, why: &str) -> Option<Restartable> {
        let socket = self.systemd.socket.display();
        let serves = self.systemd.takes_connections().await;
        serves.then(|| Restartable::Elsewhere(format!("a kubelet serves at `{socket}`, but {why}")))
    }

    async fn find(
        &mut self,
        restarted: Option<&str>,
        owed: Option<&str>,
    ) -> Result<Restartable, RestartError> {
        let names = AGENTS.into_iter().chain([MICROK8S]).chain(SERVERS);
        let (candidates, masked) = self.systemd.candidates(names, owed).await?;
        let name = match choose(&candidates, restarted) {
            UnitChoice::Unit(name) => name,
            UnitChoice::None => {
                // The kubelet may run nevertheless.
                if let Some(name) = masked.first() {
                    let reason = format!("`{name}` is masked, so systemd does not restart it");
                    return Ok(Restartable::No(reason));
                }
                let units = AGENTS.join(", ");
                let reason = format!("none of the units {units} and {MICROK8S} is active");
                let elsewhere = self.elsewhere(&reason).await;
                return Ok(elsewhere.unwrap_or(Restartable::No(reason)));
            }
            UnitChoice::Unclear => {
                let names = candidates.iter().map(|it| it.name);
                return Err(RestartError::Unclear {
                    units: names.collect::<Vec<_>>().join("`, `"),
                });
            }
        };
        let chosen = candidates.iter().find(|it| it.name == name);
        if let Some(chosen) = chosen.filter(|it| !it.may_serve() && owed != Some(name))
            && let Some(elsewhere) = self.elsewhere(&chosen.shown()).await
        {
            return Ok(elsewhere);
        }
        if name == MICROK8S {
            return self.find_microk8s().await;
        }
        if SERVERS.contains(&name) {
            let reason = format!("`{name}` also runs the control plane");
            return Ok(Restartable::Never(reason));
        }
        self.is_in(name);
        Ok(Restartable::Yes)
    }

    fn is_in(&mut self, name: &str) {
        if self.systemd.unit != name {
            tracing::info!(unit = name, "found the unit that runs the kubelet");
            name.clone_into(&mut self.systemd.unit);
        }
    }
}

impl KubeletUnit {
    /// On a node that has just booted, the role is known after a minute.
    async fn find_microk8s(&mut self) -> Result<Restartable, RestartError> {
        let worker = self
            .systemd
            .is_active_for(MICROK8S_WORKER, MICROK8S_SETTLED);
        if worker.await? {
            self.is_in(MICROK8S);
            return Ok(Restartable::Yes);
        }
        let reason = format!(
            "`{MICROK8S}` also runs the control plane, unless `{MICROK8S_WORKER}` has been active for a minute"
        );
        Ok(Restartable::No(reason))
    }

    /// Fails unless the configured unit runs a kubelet, judging by its name or its programs. The process behind the kubelet's
    /// socket can't be used: a pod sees no host processes, and the bus offers no such query.
    async fn check_programs(&mut self) -> Result<(), KubeletError> {
        let name = self.systemd.unit.as_str();
        let is_known = AGENTS.contains(&name) || SERVERS.contains(&name) || name == MICROK8S;
        if !self.is_configured || is_known || self.is_checked {
            return Ok(());
        }
        let commands = self.systemd.commands().await?;
        let programs = commands.programs();
        if !programs.iter().any(|program| is_kubelet(program)) {
            if let Some(error) = commands.unlisted {
                return Err(KubeletError::Systemd(error));
            }
            let shown = programs.iter().take(3).map(String::as_str);
            let shown: Vec<_> = shown.collect();
            let shown = shown.join("`, `");
            return Err(KubeletError::Kubelet(format!(
                "`{name}` does not run a kubelet, but `{shown}`"
            )));
        }
        self.is_checked = true;
        Ok(())
    }

    /// Why the kubelet does not take its flags from this kubeadm file, as a clause; `None`: it does. `own`: the provider
    /// configuration that it may have.
    pub(crate) async fn ignores_flags(
        &self,
        file: &Path,
        own: &Path,
    ) -> Result<Option<String>, KubeletError> {
        let unit = self.systemd.unit();
        let commands = self.systemd.commands().await?;
        let variable = format!("${FLAGS_VARIABLE}");
        let arguments = || commands.starts.iter().flat_map(|(_, arguments)| arguments);
        let files = &commands.environment_files;
        Ok(if !files.iter().any(|path| Path::new(path) == file) {
            Some(format!("`{unit}` does not read `{}`", file.display()))
        } else if !arguments().any(|argument| *argument == variable) {
            Some(format!(
                "`{unit}` does not pass `{variable}` to the kubelet"
            ))
        } else if let Some(argument) = commands.own_provider_flag() {
            Some(format!("`{unit}` already has `{argument}`"))
        } else {
            match commands.provider_flag() {
                ProviderFlag::Is(config) if Path::new(&config) != own => Some(format!(
                    "the kubelet already runs with `{CONFIG_FLAG}={config}`"
                )),
                _ => None,
            }
        })
    }

    /// Whether it serves now.
    pub(crate) async fn serves(&mut self) -> Result<bool, KubeletError> {
        self.serves_since(&Since::Time(UNIX_EPOCH)).await
    }
}

impl Kubelet for KubeletUnit {
    fn unit(&self) -> Option<String> {
        Some(self.systemd.unit.clone())
    }

    async fn invocation(&mut self) -> Result<String, KubeletError> {
        self.check_programs().await?;
        Ok(self.systemd.facts().await?.invocation())
    }

    fn cooldown(&self) -> Duration {
        self.restarted.map_or(Duration::ZERO, |then| {
            COOLDOWN.saturating_sub(then.elapsed())
        })
    }

    async fn restart(&mut self, reset_failed: bool) -> Result<(), KubeletError> {
        self.check_programs().await?;
        let begun = Instant::now();
        self.restarted = Some(begun);
        let facts = self.systemd.restart(reset_failed).await?;
        tracing::info!(
            unit = self.systemd.unit(),
            "restarted the kubelet; it serves after {} ms",
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

    async fn provider_flag(&mut self) -> Result<ProviderFlag, KubeletError> {
        let commands = self.systemd.commands().await?;
        match commands.unlisted {
            Some(error) => Err(KubeletError::Systemd(error)),
            None => Ok(commands.provider_flag()),
        }
    }
}
