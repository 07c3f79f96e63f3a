//! What an additional pull secret changes against what is in force. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::dockerconfig::{DockerConfig, Precedence, shown_key, validate_bytes};
use globalps_core::names;
use globalps_core::provider::{Scope, parse_scoped};
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

use crate::additional::data_of;
use crate::effects::Effects;
use crate::scope::ScopeChange;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Added,
    Changed,
    /// It takes the place of the original pull secret's credential.
    Overridden,
    /// The original pull secret's credential stays in its place.
    Shadowed,
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// Canonical name.
    pub registry: String,
    pub change: Kind,
}

/// `diff -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    pub changes: Vec<Change>,
    pub lagging_nodes: Vec<String>,
    /// Of sources that have a scope, or had one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<ScopeChange>,
    #[serde(flatten)]
    pub effects: Effects,
}

impl Difference {
    /// Whether anything but nodes that lag differs.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.scopes.is_empty() && self.effects.delivery.is_none()
    }

    /// What differs beside registries, a signed line each.
    pub(crate) fn beside(&self) -> String {
        let scopes: String = self.scopes.iter().map(ScopeChange::text).collect();
        self.effects.change() + &scopes
    }
}

/// What the controller put in force last.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    pub additional: DockerConfig,
    pub original: DockerConfig,
    pub precedence: Precedence,
    /// Sources that only some pods may use.
    pub scoped: Vec<(String, Scope)>,
    /// Names of the sources that every pod may use.
    pub everybodys: Vec<String>,
}

impl InForce {
    /// One content, with no other source beside it.
    pub(crate) fn only(additional: DockerConfig) -> Self {
        Self {
            additional,
            ..Self::default()
        }
    }

    pub(crate) fn of(global: Option<&Secret>, precedence: Precedence) -> Self {
        let config = |key| {
            global
                .and_then(|secret| data_of(secret, key))
                .and_then(|bytes| validate_bytes(bytes).0)
                .unwrap_or_default()
        };
        let scoped = global.and_then(|secret| data_of(secret, names::SCOPED_KEY));
        let scoped = scoped.and_then(|bytes| parse_scoped(bytes).ok());
        let scoped: Vec<(String, Scope)> = scoped
            .unwrap_or_default()
            .into_iter()
            .map(|scoped| (scoped.source, scoped.scope))
            .collect();
        let keys = global.and_then(|secret| secret.data.as_ref());
        let sources = keys.into_iter().flat_map(|data| data.keys());
        let sources = sources.filter_map(|key| key.strip_prefix(names::LAST_SOURCE_KEY_PREFIX));
        let is_scoped = |source: &str| scoped.iter().any(|(name, _)| name == source);
        let everybodys = sources.filter(|source| !is_scoped(source));
        Self {
            additional: config(names::LAST_ADDITIONAL_KEY),
            original: config(names::LAST_ORIGINAL_KEY),
            precedence,
            everybodys: everybodys.map(str::to_owned).collect(),
            scoped,
        }
    }
}

/// One element for each registry that `proposed` has otherwise than what is in force, by name.
pub(crate) fn changes(in_force: &InForce, proposed: &DockerConfig) -> Vec<Change> {
    let before = in_force.additional.by_canonical_key();
    let after = proposed.by_canonical_key();
    let original = in_force.original.by_canonical_key();
    let registries: BTreeSet<&str> = before
        .keys()
        .chain(after.keys())
        .map(AsRef::as_ref)
        .collect();
    let kind = |registry: &str| {
        let (before, after) = (before.get(registry), after.get(registry));
        let Some(after) = after else {
            return Some(Kind::Removed);
        };
        if before.is_some_and(|before| before.means_the_same(after)) {
            return None;
        }
        let Some(original) = original.get(registry) else {
            return Some(match before {
                Some(_) => Kind::Changed,
                None => Kind::Added,
            });
        };
        let overrode = before.is_some_and(|before| !before.means_the_same(original));
        match in_force.precedence {
            _ if after.means_the_same(original) => overrode.then_some(Kind::Changed),
            Precedence::Original => Some(Kind::Shadowed),
            Precedence::Additional if overrode => Some(Kind::Changed),
            Precedence::Additional => Some(Kind::Overridden),
        }
    };
    registries
        .into_iter()
        .filter_map(|registry| {
            Some(Change {
                registry: shown_key(registry),
                change: kind(registry)?,
            })
        })
        .collect()
}

