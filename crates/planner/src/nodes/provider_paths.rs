//! The directories of the kubelet's credential providers, which a syncer gets from its pod template. Its pod has them before a
//! node switches to the provider, and keeps them until no node has it. Pure.

use globalps_core::api::{
    DeliveryType, GlobalPullSecretSpec, Kubelet, NodePullSecret, ProviderPaths,
};
use globalps_provider::Delivery;

use crate::content::secret::Global;

/// The syncers' pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPods {
    /// Directories that they mount; `None`: none.
    pub paths: Option<ProviderPaths>,
    /// All have the current template.
    pub are_current: bool,
}

/// How the current delivery deviates from the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// As the spec says.
    None,
    /// The provider waits for new syncer pods.
    WaitsForPods,
    /// Nodes have the provider in the directories of the pods, which the adjusted spec keeps; the user's spec has others.
    Keeps,
}

/// Adjusts the spec to what the syncers' pods support.
pub fn fit(
    spec: &mut GlobalPullSecretSpec,
    pods: Option<ProviderPods>,
    is_on_nodes: bool,
) -> Deviation {
    let Kubelet {
        delivery,
        credential_provider: asked,
        ..
    } = &mut spec.kubelet;
    let Some(pods) = pods else {
        // They are created according to the spec before any node gets content. If only their DaemonSet was deleted, nothing says
        // in which directories nodes have the provider: each syncer removes its own from there, or reports that it can't.
        return Deviation::None;
    };
    if is_on_nodes && pods.paths != *asked {
        *asked = pods.paths;
        return Deviation::Keeps;
    }
    let has_pods = pods.paths == *asked && (asked.is_none() || pods.are_current);
    if !is_on_nodes && *delivery == DeliveryType::CredentialProvider && !has_pods {
        *delivery = DeliveryType::ConfigFile;
        return Deviation::WaitsForPods;
    }
    Deviation::None
}

/// Whether a node may have the provider.
pub fn is_on_nodes<'a>(
    global: Option<&Global>,
    mut objects: impl Iterator<Item = &'a NodePullSecret>,
) -> bool {
    let content = global.and_then(|global| global.content.as_ref());
    content.is_some_and(|content| content.delivery != Delivery::ConfigFile)
        || objects.any(reports_provider)
}

/// Whether the node reports that it has the provider.
pub fn reports_provider(object: &NodePullSecret) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.delivery == DeliveryType::CredentialProvider.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_the_directories_before_setup_and_until_removal() {
        let eks = || {
            Some(ProviderPaths {
                config_path: "/etc/eks/config.json".to_owned(),
                bin_dir: "/etc/eks".to_owned(),
            })
        };
        let (file, provider) = (DeliveryType::ConfigFile, DeliveryType::CredentialProvider);
        let pods = |paths, are_current| Some(ProviderPods { paths, are_current });
        let waits = Deviation::WaitsForPods;
        for (case, asked, pods, is_on_nodes, expected, deviation) in [
            (
                "no pods",
                (provider, eks()),
                None,
                false,
                (provider, eks()),
                Deviation::None,
            ),
            (
                "their DaemonSet was deleted",
                (provider, eks()),
                None,
                true,
                (provider, eks()),
                Deviation::None,
            ),
            (
                "flags in kubeadm's file",
                (provider, None),
                pods(None, false),
                false,
                (provider, None),
                Deviation::None,
            ),
            (
                "old pods",
                (provider, eks()),
                pods(None, true),
                false,
                (file, eks()),
                waits,
            ),
            (
                "some old pods",
                (provider, eks()),
                pods(eks(), false),
                false,
                (file, eks()),
                waits,
            ),
            (
                "with additional directories",
                (provider, None),
                pods(eks(), true),
                false,
                (file, None),
                waits,
            ),
            (
                "new pods",
                (provider, eks()),
                pods(eks(), true),
                false,
                (provider, eks()),
                Deviation::None,
            ),
            (
                "in force, pods start",
                (provider, eks()),
                pods(eks(), false),
                true,
                (provider, eks()),
                Deviation::None,
            ),
            (
                "other paths while in force",
                (provider, None),
                pods(eks(), true),
                true,
                (provider, eks()),
                Deviation::Keeps,
            ),
            (
                "removal together with the paths",
                (file, None),
                pods(eks(), true),
                true,
                (file, eks()),
                Deviation::Keeps,
            ),
            (
                "gone",
                (file, None),
                pods(eks(), true),
                false,
                (file, None),
                Deviation::None,
            ),
        ] {
            let mut spec = GlobalPullSecretSpec::default();
            (spec.kubelet.delivery, spec.kubelet.credential_provider) = asked;
            assert_eq!(fit(&mut spec, pods, is_on_nodes), deviation, "{case}");
            let kubelet = spec.kubelet;
            assert_eq!(
                (kubelet.delivery, kubelet.credential_provider),
                expected,
                "{case}"
            );
        }
    }
}
