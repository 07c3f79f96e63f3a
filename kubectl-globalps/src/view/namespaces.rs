//! `status --namespaces`: the state of each namespace. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{ImagePullSecrets, ImagePullSecretsStatus};
use globalps_core::names;
use globalps_core::namespaces::{
    Selected, Selection, is_marked_excluded, part_of_annotation, parts_of_annotation,
};
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Revision, RevisionId};
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::namespaces::{NamespaceSeen, PartsInForce, SecretSeen};
use crate::terminal::layout::{Layout, age_of, laid_out_by, rfc3339};

/// The content for users: without revision ids.
fn shown(content: &str) -> String {
    let parts = parts_of_annotation(content);
    let words = parts.map(|(source, since)| {
        let number = Revision::new(since.number, RevisionId::UNKNOWN);
        part_of_annotation(source, number)
    });
    words.collect::<Vec<_>>().join(",")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum NamespaceState {
    Synced,
    /// The Secret is missing, or has older content.
    Pending,
    Failed,
    Excluded,
    /// The labels don't match `namespaceSelector`.
    NotSelected,
    Terminating,
    /// The namespace is not selected, but its Secret still exists.
    Removing,
}

impl NamespaceState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::Pending => "Pending",
            Self::Failed => "Failed",
            Self::Excluded => "Excluded",
            Self::NotSelected => "NotSelected",
            Self::Terminating => "Terminating",
            Self::Removing => "Removing",
        }
    }

    /// Whether the namespace has the Secret that it should have.
    pub(crate) fn is_settled(self) -> bool {
        !matches!(self, Self::Pending | Self::Failed | Self::Removing)
    }
}

/// One namespace. Scripts rely on its shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NamespaceRow {
    pub name: String,
    pub state: NamespaceState,
    /// The revision of its content, and `SOURCE@REVISION` of each source with a scope; empty if it has no Secret.
    pub content: String,
    pub reason: String,
    pub message: String,
    /// When its Secret was written (RFC 3339, seconds, UTC); empty if unknown.
    pub since: String,
    #[serde(skip)]
    pub since_time: Option<Timestamp>,
}

/// Input of the rows.
pub(crate) struct Snapshot<'a> {
    pub settings: &'a ImagePullSecrets,
    pub selection: &'a Selection,
    pub status: Option<&'a ImagePullSecretsStatus>,
    pub namespaces: &'a BTreeMap<String, NamespaceSeen>,
    /// By namespace.
    pub secrets: &'a BTreeMap<String, SecretSeen>,
    /// `None` if hidden from this user, or nothing is in force.
    pub in_force: Option<&'a PartsInForce>,
}

pub(crate) fn rows(snapshot: &Snapshot) -> Vec<NamespaceRow> {
    let namespaces = snapshot.namespaces.iter();
    namespaces
        .map(|(name, seen)| row(snapshot, name, seen))
        .collect()
}

fn row(snapshot: &Snapshot, name: &str, seen: &NamespaceSeen) -> NamespaceRow {
    let secret = snapshot.secrets.get(name);
    let own = secret.filter(|secret| secret.is_ours);
    let (state, reason, message) = state(snapshot, name, seen, secret);
    let since_time = own.and_then(|own| own.written);
    NamespaceRow {
        name: name.to_owned(),
        state,
        content: own.map_or(String::new(), |own| shown(&own.content)),
        reason,
        message,
        since: rfc3339(since_time),
        since_time,
    }
}

fn state(
    snapshot: &Snapshot,
    name: &str,
    seen: &NamespaceSeen,
    secret: Option<&SecretSeen>,
) -> (NamespaceState, String, String) {
    let plain = |state, reason: &str| (state, reason.to_owned(), String::new());
    if seen.is_terminating {
        return plain(NamespaceState::Terminating, "");
    }
    let status = snapshot.status;
    let failures = status.map_or(&[][..], |status| &status.failures);
    if let Some(found) = failures.iter().find(|failure| failure.namespace == name) {
        return (
            NamespaceState::Failed,
            found.reason.clone(),
            found.message.clone(),
        );
    }
    let is_ours = secret.is_some_and(|secret| secret.is_ours);
    let is_marked = is_marked_excluded(&seen.labels, &seen.annotations);
    let selected = snapshot
        .selection
        .covers(name, || seen.labels.clone(), is_marked);
    let (state, reason) = match selected {
        _ if !snapshot.settings.enabled => (NamespaceState::NotSelected, "Disabled"),
        Selected::NotSelected => (NamespaceState::NotSelected, ""),
        Selected::Excluded => (NamespaceState::Excluded, excluded_by(seen)),
        Selected::Yes => {
            return match secret {
                Some(secret) if !secret.is_ours => {
                    let secret = &snapshot.settings.secret_name;
                    let message = format!(
                        "Secret `{name}/{secret}` is not globalps' own: it is left as it is"
                    );
                    (
                        NamespaceState::Failed,
                        Reason::ForeignSecret.into(),
                        message,
                    )
                }
                Some(secret) => match snapshot.in_force {
                    Some(in_force) if !in_force.is_in(&secret.content) => {
                        plain(NamespaceState::Pending, "OldContent")
                    }
                    _ => plain(NamespaceState::Synced, ""),
                },
                None => plain(NamespaceState::Pending, "NoSecret"),
            };
        }
    };
    plain(
        if is_ours {
            NamespaceState::Removing
        } else {
            state
        },
        reason,
    )
}

