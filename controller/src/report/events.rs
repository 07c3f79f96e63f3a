//! Records events about the user's Secret: one per change of the status.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use globalps_core::api::{
    ConflictStatus, GlobalPullSecretStatus, NodePullSecret, Phase, condition,
};
use globalps_core::names::{ADDITIONAL_SECRET, CONTROLLER};
use globalps_core::reasons::{Reason, event_type};
use globalps_core::rollout::Revision;
use globalps_core::state::RESTORE_CONFIGURATION;
use globalps_planner::content::source::Verdict;
use globalps_planner::nodes::plan::{Aim, Plan};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::statement::list;

/// The API server's limit for a note, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Maximum number of object names in one event.
const NAMED: usize = 5;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Size of the queue of events to write.
const QUEUE: usize = 64;

/// Reason and note of an event.
pub(crate) type Note = (Reason, String);

pub(crate) struct EventRecorder {
    queue: mpsc::Sender<Event>,
    /// The last known Secret of the user, because events about its deletion need it too.
    reference: ObjectReference,
    /// The last recorded failure of each node: its reason, and the generation or revision that it refers to.
    failures: BTreeMap<String, (Reason, i64)>,
    /// The recorded objects that can't be decoded.
    unreadable: BTreeSet<String>,
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
            queue: writer(Api::namespaced(client, namespace)),
            reference,
            failures: BTreeMap::new(),
            unreadable: BTreeSet::new(),
        }
    }

    pub(crate) fn set_regarding(&mut self, additional: &Secret) {
        self.reference = ObjectReference {
            resource_version: None,
            ..additional.object_ref(&())
        };
    }

    /// Records in the background, so that no rollout waits for an event.
    pub(crate) fn record(
        &mut self,
        plan: &Plan,
        before: Option<&GlobalPullSecretStatus>,
        after: &GlobalPullSecretStatus,
        nodes: &[&NodePullSecret],
    ) {
        let mut events = changes(plan, before, after);
        events.extend(self.new_failures(nodes));
        self.write(events);
    }

    /// One event for all objects that another client changed or deleted (`done`), and that the controller reverted.
    pub(crate) fn record_reverted(&self, reverted: &[String], done: &str) {
        if reverted.is_empty() {
            return;
        }
        let objects = list(reverted, NAMED);
        let note = format!("another client {done} {objects}; the controller reverted this");
        tracing::warn!("{note}");
        self.write(vec![(Reason::DriftCorrected, note)]);
    }

    /// The configuration can't be created, so no status can report that.
    pub(crate) fn record_config_refused(&self, errors: &[String]) {
        self.write(vec![(Reason::ReconcileFailed, errors.join("; "))]);
    }

    /// Without a `GlobalPullSecret`, no status can report this. `is_served`: whether its kind exists. `is_remembered`:
    /// whether the controller knows the last one.
    pub(crate) fn record_config_missing(&self, is_served: bool, is_remembered: bool) {
        let next = if is_remembered {
            RESTORE_CONFIGURATION
        } else {
            "apply it again to continue"
        };
        let (what, first) = if is_served {
            ("GlobalPullSecret", "")
        } else {
            let first = "`kubectl globalps install` installs that again, then ";
            (
                "CustomResourceDefinition `globalpullsecrets.globalps.io`",
                first,
            )
        };
        let note = format!(
            "the {what} was deleted, so the current credentials stay in force; {first}{next}"
        );
        tracing::warn!("{note}");
        self.write(vec![(Reason::ConfigMissing, note)]);
    }

    /// Whether all of them are recorded.
    pub(crate) fn knows(&self, objects: &[String]) -> bool {
        objects
            .iter()
            .all(|object| self.unreadable.contains(object))
    }

    /// One event for each object that can't be decoded, once per field.
    pub(crate) fn record_unreadable(&mut self, objects: &[String]) {
        let known = std::mem::take(&mut self.unreadable);
        let new = objects.iter().filter(|object| !known.contains(*object));
        let events = new.map(|object| {
            tracing::warn!("an object can't be read; it has no effect on others: {object}");
            (Reason::Unreadable, object.clone())
        });
        self.write(events.collect());
        self.unreadable = objects.iter().cloned().collect();
    }

    /// Queues the events. Those that do not fit are dropped: after a change of the leader every failed node yields one.
    fn write(&self, notes: Vec<Note>) {
        let mut dropped = 0_u32;
        for note in notes {
            let event = self.event(note);
            dropped += u32::from(self.queue.try_send(event).is_err());
        }
        if dropped > 0 {
            tracing::warn!(dropped, "dropped events: too many at the same time");
        }
    }

    /// Each event is a new object: kube's recorder aggregates events with the same reason and keeps the first note, which may be
    /// outdated.
    fn event(&self, note: Note) -> Event {
        let metadata = ObjectMeta {
            generate_name: Some(format!("{ADDITIONAL_SECRET}-")),
            ..ObjectMeta::default()
        };
        event(CONTROLLER, self.reference.clone(), metadata, note)
    }

    /// Every rollback, but errors that the controller retries only once per revision.
    fn new_failures(&mut self, nodes: &[&NodePullSecret]) -> Vec<Note> {
        let mut known = std::mem::take(&mut self.failures);
        let mut warnings = Vec::new();
        for node in nodes {
            let (Some(name), Some(status)) = (&node.metadata.name, &node.status) else {
                continue;
            };
            let generation = node.metadata.generation.unwrap_or_default();
            let known = known.remove_entry(name);
            let failure = match status.phase {
                // Prevents a node from causing events by reporting other generations than its own.
                _ if status.observed_generation != generation => None,
                Phase::RolledBack => Some((Reason::NodeRolledBack, generation)),
                Phase::Failed => Some((Reason::NodeFailed, node.spec.revision)),
                _ => None,
            };
            let Some((reason, about)) = failure else {
                self.failures.extend(known);
                continue;
            };
            if known.is_none_or(|(_, known)| known != (reason, about)) {
                warnings.push((reason, format!("{name}: {}", status.message)));
            }
            self.failures.insert(name.clone(), (reason, about));
        }
        warnings
    }
}

