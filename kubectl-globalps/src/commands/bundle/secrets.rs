//! The Secrets of globalps: metadata for the bundle, and credentials for the search.

use std::collections::BTreeSet;

use globalps_core::api::{FleetPullSecret, GlobalPullSecret};
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::allowed;
use super::contents::Contents;
use super::search::KnownCredentials;
use crate::cluster::client::Cluster;
use crate::target::pull_secret;

pub(super) async fn all(
    cluster: &Cluster<'_>,
    contents: &mut Contents,
    known: &mut KnownCredentials,
    gps: &[GlobalPullSecret],
    fleets: &[FleetPullSecret],
) {
    let mut found = Vec::new();
    for (namespace, name) in places(&cluster.namespace, gps, fleets) {
        let shown = format!("Secret {namespace}/{name}");
        let answer = pull_secret::get_in(cluster, &namespace, &name).await;
        found.extend(contents.read(&shown, answer).flatten());
    }
    let namespaces: BTreeSet<String> = fleets.iter().filter_map(ResourceExt::namespace).collect();
    for namespace in namespaces {
        let api: Api<Secret> = Api::namespaced(cluster.client.clone(), &namespace);
        let params = ListParams::default().labels(names::FLEET_LABEL);
        let call = cluster.call("list the revisions", api.list(&params));
        let what = format!("Secrets with revisions in {namespace}");
        let list = contents.read(&what, call.await);
        found.extend(list.into_iter().flatten());
    }
    let kept: Vec<_> = found.iter().map(allowed::secret).collect();
    for secret in &found {
        known.remember(secret);
    }
    contents.json("objects/secrets.json", &kept);
}

/// Namespace and name of every Secret that globalps reads or writes for nodes and fleets.
fn places(
    own: &str,
    gps: &[GlobalPullSecret],
    fleets: &[FleetPullSecret],
) -> BTreeSet<(String, String)> {
    let fixed = [
        names::ADDITIONAL_SECRET,
        names::GLOBAL_SECRET,
        names::ROLLED_OUT_SECRET,
    ];
    let mut in_own: Vec<String> = fixed.map(str::to_owned).into();
    let mut places = BTreeSet::new();
    for gps in gps {
        let spec = &gps.spec;
        let slots = spec.history_limit.min(names::HISTORY_SLOTS);
        in_own.extend((0..slots).map(names::history_secret));
        in_own.extend(spec.sources.iter().map(|source| source.name.clone()));
        in_own.extend(spec.syncer.image_pull_secret.clone());
        let original = spec.original.secret_ref.iter();
        places.extend(original.map(|it| (it.namespace.clone(), it.name.clone())));
    }
    places.extend(in_own.into_iter().map(|name| (own.to_owned(), name)));
    for fleet in fleets {
        let namespace = fleet.namespace().unwrap_or_default();
        let install = fleet.spec.install.as_ref();
        let images = install.and_then(|install| install.image_pull_secret.as_ref());
        let references = [Some(&fleet.spec.secret_ref), images];
        let references = references.into_iter().flatten();
        places.extend(references.map(|it| (namespace.clone(), it.name.clone())));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_secret_that_an_object_names_is_read() {
        let gps = json!({
            "metadata": {}, "spec": {
                "sources": [{"name": "team-a"}], "historyLimit": 1, "syncer": {"imagePullSecret": "images"},
                "original": {"secretRef": {"namespace": "openshift-config", "name": "pull-secret"}},
            },
        });
        let fleet = json!({
            "metadata": {"namespace": "clusters", "name": "f"},
            "spec": {"secretRef": {"name": "of-fleet"}, "clusterSelector": {}},
        });
        let gps = serde_json::from_value(gps).expect("a GlobalPullSecret");
        let fleet = serde_json::from_value(fleet).expect("a FleetPullSecret");
        let found: Vec<String> = places("kube-system", &[gps], &[fleet])
            .into_iter()
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect();
        let expected = [
            "clusters/of-fleet",
            "kube-system/additional-pull-secret",
            "kube-system/additional-pull-secret-history-0",
            "kube-system/global-pull-secret",
            "kube-system/global-pull-secret-rolled-out",
            "kube-system/images",
            "kube-system/team-a",
            "openshift-config/pull-secret",
        ];
        assert_eq!(found, expected);
    }
}
