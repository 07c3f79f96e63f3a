//! The part of systemd that a syncer uses: the kubelet's unit and its restarts. No other unit exists. Also simulates
//! the kubelet, which reads its credentials file when it starts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use zbus::object_server::{ObjectServer, SignalEmitter};
use zbus::{ObjectPath, OwnedObjectPath, connection, fdo, interface};

use super::kubelet;

/// The only unit that exists.
const KUBELET_UNIT: &str = "kubelet.service";
const MANAGER: &str = "/org/freedesktop/systemd1";
const KUBELET: &str = "/usr/bin/kubelet";
const NAME: &str = "org.freedesktop.systemd1";

#[derive(Clone)]
pub(super) struct Systemd(Arc<Mutex<Kubelet>>);

/// How many restarts fail, and with which result of the job; `call`: the request itself fails.
#[derive(Clone, Copy, Debug)]
pub struct Failures(pub usize, pub &'static str);

impl Failures {
    pub const NONE: Self = Self(0, "");
}

struct Kubelet {
    /// Number of the node's boot.
    boot: u8,
    config_file: PathBuf,
    /// Future restarts that fail.
    failures: Failures,
    /// Whether systemd answers a request for the unit's processes with an error, as it does without the node's control groups.
    hides_processes: bool,
    /// Number of requested restarts.
    restarts: usize,
    /// Number of attempted starts since the node booted, including the first one.
    starts: u8,
    active: bool,
    active_since: SystemTime,
    /// Like `active_since`, by the node's monotonic clock.
    active_from: Duration,
    read: Option<Vec<u8>>,
    /// Flags of the running process.
    flags: String,
}

impl Kubelet {
    /// Starts the kubelet. Returns systemd's name for the result of the job.
    fn start(&mut self) -> &'static str {
        self.starts += 1;
        self.active = self.failures.0 == 0;
        if !self.active {
            self.failures.0 -= 1;
            return self.failures.1;
        }
        self.flags = kubelet::flags(&self.config_file);
        let directory = self.config_file.parent().unwrap_or(Path::new("/"));
        if !kubelet::starts_with(&self.flags, directory) {
            self.active = false;
            return "failed";
        }
        self.active_since = SystemTime::now();
        self.active_from = uptime();
        self.read = std::fs::read(&self.config_file).ok();
        "done"
    }
}

impl Systemd {
    /// The state of a node that has just booted, and whose kubelet has just started.
    pub(super) fn new(config_file: &Path, boot: u8, failures: Failures) -> Self {
        let mut kubelet = Kubelet {
            boot,
            config_file: config_file.to_owned(),
            failures: Failures::NONE,
            hides_processes: false,
            restarts: 0,
            starts: 0,
            active: false,
            active_since: UNIX_EPOCH,
            active_from: Duration::ZERO,
            read: None,
            flags: String::new(),
        };
        kubelet.start();
        kubelet.failures = failures;
        Self(Arc::new(Mutex::new(kubelet)))
    }

    /// Serves until the runtime ends.
    pub(super) async fn serve(&self, bus: &Path) -> Result<()> {
        let address = format!("unix:path={}", bus.display());
        let connection = connection::Builder::address(&*address)
            .name(NAME)
            .serve_at(MANAGER, Manager(self.clone()))
            .build()
            .await
            .context("the simulated systemd could not connect to the bus")?;
        tokio::spawn(async move {
            let _connection = connection;
            std::future::pending::<()>().await;
        });
        Ok(())
    }

    /// Starts the kubelet like another process.
    pub(super) fn start_kubelet(&self) {
        self.with(Kubelet::start);
    }

    /// Makes the next restarts fail.
    pub(super) fn fail(&self, failures: Failures) {
        self.with(|kubelet| kubelet.failures = failures);
    }

    /// Starts the kubelet like another process, with none of the flags in kubeadm's file.
    pub(super) fn start_without_flags(&self) {
        self.with(|kubelet| {
            kubelet.start();
            kubelet.flags.clear();
        });
    }

    pub(super) fn hide_processes(&self) {
        self.with(|kubelet| kubelet.hides_processes = true);
    }

    pub(super) fn restarts(&self) -> usize {
        self.with(|kubelet| kubelet.restarts)
    }

    pub(super) fn kubelet_read(&self) -> Option<Vec<u8>> {
        self.with(|kubelet| kubelet.read.clone())
    }

    /// The flags of the running kubelet.
    pub(super) fn flags(&self) -> String {
        self.with(|kubelet| kubelet.flags.clone())
    }

    fn with<T>(&self, f: impl FnOnce(&mut Kubelet) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }
}

/// The clock of systemd's monotonic timestamps.
fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

