//! What Prometheus is told. No name of a node or registry: the number of series does not grow with the cluster.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use globalps_core::api::{GlobalPullSecretStatus, NodePullSecret, Phase, condition};
use jiff::{SignedDuration, Timestamp};

use crate::leader::fencing::Term;
use crate::nodes::members::{NodeView, is_selected};
use crate::nodes::plan::Observed;

/// Upper bounds of the histogram of rollouts, in seconds.
const BUCKETS: [u32; 12] = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200];
/// A kubelet that is restarted may be not ready for a moment.
const NOT_READY_GRACE: SignedDuration = SignedDuration::from_mins(1);

const PHASES: [Phase; 10] = [
    Phase::Pending,
    Phase::Syncing,
    Phase::Synced,
    Phase::RolledBack,
    Phase::Failed,
    Phase::Restoring,
    Phase::Restored,
    Phase::ForeignOwner,
    Phase::Excluded,
    Phase::Unreachable,
];
const CONDITIONS: [&str; 5] = [
    condition::READY,
    condition::PROGRESSING,
    condition::DEGRADED,
    condition::ADDITIONAL_VALID,
    condition::ORIGINAL_VALID,
];

#[derive(Default)]
pub(crate) struct Metrics(Mutex<Figures>);

#[derive(Default)]
struct Figures {
    /// `None`: stands by.
    term: Option<Arc<Term>>,
    /// Only who leads knows the fleet.
    fleet: Option<Fleet>,
    reconciles: u64,
    errors: u64,
    /// By verb and code; `None`: no answer.
    requests: BTreeMap<(&'static str, Option<u16>), u64>,
    rollouts: Histogram,
    restarts: Restarts,
}

#[derive(Debug, PartialEq, Eq)]
struct Fleet {
    revision: i64,
    /// In the order of [`PHASES`].
    nodes: [u32; PHASES.len()],
    /// Status of each of [`CONDITIONS`]; empty: not written yet.
    conditions: [String; CONDITIONS.len()],
}

#[derive(Default)]
struct Histogram {
    /// Those up to each bound, not cumulative.
    counts: [u64; BUCKETS.len()],
    more: u64,
    sum: f64,
}

impl Histogram {
    fn observe(&mut self, value: f64) {
        let bucket = BUCKETS.iter().position(|bound| value <= f64::from(*bound));
        match bucket {
            Some(at) => self.counts[at] += 1,
            None => self.more += 1,
        }
        self.sum += value;
    }
}

/// Each node counts its own, and may leave with its count: the sum over the nodes that are there could fall. What grew is
/// counted up instead.
#[derive(Default)]
struct Restarts {
    total: u64,
    seen: BTreeMap<String, u64>,
}

impl Restarts {
    fn look(&mut self, nodes: &BTreeMap<String, Box<NodePullSecret>>) {
        self.seen.retain(|name, _| nodes.contains_key(name));
        for (name, object) in nodes {
            let restarts = object.status.as_ref().map_or(0, |status| status.restarts);
            let restarts = u64::try_from(restarts).unwrap_or_default();
            let before = match self.seen.get_mut(name) {
                Some(seen) => std::mem::replace(seen, restarts),
                None => self.seen.insert(name.clone(), restarts).unwrap_or_default(),
            };
            // A node that was restored counts anew.
            let more = restarts.checked_sub(before).unwrap_or(restarts);
            self.total = self.total.saturating_add(more);
        }
    }
}

impl Metrics {
    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn leads(&self, term: Option<&Arc<Term>>) {
        let mut figures = self.figures();
        figures.term = term.cloned();
        figures.fleet = None;
    }

    pub(crate) fn reconciled(&self, done: bool) {
        let mut figures = self.figures();
        figures.reconciles += 1;
        figures.errors += u64::from(!done);
    }

    /// A request that ended; without a code: that was given up or got no answer.
    pub(crate) fn asked(&self, verb: &'static str, code: Option<u16>) {
        *self.figures().requests.entry((verb, code)).or_default() += 1;
    }

