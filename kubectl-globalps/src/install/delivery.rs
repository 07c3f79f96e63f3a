//! How credentials reach the kubelets, where `install` chooses it, and whether that works in the cluster.

use globalps_core::api::DeliveryType;
use globalps_manifests::Manifests;

use crate::cluster::Cluster;
use crate::cluster::hypershift;
use crate::cluster::served::OpenShift;
use crate::error::Result;

/// Completes the delivery and what depends on it, and refuses one that can't work. `known`: of the installed configuration.
/// Returns whether the cluster decided.
pub(crate) async fn choose(
    manifests: &mut Manifests,
    known: Option<DeliveryType>,
    cluster: &Cluster<'_>,
) -> Result<bool> {
    let openshift = OpenShift::look(cluster).await?;
    manifests.is_openshift = openshift.has_constraints;
    let asked = manifests.delivery.or(known);
    // That delivery has no original pull secret.
    let has_original = manifests.original.is_some() || manifests.hosted_control_plane.is_some();
    let is_chosen = asked.is_none() && !has_original && openshift.is_standalone();
    let delivery = asked.or(is_chosen.then_some(DeliveryType::OpenShift));
    hypershift::must_not_deliver(cluster, delivery).await?;
    if delivery == Some(DeliveryType::Observe) && manifests.hosted_control_plane.is_none() {
        manifests.original.get_or_insert_with(hypershift::original);
    }
    let delivery = delivery.unwrap_or_default();
    if delivery != DeliveryType::default() {
        manifests.delivery = Some(delivery);
    }
    let printer = cluster.printer();
    if is_chosen {
        printer.note(
            "this is a standalone OpenShift: the delivery is `OpenShift`; `--delivery` chooses another one",
        );
    }
    if let Some(warning) = warning(delivery, openshift) {
        printer.warning(warning);
    }
    Ok(is_chosen)
}

/// What a delivery can't do in this cluster.
fn warning(delivery: DeliveryType, openshift: OpenShift) -> Option<String> {
    match delivery {
        DeliveryType::ConfigFile | DeliveryType::CredentialProvider
            if openshift.has_machine_configs =>
        {
            Some(format!(
                "OpenShift's Machine Config Operator writes the credentials file of this cluster's nodes, so with the delivery `{}` they stay as they are (`ForeignOwner`); `kubectl globalps install --delivery OpenShift` reaches them",
                delivery.as_str()
            ))
        }
        DeliveryType::OpenShift if !openshift.is_standalone() => Some(format!(
            "{}, so with the delivery `OpenShift` no node gets anything",
            if openshift.has_machine_configs {
                "there is no Secret `openshift-config/pull-secret`"
            } else {
                "this cluster has no Machine Config Operator (it serves no `machineconfigpools`)"
            }
        )),
        _ => None,
    }
}
