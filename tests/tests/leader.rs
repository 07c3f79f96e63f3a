//! Two controllers: the leader is killed, frozen, disconnected or evicted in the middle of a rollout. The other one
//! takes over within 15 seconds, and `maxUnavailable` is never exceeded.

mod common;

use std::time::{Duration, SystemTime};

use common::docker_config;
use common::shared::{Fleet, Shared, tests_on};
use globalps_core::names::{METRICS_PORT, PROBES_PORT};
use globalps_testkit::audit::{Request, is_write};
use globalps_testkit::product::{DEADLINE, Product, reconfigure, run};
use globalps_testkit::watch::Watch;
use globalps_testkit::{Cluster, Node, until, wait};
use serde_json::{Value, json};

const SYSTEM: &str = "globalps-system";
const LEASE: &str = "lease/globalps-controller";
const ACCOUNT: &str = "system:serviceaccount:globalps-system:globalps-controller";
const POLL: Duration = Duration::from_millis(50);
const FAILOVER: Duration = Duration::from_secs(25);
/// Shorter than the duration of a Lease, because the leader releases it.
const HANDOVER: Duration = Duration::from_secs(8);
/// By then the kernel has retransmitted lost packets, or given up.
const LATE: Duration = Duration::from_secs(20);

/// What happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Killed,
    /// SIGSTOP, and SIGCONT as soon as another controller assigns.
    Frozen,
    /// Its packets are lost, but packets to it arrive, until another controller assigns. Its requests may arrive late.
    CutOff,
    /// SIGTERM, like in a drain.
    Evicted,
}

static SHARED: Shared = Shared::new("leader", 5);

tests_on! { SHARED,
    the_probes_and_metrics_of_both_say_what_is;
    the_api_server_takes_a_grant_of_the_leader_only;
    another_one_goes_on_when_the_leader_is_killed;
    another_one_goes_on_when_the_leader_is_frozen;
    another_one_goes_on_when_the_leader_is_cut_off;
    another_one_goes_on_when_the_leader_is_evicted;
}

fn another_one_goes_on_when_the_leader_is_killed(fleet: Fleet) {
    another_one_goes_on_and_no_limit_is_exceeded(Fate::Killed, fleet);
}

fn another_one_goes_on_when_the_leader_is_frozen(fleet: Fleet) {
    another_one_goes_on_and_no_limit_is_exceeded(Fate::Frozen, fleet);
}

fn another_one_goes_on_when_the_leader_is_cut_off(fleet: Fleet) {
    another_one_goes_on_and_no_limit_is_exceeded(Fate::CutOff, fleet);
}

fn another_one_goes_on_when_the_leader_is_evicted(fleet: Fleet) {
    another_one_goes_on_and_no_limit_is_exceeded(Fate::Evicted, fleet);
}

/// Rolls out content to every node; returns its revision.
fn in_force(product: &Product) -> i64 {
    product.apply(&content(0)).unwrap();
    product.wait_synced().unwrap();
    product.status().unwrap()["revision"].as_i64().unwrap()
}

