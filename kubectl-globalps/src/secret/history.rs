//! The additional pull secrets that were rolled out, and what going back to one of them would change. Pure.

use globalps_core::api::{GlobalPullSecret, condition};
use globalps_core::names;
use globalps_core::reasons::Reason;
use globalps_dockerconfig::{DockerConfig, shown_key, validate_bytes};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::secret::additional::data_of;
use crate::secret::changes::{ChangeKind, InForce, RegistryChange, changes};
use crate::terminal::{age, columns};

/// A Secret of the history.
#[derive(Debug)]
pub(crate) struct Revision {
    pub number: i64,
    pub rolled_out: Option<Timestamp>,
    pub bytes: Vec<u8>,
    pub config: DockerConfig,
    /// Name of the Secret with this revision.
    pub secret: String,
}

impl Revision {
    /// `None` if the Secret is not part of the history.
    pub(crate) fn of(secret: &Secret) -> Option<Self> {
        Self::at(secret, names::DATA_KEY)
    }

    /// The revision in force, from the merged Secret; `None` if there is none.
    pub(crate) fn in_force(global: &Secret) -> Option<Self> {
        Self::at(global, names::LAST_ADDITIONAL_KEY)
    }

    fn at(secret: &Secret, key: &str) -> Option<Self> {
        let annotations = secret.metadata.annotations.as_ref()?;
        let number = annotations.get(names::REVISION_ANNOTATION)?.parse().ok()?;
        let rolled_out = annotations.get(names::ROLLED_OUT_ANNOTATION);
        let bytes = data_of(secret, key)?;
        Some(Self {
            number,
            rolled_out: rolled_out.and_then(|time| time.parse().ok()),
            bytes: bytes.to_vec(),
            config: validate_bytes(bytes).0.unwrap_or_default(),
            secret: secret.metadata.name.clone().unwrap_or_default(),
        })
    }
}

/// The revision in a Secret's annotation; 0 if there is none.
pub(crate) fn revision_of(secret: &Secret) -> i64 {
    let annotations = secret.metadata.annotations.as_ref();
    let number = annotations.and_then(|all| all.get(names::REVISION_ANNOTATION));
    number
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Newest first, including the revision in force; each revision once.
pub(crate) fn sorted(
    slots: impl IntoIterator<Item = Secret>,
    global: Option<&Secret>,
) -> Vec<Revision> {
    let kept = slots.into_iter().filter_map(|secret| Revision::of(&secret));
    let mut revisions: Vec<Revision> = global
        .and_then(Revision::in_force)
        .into_iter()
        .chain(kept)
        .collect();
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    revisions.dedup_by_key(|revision| revision.number);
    revisions
}

/// The revision that `undo` goes back to by default: the newest whose merged credentials differ from those with the
/// Secret's present content. `now`: that content; `None` if there is no Secret or it can't be parsed.
pub(crate) fn last_other<'a>(
    revisions: &'a [Revision],
    now: Option<&DockerConfig>,
    in_force: &InForce,
) -> Option<&'a Revision> {
    let now = now.map(|now| in_force.effective(now));
    let differs = |revision: &&Revision| {
        let then = in_force.effective(&revision.config);
        now.as_ref().is_none_or(|now| !now.means_the_same(&then))
    };
    revisions.iter().find(differs)
}

fn is_halt(condition: &Condition) -> bool {
    condition.type_ == condition::DEGRADED
        && condition.status == "True"
        && condition.reason == Reason::RolloutHalted
}

/// Progress of the newest revision while not every node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Progress {
    pub paused: bool,
    /// Nodes failed, so no further node gets the revision.
    pub halted: bool,
    /// Nodes that have the revision, out of `nodes`; `None` if the controller has not counted them yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
}