/// Writes the queued events one after the other, until the sender is dropped.
fn writer(events: Api<Event>) -> mpsc::Sender<Event> {
    let (sender, mut queue) = mpsc::channel::<Event>(QUEUE);
    tokio::spawn(async move {
        while let Some(event) = queue.recv().await {
            let reason = event.reason.clone().unwrap_or_default();
            let params = PostParams::default();
            match timeout(TIMEOUT, events.create(&params, &event)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(%error, reason, "could not write an event"),
                Err(_) => tracing::warn!(reason, "could not write an event in time"),
            }
        }
    });
    sender
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
        events.push((Reason::Invalid, message));
    }
    let was = before.map_or(Revision::NONE, GlobalPullSecretStatus::rolled_out);
    if plan.global.is_some() && after.revision > 0 && after.rolled_out() != was {
        events.push((
            Reason::Merged,
            format!("revision {} is ready to roll out", after.revision),
        ));
    }
    if let Some((_, reason, message)) = became(condition::SOURCES_VALID, "False")
        && reason == Reason::Invalid
    {
        events.push((Reason::SourceInvalid, message));
    }
    if before.is_none_or(|before| before.conflicts != after.conflicts) {
        events.extend(conflicts(&after.conflicts));
    }
    if let Some((_, _, message)) = became(condition::READY, "True")
        && before.is_none_or(|before| {
            find(before, condition::READY).is_none_or(|ready| ready.0 != "True")
        })
    {
        events.push((Reason::RolledOut, message));
    }
    for (failing, synced) in [
        (Reason::NamespacesFailed, Reason::NamespacesSynced),
        (Reason::OperatorsFailed, Reason::OperatorsSynced),
    ] {
        // The event has the name of the condition.
        let type_ = synced.as_str();
        let Some((status, reason, message)) = find(after, type_) else {
            continue;
        };
        // Compares only status and reason, so that a new message alone causes no event.
        let known = before.and_then(|before| find(before, type_));
        if known.is_some_and(|known| (&known.0, &known.1) == (&status, &reason)) {
            continue;
        }
        match status.as_str() {
            "False" if reason != Reason::RollingOut => events.push((failing, message)),
            "True" => events.push((synced, message)),
            _ => {}
        }
    }
    events.extend(expiry(
        before.and_then(|before| find(before, condition::CREDENTIALS_EXPIRING)),
        find(after, condition::CREDENTIALS_EXPIRING),
    ));
    if let Some((_, reason, message)) = became(condition::DEGRADED, "True")
        && reason == Reason::RolloutHalted
    {
        events.push((Reason::RolloutHalted, message));
    }
    // Not for each message, which may differ with each retry.
    let fails =
        |status| find(status, condition::DEGRADED).filter(|it| it.1 == Reason::ReconcileFailed);
    if let (None, Some((_, _, message))) = (before.and_then(fails), fails(after)) {
        events.push((Reason::ReconcileFailed, message));
    }
    // Not for each message, which names nodes.
    let was_forgotten = before.and_then(|before| find(before, condition::OLD_FORGOTTEN));
    if let Some((_, _, message)) = became(condition::OLD_FORGOTTEN, "True")
        && was_forgotten.is_none_or(|was| was.0 != "True")
    {
        events.push((Reason::OldForgotten, message));
    }
    let rejects = |status| find(status, condition::CREDENTIALS_REJECTED);
    if let Some((_, _, message)) = became(condition::CREDENTIALS_REJECTED, "True") {
        events.push((Reason::CredentialsRejected, message));
    } else if before.and_then(rejects).is_some_and(|was| was.0 == "True")
        && rejects(after).is_some_and(|is| is.0 == "False")
    {
        let message = "every registry accepts its credentials again".to_owned();
        events.push((Reason::CredentialsAccepted, message));
    }
    if plan.aim == Aim::CleanUp {
        events.push((
            Reason::Restored,
            "every node has its own credentials file again".to_owned(),
        ));
    }
    events
}

