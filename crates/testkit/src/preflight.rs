//! Checks what a machine needs before anything is started, and reports everything that is missing at once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::mounts;
use crate::run::step;

/// Debian packages, each with a file that shows whether it is installed.
const PACKAGES: [(&str, &str); 13] = [
    ("systemd-container", "/usr/bin/systemd-nspawn"),
    ("containerd", "/usr/bin/containerd"),
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/ptp"),
    ("docker-registry", "/usr/bin/docker-registry"),
    ("apache2-utils", "/usr/bin/htpasswd"),
    ("iproute2", "/usr/bin/ip"),
    ("iptables", "/usr/sbin/iptables"),
    ("dbus", "/usr/bin/dbus-daemon"),
    ("util-linux", "/usr/bin/nsenter"),
    ("musl-tools", "/usr/bin/musl-gcc"),
    ("skopeo", "/usr/bin/skopeo"),
    ("strace", "/usr/bin/strace"),
];

/// Images contain static programs.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Fails with an error that lists everything a cluster in this directory would lack, with the commands that fix it.
pub fn check(dir: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "a test cluster needs root, for namespaces, mounts and a bridge: run it again with `sudo --preserve-env=PATH`"
        );
    }
    let mut problems = Vec::new();
    let missing = missing_packages();
    if !missing.is_empty() {
        let names = missing.join(" ");
        problems.push(format!(
            "packages are missing: run `apt-get update && apt-get install --yes {names}`"
        ));
    }
    if !Path::new("/dev/kmsg").exists() {
        problems.push("there is no /dev/kmsg, which the kubelet reads: run `mknod /dev/kmsg c 1 11`, or use a virtual machine instead of a container".to_owned());
    }
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
        && !Path::new("/sys/fs/cgroup/systemd").exists()
    {
        problems.push("no control groups are mounted at /sys/fs/cgroup: use a machine that systemd or a virtual machine monitor has set up".to_owned());
    }
    for directory in ["/usr/bin", "/etc", "/usr/lib/systemd"] {
        if device(Path::new(directory))? != device(Path::new("/"))? {
            problems.push(format!("`{directory}` is on another file system than `/`, so nodes would not see it: use a machine with one root file system"));
        }
    }
    if let Err(error) = try_overlay(dir) {
        problems.push(format!("overlayfs does not work in `{}`: {error:#}: run `modprobe overlay`, or use a directory on ext4 or xfs", dir.display()));
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!(
        "this machine cannot run a test cluster yet:\n- {}",
        problems.join("\n- ")
    )
}

/// Installs the packages and the Rust target that are missing and prints what it installs. Needs root and Debian.
pub fn install() -> Result<()> {
    let missing = missing_packages();
    if !missing.is_empty() {
        let names = missing.join(" ");
        let able = rustix::process::geteuid().is_root() && Path::new("/usr/bin/apt-get").exists();
        if !able {
            bail!(
                "packages are missing: as root, run `apt-get update && apt-get install --yes {names}`"
            );
        }
        eprintln!("installing {names}");
        let _quiet = NoServices::begin()?;
        step(Command::new("apt-get").args(["update", "--quiet=2"]))?;
        step(
            Command::new("apt-get")
                .args(["install", "--yes", "--quiet=2", "--no-install-recommends"])
                .args(&missing)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )?;
    }
    install_target(TARGET)
}

/// Installs a target of the Rust compiler, such as `x86_64-unknown-linux-musl`, unless it is there.
pub fn install_target(target: &str) -> Result<()> {
    if rust_target_is_there(target) {
        return Ok(());
    }
    eprintln!("installing the Rust target {target}");
    step(Command::new("rustup").args(["target", "add", target]))
}

fn missing_packages() -> Vec<&'static str> {
    // If /bin and /usr/bin are separate directories, a program may be in either.
    let there = |file: &str| {
        Path::new(file).exists() || Path::new(file.trim_start_matches("/usr")).exists()
    };
    PACKAGES
        .iter()
        .filter(|(_, file)| !there(file))
        .map(|(package, _)| *package)
        .collect()
}

fn rust_target_is_there(target: &str) -> bool {
    Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists())
}

/// Debian starts the services of newly installed packages, here a registry that listens on every address, unless
/// `policy-rc.d` forbids it.
struct NoServices {
    made: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoServices {
    fn begin() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let made = !Path::new(POLICY).exists();
        if made {
            fs::write(POLICY, "#!/bin/sh\nexit 101\n").context("could not write policy-rc.d")?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self { made })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.made {
            let _ = fs::remove_file(POLICY);
        }
    }
}

fn device(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path)
        .with_context(|| format!("could not read the metadata of `{}`", path.display()))?
        .dev())
}

/// Mounts an overlay and unmounts it again, because no list of kernels and file systems shows whether this works.
fn try_overlay(dir: &Path) -> Result<()> {
    let existing = dir
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"));
    let trial = tempfile::Builder::new()
        .prefix(".overlay")
        .tempdir_in(existing)?;
    for name in ["upper", "work", "root"] {
        fs::create_dir(trial.path().join(name))?;
    }
    let at = |name: &str| trial.path().join(name);
    mounts::overlay(&at("upper"), &at("work"), &at("root"))?;
    mounts::unmount_below(trial.path())
}
