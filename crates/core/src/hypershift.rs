//! What `HyperShift`'s own controller for the additional pull secret has in a hosted cluster. Two of its objects have the names of
//! globalps' own: the `DaemonSet` `global-pull-secret-syncer` and the Secret `global-pull-secret`.

use k8s_openapi::api::apps::v1::DaemonSet;

/// Label of its pods: which content they deliver.
pub const HASH_LABEL: &str = "hypershift.openshift.io/globalps-config-hash";

/// Whether the `DaemonSet` is `HyperShift`'s. It exists in every hosted cluster on AWS and Azure, also without a pull secret.
#[must_use]
pub fn is_hypershifts(daemon_set: &DaemonSet) -> bool {
    let template = daemon_set.spec.as_ref().map(|spec| &spec.template);
    let labels = template.and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    labels.is_some_and(|labels| labels.contains_key(HASH_LABEL))
}
