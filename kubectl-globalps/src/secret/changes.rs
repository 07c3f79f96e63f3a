//! The changes between an additional pull secret and the content in force. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, Entry, Precedence, merge, shown_key};
use globalps_provider::{Scope, parse_scoped};
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

use crate::secret::additional::{data_of, valid_in};
use crate::secret::effects::Effects;
use crate::secret::openshift::IntoOpenShift;
use crate::secret::scope::ScopeChange;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChangeKind {
    Added,
    Changed,
    /// It is removed, and the credential of another pull secret replaces it.
    #[serde(rename = "changed")]
    Replaced,
    /// It replaces the credential of the original pull secret or of another source.
    Overridden,
    /// It has no effect: the credential of the original pull secret or of another source takes precedence.
    Shadowed,
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RegistryChange {
    /// Canonical name.
    pub registry: String,
    pub change: ChangeKind,
}

/// Whether the credentials merged for the nodes change.
pub(crate) fn reach_nodes(changes: &[RegistryChange]) -> bool {
    changes.iter().any(|it| it.change != ChangeKind::Shadowed)
}

/// `diff -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    pub changes: Vec<RegistryChange>,
    pub lagging_nodes: Vec<String>,
    /// Scopes of sources that have one now or had one before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<ScopeChange>,
    #[serde(flatten)]
    pub effects: Effects,
    /// What `openshift-config/pull-secret` gets, with the delivery `OpenShift`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<IntoOpenShift>,
}

impl Difference {
    /// Whether nothing differs; nodes that lag behind don't count.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.scopes.is_empty() && self.effects.delivery.is_none()
    }

    /// Differences other than registries, one signed line each.
    pub(crate) fn beside(&self) -> String {
        let scopes: String = self.scopes.iter().map(ScopeChange::text).collect();
        self.effects.change() + &scopes
    }
}

/// The content that the controller last put in force.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    /// Content of the pull secret to compare: the additional one, or that of another source.
    pub additional: DockerConfig,
    pub original: DockerConfig,
    pub precedence: Precedence,
    /// Sources for every pod with a higher, and with a lower precedence than the pull secret to compare.
    pub before: DockerConfig,
    pub after: DockerConfig,
    /// Sources with a scope.
    pub scoped: Vec<(String, Scope)>,
    /// Names of the sources for every pod.
    pub everybodys: Vec<String>,
}

impl InForce {
    /// Only this content, without other sources.
    pub(crate) fn only(additional: DockerConfig) -> Self {
        Self {
            additional,
            ..Self::default()
        }
    }

    /// Treats all sources for every pod, and `scoped`, as the pull secret to compare: for a change that removes all of them.
    pub(crate) fn whole(self, scoped: impl Iterator<Item = DockerConfig>) -> Self {
        let own = first_wins(&self.before, &first_wins(&self.additional, &self.after));
        Self {
            additional: scoped.fold(own, |first, next| first_wins(&first, &next)),
            before: DockerConfig::default(),
            after: DockerConfig::default(),
            ..self
        }
    }

    /// With this content in place of the compared pull secret's. Keeps the content in force if `content` is `None`,
    /// which means invalid, or if `content` has no credentials and the content in force has some.
    pub(crate) fn with(self, content: Option<DockerConfig>) -> Self {
        let has_some = !self.additional.is_without_credentials();
        match content.filter(|content| !(has_some && content.is_without_credentials())) {
            Some(additional) => Self { additional, ..self },
            None => self,
        }
    }

