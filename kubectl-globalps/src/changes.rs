//! What an additional pull secret changes against what is in force. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::dockerconfig::{DockerConfig, Precedence, shown_key, validate_bytes};
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

use crate::additional::data_of;

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
}

/// What the controller put in force last.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    pub additional: DockerConfig,
    pub original: DockerConfig,
    pub precedence: Precedence,
}

impl InForce {
    pub(crate) fn of(global: Option<&Secret>, precedence: Precedence) -> Self {
        let config = |key| {
            global
                .and_then(|secret| data_of(secret, key))
                .and_then(|bytes| validate_bytes(bytes).0)
                .unwrap_or_default()
        };
        Self {
            additional: config(names::LAST_ADDITIONAL_KEY),
            original: config(names::LAST_ORIGINAL_KEY),
            precedence,
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
        let difference = Difference {
            changes: vec![Change {
                registry: "quay.io".to_owned(),
                change: Kind::Overridden,
            }],
            lagging_nodes: vec!["node-2".to_owned()],
        };
        assert_eq!(
            serde_json::to_string(&difference).expect("JSON"),
            r#"{"changes":[{"registry":"quay.io","change":"overridden"}],"laggingNodes":["node-2"]}"#
        );
    }
}
