//! Restores one node manually. Needs no cluster, only the syncer's journal.

use std::path::{Path, PathBuf};

use globalps_core::rollout::Revision;
use jiff::Timestamp;
use tokio::time::sleep;

use super::decide::{Action, decide};
use super::facts::NodeFacts;
use crate::delivery::credential_provider::ProviderFacts;
use crate::delivery::transaction::{ChangeOutcome, Transaction};
use crate::node::file::{self, FileSnapshot};
use crate::node::journal::Journal;
use crate::node::kubelet::{Kubelet as _, KubeletUnit, Restartable};
use crate::node::provider::Provider;
use crate::node::state::{FailedTask, JournalState, NodeError, Task};

/// An interrupted change, its end and the restore take up to three rounds.
const MAX_STEPS: usize = 10;

/// The result of a restore.
#[derive(Debug)]
pub(crate) enum Restored {
    Nothing,
    Done,
    /// The file is the same as before the command.
    KubeletDown(FailedTask),
}

pub(crate) struct Restore {
    config_file: PathBuf,
    provider: Provider,
    journal: Journal,
    unit: KubeletUnit,
    restart: bool,
    task: Task,
}

impl Restore {
    pub(crate) fn new(
        config_file: &Path,
        provider: Provider,
        unit: KubeletUnit,
        restart: bool,
    ) -> Self {
        Self {
            config_file: config_file.to_owned(),
            provider,
            journal: Journal::next_to(config_file, ""),
            unit,
            restart,
            // A new task, so that one that failed before is retried.
            task: Task {
                uid: format!("by hand at {}", Timestamp::now()),
                generation: 0,
                revision: Revision::NONE,
            },
        }
    }

    /// Takes the node's lock and restores the node; calls `say` with a sentence for each finding and action.
    pub(crate) async fn run(&mut self, mut say: impl FnMut(&str)) -> Result<Restored, NodeError> {
        let _lock = self.journal.lock()?;
        file::sweep(&self.config_file);
        let Some(mut state) = self.load()? else {
            say("globalps has no state on this node: there is nothing to restore");
            return Ok(Restored::Nothing);
        };
        say(&found(&state));
        self.find_provider(&state)?;
        self.find_unit(&mut state, &mut say).await;
        let path = self.config_file.clone();
        for _ in 0..MAX_STEPS {
            let file = file::read(&path)?;
            let provider = self.observe_provider(&state)?;
            let facts = NodeFacts {
                task: Some(&self.task),
                is_foreign: false,
                is_updating: false,
                guard: None,
                state: Some(&state),
                file: &file,
                desired: None,
                superseded: false,
                restart: self.restart,
                is_cooled_down: self.unit.cooldown().is_zero(),
                is_watched: false,
                is_conflict_limit_reached: false,
                restores_only: true,
                provider: provider.as_ref(),
            };
            let action = decide(&facts);
            let mut transaction = Transaction {
                journal: &self.journal,
                path: &path,
                provider: &self.provider,
                kubelet: &mut self.unit,
                guard: None,
            };
            let (is_restore, outcome) = match action {
                Action::Begin {
                    change, quarantine, ..
                } => {
                    if quarantine && let FileSnapshot::File { bytes, .. } = &file {
                        let kept = self.journal.quarantine(bytes)?;
                        let kept = kept.display();
                        say(&format!(
                            "the current file can't be parsed; it is kept as {kept}"
                        ));
                    }
                    (true, transaction.begin(&mut state, *change).await?)
                }
                Action::Resume => {
                    let change = state.change.as_ref();
                    let is_restore = change.is_some_and(|change| change.task == self.task);
                    if !is_restore {
                        say("finishing an interrupted change first");
                    }
                    let outcome = transaction.resume(&mut state).await;
                    // The change left nothing behind.
                    if outcome.is_err() && !is_restore && state.change.is_none() {
                        continue;
                    }
                    (is_restore, outcome?)
                }
                Action::Settle => {
                    state.change = None;
                    self.journal.save(&state)?;
                    continue;
                }
                Action::Revive => match self.unit.restart(true).await {
                    Ok(()) => {
                        say("the kubelet was down and runs again");
                        state.failed = None;
                        continue;
                    }
                    Err(error) => {
                        return Ok(Restored::KubeletDown(self.not_revived(error.to_string())));
                    }
                },
                Action::Obstructed(obstacle) => return Err(NodeError::Provider(obstacle)),
                _ => {
                    self.journal.remove(&self.provider)?;
                    say("the file has no managed entries and was not changed");
                    return Ok(Restored::Done);
                }
            };
            match outcome {
                ChangeOutcome::Written(cooldown) => sleep(cooldown).await,
                ChangeOutcome::InForce if is_restore => {
                    say(&format!("the file is {}", described(&file::read(&path)?)));
                    return Ok(Restored::Done);
                }
                ChangeOutcome::RolledBack(failure) if is_restore => {
                    return Ok(Restored::KubeletDown(failure));
                }
                ChangeOutcome::InForce | ChangeOutcome::RolledBack(_) => {}
            }
        }
        Err(NodeError::Unit("the restore did not finish".to_owned()))
    }

