//! Which units and files an editor of the `GlobalPullSecret` can name: those of kubelets. `install` widens the lists.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::CustomResourceExt as _;

use crate::api::GlobalPullSecret;
use crate::names::{CONFIG_FILE, KUBELET_UNIT_AUTO};

/// systemd units that run a kubelet, of every distribution known to have one.
const UNITS: [&str; 10] = [
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.k8s.kubelet.service",
    "snap.kubelet.daemon.service",
    "snap.microk8s.daemon-kubelite.service",
];
/// `config.json` in the root directory of a kubelet: everybody's and RKE2's, k0s', `MicroK8s`'.
const CONFIG_FILES: [&str; 3] = [
    CONFIG_FILE,
    "/var/lib/k0s/kubelet/config.json",
    "/var/snap/microk8s/common/var/lib/kubelet/config.json",
];

/// What `spec.kubelet.unit` and `spec.kubelet.configFile` can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    units: Vec<String>,
    config_files: Vec<String>,
}

impl Default for Allowed {
    fn default() -> Self {
        Self::with(&[], &[])
    }
}

impl Allowed {
    /// The known kubelets, and these units and absolute paths.
    pub fn with(units: &[String], config_files: &[String]) -> Self {
        let all = |known: &[&str], more: &[String]| {
            let mut all: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
            for name in more {
                if !all.contains(name) {
                    all.push(name.clone());
                }
            }
            all
        };
        Self {
            units: all(&[&[KUBELET_UNIT_AUTO], &UNITS[..]].concat(), units),
            config_files: all(&CONFIG_FILES, config_files),
        }
    }

    /// Values of `spec.kubelet.unit`.
    pub fn units(&self) -> &[String] {
        &self.units
    }

    /// Values of `spec.kubelet.configFile`.
    pub fn config_files(&self) -> &[String] {
        &self.config_files
    }

    /// The custom resource with these lists in its schema. An object with another value keeps it: the API server
    /// validates only values that change (ratcheting).
    pub(super) fn crd(&self) -> CustomResourceDefinition {
        let mut crd = GlobalPullSecret::crd();
        for version in &mut crd.spec.versions {
            let schema = version.schema.as_mut();
            let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
                continue;
            };
            for (field, values, flag) in [
                ("unit", &self.units, "--allow-unit NAME.service"),
                ("configFile", &self.config_files, "--allow-config-file PATH"),
            ] {
                let property = property(schema, &["spec", "kubelet", field]);
                let rule = ValidationRule {
                    rule: format!("self in {}", cel_list(values)),
                    message: Some(format!(
                        "{field} is none of {}; `kubectl globalps install {flag} --apply` allows another one",
                        values.join(", ")
                    )),
                    ..ValidationRule::default()
                };
                let rules = property.x_kubernetes_validations.get_or_insert_default();
                rules.push(rule);
            }
        }
        crd
    }
}

/// Panics where the schema has no such field: the path is a constant, and the golden test of the manifests follows it.
fn property<'a>(schema: &'a mut JSONSchemaProps, path: &[&str]) -> &'a mut JSONSchemaProps {
    path.iter().fold(schema, |schema, name| {
        let properties = schema.properties.as_mut();
        properties
            .and_then(|properties| properties.get_mut(*name))
            .expect("a field of the schema")
    })
}

/// A list of strings as an expression of CEL.
pub(super) fn cel_list<S: AsRef<str>>(values: &[S]) -> String {
    // CEL reads strings as JSON writes them.
    serde_json::json!(values.iter().map(AsRef::as_ref).collect::<Vec<_>>()).to_string()
}
