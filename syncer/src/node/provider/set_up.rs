//! Location of the provider on a node whose kubelet already has the flags for one.

use std::path::PathBuf;

use globalps_core::names::{KUBEADM_FLAGS_FILE, PROVIDER_BIN_DIR, PROVIDER_CONFIG_FILE};
use globalps_core::reasons::Reason;

use super::{HostPath, Provider, Way};
use crate::node::state::{InstalledProvider, Obstacle, SetUp};

impl Way {
    /// Beside this data file, with flags in kubeadm's file.
    pub(super) fn own(data: &HostPath) -> (HostPath, HostPath, Self) {
        let flags = Self::Flags(data.parent().next_to(KUBEADM_FLAGS_FILE));
        let bin_dir = data.next_to(PROVIDER_BIN_DIR);
        (data.next_to(PROVIDER_CONFIG_FILE), bin_dir, flags)
    }

    pub(super) fn of((config, bin_dir): (HostPath, HostPath)) -> (HostPath, HostPath, Self) {
        let extension = config.host.extension().and_then(|name| name.to_str());
        match extension {
            Some("yaml" | "yml" | "json") => (config, bin_dir, Self::Shared),
            _ => (config.join(PROVIDER_CONFIG_FILE), bin_dir, Self::Directory),
        }
    }
}

impl Provider {
    /// The location where the provider was set up, independently of this program's paths. Fails if its container lacks
    /// the directories.
    pub(crate) fn of_installed(&self, installed: &InstalledProvider) -> Result<Self, Obstacle> {
        if installed.set_up == self.set_up() {
            return Ok(self.clone());
        }
        let Some(SetUp { config, bin_dir }) = &installed.set_up else {
            return Ok(self.own());
        };
        if self.data.here != self.data.host {
            return Err(Obstacle {
                reason: Reason::ForeignProviderConfig,
                message: format!(
                    "this node has the credential provider in `{}` and `{}`, which the syncer's pod does not have; nothing was \
                     changed: set spec.kubelet.credentialProvider to these paths, or restore the node by hand",
                    config.display(),
                    bin_dir.display()
                ),
            });
        }
        let on_node = |path: &PathBuf| HostPath {
            here: path.clone(),
            host: path.clone(),
        };
        Ok(self.at(Way::of((on_node(config), on_node(bin_dir)))))
    }

    /// The location next to the credentials file, which every syncer can access.
    pub(super) fn own(&self) -> Self {
        self.at(Way::own(&self.data))
    }

    fn at(&self, (config, bin_dir, way): (HostPath, HostPath, Way)) -> Self {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use globalps_provider::ProviderConfig;

    use super::*;
    use crate::node::file::FileSnapshot;

    #[test]
    fn an_installed_provider_is_where_it_was_set_up() {
        let path = |here: &str, host: &str| HostPath {
            here: here.into(),
            host: host.into(),
        };
        let eks = |here: &str| {
            let config = format!("{here}/config.json");
            Some((
                path(&config, "/etc/eks/config.json"),
                path(here, "/etc/eks"),
            ))
        };
        let own = "/k/.globalps/globalps-credential-provider.yaml";
        #[rustfmt::skip]
        let cases = [
            ("/k", None, None, Some(own)),
            ("/k", eks("/host/bin"), None, Some(own)),
            ("/host/k", eks("/host/bin"), None, Some("/host/k/.globalps/globalps-credential-provider.yaml")),
            ("/k", None, eks(""), Some("/etc/eks/config.json")),
            ("/host/k", eks("/host/bin"), eks(""), Some("/host/bin/config.json")),
            ("/host/k", None, eks(""), None),
            ("/host/k", Some((path("/a", "/a"), path("/b", "/b"))), eks(""), None),
        ];
        for (kubelet, started_with, set_up_with, expected) in cases {
            let file = path(&format!("{kubelet}/config.json"), "/k/config.json");
            let at = |paths| Provider::new("/program".into(), &file, paths);
            let installed = InstalledProvider {
                data: FileSnapshot::Absent,
                config: ProviderConfig::default(),
                tokens: false,
                set_up: at(set_up_with).set_up(),
            };
            let found = at(started_with).of_installed(&installed);
            let config = found.as_ref().ok().map(|found| &*found.config.here);
            assert_eq!(config, expected.map(Path::new), "{kubelet}");
            let set_up = found.ok().map(|found| found.set_up());
            assert!(set_up.is_none_or(|set_up| set_up == installed.set_up));
        }
    }
}
