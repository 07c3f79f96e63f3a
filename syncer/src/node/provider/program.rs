//! The credential provider's program: installs, removes and runs it as the kubelet does.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use globalps_provider::{BINARY, PROVIDERS, trials};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{Provider, Way};
use crate::node::file::{self, FileError, FileSnapshot, io_error};
use crate::node::state::InstalledProvider;

/// Deadline of one run of the program.
const RUN_TIMEOUT: Duration = Duration::from_secs(10);
const PROGRAM_MODE: u32 = 0o755;

impl Provider {
    /// Whether both programs match the one in the syncer's image.
    pub(crate) fn has_program(&self) -> bool {
        let Ok(bytes) = fs::read(&self.program) else {
            // This image has no replacement for them.
            return self.programs().all(|path| path.is_file());
        };
        self.programs().all(|path| is_program(&path, &bytes))
    }

    /// Installs the program under both names. Durable when it returns.
    pub(crate) fn install_program(&self) -> Result<(), FileError> {
        if self.has_program() {
            return Ok(());
        }
        let bytes = fs::read(&self.program).map_err(io_error("read", &self.program))?;
        let directory = &self.bin_dir.here;
        if matches!(self.way, Way::Flags(_)) && !directory.exists() {
            let created = DirBuilder::new().mode(0o700).create(directory);
            created.map_err(io_error("create", directory))?;
            file::sync_parent(directory)?;
        }
        for path in self.programs().filter(|path| !is_program(path, &bytes)) {
            let program = FileSnapshot::Absent.with_bytes(bytes.clone());
            file::replace(&path, &program.with_mode(Some(PROGRAM_MODE)))?;
        }
        Ok(())
    }

    /// Removes both programs, and their directory if globalps created it.
    pub(crate) fn remove_program(&self) -> Result<(), FileError> {
        let directory = &self.bin_dir.here;
        if directory.is_dir() {
            for path in self.programs() {
                file::replace(&path, &FileSnapshot::Absent)?;
            }
        }
        if matches!(self.way, Way::Flags(_)) {
            // Files of other processes stay.
            let _ = fs::remove_dir(directory);
            // Needed even if the file was removed before a power cut.
            file::sync_parent(directory)?;
        }
        Ok(())
    }

    /// Runs the installed programs as the kubelet runs them. Fails unless their answers match the data; the error contains no
    /// credentials.
    pub(crate) async fn check(&self, installed: &InstalledProvider) -> Result<(), String> {
        let FileSnapshot::File { bytes, .. } = &installed.data else {
            return Err("the credential provider has no data".to_owned());
        };
        let trials = trials(bytes, installed.tokens).map_err(|error| error.to_string())?;
        for trial in trials {
            let output = self.run(trial.is_scoped, &trial.request).await?;
            let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
            if parsed(&output).is_none() || parsed(&output) != parsed(&trial.expected) {
                return Err(
                    "the credential provider does not return the credentials in its data"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    async fn run(&self, is_scoped: bool, request: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        let name = PROVIDERS
            .into_iter()
            .find(|name| (*name == BINARY) != is_scoped);
        let path = self.bin_dir.here.join(name.unwrap_or(BINARY));
        let failed = |error: &dyn std::fmt::Display| {
            format!(
                "can't run the credential provider `{}`: {error}",
                path.display()
            )
        };
        let mut command = Command::new(&path);
        command
            .arg(format!("--data={}", self.data.here.display()))
            .args(is_scoped.then_some("--scoped"))
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The program's error output could name registries.
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let stdin = child.stdin.take();
        let run = async move {
            if let Some(mut stdin) = stdin {
                // A program that exits without reading is judged by its output.
                let _ = stdin.write_all(request).await;
            }
            child.wait_with_output().await
        };
        let output = timeout(RUN_TIMEOUT, run)
            .await
            .map_err(|_| {
                failed(&format_args!(
                    "no response within {} s",
                    RUN_TIMEOUT.as_secs()
                ))
            })?
            .map_err(|error| failed(&error))?;
        let stdout = Zeroizing::new(output.stdout);
        if output.status.success() {
            Ok(stdout)
        } else {
            Err(failed(&output.status))
        }
    }
}

fn is_program(path: &Path, bytes: &[u8]) -> bool {
    matches!(
        file::read_up_to(path, bytes.len() as u64),
        Ok(FileSnapshot::File { bytes: found, mode: PROGRAM_MODE, uid: 0, .. }) if found == bytes
    )
}
