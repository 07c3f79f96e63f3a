//! Makes a kubelet fail to start with certain content.

use std::fs;

use anyhow::Result;

use crate::Node;

const DIRECTORY: &str = "etc/systemd/system/kubelet.service.d";
const FILE: &str = "broken.conf";

/// Makes the node's kubelet fail to start while its credentials file contains this registry.
pub fn break_kubelet(node: &Node, registry: &str) -> Result<()> {
    drop_in(
        node,
        &format!("ExecStartPre=/bin/sh -c '! grep -q {registry} /var/lib/kubelet/config.json'"),
    )
}

/// Makes the node's kubelet fail to start while its credentials file does not contain this registry.
pub fn need_in_file(node: &Node, registry: &str) -> Result<()> {
    drop_in(
        node,
        &format!("ExecStartPre=/bin/grep -q {registry} /var/lib/kubelet/config.json"),
    )
}

fn drop_in(node: &Node, line: &str) -> Result<()> {
    let directory = node.root().join(DIRECTORY);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(FILE), format!("[Service]\n{line}\n"))?;
    reload(node)
}

pub fn mend_kubelet(node: &Node) -> Result<()> {
    fs::remove_file(node.root().join(DIRECTORY).join(FILE))?;
    reload(node)
}

fn reload(node: &Node) -> Result<()> {
    node.exec(&["systemctl", "daemon-reload"])?.ok()?;
    Ok(())
}