    /// The state; without one, the provider that the kubelet's flags name.
    fn load(&self) -> Result<Option<JournalState>, NodeError> {
        let state = self.journal.load()?;
        let installed = match &state {
            Some(_) => return Ok(state),
            None => self.provider.installed_anywhere()?,
        };
        let file = file::read(&self.config_file)?;
        Ok(installed.map(|installed| {
            let mut state = JournalState::new(file, 0);
            state.provider = Some(installed);
            state
        }))
    }

    fn find_provider(&mut self, state: &JournalState) -> Result<(), NodeError> {
        if let Some(installed) = state.known_provider() {
            let found = self.provider.of_installed(installed);
            self.provider = found.map_err(NodeError::Provider)?;
        }
        Ok(())
    }

    fn not_revived(&self, error: String) -> FailedTask {
        FailedTask {
            task: self.task.clone(),
            error,
            stuck: true,
            recovered: false,
            is_of_provider: false,
        }
    }

    fn observe_provider(&self, state: &JournalState) -> Result<Option<ProviderFacts>, NodeError> {
        let change = state.change.as_ref();
        let is_changed = change.is_some_and(|change| change.provider.is_some());
        if state.provider.is_none() && !is_changed {
            return Ok(None);
        }
        Ok(Some(ProviderFacts {
            provider: self.provider.clone(),
            disk: self.provider.read()?,
            has_program: true,
            tokens: None,
            obstacle: None,
            unused: None,
        }))
    }

    /// If there is no unit to restart, neither the restore nor an interrupted change restarts anything, even after a failure.
    async fn find_unit(&mut self, state: &mut JournalState, say: &mut impl FnMut(&str)) {
        let reason = if self.restart {
            let restarted = state.unit.as_deref();
            match self.unit.restartable(restarted, state.owes_start()).await {
                Ok(Restartable::Yes) => return,
                Ok(
                    Restartable::No(reason)
                    | Restartable::Elsewhere(reason)
                    | Restartable::Never(reason),
                ) => reason,
                Err(error) => error.to_string(),
            }
        } else {
            "`--restart=never`".to_owned()
        };
        say(&format!(
            "the kubelet is not restarted ({reason}); it picks up the file within 5 minutes"
        ));
        self.restart = false;
        state.failed = None;
        if let Some(change) = &mut state.change {
            change.waive_restart();
        }
    }
}

fn found(state: &JournalState) -> String {
    let entries = match state.managed.keys.len() {
        1 => "1 managed entry".to_owned(),
        number => format!("{number} managed entries"),
    };
    let revision = match state.revision.number {
        0 => "no revision".to_owned(),
        revision => format!("revision {revision}"),
    };
    let provider = match &state.provider {
        Some(_) => ", delivered by the credential provider",
        None => "",
    };
    let before = described(&state.snapshot);
    format!("found {revision} with {entries}{provider}; before globalps the file was {before}")
}

