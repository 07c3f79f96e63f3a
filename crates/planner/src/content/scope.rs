//! Resolves the scope of a source to names of existing namespaces. Pure.

use std::collections::BTreeMap;

use globalps_core::api::SourceScope;
use globalps_core::labels;
use globalps_provider::{Pattern, Scope};
use kube::core::SelectorExt as _;

/// Labels of each namespace, by its name.
pub type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// `namespaces`: `None` if the controller may not list them. The error says why a scope is invalid.
pub fn resolve_scope(
    scope: &SourceScope,
    namespaces: Option<&Namespaces>,
) -> Result<Scope, String> {
    let mut covered = patterns("namespaces", &scope.namespaces)?;
    if let Some(selector) = &scope.namespace_selector {
        let selector = labels::selector(selector)
            .map_err(|error| format!("`scope.namespaceSelector` is invalid: {error}"))?;
        let namespaces = namespaces.ok_or(
            "`scope.namespaceSelector`: the controller may not list namespaces; `kubectl globalps install` allows it",
        )?;
        let selected = namespaces
            .iter()
            .filter(|(_, labels)| selector.matches(labels));
        let names: Vec<String> = selected.map(|(name, _)| name.clone()).collect();
        covered.extend(patterns("namespaceSelector", &names)?);
    } else if covered.is_empty() {
        return Err(
            "`scope` selects no namespace: set `namespaces` or `namespaceSelector`".to_owned(),
        );
    }
    covered.sort();
    covered.dedup();
    Ok(Scope {
        namespaces: covered,
        service_accounts: patterns("serviceAccounts", &scope.service_accounts)?,
    })
}

/// Whether `last` may stay in force instead of `resolved` for a while: the selector selects more namespaces, or some
/// are gone. A revoked scope never stays, and a namespace that an admin names gets the content at once.
pub fn only_gains(
    scope: &SourceScope,
    namespaces: &Namespaces,
    (last, resolved): (&Scope, &Scope),
) -> bool {
    let has = |scope: &Scope, pattern: &Pattern| scope.namespaces.binary_search(pattern).is_ok();
    let is_gone = |pattern: &Pattern| {
        let name = pattern.to_string();
        !name.contains('*') && !namespaces.contains_key(&name)
    };
    let named = patterns("namespaces", &scope.namespaces).unwrap_or_default();
    last.service_accounts == resolved.service_accounts
        && named.iter().all(|pattern| has(last, pattern))
        && last
            .namespaces
            .iter()
            .all(|pattern| has(resolved, pattern) || is_gone(pattern))
}

fn patterns(field: &str, texts: &[String]) -> Result<Vec<Pattern>, String> {
    texts
        .iter()
        .map(|text| {
            let shown: String = text.chars().take(64).collect();
            Pattern::try_from(text.clone())
                .map_err(|error| format!("`scope.{field}`: `{shown}` is not a valid name: {error}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_patterns_and_selected_namespaces_add_up() {
        let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
        let namespaces = Namespaces::from([
            ("one".to_owned(), labels("a")),
            ("three".to_owned(), labels("a")),
            ("two".to_owned(), labels("b")),
        ]);
        for (scope, expected) in [
            (json!({"namespaces": ["x", "team-*"]}), Ok("team-*, x")),
            (
                json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}),
                Ok("one, three"),
            ),
            (
                json!({"namespaces": ["one", "x"], "namespaceSelector": {"matchExpressions": [
                    {"key": "team", "operator": "In", "values": ["a"]}]}}),
                Ok("one, three, x"),
            ),
            (json!({"namespaceSelector": {}}), Ok("one, three, two")),
            (
                json!({"namespaceSelector": {"matchLabels": {"team": "c"}}}),
                Ok("no namespace"),
            ),
            (
                json!({"namespaces": ["x"], "serviceAccounts": ["ci"]}),
                Ok("x (service accounts ci)"),
            ),
            (json!({}), Err("selects no namespace")),
            (
                json!({"serviceAccounts": ["ci"]}),
                Err("selects no namespace"),
            ),
            (
                json!({"namespaces": ["team-["]}),
                Err("`team-[` is not a valid name"),
            ),
            (json!({"namespaces": [""]}), Err("it is empty")),
            (
                json!({"namespaces": ["x"], "serviceAccounts": ["C I"]}),
                Err("`scope.serviceAccounts`"),
            ),
            (
                json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Like"}]}}),
                Err("`scope.namespaceSelector`"),
            ),
        ] {
            let scope: SourceScope = serde_json::from_value(scope).unwrap();
            let resolved = resolve_scope(&scope, Some(&namespaces));
            match (&resolved, expected) {
                (Ok(scope), Ok(expected)) => assert_eq!(scope.to_string(), expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                _ => panic!("{resolved:?}, not {expected:?}"),
            }
            let unknown = resolve_scope(&scope, None);
            assert_eq!(
                unknown.is_err(),
                scope.namespace_selector.is_some() || resolved.is_err()
            );
        }
    }
}
