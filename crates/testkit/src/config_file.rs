//! Reads a node's credentials file from outside the node.

use std::os::unix::fs::MetadataExt;

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

/// The node's credentials file with its bytes, mode, owner and group, if it exists.
pub fn read(node: &Node) -> Result<Option<ConfigFile>> {
    let path = node.kubelet_dir().join("config.json");
    match std::fs::metadata(&path) {
        Ok(meta) => Ok(Some(ConfigFile {
            bytes: std::fs::read(&path)?,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
        })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The `auth` of a registry in the node's file, if it has one.
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
