//! The scope of a source: its entry in `spec.sources`, and its description. Pure.

use std::collections::BTreeSet;

use globalps_core::api::{SourceRef, SourceScope};
use globalps_core::labels;
use globalps_provider::{Pattern, Scope};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) const EVERY_POD: &str = "every pod";

/// Describes the scope; `None`: the source is for every pod.
pub(crate) fn shown(scope: Option<&SourceScope>) -> String {
    let Some(scope) = scope else {
        return EVERY_POD.to_owned();
    };
    let mut namespaces = scope.namespaces.clone();
    if let Some(selector) = &scope.namespace_selector {
        let selected = labels::selector(selector).map(|labels| labels.to_string());
        namespaces.push(match selected.as_deref() {
            Ok("") => "every namespace".to_owned(),
            Ok(labels) => format!("namespaces with {labels}"),
            // The controller reports why the scope can't be used.
            Err(_) => "namespaces with unknown labels".to_owned(),
        });
    }
    pods_of(&namespaces, &scope.service_accounts)
}

/// Like [`shown`], for a scope in force.
pub(crate) fn in_force(scope: &Scope) -> String {
    pods_of(&texts(&scope.namespaces), &texts(&scope.service_accounts))
}

fn texts(patterns: &[Pattern]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

fn pods_of(namespaces: &[String], accounts: &[String]) -> String {
    let namespaces = match namespaces {
        [] => "no namespace".to_owned(),
        some => some.join(", "),
    };
    match accounts {
        [] => format!("pods of {namespaces}"),
        some => format!(
            "pods of {namespaces} (service accounts {})",
            some.join(", ")
        ),
    }
}

/// `spec.sources` with this source. A new one is appended; a known one gets the scope, or keeps its own if `scope` is
/// `None`. Unknown fields of a newer release stay.
pub(crate) fn with_source(
    sources: &[Value],
    name: &str,
    scope: Option<&SourceScope>,
) -> Vec<Value> {
    let mut sources = sources.to_vec();
    let known = sources.iter_mut().find(|source| source["name"] == name);
    match (known, scope) {
        (Some(known), Some(scope)) => known["scope"] = json!(scope),
        (Some(_), None) => {}
        (None, Some(scope)) => sources.push(json!({"name": name, "scope": scope})),
        (None, None) => sources.push(json!({"name": name})),
    }
    sources
}

/// `spec.sources` without this one.
pub(crate) fn without_source(sources: &[Value], name: &str) -> Vec<Value> {
    let others = sources.iter().filter(|source| source["name"] != name);
    others.cloned().collect()
}

/// The pods that may use a source, before and after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ScopeChange {
    pub source: String,
    /// Empty if it is not a source, or no pod gets it.
    pub before: String,
    pub after: String,
}

impl ScopeChange {
    pub(crate) fn is_change(&self) -> bool {
        self.before != self.after
    }

    /// Whether the source was, or becomes, one for every pod.
    pub(crate) fn is_of_every_pod(&self) -> bool {
        self.is_change() && [&self.before, &self.after].contains(&&EVERY_POD.to_owned())
    }

    /// The line that `diff` prints; without a sign if nothing changes.
    pub(crate) fn text(&self) -> String {
        if self.is_change() {
            self.side('-', &self.before) + &self.side('+', &self.after)
        } else {
            self.side(' ', &self.after)
        }
    }

    fn side(&self, sign: char, who: &str) -> String {
        match who {
            "" => String::new(),
            who => format!("{sign}source `{}`: {who}\n", self.source),
        }
    }
}

/// Sources whose scope in force differs from the spec. `delivered`: whether nodes get sources with a scope at all.
/// `everybodys`: names of the sources in force for every pod.
pub(crate) fn changes(
    spec: &[SourceRef],
    delivered: bool,
    scoped: &[(String, Scope)],
    everybodys: &[String],
) -> Vec<ScopeChange> {
    let known = |name: &str| scoped.iter().find(|(source, _)| source == name);
    let of_spec = spec.iter().filter_map(|source| {
        let known = known(&source.name).map(|(_, scope)| scope);
        if known.is_none() && source.scope.is_none() {
            return None;
        }
        let before = match known {
            Some(scope) => in_force(scope),
            None if everybodys.contains(&source.name) => EVERY_POD.to_owned(),
            None => String::new(),
        };
        let is_met = |scope| known.is_some_and(|known| is_met(scope, known));
        let after = match &source.scope {
            Some(_) if !delivered => String::new(),
            Some(scope) if is_met(scope) => before.clone(),
            scope => shown(scope.as_ref()),
        };
        Some((source.name.clone(), before, after))
    });
    let is_gone = |name: &str| spec.iter().all(|source| source.name != name);
    let gone = scoped.iter().filter(|(name, _)| is_gone(name));
    let gone = gone.map(|(name, scope)| (name.clone(), in_force(scope), String::new()));
    of_spec
        .chain(gone)
        .map(|(source, before, after)| ScopeChange {
            source,
            before,
            after,
        })
        .filter(ScopeChange::is_change)
        .collect()
}