fn described(file: &FileSnapshot) -> String {
    match file {
        FileSnapshot::Absent => "absent".to_owned(),
        FileSnapshot::File { bytes, mode, .. } => {
            format!("{} bytes with mode {mode:04o}", bytes.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use globalps_core::rollout::RevisionId;
    use globalps_provider::{Content, ProviderConfig, render_data};

    use super::*;
    use crate::node::managed::ManagedEntries;
    use crate::node::provider::HostPath;
    use crate::node::state::{
        ChangeStep, InstalledProvider, PendingChange, ProviderChange, ProviderSide,
    };
    use crate::node::systemd::Systemd;

    fn set_up(provider: &Provider) -> ProviderSide {
        let installed = InstalledProvider {
            data: FileSnapshot::Absent.with_bytes(render_data(1, &Content::default())),
            config: ProviderConfig::default(),
            tokens: false,
            set_up: None,
        };
        provider.with(&provider.read().unwrap(), installed).unwrap()
    }

    /// The command of the documentation, without the paths of the provider's configuration.
    #[tokio::test]
    async fn a_distributions_provider_is_removed_without_its_paths() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| HostPath {
            here: directory.path().join(name),
            host: directory.path().join(name),
        };
        let (path, config) = (at("config.json"), at("theirs.yaml"));
        let theirs = "providers:\n- name: theirs\n";
        fs::write(&config.here, theirs).unwrap();
        let paths = Some((config.clone(), at("bin")));
        let provider = Provider::new(at("program").here, &path, paths);
        let side = set_up(&provider);
        file::replace(&config.here, &side.config).unwrap();
        let mut state = JournalState::new(FileSnapshot::Absent, 0);
        state.revision = Revision::new(1, RevisionId::from_random(1));
        state.provider = side.installed;
        Journal::next_to(&path.here, "").save(&state).unwrap();
        let unit = KubeletUnit::new(Systemd {
            bus: at("bus").here,
            unit: "kubelet.service".to_owned(),
            socket: at("socket").here,
        });
        let untold = Provider::new(at("program").here, &path, None);
        let restored = Restore::new(&path.here, untold, unit, false)
            .run(|_| {})
            .await;
        assert!(matches!(restored, Ok(Restored::Done)), "{restored:?}");
        assert_eq!(fs::read_to_string(&config.here).unwrap(), theirs);
        assert!(!at(".globalps").here.exists());
    }

    /// Run by a program that was started with paths, although the provider is next to the file.
    #[tokio::test]
    async fn a_repair_that_fails_does_not_prevent_a_restore() {
        const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--v=2\"\n";
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| HostPath {
            here: directory.path().join(name),
            host: directory.path().join(name),
        };
        let (path, flags) = (at("config.json"), at("kubeadm-flags.env").here);
        fs::write(&flags, FLAGS).unwrap();
        // There is no program to install.
        let provider = Provider::new(at("program").here, &path, None);
        let side = set_up(&provider);
        assert!(provider.write_flags(true).unwrap());
        let mut state = JournalState::new(FileSnapshot::Absent, 0);
        state.revision = Revision::new(1, RevisionId::from_random(1));
        state.provider.clone_from(&side.installed);
        state.change = Some(PendingChange {
            task: Task {
                uid: "u".to_owned(),
                generation: 1,
                revision: state.revision,
            },
            step: ChangeStep::Forward,
            target: FileSnapshot::Absent,
            target_managed: ManagedEntries::default(),
            restart: false,
            started_from: None,
            before: FileSnapshot::Absent,
            before_managed: ManagedEntries::default(),
            before_revision: state.revision,
            back_from: None,
            failure: String::new(),
            provider: Some(ProviderChange {
                before: side.clone(),
                target: side,
                is_kubelet_checked: false,
                has_failed: false,
            }),
            superseded: None,
        });
        Journal::next_to(&path.here, "").save(&state).unwrap();
        let unit = KubeletUnit::new(Systemd {
            bus: at("bus").here,
            unit: "kubelet.service".to_owned(),
            socket: at("socket").here,
        });
        let paths = Some((at("theirs.yaml"), at("bin")));
        let started = Provider::new(at("program").here, &path, paths);
        let restored = Restore::new(&path.here, started, unit, false)
            .run(|_| {})
            .await;
        assert!(matches!(restored, Ok(Restored::Done)), "{restored:?}");
        assert_eq!(fs::read_to_string(&flags).unwrap(), FLAGS);
        assert!(!at(".globalps").here.exists());
    }
}
