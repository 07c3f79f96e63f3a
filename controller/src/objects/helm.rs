//! The Helm release that installed the controller. Helm takes over only objects that name their release, so the configuration
//! that the controller creates names it: a later `helm upgrade` with values for it then works.

use std::str::FromStr;

use serde_json::{Value, json};

/// A release, on the command line as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HelmRelease {
    namespace: String,
    name: String,
}

impl HelmRelease {
    /// Labels and annotations of an object of the release. `keep`: Helm does not delete it when a revision lacks it.
    pub(crate) fn metadata(&self) -> Value {
        json!({
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                "helm.sh/resource-policy": "keep",
                "meta.helm.sh/release-name": self.name,
                "meta.helm.sh/release-namespace": self.namespace,
            },
        })
    }
}

impl FromStr for HelmRelease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err("expected NAMESPACE/NAME".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_its_namespace_and_name() {
        let release: HelmRelease = "kube-system/globalps".parse().expect("a release");
        let annotations = &release.metadata()["annotations"];
        assert_eq!(annotations["meta.helm.sh/release-name"], "globalps");
        assert_eq!(annotations["meta.helm.sh/release-namespace"], "kube-system");
        for wrong in ["", "globalps", "/globalps", "kube-system/"] {
            assert!(wrong.parse::<HelmRelease>().is_err(), "{wrong}");
        }
    }
}
