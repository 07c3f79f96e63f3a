//! Reads a node's credentials file from outside the node.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Node;

/// A credentials file on disk.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigFile {
    pub bytes: Vec<u8>,
    pub mode: u32,
    pub owner: (u32, u32),
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.bytes);
        write!(f, "{text:?} mode {:o} owner {:?}", self.mode, self.owner)
    }
}

/// The node's credentials file with its bytes, mode, owner and group; `None` if it does not exist.
pub fn read(node: &Node) -> Result<Option<ConfigFile>> {
    // Uses a single handle, because the syncer may replace or remove the file meanwhile.
    let mut file = match File::open(node.kubelet_dir().join("config.json")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let meta = file.metadata()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(ConfigFile {
        bytes,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
    }))
}

/// The `auth` of a registry in the node's file, or `None`.
pub fn auth(node: &Node, registry: &str) -> Result<Option<String>> {
    let Some(file) = read(node)? else {
        return Ok(None);
    };
    let config: Value =
        serde_json::from_slice(&file.bytes).context("the node's file is not JSON")?;
    Ok(config["auths"][registry]["auth"]
        .as_str()
        .map(str::to_owned))
}
