//! How content takes effect on a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// systemd unit that runs the kubelet. Auto: the unit that the syncer finds on the node. If that unit runs the control plane
    /// too, or if there is no systemd, the file is written and nothing is restarted.
    #[serde(default = "default_unit")]
    #[schemars(regex(pattern = r"^(Auto|[A-Za-z0-9:_.@-]+\.service)$"))]
    pub unit: String,
    /// Absolute path of the credentials file on the node. Immutable, because content at the old path would never be removed.
    #[serde(default = "default_config_file")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "configFile is immutable: `kubectl globalps install --restore-configuration` brings back the path that the nodes have; to move the file, clean up with `kubectl globalps remove --all --wait`, also with `--source NAME` for each source, then delete and recreate this object",
    }]))]
    #[schemars(regex(pattern = r"^/.+/[^/]+$"))]
    pub config_file: String,
    /// Whether the kubelet is restarted after a change. Without a restart it picks up a change within 5 minutes.
    #[serde(default)]
    pub restart: Restart,
    /// How credentials reach the kubelet. `ConfigFile`: through its credentials file and a restart. `CredentialProvider`: through
    /// a program that the kubelet runs at each pull; a source can have a scope. Only the setup, a registry on a new port and the
    /// first scope need a restart. A node that doesn't support this keeps `ConfigFile` and reports the reason. `None`: nodes get nothing, and those
    /// that have content are restored. `Observe`: `HyperShift`'s own controller delivers, and globalps reports what each node's file has.
    /// `OpenShift`: the entries are merged into `openshift-config/pull-secret`, which the Machine Config Operator brings to the nodes.
    #[serde(default)]
    pub delivery: DeliveryType,
    /// Paths in the kubelet's own credential provider flags. Absent: the kubelet has no such flags yet, and the syncer adds them
    /// to kubeadm's flags file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_provider: Option<ProviderPaths>,
    /// With the delivery `OpenShift`: registries whose entries in `openshift-config/pull-secret` may be replaced although other
    /// programs wrote them, and for which the platform's own entry is not required. What they were comes back with the removal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 512)))]
    pub override_registries: Vec<String>,
}

impl Default for Kubelet {
    fn default() -> Self {
        Self {
            unit: default_unit(),
            config_file: default_config_file(),
            restart: Restart::default(),
            delivery: DeliveryType::default(),
            credential_provider: None,
            override_registries: Vec::new(),
        }
    }
}

/// How credentials reach a kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeliveryType {
    #[default]
    ConfigFile,
    CredentialProvider,
    /// Nothing of globalps runs on nodes; `imagePullSecrets` delivers.
    None,
    /// `HyperShift`'s own controller writes `global-pull-secret`, its `DaemonSet` and the nodes' files; globalps reads them.
    Observe,
    /// The controller writes into the cluster's own pull secret, and `OpenShift`'s Machine Config Operator into the nodes' files;
    /// globalps reads these.
    OpenShift,
}

impl ProviderPaths {
    /// The file name in `config_path`; `None` if the path is a directory.
    pub fn config_file_name(&self) -> Option<&str> {
        let (_, name) = self.config_path.rsplit_once('/')?;
        let is_file = [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end));
        is_file.then_some(name)
    }

    /// The directory of the kubelet's credential provider configuration.
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
    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigFile => "ConfigFile",
            Self::CredentialProvider => "CredentialProvider",
            Self::None => "None",
            Self::Observe => "Observe",
            Self::OpenShift => "OpenShift",
        }
    }

    /// Another program writes the nodes' files: an observer on each node reports what its file has.
    pub fn is_observed(self) -> bool {
        matches!(self, Self::Observe | Self::OpenShift)
    }

    /// Name of the Secret with the revision in force and what the controller keeps of it.
    pub fn record_secret(self) -> &'static str {
        if self.is_observed() {
            names::RECORD_SECRET
        } else {
            names::GLOBAL_SECRET
        }
    }
}

/// Values of the kubelet's flags `--image-credential-provider-config` and `--image-credential-provider-bin-dir`. Their
/// directories are mounted into the syncer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderPaths {
    /// Absolute path: of a file if it ends in `.yaml`, `.yml` or `.json`, otherwise of a directory of such files.
    #[schemars(length(max = 255), regex(pattern = r"^/[A-Za-z0-9._/-]+[^/]$"))]
    pub config_path: String,
    /// Absolute path of the directory with the credential provider binaries.
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