fn another_one_goes_on_and_no_limit_is_exceeded(fate: Fate, (cluster, product, nodes): Fleet) {
    let revision = in_force(product) + 1;
    // Some nodes must lack the revision until the next leader leads.
    reconfigure(cluster, &json!({"rollout": {"minReadySeconds": 2}})).unwrap();
    two_are_ready(cluster);
    let leader = Leader::find(cluster);
    let watch = Watch::start(cluster, nodes.len()).unwrap();
    product.apply(&content(revision)).unwrap();
    some_synced(product, nodes, revision);
    let begun = SystemTime::now();
    leader.suffers(fate, cluster);

    let next = until("another leader", DEADLINE, POLL, || {
        let holder = holder(cluster);
        Ok((!holder.is_empty() && holder != leader.identity).then_some(holder))
    })
    .unwrap_or_else(|error| panic!("{fate:?}: {error:#}"));
    // An evicted leader may assign until it releases the Lease.
    let taken = until("the acquisition of the Lease", DEADLINE, POLL, || {
        let mut writes = requests(cluster, begun, "leases").into_iter();
        let is_taking = |pod: &str, event: &Value| {
            next.split_once('_').is_some_and(|(next, _)| next == pod) && is_taken_write(event)
        };
        let first = writes.find(|(_, pod, event)| is_taking(pod, event));
        Ok(first.map(|(time, _, _)| time))
    })
    .unwrap_or_else(|error| panic!("{fate:?}: {error:#}"));
    // With five nodes, the last node was not yet assigned when it happened.
    let assignment = until("an assignment by the next leader", DEADLINE, POLL, || {
        Ok(assignments(cluster, taken).into_iter().next())
    })
    .unwrap_or_else(|error| panic!("{fate:?}: {error:#}"));
    // A pod may end late. A Lease that is not released expires later than this after its last renewal.
    let renewals = requests(cluster, begun, "leases").into_iter();
    let renewals = renewals.filter(|(time, pod, event)| {
        fate == Fate::Evicted && *pod == leader.pod && is_taken_write(event) && *time <= taken
    });
    let since = renewals.map(|(time, ..)| time).max().unwrap_or(begun);
    let taken = taken.duration_since(since).unwrap_or_default();
    let assigned = assignment.0.duration_since(begun).unwrap_or_default();
    println!(
        "{fate:?}: Lease acquired after {:.1} s, first assignment after {:.1} s",
        taken.as_secs_f32(),
        assigned.as_secs_f32()
    );
    assert!(
        fate == Fate::Killed || assignment.1 != leader.pod,
        "{fate:?}: an assignment by the other controller"
    );
    let limit = if fate == Fate::Evicted {
        HANDOVER
    } else {
        FAILOVER
    };
    assert!(taken <= limit, "{fate:?}: {taken:?}");

    let thawed = leader.recovers(fate);
    if let Some(thawed) = thawed {
        // It first requests its Lease, and finds that it lost it.
        wait("a request of the old leader", POLL, || {
            let asked = requests(cluster, thawed, "leases");
            Ok(asked.into_iter().find(|(_, pod, _)| *pod == leader.pod))
        });
    }
    product.wait_synced().unwrap();
    if fate == Fate::CutOff {
        // The client gave up on the request seconds ago, but the kernel retransmits it after the partition.
        let late = until("a late request of the old leader", LATE, POLL, || {
            let asked = requests(cluster, begun, "nodepullsecrets");
            Ok(asked
                .into_iter()
                .find(|(_, pod, event)| *pod == leader.pod && event["verb"] == "patch"))
        });
        // If the kernel retransmitted nothing, there is nothing to check.
        if let Ok((time, _, event)) = late {
            let after = time.duration_since(thawed.unwrap()).unwrap_or_default();
            println!(
                "{fate:?}: an abandoned assignment arrived {:.1} s after the partition: {} {}",
                after.as_secs_f32(),
                event["responseStatus"]["code"],
                event["responseStatus"]["message"]
            );
        }
    }
    assert_eq!(
        watch.most_at_once(revision).unwrap(),
        1,
        "{fate:?}: at most one node between assignment and `Synced`"
    );
    if let Some(thawed) = thawed {
        let mut wrote = assignments(cluster, thawed);
        if fate == Fate::Frozen {
            // It didn't even try, so it was not only the API server's policy that stopped it.
            wrote = requests(cluster, thawed, "nodepullsecrets");
            wrote.retain(|(_, _, event)| event["verb"] == "patch");
        }
        wrote.retain(|(_, pod, _)| *pod == leader.pod);
        // On a slow machine the Lease may have expired again.
        let leads_again = holder(cluster) == leader.identity;
        println!("{fate:?}: the old leader leads again: {leads_again}");
        assert!(
            wrote.is_empty() || leads_again,
            "{fate:?}: the old leader assigned: {wrote:?}"
        );
    }
    print_memory(nodes);
}

fn content(revision: i64) -> String {
    docker_config(&[("leader.example.com", &format!("u:{revision}"))])
}

fn some_synced(product: &Product, nodes: &[Node], revision: i64) {
    wait("a node with the new revision", POLL, || {
        for node in nodes {
            let status = product.node_status(node.name())?;
            if status["phase"] == "Synced" && status["revision"] == revision {
                return Ok(Some(()));
            }
        }
        Ok(None)
    });
}

