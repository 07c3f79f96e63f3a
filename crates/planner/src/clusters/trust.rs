//! Which `FleetPullSecret`s may select clusters in other namespaces, and choose images that run in clusters. Pure.

use std::collections::BTreeSet;

use globalps_core::api::FleetPullSecret;

use super::desired::{Desired, Release};

/// The namespaces that the hub's installation trusts with both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust(BTreeSet<String>);

impl Trust {
    /// `namespaces`: exact names.
    pub fn new(namespaces: &[String]) -> Self {
        Self(namespaces.iter().cloned().collect())
    }

    fn includes(&self, fleet: &FleetPullSecret) -> bool {
        let namespace = fleet.metadata.namespace.as_ref();
        namespace.is_some_and(|it| self.0.contains(it))
    }

    /// Why the fleet changes nothing, and the command that allows it. `None`: it continues. A fleet that is deleted is removed.
    pub fn hold(&self, fleet: &FleetPullSecret) -> Option<String> {
        if self.includes(fleet) || fleet.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let spec = &fleet.spec;
        let installs = spec.install.as_ref().is_some_and(|it| it.enabled);
        let field = match (&spec.namespace_selector, installs) {
            (Some(_), _) => "spec.namespaceSelector",
            (None, true) => "spec.install",
            (None, false) => return None,
        };
        let namespace = fleet.metadata.namespace.clone().unwrap_or_default();
        let all: BTreeSet<&String> = self.0.iter().chain([&namespace]).collect();
        let all: Vec<&str> = all.into_iter().map(String::as_str).collect();
        Some(format!(
            "the hub does not trust namespace `{namespace}` with `{field}`: clusters keep what they have until the field is removed, or `kubectl globalps fleet install --trusted-namespaces {}` allows it",
            all.join(",")
        ))
    }

    /// Whether the fleet may have content written into the clusters of this namespace.
    pub fn reaches(&self, fleet: &FleetPullSecret, namespace: &str) -> bool {
        fleet.metadata.namespace.as_deref() == Some(namespace) || self.includes(fleet)
    }

    /// Without globalps' images, if the fleet may not choose them: not each revision was written by the hub.
    pub fn limited(&self, fleet: &FleetPullSecret, desired: Desired) -> Desired {
        match desired {
            Desired::Revision(release) if !self.includes(fleet) => Desired::Revision(Release {
                install: None,
                ..release
            }),
            desired => desired,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::installation::Installation;
    use super::*;
    use crate::content::secret::revision_of_test;
    use crate::content::source::Data;

    /// A revision is a Secret in the namespace of the fleet, where others may write one.
    #[test]
    fn a_forged_revision_installs_nothing_and_stays_in_a_namespace() {
        let spec = json!({"secretRef": {"name": "shared"}});
        let mut fleet = FleetPullSecret::new("shared", serde_json::from_value(spec).unwrap());
        fleet.metadata.namespace = Some("ns".to_owned());
        let installation = Installation {
            controller_image: "c".to_owned(),
            syncer_image: "s".to_owned(),
            pull_secret: None,
        };
        let desired = Desired::Revision(Release {
            revision: revision_of_test(1),
            content: Arc::new(Data(None)),
            install: Some(Arc::new(installation)),
            retry: String::new(),
        });
        for (trusted, is_trusted) in [("ns", true), ("globalps-system", false)] {
            let trust = Trust::new(&[trusted.to_owned()]);
            assert!(trust.reaches(&fleet, "ns"));
            assert_eq!(trust.reaches(&fleet, "other"), is_trusted);
            let Desired::Revision(limited) = trust.limited(&fleet, desired.clone()) else {
                panic!("it keeps its revision");
            };
            assert_eq!(limited.install.is_some(), is_trusted);
            assert_eq!(trust.limited(&fleet, Desired::Removed), Desired::Removed);
        }
    }
}