/// Whether the scope in force may match the spec. Only the controller knows which namespaces a selector matches.
fn is_met(asked: &SourceScope, known: &Scope) -> bool {
    let set = |texts: &[String]| texts.iter().cloned().collect::<BTreeSet<_>>();
    let (wanted, there) = (set(&asked.namespaces), set(&texts(&known.namespaces)));
    let namespaces = match asked.namespace_selector {
        Some(_) => wanted.is_subset(&there),
        None => wanted == there,
    };
    namespaces && set(&asked.service_accounts) == set(&texts(&known.service_accounts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(scope: Value) -> SourceScope {
        serde_json::from_value(scope).expect("a scope")
    }

    fn known(name: &str, scope: Value) -> (String, Scope) {
        let scope = serde_json::from_value(scope).expect("a scope");
        (name.to_owned(), scope)
    }

    #[test]
    fn a_scope_is_shown_in_words() {
        for (scope, expected) in [
            (json!(null), "every pod"),
            (
                json!({"namespaces": ["team-a", "team-a-*"]}),
                "pods of team-a, team-a-*",
            ),
            (
                json!({"namespaces": ["a"], "serviceAccounts": ["builder", "ci-*"]}),
                "pods of a (service accounts builder, ci-*)",
            ),
            (
                json!({"namespaces": ["a"], "namespaceSelector": {"matchLabels": {"team": "a"}}}),
                "pods of a, namespaces with team=a",
            ),
            (json!({"namespaceSelector": {}}), "pods of every namespace"),
            (
                json!({"namespaceSelector": {"matchExpressions": [{"key": "k", "operator": "Like"}]}}),
                "pods of namespaces with unknown labels",
            ),
            (
                json!({"serviceAccounts": ["x"]}),
                "pods of no namespace (service accounts x)",
            ),
        ] {
            let scope: Option<SourceScope> = serde_json::from_value(scope).expect("a scope");
            assert_eq!(shown(scope.as_ref()), expected);
        }
    }

    #[test]
    fn a_source_gets_one_entry_and_no_other_entry_changes() {
        let before = [
            json!({"name": "a", "scope": {"namespaces": ["x"]}, "newer": 1}),
            json!({"name": "b"}),
        ];
        let scope = asked(json!({"namespaces": ["y"]}));
        for (name, scope, expected) in [
            ("a", None, json!([before[0], before[1]])),
            (
                "a",
                Some(&scope),
                json!([{"name": "a", "scope": {"namespaces": ["y"]}, "newer": 1}, before[1]]),
            ),
            ("c", None, json!([before[0], before[1], {"name": "c"}])),
            (
                "c",
                Some(&scope),
                json!([before[0], before[1], {"name": "c", "scope": {"namespaces": ["y"]}}]),
            ),
        ] {
            assert_eq!(json!(with_source(&before, name, scope)), expected, "{name}");
        }
        assert_eq!(json!(without_source(&before, "a")), json!([before[1]]));
        assert_eq!(json!(without_source(&before, "c")), json!(before));
    }

    #[test]
    fn what_is_in_force_is_held_against_the_spec() {
        for (sentence, spec, delivered, scoped, expected) in [
            (
                "a new one",
                json!([{"name": "s", "scope": {"namespaces": ["a"]}}]),
                true,
                vec![],
                "+source `s`: pods of a\n",
            ),
            (
                "the same in another order",
                json!([{"name": "s", "scope": {"namespaces": ["b", "a"]}}]),
                true,
                vec![known("s", json!({"namespaces": ["a", "b"]}))],
                "",
            ),
            (
                "another one",
                json!([{"name": "s", "scope": {"namespaces": ["b"]}}]),
                true,
                vec![known("s", json!({"namespaces": ["a"]}))],
                "-source `s`: pods of a\n+source `s`: pods of b\n",
            ),
            (
                "what a selector selects is the controller's to say",
                json!([{"name": "s", "scope": {"namespaceSelector": {}}}]),
                true,
                vec![known("s", json!({"namespaces": ["a"]}))],
                "",
            ),
            (
                "no longer a source",
                json!([]),
                true,
                vec![known("s", json!({"namespaces": ["a"]}))],
                "-source `s`: pods of a\n",
            ),
            (
                "no longer with a scope",
                json!([{"name": "s"}]),
                true,
                vec![known("s", json!({"namespaces": ["a"]}))],
                "-source `s`: pods of a\n+source `s`: every pod\n",
            ),
            (
                "was for every pod",
                json!([{"name": "old", "scope": {"namespaces": ["a"]}}]),
                true,
                vec![],
                "-source `old`: every pod\n+source `old`: pods of a\n",
            ),
            (
                "not delivered",
                json!([{"name": "s", "scope": {"namespaces": ["a"]}}]),
                false,
                vec![],
                "",
            ),
            (
                "without a scope",
                json!([{"name": "old"}, {"name": "new"}]),
                true,
                vec![],
                "",
            ),
        ] {
            let spec: Vec<SourceRef> = serde_json::from_value(spec).expect("sources");
            let found = changes(&spec, delivered, &scoped, &["old".to_owned()]);
            let text: String = found.iter().map(ScopeChange::text).collect();
            assert_eq!(text, expected, "{sentence}");
        }
    }

    #[test]
    fn a_scope_that_stays_is_shown_without_a_sign() {
        let stays = ScopeChange {
            source: "s".to_owned(),
            before: "pods of a".to_owned(),
            after: "pods of a".to_owned(),
        };
        assert_eq!(stays.text(), " source `s`: pods of a\n");
    }
}
