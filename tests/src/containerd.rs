//! Another containerd than the machine's for the nodes: the release in the variable `CONTAINERD`, built from the Go module
//! proxy in about two minutes.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::kubernetes::target_dir;
use crate::older_release;

/// Path of the built programs on a node.
const BIN: &str = "/opt/containerd/bin";
/// containerd starts the shim of each pod from its `PATH`.
const PROGRAMS: [&str; 2] = ["containerd", "containerd-shim-runc-v2"];

/// The release that nodes of this process run, such as `v2.4.2`; `None`: that of the machine.
pub fn version() -> Option<String> {
    std::env::var("CONTAINERD")
        .ok()
        .filter(|version| !version.is_empty())
}

/// Directory of the programs after [`build`].
fn directory() -> Option<PathBuf> {
    Some(target_dir().join("containerd").join(version()?))
}

/// Builds the programs unless they exist, or the machine's containerd is wanted.
pub(crate) fn build() -> Result<()> {
    let (Some(directory), Some(version)) = (directory(), version()) else {
        return Ok(());
    };
    ensure!(
        version.starts_with("v2."),
        "`CONTAINERD={version}`: only releases such as v2.4.2 can be built"
    );
    let module = "github.com/containerd/containerd/v2";
    // Without a Go version, the modules that its requirements require would be loaded too.
    let go_mod = format!("module runtime\n\ngo 1.26.0\n\nrequire {module} {version}\n");
    let flags = format!("-s -w -X {module}/version.Version={version}");
    older_release::build_programs(
        &directory,
        &PROGRAMS,
        &flags,
        &format!("{module}/cmd"),
        || Ok(go_mod),
    )
}

/// How systemd-nspawn makes the programs visible on a node.
pub(crate) fn bind() -> Result<Option<String>> {
    let bind = |directory: PathBuf| {
        let directory = std::path::absolute(directory)?;
        Ok(format!("--bind-ro={}:{BIN}", directory.display()))
    };
    directory().map(bind).transpose()
}

/// Command of the unit, and the directories where it finds programs.
pub(crate) fn command() -> (String, String) {
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let directory = version().map_or(Path::new("/usr/bin"), |_| Path::new(BIN));
    (
        directory.join(PROGRAMS[0]).display().to_string(),
        format!("{}:{system}", directory.display()),
    )
}
