//! A node that runs only the syncer: the real program, with a simulated API server, systemd and kubelet that do only
//! what a syncer needs. It needs no cluster and starts in milliseconds.

mod api;
mod bus;
mod kubelet;
mod syncer;
mod systemd;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use globalps_provider::CONFIG_FLAG;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::until;
use api::Api;
use bus::Bus;
use systemd::Systemd;

pub use api::{Ask, Reported, Secret};
pub(crate) use syncer::in_pod;
pub use syncer::{Program, Syncer};
pub use systemd::Failures;

/// A directory that a kubelet has next to its credentials file.
pub const KUBELETS_OWN: &str = "pod-resources";

/// A node that has just booted: its kubelet has read the existing credentials file.
pub struct BareNode {
    // Fields are dropped in this order.
    api: Api,
    systemd: Systemd,
    _bus: Bus,
    _kubelet: UnixListener,
    _runtime: Runtime,
    scratch: TempDir,
    directory: PathBuf,
    /// Additional arguments of the syncer.
    arguments: Vec<String>,
}

impl BareNode {
    /// `directory`: of the credentials file. `ask`: the node's assignment. `boot`: must differ for each boot, because
    /// every kubelet start has a unique id. `failures`: makes the first restarts fail.
    pub fn start(directory: &Path, ask: &Ask, boot: u8, failures: Failures) -> Result<Self> {
        let is_root = rustix::process::geteuid().is_root();
        ensure!(is_root, "a syncer needs root: run this as root");
        let scratch = TempDir::new()?;
        let kubelet = directory.join(KUBELETS_OWN);
        fs::create_dir_all(&kubelet)?;
        let socket = kubelet.join("kubelet.sock");
        // From before the node's reboot.
        let _ = fs::remove_file(&socket);
        let kubelet = UnixListener::bind(&socket).context("no socket for the kubelet")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let bus = Bus::start(scratch.path())?;
        let systemd = Systemd::new(&directory.join("config.json"), boot, failures);
        runtime.block_on(systemd.serve(bus.socket()))?;
        let api = runtime.block_on(Api::serve(ask.clone()))?;
        api.write_account(&syncer::account(scratch.path()))?;
        Ok(Self {
            api,
            systemd,
            _bus: bus,
            _kubelet: kubelet,
            _runtime: runtime,
            scratch,
            directory: directory.to_owned(),
            arguments: Vec::new(),
        })
    }

