//! A system bus for one bare node: the real daemon, on a private socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{DEADLINE, until};

pub(super) struct Bus {
    daemon: Child,
    socket: PathBuf,
}

impl Bus {
    /// Returns when the daemon accepts connections.
    pub(super) fn start(scratch: &Path) -> Result<Self> {
        let socket = socket(scratch);
        let config = scratch.join("bus.conf");
        let text = format!(
            "<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context='default'>\
             <allow own='*'/><allow send_destination='*'/><allow receive_sender='*'/></policy></busconfig>",
            socket.display()
        );
        fs::write(&config, text)?;
        let log = scratch.join("bus.log");
        let daemon = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg(format!("--config-file={}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context(
                "could not run `dbus-daemon`: run `target/debug/testkit cluster preflight --install`",
            )?;
        let bus = Self { daemon, socket };
        until("a bus", DEADLINE, Duration::from_millis(1), || {
            Ok(std::os::unix::net::UnixStream::connect(&bus.socket).ok())
        })
        .with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        Ok(bus)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }
}

/// Path of the bus socket for a node with this scratch directory.
pub(super) fn socket(scratch: &Path) -> PathBuf {
    scratch.join("bus")
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
