//! One node: a systemd-nspawn machine.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::kubernetes::bin_dir;
use crate::layout::Layout;
use crate::node_files::{self, BIN, EMPTIED, KUBEADM_FLAGS};
use crate::pki::{Authority, write_private};
use crate::process::{kill, marked, parent, pids, spawn, started, tail};
use crate::runtime::Runtime;
use crate::state::NodeState;
use crate::wait::{DEADLINE, until};
use crate::{cgroup, mounts, net, objects};

/// A node of a cluster. This is a handle: dropping it does nothing.
#[derive(Clone)]
pub struct Node {
    layout: Layout,
    state: NodeState,
    /// The init that was found last, with its start time and parent. Cached, because finding it reads the environment
    /// of every process.
    found: Arc<Mutex<Option<(u32, u64, u32)>>>,
}

/// Output of a command on a node.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Standard output; an error with standard error if the command failed.
    pub fn ok(self) -> Result<String> {
        if !self.status.success() {
            bail!(
                "the command on the node failed ({}): {}",
                self.status,
                self.stderr.trim()
            );
        }
        Ok(self.stdout)
    }
}

impl Node {
    pub(crate) fn new(layout: &Layout, state: NodeState) -> Self {
        Self {
            layout: layout.clone(),
            state,
            found: Arc::default(),
        }
    }

