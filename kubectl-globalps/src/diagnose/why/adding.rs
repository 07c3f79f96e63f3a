//! Whether `add` can bring a credential into force. Advice without an effect is not printed. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecret};
use globalps_core::names;
use globalps_dockerconfig::{
    Credential, DockerConfig, Entry, Secret, attempts, canonical_key, shown_key, validate_bytes,
};

use crate::registry::name::registry_key;
use crate::secret::additional::{self, data_of, may_change, with_logins};
use crate::secret::changes::InForce;
use crate::secret::openshift::NotWritten;
use crate::view::status::{NO_CONFIGURATION, REMOVAL_HELD, is_removal_held};

const NOT_INSTALLED: &str = "globalps is not installed in this cluster; put the credentials into a pull secret of the namespace";
const NOT_DELIVERED: &str = "`kubectl globalps add` would change nothing: neither nodes nor namespaces get credentials, as the GlobalPullSecret says";
const SHADOWED: &str = "`kubectl globalps add` would change nothing, because the credential of another pull secret is preferred, as `spec.precedence` says: change it there";

/// The facts that decide whether an added credential comes into force.
#[derive(Default)]
pub(crate) struct Adding {
    /// `None` if it was deleted, there was no pull secret yet, or globalps is not installed.
    pub gps: Option<GlobalPullSecret>,
    /// No controller is installed.
    pub is_not_installed: bool,
    /// Credentials are in force, with or without a `GlobalPullSecret`.
    pub has_content: bool,
    /// Why the controller does nothing; `None` if it runs, or this is unknown.
    pub stopped: Option<String>,
    pub in_force: InForce,
    /// Registries that the delivery `OpenShift` does not write.
    pub not_written: Vec<NotWritten>,
    /// The current pull secrets that this user may read.
    pub live: Vec<Live>,
}

/// A pull secret that `add` would write, and its content as the controller merged it.
pub(crate) struct Live {
    pub name: String,
    pub secret: k8s_openapi::api::core::v1::Secret,
    pub merged: DockerConfig,
    pub is_for_every_pod: bool,
}

impl Live {
    /// Whether the Secret's credential for the image differs from the merged one.
    fn has_other(&self, image: &str) -> bool {
        let first = |config: &DockerConfig| {
            let tries = attempts(&[config], image).unwrap_or_default();
            tries.into_iter().next().map(|(_, found)| found.credential)
        };
        let is_there = self.secret.metadata.deletion_timestamp.is_none();
        let bytes = data_of(&self.secret, names::DATA_KEY).filter(|_| is_there);
        let content = bytes.and_then(|bytes| validate_bytes(bytes).0);
        let new = content.as_ref().and_then(first);
        self.is_for_every_pod && new.is_some() && new != first(&self.merged)
    }

    /// Why `add` would refuse to write the Secret; `None` if it would not.
    fn refuses(&self, key: &str) -> Option<String> {
        let login = additional::Login {
            registry: key.to_owned(),
            credential: any(),
        };
        let secret = self.secret.clone();
        let written = with_logins(Some(secret), "", &self.name, &[login]);
        let refused = written.err();
        let failure = refused.or_else(|| may_change(&self.secret, false).err())?;
        Some(format!("{}; {}", failure.message, failure.hint))
    }
}

fn any() -> Credential {
    Credential {
        username: Secret::new("any"),
        password: Secret::new("any"),
    }
}

impl Adding {
    /// The pull secret whose credential for the image is not merged.
    pub(super) fn unmerged_for(&self, image: &str) -> Option<&str> {
        let found = self.live.iter().find(|live| live.has_other(image));
        found.map(|live| live.name.as_str())
    }

    /// `source`: see [`Self::without_effect_for`].
    fn refused_for(&self, key: &str, source: &str) -> Option<String> {
        let name = match source {
            "" => names::ADDITIONAL_SECRET,
            source => source,
        };
        let live = self.live.iter().find(|live| live.name == name);
        live.and_then(|live| live.refuses(key))
    }

