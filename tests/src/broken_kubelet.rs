//! A kubelet that does not start with certain content.

use std::fs;

use anyhow::Result;

use crate::Node;

const FOLDER: &str = "etc/systemd/system/kubelet.service.d";
const FILE: &str = "broken.conf";

/// From now on the node's kubelet does not start while its file names this registry.
pub fn break_kubelet(node: &Node, registry: &str) -> Result<()> {
    let folder = node.root().join(FOLDER);
    fs::create_dir_all(&folder)?;
    let check = format!(
        "[Service]\nExecStartPre=/bin/sh -c '! grep -q {registry} /var/lib/kubelet/config.json'\n"
    );
    fs::write(folder.join(FILE), check)?;
    reload(node)
}

pub fn mend_kubelet(node: &Node) -> Result<()> {
    fs::remove_file(node.root().join(FOLDER).join(FILE))?;
    reload(node)
}

fn reload(node: &Node) -> Result<()> {
    node.exec(&["systemctl", "daemon-reload"])?.ok()?;
    Ok(())
}
