use std::collections::BTreeMap;
use std::sync::Arc;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus, DeletionPolicy, FleetPullSecret,
    OnFailure,
};
use globalps_core::names::RETRY_ANNOTATION;
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Revision, RevisionId};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::super::clock::ClusterClock;
use super::super::input::{Drift, Hidden, object_title, revision_title};
use super::super::installation::Installation;
use super::super::trust::Trust;
use super::*;
use crate::content::secret::revision_of_test;
use crate::content::source::{Data, Source};
use crate::refused::{Failures, Response};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const A: &str = r#"{"auths":{"a.example.com":{"auth":"dTpw"}}}"#;
const B: &str = r#"{"auths":{"b.example.com":{"auth":"dTpw"}}}"#;

fn data(text: &str) -> Data {
    Data(Some(text.as_bytes().to_vec()))
}

fn now() -> Timestamp {
    NOW + SignedDuration::from_hours(1000)
}

/// Owns everything that an [`FleetInput`] borrows.
struct Hub {
    fleet: FleetPullSecret,
    source: Source,
    install: Result<Option<Arc<Installation>>, String>,
    revisions: Vec<FleetRevision>,
    foreign: BTreeSet<String>,
    clusters: BTreeMap<ClusterKey, ClusterView>,
    objects: BTreeMap<ClusterKey, ClusterPullSecret>,
    drift: Drift,
    taken: BTreeMap<ClusterKey, String>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    hidden: Hidden,
    room: BTreeMap<String, usize>,
    left_out: Option<String>,
    trust: Trust,
    refused: Failures,
}

fn key(name: &str) -> ClusterKey {
    ("ns".to_owned(), name.to_owned())
}

