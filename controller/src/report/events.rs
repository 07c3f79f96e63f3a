//! Records events about the Secret of the user: each change of the status once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use globalps_core::api::{
    ConflictStatus, GlobalPullSecretStatus, NodePullSecret, Phase, condition,
};
use globalps_core::names::{ADDITIONAL_SECRET, CONTROLLER};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};

use crate::content::resolve::shadowed;
use crate::content::source::Verdict;
use crate::nodes::plan::{Aim, Plan};

/// The API server's limit for a note, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Names of objects in one event, at most.
const NAMED: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Type, reason and note of an event.
type Note = (&'static str, &'static str, String);

const NORMAL: &str = "Normal";
const WARNING: &str = "Warning";

pub(crate) struct EventRecorder {
    events: Api<Event>,
    /// The last known Secret of the user: events about its deletion need it too.
    reference: ObjectReference,
    /// Recorded failures: node, and generation of its object.
    failures: BTreeSet<(String, i64)>,
}

impl EventRecorder {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: Some(ADDITIONAL_SECRET.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        Self {
            events: Api::namespaced(client, namespace),
            reference,
            failures: BTreeSet::new(),
        }
    }

    pub(crate) fn set_regarding(&mut self, additional: &Secret) {
        self.reference = ObjectReference {
            resource_version: None,
            ..additional.object_ref(&())
        };
    }

    /// Writes in the background, so that no rollout waits for an event.
    pub(crate) fn record(
        &mut self,
        plan: &Plan,
        before: Option<&GlobalPullSecretStatus>,
        after: &GlobalPullSecretStatus,
        nodes: &[&NodePullSecret],
    ) {
        for (type_, reason, note) in changes(plan, before, after)
            .into_iter()
            .chain(self.new_failures(nodes))
        {
            self.write(type_, reason, note);
        }
    }

    /// One event for all objects that another client changed or deleted (`done`), and that the controller reverted.
    pub(crate) fn record_reverted(&self, reverted: &[String], done: &str) {
        if reverted.is_empty() {
            return;
        }
        let (named, others) = reverted.split_at(reverted.len().min(NAMED));
        let mut objects = named.join(", ");
        if !others.is_empty() {
            objects = format!("{objects} and {} more", others.len());
        }
        tracing::warn!(objects, "{done} by somebody else, and put back");
        let note = format!("{objects}: {done} by somebody else, and put back");
        self.write(WARNING, "PutBack", note);
    }

    /// The controller holds everything: there is no status to say so in.
    pub(crate) fn record_config_missing(&self) {
        let note = "there is no GlobalPullSecret, so every node keeps what it has; apply one to go on, \
                    an empty spec for the defaults";
        tracing::warn!("{note}");
        self.write(WARNING, "ConfigMissing", note.to_owned());
    }

    fn write(&self, type_: &str, reason: &'static str, note: String) {
        let event = self.event(type_, reason, note);
        let events = self.events.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(TIMEOUT, events.create(&PostParams::default(), &event)).await
            {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(%error, reason, "could not write an event"),
                Err(_) => tracing::warn!(reason, "could not write an event in time"),
            }
        });
    }

    /// Each event is a new object: kube's recorder aggregates events with the same reason and keeps the first note, which
    /// may be outdated.
    fn event(&self, type_: &str, reason: &str, note: String) -> Event {
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{ADDITIONAL_SECRET}-")),
                namespace: self.reference.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(Timestamp::now())),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(CONTROLLER.to_owned()),
            action: Some("Reconcile".to_owned()),
            type_: Some(type_.to_owned()),
            reason: Some(reason.to_owned()),
            note: Some(shorten(note)),
            regarding: Some(self.reference.clone()),
            ..Event::default()
        }
    }

    fn new_failures(&mut self, nodes: &[&NodePullSecret]) -> Vec<Note> {
        let mut failures = BTreeSet::new();
        let mut news = Vec::new();
        for node in nodes {
            let (Some(name), Some(status)) = (&node.metadata.name, &node.status) else {
                continue;
            };
            let reason = match status.phase {
                Phase::RolledBack => "NodeRolledBack",
                Phase::Failed => "NodeFailed",
                _ => continue,
            };
            let failure = (name.clone(), status.observed_generation);
            if !self.failures.contains(&failure) {
                news.push((WARNING, reason, format!("{name}: {}", status.message)));
            }
            failures.insert(failure);
        }
        self.failures = failures;
        news
    }
}

fn changes(
    plan: &Plan,
    before: Option<&GlobalPullSecretStatus>,
    after: &GlobalPullSecretStatus,
) -> Vec<Note> {
    let find = |status: &GlobalPullSecretStatus, type_: &str| {
        let found = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_);
        found.map(|condition| {
            (
                condition.status.clone(),
                condition.reason.clone(),
                condition.message.clone(),
            )
        })
    };
    let became = |type_: &str, status: &str| {
        let now = find(after, type_).filter(|now| now.0 == status)?;
        (before.and_then(|before| find(before, type_)).as_ref() != Some(&now)).then_some(now)
    };
    let mut events = Vec::new();
    if let Some((_, _, message)) = became(condition::ADDITIONAL_VALID, "False")
        && matches!(plan.resolved.additional, Verdict::Invalid(_))
    {
        events.push((WARNING, "Invalid", message));
    }
    if plan.global.is_some() && after.revision > before.map_or(0, |before| before.revision) {
        events.push((
            NORMAL,
            "Merged",
            format!("revision {} is ready to roll out", after.revision),
        ));
    }
    if let Some((_, reason, message)) = became(condition::SOURCES_VALID, "False")
        && reason == "Invalid"
    {
        events.push((WARNING, "SourceInvalid", message));
    }
    if before.is_none_or(|before| before.conflicts != after.conflicts) {
        events.extend(conflicts(&after.conflicts));
    }
    if let Some((_, _, message)) = became(condition::READY, "True")
        && before.is_none_or(|before| {
            find(before, condition::READY).is_none_or(|ready| ready.0 != "True")
        })
    {
        events.push((NORMAL, "RolledOut", message));
    }
    if let Some((_, reason, message)) = became(condition::DEGRADED, "True")
        && reason == "RolloutHalted"
    {
        events.push((WARNING, "RolloutHalted", message));
    }
    if plan.aim == Aim::CleanUp {
        events.push((NORMAL, "Restored", "every node is as it was".to_owned()));
    }
    events
}

/// One note for each pair of Secrets in conflict.
fn conflicts(conflicts: &[ConflictStatus]) -> Vec<Note> {
    let mut registries: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        let (effective, shadowed) = if conflict.source.is_empty() {
            let effective = format!("the {:?} pull secret", conflict.winner).to_lowercase();
            (effective, format!("the {}", shadowed(conflict.winner)))
        } else {
            (
                format!("`{}`", conflict.source),
                format!("`{}`", conflict.over),
            )
        };
        let registry = conflict.registry.as_str();
        registries
            .entry((effective, shadowed))
            .or_default()
            .push(registry);
    }
    let notes = registries
        .into_iter()
        .map(|((effective, shadowed), registries)| {
            let registries = registries.join(", ");
            let note =
                format!("{registries}: {effective}'s credentials are in force, not {shadowed}'s");
            (WARNING, "Conflict", note)
        });
    notes.collect()
}

fn shorten(mut note: String) -> String {
    if note.len() > NOTE_LIMIT {
        let end = (0..=NOTE_LIMIT - 3)
            .rev()
            .find(|at| note.is_char_boundary(*at))
            .unwrap_or_default();
        note.truncate(end);
        note.push_str("...");
    }
    note
}
