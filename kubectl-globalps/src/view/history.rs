//! The additional pull secrets that were rolled out, and what going back to one would change. Pure.

use globalps_core::api::{GlobalPullSecret, condition};
use globalps_core::reasons::Reason;
use globalps_dockerconfig::shown_key;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::secret::changes::{ChangeKind, InForce, RegistryChange, changes};
use crate::secret::history::StoredRevision;
use crate::terminal::layout::{Layout, age, laid_out_by};

fn is_halt(condition: &Condition) -> bool {
    condition.type_ == condition::DEGRADED
        && condition.status == "True"
        && condition.reason == Reason::RolloutHalted
}

/// How far the newest revision is, while not every node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Progress {
    pub paused: bool,
    /// Nodes failed, so no further node gets it.
    pub halted: bool,
    /// Nodes that have it, of `nodes`; `None`: the controller has not counted them yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
}

impl Progress {
    /// `None`: every node has it, or nothing is rolled out.
    pub(crate) fn of(global: Option<&Secret>, gps: Option<&GlobalPullSecret>) -> Option<Self> {
        let newest = StoredRevision::in_force(global?)?;
        if newest.rolled_out.is_some() {
            return None;
        }
        let status = gps.and_then(|gps| gps.status.as_ref());
        let status = status.filter(|status| status.revision == newest.number);
        let counts = status.map(|status| status.counts);
        if counts.is_some_and(|counts| counts.total > 0 && counts.synced == counts.total) {
            return None;
        }
        Some(Self {
            paused: gps.is_some_and(|gps| gps.spec.rollout.paused),
            halted: status.is_some_and(|status| status.conditions.iter().any(is_halt)),
            synced: counts.map(|counts| counts.synced),
            nodes: counts.map(|counts| counts.total),
        })
    }

    fn text(self) -> String {
        let word = match self {
            Self { halted: true, .. } => "halted",
            Self { paused: true, .. } => "paused",
            _ => "rolling out",
        };
        match self.synced.zip(self.nodes) {
            Some((synced, nodes)) => format!("{word}, {synced}/{nodes} nodes"),
            None => word.to_owned(),
        }
    }
}

/// `history -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
pub(crate) struct History {
    pub revisions: Vec<HistoryRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryRow {
    pub revision: i64,
    /// RFC 3339; empty: not known.
    pub rolled_out: String,
    /// Every node that globalps manages has had it.
    pub in_force: bool,
    /// Of the revision that nodes are getting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Progress>,
    pub registries: Vec<String>,
    /// What going back to it would change.
    pub changes: Vec<RegistryChange>,
    #[serde(skip)]
    since: Option<Timestamp>,
    #[serde(skip)]
    secret: String,
}

impl History {
    /// `progress`: of the newest revision.
    pub(crate) fn of(
        revisions: &[StoredRevision],
        in_force: &InForce,
        progress: Option<Progress>,
    ) -> Self {
        let row = |revision: &StoredRevision| {
            let entries = revision.config.entries().iter();
            let is_wanted = !in_force.additional.is_empty()
                && in_force.additional.means_the_same(&revision.config);
            let rollout = progress.filter(|_| is_wanted && revision.rolled_out.is_none());
            HistoryRow {
                revision: revision.number,
                rolled_out: revision
                    .rolled_out
                    .map_or(String::new(), |time| time.to_string()),
                in_force: is_wanted && rollout.is_none(),
                rollout,
                registries: entries
                    .map(|entry| shown_key(&entry.canonical_key()))
                    .collect(),
                changes: changes(in_force, &revision.config),
                since: revision.rolled_out,
                secret: revision.secret.clone(),
            }
        };
        Self {
            revisions: revisions.iter().map(row).collect(),
        }
    }

    /// `wide`: also with the Secret that has each, and when it was rolled out.
    pub(crate) fn table(&self, now: Timestamp, wide: bool) -> String {
        const HEADER: [&str; 6] = [
            "REVISION",
            "AGE",
            "REGISTRIES",
            "DIFFERENCE",
            "ROLLED OUT",
            "SECRET",
        ];
        let newest = self.revisions.iter().find(|row| row.in_force);
        let newest = newest.map(|row| row.revision);
        let cell = |row: &HistoryRow, title: &str| match title {
            "REVISION" => row.revision.to_string(),
            // The time is that of the last node.
            "AGE" => row.since.map_or("-".to_owned(), |since| age(since, now)),
            "REGISTRIES" => row.registries.join(", "),
            "DIFFERENCE" => match row.rollout {
                Some(rollout) => rollout.text(),
                None if newest == Some(row.revision) => "in force".to_owned(),
                None => row.difference(),
            },
            "ROLLED OUT" => row.rolled_out.clone(),
            _ => row.secret.clone(),
        };
        let shown = if wide { HEADER.len() } else { 4 };
        let layout = Layout::default();
        laid_out_by(&HEADER[..shown], &self.revisions, layout, cell, |_, _| None)
    }
}

impl HistoryRow {
    fn difference(&self) -> String {
        if self.changes.is_empty() {
            return "none".to_owned();
        }
        let word = |change: &RegistryChange| {
            let sign = match change.change {
                ChangeKind::Added => '+',
                ChangeKind::Removed => '-',
                ChangeKind::Changed
                | ChangeKind::Replaced
                | ChangeKind::Overridden
                | ChangeKind::Shadowed => '~',
            };
            format!("{sign}{}", change.registry)
        };
        let words: Vec<String> = self.changes.iter().map(word).collect();
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_dockerconfig::validate_bytes;

    fn revision(number: i64, content: &str) -> StoredRevision {
        StoredRevision {
            number,
            rolled_out: "2026-01-01T00:00:00Z".parse().ok(),
            bytes: content.as_bytes().to_vec(),
            config: validate_bytes(content.as_bytes()).0.expect("valid"),
            secret: "s".to_owned(),
        }
    }

    fn in_force(content: &[u8]) -> InForce {
        InForce {
            additional: validate_bytes(content).0.expect("valid"),
            ..InForce::default()
        }
    }

    #[test]
    fn the_table_says_what_going_back_changes_and_no_credential() {
        let history = History::of(
            &[
                revision(10, r#"{"auths":{"a":{"auth":"dTpx"},"c":{"auth":"dTpw"}}}"#),
                revision(9, r#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpw"}}}"#),
                revision(
                    8,
                    r#"{"auths":{"c":{"auth":"dTpw"},"https://a/":{"auth":"dTpx"}}}"#,
                ),
            ],
            &in_force(br#"{"auths":{"a":{"auth":"dTpx"},"c":{"auth":"dTpw"}}}"#),
            None,
        );
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        assert_eq!(
            history.table(now, false),
            "\
REVISION   AGE   REGISTRIES   DIFFERENCE
10         10m   a, c         in force
9          10m   a, b         ~a +b -c
8          10m   c, a         none"
        );
    }

    #[test]
    fn the_json_is_what_scripts_rely_on() {
        let history = History::of(
            &[revision(
                9,
                r#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpw"}}}"#,
            )],
            &in_force(br#"{"auths":{"b":{"auth":"dTpw"}}}"#),
            None,
        );
        assert_eq!(
            serde_json::to_value(history).expect("JSON"),
            serde_json::json!({"revisions": [{
                "revision": 9, "rolledOut": "2026-01-01T00:00:00Z", "inForce": false,
                "registries": ["a", "b"], "changes": [{"registry": "a", "change": "added"}],
            }]})
        );
    }
}
