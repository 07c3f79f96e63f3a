//! What other programs write to a node's files.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::Node;
use crate::kubeadm::{self, State};

/// kubeadm writes the kubelet's flags to this file, which the nodes' kubelets read.
const FLAGS: &str = "kubeadm-flags.env";
/// kubeadm's upgrade rewrites the first of these files, which these kubelets do not read. It moves the runtime's socket
/// from the flags to the second file, unless that exists.
const OF_KUBEADM: [&str; 2] = ["config.yaml", "instance-config.yaml"];

pub(super) struct Files {
    /// `auth` of each entry that another process wrote, by node and registry.
    foreign: BTreeMap<(String, String), String>,
    /// A program built from kubeadm's code.
    kubeadm: PathBuf,
}

impl Files {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            foreign: BTreeMap::new(),
            kubeadm: kubeadm::build()?,
        })
    }

    /// Node, registry and `auth` of each entry that another process wrote.
    pub(super) fn foreign(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let entries = self.foreign.iter();
        entries.map(|((node, registry), auth)| (node.as_str(), registry.as_str(), auth.as_str()))
    }

    /// Does what `docker login` does: reads the file and replaces it by one with an additional entry.
    pub(super) fn write_entry(&mut self, node: &Node) -> Result<()> {
        let number = self.foreign.len();
        let registry = format!("foreign-{number}.example.com");
        let auth = BASE64_STANDARD.encode(format!("foreign:{number}"));
        let path = node.kubelet_dir().join("config.json");
        let mut config: Value = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).context("the node's file is not JSON")?,
            Err(error) if error.kind() == ErrorKind::NotFound => json!({"auths": {}}),
            Err(error) => return Err(error.into()),
        };
        config["auths"][&registry] = json!({"auth": auth});
        replace(&path, &config.to_string())?;
        self.foreign
            .insert((node.name().to_owned(), registry), auth);
        Ok(())
    }

    /// Upgrades the node with kubeadm after adding the runtime's socket to its flags: kubeadm removes that flag and
    /// sorts the others.
    pub(super) fn rewrite_flags(&self, node: &Node) -> Result<()> {
        let directory = node.kubelet_dir();
        let path = directory.join(FLAGS);
        let flags = std::fs::read_to_string(&path)?;
        let socket = State::RuntimeSocket.flag().context("no flag")?;
        let more = flags.replacen("=\"", &format!("=\"{socket} "), 1);
        ensure!(more != flags, "there are no flags: {flags}");
        replace(&path, &more)?;
        std::fs::write(directory.join(OF_KUBEADM[0]), "{}")?;
        let backups = tempfile::tempdir()?;
        let output = Command::new(&self.kubeadm)
            .args([directory.as_path(), backups.path()])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubeadm failed: {said}");
        for file in OF_KUBEADM {
            std::fs::remove_file(directory.join(file))?;
        }
        Ok(())
    }
}

/// Replaces the whole file.
fn replace(path: &Path, content: &str) -> Result<()> {
    let temporary = path.with_added_extension("of-somebody-else");
    std::fs::write(&temporary, content)?;
    std::fs::rename(&temporary, path)?;
    Ok(())
}
