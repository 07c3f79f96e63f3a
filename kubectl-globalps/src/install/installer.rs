//! The program that manages this installation, such as Helm. It would undo the plugin's changes, and its records would
//! not match deleted objects.

use globalps_core::api::{GlobalPullSecret, NodePullSecret};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{CustomResourceExt as _, ResourceExt as _};
use serde_json::Value;

use crate::error::{Failure, Result};
use crate::secret::additional::foreign_owner;

pub(crate) struct Installer {
    /// `Helm`, or the name in the object's field managers.
    name: String,
    /// Name and namespace of the Helm release.
    release: Option<(String, String)>,
}

impl Installer {
    /// `None` if the plugin installed it, or a user with kubectl.
    pub(crate) fn of(deployment: Option<&Deployment>) -> Option<Self> {
        let deployment = deployment?;
        let annotation = |name: &str| deployment.annotations().get(name).cloned();
        let release = annotation("meta.helm.sh/release-name")
            .zip(annotation("meta.helm.sh/release-namespace"));
        let writes_pods = |fields: &Value| fields["f:spec"].get("f:template").is_some();
        let owner = foreign_owner(&deployment.metadata, writes_pods)?;
        // Flux sets the label of a Helm release too, but has a field manager of its own.
        let name = if owner == "helm" {
            "Helm".to_owned()
        } else {
            owner
        };
        Some(Self { name, release })
    }

    /// Refuses to install over another program's installation, unless `force` is set.
    pub(crate) fn may_install(deployment: Option<&Deployment>, force: bool) -> Result<()> {
        match Self::of(deployment) {
            Some(installer) if !force => Err(installer.refusal()),
            _ => Ok(()),
        }
    }

    fn refusal(&self) -> Failure {
        let how = match &self.release {
            Some((name, namespace)) if self.is_helm() => format!(
                "change its values with `helm upgrade {name} CHART -n {namespace} --reset-then-reuse-values`"
            ),
            _ => format!("change it where {} has it from", self.name),
        };
        Failure::new(
            format!("globalps was installed with {}", self.title()),
            format!(
                "{how}; `--force-conflicts` installs over it, and {} may undo that",
                self.name
            ),
        )
    }

    /// The message of `uninstall` about the objects that it leaves.
    pub(crate) fn removal(&self) -> String {
        let how = match &self.release {
            Some((name, namespace)) if self.is_helm() => {
                format!(
                    "remove them with `helm uninstall {name} -n {namespace}`; the definitions stay, until `kubectl delete crd {} {}`",
                    GlobalPullSecret::crd_name(),
                    NodePullSecret::crd_name()
                )
            }
            _ => "remove them there".to_owned(),
        };
        format!(
            "the controller and its other objects belong to {}: {how}",
            self.title()
        )
    }

    fn is_helm(&self) -> bool {
        self.name == "Helm"
    }

    fn title(&self) -> String {
        match &self.release {
            Some((name, namespace)) => {
                format!("{} (release `{name}`, namespace `{namespace}`)", self.name)
            }
            None => self.name.clone(),
        }
    }
}