/// One event per stage: the previous condition shows which one is known, also to a new leader. Each condition is its
/// status, reason and message.
fn expiry(
    before: Option<(String, String, String)>,
    after: Option<(String, String, String)>,
) -> Option<Note> {
    let (status, reason, message) = after?;
    let (status_before, reason_before, _) = before.unwrap_or_default();
    match (status_before == "True", status == "True") {
        (true, true) if reason == reason_before => None,
        (_, true) if reason == Reason::Expired => Some((Reason::CredentialsExpired, message)),
        (_, true) => Some((Reason::CredentialsExpiring, message)),
        (true, false) => {
            let note = "the credentials that expired or expire soon were renewed or removed";
            Some((Reason::CredentialsRenewed, note.to_owned()))
        }
        (false, false) => None,
    }
}

/// One note for each pair of conflicting Secrets.
fn conflicts(conflicts: &[ConflictStatus]) -> Vec<Note> {
    let mut registries: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        let registry = conflict.registry.as_str();
        registries
            .entry(conflict.sides())
            .or_default()
            .push(registry);
    }
    let notes = registries
        .into_iter()
        .map(|((effective, shadowed), registries)| {
            let registries = registries.join(", ");
            let note =
                format!("{registries}: the credentials of {effective} are effective, those of {shadowed} are shadowed");
            (Reason::Conflict, note)
        });
    notes.collect()
}

