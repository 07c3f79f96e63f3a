//! What `OpenShift`'s own pull secret should have, and how far it is. Pure.

pub mod applied;
pub mod report;
pub mod turns;

use std::collections::BTreeSet;

use globalps_core::rollout::Goal;
use globalps_dockerconfig::{
    Applied, DockerConfig, Entry, Fate, Rules, SharedError, SharedMerge, canonical_key,
    merge_shared, parse, shown_key,
};
use jiff::Timestamp;

use crate::content::secret::Global;
use crate::nodes::plan::Aim;
use turns::Turns;

/// Registries that the platform can't be updated without.
const PLATFORM: [&str; 4] = [
    "cloud.openshift.com",
    "quay.io",
    "registry.connect.redhat.com",
    "registry.redhat.io",
];
/// The same below them: without it, nodes would not get the platform's own images.
const RELEASES: &str = "quay.io/openshift-release-dev";
/// Azure Red Hat `OpenShift` has one registry for each of its regions.
const ARO: &str = ".arosvc.azurecr.io";

/// Whether the platform needs its own entry for this registry, which is a canonical key.
pub fn is_platform(registry: &str) -> bool {
    let host = registry.split('/').next().unwrap_or_default();
    let below = registry.strip_prefix(RELEASES);
    PLATFORM.contains(&registry)
        || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || host.ends_with(ARO)
}

/// What the pull secret should have of globalps.
#[derive(Debug)]
pub enum Wish {
    /// Whatever it has: it is not known what is in force.
    Keep,
    /// No entry.
    Nothing,
    /// These entries.
    Entries(DockerConfig),
}

impl Wish {
    /// `is_delivered`: as the configuration in force says; `None`: it is not known.
    pub fn of(is_delivered: Option<bool>, aim: Aim, global: Option<&Global>) -> Self {
        let is_in_force = match (is_delivered, aim) {
            (None, _) => return Self::Keep,
            (Some(false), _) | (_, Aim::Nothing | Aim::CleanUp | Aim::Reach(Goal::Restore)) => {
                false
            }
            (_, Aim::Hold(_) | Aim::Reach(Goal::Revision(_))) => true,
        };
        if !is_in_force || global.is_some_and(|global| global.restoring) {
            return Self::Nothing;
        }
        let content = global.and_then(|global| global.content.as_ref());
        content.map_or(Self::Keep, |content| Self::Entries(content.config.clone()))
    }
}

/// The pull secret with the entries. `overrides`: as users write registries.
pub fn merge(
    document: &[u8],
    entries: &DockerConfig,
    applied: &Applied,
    overrides: &[String],
    turns: &Turns,
    now: Timestamp,
) -> Result<SharedMerge, SharedError> {
    let overrides: Vec<String> = overrides.iter().map(|key| canonical_key(key)).collect();
    let rules = Rules {
        may_override: &|registry| overrides.iter().any(|key| key == registry),
        is_platform: &is_platform,
        has_turn: &|key, entry| turns.is_due(key, entry, now),
    };
    merge_shared(document, entries, applied, &rules)
}

/// Those of the entries that the pull secret has.
pub fn in_force(entries: &DockerConfig, merge: &SharedMerge) -> DockerConfig {
    let is_there = |key: &str| merge.fates.get(&shown_key(key)) == Some(&Fate::InForce);
    let there = entries.entries().iter();
    let there = there.filter(|entry| is_there(&entry.canonical_key()));
    DockerConfig::new(there.cloned().collect())
}

/// Registries for which the pull secret has an entry of other programs, or gets it back once that of globalps is gone. As canonical
/// keys.
pub fn of_others(document: &[u8], applied: &Applied) -> BTreeSet<String> {
    let is_own = |entry: &&Entry| {
        let mut own = applied.versions.iter().flat_map(DockerConfig::entries);
        own.any(|own| own.key() == entry.key() && own.means_the_same(entry))
    };
    let document = parse(document).unwrap_or_default();
    let others = document.entries().iter().filter(|entry| !is_own(entry));
    let others = others.map(|entry| entry.canonical_key().into_owned());
    let replaced = applied.overridden.keys().map(|key| canonical_key(key));
    others.chain(replaced).collect()
}

#[cfg(test)]
mod tests {
    use globalps_core::rollout::{Revision, RevisionId};
    use globalps_provider::Content;

    use super::*;
    use crate::nodes::plan::Hold;

    #[test]
    fn the_platform_needs_some_registries_itself() {
        for (registry, expected) in [
            ("quay.io", true),
            ("quay.io/org", false),
            ("quay.io/openshift-release-dev", true),
            ("quay.io/openshift-release-dev/ocp-release", true),
            ("quay.io/openshift-release-devel", false),
            ("cloud.openshift.com", true),
            ("registry.redhat.io", true),
            ("registry.redhat.io.example.com", false),
            ("arointsvc.azurecr.io", false),
            ("weu.arosvc.azurecr.io", true),
            ("weu.arosvc.azurecr.io/aro", true),
        ] {
            assert_eq!(is_platform(registry), expected, "{registry}");
        }
    }

    #[test]
    fn a_removal_leaves_the_registries_of_others() {
        let document =
            br#"{"auths":{"r.io":{"auth":"dTpw"},"o.io":{"auth":"dTpw"},"https://t.io/v1/":{"auth":"dTpw"}}}"#;
        let own =
            br#"{"auths":{"r.io":{"auth":"dTpw"},"o.io":{"auth":"dTpw"},"t.io":{"auth":"dTpw"}}}"#;
        let replaced = ("o.io".to_owned(), "{}".to_owned().into());
        let applied = Applied {
            versions: vec![parse(own).unwrap()],
            overridden: [replaced].into(),
        };
        let stays = |document, applied| Vec::from_iter(of_others(document, applied));
        assert_eq!(stays(document, &applied), ["o.io", "t.io"]);
        let nothing = Applied::default();
        assert_eq!(stays(document, &nothing), ["o.io", "r.io", "t.io"]);
        assert_eq!(stays(b"{", &applied), ["o.io"]);
    }

    #[test]
    fn only_a_removal_that_is_meant_removes() {
        let config = parse(br#"{"auths":{"r.io":{"auth":"dTpw"}}}"#).unwrap();
        let content = Content {
            config,
            ..Content::default()
        };
        let global = Global {
            content: Some(content),
            ..Global::default()
        };
        let restoring = Global {
            restoring: true,
            ..global.clone()
        };
        let damaged = Global::default();
        let revision = Aim::Reach(Goal::Revision(Revision::new(1, RevisionId::UNKNOWN)));
        let hold = Aim::Hold(Hold::ConfigMissing);
        let (yes, no) = (Some(true), Some(false));
        for (case, delivered, aim, global, expected) in [
            ("in force", yes, revision, Some(&global), "entries"),
            ("held", yes, hold, Some(&global), "entries"),
            ("not written yet", yes, revision, None, "keep"),
            ("can't be decoded", yes, hold, Some(&damaged), "keep"),
            ("a restore is held", yes, hold, Some(&restoring), "nothing"),
            (
                "restored",
                yes,
                Aim::Reach(Goal::Restore),
                Some(&global),
                "nothing",
            ),
            ("removed", yes, Aim::Nothing, None, "nothing"),
            ("another delivery", no, revision, Some(&global), "nothing"),
            ("no configuration", None, hold, Some(&global), "keep"),
        ] {
            let found = match Wish::of(delivered, aim, global) {
                Wish::Keep => "keep",
                Wish::Nothing => "nothing",
                Wish::Entries(_) => "entries",
            };
            assert_eq!(found, expected, "{case}");
        }
    }
}