/// The process that holds the Lease.
struct Leader {
    identity: String,
    pod: String,
    node: Node,
    pid: String,
}

impl Leader {
    fn find(cluster: &Cluster) -> Self {
        let identity = holder(cluster);
        let pod = identity.split_once('_').unwrap().0.to_owned();
        let node = get(cluster, &format!("pod/{pod}"))["spec"]["nodeName"]
            .as_str()
            .unwrap()
            .to_owned();
        let node = cluster.node(&node).unwrap();
        // Both controllers may be on one node.
        let script = format!(
            "for p in $(pgrep -x globalps-contro); do tr '\\0' '\\n' < /proc/$p/environ | grep -qx HOSTNAME={pod} && echo $p; done"
        );
        let output = node.exec(&["sh", "-c", &script]).unwrap();
        let pid = output.stdout.trim().to_owned();
        assert!(pid.parse::<u32>().is_ok(), "one process: {output:?}");
        Self {
            identity,
            pod,
            node,
            pid,
        }
    }

    fn suffers(&self, fate: Fate, cluster: &Cluster) {
        match fate {
            Fate::Killed => self.shell("kill -KILL $p"),
            Fate::Frozen => self.shell("kill -STOP $p"),
            Fate::CutOff => self.shell("nsenter -t $p -n iptables -A OUTPUT -j DROP"),
            Fate::Evicted => {
                cluster.types(&format!("delete pod {} -n {SYSTEM} --wait=false", self.pod));
            }
        }
    }

    /// When the leader ran normally again; `None`: never.
    fn recovers(&self, fate: Fate) -> Option<SystemTime> {
        let time = SystemTime::now();
        match fate {
            Fate::Killed | Fate::Evicted => return None,
            Fate::Frozen => self.shell("kill -CONT $p"),
            Fate::CutOff => self.shell("nsenter -t $p -n iptables -F"),
        }
        Some(time)
    }

    /// Runs a script on its node; `$p` is the process id.
    fn shell(&self, script: &str) {
        let script = format!("p={}; {script}", self.pid);
        self.node
            .exec(&["sh", "-c", &script])
            .unwrap()
            .ok()
            .unwrap();
    }
}

fn get(cluster: &Cluster, what: &str) -> Value {
    let found = cluster.get(SYSTEM, what).unwrap();
    assert!(!found.is_null(), "there is no {what}");
    found
}

/// Holder of the Lease; empty if there is none.
fn holder(cluster: &Cluster) -> String {
    let lease = get(cluster, LEASE);
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.unwrap_or_default().to_owned()
}

fn two_are_ready(cluster: &Cluster) {
    wait("two ready controllers", POLL, || {
        let deployment = get(cluster, "deployment/globalps-controller");
        let status = &deployment["status"];
        Ok((status["readyReplicas"] == 2 && status["replicas"] == 2).then_some(()))
    });
}

/// Time, pod and object of the successful writes of the controllers' account after `since`.
fn requests(
    cluster: &Cluster,
    since: SystemTime,
    resource: &str,
) -> Vec<(SystemTime, String, Value)> {
    let requests = Request::all(cluster, resource).unwrap().into_iter();
    let ours = requests.filter(
        |Request {
             event, answered, ..
         }| {
            let is_ours = event["user"]["username"] == ACCOUNT;
            is_ours && event["objectRef"]["subresource"].is_null() && *answered >= since
        },
    );
    let found = ours.map(
        |Request {
             event, answered, ..
         }| {
            let pod = &event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
            let pod = pod.as_str().unwrap_or_default().to_owned();
            (answered, pod, event)
        },
    );
    found.collect()
}

/// The assignments after `since` that the API server accepted.
fn assignments(cluster: &Cluster, since: SystemTime) -> Vec<(SystemTime, String, Value)> {
    let mut assignments = requests(cluster, since, "nodepullsecrets");
    assignments.retain(|(_, _, event)| is_taken_write(event));
    assignments
}

fn is_taken_write(event: &Value) -> bool {
    is_write(event, &["patch", "update", "create"])
}

