//! Observes the credential provider: what is on the node, and why it may not be possible there.

use globalps_core::api::{NodePullSecret, Phase};
use globalps_core::rollout::Revision;
use globalps_provider::{Content, Delivery, MIN_KUBELET, MIN_KUBELET_FOR_SCOPES, kubelet_version};
use tokio::time::Instant;

use super::{Agent, FLAGS_READ};
use crate::delivery::credential_provider::{ProviderFacts, Unused};
use crate::node::file::FileSnapshot;
use crate::node::kubelet::{Kubelet as _, KubeletError};
use crate::node::provider::{Provider, ProviderDisk, SET_UP};
use crate::node::state::{InstalledProvider, JournalState, NodeError, Obstacle};
use crate::node::systemd::ProviderFlag;

/// Another process would stop the kubelet from using the provider, or restart it each time.
const CONFLICT_LIMIT: &str = "another process keeps changing the kubelet's flags or providers";

impl Agent {
    /// `None`: it is not requested, and nothing of it is on the node.
    pub(super) async fn observe_provider(
        &mut self,
        object: Option<&NodePullSecret>,
        revision: Option<Revision>,
    ) -> Result<Option<ProviderFacts>, NodeError> {
        let is_on_node = self.has_provider();
        let desired = self.assigned.desired.as_ref();
        let desired = desired.filter(|(desired, _)| Some(*desired) == revision);
        let wants = |content: &Content| matches!(content.delivery, Delivery::CredentialProvider(_));
        if !is_on_node && !desired.is_some_and(|(_, content)| wants(content)) {
            self.files.obstacle = None;
            return Ok(None);
        }
        let version = object.and_then(|object| kubelet_version(&object.spec.kubelet_version));
        let provider = self.provider_on_node()?;
        let (disk, unreadable) = match provider.read() {
            Ok(disk) => (disk, None),
            Err(error) if !is_on_node => (nothing(), Some(Obstacle::new(error.to_string()))),
            Err(error) => return Err(error.into()),
        };
        let obstacle = match unreadable {
            None if is_on_node => None,
            None => self.obstacle_on_way_in(version).await?,
            unreadable => unreadable,
        };
        let facts = ProviderFacts {
            has_program: provider.has_program(),
            tokens: version.map(|version| version >= MIN_KUBELET_FOR_SCOPES),
            obstacle,
            unused: self.unused(&provider, &disk).await,
            provider,
            disk,
        };
        let in_force = self
            .node
            .state
            .as_ref()
            .and_then(|state| state.provider.as_ref());
        self.files.obstacle = self
            .assigned
            .desired
            .as_ref()
            .and_then(|(revision, content)| {
                let Delivery::CredentialProvider(config) = &content.delivery else {
                    return None;
                };
                facts
                    .with_content(revision.number, content, config, in_force)
                    .err()
            });
        Ok(Some(facts))
    }

    pub(super) fn has_provider(&self) -> bool {
        self.node.state.as_ref().is_some_and(|state| {
            let change = state.unfinished();
            state.provider.is_some() || change.is_some_and(|change| change.provider.is_some())
        })
    }

    /// The provider at its location on this node, where a syncer with other paths may have set it up.
    pub(super) fn provider_on_node(&self) -> Result<Provider, NodeError> {
        let known = self
            .node
            .state
            .as_ref()
            .and_then(JournalState::known_provider);
        self.provider_of(known).map_err(NodeError::Provider)
    }

    /// The provider at the location of the known one.
    pub(super) fn provider_of(
        &self,
        known: Option<&InstalledProvider>,
    ) -> Result<Provider, Obstacle> {
        known.map_or_else(
            || Ok(self.options.provider.clone()),
            |installed| self.options.provider.of_installed(installed),
        )
    }

    /// If the state doesn't record the provider on the disk, treats it as the node's: the kubelet's flags name its
    /// files, so they are removed in the order of a change, not together with the state directory.
    pub(super) fn adopt_provider(&mut self, file: &FileSnapshot) -> Result<(), NodeError> {
        let is_changing = self
            .node
            .state
            .as_ref()
            .is_some_and(|state| state.change.is_some());
        if is_changing || self.has_provider() {
            return Ok(());
        }
        let Some(installed) = self.options.provider.installed_anywhere()? else {
            return Ok(());
        };
        tracing::warn!("found the credential provider on this node, but not in the state");
        let object = self.assigned.objects.borrow().object().cloned();
        let restarts = object.map_or(0, |object| self.reporter.restarts(&object));
        let state = self
            .node
            .state
            .get_or_insert_with(|| JournalState::new(file.clone(), restarts));
        // No revision: the assigned one is applied.
        (state.provider, state.revision, state.applied) = (Some(installed), Revision::NONE, None);
        Ok(())
    }