/// The changes as kubectl shows them, with every credential masked.
pub(crate) fn text(changes: &[Change]) -> String {
    changes
        .iter()
        .flat_map(|Change { registry, change }| match change {
            Kind::Added => vec![format!("+{registry}: ***")],
            Kind::Removed => vec![format!("-{registry}: ***")],
            Kind::Changed => vec![
                format!("-{registry}: *** (before)"),
                format!("+{registry}: *** (after)"),
            ],
            Kind::Overridden => vec![
                format!("-{registry}: *** (before, original pull secret)"),
                format!("+{registry}: *** (after)"),
            ],
            Kind::Shadowed => vec![format!(
                " {registry}: *** (shadowed: the original pull secret wins)"
            )],
        })
        .map(|line| line + "\n")
        .collect()
}

/// Both sides as text, one line a registry, every credential masked: what another program may compare.
pub(crate) fn sides(
    in_force: &InForce,
    proposed: &DockerConfig,
    changes: &[Change],
) -> (String, String) {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    for config in [&in_force.additional, proposed] {
        for key in config.by_canonical_key().keys() {
            before.insert(shown_key(key), "***");
        }
    }
    after.clone_from(&before);
    for Change { registry, change } in changes {
        match change {
            Kind::Added => {
                before.remove(registry);
            }
            Kind::Removed => {
                after.remove(registry);
            }
            Kind::Changed => {
                before.insert(registry.clone(), "*** (before)");
                after.insert(registry.clone(), "*** (after)");
            }
            Kind::Overridden => {
                before.insert(registry.clone(), "*** (before, original pull secret)");
                after.insert(registry.clone(), "*** (after)");
            }
            Kind::Shadowed => {
                after.insert(
                    registry.clone(),
                    "*** (shadowed: the original pull secret wins)",
                );
            }
        }
    }
    let text = |side: &BTreeMap<String, &str>| {
        let lines = side.iter();
        let lines = lines.map(|(registry, shown)| [registry, ": ", shown, "\n"].concat());
        lines.collect()
    };
    (text(&before), text(&after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `"a:dTpw b:dTpx"` as credentials.
    fn config(text: &str) -> DockerConfig {
        let auths: Vec<String> = text
            .split_whitespace()
            .filter_map(|word| word.split_once(':'))
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
            .collect();
        globalps_core::dockerconfig::parse(
            format!(r#"{{"auths":{{{}}}}}"#, auths.join(",")).as_bytes(),
        )
        .expect("credentials")
    }

    #[test]
    fn a_change_is_named_by_what_it_does_to_the_nodes() {
        use Kind::{Added, Changed, Overridden, Removed, Shadowed};
        use Precedence::{Additional, Original};
        for (sentence, original, before, after, precedence, expected) in [
            ("the same is none", "", "a:dTpw", "a:dTpw", Additional, None),
            ("new", "", "", "a:dTpw", Additional, Some(Added)),
            (
                "another password",
                "",
                "a:dTpw",
                "a:dTpx",
                Additional,
                Some(Changed),
            ),
            ("withdrawn", "", "a:dTpw", "", Additional, Some(Removed)),
            (
                "instead of the original's",
                "a:dTpw",
                "",
                "a:dTpx",
                Additional,
                Some(Overridden),
            ),
            (
                "which wins where it is to win",
                "a:dTpw",
                "",
                "a:dTpx",
                Original,
                Some(Shadowed),
            ),
            (
                "the original's own changes nothing",
                "a:dTpw",
                "",
                "a:dTpw",
                Additional,
                None,
            ),
            (
                "again another one",
                "a:dTpw",
                "a:dTpx",
                "a:dTpy",
                Additional,
                Some(Changed),
            ),
            (
                "back to the original's",
                "a:dTpw",
                "a:dTpx",
                "a:dTpw",
                Additional,
                Some(Changed),
            ),
            (
                "shadowed before and after",
                "a:dTpw",
                "a:dTpx",
                "a:dTpx",
                Original,
                None,
            ),
        ] {
            let in_force = InForce {
                additional: config(before),
                original: config(original),
                precedence,
                ..InForce::default()
            };
            let found = changes(&in_force, &config(after));
            let kinds: Vec<Kind> = found.iter().map(|change| change.change).collect();
            assert_eq!(kinds, Vec::from_iter(expected), "{sentence}");
        }
    }

    #[test]
    fn another_spelling_of_a_registry_is_no_change() {
        let in_force = InForce {
            additional: config("quay.io:dTpw"),
            ..InForce::default()
        };
        let same = globalps_core::dockerconfig::parse(
            br#"{"auths":{"https://quay.io/v1/":{"username":"u","password":"p"}}}"#,
        )
        .expect("credentials");
        assert_eq!(changes(&in_force, &same), []);
    }

    #[test]
    fn credentials_are_masked() {
        let all = [
            Kind::Added,
            Kind::Removed,
            Kind::Changed,
            Kind::Overridden,
            Kind::Shadowed,
        ]
        .map(|change| Change {
            registry: "r".to_owned(),
            change,
        });
        assert_eq!(
            text(&all),
            "\
+r: ***
-r: ***
-r: *** (before)
+r: *** (after)
-r: *** (before, original pull secret)
+r: *** (after)
 r: *** (shadowed: the original pull secret wins)
"
        );
    }

    #[test]
    fn both_sides_have_every_registry_and_no_credential() {
        let in_force = InForce {
            additional: config("a:dTpw b:dTpw same:dTpw"),
            ..InForce::default()
        };
        let proposed = config("b:dTpx c:dTpw same:dTpw");
        let changes = changes(&in_force, &proposed);
        let (before, after) = sides(&in_force, &proposed, &changes);
        assert_eq!(before, "a: ***\nb: *** (before)\nsame: ***\n");
        assert_eq!(after, "b: *** (after)\nc: ***\nsame: ***\n");
    }

    #[test]
    fn the_json_is_what_scripts_rely_on() {
        let mut difference = Difference {
            changes: vec![Change {
                registry: "quay.io".to_owned(),
                change: Kind::Overridden,
            }],
            lagging_nodes: vec!["node-2".to_owned()],
            scopes: Vec::new(),
            effects: Effects::default(),
        };
        assert_eq!(
            serde_json::to_string(&difference).expect("JSON"),
            r#"{"changes":[{"registry":"quay.io","change":"overridden"}],"laggingNodes":["node-2"]}"#
        );
        difference.changes.clear();
        assert!(difference.is_empty());
        difference.scopes = vec![ScopeChange {
            source: "s".to_owned(),
            before: String::new(),
            after: "pods of a".to_owned(),
        }];
        difference.effects.new_ports = vec!["r:99".to_owned()];
        difference.effects.restarts_kubelets = Some(true);
        assert_eq!(
            serde_json::to_string(&difference).expect("JSON"),
            r#"{"changes":[],"laggingNodes":["node-2"],"scopes":[{"source":"s","before":"","after":"pods of a"}],"newPorts":["r:99"],"restartsKubelets":true}"#
        );
        assert!(!difference.is_empty());
        assert_eq!(difference.beside(), "+source `s`: pods of a\n");
    }

    #[test]
    fn sources_in_force_are_for_every_pod_or_for_some() {
        use globalps_core::provider::{ScopedConfig, render_scoped};
        use k8s_openapi::ByteString;
        let scope: Scope = serde_json::from_str(r#"{"namespaces":["team-*"]}"#).expect("a scope");
        let scoped = render_scoped(&[ScopedConfig {
            source: "team".to_owned(),
            scope: scope.clone(),
            config: config("a:dTpw"),
        }]);
        let mut global = Secret::default();
        let keys = ["last-good-source.team", "last-good-source.all", "other"];
        let data = keys.map(|key| (key.to_owned(), ByteString(b"{}".to_vec())));
        let data = data.into_iter();
        let scoped = (names::SCOPED_KEY.to_owned(), ByteString(scoped));
        global.data = Some(data.chain([scoped]).collect());
        let in_force = InForce::of(Some(&global), Precedence::default());
        assert_eq!(in_force.scoped, [("team".to_owned(), scope)]);
        assert_eq!(in_force.everybodys, ["all"]);
    }
}