    /// Adds these arguments to the node's syncers.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|&text| text.to_owned()).collect();
        self
    }

    /// Starts the syncer. Dropping the result stops it.
    pub fn syncer(&self, program: &Program) -> Result<Syncer> {
        self.start_syncer(program, None)
    }

    fn start_syncer(&self, program: &Program, trace: Option<&Path>) -> Result<Syncer> {
        let scratch = self.scratch.path();
        let (directory, server) = (&self.directory, self.api.address());
        Syncer::start(program, directory, scratch, server, trace, &self.arguments)
    }

    /// Runs `globalps-syncer restore` on this node.
    pub fn restore(&self, program: &Program, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(program.path());
        command
            .arg("restore")
            .arg("--config-file")
            .arg(self.directory.join("config.json"))
            .arg("--host-config-file")
            .arg(kubelet::host_config_file())
            .arg("--provider-program")
            .arg(program.provider_in(self.scratch.path())?)
            .args(arguments)
            .env_clear();
        if !arguments
            .iter()
            .any(|argument| argument.starts_with("--bus"))
        {
            command.arg("--bus").arg(bus::socket(self.scratch.path()));
        }
        Ok(command.output()?)
    }

    /// Changes the node's object and its content; `None` deletes the object.
    pub fn ask(&self, ask: Option<Ask>) {
        self.api.ask(ask);
    }

    /// From now on the API server rejects the syncer's token.
    pub fn reject(&self) {
        self.api.reject();
    }

    /// Changes the node's object and no Secret.
    pub fn assign(&self, ask: Ask) {
        self.api.assign(Some(ask));
    }

    /// Sets the API server's response for this Secret.
    pub fn secret(&self, name: &str, secret: Secret) {
        self.api.secret(name, secret);
    }

    /// The last status that the syncer wrote; `None` if it wrote none.
    pub fn status(&self) -> Option<Value> {
        self.api.status()
    }

    /// Waits until the last written status is as wanted.
    pub fn wait_status(
        &self,
        what: &str,
        deadline: Duration,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let every = Duration::from_millis(2);
        until(what, deadline, every, || {
            Ok(self.status().filter(|status| is_wanted(status)))
        })
        .with_context(|| {
            let log = fs::read_to_string(self.scratch.path().join("log"));
            format!("{:?}\n{}", self.status(), log.unwrap_or_default())
        })
    }

    /// The log of the running or last syncer.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Whether the syncer reports itself ready.
    pub fn is_ready(&self) -> bool {
        self.scratch.path().join("ready").exists()
    }

    /// Starts the kubelet like another process.
    pub fn start_kubelet(&self) {
        self.systemd.start_kubelet();
    }

    /// Makes the next restarts of the kubelet fail.
    pub fn fail(&self, failures: Failures) {
        self.systemd.fail(failures);
    }

    /// Starts the kubelet like another process, with none of the flags in kubeadm's file.
    pub fn start_without_flags(&self) {
        self.systemd.start_without_flags();
    }

    /// Makes systemd omit the kubelet's processes from now on.
    pub fn hide_processes(&self) {
        self.systemd.hide_processes();
    }

    /// Starts the syncer, waits until it reports a final phase, and kills it. Calls `look` repeatedly meanwhile; an
    /// error of `look` ends the wait.
    pub fn run(
        &self,
        program: &Program,
        trace: Option<&Path>,
        deadline: Duration,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<Reported> {
        let syncer = self.start_syncer(program, trace)?;
        self.wait(syncer, deadline, || {
            look()?;
            Ok(self.api.reported().filter(Reported::stays))
        })
    }

    /// Like [`Self::run`], until the syncer reports this phase.
    pub fn run_to(&self, program: &Program, phase: &str, deadline: Duration) -> Result<Reported> {
        let syncer = self.syncer(program)?;
        self.wait(syncer, deadline, || {
            let reported = self.api.reported().filter(Reported::stays);
            Ok(reported.filter(|reported| reported.phase == phase))
        })
    }

    fn wait(
        &self,
        syncer: Syncer,
        deadline: Duration,
        reported: impl FnMut() -> Result<Option<Reported>>,
    ) -> Result<Reported> {
        let reported = until(
            "a final phase",
            deadline,
            Duration::from_millis(2),
            reported,
        );
        let reported = reported.with_context(|| {
            let log = syncer.log();
            format!("it reported {:?} and logged:\n{log}", self.api.reported())
        })?;
        syncer.kill()?;
        Ok(reported)
    }

    /// Starts the syncer, sends it SIGTERM after a while, and returns how long it took to exit.
    pub fn terminate(&self, program: &Program, after: Duration) -> Result<Duration> {
        self.syncer(program)?.terminate(after)
    }

    /// Number of requested kubelet restarts.
    pub fn restarts(&self) -> usize {
        self.systemd.restarts()
    }

    /// The credentials that the running kubelet's credential providers return for the image.
    pub fn provided(&self, image: &str) -> Result<Value> {
        kubelet::provided(&self.systemd.flags(), &self.directory, image)
    }

    /// Whether the kubelet has a credential for an image of the registry. Rereads the credentials file, as the kubelet
    /// does.
    pub fn has_credential(&self, registry: &str) -> Result<bool> {
        let key = format!("\"{registry}\"");
        let is_in_file = || match fs::read_to_string(self.directory.join("config.json")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            text => Ok(text.is_ok_and(|text| text.contains(&key))),
        };
        if is_in_file()? {
            return Ok(true);
        }
        let provided = self.provided(&format!("{registry}/image"));
        // Checks the file first, because an entry is added to the file before the provider is removed.
        Ok(is_in_file()? || provided?.get(registry).is_some())
    }

    /// Whether the running kubelet was started with credential providers.
    pub fn has_provider(&self) -> bool {
        self.systemd.flags().contains(CONFIG_FLAG)
    }

    /// Whether a kubelet would start with the files that exist now.
    pub fn would_start(&self) -> bool {
        let starts = || {
            let flags = kubelet::flags(&self.directory.join("config.json"));
            kubelet::starts_with(&flags, &self.directory)
        };
        // The syncer may replace files between two reads.
        (0..3).any(|_| starts())
    }

    /// The credentials file as the running kubelet read it; `None` if it did not exist.
    pub fn kubelet_read(&self) -> Option<Vec<u8>> {
        self.systemd.kubelet_read()
    }
}
