//! Paths and names of a cluster's files, network and control groups. All follow from its directory and its instance
//! number.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Maximum number of clusters at the same time: their networks are 10.200.0.0/24 to 10.215.0.0/24, and their pods'
/// 10.220.0.0/16 to 10.235.0.0/16.
pub(crate) const INSTANCES: u8 = 16;
/// Nodes are numbered from 1; .1 of the network is the machine itself.
pub(crate) const MAX_NODES: u8 = 200;

/// Service address of the API server, and the network that begins with it.
pub(crate) const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const SERVICE_NETWORK: &str = "10.96.0.0/16";
pub(crate) const API_PORT: u16 = 6443;
/// Not 5000, because Debian's registry service listens there on every address.
pub(crate) const OPEN_PORT: u16 = 5050;
pub(crate) const PRIVATE_PORT: u16 = 5051;
pub(crate) const TLS_PORT: u16 = 5052;

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) instance: u8,
}

impl Layout {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn log(&self, component: &str) -> PathBuf {
        self.path("logs").join(format!("{component}.log"))
    }

    pub(crate) fn pki(&self, name: &str) -> PathBuf {
        self.path("pki").join(name)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.path("nodes").join(name)
    }

    /// Name of the bridge, which also identifies the cluster's processes, machines and control groups.
    pub(crate) fn bridge(&self) -> String {
        bridge(self.instance)
    }

    pub(crate) fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200 + self.instance, 0, 1)
    }

    pub(crate) fn node_ip(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 200 + self.instance, 0, 10 + index)
    }

    pub(crate) fn pod_subnet(&self, index: u8) -> String {
        format!("10.{}.{index}.0/24", 220 + self.instance)
    }

    /// etcd requires no credentials, so it listens on an address that nodes and pods cannot reach.
    pub(crate) fn etcd(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, 90, self.instance, 1)
    }

    pub(crate) fn api_url(&self) -> String {
        format!("https://{}:{API_PORT}", self.gateway())
    }

    pub(crate) fn open_registry(&self) -> String {
        format!("{}:{OPEN_PORT}", self.gateway())
    }

    pub(crate) fn private_registry(&self) -> String {
        format!("{}:{PRIVATE_PORT}", self.gateway())
    }

    pub(crate) fn tls_registry(&self) -> String {
        format!("{}:{TLS_PORT}", self.gateway())
    }
}

pub(crate) fn bridge(instance: u8) -> String {
    format!("gps{instance}")
}

/// The absolute path of the directory. Fails if mount options cannot contain it.
pub(crate) fn usable_dir(dir: &Path) -> Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    let Some(text) = dir.to_str() else {
        bail!("the path `{}` is not UTF-8", dir.display());
    };
    if text.contains([':', ',', '\\', '"', '\n', ' ']) {
        bail!(
            "the path `{text}` contains a colon, comma, quote, backslash or blank, which mount options cannot contain: use another directory"
        );
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn clusters_side_by_side_share_no_address_and_no_name() {
        let mut seen = HashSet::new();
        for instance in 0..INSTANCES {
            let layout = Layout {
                dir: "/x".into(),
                instance,
            };
            assert!(seen.insert(layout.bridge()));
            assert!(seen.insert(layout.gateway().to_string()));
            assert!(seen.insert(layout.etcd().to_string()));
            for index in 1..=MAX_NODES {
                assert!(seen.insert(layout.node_ip(index).to_string()));
                assert!(seen.insert(layout.pod_subnet(index)));
            }
        }
        // Names of network interfaces have at most 15 characters.
        assert!(bridge(INSTANCES - 1).len() < 15);
        assert!(seen.iter().all(|name| !name.starts_with("10.96.")));
    }

    #[test]
    fn a_directory_that_mount_options_cannot_carry_is_refused() {
        for (dir, usable) in [
            ("/work/target/cluster", true),
            ("relative/dir", true),
            ("/a:b", false),
            ("/a,b", false),
            ("/a b", false),
        ] {
            assert_eq!(usable_dir(Path::new(dir)).is_ok(), usable, "{dir}");
        }
    }
}
