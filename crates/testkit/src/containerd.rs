//! A specific containerd for the nodes instead of the machine's: the release in the variable `CONTAINERD`, built from
//! the Go module proxy in about two minutes.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::kubernetes::target_dir;
use crate::layout::Layout;
use crate::node_files::{NodeFile, file};
use crate::older_release;

/// Path of the built programs on a node.
const BIN: &str = "/opt/containerd/bin";
/// containerd starts the shim of each pod from its `PATH`.
const PROGRAMS: [&str; 2] = ["containerd", "containerd-shim-runc-v2"];

/// The release that nodes of this process run, such as `v2.4.2`; `None`: the machine's.
pub fn version() -> Option<String> {
    std::env::var("CONTAINERD")
        .ok()
        .filter(|version| !version.is_empty())
}

/// Directory of the programs after [`build`].
fn directory() -> Option<PathBuf> {
    Some(target_dir().join("containerd").join(version()?))
}

/// Builds the programs, unless they exist or the machine's containerd is used.
pub(crate) fn build() -> Result<()> {
    let (Some(directory), Some(version)) = (directory(), version()) else {
        return Ok(());
    };
    let module = match version.get(..3) {
        Some("v1.") => "github.com/containerd/containerd",
        Some("v2.") => "github.com/containerd/containerd/v2",
        _ => bail!("`CONTAINERD={version}`: no release such as v2.4.2"),
    };
    // Without a Go version, the build would also load the modules' indirect requirements.
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

/// The option of systemd-nspawn that makes the programs visible on a node.
pub(crate) fn bind() -> Result<Option<String>> {
    let bind = |directory: PathBuf| {
        let directory = std::path::absolute(directory)?;
        Ok(format!("--bind-ro={}:{BIN}", directory.display()))
    };
    directory().map(bind).transpose()
}

/// Files of a node.
pub(crate) fn files(layout: &Layout) -> Vec<NodeFile> {
    let mut files = vec![
        file("etc/containerd/config.toml", config(layout)),
        file("etc/systemd/system/containerd.service", unit()),
    ];
    for registry in [layout.open_registry(), layout.private_registry()] {
        let url = format!("http://{registry}");
        files.push(file(
            &format!("etc/containerd/certs.d/{registry}/hosts.toml"),
            format!("server = \"{url}\"\n[host.\"{url}\"]\n"),
        ));
    }
    let (registry, ca) = (layout.tls_registry(), "/etc/kubernetes/ca.crt");
    files.push(file(
        &format!("etc/containerd/certs.d/{registry}/hosts.toml"),
        format!("server = \"https://{registry}\"\n[host.\"https://{registry}\"]\nca = \"{ca}\"\n"),
    ));
    files
}

fn unit() -> String {
    let (command, path) = command();
    format!(
        "[Unit]
After=node-mounts.service
Requires=node-mounts.service
[Service]
Type=notify
Environment=PATH={path}
ExecStart={command}
Delegate=yes
KillMode=process
Restart=always
LimitNOFILE=infinity
TasksMax=infinity
[Install]
WantedBy=multi-user.target
"
    )
}

fn config(layout: &Layout) -> String {
    // Without restrict_oom_score_adj, no pod starts on a machine that lacks CAP_SYS_RESOURCE.
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{}/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"#,
        layout.open_registry()
    )
}

/// Command of the unit, and the directories in which it finds programs.
fn command() -> (String, String) {
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let directory = version().map_or(Path::new("/usr/bin"), |_| Path::new(BIN));
    (
        directory.join(PROGRAMS[0]).display().to_string(),
        format!("{}:{system}", directory.display()),
    )
}
