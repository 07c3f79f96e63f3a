//! Which namespaces get a pull secret, and which credentials. Pure.

use std::collections::BTreeMap;

use globalps_dockerconfig::{DockerConfig, combine};
use globalps_provider::{Content, Pattern, ScopedConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt as _};

use crate::api::ImagePullSecrets;
use crate::labels::selector;
use crate::names::{CONTROLLER_MANAGER, EXCLUDE_LABEL, PATCHER_EXCLUDE_ANNOTATION};
use crate::rollout::Revision;

/// Which namespaces [`ImagePullSecrets`] selects. The admission policy implements the same rule in CEL.
#[derive(Clone, Debug)]
pub struct Selection {
    selector: Option<Selector>,
    excluded: Vec<Pattern>,
}

/// Whether a namespace gets the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// The namespace gets the Secret.
    Yes,
    /// The labels don't match the selector.
    NotSelected,
    /// Excluded by name, label, or imagepullsecret-patcher's annotation.
    Excluded,
}

impl Selection {
    /// The error says why the selector or a pattern is invalid.
    pub fn new(settings: &ImagePullSecrets) -> Result<Self, String> {
        let selector = settings.namespace_selector.as_ref().map(selector);
        let excluded = settings.excluded_namespaces.iter().map(|text| {
            Pattern::try_from(text.clone()).map_err(|error| {
                format!("`imagePullSecrets.excludedNamespaces`: `{text}`: {error}")
            })
        });
        Ok(Self {
            selector: selector.transpose().map_err(|error| {
                format!("`imagePullSecrets.namespaceSelector` can't be used: {error}")
            })?,
            excluded: excluded.collect::<Result<_, _>>()?,
        })
    }

    /// `labels` is called only if there is a selector. `is_marked`: [`is_marked_excluded`].
    pub fn covers(
        &self,
        name: &str,
        labels: impl FnOnce() -> BTreeMap<String, String>,
        is_marked: bool,
    ) -> Selected {
        if is_marked || self.excluded.iter().any(|pattern| pattern.matches(name)) {
            Selected::Excluded
        } else if self
            .selector
            .as_ref()
            .is_none_or(|selector| selector.matches(&labels()))
        {
            Selected::Yes
        } else {
            Selected::NotSelected
        }
    }
}