    /// Name of the Node, which is also its host name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    pub fn ip(&self) -> Ipv4Addr {
        self.layout.node_ip(self.state.index)
    }

    /// The node's `/var/lib/kubelet`, as a path on the machine. It exists while the node is down too.
    pub fn kubelet_dir(&self) -> PathBuf {
        self.dir().join("kubelet")
    }

    /// The node's root, as a path on the machine; does not include mounts that the node itself made.
    pub fn root(&self) -> PathBuf {
        self.dir().join("root")
    }

    /// Directories that belong to the node alone, unlike the programs, which it shares with the machine. Paths on the
    /// machine.
    pub(crate) fn own_directories(&self) -> [PathBuf; 3] {
        ["upper", "kubelet", "containerd"].map(|name| self.dir().join(name))
    }

    /// The node's console output: the whole journal since its first boot.
    pub fn log(&self) -> PathBuf {
        self.layout.log(self.name())
    }

    pub fn is_running(&self) -> Result<bool> {
        Ok(self.machine()?.is_some())
    }

    /// Runs a command on the node as root, and waits until it exits.
    pub fn exec(&self, command: &[&str]) -> Result<Output> {
        let output = self
            .command(command)?
            .stdin(Stdio::null())
            .output()
            .context("could not run `nsenter`")?;
        Ok(Output {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// A command that runs on the node, for the caller to start with its own input and output.
    pub fn command(&self, command: &[impl AsRef<std::ffi::OsStr>]) -> Result<Command> {
        let leader = self
            .leader()?
            .with_context(|| format!("{} is down", self.name()))?;
        let mut nsenter = Command::new("nsenter");
        nsenter
            .args([
                "--target",
                &leader.to_string(),
                "--all",
                "--root",
                "--wd",
                "--",
            ])
            .args(command)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", "/root")
            .env(
                "TERM",
                std::env::var_os("TERM").unwrap_or_else(|| "dumb".into()),
            );
        Ok(nsenter)
    }

    /// Boots a node that is down. Returns when its systemd runs; see [`Self::wait_ready`].
    pub fn boot(&self) -> Result<()> {
        if self.is_running()? {
            bail!("{} is running", self.name());
        }
        let (bridge, name) = (self.layout.bridge(), self.name());
        let root = self.root();
        if !mounts::is_mounted(&root)? {
            mounts::overlay(&self.dir().join("upper"), &self.dir().join("work"), &root)?;
        }
        cgroup::remove(&bridge, Some(name))?;
        let groups = cgroup::create(&bridge, name)?;
        // nspawn starts in its own control groups: if it moved later, its children would stay in the wrong ones.
        let mut machine = Command::new("sh");
        machine
            .args([
                "-ec",
                r#"while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@""#,
                "sh",
            ])
            .args(groups)
            .arg("--")
            .arg("systemd-nspawn")
            .arg("--directory")
            .arg(&root)
            .arg(format!("--machine={bridge}-{name}"))
            .arg(format!("--hostname={name}"))
            .arg(format!("--network-bridge={bridge}"))
            .arg(format!(
                "--bind-ro={}:{BIN}",
                std::path::absolute(bin_dir())?.display()
            ))
            .arg(self.bind("kubelet"))
            .arg(self.bind("containerd"))
            .args(Runtime::wanted().bind()?)
            // The kubelet watches the kernel's log for processes killed by the OOM killer.
            .arg("--bind=/dev/kmsg")
            .args([
                "--quiet",
                "--boot",
                "--register=no",
                "--keep-unit",
                "--settings=no",
                "--link-journal=no",
            ])
            .args([
                "--capability=all",
                "--system-call-filter=add_key keyctl bpf",
            ])
            .arg("--setenv=SYSTEMD_COLORS=0")
            // Otherwise /proc/sys is read-only, and the kubelet cannot start its container manager.
            .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "yes");
        spawn(&self.layout, name, &mut machine)?;
        // During an exec, the environment of a process, and with it our variable, is unreadable for a moment.
        let mut unseen = 0;
        until(
            &format!("the start of {name}"),
            DEADLINE,
            Duration::from_millis(20),
            || {
                unseen = if self.machine()?.is_none() {
                    unseen + 1
                } else {
                    0
                };
                if unseen > 10 {
                    bail!("{name} died; the end of its log:\n{}", tail(&self.log(), 5));
                }
                self.leader()
            },
        )?;
        net::route(&self.layout, self.state.index)
    }

    /// Cuts the node's power: kills its init and with it every process. The node stays down.
    pub fn power_cut(&self) -> Result<()> {
        let leader = self
            .leader()?
            .with_context(|| format!("{} is down", self.name()))?;
        kill(leader);
        self.wait_down(DEADLINE)
    }

    /// Reboots the node cleanly, with `systemctl reboot`.
    pub fn reboot(&self) -> Result<()> {
        // The outcome is ignored: the reboot may cut off the call.
        self.exec(&["systemctl", "--no-block", "reboot"])?;
        self.wait_down(DEADLINE)?;
        self.boot()
    }

    fn wait_down(&self, deadline: Duration) -> Result<()> {
        until(
            &format!("{} to shut down", self.name()),
            deadline,
            Duration::from_millis(50),
            || Ok((!self.is_running()?).then_some(())),
        )
    }

    /// Waits until the Node, since its last boot, is Ready and accepts pods.
    pub fn wait_ready(&self, deadline: Duration) -> Result<()> {
        until(
            &format!("{} to be Ready", self.name()),
            deadline,
            Duration::from_millis(250),
            || Ok(self.is_ready()?.then_some(())),
        )
    }

    pub fn is_ready(&self) -> Result<bool> {
        let Some(boot) = self.boot_id()? else {
            return Ok(false);
        };
        let nodes = objects::read(&self.layout, "", "nodes")?;
        Ok(is_ready(&nodes, self.name(), &boot))
    }

    /// The kernel's boot id, as the kubelet reports it. `None` if the node is down.
    pub(crate) fn boot_id(&self) -> Result<Option<String>> {
        Ok(self.leader()?.and_then(|leader| {
            let path = format!("/proc/{leader}/root/proc/sys/kernel/random/boot_id");
            Some(fs::read_to_string(path).ok()?.trim().to_owned())
        }))
    }

    /// Creates the node's files, without booting it.
    pub(crate) fn prepare(&self, authority: &Authority) -> Result<()> {
        let dir = self.dir();
        for name in ["root", "upper", "work", "kubelet", "containerd"] {
            fs::create_dir_all(dir.join(name))?;
        }
        let root = self.root();
        mounts::overlay(&dir.join("upper"), &dir.join("work"), &root)?;
        for directory in EMPTIED {
            if root.join(directory).exists() {
                fs::remove_dir_all(root.join(directory))?;
            }
            fs::create_dir_all(root.join(directory))?;
        }
        for (path, content) in node_files::all(&self.layout, &self.state, authority)? {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap_or(&root))?;
            if path
                .extension()
                .is_some_and(|kind| kind == "key" || kind == "kubeconfig")
            {
                write_private(&path, &content)?;
            } else {
                fs::write(&path, content)?;
            }
        }
        fs::write(
            self.kubelet_dir().join(KUBEADM_FLAGS),
            node_files::kubeadm_flags(&self.layout, &self.state),
        )?;
        let wanted = root.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wanted)?;
        for unit in node_files::units() {
            let unit = format!("{unit}.service");
            symlink(
                Path::new("/etc/systemd/system").join(&unit),
                wanted.join(&unit),
            )?;
        }
        Ok(())
    }

    fn dir(&self) -> PathBuf {
        self.layout.node(self.name())
    }

    fn bind(&self, name: &str) -> String {
        format!("--bind={}:/var/lib/{name}", self.dir().join(name).display())
    }

    /// The nspawn process. It and its short-lived helpers have the node's variable; it is their ancestor.
    fn machine(&self) -> Result<Option<u32>> {
        let mut all = marked(&self.layout.bridge())?;
        all.retain(|process| process.component == self.state.name);
        let top = all
            .iter()
            .find(|process| all.iter().all(|other| other.pid != process.parent));
        Ok(top.map(|process| process.pid))
    }

    /// The node's init.
    fn leader(&self) -> Result<Option<u32>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((pid, start, machine)) = *found
            && parent(pid) == Some(machine)
            && started(pid) == Some(start)
        {
            return Ok(Some(pid));
        }
        let leader = self.find_leader()?;
        *found = leader.and_then(|pid| Some((pid, started(pid)?, parent(pid)?)));
        Ok(leader)
    }

    fn find_leader(&self) -> Result<Option<u32>> {
        let Some(machine) = self.machine()? else {
            return Ok(None);
        };
        let own = fs::read_link("/proc/self/ns/pid")?;
        Ok(pids()?.into_iter().find(|pid| {
            parent(*pid) == Some(machine)
                && fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|ns| ns != own)
                && fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name == "systemd\n")
        }))
    }
}