    /// Why the kubelet does not use the provider in force, as after the user gave it other flags, of which the last one wins, or
    /// took them away. `None`: it does, as far as it can be seen.
    async fn unused(&mut self, provider: &Provider, disk: &ProviderDisk) -> Option<Unused> {
        let in_force = self.node.state.as_ref().filter(|it| it.change.is_none());
        let Some(installed) = in_force.and_then(|it| it.provider.clone()) else {
            self.kubelet.flag = None;
            return None;
        };
        let has_settings = || {
            let side = provider.with(disk, installed);
            side.is_ok_and(|side| disk.has_settings(&side))
        };
        if self.files.drift.is_limit_reached() && !has_settings() {
            return Some(Unused {
                obstacle: Obstacle::new(CONFLICT_LIMIT),
                is_running: true,
            });
        }
        if !self.options.restart || self.kubelet.no_restart.is_some() {
            return None;
        }
        let known = self.kubelet.flag.take();
        // A value that was read earlier must not justify a removal.
        let known = known.filter(|(read, flag)| {
            read.elapsed() < FLAGS_READ && provider.check_flag(flag).is_ok()
        });
        let (read, flag) = match known {
            Some(known) => known,
            None => (
                Instant::now(),
                self.kubelet.unit.provider_flag().await.ok()?,
            ),
        };
        self.kubelet.flag = Some((read, flag.clone()));
        let may_change = match flag {
            ProviderFlag::Is(_) => false,
            // Flags that others took out of their file are written again.
            ProviderFlag::Absent => !provider.is_named(disk),
            // The kubelet may be starting.
            ProviderFlag::Hidden => true,
        };
        let error = provider.check_flag(&flag).err();
        error.filter(|_| !may_change).map(|error| Unused {
            obstacle: Obstacle::new(error),
            is_running: false,
        })
    }

    async fn obstacle_on_way_in(
        &mut self,
        version: Option<(u32, u32)>,
    ) -> Result<Option<Obstacle>, NodeError> {
        let (major, minor) = MIN_KUBELET;
        match version {
            None => return Ok(Some(Obstacle::new("the kubelet's version is unknown"))),
            Some((found, older)) if (found, older) < MIN_KUBELET => {
                let message = format!("the kubelet is {found}.{older}, older than {major}.{minor}");
                return Ok(Some(Obstacle::new(message)));
            }
            Some(_) => {}
        }
        if !self.options.restart {
            let message = "`spec.kubelet.restart` is `Never`, but the provider needs a restart";
            return Ok(Some(Obstacle::new(message)));
        }
        if let Some(reason) = &self.kubelet.no_restart {
            let message = format!("{reason}, but the provider needs a restart");
            return Ok(Some(Obstacle::new(message)));
        }
        if let Some(obstacle) = self.options.provider.obstacle() {
            return Ok(Some(obstacle));
        }
        let Some(flags) = self.options.provider.flags_file() else {
            return match self.kubelet.unit.provider_flag().await {
                Ok(flag) => Ok(self.options.provider.unread(&flag)),
                // Only visible evidence can contradict.
                Err(KubeletError::Systemd(_)) => Ok(None),
                Err(error) => Err(error.into()),
            };
        };
        let own = &self.options.provider.config.host;
        let ignored = self.kubelet.unit.ignores_flags(&flags.host, own).await?;
        Ok(ignored.map(|reason| Obstacle::new(format!("{reason}; {SET_UP}"))))
    }

    /// Whether the flags file may still be in the middle of a write by another process. On the way in a node would stay with the
    /// credentials file until the next revision.
    pub(super) fn is_half_written(&mut self, facts: Option<&ProviderFacts>) -> bool {
        let Some(facts) = facts else {
            return false;
        };
        let in_force = self
            .node
            .state
            .as_ref()
            .and_then(|state| state.provider.as_ref());
        let is_obstructed = match in_force {
            Some(installed) => facts.with(installed.clone()).is_err(),
            None => facts.obstacle.is_none() && self.files.obstacle.is_some(),
        };
        let settings = is_obstructed.then(|| facts.disk.clone());
        let is_new = settings.is_some() && self.files.half_written_settings != settings;
        self.files.half_written_settings = settings;
        is_new
    }

    pub(super) fn report_obstructed(&mut self, obstacle: &Obstacle) {
        self.report(Phase::Failed, obstacle.reason, &obstacle.message);
    }
}

fn nothing() -> ProviderDisk {
    ProviderDisk {
        data: FileSnapshot::Absent,
        config: FileSnapshot::Absent,
        flags: None,
        is_beside_others: false,
    }
}
