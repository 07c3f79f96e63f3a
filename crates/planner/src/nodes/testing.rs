//! Snapshots for unit tests, in a few words.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "only tests use it"
)]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{
    GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec, NodePullSecretStatus, Phase,
};
use globalps_core::names::MACHINE_CONFIG_OPERATOR;
use globalps_core::rollout::{Revision, RevisionId};
use globalps_provider::Content;
use jiff::{SignedDuration, Timestamp};

use super::input::{
    Agents, Clock, Configuration, NodeView, Nodes, NotReady, PullSecrets, Recorded, Snapshot,
};
use super::provider_paths::Deviation;
use crate::content::secret::{Global, revision_of_test};
use crate::content::source::{Data, Source};

pub(super) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A file with one registry, `a`.
pub const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
/// A Secret with this file.
pub fn found(text: &str) -> Source {
    Source::Found(Data(Some(text.as_bytes().to_vec())))
}

/// `5x`: a revision with another id than `5`.
pub(super) fn parsed(text: &str) -> Option<Revision> {
    let revision = revision_of_test(text.trim_end_matches('x').parse().ok()?);
    let other = Revision::new(revision.number, RevisionId::from_random(2));
    Some(if text.ends_with('x') { other } else { revision })
}

/// Of this revision and with this file.
pub fn global(revision: i64, text: &str) -> Global {
    let data = Data(Some(text.as_bytes().to_vec()));
    let merged = globalps_dockerconfig::parse(text.as_bytes()).unwrap();
    Global {
        revision: revision_of_test(revision),
        content: Some(Content {
            config: merged,
            ..Content::default()
        }),
        last_additional: Some(data),
        canary_passed: true,
        config_file: Some(GlobalPullSecretSpec::default().kubelet.config_file),
        rolled_out: Some(Timestamp::UNIX_EPOCH),
        content_since: [(String::new(), revision_of_test(revision))].into(),
        ..Global::default()
    }
}

/// `n1 n2=5 n3=5:Synced n4=R:Restored n5=5:never n6=0:Pending/3 n7=5:Failed.DiskFull`: name, assignment (`R`: restore), phase
/// that it reports for that (none: not reported yet; `never`: nothing ever), `/` revision in force, `.` reason. Before the name:
/// `!` not ready for a minute, `-` excluded, `%` foreign owner, `+` its Node is new.
pub fn snapshot(additional: Source, global: Option<Global>, nodes: &str) -> Snapshot<'static> {
    let now = NOW;
    let first_written = global
        .is_some()
        .then(|| now - SignedDuration::from_mins(30));
    let mut snapshot = Snapshot {
        config: Configuration {
            spec: GlobalPullSecretSpec::default(),
            deviation: Deviation::None,
            is_missing: false,
            unreadable: None,
            is_known: true,
            restore_is_meant: false,
            forget_request: None,
        },
        secrets: PullSecrets {
            additional,
            additional_type: None,
            retry: None,
            original: Source::Absent,
            sources: Vec::new(),
            unnamed_sources: Vec::new(),
            namespaces: None,
        },
        agents: Agents {
            syncers: Cow::default(),
            daemon_set: global.is_some(),
            has_leftovers: global.is_some(),
            are_cleaned_up: false,
        },
        recorded: Recorded {
            global,
            first_written,
            ..Recorded::default()
        },
        nodes: Nodes {
            views: Cow::default(),
            objects: Cow::default(),
            are_known: true,
            unreadable: Cow::default(),
            merged: None,
            of_others: BTreeSet::new(),
            deleted_out_of_band: Cow::default(),
            changed_out_of_band: Cow::default(),
        },
        clock: Clock {
            leader: Cow::default(),
            uptime: SignedDuration::ZERO,
            now,
        },
        refused: Cow::default(),
        unreadable_objects: Vec::new(),
        new_id: revision_of_test(1).id,
    };
    for word in nodes.split_whitespace() {
        let mark = word.chars().next().unwrap_or_default();
        let word = word.trim_start_matches(['!', '-', '%', '+']);
        let name = word.split('=').next().unwrap_or_default();
        let created = if mark == '+' {
            now
        } else {
            now - SignedDuration::from_hours(1)
        };
        let mut node = NodeView::of_test(name, created);
        if mark == '%' {
            node.file_owner = MACHINE_CONFIG_OPERATOR;
        }
        if mark == '!' {
            let since = now - SignedDuration::from_mins(1);
            node.ready = Err(NotReady {
                since,
                unknown: true,
            });
        }
        if mark == '-' {
            let labels = [
                ("kubernetes.io/os", "linux"),
                ("globalps.io/exclude", "true"),
            ];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            node.labels = (&BTreeMap::from(labels)).into();
        }
        snapshot
            .nodes
            .views
            .to_mut()
            .insert(name.to_owned(), Box::new(node));
        let Some((_, assigned)) = word.split_once('=') else {
            continue;
        };
        let object = object(name, assigned);
        snapshot
            .nodes
            .objects
            .to_mut()
            .insert(name.to_owned(), Box::new(object));
    }
    snapshot
}

pub(super) fn object(name: &str, text: &str) -> NodePullSecret {
    let (assigned, reported) = text.split_once(':').unwrap_or((text, ""));
    let target = parsed(assigned).unwrap_or(revision_of_test(5));
    let revision = target.number;
    let restore = assigned == "R";
    let spec = NodePullSecretSpec {
        revision,
        revision_id: target.id,
        restore,
        ..NodePullSecretSpec::default()
    };
    let mut object = NodePullSecret::new(name, spec);
    object.metadata.generation = Some(2);
    let (reported, reason) = reported.split_once('.').unwrap_or((reported, ""));
    let (phase, in_force) = reported.split_once('/').unwrap_or((reported, ""));
    let has_reported = !phase.is_empty() || revision == 0;
    let in_force = match phase {
        "Synced" if in_force.is_empty() => target,
        _ => parsed(in_force).unwrap_or_default(),
    };
    object.status = (phase != "never").then(|| NodePullSecretStatus {
        observed_generation: if has_reported { 2 } else { 1 },
        revision: in_force.number,
        revision_id: in_force.id,
        phase: if phase.is_empty() {
            Phase::Pending
        } else {
            phase.into()
        },
        reason: reason.to_owned(),
        restored: phase == "Restored" || revision == 0 && in_force == Revision::NONE,
        ..NodePullSecretStatus::default()
    });
    object
}
