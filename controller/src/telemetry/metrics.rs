//! The Prometheus metrics. No labels for nodes or registries: the number of series does not grow with the cluster.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use globalps_core::api::{Counts, NodePullSecret, Phase, condition};

/// Upper bounds of the rollout histogram, in seconds.
const BUCKETS: [u32; 12] = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200];

pub(crate) const PHASES: [Phase; 13] = Phase::ALL;
pub(crate) const CONDITIONS: [&str; 12] = [
    condition::READY,
    condition::PROGRESSING,
    condition::DEGRADED,
    condition::ADDITIONAL_VALID,
    condition::ORIGINAL_VALID,
    condition::SYNCERS_HEALTHY,
    condition::CREDENTIALS_EXPIRING,
    condition::NAMESPACES_SYNCED,
    condition::OPERATORS_SYNCED,
    condition::PULL_SECRET_SYNCED,
    condition::CREDENTIALS_REJECTED,
    condition::OLD_FORGOTTEN,
];

/// Whether the leader may write now.
pub(crate) type MayWrite = Box<dyn Fn() -> bool + Send>;

#[derive(Default)]
pub(crate) struct Metrics(Mutex<Figures>);

#[derive(Default)]
struct Figures {
    /// `None`: standby.
    may_write: Option<MayWrite>,
    /// Known only to the leader.
    fleet: Option<FleetGauges>,
    /// Known only to the leading hub.
    clusters: Option<Counts>,
    reconciles: u64,
    errors: u64,
    /// By verb and code; `None`: no response.
    requests: BTreeMap<(&'static str, Option<u16>), u64>,
    rollouts: Histogram,
    restarts: Restarts,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FleetGauges {
    pub(crate) revision: i64,
    /// In the order of [`PHASES`].
    pub(crate) nodes: [u32; PHASES.len()],
    /// Status of each of [`CONDITIONS`]; empty: not written yet.
    pub(crate) conditions: [String; CONDITIONS.len()],
    /// `Degraded` is about nothing but a pull secret whose last valid content stays in force.
    pub(crate) degraded_by_content: bool,
    /// Nodes whose credentials file another program keeps changing.
    pub(crate) contested: u32,
    /// Unix time of the earliest expiry; `None`: nothing expires.
    pub(crate) credentials_expire: Option<i64>,
    /// Delivery into namespaces, and to operators.
    pub(crate) namespaces: DeliveryCounts,
    pub(crate) operators: DeliveryCounts,
}

/// Namespaces or operators by state; all zero if they get nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveryCounts {
    pub(crate) synced: u32,
    pub(crate) waiting: u32,
    pub(crate) failed: u32,
}

#[derive(Default)]
struct Histogram {
    /// Observations per bucket, not cumulative.
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

/// Each node has its own counter, which disappears with the node, so the sum over the nodes can decrease. This counter adds up
/// the increases instead.
#[derive(Default)]
struct Restarts {
    total: u64,
    seen: BTreeMap<String, u64>,
}

impl Restarts {
    fn add(&mut self, nodes: &BTreeMap<String, Box<NodePullSecret>>) {
        self.seen.retain(|name, _| nodes.contains_key(name));
        for (name, object) in nodes {
            let restarts = object.status.as_ref().map_or(0, |status| status.restarts);
            let restarts = u64::try_from(restarts).unwrap_or_default();
            let before = match self.seen.get_mut(name) {
                Some(seen) => std::mem::replace(seen, restarts),
                None => self.seen.insert(name.clone(), restarts).unwrap_or_default(),
            };
            // After a restore, a node's counter starts at zero.
            let more = restarts.checked_sub(before).unwrap_or(restarts);
            self.total = self.total.saturating_add(more);
        }
    }
}

impl Metrics {
    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: standby.
    pub(crate) fn set_leader(&self, may_write: Option<MayWrite>) {
        let mut figures = self.figures();
        figures.may_write = may_write;
        figures.fleet = None;
        figures.clusters = None;
    }

    /// Clusters of all fleets.
    pub(crate) fn set_clusters(&self, counts: Counts) {
        self.figures().clusters = Some(counts);
    }

    pub(crate) fn reconciled(&self, done: bool) {
        let mut figures = self.figures();
        figures.reconciles += 1;
        figures.errors += u64::from(!done);
    }