/// An event about an object, in its namespace. `program`: which one writes it; `metadata`: its name.
pub(crate) fn event(
    program: &str,
    regarding: ObjectReference,
    metadata: ObjectMeta,
    (reason, note): Note,
) -> Event {
    Event {
        metadata: ObjectMeta {
            namespace: regarding.namespace.clone(),
            ..metadata
        },
        event_time: Some(MicroTime(Timestamp::now())),
        reporting_controller: Some(program.to_owned()),
        reporting_instance: Some(program.to_owned()),
        action: Some("Reconcile".to_owned()),
        type_: Some(event_type(reason).to_owned()),
        reason: Some(reason.into()),
        note: Some(shorten(note)),
        regarding: Some(regarding),
        ..Event::default()
    }
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

#[cfg(test)]
mod tests {
    use globalps_core::api::{NodePullSecretSpec, NodePullSecretStatus};
    use globalps_dockerconfig::Precedence;
    use globalps_fake_api::{FakeApi, Fault};

    use super::*;

    fn failed_nodes(count: usize) -> Vec<NodePullSecret> {
        let node = |index| {
            let mut node = NodePullSecret::new(&format!("n{index}"), NodePullSecretSpec::default());
            node.status = Some(NodePullSecretStatus {
                phase: Phase::Failed,
                ..NodePullSecretStatus::default()
            });
            node
        };
        (0..count).map(node).collect()
    }

    #[test]
    fn a_conflict_names_the_effective_and_the_shadowed_secret() {
        let conflict = |effective, source: &str, shadowed: &str| ConflictStatus {
            registry: "quay.io".to_owned(),
            effective,
            source: source.to_owned(),
            shadowed: shadowed.to_owned(),
        };
        let (additional, original) = (Precedence::Additional, Precedence::Original);
        for (conflict, effective, shadowed) in [
            (
                conflict(additional, "", ""),
                "the additional",
                "the original",
            ),
            (conflict(original, "", ""), "the original", "the additional"),
            (conflict(additional, "one", "two"), "`one`", "`two`"),
        ] {
            let notes = conflicts(&[conflict]);
            let (first, second) = notes[0].1.split_once("effective").expect("both");
            assert!(first.starts_with("quay.io"), "{first}");
            assert!(first.contains(effective), "{first}");
            assert!(second.contains(shadowed), "{second}");
        }
    }

    #[test]
    fn each_stage_of_an_expiry_is_an_event_once() {
        let steps = [
            ("", None),
            ("NoneExpiring", None),
            ("ExpiringSoon", Some("CredentialsExpiring")),
            ("ExpiringSoon", None),
            ("ExpiringWithinAnHour", Some("CredentialsExpiring")),
            ("ExpiringWithinAnHour", None),
            ("Expired", Some("CredentialsExpired")),
            ("Expired", None),
            ("NoneExpiring", Some("CredentialsRenewed")),
            ("NoneExpiring", None),
            ("Expired", Some("CredentialsExpired")),
            ("ExpiringSoon", Some("CredentialsExpiring")),
            ("", None),
            ("ExpiringSoon", Some("CredentialsExpiring")),
        ];
        let mut before = None;
        for (at, (reason, expected)) in steps.into_iter().enumerate() {
            let status = if reason == "NoneExpiring" {
                "False"
            } else {
                "True"
            };
            let after = (!reason.is_empty())
                .then(|| (status.to_owned(), reason.to_owned(), format!("at {at}")));
            let found = expiry(before, after.clone());
            assert_eq!(found.map(|note| note.0.as_str()), expected, "step {at}");
            before = after;
        }
    }

    #[tokio::test]
    async fn a_failure_is_an_event_once() {
        let mut recorder = EventRecorder::new(FakeApi::default().client(), "default");
        for (case, phase, revision, generation, observed, count) in [
            ("a full disk", Phase::Failed, 1, 1, 1, 1),
            ("the controller retries", Phase::Failed, 1, 2, 1, 0),
            ("it is still full", Phase::Failed, 1, 2, 2, 0),
            ("with another revision, too", Phase::Failed, 2, 3, 3, 1),
            ("the kubelet does not serve", Phase::RolledBack, 2, 3, 3, 1),
            ("nor when a user retries", Phase::RolledBack, 2, 4, 4, 1),
            (
                "another generation than its own",
                Phase::RolledBack,
                2,
                4,
                99,
                0,
            ),
            ("done", Phase::Synced, 2, 4, 4, 0),
        ] {
            let spec = NodePullSecretSpec {
                revision,
                ..NodePullSecretSpec::default()
            };
            let mut node = NodePullSecret::new("a", spec);
            node.metadata.generation = Some(generation);
            node.status = Some(NodePullSecretStatus {
                phase,
                observed_generation: observed,
                ..NodePullSecretStatus::default()
            });
            assert_eq!(recorder.new_failures(&[&node]).len(), count, "{case}");
        }
    }

    /// A new leader finds 5,000 failed nodes, and the API server does not respond.
    #[tokio::test(start_paused = true)]
    async fn events_are_written_one_by_one_and_the_queue_is_bounded() {
        let api = FakeApi::default();
        api.fail("create /apis/events.k8s.io", Fault::Silence);
        let mut recorder = EventRecorder::new(api.client(), "default");
        let nodes = failed_nodes(5000);
        let nodes: Vec<&NodePullSecret> = nodes.iter().collect();
        let failures = recorder.new_failures(&nodes);
        assert_eq!(failures.len(), 5000);
        recorder.write(failures);
        tokio::time::sleep(TIMEOUT / 2).await;
        assert_eq!(api.requests().len(), 1, "one at a time");
        tokio::time::sleep(TIMEOUT * 1000).await;
        assert_eq!(api.requests().len(), QUEUE, "the queue is bounded");
    }
}