/// `clusters` is a list like `a b=0 c=2:Synced d=2:Failed e=2 g=R:Removed`: name, assigned revision (`R`: removal), and the phase
/// that the cluster reports for it (none: no report yet). A prefix marks the cluster: `-` not selected, `*` a canary, `!` with an
/// obstacle, `~` unreachable for ten minutes after its last report.
fn hub(source: Source, revisions: &[(i64, &str, &str)], clusters: &str) -> Hub {
    let spec = json!({
        "secretRef": {"name": "shared"},
        "clusterSelector": {"matchLabels": {"env": "prod"}},
        "rollout": {"maxUnavailable": 1},
    });
    let mut fleet = FleetPullSecret::new("shared", serde_json::from_value(spec).unwrap());
    fleet.metadata.namespace = Some("ns".to_owned());
    let mut hub = Hub {
        fleet,
        source,
        install: Ok(None),
        revisions: revisions.iter().map(revision).collect(),
        foreign: BTreeSet::new(),
        clusters: BTreeMap::new(),
        objects: BTreeMap::new(),
        drift: Drift::default(),
        taken: BTreeMap::new(),
        namespaces: BTreeMap::new(),
        hidden: Hidden::new(),
        room: BTreeMap::new(),
        left_out: None,
        trust: Trust::new(&["ns".to_owned()]),
        refused: Failures::default(),
    };
    for word in clusters.split_whitespace() {
        let mark = word.chars().next().unwrap_or_default();
        let word = word.trim_start_matches(['-', '*', '!', '~']);
        let (name, state) = word.split_once('=').unwrap_or((word, ""));
        let env = if mark == '-' { "test" } else { "prod" };
        let canary = if mark == '*' { "yes" } else { "no" };
        let labels = [("env", env), ("canary", canary)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let view = ClusterView {
            labels: Some(labels.into()),
            obstacle: (mark == '!').then(|| (Reason::IsHub, "it is the hub".to_owned())),
            ..ClusterView::default()
        };
        hub.clusters.insert(key(name), view);
        if !state.is_empty() {
            hub.objects
                .insert(key(name), object(name, state, mark == '~'));
        }
    }
    hub
}

/// Number, content and marks: `p` canary passed, `r` rolled out, `x` rolled back.
fn revision((number, content, marks): &(i64, &str, &str)) -> FleetRevision {
    let has = |mark: char| marks.contains(mark);
    FleetRevision {
        canary_passed: has('p') || has('r'),
        rolled_out: has('r').then_some(NOW),
        rejected: has('x').then(|| "it failed".to_owned()),
        ..FleetRevision::new(revision_of_test(*number), Arc::new(data(content)), None)
    }
}

fn object(name: &str, state: &str, is_unreachable: bool) -> ClusterPullSecret {
    let (assigned, phase) = state.split_once(':').unwrap_or((state, ""));
    let is_removal = assigned == "R";
    let mut object = ClusterPullSecret::new(
        name,
        ClusterPullSecretSpec {
            fleet: "ns/shared".to_owned(),
            cluster: name.to_owned(),
            revision: assigned.parse().unwrap_or(1),
            revision_id: revision_of_test(assigned.parse().unwrap_or(1)).id,
            remove: is_removal,
            assigned_at: Some(Time(now() - SignedDuration::from_secs(1))),
            ..ClusterPullSecretSpec::default()
        },
    );
    object.metadata.generation = Some(2);
    object.metadata.uid = Some(name.to_owned());
    let revision = object.spec.revision;
    let phase: Option<ClusterPhase> = serde_json::from_value(json!(phase)).ok();
    let phase = phase.filter(|phase| *phase != ClusterPhase::Other);
    let since = Some(Time(now() - SignedDuration::from_mins(10)));
    object.status = Some(ClusterPullSecretStatus {
        observed_generation: if phase.is_some() || revision == 0 {
            2
        } else {
            1
        },
        phase: match phase {
            _ if is_unreachable => ClusterPhase::Unreachable,
            Some(phase) => phase,
            None => ClusterPhase::Pending,
        },
        revision: match phase {
            Some(ClusterPhase::Synced) => revision,
            // It still has the previous revision.
            _ if revision > 1 => revision - 1,
            _ => 0,
        },
        revision_id: match phase {
            Some(ClusterPhase::Synced) => revision_of_test(revision).id,
            _ => revision_of_test((revision - 1).max(0)).id,
        },
        last_transition_time: is_unreachable.then(|| since.clone()).flatten(),
        ..ClusterPullSecretStatus::default()
    });
    object
}

impl Hub {
    fn plan(&self) -> FleetPlan {
        plan(&self.input(&self.clock()))
    }

    fn clock(&self) -> ClusterClock {
        ClusterClock::of_times(self.objects.values(), now())
    }

    fn input<'a>(&'a self, clock: &'a ClusterClock) -> FleetInput<'a> {
        FleetInput {
            fleet: &self.fleet,
            unreadable: None,
            source: &self.source,
            install: self.install.clone(),
            revisions: self.revisions.clone(),
            new_id: revision_of_test(1).id,
            foreign: self.foreign.clone(),
            clusters: &self.clusters,
            namespaces: &self.namespaces,
            objects: self
                .objects
                .iter()
                .map(|(key, it)| (key.clone(), it))
                .collect(),
            drift: self.drift.clone(),
            taken: self.taken.clone(),
            hidden: self.hidden.clone(),
            room: &self.room,
            left_out: self.left_out.clone(),
            trust: &self.trust,
            refused: &self.refused,
            clock,
            now: now(),
        }
    }

    fn line(&self) -> String {
        line(&self.plan())
    }
}

/// The plan's writes in one line: revisions with their marks, assignments (`?`: revoked), deleted objects and revisions.
fn line(plan: &FleetPlan) -> String {
    let mut words: Vec<String> = plan.hold.iter().map(|hold| format!("{hold:?}")).collect();
    words.extend(plan.revisions.iter().map(|it| {
        let marks = [
            (it.canary_passed, "p"),
            (it.rolled_out.is_some(), "r"),
            (it.rejected.is_some(), "x"),
        ];
        let marks = marks.into_iter().filter(|(holds, _)| *holds);
        let marks: String = marks.map(|(_, mark)| mark).collect();
        format!("write {}{marks}", it.number)
    }));
    words.extend(plan.assignments.iter().map(|((_, name), spec)| {
        let goal = if spec.remove {
            "R".to_owned()
        } else {
            spec.revision.to_string()
        };
        let revoked = if spec.revoked { "?" } else { "" };
        format!("{name}={goal}{revoked}")
    }));
    words.extend(plan.released.iter().map(|(_, name)| format!("-{name}")));
    words.extend(
        plan.outdated
            .iter()
            .map(|number| format!("forget {number}")),
    );
    if plan.is_finished {
        words.push("finished".to_owned());
    }
    words.join(" ")
}

fn found(text: &str) -> Source {
    Source::Found(data(text))
}

#[test]
fn the_plan_of_a_fleet() {
    for (case, source, revisions, clusters, expected) in [
        (
            "no source and no revision",
            Source::Absent,
            &[][..],
            "a=0",
            "NothingYet",
        ),
        (
            "the first revision is written before it is assigned",
            found(A),
            &[],
            "a=0",
            "write 1",
        ),
        (
            "an object for each selected cluster comes first",
            found(A),
            &[(1, A, "")],
            "a b -c",
            "a=0 b=0",
        ),
        (
            "the canary is assigned first, and alone",
            found(A),
            &[(1, A, "")],
            "a=0 b=0 c=0",
            "a=1",
        ),
        (
            "no other cluster before the canary has passed",
            found(A),
            &[(1, A, "")],
            "a=1 b=0 c=0",
            "",
        ),
        (
            "then the next one",
            found(A),
            &[(1, A, "")],
            "a=1:Synced b=0 c=0",
            "write 1p b=1",
        ),
        (
            "the revision records that its canary has passed",
            found(A),
            &[(1, A, "p")],
            "a=1:Synced b=0 c=0",
            "b=1",
        ),
        (
            "every cluster has it",
            found(A),
            &[(1, A, "p")],
            "a=1:Synced b=1:Synced",
            "write 1pr",
        ),
        (
            "an unreachable cluster is skipped",
            found(A),
            &[(1, A, "p")],
            "a=1:Synced ~b=0",
            "write 1pr",
        ),
        (
            "changed content is a new revision",
            found(B),
            &[(1, A, "r")],
            "a=1:Synced",
            "write 2",
        ),
        (
            "the same credentials in another form are no new revision",
            found("{\"auths\": {\"a.example.com\": {\"auth\":\"dTpw\"}} }"),
            &[(1, A, "r")],
            "a=1:Synced",
            "",
        ),
        (
            "nothing changes while the source is missing",
            Source::Absent,
            &[(1, A, "r")],
            "a=1:Synced",
            "NoValidContent",
        ),
        (
            "nothing changes while the source is invalid",
            found("{"),
            &[(1, A, "r"), (2, B, "p")],
            "a=2:Synced b=1:Synced c=2",
            "NoValidContent",
        ),
        (
            "a failed cluster halts the fleet",
            found(B),
            &[(1, A, "r"), (2, B, "p")],
            "a=2:Failed b=1:Synced c=1:Synced",
            "",
        ),
        (
            "a new cluster gets the last rolled out revision before the canary of the newest has passed",
            found(B),
            &[(1, A, "r"), (2, B, "")],
            "a=2 b=1:Synced c=0",
            "c=1",
        ),
        (
            "a new cluster gets the newest revision after its canary has passed",
            found(B),
            &[(1, A, "r"), (2, B, "p")],
            "a=2 b=1:Synced c=0",
            "c=2",
        ),
        (
            "a new cluster does not get a halted revision",
            found(B),
            &[(1, A, "r"), (2, B, "p")],
            "a=2:Failed b=1:Synced c=0",
            "c=1",
        ),
        (
            "a failed removal keeps no new cluster from the newest revision",
            found(B),
            &[(1, A, "r"), (2, B, "p")],
            "a=2:Synced b=2 c=0 -d=R:Failed",
            "c=2",
        ),
        (
            "the Secret is removed from a cluster that is no longer selected",
            found(A),
            &[(1, A, "r")],
            "a=1:Synced -b=1:Synced",
            "b=R",
        ),
        (
            "after the removal the object is deleted",
            found(A),
            &[(1, A, "r")],
            "a=1:Synced -b=R:Removed -c=0",
            "-b -c",
        ),
        (
            "a cluster with an obstacle is assigned nothing",
            found(A),
            &[(1, A, "p")],
            "a=1:Synced !b=0",
            "write 1pr",
        ),
        (
            "a cluster with an obstacle occupies no slot",
            found(B),
            &[(1, A, "r"), (2, B, "p")],
            "!a=2:Syncing b=1:Synced",
            "b=2",
        ),
        (
            "revisions that no cluster needs are deleted",
            found(A),
            &[
                (1, B, "r"),
                (2, A, "r"),
                (3, B, "r"),
                (4, A, "r"),
                (5, B, ""),
                (6, A, "r"),
            ],
            "a=6:Synced b=2:Synced",
            "b=6 forget 1 forget 5",
        ),
    ] {
        let hub = hub(source, revisions, clusters);
        assert_eq!(hub.line(), expected, "{case}");
    }
}

#[test]
fn with_rollback_a_fleet_rolls_back_until_the_source_changes() {
    let failed = "a=2:Failed b=1:Synced";
    let mut hub = hub(found(B), &[(1, A, "r"), (2, B, "p")], failed);
    assert_eq!(hub.line(), "", "it halts");
    hub.fleet.spec.rollout.on_failure = OnFailure::Rollback;
    let plan = hub.plan();
    let reason = plan.revisions[0].rejected.clone();
    let expected = "revision 2 failed in ns/a and was rolled back in every cluster";
    assert_eq!(reason.as_deref(), Some(expected));
    hub.revisions[1].rejected = reason;
    assert_eq!(
        hub.line(),
        "write 3",
        "the previous content as a new revision"
    );
    hub.revisions.push(revision(&(3, A, "")));
    assert_eq!(hub.line(), "b=3", "the failed cluster goes last");
    hub.source = found(A);
    assert_eq!(hub.line(), "b=3");
    hub.source = found(r#"{"auths":{"c.example.com":{"auth":"dTpw"}}}"#);
    assert_eq!(hub.line(), "write 4");
}

#[test]
fn without_rollback_nobody_s_mark_brings_old_content_back() {
    let mut hub = hub(
        found(B),
        &[(1, A, "r"), (2, B, "rx")],
        "a=2:Synced b=2:Synced",
    );
    assert_eq!(hub.line(), "", "nothing failed");
    hub.revisions = [(1, A, "r"), (2, B, "px"), (3, A, "r")]
        .iter()
        .map(revision)
        .collect();
    for object in hub.objects.values_mut() {
        object.spec.revision = 3;
    }
    assert!(!hub.line().contains("write 4"), "a rollback that was stays");
}

#[test]
fn what_other_clients_make_of_a_revision_is_written_again() {
    let mut hub = hub(
        found(B),
        &[(1, A, "r"), (2, B, "r")],
        "a=2:Synced b=2:Synced",
    );
    hub.drift.revisions = [1, 2].into();
    assert_eq!(hub.line(), "write 1pr write 2pr");
    hub.fleet.spec.rollout.paused = true;
    assert_eq!(hub.line(), "write 1pr write 2pr");
    hub.source = found(C);
    assert_eq!(hub.line(), "write 3 write 1pr write 2pr", "once each");
}

const C: &str = r#"{"auths":{"c.example.com":{"auth":"dTpw"}}}"#;

#[test]
fn rolled_back_content_stays_out_until_the_source_changes() {
    type Revisions<'a> = &'a [(i64, &'a str, &'a str)];
    let rolled_back: Revisions = &[(1, A, "r"), (2, B, "px"), (3, A, "p")];
    let at_rest: Revisions = &[(1, A, "r"), (2, B, "px"), (3, A, "r")];
    for (case, source, revisions, clusters, expected) in [
        (
            "the failed cluster gets the old content, and the rejection stays",
            found(B),
            rolled_back,
            "a=3 b=3:Synced",
            "",
        ),
        (
            "nor does it go when every cluster has the old content",
            found(B),
            at_rest,
            "a=3:Synced b=3:Synced",
            "",
        ),
        (
            "nor while there is no valid source",
            Source::Absent,
            at_rest,
            "a=3:Synced b=3:Synced",
            "NoValidContent",
        ),
        (
            "the source has the old content, too",
            found(A),
            at_rest,
            "a=3:Synced b=3:Synced",
            "forget 2",
        ),
        (
            "other content is in force, so the source has changed since",
            found(B),
            &[(1, A, "r"), (2, B, "px"), (3, A, "r"), (4, C, "r")],
            "a=4:Synced b=2",
            "write 5",
        ),
    ] {
        let mut hub = hub(source, revisions, clusters);
        hub.fleet.spec.rollout.on_failure = OnFailure::Rollback;
        hub.fleet.spec.history_limit = 0;
        let line = hub.line();
        let line = line.replace("forget 1", "");
        assert_eq!(line.trim(), expected, "{case}");
        let reason = hub.plan().rolled_back;
        assert_eq!(
            reason.is_some(),
            expected != "forget 2" && expected != "write 5",
            "{case}"
        );
    }
}

#[test]
fn a_rollback_never_returns_to_a_revision_partly_replaced() {
    for (case, revisions, clusters, expected) in [
        (
            "what 1 has may be revoked",
            &[(1, A, "r"), (2, B, "p"), (3, C, "p")][..],
            "a=3:Failed b=2:Synced",
            "",
        ),
        (
            "no cluster is assigned 2 any more",
            &[(1, A, "r"), (2, B, "p"), (3, C, "p")],
            "a=3:Failed b=1:Synced",
            "",
        ),
        (
            "2 has passed no canary",
            &[(1, A, "r"), (2, B, ""), (3, C, "p")],
            "a=3:Failed b=1:Synced",
            "write 3px forget 2",
        ),
        (
            "2 was rolled back itself",
            &[(1, A, "r"), (2, B, "px"), (3, C, "p")],
            "a=3:Failed b=1:Synced",
            "write 3px forget 2",
        ),
        (
            "2 has what 1 has",
            &[(1, A, "r"), (2, A, "p"), (3, C, "p")],
            "a=3:Failed b=2:Synced",
            "write 3px",
        ),
    ] {
        let mut hub = hub(found(C), revisions, clusters);
        hub.fleet.spec.rollout.on_failure = OnFailure::Rollback;
        assert_eq!(hub.line(), expected, "{case}");
    }
}

#[test]
fn a_new_cluster_gets_the_last_passed_revision_in_any_case() {
    let revisions = [(1, A, "p"), (2, B, "")];
    let hub = |clusters: &str, is_new: bool| {
        let mut hub = hub(found(B), &revisions, clusters);
        hub.fleet.spec.rollout.paused = true;
        for (revision, minute) in hub.revisions.iter_mut().zip(0..) {
            revision.created = Some(NOW + SignedDuration::from_mins(minute));
        }
        let created = NOW + SignedDuration::from_secs(if is_new { 30 } else { -30 });
        hub.clusters.get_mut(&key("c")).unwrap().created = Some(created);
        hub
    };
    let clusters = "a=1:Synced b=1:Synced c=0";
    let mut paused = hub(clusters, true);
    assert_eq!(paused.line(), "c=1");
    paused.fleet.spec.rollout.paused = false;
    assert_eq!(paused.line(), "c=1 a=2", "and nothing else changes");
    let halted = hub("a=2:Failed b=1:Synced c=0", true);
    assert_eq!(halted.line(), "c=1");
    assert_eq!(
        hub("a=1:Synced b=0 c=0", false).line(),
        "",
        "it waits for its turn"
    );
    let mut failed = hub("a=1:Failed b=1:Synced c=0", true);
    assert_eq!(failed.line(), "", "1 has failed");
    failed.revisions[0] = revision(&(1, A, "r"));
    assert_eq!(failed.line(), "", "in a cluster of the fleet");
}

#[test]
fn a_source_change_first_records_how_far_the_old_one_got() {
    let mut hub = hub(found(B), &[(1, A, "p")], "a=1:Synced b=1:Synced c=0");
    hub.fleet.spec.rollout.paused = true;
    assert_eq!(hub.line(), "write 2", "c has nothing");
    hub.objects.remove(&key("c"));
    hub.clusters.remove(&key("c"));
    assert_eq!(hub.line(), "write 1pr write 2");
    hub.revisions[0].canary_passed = false;
    hub.fleet.spec.rollout.on_failure = OnFailure::Rollback;
    hub.fleet.spec.rollout.paused = false;
    hub.objects.insert(key("b"), object("b", "1:Failed", false));
    assert_eq!(hub.line(), "write 1p write 2", "it is not rolled back");
}

#[test]
fn a_failed_cluster_halts_no_later_revision_until_synced() {
    for (case, failed, state, expected) in [
        ("the first failure halts", 0, "2:Failed", ""),
        ("so does a retry of the same revision", 2, "2:Failed", ""),
        (
            "a failure of a later revision does not",
            1,
            "2:Failed",
            "b=2",
        ),
        ("until it was synced", 1, "2:Synced", "b=2"),
    ] {
        let clusters = format!("a={state} b=1:Synced");
        let mut hub = hub(found(B), &[(1, A, "r"), (2, B, "p")], &clusters);
        let spec = &mut hub.objects.get_mut(&key("a")).unwrap().spec;
        spec.failed_revision = failed;
        spec.failed_revision_id = crate::content::secret::revision_of_test(failed).id;
        assert_eq!(hub.line(), expected, "{case}");
        let next = Goal::Revision(crate::content::secret::revision_of_test(3));
        let found = assigned(&hub.input(&hub.clock()), &key("a"), next).failed_revision;
        let expected = match (failed, state) {
            (_, "2:Synced") => 0,
            (0, _) => 2,
            (failed, _) => failed,
        };
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn canaries_limits_pauses_and_retries_work_as_for_nodes() {
    let mut hub = hub(found(A), &[(1, A, "")], "a=0 *b=0 c=0 d=0");
    let selector = json!({"matchLabels": {"canary": "yes"}});
    let selector: LabelSelector = serde_json::from_value(selector).unwrap();
    hub.fleet.spec.rollout.canary.cluster_selector = selector;
    assert_eq!(hub.line(), "b=1");
    hub.fleet.spec.rollout.paused = true;
    assert_eq!(hub.line(), "");
    hub.fleet.spec.rollout.paused = false;
    hub.objects.insert(key("b"), object("b", "1:Failed", false));
    assert_eq!(hub.line(), "");
    let annotations = [(RETRY_ANNOTATION.to_owned(), "1".to_owned())];
    let failed = hub.objects.get_mut(&key("b")).unwrap();
    failed.metadata.annotations = Some(annotations.into());
    assert_eq!(hub.line(), "b=1");
    let failed = hub.objects.get_mut(&key("b")).unwrap();
    failed
        .annotations_mut()
        .insert(RETRY_ANNOTATION.to_owned(), "x".repeat(1100));
    let retried = hub.plan().assignments.remove(0).1.retry;
    assert!(!retried.is_empty() && retried.len() <= 1024, "{retried}");
    hub.objects.get_mut(&key("b")).unwrap().spec.retry = retried;
    assert_eq!(hub.line(), "", "once for each value");
    hub.objects.insert(key("b"), object("b", "1:Synced", false));
    hub.revisions[0].canary_passed = true;
    hub.fleet.spec.rollout.max_unavailable = IntOrString::Int(2);
    assert_eq!(hub.line(), "a=1 c=1");
    let mut slow = object("a", "1", false);
    slow.spec.assigned_at = Some(Time(now() - SignedDuration::from_mins(11)));
    hub.objects.insert(key("a"), slow);
    assert_eq!(
        hub.line(),
        "a=0? c=1 d=1",
        "a cluster without progress releases its slot"
    );
}

#[test]
fn an_unreachable_cluster_keeps_its_slot_for_half_a_minute() {
    let revisions = [(1, A, "r"), (2, B, "p")];
    let mut hub = hub(found(B), &revisions, "~a=2 b=1:Synced");
    let mut unreachable_for = |seconds| {
        let status = hub.objects.get_mut(&key("a")).unwrap().status.as_mut();
        let since = now() - SignedDuration::from_secs(seconds);
        status.unwrap().last_transition_time = Some(Time(since));
        hub.line()
    };
    assert_eq!(unreachable_for(29), "");
    assert_eq!(unreachable_for(30), "a=1? b=2");
}

#[test]
fn a_clock_change_neither_shortens_nor_extends_a_wait() {
    for (hours, has_time) in [-24, -1, 0, 1, 24]
        .into_iter()
        .flat_map(|it| [(it, true), (it, false)])
    {
        // Another client may have removed it.
        let time = |wall| has_time.then_some(Time(wall));
        let wall = |seconds| {
            let ahead = SignedDuration::from_hours(if seconds == 0 { 0 } else { hours });
            now() + ahead + SignedDuration::from_secs(seconds)
        };
        let mut clock = ClusterClock::default();
        let revisions = [(1, A, "r"), (2, B, "p")];
        let mut hub = hub(found(B), &revisions, "a=2 b=1:Synced");
        let mut line_after = |hub: &Hub, seconds| {
            clock.observe(hub.objects.values(), SignedDuration::from_secs(seconds));
            let input = FleetInput {
                now: wall(seconds),
                ..hub.input(&clock)
            };
            line(&plan(&input))
        };
        hub.objects.get_mut(&key("a")).unwrap().spec.assigned_at = time(wall(0));
        assert_eq!(line_after(&hub, 0), "", "{hours} h: assigned");
        assert_eq!(line_after(&hub, 119), "", "{hours} h: may still begin");
        assert_eq!(line_after(&hub, 120), "a=1? b=2", "{hours} h: unresponsive");
        hub.objects.insert(key("a"), object("a", "2", true));
        let unreachable = hub.objects.get_mut(&key("a")).unwrap();
        // Another assignment.
        unreachable.spec.retry = "again".to_owned();
        unreachable.spec.assigned_at = time(wall(0));
        unreachable.status.as_mut().unwrap().last_transition_time = Some(Time(wall(0)));
        assert_eq!(line_after(&hub, 200), "", "{hours} h: unreachable");
        assert_eq!(line_after(&hub, 229), "", "{hours} h");
        assert_eq!(line_after(&hub, 230), "a=1? b=2", "{hours} h: for 30 s");
    }
}

#[test]
fn a_deleted_fleet_is_removed_within_the_limits_or_orphaned() {
    let mut hub = hub(
        found(A),
        &[(1, A, "r")],
        "a=1:Synced b=1:Synced ~c=1:Synced",
    );
    hub.fleet.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(hub.line(), "a=R");
    hub.objects
        .insert(key("a"), object("a", "R:Removed", false));
    assert_eq!(hub.line(), "b=R -a");
    hub.fleet.spec.deletion_policy = DeletionPolicy::Orphan;
    assert_eq!(hub.line(), "-a -b -c");
    for object in hub.objects.values_mut() {
        object.metadata.deletion_timestamp = Some(Time(now()));
    }
    let kept = "finalizers of others keep the objects";
    assert_eq!(hub.line(), "-a -b -c finished", "{kept}");
    hub.fleet.spec.deletion_policy = DeletionPolicy::Remove;
    assert_eq!(hub.line(), "b=R -a", "b and c still have the Secret");
    hub.objects.clear();
    assert_eq!(hub.line(), "finished");
}

#[test]
fn an_invalid_selector_keeps_no_fleet_from_being_deleted() {
    let invalid = json!({"matchExpressions": [{"key": "a", "operator": "x"}]});
    for field in [
        json!({"clusterSelector": invalid}),
        json!({"namespaceSelector": invalid}),
        json!({"registered": {"selector": invalid}}),
        json!({"rollout": {"canary": {"clusterSelector": invalid}}}),
    ] {
        let mut hub = hub(found(A), &[(1, A, "r")], "a=1:Synced b=1:Synced");
        let mut spec = serde_json::to_value(&hub.fleet.spec).unwrap();
        spec.as_object_mut()
            .unwrap()
            .extend(field.as_object().unwrap().clone());
        hub.fleet.spec = serde_json::from_value(spec).unwrap();
        assert!(hub.line().starts_with("Selector("), "{field}");
        hub.fleet.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(hub.line(), "a=R", "{field}");
        for name in ["a", "b"] {
            hub.objects
                .insert(key(name), object(name, "R:Removed", false));
        }
        assert_eq!(hub.line(), "-a -b", "{field}");
        hub.objects.clear();
        assert_eq!(hub.line(), "finished", "{field}");
    }
}

#[test]
fn a_deleted_revisions_number_is_reused_unless_foreign() {
    let mut hub = hub(
        found(A),
        &[(1, A, "r"), (2, B, "r")],
        "a=2:Synced b=2:Synced",
    );
    hub.source = found(r#"{"auths":{"c.example.com":{"auth":"dTpw"}}}"#);
    hub.revisions.pop();
    assert_eq!(hub.line(), "write 2", "a user deleted the newest revision");
    let foreign = |numbers: &[i64]| -> BTreeSet<String> {
        let names = numbers.iter();
        names
            .map(|number| fleet_revision("shared", *number))
            .collect()
    };
    hub.foreign = foreign(&[2, 3, 7]);
    let left = "an earlier FleetPullSecret has left revisions";
    assert_eq!(hub.line(), "write 4", "{left}");
    hub.foreign = foreign(&[MAX_REVISION]);
    assert_eq!(hub.line(), "write 2", "anybody can create a Secret");
    hub.revisions.push(revision(&(MAX_REVISION, B, "r")));
    assert_eq!(hub.line(), "NoRevisionLeft");
}

#[test]
fn an_unreadable_namespace_holds_the_fleets_it_concerns() {
    let edge: BTreeMap<String, String> = [("kind".to_owned(), "edge".to_owned())].into();
    let elsewhere = ("team-b".to_owned(), "z".to_owned());
    let hub = |kind: Option<&str>| {
        let mut hub = hub(
            found(B),
            &[(1, A, "r")],
            "a=1:Synced b=1:Synced -c=1:Synced",
        );
        hub.namespaces = [("team-b".to_owned(), edge.clone())].into();
        hub.fleet.spec.namespace_selector = kind.map(|kind| LabelSelector {
            match_labels: Some([("kind".to_owned(), kind.to_owned())].into()),
            ..LabelSelector::default()
        });
        hub.hidden = [("team-b".to_owned(), false)].into();
        hub
    };
    let is_held = |hub: &Hub| {
        let plan = hub.plan();
        let is_held = match &plan.hold {
            Some(FleetHold::Hidden(reason)) => reason.contains("`team-b`"),
            _ => false,
        };
        let changes = plan.revisions.len() + plan.assignments.len() + plan.released.len();
        assert_eq!(is_held, changes == 0 && !plan.is_finished, "{plan:?}");
        is_held
    };
    assert!(!is_held(&hub(None)), "it selects nothing there");
    assert!(is_held(&hub(Some("edge"))), "it may select clusters there");
    assert!(!is_held(&hub(Some("other"))));
    let mut own = hub(None);
    own.hidden = [("team-b".to_owned(), false), ("ns".to_owned(), false)].into();
    assert!(own.plan().hold.is_some(), "it is there itself");
    let mut deselected = hub(None);
    let object = object("z", "1:Synced", false);
    deselected.objects.insert(elsewhere, object);
    assert!(is_held(&deselected), "a cluster there has its content");
    for (kind, expected) in [(None, false), (Some("other"), true)] {
        let mut deleted = hub(kind);
        deleted.fleet.metadata.deletion_timestamp = Some(Time(now()));
        deleted.objects.clear();
        let plan = deleted.plan();
        let is_held = plan.hold.is_some();
        assert_eq!((is_held, plan.is_finished), (expected, !expected));
    }
}

#[test]
fn only_a_trusted_namespace_selects_elsewhere_and_installs() {
    let selects = |hub: &mut Hub| {
        hub.fleet.spec.namespace_selector = Some(LabelSelector::default());
    };
    let installs = |hub: &mut Hub| {
        let install = json!({"enabled": true, "controllerImage": "c", "syncerImage": "s"});
        hub.fleet.spec.install = serde_json::from_value(install).unwrap();
    };
    let disabled = |hub: &mut Hub| {
        let install = json!({"controllerImage": "c", "syncerImage": "s"});
        hub.fleet.spec.install = serde_json::from_value(install).unwrap();
    };
    let deleted = |hub: &mut Hub| {
        selects(hub);
        hub.fleet.metadata.deletion_timestamp = Some(Time(now()));
    };
    let nothing = |_: &mut Hub| {};
    for (case, change, field) in [
        ("neither", &nothing as &dyn Fn(&mut Hub), None),
        ("a selector", &selects, Some("`spec.namespaceSelector`")),
        ("an installation", &installs, Some("`spec.install`")),
        ("one that is disabled", &disabled, None),
        ("it is removed", &deleted, None),
    ] {
        for is_trusted in [false, true] {
            let mut hub = hub(found(B), &[(1, A, "r")], "a=1:Synced -b=1:Synced");
            hub.namespaces = [("ns".to_owned(), BTreeMap::new())].into();
            let trusted = if is_trusted { "ns" } else { "globalps-system" };
            hub.trust = Trust::new(&[trusted.to_owned()]);
            change(&mut hub);
            let plan = hub.plan();
            let changes = plan.revisions.len() + plan.assignments.len() + plan.released.len();
            let Some(field) = field.filter(|_| !is_trusted) else {
                assert!(plan.hold.is_none() && changes > 0, "{case}: {plan:?}");
                continue;
            };
            let Some(FleetHold::NotTrusted(reason)) = plan.hold else {
                panic!("{case}: {plan:?}");
            };
            assert!(reason.contains(field), "{case}: {reason}");
            let command = "kubectl globalps fleet install --trusted-namespaces globalps-system,ns";
            assert!(reason.contains(command), "{case}: {reason}");
            assert_eq!(changes, 0, "{case}");
        }
    }
}

/// The `Cluster` or the Secret was deleted and created again.
#[test]
fn a_cluster_with_a_new_owner_begins_with_a_new_object() {
    let mut hub = hub(
        found(A),
        &[(1, A, "r")],
        "a=1:Synced b=1:Synced -c=1:Synced",
    );
    let owner = |uid: &str| {
        let uid = uid.to_owned();
        Some(vec![OwnerReference {
            uid,
            ..OwnerReference::default()
        }])
    };
    for name in ["a", "b", "c"] {
        let object = hub.objects.get_mut(&key(name)).unwrap();
        object.metadata.owner_references = owner("old");
        let view = hub.clusters.get_mut(&key(name)).unwrap();
        view.owners = vec!["new".to_owned()];
    }
    // A Secret with the name of the `Cluster` was there before.
    let view = hub.clusters.get_mut(&key("b")).unwrap();
    view.owners.push("old".to_owned());
    assert_eq!(hub.line(), "-a -c");
    hub.objects.remove(&key("a"));
    hub.objects.remove(&key("c"));
    assert_eq!(hub.line(), "a=0");
}

#[test]
fn the_older_of_two_fleets_writes_their_common_target() {
    let mut hub = hub(found(A), &[(1, A, "p")], "a=1:Synced b=0");
    hub.taken.insert(key("b"), "ns/older".to_owned());
    let plan = hub.plan();
    assert_eq!(plan.assignments, []);
    assert_eq!(plan.obstacles[&key("b")].0, Reason::TargetTaken);
}

/// New images are rolled out and rolled back like new credentials.
#[test]
fn globalps_itself_is_part_of_a_revision() {
    let images = |tag: &str| {
        Some(Arc::new(Installation {
            controller_image: format!("c:{tag}"),
            syncer_image: format!("s:{tag}"),
            pull_secret: None,
        }))
    };
    let mut hub = hub(
        Source::Found(data(A)),
        &[(1, A, "pr")],
        "a=1:Synced b=1:Synced",
    );
    assert_eq!(hub.line(), "", "no installation requested");
    hub.install = Ok(images("1"));
    let plan = hub.plan();
    assert_eq!(plan.revisions[0].number, 2);
    assert_eq!(plan.revisions[0].install, images("1"));
    hub.revisions.extend(plan.revisions);
    assert_eq!(hub.line(), "a=2", "the canary");

    hub.revisions[1].rejected = Some("it failed".to_owned());
    hub.fleet.spec.rollout.on_failure = OnFailure::Rollback;
    let plan = hub.plan();
    assert_eq!(plan.revisions[0].number, 3);
    assert_eq!(plan.revisions[0].install, None, "the previous installation");
    hub.install = Ok(images("2"));
    assert_eq!(
        hub.plan().revisions[0].install,
        images("2"),
        "a new attempt"
    );

    hub.install = Err("no pull secret".to_owned());
    let plan = hub.plan();
    assert_eq!(
        plan.hold,
        Some(FleetHold::Install("no pull secret".to_owned()))
    );
    assert!(plan.assignments.is_empty() && plan.revisions.is_empty());
}

/// Writes that the API server rejects, at the time of the plan.
fn refuse(hub: &mut Hub, object: &str) {
    let what = (Reason::Rejected, "no".to_owned());
    hub.refused
        .failed(object, what, Response::Rejected, Timestamp::UNIX_EPOCH, 1.0);
}

#[test]
fn a_cluster_whose_object_cannot_be_written_takes_no_slot() {
    let clusters = "a=1:Synced b=1:Synced";
    let revisions = [(1, A, "pr"), (2, B, "")];
    let mut hub = hub(found(B), &revisions, clusters);
    let assigned = |hub: &Hub| -> Vec<String> {
        let plan = hub.plan();
        plan.assignments
            .iter()
            .map(|(key, _)| key.1.clone())
            .collect()
    };
    assert_eq!(assigned(&hub), ["a"]);
    let object = object_title(&key("a"), &hub.fleet);
    refuse(&mut hub, &object);
    assert_eq!(assigned(&hub), ["b"]);
}

#[test]
fn an_unwritable_revision_does_not_stop_the_existing_one() {
    let mut hub = hub(found(B), &[(1, A, "pr")], "a=1:Synced b c=0:Pending");
    assert!(hub.plan().assignments.is_empty(), "the revision first");
    let revision = revision_title(&hub.fleet, 2);
    refuse(&mut hub, &revision);
    let plan = hub.plan();
    let written: Vec<i64> = plan.revisions.iter().map(|it| it.number).collect();
    assert!(written.contains(&2), "{written:?}");
    assert_eq!(plan.revision.number, 1);
    assert!(!plan.assignments.is_empty());
}

/// The fleet has no such revision.
const UNKNOWN: RevisionId = RevisionId::from_random(0xbad);

/// What other clients write into the objects of clusters that have revision 2.
#[test]
fn what_other_clients_write_is_undone_and_halts_nobody() {
    type Change = fn(&mut ClusterPullSecret);
    let revisions = [(1, A, "r"), (2, B, "pr")];
    let hand_made = |change: fn(&mut ClusterPullSecret)| {
        let mut hub = hub(found(B), &revisions, "a=2:Synced b=2:Synced");
        change(hub.objects.get_mut(&key("a")).unwrap());
        hub
    };
    let status = |object: &mut ClusterPullSecret, observed: i64| {
        let status = object.status.as_mut().unwrap();
        (status.observed_generation, status.phase) = (observed, ClusterPhase::Pending);
    };
    let cases: [(&str, Change); 6] = [
        ("99", |it| it.spec.revision = 99),
        ("the largest number", |it| it.spec.revision = MAX_REVISION),
        ("an unknown id", |it| it.spec.revision_id = UNKNOWN),
        ("a removal", |it| it.spec.remove = true),
        ("a revocation", |it| it.spec.revoked = true),
        ("nothing", |it| {
            (it.spec.revision, it.spec.revision_id) = (0, RevisionId::UNKNOWN);
        }),
    ];
    for (case, change) in cases {
        let mut hub = hand_made(change);
        let object = hub.objects.get_mut(&key("a")).unwrap();
        object.metadata.generation = Some(3);
        let plan = hub.plan();
        assert_eq!(plan.revision.number, 2, "{case}");
        assert!(
            plan.revisions.is_empty(),
            "{case}: nobody's number is raised to"
        );
        assert!(
            !plan.members.iter().any(|(_, it)| it.has_failed()),
            "{case}: nothing halts"
        );
        // Its session has read that, and the cluster has what it had.
        let object = hub.objects.get_mut(&key("a")).unwrap();
        status(object, 3);
        assert_eq!(hub.line(), "a=2", "{case}: seen by a hub that starts");
        hub.fleet.spec.rollout.paused = true;
        assert_eq!(
            hub.line(),
            "a=2",
            "{case}: also while the rollout is paused"
        );
    }
    let mut hub = hub(found(B), &revisions, "a=2:Synced b=2:Synced");
    let object = hub.objects.get_mut(&key("a")).unwrap();
    object.metadata.generation = Some(3);
    object.spec.assigned_at = Some(Time(NOW));
    assert_eq!(
        hub.line(),
        "",
        "a long time ago: it has it, so nothing is revoked"
    );
    hub.drift.changed.insert(key("a"));
    assert_eq!(
        hub.line(),
        "a=2",
        "what the hub had written is written again"
    );
    let spec = hub.plan().assignments[0].1.clone();
    assert_eq!(spec.assigned_at, Some(Time(now())), "with a new deadline");
    hub.source = Source::Absent;
    assert_eq!(
        hub.line(),
        "NoValidContent a=2",
        "also while the fleet is held"
    );
    hub.fleet.spec.cluster_selector = serde_json::from_value(json!({
        "matchExpressions": [{"key": "a", "operator": "x"}],
    }))
    .ok();
    assert!(hub.line().ends_with("a=2"), "or its selector is invalid");
}

#[test]
fn a_foreign_spec_change_does_not_extend_a_deadline() {
    let revisions = [(1, A, "r"), (2, B, "p")];
    for (clusters, is_extended) in [
        ("a=2:Syncing b=1:Synced", false),
        ("a=2:Synced b=2:Syncing", true),
    ] {
        let mut hub = hub(found(B), &revisions, clusters);
        let before = hub.objects[&key("a")].spec.assigned_at.clone();
        hub.drift.changed.insert(key("a"));
        let plan = hub.plan();
        let (_, spec) = plan
            .assignments
            .iter()
            .find(|(it, _)| *it == key("a"))
            .unwrap();
        assert_eq!(spec.assigned_at != before, is_extended, "{clusters}");
    }
}

#[test]
fn an_object_deleted_out_of_band_is_written_as_it_was() {
    let revisions = [(1, A, "r"), (2, B, "p")];
    let mut hub = hub(found(B), &revisions, "a=2 b=1:Synced c=1:Synced");
    let object = hub.objects.remove(&key("a")).unwrap();
    hub.drift.deleted.insert(key("a"), object.spec.clone());
    assert_eq!(hub.line(), "a=2", "it keeps its slot");
    let mut again = object;
    again.status = None;
    again.metadata.generation = Some(1);
    hub.objects.insert(key("a"), again);
    hub.drift.deleted.clear();
    hub.drift.recreated.insert(key("a"));
    assert_eq!(hub.line(), "", "until it has reported");
    hub.drift.recreated.clear();
    assert_eq!(hub.line(), "b=2", "otherwise it would be a new cluster");
}

#[test]
fn a_removal_whose_object_another_client_deleted_is_not_done() {
    let revisions = [(1, A, "r")];
    let mut hub = hub(found(A), &revisions, "-a=R b=1:Synced");
    let object = hub.objects.remove(&key("a")).unwrap();
    hub.drift.deleted.insert(key("a"), object.spec.clone());
    assert_eq!(hub.line(), "a=R");
    hub.clusters.get_mut(&key("a")).unwrap().is_deleting = true;
    assert_eq!(hub.line(), "", "the cluster goes with what it has");
    hub.clusters.get_mut(&key("a")).unwrap().is_deleting = false;
    hub.fleet.spec.deletion_policy = DeletionPolicy::Orphan;
    assert_eq!(hub.line(), "", "it stays there unmanaged");
    hub.fleet.spec.deletion_policy = DeletionPolicy::Remove;
    hub.fleet.metadata.deletion_timestamp = Some(Time(now()));
    hub.objects.clear();
    let plan = hub.plan();
    assert!(!plan.is_finished);
    let written: Vec<_> = plan.assignments.iter().map(|(key, _)| key).collect();
    assert_eq!(written, [&key("a")]);
}

/// The hub knows that its own content is there, but not which: its object was deleted while no hub ran.
#[test]
fn a_cluster_with_unknown_content_is_not_new_and_gives_it_back() {
    let mut hub = hub(found(A), &[(1, A, "r")], "b=1:Synced -a=0");
    let mut unknown = object("a", "0:Pending", false);
    let status = unknown.status.get_or_insert_default();
    status.set_in_force(Revision::new(1, RevisionId::UNKNOWN));
    hub.objects.insert(key("a"), unknown);
    assert_eq!(hub.line(), "a=R", "it is not selected");
    let view = hub.clusters.get_mut(&key("a")).unwrap();
    view.obstacle = Some((Reason::IsHub, "it is the hub".to_owned()));
    assert_eq!(hub.line(), "-a", "the hub wrote nothing there");
    hub.clusters.get_mut(&key("a")).unwrap().obstacle = None;
    hub.fleet.metadata.deletion_timestamp = Some(Time(now()));
    hub.objects.remove(&key("b"));
    assert_eq!(hub.line(), "a=R");
}

#[test]
fn content_replaced_out_of_band_is_no_goal_nor_is_older_content() {
    let revisions = [(1, A, "r"), (2, B, "r"), (3, A, "p")];
    let mut hub = hub(found(A), &revisions, "a=3:Failed b=2:Synced c");
    hub.fleet.spec.rollout.on_failure = OnFailure::Rollback;
    let unknown = Revision::new(2, RevisionId::UNKNOWN);
    hub.revisions[1] = FleetRevision::new(unknown, Arc::new(Data(None)), None);
    let plan = hub.plan();
    assert!(
        plan.revisions.iter().all(|it| it.rejected.is_none()),
        "{plan:?}"
    );
    let unknown = Revision::new(3, RevisionId::UNKNOWN);
    hub.revisions[2] = FleetRevision::new(unknown, Arc::new(Data(None)), None);
    let title = revision_title(&hub.fleet, 4);
    refuse(&mut hub, &title);
    let plan = hub.plan();
    let assigned = plan
        .assignments
        .iter()
        .filter(|(_, spec)| spec.revision > 0);
    assert_eq!(assigned.count(), 0, "while the next one can't be written");
}

#[test]
fn of_too_many_clusters_the_oldest_get_objects_others_are_named() {
    let mut hub = hub(found("A"), &[(1, "A", "pr")], "a=1:Synced b c d -e");
    let at = |second| Timestamp::from_second(second).ok();
    for (name, created) in [("b", at(30)), ("c", at(10)), ("d", at(20))] {
        hub.clusters.get_mut(&key(name)).unwrap().created = created;
    }
    for (room, crowded) in [
        (3, vec![]),
        (2, vec!["b"]),
        (1, vec!["b", "d"]),
        (0, vec!["b", "c", "d"]),
    ] {
        hub.room = [("ns".to_owned(), room)].into();
        let plan = hub.plan();
        let named: Vec<&str> = plan.obstacles.keys().map(|key| key.1.as_str()).collect();
        assert_eq!(named, crowded, "{room}");
        assert!(
            plan.obstacles
                .values()
                .all(|it| it.0 == Reason::TooManyClusters)
        );
        let created = plan.assignments.iter().map(|(key, _)| key);
        assert_eq!(
            created
                .filter(|key| !hub.objects.contains_key(*key))
                .count(),
            room
        );
    }
    hub.room = [("other".to_owned(), 0)].into();
    assert!(hub.plan().obstacles.is_empty());
}

#[test]
fn a_fleet_without_kept_revisions_can_only_be_deleted() {
    let mut hub = hub(found("B"), &[(1, "A", "pr")], "a=1:Synced b");
    hub.left_out = Some("why".to_owned());
    let held = hub.plan();
    assert_eq!(held.hold, Some(FleetHold::LeftOut("why".to_owned())));
    assert!(held.revisions.is_empty() && held.assignments.is_empty());
    hub.fleet.metadata.deletion_timestamp = Some(Time(NOW));
    let removing = hub.plan();
    assert!(removing.assignments.iter().any(|(_, spec)| spec.remove));
}
