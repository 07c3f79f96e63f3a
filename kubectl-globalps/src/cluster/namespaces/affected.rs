//! The namespaces that a change of credentials affects, if globalps delivers to namespaces.

use std::collections::BTreeMap;

use globalps_core::api::{GlobalPullSecret, ImagePullSecrets, SourceScope};
use globalps_core::labels;
use globalps_core::namespaces::{Selected, Selection, is_marked_excluded};
use globalps_provider::{Pattern, Scope};
use kube::core::SelectorExt as _;
use serde::Serialize;

use super::{NamespaceSeen, namespaces};
use crate::cluster::client::Cluster;
use crate::error::{Result, allowed};
use crate::terminal::number;

/// Maximum number of names in JSON, and in a sentence.
const LISTED: usize = 20;
const SHOWN: usize = 3;

/// The pods whose credentials change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Who {
    EveryPod,
    /// Pods of a scope in the spec.
    Wanted(SourceScope),
    /// Pods of a scope in force.
    InForce(Scope),
}

/// The namespaces whose Secret is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Affected {
    pub count: usize,
    /// The first 20.
    pub names: Vec<String>,
    #[serde(skip)]
    secret_name: String,
}

impl Affected {
    pub(crate) fn sentence(&self) -> String {
        let shown = self
            .names
            .iter()
            .take(SHOWN)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        let names = match self.count.saturating_sub(SHOWN.min(self.names.len())) {
            _ if self.count == 0 => return "writes no Secret in any namespace".to_owned(),
            0 => shown,
            more => format!("{shown} and {more} more"),
        };
        format!(
            "writes the Secret `{}` in {}: {names}",
            self.secret_name,
            number(self.count, "namespace")
        )
    }
}

/// `None` if namespaces get no Secrets, nothing changes, or this user may not list namespaces.
pub(crate) async fn affected(
    cluster: &Cluster<'_>,
    gps: Option<&GlobalPullSecret>,
    who: &[Who],
) -> Result<Option<Affected>> {
    let settings = gps.map(|gps| &gps.spec.image_pull_secrets);
    let Some(settings) = settings.filter(|settings| settings.enabled && !who.is_empty()) else {
        return Ok(None);
    };
    let seen = allowed(namespaces(cluster).await)?;
    Ok(seen.and_then(|seen| among(settings, &seen, who)))
}

/// `None` if the settings are invalid.
fn among(
    settings: &ImagePullSecrets,
    seen: &BTreeMap<String, NamespaceSeen>,
    who: &[Who],
) -> Option<Affected> {
    let selection = Selection::new(settings).ok()?;
    let is_affected = |(name, namespace): &(&String, &NamespaceSeen)| {
        let is_marked = is_marked_excluded(&namespace.labels, &namespace.annotations);
        !namespace.is_terminating
            && selection.covers(name, || namespace.labels.clone(), is_marked) == Selected::Yes
            && who.iter().any(|who| who.covers(name, &namespace.labels))
    };
    let names: Vec<&String> = seen
        .iter()
        .filter(is_affected)
        .map(|(name, _)| name)
        .collect();
    Some(Affected {
        count: names.len(),
        names: names.into_iter().take(LISTED).cloned().collect(),
        secret_name: settings.secret_name.clone(),
    })
}

impl Who {
    /// A Secret is for every pod of its namespace, so a scope with service accounts reaches no namespace.
    fn covers(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::EveryPod => true,
            Self::InForce(scope) => {
                let mut patterns = scope.namespaces.iter();
                scope.service_accounts.is_empty() && patterns.any(|pattern| pattern.matches(name))
            }
            Self::Wanted(scope) => {
                let mut patterns = scope.namespaces.iter().cloned().map(Pattern::try_from);
                let selector = scope.namespace_selector.as_ref().map(labels::selector);
                scope.service_accounts.is_empty()
                    && (patterns.any(|pattern| pattern.is_ok_and(|p| p.matches(name)))
                        || selector.is_some_and(|s| s.is_ok_and(|s| s.matches(labels))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_written_in_selected_namespaces_of_the_scope() {
        let settings = ImagePullSecrets {
            enabled: true,
            ..ImagePullSecrets::default()
        };
        let wanted = |scope| Who::Wanted(serde_json::from_value(scope).expect("a scope"));
        let in_force = |scope| Who::InForce(serde_json::from_value(scope).expect("a scope"));
        let labelled: BTreeMap<String, String> = [("team".to_owned(), "x".to_owned())].into();
        let names = ["kube-system", "ns-0", "ns-1", "ns-2", "ns-3", "other"];
        let mut seen: BTreeMap<String, NamespaceSeen> = names
            .map(|name| (name.to_owned(), NamespaceSeen::default()))
            .into();
        seen.entry("other".to_owned()).or_default().labels = labelled;
        for (who, expected) in [
            (
                vec![Who::EveryPod],
                "writes the Secret `global-pull-secret` in 5 namespaces: ns-0, ns-1, ns-2 and 2 more",
            ),
            (
                vec![wanted(json!({"namespaces": ["ns-1", "kube-*"]}))],
                "writes the Secret `global-pull-secret` in 1 namespace: ns-1",
            ),
            (
                vec![wanted(
                    json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}),
                )],
                "writes the Secret `global-pull-secret` in 1 namespace: other",
            ),
            (
                vec![
                    in_force(json!({"namespaces": ["ns-0"]})),
                    wanted(json!({"namespaces": ["ns-2"]})),
                ],
                "writes the Secret `global-pull-secret` in 2 namespaces: ns-0, ns-2",
            ),
            (
                vec![wanted(
                    json!({"namespaces": ["*"], "serviceAccounts": ["ci"]}),
                )],
                "writes no Secret in any namespace",
            ),
            (
                vec![in_force(
                    json!({"namespaces": ["*"], "serviceAccounts": ["ci"]}),
                )],
                "writes no Secret in any namespace",
            ),
        ] {
            let found = among(&settings, &seen, &who).expect("settings");
            assert_eq!(found.sentence(), expected, "{who:?}");
        }
    }

    #[test]
    fn json_has_the_number_and_twenty_names_at_most() {
        let seen = (0..25).map(|at| (format!("ns-{at:02}"), NamespaceSeen::default()));
        let settings = ImagePullSecrets::default();
        let found = among(&settings, &seen.collect(), &[Who::EveryPod]).expect("settings");
        let json = json!(found);
        assert_eq!(json["count"], 25);
        assert_eq!(json["names"].as_array().map(Vec::len), Some(20));
        assert!(
            found
                .sentence()
                .ends_with("ns-00, ns-01, ns-02 and 22 more")
        );
    }
}
