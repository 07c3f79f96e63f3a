//! Which units and files a `GlobalPullSecret` may name: those of known kubelets. `install` can allow more.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};

use globalps_core::api::{GlobalPullSecret, ProviderPaths};
use globalps_core::names::{CONFIG_FILE, KUBELET_UNIT_AUTO};

/// systemd units that run a kubelet on known distributions.
const UNITS: [&str; 11] = [
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "microshift.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.k8s.kubelet.service",
    "snap.kubelet.daemon.service",
    "snap.microk8s.daemon-kubelite.service",
];
/// `config.json` in the kubelet's root directory: the default and RKE2, k0s, `MicroK8s`.
const CONFIG_FILES: [&str; 3] = [
    CONFIG_FILE,
    "/var/lib/k0s/kubelet/config.json",
    "/var/snap/microk8s/common/var/lib/kubelet/config.json",
];

/// The paths of credential providers on known distributions: the configuration and the directory of binaries. K3s and
/// RKE2, EKS, AKS, `OpenShift`, GKE.
const PROVIDERS: [(&str, &str); 6] = [
    (
        "/var/lib/rancher/credentialprovider/config.yaml",
        "/var/lib/rancher/credentialprovider/bin",
    ),
    (
        "/etc/eks/image-credential-provider/config.json",
        "/etc/eks/image-credential-provider",
    ),
    (
        "/var/lib/kubelet/credential-provider-config.yaml",
        "/var/lib/kubelet/credential-provider",
    ),
    (
        "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml",
        "/usr/libexec/kubelet-image-credential-provider-plugins",
    ),
    (
        "/etc/srv/kubernetes/cri_auth_config.yaml",
        "/home/kubernetes/bin",
    ),
    (
        "/etc/kubernetes/credential-providers.d",
        "/usr/local/libexec/kubernetes/credential-providers",
    ),
];

/// Allowed values of `spec.kubelet.unit`, `configFile` and `credentialProvider`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    units: Vec<String>,
    config_files: Vec<String>,
    providers: Vec<ProviderPaths>,
}

impl Default for Allowed {
    fn default() -> Self {
        Self::with(&[], &[], &[])
    }
}

impl Allowed {
    /// The known kubelets plus these units and absolute paths.
    pub fn with(units: &[String], config_files: &[String], providers: &[ProviderPaths]) -> Self {
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
            providers: PROVIDERS
                .into_iter()
                .map(|(config_path, bin_dir)| ProviderPaths {
                    config_path: config_path.to_owned(),
                    bin_dir: bin_dir.to_owned(),
                })
                .chain(providers.iter().cloned())
                .collect(),
        }
    }

    /// Values of `spec.kubelet.credentialProvider`.
    pub fn providers(&self) -> &[ProviderPaths] {
        &self.providers
    }

    /// Values of `spec.kubelet.unit`.
    pub fn units(&self) -> &[String] {
        &self.units
    }

    /// Values of `spec.kubelet.configFile`.
    pub fn config_files(&self) -> &[String] {
        &self.config_files
    }

    /// The custom resource with these lists in its schema. An existing object keeps a value that is no longer listed: the API
    /// server validates only changed values (ratcheting).
    pub(super) fn crd(&self) -> CustomResourceDefinition {
        let mut crd = super::schema::crd::<GlobalPullSecret>();
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
                        "{field} must be one of {}; `kubectl globalps install {flag}` allows another value",
                        values.join(", ")
                    )),
                    ..ValidationRule::default()
                };
                let rules = property.x_kubernetes_validations.get_or_insert_default();
                rules.push(rule);
            }
            let pairs = self.providers.iter();
            let pairs: Vec<String> = pairs
                .map(|paths| format!("{} {}", paths.config_path, paths.bin_dir))
                .collect();
            let property = property(schema, &["spec", "kubelet", "credentialProvider"]);
            let rules = property.x_kubernetes_validations.get_or_insert_default();
            rules.push(ValidationRule {
                rule: format!(
                    "(self.configPath + ' ' + self.binDir) in {}",
                    cel_list(&pairs)
                ),
                message: Some(
                    "credentialProvider must name known directories of credential providers; \
                     `kubectl globalps install --allow-provider CONFIG:BIN_DIR` allows others"
                        .to_owned(),
                ),
                ..ValidationRule::default()
            });
        }
        crd
    }
}

/// Panics if the schema has no such field: the path is a constant, and the golden test of the manifests covers it.
fn property<'a>(schema: &'a mut JSONSchemaProps, path: &[&str]) -> &'a mut JSONSchemaProps {
    path.iter().fold(schema, |schema, name| {
        let properties = schema.properties.as_mut();
        properties
            .and_then(|properties| properties.get_mut(*name))
            .expect("a field of the schema")
    })
}

/// A list of strings as a CEL expression.
pub(super) fn cel_list<S: AsRef<str>>(values: &[S]) -> String {
    // CEL string literals are a superset of JSON's.
    serde_json::json!(values.iter().map(AsRef::as_ref).collect::<Vec<_>>()).to_string()
}
