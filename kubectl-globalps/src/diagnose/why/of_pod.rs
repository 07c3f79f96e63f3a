//! Causes in the pod or its Secrets, which their owner has to fix. Pure.

use super::cause::{Cause, Code, Evidence};
use super::facts::PodSeen;
use super::failing::{Said, Use};
use super::named::Runtime;
use crate::diagnose::check::{WITHOUT_POLICIES, install_delivery};
use crate::diagnose::tried::{NoReference, Obstacle, Origin};
use crate::error::quoted;

const BORN_WITH: &str = "a pod keeps the references that it was created with";
const CONTAINERD: &str = "containerd reads its name (`sandbox`, before 2.0 `sandbox_image`) and its credentials (`registry.configs`, or a header in `hosts.toml`) from its own configuration, and not the kubelet's file";
const CRIO: &str = "CRI-O reads its name (`pause_image`) and the file with its credentials (`pause_image_auth_file`, else `global_auth_file`) from its own configuration; only if that is the kubelet's file, as on OpenShift, does globalps write them";

impl Evidence<'_> {
    pub(super) fn not_found(&self) -> Cause {
        let image = &self.failing.image;
        self.of(
            Code::ImageNotFound,
            format!("`{}` has no image `{image}` (404)", self.registry),
            self.set_image(&format!("{}:TAG", self.repository)),
            &self.with_place("push the image, or name an existing one. Some registries also answer 404 to users who may not see the repository"),
        )
    }

    pub(super) fn invalid_name(&self) -> Cause {
        let image = &self.failing.image;
        self.of(
            Code::InvalidImageName,
            format!("`{image}` is not an image name"),
            self.set_image("IMAGE"),
            &self.with_place(""),
        )
    }

    /// The command that sets another image; empty if none can.
    fn set_image(&self, image: &str) -> String {
        let PodSeen {
            namespace,
            name,
            workload,
            ..
        } = self.pod;
        let workload = workload.clone().unwrap_or_else(|| format!("pod/{name}"));
        match self.failing.used {
            Use::Container if !self.pod.is_static => format!(
                "kubectl -n {} set image {} {}={}",
                quoted(namespace),
                quoted(&workload),
                quoted(&self.failing.container),
                quoted(image)
            ),
            Use::Volume(_) => self.edit_workload(),
            _ => String::new(),
        }
    }

    /// The pod itself can't be edited: only the images of its containers can change.
    fn edit_workload(&self) -> String {
        let namespace = quoted(&self.pod.namespace);
        let workload = self.pod.workload.as_deref();
        let edit = |workload| format!("kubectl -n {namespace} edit {}", quoted(workload));
        workload.map(edit).unwrap_or_default()
    }

    /// The hint, and where the image is named if the command changes something else.
    fn with_place(&self, hint: &str) -> String {
        let place = match &self.failing.used {
            Use::Volume(name) => format!("the image is the `reference` of volume `{name}`"),
            Use::Ephemeral => {
                "an ephemeral container can't be changed: `kubectl debug` adds another one"
                    .to_owned()
            }
            _ if self.pod.is_static => {
                format!("the pod is static: change its file on `{}`", self.pod.node)
            }
            _ => return hint.to_owned(),
        };
        let between = if hint.is_empty() { "" } else { "; " };
        format!("{place}{between}{hint}")
    }

    /// The kubelet reports the same whether the image is missing, or may not be used by this pod.
    pub(super) fn never_pulled(&self) -> Cause {
        let (image, node) = (&self.failing.image, &self.pod.node);
        let field = match self.failing.used {
            Use::Volume(_) => "pullPolicy",
            _ => "imagePullPolicy",
        };
        let set = format!("set `{field}: IfNotPresent`");
        let (code, message, hint) = if self.is_present {
            (
                Code::ImageNotAllowed,
                format!(
                    "`{field}` is `Never`, and `{node}` has `{image}`, but not for this pod: it was pulled with credentials that the pod does not have"
                ),
                format!(
                    "{set}: the kubelet then asks the registry with the credentials of this pod, and pulls nothing that is there"
                ),
            )
        } else {
            (
                Code::ImageNeverPulled,
                format!("`{field}` is `Never`, and the node does not have `{image}` for this pod"),
                format!(
                    "{set}. Since Kubernetes 1.35 the kubelet says the same of an image that it pulled with a pull secret which this pod does not have"
                ),
            )
        };
        let command = match self.failing.used {
            Use::Ephemeral => String::new(),
            _ => self.edit_workload(),
        };
        self.of(code, message, command, &self.with_place(&hint))
    }

    pub(super) fn unsigned(&self) -> Cause {
        let (image, node) = (&self.failing.image, &self.pod.node);
        self.of(
            Code::SignatureRejected,
            format!("`{node}` takes signed images only, and rejects the signature of `{image}`"),
            String::new(),
            "credentials don't fix it: sign the image, or change the signature policy of the node's container runtime",
        )
    }

    /// Neither the pod's nor globalps' credentials apply to the sandbox image.
    pub(super) fn sandbox(&self) -> Cause {
        let (registry, image, message) =
            (self.registry, &self.failing.image, &self.failing.message);
        let what = match self.failing.said() {
            Said::Denied => format!("`{registry}` needs a login, or rejects the runtime's"),
            Said::Missing => format!("`{registry}` has no such image (404)"),
            Said::RateLimited => format!("`{registry}` limits the rate of pulls (429)"),
            _ => message.clone(),
        };
        let config = match Runtime::of(message) {
            Runtime::Containerd => CONTAINERD.to_owned(),
            Runtime::Crio => CRIO.to_owned(),
            Runtime::Unknown => format!("{CONTAINERD}; {CRIO}"),
        };
        self.of(
            Code::SandboxImage,
            format!("the container runtime of `{}` can't pull `{image}`, the image of every pod's sandbox: {what}", self.pod.node),
            String::new(),
            &format!("no pull secret of a pod is used for it, and no credential provider. {config}. An image that needs no login, or one that is imported on each node, needs no credentials"),
        )
    }

    /// A single Secret that the kubelet can't read prevents it from trying any credential of the pod.
    pub(super) fn secret_unreadable(&self, source: &str, origin: &Origin) -> Cause {
        let (command, hint) = self.edit(source, origin);
        self.of(
            Code::SecretUnreadable,
            format!("{source} of the pod can't be read by a kubelet, so it does not pull at all"),
            command,
            &hint,
        )
    }

    /// The reference comes with a new pod, unless something keeps it from getting one.
    pub(super) fn without_reference(&self, missing: &NoReference) -> Cause {
        let restart = self.pod.restart();
        // A new pod would not have the ephemeral container.
        let restart = restart.filter(|_| self.failing.used != Use::Ephemeral);
        let (command, hint) = match (&missing.obstacle, restart) {
            (Some(Obstacle::Policy), _) => (
                install_delivery(&missing.secret),
                format!(
                    "it restores the admission policy that adds the reference to new pods{WITHOUT_POLICIES}; then create the pod again"
                ),
            ),
            (Some(Obstacle::ServiceAccount), _) => (
                String::new(),
                format!(
                    "`spec.imagePullSecrets.serviceAccounts` does not name `{}`: name it there, then create the pod again",
                    self.pod.service_account
                ),
            ),
            (None, Some(command)) => (command, BORN_WITH.to_owned()),
            (None, None) => (
                String::new(),
                format!(
                    "{BORN_WITH}: create it again as it was created. There is no command for such pods: {}",
                    self.pod
                        .kept
                        .unwrap_or("a new pod would not have the ephemeral container")
                ),
            ),
        };
        let message = format!(
            "the pod has no reference to Secret `{}/{}`, which has a credential for `{}`",
            missing.namespace, missing.secret, self.registry
        );
        self.of(Code::NoReference, message, command, &hint)
    }

    pub(crate) fn namespace_terminating(&self) -> Cause {
        let namespace = &self.pod.namespace;
        self.of(
            Code::NamespaceTerminating,
            format!("namespace `{namespace}` is being deleted, and the pod with it"),
            String::new(),
            "",
        )
    }

    /// The command that changes a Secret of the pod, and the Secret's owner.
    pub(super) fn edit(&self, source: &str, origin: &Origin) -> (String, String) {
        if let Origin::Catalog(namespace, name) = origin {
            return (
                edit(namespace, name),
                "the pod's Secret is a copy that globalps keeps: put the new credentials into the catalog's pull secret, and globalps copies them".to_owned(),
            );
        }
        if let Origin::Kept(why) = origin {
            return (String::new(), why.clone());
        }
        let name = source.strip_prefix("Secret ").unwrap_or(source);
        let name = name.split([',', ' ']).next().unwrap_or(name);
        let (namespace, name) = name.split_once('/').unwrap_or((&self.pod.namespace, name));
        (
            edit(namespace, name),
            "the Secret belongs to the namespace; put the new credentials into its data".to_owned(),
        )
    }

    pub(super) fn waits(&self) -> Cause {
        let PodSeen {
            namespace,
            name,
            kept,
            ..
        } = self.pod;
        // Without a controller, nothing would recreate the deleted pod.
        let command = match kept {
            // A new pod would not have the ephemeral container.
            None if self.failing.used != Use::Ephemeral => format!(
                "kubectl -n {} delete pod {}",
                quoted(namespace),
                quoted(name)
            ),
            _ => String::new(),
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
        let hint = match self.failing.said() {
            _ if self.failing.image.is_empty() => {
                "the message does not say whether the container's own image is meant, or that of one of its volumes"
            }
            Said::NotAccess => "credentials don't fix it",
            _ => "the message is not one that globalps knows",
        };
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
            hint,
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