/// Whether the namespace's own labels or annotations exclude it.
pub fn is_marked_excluded(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> bool {
    let is_true = |map: &BTreeMap<String, String>, key| map.get(key).is_some_and(|v| v == "true");
    is_true(labels, EXCLUDE_LABEL) || is_true(annotations, PATCHER_EXCLUDE_ANNOTATION)
}

/// One part of the annotation `globalps.io/content`: the revision that introduced the part, after `SOURCE@` for a
/// source with a scope. An empty source stands for the part for every pod.
pub fn part_of_annotation(source: &str, since: Revision) -> String {
    match source {
        "" => since.text(),
        source => format!("{source}@{}", since.text()),
    }
}

/// Source and revision of each part in the annotation `globalps.io/content`. What isn't a revision is [`Revision::NONE`].
pub fn parts_of_annotation(content: &str) -> impl Iterator<Item = (&str, Revision)> {
    let words = content.split(',').filter(|word| !word.is_empty());
    words.map(|word| {
        let (source, since) = word.split_once('@').unwrap_or(("", word));
        (source, Revision::from(since))
    })
}

/// The controller's managed fields entry. `None`: another client created the object.
pub fn applied(object: &impl ResourceExt) -> Option<&ManagedFieldsEntry> {
    object.managed_fields().iter().find(|entry| {
        let is = |field: &Option<String>, value| field.as_deref() == Some(value);
        is(&entry.manager, CONTROLLER_MANAGER) && is(&entry.operation, "Apply")
    })
}

/// The parts of the content for a namespace, as indexes into `content.scoped`: sources whose scope covers it. Every pod of a
/// namespace can use its Secret, so a scope with service accounts is not delivered this way.
pub fn parts_of(content: &Content, namespace: &str) -> Vec<usize> {
    let has = |scoped: &ScopedConfig| {
        scoped.scope.service_accounts.is_empty()
            && scoped
                .scope
                .namespaces
                .iter()
                .any(|pattern| pattern.matches(namespace))
    };
    let scoped = content.scoped.iter().enumerate();
    scoped.filter(|(_, s)| has(s)).map(|(at, _)| at).collect()
}

/// The credentials of these parts and those for every pod. For a registry in several of them, scoped credentials take precedence,
/// and earlier ones before later ones, as with the credential provider.
pub fn config_of(content: &Content, parts: &[usize]) -> DockerConfig {
    let scoped = parts.iter().filter_map(|at| content.scoped.get(*at));
    let configs = scoped.map(|scoped| &scoped.config).chain([&content.config]);
    combine(&configs.collect::<Vec<_>>()).config()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use globalps_dockerconfig::parse;
    use globalps_provider::Scope;

    use super::*;
    use crate::rollout::RevisionId;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn namespaces_are_selected_by_label_excluded_by_name_or_mark() {
        let settings: ImagePullSecrets = serde_json::from_value(json!({
            "enabled": true,
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]},
            "excludedNamespaces": ["kube-*", "infra"],
        }))
        .unwrap();
        let selection = Selection::new(&settings).unwrap();
        let (label, annotation) = (EXCLUDE_LABEL, PATCHER_EXCLUDE_ANNOTATION);
        for (name, labels, annotations, expected) in [
            ("a", map(&[]), map(&[]), Selected::Yes),
            ("a", map(&[("team", "x")]), map(&[]), Selected::NotSelected),
            ("kube-system", map(&[]), map(&[]), Selected::Excluded),
            ("infra", map(&[]), map(&[]), Selected::Excluded),
            ("infra-2", map(&[]), map(&[]), Selected::Yes),
            ("a", map(&[(label, "true")]), map(&[]), Selected::Excluded),
            ("a", map(&[(label, "false")]), map(&[]), Selected::Yes),
            (
                "a",
                map(&[]),
                map(&[(annotation, "true")]),
                Selected::Excluded,
            ),
        ] {
            let is_marked = is_marked_excluded(&labels, &annotations);
            let found = selection.covers(name, || labels.clone(), is_marked);
            assert_eq!(found, expected, "{name} {labels:?} {annotations:?}");
        }
        let bad = ImagePullSecrets {
            excluded_namespaces: vec!["Team".to_owned()],
            ..ImagePullSecrets::default()
        };
        assert!(Selection::new(&bad).is_err());
    }

    #[test]
    fn an_annotation_has_each_part_with_number_and_id() {
        let revision = |number, id| Revision::new(number, RevisionId::from_random(id));
        let parts = [
            ("", revision(12, 0xab)),
            ("team-a", revision(15, 1)),
            ("team-b", revision(3, 0)),
        ];
        let words = parts.map(|(source, since)| part_of_annotation(source, since));
        let text = words.join(",");
        assert_eq!(
            text,
            "12-00000000000000ab,team-a@15-0000000000000001,team-b@3"
        );
        assert_eq!(parts_of_annotation(&text).collect::<Vec<_>>(), parts);
        for odd in [
            "x",
            "-1",
            "99999999999999999999-ab",
            "@",
            "a@",
            "a@5@6",
            ",,x,",
        ] {
            assert!(
                parts_of_annotation(odd).all(|(_, since)| !since.is_identified()),
                "{odd}"
            );
        }
        assert_eq!(parts_of_annotation("").count(), 0);
    }

    #[test]
    fn a_namespace_gets_content_for_all_its_pods_only() {
        let pattern = |text: &str| Pattern::try_from(text.to_owned()).unwrap();
        let scoped = |namespaces: &str, accounts: &[&str], auth: &str| ScopedConfig {
            source: auth.to_owned(),
            scope: Scope {
                namespaces: vec![pattern(namespaces)],
                service_accounts: accounts.iter().map(|a| pattern(a)).collect(),
            },
            config: entry("quay.io", auth),
        };
        let content = Content {
            config: entry("quay.io", "YWxsOnA="),
            scoped: vec![
                scoped("team-*", &["ci"], "Y2k6cA=="),
                scoped("team-a", &[], "YTpw"),
                scoped("team-*", &[], "dDpw"),
            ],
            ..Content::default()
        };
        for (namespace, expected, auth) in [
            ("other", vec![], "YWxsOnA="),
            ("team-b", vec![2], "dDpw"),
            ("team-a", vec![1, 2], "YTpw"),
        ] {
            let parts = parts_of(&content, namespace);
            assert_eq!(parts, expected, "{namespace}");
            let config = config_of(&content, &parts);
            assert!(
                config.means_the_same(&entry("quay.io", auth)),
                "{namespace}"
            );
        }
    }

    fn entry(key: &str, auth: &str) -> DockerConfig {
        parse(format!(r#"{{"auths":{{"{key}":{{"auth":"{auth}"}}}}}}"#).as_bytes()).unwrap()
    }
}
