//! Delivery by the kubelet's credential provider: what a revision installs, and the change that installs it. Pure.

use globalps_provider::{Content, ProviderConfig, render_data};

use crate::node::file::FileSnapshot;
use crate::node::provider::{Provider, ProviderDisk};
use crate::node::state::{
    InstalledProvider, JournalState, Obstacle, ProviderChange, ProviderSide, Task,
};

/// The observed provider, if it is requested or on the node.
#[derive(Debug)]
pub(crate) struct ProviderFacts {
    pub(crate) provider: Provider,
    pub(crate) disk: ProviderDisk,
    /// The programs are installed and match this syncer's image.
    pub(crate) has_program: bool,
    /// Whether the kubelet can pass pod tokens to it; `None`: unknown.
    pub(crate) tokens: Option<bool>,
    /// Why it can't be set up on a node that doesn't have it.
    pub(crate) obstacle: Option<Obstacle>,
    /// Why the kubelet does not use the one in force: its process has another configuration.
    pub(crate) unused: Option<Unused>,
}

/// A provider in force that can't stay.
#[derive(Clone, Debug)]
pub(crate) struct Unused {
    pub(crate) obstacle: Obstacle,
    /// The running kubelet uses it nevertheless: only the next one would not.
    pub(crate) is_running: bool,
}

impl ProviderFacts {
    /// The provider's files with this content; the error says why the content goes into the credentials file instead.
    pub(crate) fn with_content(
        &self,
        revision: i64,
        content: &Content,
        config: &ProviderConfig,
        in_force: Option<&InstalledProvider>,
    ) -> Result<ProviderSide, Obstacle> {
        if let (None, Some(obstacle)) = (in_force, &self.obstacle) {
            return Err(obstacle.clone());
        }
        let known = in_force.map(|installed| installed.tokens);
        self.with(InstalledProvider {
            data: FileSnapshot::Absent.with_bytes(render_data(revision, content)),
            config: config.clone(),
            tokens: self.tokens.or(known).unwrap_or(false),
            set_up: None,
        })
    }

    /// The provider's files with the revision's content and the settings that the kubelet has.
    pub(crate) fn with_settings_of(
        &self,
        installed: &InstalledProvider,
        task: &Task,
        content: &Content,
    ) -> Result<ProviderSide, Obstacle> {
        let mut installed = installed.clone();
        let data = render_data(task.revision.number, content);
        installed.data = FileSnapshot::Absent.with_bytes(data);
        self.with(installed)
    }

    pub(crate) fn with(&self, installed: InstalledProvider) -> Result<ProviderSide, Obstacle> {
        match &self.unused {
            Some(unused) => Err(unused.obstacle.clone()),
            None => self.provider.with(&self.disk, installed),
        }
    }

    fn without(&self) -> Result<ProviderSide, Obstacle> {
        self.provider.without(&self.disk)
    }

    /// The files without the provider, with which the kubelet starts.
    fn removed(&self) -> Result<ProviderSide, Obstacle> {
        match &self.unused {
            // The kubelet was started without the flags.
            Some(unused) if !unused.is_running => self.without(),
            _ => self.provider.removed(&self.disk),
        }
    }

    /// Whether the kubelet's configuration and flags match this side. Other settings would need a restart.
    pub(crate) fn has_settings(&self, side: &ProviderSide) -> bool {
        self.disk.has_settings(side)
    }

    pub(crate) fn has_files(&self, side: &ProviderSide) -> bool {
        self.has_settings(side) && self.disk.data == side.data()
    }

    pub(crate) fn has_all(&self, side: &ProviderSide) -> bool {
        self.has_files(side) && (side.installed.is_none() || self.has_program)
    }
}

/// The change to this side, or the removal of the provider. `None`: nothing of it is on the node.
pub(crate) fn change(
    facts: Option<&ProviderFacts>,
    state: &JournalState,
    target: Option<&ProviderSide>,
    is_kubelet_checked: bool,
) -> Result<Option<ProviderChange>, Obstacle> {
    let pending = state
        .change
        .as_ref()
        .and_then(|change| change.provider.as_ref());
    let is_on_node = pending.is_some() || state.provider.is_some();
    let Some(facts) = facts.filter(|_| is_on_node || target.is_some()) else {
        return Ok(None);
    };
    let target = target.cloned().map_or_else(|| facts.removed(), Ok)?;
    let before = match (pending, &state.provider) {
        (Some(pending), _) => pending.before.clone(),
        (None, None) => facts.without()?,
        // Roll back to the state that was in force: with the files that another process broke, no kubelet would start.
        (None, Some(installed)) => facts
            .with(installed.clone())
            .unwrap_or_else(|_| as_found(installed, &facts.disk)),
    };
    Ok(Some(ProviderChange {
        before,
        target,
        is_kubelet_checked,
        has_failed: false,
    }))
}

fn as_found(installed: &InstalledProvider, disk: &ProviderDisk) -> ProviderSide {
    ProviderSide {
        installed: Some(installed.clone()),
        config: disk.config.clone(),
        flags: disk.flags.clone(),
    }
}

/// Whether the change needs a kubelet restart. One that does not use the provider needs none without it.
pub(crate) fn needs_restart(
    facts: &ProviderFacts,
    state: &JournalState,
    change: &ProviderChange,
) -> bool {
    let is_switch = change.before.installed.is_some() != change.target.installed.is_some();
    let is_unused = facts.unused.as_ref().is_some_and(|it| !it.is_running);
    let is_unused = is_unused && change.target.installed.is_none();
    state.awaits_restart() || !is_unused && (is_switch || !facts.has_settings(&change.target))
}

/// Adapts a change from the journal to files that another process wrote meanwhile: foreign content stays, forward and back.
/// `None`: no file was written meanwhile. An error: a file no longer allows adding the provider.
pub(crate) fn rebase(
    provider: &Provider,
    change: &ProviderChange,
    disk: &ProviderDisk,
) -> Result<Option<ProviderChange>, Obstacle> {
    let (before, target) = (&change.before, &change.target);
    let is_known = [&before.config, &target.config].contains(&&disk.config)
        && [&before.flags, &target.flags].contains(&&disk.flags);
    if is_known {
        return Ok(None);
    }
    let on_disk = |side: &ProviderSide| match &side.installed {
        Some(installed) => provider.with(disk, installed.clone()),
        None => provider.without(disk),
    };
    let before = match (on_disk(before), &before.installed) {
        // A removal needs only the files without it.
        (Err(_), Some(installed)) if target.installed.is_none() => as_found(installed, disk),
        (before, _) => before?,
    };
    Ok(Some(ProviderChange {
        before,
        target: on_disk(target)?,
        ..change.clone()
    }))
}