impl Progress {
    /// `None` if every node has the revision, or nothing is rolled out.
    pub(crate) fn of(global: Option<&Secret>, gps: Option<&GlobalPullSecret>) -> Option<Self> {
        let newest = Revision::in_force(global?)?;
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
    /// RFC 3339; empty if unknown.
    pub rolled_out: String,
    /// Every managed node has had this revision.
    pub in_force: bool,
    /// Progress, if this is the revision being rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Progress>,
    pub registries: Vec<String>,
    /// What going back to this revision would change.
    pub changes: Vec<RegistryChange>,
    #[serde(skip)]
    since: Option<Timestamp>,
    #[serde(skip)]
    secret: String,
}

impl History {
    /// `progress`: of the newest revision.
    pub(crate) fn of(
        revisions: &[Revision],
        in_force: &InForce,
        progress: Option<Progress>,
    ) -> Self {
        let row = |revision: &Revision| {
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

    /// `wide`: adds the Secret of each revision, and when it was rolled out.
    pub(crate) fn table(&self, now: Timestamp, wide: bool) -> String {
        let newest = self.revisions.iter().position(|row| row.in_force);
        let rows: Vec<Vec<String>> = self
            .revisions
            .iter()
            .enumerate()
            .map(|(at, row)| {
                let mut cells = vec![
                    row.revision.to_string(),
                    // The time at which the last node got the revision.
                    row.since.map_or("-".to_owned(), |since| age(since, now)),
                    row.registries.join(", "),
                    match row.rollout {
                        Some(rollout) => rollout.text(),
                        None if newest == Some(at) => "in force".to_owned(),
                        None => row.difference(),
                    },
                ];
                if wide {
                    cells.extend([row.rolled_out.clone(), row.secret.clone()]);
                }
                cells
            })
            .collect();
        let header = [
            "REVISION",
            "AGE",
            "REGISTRIES",
            "DIFFERENCE",
            "ROLLED OUT",
            "SECRET",
        ];
        let shown = if wide { header.len() } else { 4 };
        columns(&header[..shown], &rows, None, |_, _| None)
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
    use k8s_openapi::ByteString;

    fn slot(number: &str, content: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.annotations = Some(
            [
                (names::REVISION_ANNOTATION, number),
                (names::ROLLED_OUT_ANNOTATION, "2026-01-01T00:00:00Z"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        );
        secret.data = Some(
            [(
                names::DATA_KEY.to_owned(),
                ByteString(content.as_bytes().to_vec()),
            )]
            .into(),
        );
        secret
    }

    /// In the order of their slots, which is arbitrary.
    fn revisions() -> Vec<Revision> {
        let mut foreign = slot("1", "{}");
        foreign.metadata.annotations = None;
        let slots = [
            slot(
                "9",
                r#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpw"}}}"#,
            ),
            foreign,
            slot(
                "10",
                r#"{"auths":{"a":{"auth":"dTpx"},"c":{"auth":"dTpw"}}}"#,
            ),
            slot(
                "8",
                r#"{"auths":{"c":{"auth":"dTpw"},"https://a/":{"auth":"dTpx"}}}"#,
            ),
        ];
        sorted(slots, None)
    }

    #[test]
    fn the_one_in_force_is_among_them_once() {
        let mut global = slot("10", r#"{"auths":{"merged":{"auth":"dTpw"}}}"#);
        let content = ByteString(br#"{"auths":{"a":{"auth":"dTpw"}}}"#.to_vec());
        global
            .data
            .get_or_insert_default()
            .insert(names::LAST_ADDITIONAL_KEY.to_owned(), content);
        let slots = || ["9", "10"].map(|number| slot(number, r#"{"auths":{"b":{"auth":"dTpw"}}}"#));
        let numbers = |revisions: Vec<Revision>| -> Vec<i64> {
            revisions.iter().map(|revision| revision.number).collect()
        };
        let found = sorted(slots(), Some(&global));
        assert_eq!(found[0].config.entries()[0].key(), "a");
        assert_eq!(numbers(found), [10, 9]);
        global.data = None;
        assert_eq!(numbers(sorted(slots(), Some(&global))), [10, 9]);
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
            &revisions(),
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
            &revisions()[1..2],
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

    #[test]
    fn going_back_leads_to_the_newest_that_means_something_else() {
        let revisions = revisions();
        let to = |content: Option<&str>| {
            let now = content.and_then(|text| validate_bytes(text.as_bytes()).0);
            last_other(&revisions, now.as_ref(), &InForce::default())
                .map(|revision| revision.number)
        };
        for (sentence, now, expected) in [
            (
                "the newest is what is there now, in other words",
                Some(
                    r#"{"auths":{"https://c":{"auth":"dTpw"},"a":{"username":"u","password":"q"}}}"#,
                ),
                Some(9),
            ),
            (
                "what is there now was never rolled out",
                Some(r#"{"auths":{"d":{"auth":"dTpw"}}}"#),
                Some(10),
            ),
            ("nothing there that could be read", None, Some(10)),
        ] {
            assert_eq!(to(now), expected, "{sentence}");
        }
        assert!(last_other(&[], None, &InForce::default()).is_none());
        // The original pull secret has a credential of its own for the only registry that differs.
        let original = InForce {
            original: validate_bytes(br#"{"auths":{"a":{"auth":"dTpy"},"b":{"auth":"dTpy"}}}"#)
                .0
                .expect("valid"),
            precedence: globalps_dockerconfig::Precedence::Original,
            ..InForce::default()
        };
        let now = revisions[0].config.clone();
        assert_eq!(
            last_other(&revisions, Some(&now), &original).map(|it| it.number),
            Some(9)
        );
        let now = validate_bytes(br#"{"auths":{"a":{"auth":"dTpw"},"c":{"auth":"dTpw"}}}"#).0;
        assert_eq!(
            last_other(&revisions, now.as_ref(), &original).map(|it| it.number),
            Some(9)
        );
    }
}
