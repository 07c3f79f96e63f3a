//! Causes that lie in the pod or in its Secrets, which their owner changes. Pure.

use super::cause::{Cause, Code, Evidence};
use super::facts::PodSeen;
use super::failing::Failing;
use crate::error::quoted;
use crate::secret::tried::Origin;

impl Evidence<'_> {
    pub(super) fn not_found(&self) -> Cause {
        let image = &self.failing.image;
        self.of(
            Code::ImageNotFound,
            format!("`{}` has no image `{image}` (404)", self.registry),
            self.set_image(&format!("{}:TAG", self.repository)),
            "push the image, or name an existing one. Some registries also answer 404 to users who may not see the repository",
        )
    }

    pub(super) fn invalid_name(&self) -> Cause {
        let image = &self.failing.image;
        self.of(
            Code::InvalidImageName,
            format!("`{image}` is not an image name"),
            self.set_image("IMAGE"),
            "",
        )
    }

    fn set_image(&self, image: &str) -> String {
        let PodSeen {
            namespace,
            workload,
            ..
        } = self.pod;
        let Failing { container, .. } = self.failing;
        format!(
            "kubectl -n {} set image {} {}={}",
            quoted(namespace),
            quoted(workload),
            quoted(container),
            quoted(image)
        )
    }

    pub(super) fn never_pulled(&self) -> Cause {
        let PodSeen {
            namespace,
            workload,
            ..
        } = self.pod;
        let image = &self.failing.image;
        self.of(
            Code::ImageNeverPulled,
            format!("`imagePullPolicy` is `Never`, and the node does not have `{image}`"),
            format!("kubectl -n {} edit {}", quoted(namespace), quoted(workload)),
            "set `imagePullPolicy: IfNotPresent`",
        )
    }

    /// One Secret of the pod that the kubelet can't read keeps it from trying any credential.
    pub(super) fn secret_unreadable(&self, source: &str, origin: &Origin) -> Cause {
        let (command, hint) = self.edit(source, origin);
        self.of(
            Code::SecretUnreadable,
            format!("{source} of the pod can't be read by a kubelet, so it does not pull at all"),
            command,
            hint,
        )
    }

    /// The command that changes a Secret of the pod, and whose it is.
    pub(super) fn edit(&self, source: &str, origin: &Origin) -> (String, &'static str) {
        if let Origin::Catalog(namespace, name) = origin {
            return (
                edit(namespace, name),
                "the pod's Secret is a copy that globalps keeps: put the new credentials into the catalog's pull secret, and globalps copies them",
            );
        }
        let name = source.strip_prefix("Secret ").unwrap_or(source);
        let name = name.split([',', ' ']).next().unwrap_or(name);
        let (namespace, name) = name.split_once('/').unwrap_or((&self.pod.namespace, name));
        (
            edit(namespace, name),
            "the Secret belongs to the namespace; put the new credentials into its data",
        )
    }

    pub(super) fn waits(&self) -> Cause {
        let PodSeen {
            namespace,
            name,
            kept,
            ..
        } = self.pod;
        // Without a controller, deleting it would not bring it back.
        let command = match kept {
            None => format!(
                "kubectl -n {} delete pod {}",
                quoted(namespace),
                quoted(name)
            ),
            Some(_) => String::new(),
        };
        self.of(
            Code::WaitsForRetry,
            format!("`{}` gives out the image by now, asked from this machine", self.registry),
            command,
            "the kubelet also tries again by itself, after 5 min at the latest. If it keeps failing, the node has other credentials or another way to the registry",
        )
    }

    pub(super) fn unknown(&self) -> Cause {
        let PodSeen {
            namespace, name, ..
        } = self.pod;
        self.of(
            Code::Unknown,
            format!(
                "the kubelet says {}: {}",
                self.failing.reason, self.failing.message
            ),
            format!(
                "kubectl -n {} describe pod {}",
                quoted(namespace),
                quoted(name)
            ),
            "the message is not one that globalps knows",
        )
    }
}

fn edit(namespace: &str, name: &str) -> String {
    format!(
        "kubectl -n {} edit secret {}",
        quoted(namespace),
        quoted(name)
    )
}