fn excluded_by(seen: &NamespaceSeen) -> &'static str {
    let is_true = |map: &BTreeMap<String, String>, key| map.get(key).is_some_and(|v| v == "true");
    if is_true(&seen.labels, names::EXCLUDE_LABEL) {
        "Label"
    } else if is_true(&seen.annotations, names::PATCHER_EXCLUDE_ANNOTATION) {
        "PatcherAnnotation"
    } else {
        "ExcludedNamespaces"
    }
}

pub(crate) fn table(rows: &[NamespaceRow], now: Timestamp, layout: Layout) -> String {
    const ALL: [&str; 6] = ["NAMESPACE", "STATE", "CONTENT", "AGE", "REASON", "MESSAGE"];
    let header = if layout.wide { &ALL[..] } else { &ALL[..5] };
    let cell = |row: &NamespaceRow, title: &str| match title {
        "NAMESPACE" => row.name.clone(),
        "STATE" => row.state.as_str().to_owned(),
        "CONTENT" => row.content.clone(),
        "AGE" => age_of(row.since_time, now),
        "REASON" => row.reason.clone(),
        _ => row.message.clone(),
    };
    laid_out_by(header, rows, layout, cell, |_, _| None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::api::NamespaceFailure;
    use k8s_openapi::api::core::v1::Secret;

    fn seen(labels: &[(&str, &str)]) -> NamespaceSeen {
        let pairs = labels.iter();
        NamespaceSeen {
            labels: pairs
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..NamespaceSeen::default()
        }
    }

    fn secret(is_ours: bool, content: &str) -> SecretSeen {
        SecretSeen {
            is_ours,
            content: content.to_owned(),
            written: "2026-01-01T00:00:00Z".parse().ok(),
        }
    }

    fn in_force() -> PartsInForce {
        let mut global = Secret::default();
        let since = r#"{"":"3-00000000000000ab"}"#;
        let annotations = [(names::CONTENT_SINCE_ANNOTATION.to_owned(), since.to_owned())];
        global.metadata.annotations = Some(annotations.into());
        PartsInForce::of(&global)
    }

    #[test]
    fn a_namespace_is_shown_with_its_state_and_the_reason() {
        let settings: ImagePullSecrets = serde_json::from_value(serde_json::json!({
            "enabled": true, "namespaceSelector": {"matchExpressions": [
                {"key": "team", "operator": "NotIn", "values": ["x"]}]},
        }))
        .expect("settings");
        let selection = Selection::new(&settings).expect("a selection");
        let mut gone = seen(&[]);
        gone.is_terminating = true;
        let namespaces: BTreeMap<String, NamespaceSeen> = [
            ("a", seen(&[])),
            ("broken", seen(&[])),
            ("foreign", seen(&[])),
            ("gone", gone),
            ("kube-system", seen(&[])),
            ("left", seen(&[(names::EXCLUDE_LABEL, "true")])),
            ("new", seen(&[])),
            ("old", seen(&[])),
            ("x", seen(&[("team", "x")])),
        ]
        .map(|(name, seen)| (name.to_owned(), seen))
        .into();
        let secrets: BTreeMap<String, SecretSeen> = [
            ("a", secret(true, "3-00000000000000ab")),
            ("foreign", secret(false, "")),
            ("left", secret(true, "3-00000000000000ab")),
            ("old", secret(true, "2")),
        ]
        .map(|(name, secret)| (name.to_owned(), secret))
        .into();
        let status = ImagePullSecretsStatus {
            failures: vec![NamespaceFailure {
                namespace: "broken".to_owned(),
                reason: "QuotaExceeded".to_owned(),
                message: "why".to_owned(),
            }],
            ..ImagePullSecretsStatus::default()
        };
        let rows = rows(&Snapshot {
            settings: &settings,
            selection: &selection,
            status: Some(&status),
            namespaces: &namespaces,
            secrets: &secrets,
            in_force: Some(&in_force()),
        });
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        let layout = Layout::default();
        assert_eq!(
            table(&rows, now, layout),
            "\
NAMESPACE     STATE         CONTENT   AGE   REASON
a             Synced        3         10m
broken        Failed                        QuotaExceeded
foreign       Failed                        ForeignSecret
gone          Terminating
kube-system   Excluded                      ExcludedNamespaces
left          Removing      3         10m   Label
new           Pending                       NoSecret
old           Pending       2         10m   OldContent
x             NotSelected"
        );
        let settled: Vec<bool> = rows.iter().map(|row| row.state.is_settled()).collect();
        let expected = [true, false, false, true, true, false, false, false, true];
        assert_eq!(settled, expected);
        let json = serde_json::to_value(&rows[0]).expect("JSON");
        assert_eq!(
            json,
            serde_json::json!({"name": "a", "state": "Synced", "content": "3", "reason": "", "message": "",
                "since": "2026-01-01T00:00:00Z"})
        );
        let wide = Layout {
            wide: true,
            no_headers: true,
            ..layout
        };
        let text = table(&rows, now, wide);
        assert!(
            text.contains("QuotaExceeded        why") && !text.contains("NAMESPACE"),
            "{text}"
        );
    }
}
