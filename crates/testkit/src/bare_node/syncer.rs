//! Runs the shipped syncer like on a node, with a trace of its system calls if requested.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use globalps_core::names::SYNCER_BINARY;
use globalps_provider::BINARY;
use rustix::process::{Pid, Signal, kill_process};

use super::api::NODE;
use super::{bus, kubelet};
use crate::programs::shipped;
use crate::{DEADLINE, power_cut, until};

/// The real program, and how to run it.
pub struct Program {
    path: PathBuf,
    /// System calls that strace changes, if any.
    injection: Option<String>,
}

impl Program {
    /// The shipped program.
    pub fn shipped() -> Result<Self> {
        Ok(Self {
            path: shipped(SYNCER_BINARY)?,
            injection: None,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A credential provider of a few bytes that runs the real one. It is small because it is copied to the node often.
    pub(super) fn provider_in(&self, scratch: &Path) -> Result<PathBuf> {
        let path = scratch.join(BINARY);
        let real = self.path.with_file_name(BINARY);
        fs::write(
            &path,
            format!("#!/bin/sh\nexec {} \"$@\"\n", real.display()),
        )?;
        Ok(path)
    }

    /// Like `self`, with failing system calls, in the syntax of strace's `--inject`.
    #[must_use]
    pub fn failing(self, injection: &str) -> Self {
        Self {
            injection: Some(injection.to_owned()),
            ..self
        }
    }

    /// The same program without injected failures.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            path: self.path.clone(),
            injection: None,
        }
    }
}

/// A running syncer; dropping this kills it.
pub struct Syncer {
    child: Child,
    log: PathBuf,
    /// Output file of strace, which runs the syncer as its child.
    trace: Option<PathBuf>,
}

impl Syncer {
    pub(super) fn start(
        program: &Program,
        directory: &Path,
        scratch: &Path,
        server: SocketAddr,
        trace: Option<&Path>,
        arguments: &[String],
    ) -> Result<Self> {
        let injected = program.injection.is_some();
        let trace = trace.map(Path::to_owned);
        let trace = trace.or_else(|| injected.then(|| scratch.join("trace")));
        let mut command = in_pod(scratch)?;
        match &trace {
            None => command.arg(&program.path),
            Some(trace) => strace(&mut command, program, trace),
        };
        let log = scratch.join("log");
        command
            .args(["run", "--node-name", NODE, "--config-file"])
            .arg(directory.join("config.json"))
            .arg("--host-config-file")
            .arg(kubelet::host_config_file())
            .arg("--provider-program")
            .arg(program.provider_in(scratch)?)
            .arg("--bus")
            .arg(bus::socket(scratch))
            .arg("--ready-file")
            .arg(scratch.join("ready"))
            .args(arguments)
            // Without the caller's proxy and cluster settings.
            .env_clear()
            .env("KUBERNETES_SERVICE_HOST", server.ip().to_string())
            .env("KUBERNETES_SERVICE_PORT", server.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        let child = command.spawn().with_context(|| {
            let name = command.get_program().display();
            format!(
                "could not run `{name}`: run `target/debug/testkit cluster preflight --install`"
            )
        })?;
        Ok(Self { child, log, trace })
    }

    /// Whether the syncer exited by itself, or an injected signal killed it.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends SIGTERM `after` the syncer handles signals, and returns how long it took to exit.
    ///
    /// A signal that arrives while the handler is being registered is lost: the library has then replaced the default action, but
    /// does not know the new one yet. As process 1 of a container, the syncer would not receive an earlier signal either.
    pub(super) fn terminate(mut self, after: Duration) -> Result<Duration> {
        until(
            "the syncer to handle signals",
            DEADLINE,
            Duration::from_millis(1),
            || Ok(self.log().contains(": started ").then_some(())),
        )?;
        std::thread::sleep(after);
        let asked = Instant::now();
        let pid = i32::try_from(self.child.id())?;
        kill_process(Pid::from_raw(pid).context("no pid")?, Signal::TERM)?;
        let status = until(
            "the syncer to exit",
            DEADLINE,
            Duration::from_millis(1),
            || Ok(self.child.try_wait()?),
        )
        .with_context(|| self.log())?;
        ensure!(status.success(), "{status}: {}", self.log());
        Ok(asked.elapsed())
    }

    /// Kills the syncer, and returns when the trace is complete.
    pub fn kill(mut self) -> Result<()> {
        let Some(trace) = &self.trace else {
            self.child.kill()?;
            self.child.wait()?;
            return Ok(());
        };
        kill_process(traced(trace).context("nothing was traced")?, Signal::KILL)?;
        until("strace to exit", DEADLINE, Duration::from_millis(5), || {
            Ok(self.child.try_wait()?.map(|_| ()))
        })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        // Killing strace alone would leave the syncer running.
        if matches!(self.child.try_wait(), Ok(None))
            && let Some(pid) = self.trace.as_deref().and_then(traced)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The files of a pod's service account, in the node's files.
pub(super) fn account(scratch: &Path) -> PathBuf {
    scratch.join("account")
}

/// Runs its arguments with the account's files in their place in a pod.
pub(crate) fn in_pod(scratch: &Path) -> Result<Command> {
    const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
    fs::create_dir_all(ACCOUNT)?;
    let mut command = Command::new("/usr/bin/unshare");
    let mount = format!(r#"mount --bind "$0" {ACCOUNT} && exec "$@""#);
    command
        .args(["--mount", "sh", "-c", &mount])
        .arg(account(scratch));
    Ok(command)
}

/// Adds the program and its tracer.
fn strace<'a>(command: &'a mut Command, program: &Program, trace: &Path) -> &'a mut Command {
    command.arg("/usr/bin/strace");
    let injection = program.injection.iter();
    command.args(injection.map(|injection| format!("--inject={injection}")));
    if program.injection.is_none() {
        // Much faster, and possible because no signal is injected.
        command.arg("--seccomp-bpf");
    }
    command
        .args(["--follow-forks", "--quiet=attach,personality"])
        .args(["--decode-fds=path", "-xx", "--string-limit=1048576"])
        .arg(format!("--trace={}", power_cut::SYSCALLS))
        .arg("--output")
        .arg(trace)
        .arg("--")
        .arg(&program.path)
}

/// The first process in the trace.
fn traced(trace: &Path) -> Option<Pid> {
    let text = fs::read_to_string(trace).ok()?;
    Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
}