    /// Counts a request; `None`: it was canceled or got no response.
    pub(crate) fn request_done(&self, verb: &'static str, code: Option<u16>) {
        *self.figures().requests.entry((verb, code)).or_default() += 1;
    }

    /// `rollout_seconds`: duration of a rollout that just completed.
    pub(crate) fn set_fleet(
        &self,
        fleet: FleetGauges,
        rollout_seconds: Option<f64>,
        node_pull_secrets: &BTreeMap<String, Box<NodePullSecret>>,
    ) {
        let mut figures = self.figures();
        figures.fleet = Some(fleet);
        figures.restarts.add(node_pull_secrets);
        if let Some(seconds) = rollout_seconds {
            figures.rollouts.observe(seconds);
        }
    }

    /// The metrics in Prometheus' text format.
    pub(crate) fn page(&self) -> String {
        let figures = self.figures();
        let mut page = MetricsPage::default();
        let version = env!("CARGO_PKG_VERSION");
        page.family("globalps_build_info", "gauge", "The program's version.");
        page.sample("globalps_build_info", &[("version", version)], 1);
        page.family(
            "globalps_leader",
            "gauge",
            "1 while this process is the leader and may write.",
        );
        let leads = figures
            .may_write
            .as_ref()
            .is_some_and(|may_write| may_write());
        page.sample("globalps_leader", &[], u8::from(leads));
        if let Some(fleet) = &figures.fleet {
            fleet.write(&mut page);
        }
        if let Some(counts) = figures.clusters {
            page.family(
                "globalps_clusters",
                "gauge",
                "Clusters selected by a FleetPullSecret, by state.",
            );
            for (state, count) in [
                ("synced", counts.synced),
                ("progressing", counts.progressing),
                ("failed", counts.failed),
                ("unreachable", counts.unreachable),
                ("waiting", waiting(counts)),
            ] {
                page.sample("globalps_clusters", &[("state", state)], count);
            }
        }
        figures.rollouts.write(&mut page);
        for (name, help, value) in [
            (
                "globalps_kubelet_restarts_total",
                "Kubelet restarts by globalps.",
                figures.restarts.total,
            ),
            (
                "globalps_reconciles_total",
                "Reconciles.",
                figures.reconciles,
            ),
            (
                "globalps_reconcile_errors_total",
                "Reconciles that failed and are retried.",
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
            "Requests to the API server, by verb and HTTP status; `error`: no response.",
        );
        for ((verb, code), count) in &figures.requests {
            let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
            page.sample(requests, &[("verb", verb), ("code", &code)], count);
        }
        page.0
    }
}

/// Nodes that wait for an assignment, or are blocked.
fn waiting(counts: Counts) -> u32 {
    let others = [
        counts.synced,
        counts.progressing,
        counts.failed,
        counts.unreachable,
    ];
    let others = others.into_iter().fold(0, u32::saturating_add);
    counts.total.saturating_sub(others)
}

impl FleetGauges {
    fn write(&self, page: &mut MetricsPage) {
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
            "Conditions of the GlobalPullSecret: 1 for the current status, 0 for others.",
        );
        for (type_, actual) in CONDITIONS.iter().zip(&self.conditions) {
            for status in ["True", "False", "Unknown"] {
                let labels = [("type", *type_), ("status", status)];
                page.sample("globalps_condition", &labels, u8::from(actual == status));
            }
        }
        page.family(
            "globalps_degraded_by_content",
            "gauge",
            "1 while the GlobalPullSecret is degraded by nothing but a pull secret whose last valid content stays in force.",
        );
        page.sample(
            "globalps_degraded_by_content",
            &[],
            u8::from(self.degraded_by_content),
        );
        page.family(
            "globalps_nodes_contested",
            "gauge",
            "Nodes whose credentials file another program keeps changing.",
        );
        page.sample("globalps_nodes_contested", &[], self.contested);
        if let Some(time) = self.credentials_expire {
            let name = "globalps_credentials_expiry_timestamp_seconds";
            page.family(
                name,
                "gauge",
                "Unix time at which the first of the credentials in force expires, if one contains such a time.",
            );
            page.sample(name, &[], time);
        }
        for (name, help, delivered) in [
            (
                "globalps_namespaces",
                "Namespaces selected for the pull secret, by state.",
                self.namespaces,
            ),
            (
                "globalps_operators",
                "Subscriptions to catalogs with pull secrets, by state.",
                self.operators,
            ),
        ] {
            page.family(name, "gauge", help);
            for (state, count) in [
                ("synced", delivered.synced),
                ("waiting", delivered.waiting),
                ("failed", delivered.failed),
            ] {
                page.sample(name, &[("state", state)], count);
            }
        }
    }
}

impl Histogram {
    fn write(&self, page: &mut MetricsPage) {
        const NAME: &str = "globalps_rollout_duration_seconds";
        page.family(
            NAME,
            "histogram",
            "Time from the first assignment of a rollout until all nodes are updated.",
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

/// Label values are constants of this program, so none needs escaping.
#[derive(Default)]
struct MetricsPage(String);

impl MetricsPage {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String never fails.
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

#[cfg(test)]
pub(crate) mod tests {
    use globalps_core::api::NodePullSecretSpec;

    use super::*;

    /// The page of a leader with every metric.
    pub(crate) fn page() -> String {
        let metrics = Metrics::default();
        metrics.set_leader(Some(Box::new(|| true)));
        metrics.reconciled(true);
        metrics.reconciled(false);
        metrics.request_done("patch", Some(200));
        metrics.request_done("patch", None);
        let conditions = CONDITIONS.map(|type_| {
            let status = match type_ {
                condition::READY => "True",
                condition::PROGRESSING => "False",
                _ => "",
            };
            status.to_owned()
        });
        let fleet = FleetGauges {
            revision: 5,
            nodes: PHASES.map(|phase| u32::from(matches!(phase, Phase::Synced | Phase::Failed))),
            conditions,
            degraded_by_content: false,
            contested: 2,
            credentials_expire: Some(1_800_000_000),
            namespaces: DeliveryCounts {
                synced: 2,
                waiting: 1,
                failed: 0,
            },
            operators: DeliveryCounts::default(),
        };
        metrics.set_fleet(fleet, Some(3.0), &BTreeMap::new());
        metrics.set_clusters(Counts {
            total: 9,
            synced: 4,
            failed: 1,
            unreachable: 2,
            progressing: 1,
            ..Counts::default()
        });
        metrics.page()
    }

    #[test]
    fn the_page_is_prometheus_text_with_every_metric() {
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
            "globalps_degraded_by_content 0",
            "globalps_nodes_contested 2",
            "globalps_credentials_expiry_timestamp_seconds 1800000000",
            "globalps_namespaces{state=\"synced\"} 2",
            "globalps_namespaces{state=\"waiting\"} 1",
            "globalps_operators{state=\"failed\"} 0",
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
    fn a_standby_has_no_metrics_of_the_nodes() {
        let metrics = Metrics::default();
        let page = metrics.page();
        assert!(page.contains("globalps_leader 0\n"), "{page}");
        assert!(!page.contains("globalps_nodes"), "{page}");
        metrics.set_leader(Some(Box::new(|| false)));
        assert!(
            metrics.page().contains("globalps_leader 0\n"),
            "a leader that may not write does not lead"
        );
    }

    #[test]
    fn the_restart_counter_never_decreases() {
        let mut restarts = Restarts::default();
        for (sentence, nodes, expected) in [
            ("earlier restarts count", &[("a", 2), ("b", 1)][..], 3),
            ("nothing new", &[("a", 2), ("b", 1)], 3),
            ("one more", &[("a", 3), ("b", 1)], 4),
            ("a node is deleted", &[("a", 3)], 4),
            ("a node is added", &[("a", 3), ("c", 1)], 5),
            ("a counter starts at zero again", &[("a", 1), ("c", 1)], 6),
        ] {
            let nodes = nodes
                .iter()
                .map(|(name, count)| {
                    let mut object = NodePullSecret::new(name, NodePullSecretSpec::default());
                    object.status.get_or_insert_default().restarts = *count;
                    ((*name).to_owned(), Box::new(object))
                })
                .collect();
            restarts.add(&nodes);
            assert_eq!(restarts.total, expected, "{sentence}");
        }
    }
}