    /// Why a change of the configuration or of a pull secret would not come into force; `None` if it would.
    pub(super) fn without_effect(&self) -> Option<String> {
        let stopped = || {
            let why = self.stopped.as_ref();
            why.map(|why| format!("start globalps first: {why}"))
        };
        let Some(gps) = &self.gps else {
            let (deleted, restore) = NO_CONFIGURATION;
            return match (self.has_content, self.is_not_installed) {
                (true, _) => Some(format!("{deleted}: {restore}")),
                (false, true) => Some(NOT_INSTALLED.to_owned()),
                // The controller creates the configuration as soon as there is a pull secret.
                (false, false) => stopped(),
            };
        };
        if is_removal_held(gps) {
            return Some(format!("{}: {}", REMOVAL_HELD.0, REMOVAL_HELD.1));
        }
        if let Some(stopped) = stopped() {
            return Some(stopped);
        }
        let is_delivered =
            gps.spec.kubelet.delivery != DeliveryType::None || gps.spec.image_pull_secrets.enabled;
        (!is_delivered).then(|| NOT_DELIVERED.to_owned())
    }

    /// Why adding a credential under this key would not help. `source`: a source with a scope; empty: the additional pull secret.
    pub(super) fn without_effect_for(&self, key: &str, source: &str) -> Option<String> {
        if let Err(failure) = registry_key(key) {
            return Some(format!(
                "`kubectl globalps add` can't write it: {}; {}",
                failure.message, failure.hint
            ));
        }
        if let Some(why) = self.not_written_for(key) {
            return Some(why);
        }
        let is_shadowed = || source.is_empty() && !self.is_effective(key);
        self.without_effect()
            .or_else(|| self.refused_for(key, source))
            .or_else(|| is_shadowed().then(|| SHADOWED.to_owned()))
    }

    /// Why nodes would not get it with the delivery `OpenShift`.
    fn not_written_for(&self, key: &str) -> Option<String> {
        let kubelet = &self.gps.as_ref()?.spec.kubelet;
        let registry = shown_key(&canonical_key(key));
        let known = self.not_written.iter().find(|it| it.registry == registry);
        let of_platform = || {
            (kubelet.delivery == DeliveryType::OpenShift)
                .then(|| NotWritten::of_platform(key, &kubelet.override_registries))?
        };
        Some(known.cloned().or_else(of_platform)?.sentence())
    }

    /// Whether a new credential in the additional pull secret would take precedence on nodes.
    fn is_effective(&self, key: &str) -> bool {
        let added = Entry::from_credential(key, &any());
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
    use globalps_dockerconfig::{Precedence, parse};
    use serde_json::json;

    #[test]
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
        #[rustfmt::skip]
        let cases = [
            ("it works", Some(json!({})), None, "other.io", "quay.io", "", ""),
            ("a known one", Some(json!({})), None, "quay.io", "quay.io", "", ""),
            ("deleted", None, None, "", "quay.io", "", "--restore-configuration"),
            ("not installed", None, None, "", "quay.io", "", NOT_INSTALLED),
            ("nothing was added yet", None, None, "", "quay.io", "", ""),
            ("nothing was added yet, and it is stopped", None, Some(stopped), "", "quay.io", "", stopped),
            ("stopped", Some(json!({})), Some(stopped), "", "quay.io", "", stopped),
            ("not delivered", Some(none()), None, "", "quay.io", "", NOT_DELIVERED),
            ("namespaces", Some(into_namespaces), None, "", "quay.io", "", ""),
            ("shadowed", Some(json!({"precedence": "Original"})), None, "quay.io", "https://quay.io/v1/", "", SHADOWED),
            ("not shadowed", Some(json!({"precedence": "Original"})), None, "ghcr.io", "quay.io", "", ""),
            ("with a scope", Some(json!({"precedence": "Original"})), None, "quay.io", "quay.io", "team", ""),
            ("of the platform", Some(json!({"kubelet": {"delivery": "OpenShift"}})), None, "", "https://quay.io", "", "(PlatformKey)"),
            ("below the platform's", Some(json!({"kubelet": {"delivery": "OpenShift"}})), None, "", "quay.io/org", "", ""),
            ("no key", Some(json!({})), None, "", "quay.io/a:1", "", "is not a registry"),
        ];
        for (case, spec, stopped, original, key, source, expected) in cases {
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
                is_not_installed: case == "not installed",
                live: Vec::new(),
                stopped: stopped.map(str::to_owned),
                not_written: Vec::new(),
            };
            let found = adding.without_effect_for(key, source).unwrap_or_default();
            let is_right = found.contains(expected) && found.is_empty() == expected.is_empty();
            assert!(is_right, "{case}: {found}");
        }
    }
}