/// Whether this node is Ready in this boot, according to a list of Nodes, without the taints of an unready node.
pub(crate) fn is_ready(nodes: &Value, name: &str, boot: &str) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&nodes["items"]).iter().any(|node| {
        node["metadata"]["name"] == name
            && node["status"]["nodeInfo"]["bootID"] == boot
            && list(&node["status"]["conditions"])
                .iter()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
            && list(&node["spec"]["taints"]).iter().all(|taint| {
                !taint["key"]
                    .as_str()
                    .unwrap_or_default()
                    .starts_with("node.kubernetes.io/")
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_ready_only_in_the_current_boot_without_taints() {
        let node = |status: &str, boot: &str, taints: Value| {
            json!({"items": [{
                "metadata": {"name": "node-1"},
                "spec": {"taints": taints},
                "status": {
                    "nodeInfo": {"bootID": boot},
                    "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": status}],
                },
            }]})
        };
        #[rustfmt::skip]
        let cases = [
            ("ready", node("True", "b", json!(null)), true),
            ("own taint", node("True", "b", json!([{"key": "team"}])), true),
            ("not ready", node("False", "b", json!(null)), false),
            ("unknown", node("Unknown", "b", json!(null)), false),
            ("boot before", node("True", "a", json!(null)), false),
            ("tainted", node("True", "b", json!([{"key": "node.kubernetes.io/not-ready"}])), false),
            ("no nodes", json!({"items": []}), false),
        ];
        for (case, nodes, ready) in cases {
            assert_eq!(is_ready(&nodes, "node-1", "b"), ready, "{case}");
        }
    }
}
