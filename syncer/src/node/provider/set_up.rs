//! Where the provider is on a node whose kubelet has flags for one already.

use std::path::PathBuf;

use globalps_core::names::PROVIDER_CONFIG_FILE;

use super::{HostPath, Provider, Way};
use crate::node::state::{Installed, SetUp};

impl Way {
    pub(super) fn of((config, bin_dir): (HostPath, HostPath)) -> (HostPath, HostPath, Self) {
        let extension = config.host.extension().and_then(|name| name.to_str());
        match extension {
            Some("yaml" | "yml" | "json") => (config, bin_dir, Self::Shared),
            _ => (config.join(PROVIDER_CONFIG_FILE), bin_dir, Self::Directory),
        }
    }
}

impl Provider {
    /// The same with the paths with which it was set up, for a program on the node that was started without them.
    pub(crate) fn of_installed(&self, installed: &Installed) -> Self {
        let Some(set_up) = (installed.set_up.as_ref()).filter(|_| self.flags_file().is_some())
        else {
            return self.clone();
        };
        let on_node = |path: &PathBuf| HostPath {
            here: path.clone(),
            host: path.clone(),
        };
        let paths = (on_node(&set_up.config), on_node(&set_up.bin_dir));
        let (config, bin_dir, way) = Way::of(paths);
        Self {
            bin_dir,
            config,
            way,
            ..self.clone()
        }
    }

    pub(super) fn set_up(&self) -> Option<SetUp> {
        let config = match &self.way {
            Way::Flags(_) => return None,
            Way::Directory => self.config.host.parent()?,
            Way::Shared => &self.config.host,
        };
        Some(SetUp {
            config: config.to_owned(),
            bin_dir: self.bin_dir.host.clone(),
        })
    }
}
