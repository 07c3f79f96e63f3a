//! The Secret [`STATE_SECRET`]: what the controller must not forget when users delete the `GlobalPullSecret`, and how a user says
//! that a restore is meant. No credential is in it, and nothing in it can cause a restore.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use crate::api::{GlobalPullSecret, GlobalPullSecretSpec};
use crate::names::{
    DATA_KEY, RESTORE_ANNOTATION, SECRET_LIMIT, SECRET_TYPE, STATE_KEY, STATE_SECRET,
};

/// The advice if the `GlobalPullSecret` was deleted.
pub const RESTORE_CONFIGURATION: &str =
    "`kubectl globalps install --restore-configuration` creates it again as it was";
/// Beginning of [`sources_removed`].
pub const SOURCES_REMOVED: &str = "`spec.sources` no longer names ";

/// Message of a condition while the removal of these sources from the configuration is held.
pub fn sources_removed(names: &str) -> String {
    format!(
        "{SOURCES_REMOVED}{names}, and no other source is in force; the current credentials stay in force. \
         `kubectl globalps install --restore-configuration` undoes this change; \
         `kubectl globalps remove --all` removes them"
    )
}

/// Message of a condition while the configuration selects no node, although nodes have credentials.
pub const NO_NODE_SELECTED: &str = "`spec.nodeSelector` matches no node; the current credentials stay in force until you correct it. \
     `kubectl globalps remove --all`, also with `--source NAME` for each source, or the delivery `None`, removes them";

/// Message of a condition while the `CustomResourceDefinition` of `NodePullSecret` is missing.
pub const NODES_NOT_SERVED: &str = "the API server does not serve the kind `NodePullSecret`, so no node changes until its CustomResourceDefinition is created again; \
     `kubectl globalps install` does that";

/// kubectl's copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const OWN_PREFIX: &str = "globalps.io/";
/// Content without credentials, which the type of the Secret requires.
const NO_CREDENTIALS: &[u8] = br#"{"auths":{}}"#;

/// The controller's memory, which must survive the deletion of other objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The last configuration in force; `None`: nothing is in force, or it is too large for a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// UID of the object with the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The configuration that was in force before the object was deleted and created with another spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Configuration>,
    /// Namespaces may have Secrets and references of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespaceObjects>,
    /// Operators may have Secrets and references of the controller.
    #[serde(default)]
    pub operators: bool,
    /// Names of the Secrets that operators may have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub operator_secrets: BTreeSet<String>,
    /// Key of the proof in these Secrets that the controller wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_key: Option<ProofKey>,
}

/// A user who knows it can pass off a Secret as globalps' own in a namespace where they may write it, and nothing else.
/// It is never printed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofKey(pub [u8; 16]);

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey")
    }
}

/// A `GlobalPullSecret` as it was: enough to create it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Labels of other programs, such as Helm and Argo CD, which would not adopt the object without them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Without the annotations of globalps and of `kubectl apply`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The spec that was in force.
    pub spec: GlobalPullSecretSpec,
}

/// Objects that namespaces may contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceObjects {
    /// Name of the Secret in each namespace.
    pub secret_name: String,
    /// Service accounts may have references to it.
    #[serde(default)]
    pub references: bool,
}

impl Configuration {
    /// The configuration in an object of the API server.
    pub fn of(config: &GlobalPullSecret) -> Self {
        let mut annotations = config.annotations().clone();
        annotations.retain(|key, _| key != LAST_APPLIED && !key.starts_with(OWN_PREFIX));
        Self {
            labels: config.labels().clone(),
            annotations,
            spec: config.spec.clone(),
        }
    }
}

impl State {
    /// `None`: the Secret is damaged.
    pub fn of(secret: &Secret) -> Option<Self> {
        let bytes = secret.data.as_ref()?.get(STATE_KEY)?;
        serde_json::from_slice(&bytes.0).ok()
    }

    /// Namespaces or operators may have Secrets of the controller.
    pub fn has_copies(&self) -> bool {
        self.namespaces.is_some() || self.operators
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Keeps the configuration that the current one replaced, and the current one, only as far as they fit into a Secret.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if !self.fits() {
            self.replaced = None;
        }
        if !self.fits() {
            self.configuration = None;
        }
        self
    }

    fn fits(&self) -> bool {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.len() + NO_CREDENTIALS.len() <= SECRET_LIMIT
    }