struct Manager(Systemd);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn subscribe(&self) {}

    fn reset_failed_unit(&self, _name: &str) {}

    fn get_unit_processes(&self, _name: &str) -> fdo::Result<Vec<(String, u32, String)>> {
        self.0.with(|kubelet| {
            if kubelet.hides_processes {
                return Err(fdo::Error::IOError("Input/output error".to_owned()));
            }
            let line = format!("{KUBELET} --v=2 {}", kubelet.flags);
            let process = ("/system.slice/kubelet.service".to_owned(), 7, line);
            Ok(kubelet.active.then_some(process).into_iter().collect())
        })
    }

    /// Like systemd, accepts any name: the unit's properties show whether it exists.
    async fn load_unit(
        &self,
        name: String,
        #[zbus(object_server)] server: &ObjectServer,
    ) -> fdo::Result<OwnedObjectPath> {
        let path = unit_path(&name)?;
        let kubelet = (name == KUBELET_UNIT).then(|| self.0.clone());
        // Returns false if the object exists already, which is not an error.
        server.at(&path, Unit { name, kubelet }).await?;
        server.at(&path, Service).await?;
        Ok(path)
    }

    async fn restart_unit(
        &self,
        name: String,
        _mode: &str,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> fdo::Result<OwnedObjectPath> {
        if name != KUBELET_UNIT {
            return Err(fdo::Error::UnknownObject(format!("Unit {name} not found.")));
        }
        let (id, result) = self.0.with(|kubelet| {
            kubelet.restarts += 1;
            (u32::from(kubelet.starts), kubelet.start())
        });
        if result == "call" {
            return Err(fdo::Error::Failed("no job for you".to_owned()));
        }
        let job = ObjectPath::try_from(format!("{MANAGER}/job/{id}"))?;
        let job = OwnedObjectPath::from(job);
        let (emitter, ended) = (emitter.to_owned(), job.clone());
        tokio::spawn(async move {
            // An error means that no client is left on the bus.
            let _ = emitter.job_removed(id, ended, &name, result).await;
        });
        Ok(job)
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: &str,
        result: &str,
    ) -> zbus::Result<()>;
}

/// The unit's name with every byte except letters and digits in hexadecimal.
fn unit_path(name: &str) -> fdo::Result<OwnedObjectPath> {
    let mut path = format!("{MANAGER}/unit/");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() {
            path.push(byte.into());
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    let path = ObjectPath::try_from(path)?;
    Ok(path.into())
}

struct Unit {
    name: String,
    /// `None`: the unit does not exist.
    kubelet: Option<Systemd>,
}

impl Unit {
    fn with<T>(&self, or: T, f: impl FnOnce(&mut Kubelet) -> T) -> T {
        self.kubelet.as_ref().map_or(or, |systemd| systemd.with(f))
    }
}

#[interface(name = "org.freedesktop.systemd1.Unit")]
impl Unit {
    #[zbus(property)]
    fn id(&self) -> String {
        self.name.clone()
    }
    #[zbus(property)]
    fn load_state(&self) -> &'static str {
        self.with("not-found", |_| "loaded")
    }
    #[zbus(property)]
    fn active_state(&self) -> &'static str {
        self.with(
            "inactive",
            |kubelet| {
                if kubelet.active { "active" } else { "failed" }
            },
        )
    }
    #[zbus(property, name = "InvocationID")]
    fn invocation_id(&self) -> Vec<u8> {
        self.with(Vec::new(), |kubelet| {
            [kubelet.boot, kubelet.starts].repeat(8)
        })
    }
    /// Microseconds since 1970.
    #[zbus(property)]
    fn active_enter_timestamp(&self) -> u64 {
        self.with(0, |kubelet| {
            let since = kubelet.active_since.duration_since(UNIX_EPOCH);
            u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
        })
    }
    #[zbus(property)]
    fn active_enter_timestamp_monotonic(&self) -> u64 {
        self.with(0, |kubelet| {
            u64::try_from(kubelet.active_from.as_micros()).unwrap_or(u64::MAX)
        })
    }
    /// A job has always finished before a client can query it.
    #[zbus(property)]
    fn job(&self) -> (u32, OwnedObjectPath) {
        (0, ObjectPath::from_static_str_unchecked("/").into())
    }
}

struct Service;

#[interface(name = "org.freedesktop.systemd1.Service")]
impl Service {
    #[zbus(property, name = "NRestarts")]
    fn n_restarts(&self) -> u32 {
        0
    }
    #[zbus(property)]
    fn exec_start(&self) -> Vec<ExecCommand> {
        let arguments = [KUBELET, "--v=2", "$KUBELET_KUBEADM_ARGS"].map(str::to_owned);
        vec![(
            KUBELET.to_owned(),
            arguments.to_vec(),
            false,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        )]
    }
    #[zbus(property)]
    fn environment_files(&self) -> Vec<(String, bool)> {
        vec![(kubelet::host_flags_file(), true)]
    }
}

/// systemd's format of a command: path, arguments, whether failures are ignored, and times, pid and result of the last
/// run.
type ExecCommand = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);