fn the_probes_and_metrics_of_both_say_what_is((cluster, product, nodes): Fleet) {
    // A restart resets the metrics.
    for command in [&["restart"][..], &["status", "--timeout=2m"]] {
        let deployment = ["deployment/globalps-controller", "-n", SYSTEM];
        cluster
            .kubectl(&[&["rollout"], command, &deployment].concat())
            .unwrap();
    }
    let revision = in_force(product);
    let restarts: i64 = nodes
        .iter()
        .map(|node| product.node_status(node.name()).unwrap()["restarts"].as_i64())
        .map(Option::unwrap_or_default)
        .sum();
    two_are_ready(cluster);
    let leader = Leader::find(cluster).pod;
    // The previous pods may still exist.
    let pods = wait("two pods", POLL, || {
        let pods = cluster.get(SYSTEM, "pods")?["items"].clone();
        Ok((pods.as_array().map(Vec::len) == Some(2)).then_some(pods))
    });
    let pods = pods.as_array().into_iter().flatten();
    let pods = pods.map(|pod| pod["metadata"]["name"].as_str().unwrap());
    for pod in pods {
        let page = |port: u16, path: &str| {
            let url = format!("/api/v1/namespaces/{SYSTEM}/pods/{pod}:{port}/proxy/{path}");
            cluster.kubectl(&["get", "--raw", &url]).unwrap()
        };
        assert_eq!(page(PROBES_PORT, "livez"), "ok\n");
        assert_eq!(page(PROBES_PORT, "readyz"), "ok\n");
        let metrics = page(METRICS_PORT, "metrics");
        let has = |line: &str| metrics.lines().any(|found| found == line);
        let synced = format!("globalps_nodes{{phase=\"Synced\"}} {}", nodes.len());
        if pod == leader {
            for line in [
                "globalps_leader 1",
                &format!("globalps_revision {revision}"),
                &synced,
                "globalps_nodes{phase=\"Failed\"} 0",
                "globalps_condition{type=\"Ready\",status=\"True\"} 1",
                &format!("globalps_kubelet_restarts_total {restarts}"),
            ] {
                assert!(has(line), "{line} in {metrics}");
            }
            // A node that is NotReady for a moment at the end makes the rollout complete twice.
            let rollouts = "globalps_rollout_duration_seconds_count ";
            let mut lines = metrics.lines();
            let rollouts = lines.find_map(|line| line.strip_prefix(rollouts));
            assert!(rollouts.is_some_and(|it| it != "0"), "{metrics}");
        } else {
            assert!(has("globalps_leader 0"), "{metrics}");
            assert!(!metrics.contains("globalps_nodes"), "{metrics}");
        }
        assert!(metrics.contains("globalps_api_requests_total{verb=\"watch\",code=\"200\"}"));
    }
}

/// Even a controller that is certain that it leads is rejected.
fn the_api_server_takes_a_grant_of_the_leader_only((cluster, product, _): Fleet) {
    in_force(product);
    let apply = |leader: &str| {
        let object = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret",
            "metadata": {"name": "node-1", "namespace": "kube-system", "annotations": {"globalps.io/leader": leader}},
        });
        let mut kubectl = cluster.kubectl_command();
        kubectl.args([
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=test",
            "--validate=false",
            "-f",
            "-",
        ]);
        kubectl.arg(format!("--as={ACCOUNT}"));
        run(&mut kubectl, &object.to_string()).unwrap()
    };
    let refused = apply("globalps-controller-of-yesterday_0");
    assert!(
        refused.code != Some(0) && refused.stderr.contains("another controller leads"),
        "{refused:?}"
    );
    let taken = apply(&holder(cluster));
    assert_eq!(taken.code, Some(0), "{taken:?}");
}

fn print_memory(nodes: &[Node]) {
    for node in nodes {
        let script = "for p in $(pgrep -x globalps-contro); do grep VmRSS /proc/$p/status; done";
        for line in node.exec(&["sh", "-c", script]).unwrap().stdout.lines() {
            println!("resident memory of a controller on {}: {line}", node.name());
        }
    }
}