    /// The fleet as it is and as the status tells of it.
    pub(crate) fn fleet(
        &self,
        observed: &Observed,
        before: Option<&GlobalPullSecretStatus>,
        after: &GlobalPullSecretStatus,
    ) {
        let mut figures = self.figures();
        figures.fleet = Some(Fleet {
            revision: after.revision,
            nodes: nodes_by_phase(observed, after.revision),
            conditions: CONDITIONS.map(|type_| {
                let found = find(after, type_);
                found.map_or_else(String::new, |found| found.0.to_owned())
            }),
        });
        figures.restarts.look(&observed.node_pull_secrets);
        if let Some(seconds) = rollout_seconds(before, after, observed.now) {
            figures.rollouts.observe(seconds);
        }
    }

    /// In Prometheus' text format.
    pub(crate) fn page(&self) -> String {
        let figures = self.figures();
        let mut page = Page::default();
        let version = env!("CARGO_PKG_VERSION");
        page.family("globalps_build_info", "gauge", "The program's version.");
        page.sample("globalps_build_info", &[("version", version)], 1);
        page.family(
            "globalps_leader",
            "gauge",
            "1 while this controller leads and may write.",
        );
        let leads = figures.term.as_ref().is_some_and(|term| term.is_open());
        page.sample("globalps_leader", &[], u8::from(leads));
        if let Some(fleet) = &figures.fleet {
            fleet.write(&mut page);
        }
        figures.rollouts.write(&mut page);
        for (name, help, value) in [
            (
                "globalps_kubelet_restarts_total",
                "Restarts of kubelets for globalps.",
                figures.restarts.total,
            ),
            (
                "globalps_reconciles_total",
                "Rounds of the controller's loop.",
                figures.reconciles,
            ),
            (
                "globalps_reconcile_errors_total",
                "Rounds that ended with an error and are tried again.",
                figures.errors,
            ),
        ] {
            page.family(name, "counter", help);
            page.sample(name, &[], value);
        }
        let requests = "globalps_api_requests_total";
        page.family(
            requests,
            "counter",
            "Requests to the API server, by verb and HTTP status; `error`: no answer.",
        );
        for ((verb, code), count) in &figures.requests {
            let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
            page.sample(requests, &[("verb", verb), ("code", &code)], count);
        }
        page.0
    }
}

impl Fleet {
    fn write(&self, page: &mut Page) {
        page.family(
            "globalps_revision",
            "gauge",
            "Revision that is rolled out; 0: none.",
        );
        page.sample("globalps_revision", &[], self.revision);
        page.family("globalps_nodes", "gauge", "Nodes by phase.");
        for (phase, count) in PHASES.iter().zip(self.nodes) {
            page.sample("globalps_nodes", &[("phase", &phase.to_string())], count);
        }
        page.family(
            "globalps_condition",
            "gauge",
            "Conditions of the GlobalPullSecret: 1 for the status that each one has.",
        );
        for (type_, actual) in CONDITIONS.iter().zip(&self.conditions) {
            for status in ["True", "False", "Unknown"] {
                let labels = [("type", *type_), ("status", status)];
                page.sample("globalps_condition", &labels, u8::from(actual == status));
            }
        }
    }
}

impl Histogram {
    fn write(&self, page: &mut Page) {
        const NAME: &str = "globalps_rollout_duration_seconds";
        page.family(
            NAME,
            "histogram",
            "From the first grant of a rollout until every node had it.",
        );
        let bucket = format!("{NAME}_bucket");
        let mut count = 0;
        for (bound, more) in BUCKETS.iter().zip(self.counts) {
            count += more;
            page.sample(&bucket, &[("le", &bound.to_string())], count);
        }
        count += self.more;
        page.sample(&bucket, &[("le", "+Inf")], count);
        page.sample(&format!("{NAME}_sum"), &[], self.sum);
        page.sample(&format!("{NAME}_count"), &[], count);
    }
}

/// Labels' values are words of ours: none needs quoting.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{value}\""))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

/// Status and reason, and since when.
fn find<'a>(
    status: &'a GlobalPullSecretStatus,
    type_: &str,
) -> Option<(&'a str, &'a str, Timestamp)> {
    let found = status
        .conditions
        .iter()
        .find(|found| found.type_ == type_)?;
    Some((&found.status, &found.reason, found.last_transition_time.0))
}