    /// `compared`: name of the pull secret to compare.
    pub(crate) fn of(
        global: Option<&Secret>,
        spec: Option<&GlobalPullSecretSpec>,
        compared: &str,
    ) -> Self {
        let config = |key: &str| {
            let valid = global.and_then(|secret| valid_in(secret, key));
            valid.unwrap_or_default()
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
        let mut found = Self {
            original: config(names::LAST_ORIGINAL_KEY),
            precedence: spec.map(|spec| spec.precedence).unwrap_or_default(),
            everybodys: everybodys.map(str::to_owned).collect(),
            scoped,
            ..Self::default()
        };
        let names = spec.into_iter().flat_map(|spec| &spec.sources);
        let names = names.map(|source| source.name.as_str());
        let names: Vec<&str> = names
            .filter(|name| found.everybodys.iter().any(|known| known == name))
            .collect();
        // Sources that the spec no longer names stay in force until the controller removes them, which it may hold.
        let unnamed = found.everybodys.iter().map(String::as_str);
        let unnamed = unnamed.filter(|name| !names.contains(name));
        let further = names.iter().copied().chain(unnamed);
        let further =
            further.map(|name| (name, format!("{}{name}", names::LAST_SOURCE_KEY_PREFIX)));
        let additional = (
            names::ADDITIONAL_SECRET,
            names::LAST_ADDITIONAL_KEY.to_owned(),
        );
        let all: Vec<(&str, String)> = std::iter::once(additional).chain(further).collect();
        let at = all.iter().position(|(name, _)| *name == compared);
        let combined = |some: &[(&str, String)]| {
            let contents = some.iter().map(|(_, key)| config(key));
            contents.fold(DockerConfig::default(), |first, next| {
                first_wins(&first, &next)
            })
        };
        let (before, rest) = all.split_at(at.unwrap_or(all.len()));
        let (own, after) = rest.split_at(rest.len().min(1));
        (found.before, found.additional, found.after) =
            (combined(before), combined(own), combined(after));
        found
    }

    /// The merged credentials for every pod of a node, with this content in place of the compared pull secret's.
    pub(crate) fn effective(&self, content: &DockerConfig) -> DockerConfig {
        let combined = first_wins(&self.before, &first_wins(content, &self.after));
        merge(&self.original, &combined, self.precedence).config
    }
}

fn first_wins(first: &DockerConfig, second: &DockerConfig) -> DockerConfig {
    merge(second, first, Precedence::Additional).config
}

/// The registries, by name, whose credentials on nodes differ once `proposed` is in force, and those of `proposed` that
/// have no effect.
pub(crate) fn changes(in_force: &InForce, proposed: &DockerConfig) -> Vec<RegistryChange> {
    let before = in_force.additional.by_canonical_key();
    let after = proposed.by_canonical_key();
    let (on_nodes, next) = (
        in_force.effective(&in_force.additional),
        in_force.effective(proposed),
    );
    let (on_nodes, next) = (on_nodes.by_canonical_key(), next.by_canonical_key());
    let registries: BTreeSet<&str> = before
        .keys()
        .chain(after.keys())
        .map(AsRef::as_ref)
        .collect();
    let kind = |registry: &str| {
        let is_same = |a: Option<&&Entry>, b: Option<&&Entry>| {
            a.zip(b).is_some_and(|(a, b)| a.means_the_same(b))
        };
        let (before, after) = (before.get(registry), after.get(registry));
        let (on_nodes, next) = (on_nodes.get(registry), next.get(registry));
        match (on_nodes, next) {
            (None, None) => None,
            (None, Some(_)) => Some(ChangeKind::Added),
            (Some(_), None) => Some(ChangeKind::Removed),
            (Some(_), Some(_)) if is_same(on_nodes, next) => {
                let is_shadowed =
                    after.is_some() && !is_same(after, next) && !is_same(before, after);
                is_shadowed.then_some(ChangeKind::Shadowed)
            }
            (Some(_), Some(_)) if after.is_none() => Some(ChangeKind::Replaced),
            (Some(_), Some(_)) if is_same(before, on_nodes) => Some(ChangeKind::Changed),
            (Some(_), Some(_)) => Some(ChangeKind::Overridden),
        }
    };
    registries
        .into_iter()
        .filter_map(|registry| {
            Some(RegistryChange {
                registry: shown_key(registry),
                change: kind(registry)?,
            })
        })
        .collect()
}

const REPLACED: &str = "*** (after, another pull secret)";

/// The changes in the style of kubectl, with every credential masked.
pub(crate) fn text(changes: &[RegistryChange]) -> String {
    changes
        .iter()
        .flat_map(|RegistryChange { registry, change }| match change {
            ChangeKind::Added => vec![format!("+{registry}: ***")],
            ChangeKind::Removed => vec![format!("-{registry}: ***")],
            ChangeKind::Changed => vec![
                format!("-{registry}: *** (before)"),
                format!("+{registry}: *** (after)"),
            ],
            ChangeKind::Replaced => vec![
                format!("-{registry}: *** (before)"),
                format!("+{registry}: {REPLACED}"),
            ],
            ChangeKind::Overridden => vec![
                format!("-{registry}: *** (before, another pull secret)"),
                format!("+{registry}: *** (after)"),
            ],
            ChangeKind::Shadowed => vec![format!(
                " {registry}: *** (shadowed: another pull secret wins)"
            )],
        })
        .map(|line| line + "\n")
        .collect()
}

/// Like [`text`], but says so if nothing changes. `places`: such as `on the nodes`.
pub(crate) fn text_of_all(changes: &[RegistryChange], places: &str) -> String {
    if changes.is_empty() {
        return format!("no credential {places} changes\n");
    }
    text(changes)
}

/// Both sides as text for an external diff program: one line per registry, every credential masked.
pub(crate) fn sides(
    in_force: &InForce,
    proposed: &DockerConfig,
    changes: &[RegistryChange],
) -> (String, String) {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    for config in [&in_force.additional, proposed] {
        for key in config.by_canonical_key().keys() {
            before.insert(shown_key(key), "***");
        }
    }
    after.clone_from(&before);
    for RegistryChange { registry, change } in changes {
        match change {
            ChangeKind::Added => {
                before.remove(registry);
            }
            ChangeKind::Removed => {
                after.remove(registry);
            }
            ChangeKind::Changed => {
                before.insert(registry.clone(), "*** (before)");
                after.insert(registry.clone(), "*** (after)");
            }
            ChangeKind::Replaced => {
                before.insert(registry.clone(), "*** (before)");
                after.insert(registry.clone(), REPLACED);
            }
            ChangeKind::Overridden => {
                before.insert(registry.clone(), "*** (before, another pull secret)");
                after.insert(registry.clone(), "*** (after)");
            }
            ChangeKind::Shadowed => {
                after.insert(registry.clone(), "*** (shadowed: another pull secret wins)");
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
mod tests;