    /// The state with this configuration in force. A new object after a deletion may be a mistake, so the configuration
    /// that it replaces is kept.
    #[must_use]
    pub fn configured(mut self, config: &GlobalPullSecret) -> Self {
        let current = Configuration::of(config);
        let is_another = self.uid.is_some() && self.uid != config.metadata.uid;
        if let Some(last) = self.configuration.filter(|_| is_another)
            && last.spec != current.spec
        {
            self.replaced = Some(last);
        }
        self.replaced = self.replaced.filter(|last| last.spec != current.spec);
        self.uid.clone_from(&config.metadata.uid);
        self.configuration = Some(current);
        self
    }

    /// The configuration to go back to: the last one in force or, if that is the live one, the one that it replaced.
    pub fn to_restore(self, live: Option<&GlobalPullSecretSpec>) -> Option<Configuration> {
        let is_live = |last: &Configuration| live == Some(&last.spec);
        match self.replaced {
            Some(replaced) if self.configuration.as_ref().is_none_or(is_live) => Some(replaced),
            _ => self.configuration,
        }
    }

    /// The Secret in the namespace of globalps, for server-side apply.
    pub fn secret(&self) -> Secret {
        let state = ByteString(serde_json::to_vec(self).unwrap_or_default());
        let none = ByteString(NO_CREDENTIALS.to_vec());
        let data = [(STATE_KEY, state), (DATA_KEY, none)];
        Secret {
            metadata: ObjectMeta {
                name: Some(STATE_SECRET.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(
                data.map(|(key, value)| (key.to_owned(), value))
                    .into_iter()
                    .collect(),
            ),
            ..Secret::default()
        }
    }
}

/// Value of [`RESTORE_ANNOTATION`] for this generation of the object with this uid. Every object begins with generation 1.
pub fn restore_meant(uid: &str, generation: i64) -> String {
    format!("{uid}/{generation}")
}

/// Whether the current spec restores every node on purpose, although Secrets exist that it no longer names.
pub fn is_restore_meant(config: &GlobalPullSecret) -> bool {
    let meant = config.annotations().get(RESTORE_ANNOTATION);
    let metadata = &config.metadata;
    let now = metadata.uid.as_ref().zip(metadata.generation);
    let now = now.map(|(uid, generation)| restore_meant(uid, generation));
    meant.is_some() && meant == now.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(annotations: &[(&str, &str)]) -> GlobalPullSecret {
        let mut config = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
        config.metadata.generation = Some(7);
        config.metadata.uid = Some("u".to_owned());
        let annotations = annotations.iter();
        let annotations = annotations.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        config.metadata.annotations = Some(annotations.collect());
        config
    }

    #[test]
    fn a_held_removal_names_its_sources_and_both_ways_out() {
        let message = sources_removed("`a`, `b`");
        assert!(message.starts_with(&format!("{SOURCES_REMOVED}`a`, `b`,")));
        for way in ["install --restore-configuration", "remove --all"] {
            assert!(message.contains(&format!("`kubectl globalps {way}`")));
        }
    }

    #[test]
    fn a_state_is_what_was_written_and_a_damaged_one_is_none() {
        let mut spec = GlobalPullSecretSpec::default();
        spec.rollout.paused = true;
        let state = State {
            configuration: Some(Configuration {
                labels: [("a".to_owned(), "b".to_owned())].into(),
                annotations: BTreeMap::new(),
                spec,
            }),
            uid: Some("u".to_owned()),
            replaced: None,
            namespaces: Some(NamespaceObjects {
                secret_name: "s".to_owned(),
                references: true,
            }),
            operators: true,
            operator_secrets: ["globalps-a.b".to_owned()].into(),
            proof_key: Some(ProofKey([1; 16])),
        };
        let secret = state.secret();
        assert_eq!(State::of(&secret), Some(state.clone()));
        assert_eq!(secret.metadata.name.as_deref(), Some(STATE_SECRET));
        assert_eq!(secret.type_.as_deref(), Some(SECRET_TYPE));
        assert!(!state.is_empty() && State::default().is_empty());
        for damage in [&b""[..], b"{", br#"{"configuration": 7}"#, b"null"] {
            let mut damaged = secret.clone();
            let data = damaged.data.get_or_insert_default();
            data.insert(STATE_KEY.to_owned(), ByteString(damage.to_vec()));
            assert_eq!(State::of(&damaged), None, "{damage:?}");
        }
        assert_eq!(State::of(&Secret::default()), None);
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_left_out() {
        let mut large = config(&[]);
        let labels = [("a".to_owned(), "b".repeat(SECRET_LIMIT))];
        large.spec.node_selector = labels.into();
        let state = |config: &GlobalPullSecret| State {
            configuration: Some(Configuration::of(config)),
            operators: true,
            ..State::default()
        };
        let bounded = state(&large).bounded();
        assert!(bounded.configuration.is_none() && bounded.operators);
        let small = state(&config(&[]));
        assert_eq!(small.clone().bounded(), small);
        let replaced = State {
            replaced: Some(Configuration::of(&large)),
            ..small.clone()
        };
        assert_eq!(replaced.bounded(), small, "the current one is kept");
        let with = |bytes: usize| {
            let mut config = config(&[]);
            config.spec.node_selector = [("a".to_owned(), "b".repeat(bytes))].into();
            state(&config)
        };
        let size = |state: &State| -> usize {
            let secret = state.secret();
            let values = secret.data.iter().flat_map(BTreeMap::values);
            values.map(|value| value.0.len()).sum()
        };
        let most = SECRET_LIMIT - size(&with(0));
        assert!(with(most).bounded().configuration.is_some(), "it just fits");
        assert!(with(most + 1).bounded().configuration.is_none());
    }

    #[test]
    fn a_configuration_replaced_under_another_uid_is_kept() {
        let of = |uid: &str, limit: i32| {
            let mut config = config(&[]);
            config.metadata.uid = Some(uid.to_owned());
            config.spec.history_limit = limit.try_into().expect("a limit");
            config
        };
        // Each: the objects in force one after the other; then the live one; the limit that is restored.
        for (objects, live, expected) in [
            (&[("a", 1)][..], Some(1), 1),
            (&[("a", 1), ("a", 2)], Some(2), 2),
            (&[("a", 1), ("b", 2)], Some(2), 1),
            (&[("a", 1), ("b", 2)], None, 2),
            (&[("a", 1), ("b", 2), ("b", 3)], Some(3), 1),
            (&[("a", 1), ("b", 2), ("b", 1)], Some(1), 1),
            (&[("a", 1), ("b", 1)], Some(1), 1),
            (&[("a", 1), ("b", 2), ("c", 2)], Some(2), 1),
            (&[("a", 1), ("b", 2), ("b", 3)], Some(4), 3),
        ] {
            let state = objects
                .iter()
                .fold(State::default(), |state, (uid, limit)| {
                    state.configured(&of(uid, *limit))
                });
            let live = live.map(|limit| of("", limit).spec);
            let found = state.to_restore(live.as_ref());
            assert_eq!(
                found.map(|found| found.spec),
                Some(of("", expected).spec),
                "{objects:?}, {live:?}"
            );
        }
    }

    #[test]
    fn the_key_is_stored_and_not_printed() {
        let state = State {
            proof_key: Some(ProofKey([201; 16])),
            ..State::default()
        };
        assert!(!format!("{state:?}").contains("201"));
        assert_eq!(State::of(&state.secret()), Some(state));
    }

    #[test]
    fn annotations_of_other_programs_are_kept() {
        let config = config(&[
            (LAST_APPLIED, "{}"),
            (RESTORE_ANNOTATION, "7"),
            ("meta.helm.sh/release-name", "globalps"),
        ]);
        let kept = Configuration::of(&config).annotations;
        let keys: Vec<&String> = kept.keys().collect();
        assert_eq!(keys, ["meta.helm.sh/release-name"]);
    }

    #[test]
    fn a_restore_is_meant_by_the_generation_that_is_named() {
        for (annotation, expected) in [
            (None, false),
            (Some("u/7"), true),
            (Some("u/6"), false),
            (Some("u/8"), false),
            // Refers to the object before it was restored from a backup.
            (Some("other/7"), false),
            (Some("7"), false),
            (Some("/7"), false),
            (Some("true"), false),
            (Some(""), false),
        ] {
            let annotations = annotation.map(|value| (RESTORE_ANNOTATION, value));
            let mut config = config(annotations.as_slice());
            assert_eq!(is_restore_meant(&config), expected, "{annotation:?}");
            config.metadata.generation = None;
            assert!(!is_restore_meant(&config), "{annotation:?}");
            (config.metadata.generation, config.metadata.uid) = (Some(7), None);
            assert!(!is_restore_meant(&config), "{annotation:?}");
        }
    }
}
