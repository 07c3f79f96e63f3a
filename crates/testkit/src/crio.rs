//! CRI-O for the nodes, if the variable `CRIO` names a directory with its programs `crio` and `pinns`. The machine has
//! the other programs that it needs: `conmon` and `runc`.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::layout::Layout;
use crate::node_files::{NodeFile, file};
use crate::pki::Authority;

pub(crate) const SOCKET: &str = "/run/crio/crio.sock";
/// Path of the programs on a node.
const BIN: &str = "/opt/crio/bin";

/// The directory with the programs; `None`: nodes run containerd.
pub fn directory() -> Option<PathBuf> {
    std::env::var_os("CRIO")
        .filter(|directory| !directory.is_empty())
        .map(PathBuf::from)
}

/// The option of systemd-nspawn that makes the programs visible on a node.
pub(crate) fn bind() -> Result<Option<String>> {
    let Some(directory) = directory() else {
        return Ok(None);
    };
    let directory = std::path::absolute(directory)?;
    for program in ["crio", "pinns"] {
        let program = directory.join(program);
        ensure!(
            program.exists(),
            "`CRIO={}`: `{}` does not exist",
            directory.display(),
            program.display()
        );
    }
    Ok(Some(format!("--bind-ro={}:{BIN}", directory.display())))
}

/// Files of a node.
pub(crate) fn files(layout: &Layout, authority: &Authority) -> Vec<NodeFile> {
    let insecure = [layout.open_registry(), layout.private_registry()]
        .map(|registry| format!("[[registry]]\nlocation = \"{registry}\"\ninsecure = true\n"));
    let accept = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    vec![
        file("etc/crio/crio.conf", config(layout)),
        file(RUNC, RUNC_SCRIPT.to_owned()),
        file("etc/systemd/system/crio.service", UNIT.to_owned()),
        file("etc/containers/registries.conf", insecure.concat()),
        file("etc/containers/policy.json", accept.to_owned()),
        file(
            &format!("etc/containers/certs.d/{}/ca.crt", layout.tls_registry()),
            authority.certificate().to_owned(),
        ),
    ]
}

/// Stores images in containerd's directory, which is not on the overlay of the node's root.
fn config(layout: &Layout) -> String {
    format!(
        r#"[crio]
root = "/var/lib/containerd/crio"
runroot = "/run/containers/storage"
storage_driver = "overlay"
[crio.api]
listen = "{SOCKET}"
[crio.runtime]
default_runtime = "runc"
conmon = "/usr/bin/conmon"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
pinns_path = "{BIN}/pinns"
[crio.runtime.runtimes.runc]
runtime_path = "/{RUNC}"
runtime_type = "oci"
runtime_root = "/run/runc"
[crio.image]
pause_image = "{}/pause:1"
[crio.network]
network_dir = "/etc/cni/net.d"
plugin_dirs = ["/usr/lib/cni"]
"#,
        layout.open_registry()
    )
}

const RUNC: &str = "etc/crio/runc";
/// CRI-O has no `restrict_oom_score_adj`, and no container with a negative value starts on a machine that lacks CAP_SYS_RESOURCE.
const RUNC_SCRIPT: &str = r#"#!/bin/sh -e
previous=
for word; do
  test "$previous" != --bundle || sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/' "$word/config.json"
  previous=$word
done
exec /usr/sbin/runc "$@"
"#;

/// If the machine has control groups of both versions, runc uses those of version 1. CRI-O would also set limits in
/// version 2, and no container would start.
const UNIT: &str = "\
[Unit]
After=node-mounts.service
Requires=node-mounts.service
[Service]
Type=notify
ExecStartPre=/bin/sh -ec 'if grep -q ^hugetlb /proc/cgroups && ! grep -q \" cgroup .*hugetlb\" /proc/mounts; \
then grep -v ^hugetlb /proc/cgroups > /run/cgroups; mount --bind /run/cgroups /proc/cgroups; fi'
ExecStartPre=/bin/chmod +x /etc/crio/runc
ExecStart=/opt/crio/bin/crio
Delegate=yes
KillMode=process
Restart=always
LimitNOFILE=infinity
TasksMax=infinity
[Install]
WantedBy=multi-user.target
";
