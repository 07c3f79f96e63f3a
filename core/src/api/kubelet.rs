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
}

impl Default for Kubelet {
    fn default() -> Self {
        Self {
            unit: default_unit(),
            config_file: default_config_file(),
            restart: Restart::default(),
        }
    }
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
