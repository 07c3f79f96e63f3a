//! The cluster's own pull secret, which the delivery `OpenShift` writes into, as far as this user may read it.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec};
use globalps_core::names;
use globalps_dockerconfig::{Applied, DockerConfig};
use globalps_planner::openshift::applied::decode;

use super::pull_secret;
use crate::cluster::Cluster;
use crate::error::{Failure, Result, allowed};
use crate::secret::additional::data_of;
use crate::secret::openshift::{IntoOpenShift, Seen};

/// What that Secret gets, where nodes should have `after`. `before`: what they should have now. `None` with another delivery.
pub(crate) async fn planned(
    cluster: &Cluster<'_>,
    spec: Option<&GlobalPullSecretSpec>,
    before: &DockerConfig,
    after: &DockerConfig,
) -> Result<Option<IntoOpenShift>> {
    let Some(spec) = spec.filter(|spec| spec.kubelet.delivery == DeliveryType::OpenShift) else {
        return Ok(None);
    };
    let (namespace, name) = names::OPENSHIFT_ORIGINAL;
    let (secret, applied) = futures::join!(
        pull_secret::get_in(cluster, namespace, name),
        pull_secret::get(cluster, names::APPLIED_SECRET),
    );
    let secret = allowed(secret)?;
    let document = secret.as_ref().map(|secret| {
        let data = secret.as_ref();
        data.and_then(|secret| data_of(secret, names::DATA_KEY))
    });
    let seen = match document {
        Some(Some(document)) => Seen::Document(document),
        Some(None) => Seen::Nothing("there is no `openshift-config/pull-secret`".to_owned()),
        None => Seen::Nothing(
            "you may not read `openshift-config/pull-secret`, so it is unknown for which registries another program has an entry there"
                .to_owned(),
        ),
    };
    // Without the record, what is in force tells which entries are of globalps.
    let applied = match allowed(applied)? {
        Some(record) => record.as_ref().map(decode).unwrap_or_default(),
        None => Applied {
            versions: vec![before.clone()],
            ..Applied::default()
        },
    };
    let overrides = &spec.kubelet.override_registries;
    Ok(Some(IntoOpenShift::of(seen, after, &applied, overrides)))
}

/// Refuses credentials that nobody has checked: they would reach every node at once, beside the platform's own.
pub(crate) async fn must_be_checked(cluster: &Cluster<'_>) -> Result<()> {
    // Without permission, the next request reports it.
    let gps = pull_secret::configuration(cluster).await.ok().flatten();
    match gps.map(|gps| gps.spec.kubelet.delivery) {
        Some(DeliveryType::OpenShift) => Err(Failure::new(
            "credentials that are not checked would reach every node at once: with the delivery `OpenShift` there is no canary",
            format!("leave out `--skip-check`; {}", pull_secret::ANYWAY),
        )),
        _ => Ok(()),
    }
}
