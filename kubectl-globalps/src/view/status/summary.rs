//! What `status` begins with: the mode and what it costs, who changed the pull secret, registries, and what expires next. Pure.

use std::collections::BTreeSet;

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, Restart};
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::facts::Changed;
use crate::terminal::layout::{age, few, rfc3339};
use crate::view::listing::Listing;

/// Registries that are named; of the others, the number.
const NAMED: usize = 5;

/// Scripts rely on these fields of `status -o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Of the controller: its image's tag, or the image. Empty: unknown.
    pub version: String,
    /// `ConfigFile`, `CredentialProvider`, `ImagePullSecrets` or `None`.
    pub mode: &'static str,
    /// `null`: this user may not read them.
    pub registries: Option<Vec<String>>,
    /// RFC 3339; `null`: no credential says when, or this user may not read them.
    pub next_expiry: Option<String>,
    /// When the additional pull secret was written last, and by whom. Empty: unknown.
    pub changed_at: String,
    pub changed_by: String,
    #[serde(skip)]
    cost: &'static str,
    #[serde(skip)]
    changed: Option<Timestamp>,
}

impl Summary {
    /// `image`: the controller's. `listing`: `None`: hidden.
    pub(crate) fn of(
        spec: &GlobalPullSecretSpec,
        image: Option<&str>,
        listing: Option<&Listing>,
        changed: Option<&Changed>,
    ) -> Self {
        let (mode, cost) = mode(spec);
        let rows = listing.map(|listing| listing.registries.as_slice());
        let expiries = rows.unwrap_or_default().iter();
        let next = expiries.filter_map(|row| row.expires.as_ref()).min();
        Self {
            version: image.map_or(String::new(), version),
            mode,
            cost,
            registries: rows.map(|rows| {
                let names: BTreeSet<&String> = rows.iter().map(|row| &row.registry).collect();
                names.into_iter().cloned().collect()
            }),
            next_expiry: next.cloned(),
            changed_at: rfc3339(changed.map(|changed| changed.at)),
            changed_by: changed.map_or(String::new(), |changed| changed.by.clone()),
            changed: changed.map(|changed| changed.at),
        }
    }

    pub(crate) fn mode_line(&self) -> String {
        format!("Mode         {}: {}", self.mode, self.cost)
    }

    /// Behind the number of the revision.
    pub(crate) fn changed(&self, now: Timestamp) -> String {
        match self.changed {
            Some(at) => format!("  changed {} ago by {}", age(at, now), self.changed_by),
            None => String::new(),
        }
    }

    /// `None`: there are none, or they are hidden.
    pub(crate) fn registries_line(&self) -> Option<String> {
        let all = self.registries.as_ref().filter(|all| !all.is_empty())?;
        let named = few(all, NAMED);
        let expiry = self.next_expiry.as_ref();
        let expiry = expiry.map_or(String::new(), |time| format!("; next expiry {time}"));
        Some(format!("Registries   {named}{expiry}"))
    }
}

fn mode(spec: &GlobalPullSecretSpec) -> (&'static str, &'static str) {
    let to_namespaces = spec.image_pull_secrets.enabled;
    match (spec.kubelet.delivery, spec.kubelet.restart) {
        (DeliveryType::ConfigFile, Restart::Always) => (
            "ConfigFile",
            "each change restarts the kubelets, a few at a time",
        ),
        (DeliveryType::ConfigFile, Restart::Never) => (
            "ConfigFile",
            "no restarts; a change is in force within 5 minutes",
        ),
        (DeliveryType::CredentialProvider, _) => {
            ("CredentialProvider", "changes restart no kubelet")
        }
        (DeliveryType::OpenShift, _) => (
            "OpenShift",
            "into the cluster's own pull secret; each node's file is compared",
        ),
        (DeliveryType::Observe, _) => (
            "Observe",
            "HyperShift's own controller delivers; each node's file is compared",
        ),
        (DeliveryType::None, _) if to_namespaces => (
            "ImagePullSecrets",
            "a Secret in each namespace; nothing runs on nodes",
        ),
        (DeliveryType::None, _) => ("None", "neither nodes nor namespaces get credentials"),
    }
}

/// The tag; an image by digest is shown as it is.
fn version(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    match name.split_once(':') {
        Some((_, tag)) if !name.contains('@') => tag.to_owned(),
        _ => image.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_names_its_cost() {
        let mut spec = GlobalPullSecretSpec::default();
        let line = |spec: &GlobalPullSecretSpec| Summary::of(spec, None, None, None).mode_line();
        assert_eq!(
            line(&spec),
            "Mode         ConfigFile: each change restarts the kubelets, a few at a time"
        );
        spec.kubelet.restart = Restart::Never;
        assert!(line(&spec).contains("within 5 minutes"));
        spec.kubelet.delivery = DeliveryType::CredentialProvider;
        assert!(line(&spec).ends_with("changes restart no kubelet"));
        spec.kubelet.delivery = DeliveryType::None;
        assert!(line(&spec).ends_with("get credentials"));
        spec.image_pull_secrets.enabled = true;
        assert!(line(&spec).contains("ImagePullSecrets"));
    }

    #[test]
    fn the_version_is_the_images_tag() {
        for (image, expected) in [
            ("r.io:5000/a/globalps-controller:0.1.0", "0.1.0"),
            ("r.io/c@sha256:00", "r.io/c@sha256:00"),
            ("r.io/c", "r.io/c"),
        ] {
            assert_eq!(version(image), expected);
        }
    }

    #[test]
    fn who_changed_it_and_when_follows_the_revision() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
        let changed = Changed {
            at: "2026-01-01T00:05:00Z".parse().expect("a time"),
            by: "kubectl".to_owned(),
        };
        let spec = GlobalPullSecretSpec::default();
        let summary = Summary::of(&spec, Some("r/c:1"), None, Some(&changed));
        assert_eq!(summary.changed(now), "  changed 5m ago by kubectl");
        assert_eq!(summary.registries_line(), None);
        assert_eq!(summary.changed_at, "2026-01-01T00:05:00Z");
    }
}
