//! Whether `add` can put a credential into force: advice that changes nothing is not printed. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecret};
use globalps_core::dockerconfig::{Credential, DockerConfig, Entry, Secret, canonical_key};

use crate::registry::name::registry_key;
use crate::secret::changes::InForce;
use crate::view::status::{NO_CONFIGURATION, REMOVAL_HELD, is_removal_held};

const NOT_INSTALLED: &str = "globalps is not installed in this cluster; put the credentials into a pull secret of the namespace";
const NOT_DELIVERED: &str = "`kubectl globalps add` would change nothing: neither nodes nor namespaces get credentials, as the GlobalPullSecret says";
const SHADOWED: &str = "`kubectl globalps add` would change nothing, because the credential of another pull secret is preferred, as `spec.precedence` says: change it there";

/// What decides whether something that is added comes into force.
#[derive(Default)]
pub(crate) struct Adding {
    /// `None`: it was deleted, or globalps is not installed.
    pub gps: Option<GlobalPullSecret>,
    /// Something is in force, whether there is a `GlobalPullSecret` or not.
    pub has_content: bool,
    /// Why the controller does nothing; `None`: it runs, or that is not known.
    pub stopped: Option<String>,
    pub in_force: InForce,
}

impl Adding {
    /// Why a change of the configuration or of a pull secret would not come into force; `None`: it would.
    pub(super) fn without_effect(&self) -> Option<String> {
        let Some(gps) = &self.gps else {
            let (deleted, restore) = NO_CONFIGURATION;
            return Some(if self.has_content {
                format!("{deleted}: {restore}")
            } else {
                NOT_INSTALLED.to_owned()
            });
        };
        if is_removal_held(gps) {
            return Some(format!("{}: {}", REMOVAL_HELD.0, REMOVAL_HELD.1));
        }
        if let Some(why) = &self.stopped {
            return Some(format!("start globalps first: {why}"));
        }
        let is_delivered =
            gps.spec.kubelet.delivery != DeliveryType::None || gps.spec.image_pull_secrets.enabled;
        (!is_delivered).then(|| NOT_DELIVERED.to_owned())
    }

    /// Why adding a credential under this key would not help. `source`: with a scope; empty: the additional pull secret.
    pub(super) fn without_effect_for(&self, key: &str, source: &str) -> Option<String> {
        if let Err(failure) = registry_key(key) {
            return Some(format!(
                "`kubectl globalps add` can't write it: {}; {}",
                failure.message, failure.hint
            ));
        }
        let is_shadowed = || source.is_empty() && !self.is_effective(key);
        self.without_effect()
            .or_else(|| is_shadowed().then(|| SHADOWED.to_owned()))
    }

    /// Whether a new credential of the additional pull secret would be the one that nodes get.
    fn is_effective(&self, key: &str) -> bool {
        let any = Credential {
            username: Secret::new("any"),
            password: Secret::new("any"),
        };
        let added = Entry::from_credential(key, &any);
        let others = self.in_force.additional.entries().iter();
        let is_other = |entry: &&Entry| canonical_key(entry.key()) != canonical_key(key);
        let others = others.filter(is_other).cloned();
        let content = DockerConfig::new(others.chain([added.clone()]).collect());
        let effective = self.in_force.effective(&content);
        let effective = effective.by_canonical_key();
        let found = effective.get(canonical_key(key).as_str());
        found.is_some_and(|found| found.means_the_same(&added))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::dockerconfig::{Precedence, parse};
    use serde_json::json;

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table of cases")]
    fn only_what_comes_into_force_is_advised() {
        let config = |key: &str| {
            let text = json!({"auths": {key: {"auth": "dTpw"}}}).to_string();
            parse(text.as_bytes()).expect("a file")
        };
        let none = || json!({"kubelet": {"delivery": "None"}});
        let into_namespaces = json!({
            "kubelet": {"delivery": "None"}, "imagePullSecrets": {"enabled": true},
        });
        let stopped = "the controller is not running";
        for (case, spec, stopped, original, key, source, expected) in [
            (
                "it works",
                Some(json!({})),
                None,
                "other.io",
                "quay.io",
                "",
                "",
            ),
            (
                "a known one",
                Some(json!({})),
                None,
                "quay.io",
                "quay.io",
                "",
                "",
            ),
            (
                "deleted",
                None,
                None,
                "",
                "quay.io",
                "",
                "--restore-configuration",
            ),
            (
                "not installed",
                None,
                None,
                "",
                "quay.io",
                "",
                NOT_INSTALLED,
            ),
            (
                "stopped",
                Some(json!({})),
                Some(stopped),
                "",
                "quay.io",
                "",
                stopped,
            ),
            (
                "not delivered",
                Some(none()),
                None,
                "",
                "quay.io",
                "",
                NOT_DELIVERED,
            ),
            (
                "namespaces",
                Some(into_namespaces),
                None,
                "",
                "quay.io",
                "",
                "",
            ),
            (
                "shadowed",
                Some(json!({"precedence": "Original"})),
                None,
                "quay.io",
                "https://quay.io/v1/",
                "",
                SHADOWED,
            ),
            (
                "not shadowed",
                Some(json!({"precedence": "Original"})),
                None,
                "ghcr.io",
                "quay.io",
                "",
                "",
            ),
            (
                "with a scope",
                Some(json!({"precedence": "Original"})),
                None,
                "quay.io",
                "quay.io",
                "team",
                "",
            ),
            (
                "no key",
                Some(json!({})),
                None,
                "",
                "quay.io/a:1",
                "",
                "is not a registry",
            ),
        ] {
            let gps = spec.map(|spec| {
                GlobalPullSecret::new("g", serde_json::from_value(spec).expect("a spec"))
            });
            let precedence = gps.as_ref().map(|gps| gps.spec.precedence);
            let adding = Adding {
                in_force: InForce {
                    additional: config("quay.io"),
                    original: config(original),
                    precedence: precedence.unwrap_or(Precedence::Additional),
                    ..InForce::default()
                },
                gps,
                has_content: case == "deleted",
                stopped: stopped.map(str::to_owned),
            };
            let found = adding.without_effect_for(key, source).unwrap_or_default();
            let is_right = found.contains(expected) && found.is_empty() == expected.is_empty();
            assert!(is_right, "{case}: {found}");
        }
    }
}
