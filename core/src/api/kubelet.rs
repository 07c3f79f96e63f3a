//! How content becomes effective on a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// systemd unit that runs the kubelet. Auto: the one that is found on the node; where that is the control plane too,
    /// or where there is no systemd, the file is written and nothing is restarted.
    #[serde(default = "default_unit")]
    #[schemars(regex(pattern = r"^(Auto|[A-Za-z0-9:_.@-]+\.service)$"))]
    pub unit: String,
    /// Absolute path of the credentials file on the node. It can't be changed: what was written at the old path would
    /// never be taken back.
    #[serde(default = "default_config_file")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "configFile can't be changed: delete additional-pull-secret, wait, and delete this object first",
    }]))]
    #[schemars(regex(pattern = r"^/.+/[^/]+$"))]
    pub config_file: String,
    /// Whether the kubelet is restarted after a change. A kubelet that is not takes a change up within 5 minutes.
    #[serde(default)]
    pub restart: Restart,
    /// How credentials reach the kubelet. `ConfigFile`: by its credentials file and a restart. `CredentialProvider`: by a
    /// program that it runs at each pull, so that only a new port of a registry takes a restart, and a source can have a
    /// scope. A node where that can't be set up keeps `ConfigFile` and says why. `None`: no node gets anything, and those
    /// that had something are restored.
    #[serde(default)]
    pub delivery: DeliveryType,
    /// Where the kubelet's own flags for credential providers point to. Absent: it has none yet, and the syncer adds them
    /// to kubeadm's file of flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_provider: Option<ProviderPaths>,
}

impl Default for Kubelet {
    fn default() -> Self {
        Self {
            unit: default_unit(),
            config_file: default_config_file(),
            restart: Restart::default(),
            delivery: DeliveryType::default(),
            credential_provider: None,
        }
    }
}

/// How credentials reach a kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeliveryType {
    #[default]
    ConfigFile,
    CredentialProvider,
    /// Not at all: nothing of globalps runs on a node, and `imagePullSecrets` delivers.
    None,
}

impl ProviderPaths {
    /// The name of the file that `config_path` is; `None`: it is a directory.
    pub fn config_file_name(&self) -> Option<&str> {
        let (_, name) = self.config_path.rsplit_once('/')?;
        let is_file = [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end));
        is_file.then_some(name)
    }

    /// The directory of the kubelet's configuration of providers.
    pub fn config_dir(&self) -> &str {
        let Some(name) = self.config_file_name() else {
            return &self.config_path;
        };
        let dir = self.config_path.strip_suffix(name).unwrap_or_default();
        dir.strip_suffix('/')
            .filter(|dir| !dir.is_empty())
            .unwrap_or("/")
    }
}

impl DeliveryType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigFile => "ConfigFile",
            Self::CredentialProvider => "CredentialProvider",
            Self::None => "None",
        }
    }
}

/// Values of the kubelet's flags `--image-credential-provider-config` and `--image-credential-provider-bin-dir`. Their
/// directories are mounted into the syncer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderPaths {
    /// Absolute path: of a file, where it ends with `.yaml`, `.yml` or `.json`, and else of a directory of such files.
    #[schemars(length(max = 255), regex(pattern = r"^/[A-Za-z0-9._/-]+[^/]$"))]
    pub config_path: String,
    /// Absolute path of the directory with the providers' programs.
    #[schemars(length(max = 255), regex(pattern = r"^/[A-Za-z0-9._/-]+[^/]$"))]
    pub bin_dir: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Restart {
    #[default]
    Always,
    Never,
}

fn default_unit() -> String {
    names::KUBELET_UNIT_AUTO.to_owned()
}
fn default_config_file() -> String {
    names::CONFIG_FILE.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_by_its_ending() {
        for (path, dir, name) in [
            ("/etc/eks/config.json", "/etc/eks", Some("config.json")),
            ("/etc/k/p.yaml", "/etc/k", Some("p.yaml")),
            ("/etc/k/providers.d", "/etc/k/providers.d", None),
            ("/p.yml", "/", Some("p.yml")),
        ] {
            let paths = ProviderPaths {
                config_path: path.to_owned(),
                bin_dir: String::new(),
            };
            assert_eq!((paths.config_dir(), paths.config_file_name()), (dir, name));
        }
    }
}