/// How long the rollout took that is complete with this status. From the objects alone, so that it is known to a controller
/// too that took over in the middle.
fn rollout_seconds(
    before: Option<&GlobalPullSecretStatus>,
    after: &GlobalPullSecretStatus,
    now: Timestamp,
) -> Option<f64> {
    let (was, _, since) = find(before?, condition::PROGRESSING)?;
    let (is, reason, _) = find(after, condition::PROGRESSING)?;
    let complete = was == "True" && is == "False" && reason == "Complete";
    complete.then(|| now.duration_since(since).as_secs_f64().max(0.0))
}

fn nodes_by_phase(observed: &Observed, revision: i64) -> [u32; PHASES.len()] {
    let mut counts = [0; PHASES.len()];
    for node in observed.nodes.values() {
        let Some(phase) = phase(observed, node, revision) else {
            continue;
        };
        if let Some(at) = PHASES.iter().position(|known| *known == phase) {
            counts[at] += 1;
        }
    }
    counts
}

/// `None`: no node of ours, and never was.
fn phase(observed: &Observed, node: &NodeView, revision: i64) -> Option<Phase> {
    let object = observed.node_pull_secrets.get(&node.name);
    let selected = is_selected(&observed.spec, node);
    if !selected && object.is_none() {
        let linux = node.labels.get("kubernetes.io/os");
        return linux
            .is_some_and(|os| os == "linux")
            .then_some(Phase::Excluded);
    }
    if let Err(since) = node.ready
        && observed.now.duration_since(since) > NOT_READY_GRACE
    {
        return Some(Phase::Unreachable);
    }
    let object = object?;
    let status = object.status.as_ref();
    let reported = status.map_or(Phase::Pending, |status| status.phase);
    let taken_up = status.map_or(0, |status| status.observed_generation)
        >= object.metadata.generation.unwrap_or_default();
    Some(if object.spec.restore {
        if taken_up { reported } else { Phase::Restoring }
    } else if !selected {
        Phase::Excluded
    } else if object.spec.revision == 0 {
        Phase::Pending
    } else if !taken_up {
        Phase::Syncing
    } else if reported == Phase::Synced && object.spec.revision < revision {
        // It waits for the newer one.
        Phase::Pending
    } else {
        reported
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use globalps_core::api::NodePullSecretSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;
    use crate::content::resolve::Source;
    use crate::nodes::plan::tests::observed;

    fn status(conditions: &[(&str, &str, &str, i64)]) -> GlobalPullSecretStatus {
        let conditions = conditions.iter().map(|(type_, status, reason, since)| {
            let since = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(*since);
            Condition {
                type_: (*type_).to_owned(),
                status: (*status).to_owned(),
                reason: (*reason).to_owned(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: Time(since),
            }
        });
        GlobalPullSecretStatus {
            revision: 5,
            conditions: conditions.collect(),
            ..GlobalPullSecretStatus::default()
        }
    }

    /// The page of a leader with everything on it.
    pub(crate) fn page() -> String {
        let metrics = Metrics::default();
        let term = Arc::new(Term::default());
        term.renewed(crate::telemetry::clock::now());
        metrics.leads(Some(&term));
        metrics.reconciled(true);
        metrics.reconciled(false);
        metrics.asked("patch", Some(200));
        metrics.asked("patch", None);
        let observed = observed(Source::Absent, None, "a=5:Synced b=5:Failed c");
        let before = status(&[("Progressing", "True", "RollingOut", -3)]);
        let after = status(&[
            ("Progressing", "False", "Complete", 0),
            ("Ready", "True", "Synced", 0),
        ]);
        metrics.fleet(&observed, Some(&before), &after);
        metrics.page()
    }

    #[test]
    fn the_page_is_prometheus_text_and_says_what_is() {
        let page = page();
        let mut family = "";
        for line in page.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                family = declared.split(' ').next().unwrap_or_default();
                let counter = declared.ends_with(" counter");
                assert_eq!(counter, family.ends_with("_total"), "{declared}");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} is not of {family}");
                let (_, value) = line.rsplit_once(' ').unwrap_or_default();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        for line in [
            concat!(
                "globalps_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
            "globalps_leader 1",
            "globalps_revision 5",
            "globalps_nodes{phase=\"Synced\"} 1",
            "globalps_nodes{phase=\"Failed\"} 1",
            "globalps_nodes{phase=\"Excluded\"} 0",
            "globalps_condition{type=\"Ready\",status=\"True\"} 1",
            "globalps_condition{type=\"Ready\",status=\"False\"} 0",
            "globalps_condition{type=\"Degraded\",status=\"True\"} 0",
            "globalps_rollout_duration_seconds_bucket{le=\"2\"} 0",
            "globalps_rollout_duration_seconds_bucket{le=\"5\"} 1",
            "globalps_rollout_duration_seconds_bucket{le=\"+Inf\"} 1",
            "globalps_rollout_duration_seconds_sum 3",
            "globalps_rollout_duration_seconds_count 1",
            "globalps_reconciles_total 2",
            "globalps_reconcile_errors_total 1",
            "globalps_api_requests_total{verb=\"patch\",code=\"200\"} 1",
            "globalps_api_requests_total{verb=\"patch\",code=\"error\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
    }

    #[test]
    fn who_stands_by_says_nothing_of_the_fleet() {
        let metrics = Metrics::default();
        let page = metrics.page();
        assert!(page.contains("globalps_leader 0\n"), "{page}");
        assert!(!page.contains("globalps_nodes"), "{page}");
        let term = Arc::new(Term::default());
        metrics.leads(Some(&term));
        assert!(
            metrics.page().contains("globalps_leader 0\n"),
            "a term that has run out does not lead"
        );
    }

    #[test]
    fn every_node_is_counted_in_one_phase() {
        for (node, expected) in [
            ("a", "-"),
            ("a=0", "Pending"),
            ("a=5", "Syncing"),
            ("a=5:Synced", "Synced"),
            ("a=4:Synced", "Pending"),
            ("a=5:RolledBack", "RolledBack"),
            ("a=5:ForeignOwner", "ForeignOwner"),
            ("a=R", "Restoring"),
            ("a=R:Restored", "Restored"),
            ("-a", "Excluded"),
            ("-a=5:Synced", "Excluded"),
            ("-a=R", "Restoring"),
            ("!a=5:Synced", "Unreachable"),
        ] {
            let mut observed = observed(Source::Absent, None, node);
            // The table's nodes are not ready for a minute.
            observed.now += SignedDuration::from_secs(1);
            let counts = nodes_by_phase(&observed, 5);
            let found: Vec<String> = PHASES
                .iter()
                .zip(counts)
                .filter(|(_, count)| *count > 0)
                .map(|(phase, _)| phase.to_string())
                .collect();
            let found = if found.is_empty() {
                "-".to_owned()
            } else {
                found.join(" ")
            };
            assert_eq!(found, expected, "{node}");
        }
    }

    #[test]
    fn restarts_are_counted_up_and_a_node_that_leaves_takes_none_away() {
        let mut restarts = Restarts::default();
        for (sentence, nodes, expected) in [
            ("what was before counts", &[("a", 2), ("b", 1)][..], 3),
            ("nothing new", &[("a", 2), ("b", 1)], 3),
            ("one more", &[("a", 3), ("b", 1)], 4),
            ("a node leaves", &[("a", 3)], 4),
            ("one joins", &[("a", 3), ("c", 1)], 5),
            ("one counts anew", &[("a", 1), ("c", 1)], 6),
        ] {
            let nodes = nodes
                .iter()
                .map(|(name, count)| {
                    let mut object = NodePullSecret::new(name, NodePullSecretSpec::default());
                    object.status.get_or_insert_default().restarts = *count;
                    ((*name).to_owned(), Box::new(object))
                })
                .collect();
            restarts.look(&nodes);
            assert_eq!(restarts.total, expected, "{sentence}");
        }
    }

    #[test]
    fn a_rollout_is_timed_when_it_is_complete_and_only_then() {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(100);
        let rolling = status(&[("Progressing", "True", "RollingOut", 90)]);
        for (sentence, after, expected) in [
            ("complete", ("False", "Complete"), Some(10.0)),
            ("goes on", ("True", "RollingOut"), None),
            ("halted", ("False", "Halted"), None),
            ("paused", ("False", "Paused"), None),
            ("gone", ("False", "NothingToDo"), None),
        ] {
            let after = status(&[("Progressing", after.0, after.1, 100)]);
            let seconds = rollout_seconds(Some(&rolling), &after, now);
            assert_eq!(seconds, expected, "{sentence}");
            assert_eq!(
                rollout_seconds(Some(&after), &after, now),
                None,
                "{sentence}"
            );
        }
    }
}
