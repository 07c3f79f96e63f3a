//! Test clusters leave nothing behind, however they end, and several run concurrently.

mod common;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::cluster;
use globalps_testkit::programs::built;
use globalps_testkit::{Cluster, DEADLINE, kubernetes, wait};

/// Directories of this file's clusters. Clusters of other tests may start and stop at the same time.
const OWN: &str = "clusters/bed-";

/// Everything that the clusters of this file have added to the machine: bridges, rules, mounts, processes. Includes
/// bridges without a cluster.
fn added() -> BTreeSet<String> {
    let lines = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut on_network = lines("ip", &["-brief", "link"]);
    on_network.extend(lines("iptables", &["-w", "-t", "nat", "-S"]));
    on_network.retain(|line| bridge(line).is_some_and(is_own));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut in_directory: Vec<_> = mounts.lines().map(str::to_owned).collect();
    for process in [
        "etcd",
        "kube-apiserver",
        "systemd-nspawn",
        "kubelet",
        "containerd-shim",
    ] {
        in_directory.extend(lines("pgrep", &["-a", process]));
    }
    in_directory.retain(|line| line.contains(OWN));
    on_network.into_iter().chain(in_directory).collect()
}

/// Number of the bridge in a line.
fn bridge(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("gps")?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    Some(&rest[..end.unwrap_or(rest.len())]).filter(|number| !number.is_empty())
}

/// Whether this number belongs to a cluster of this file, or to no cluster.
fn is_own(number: &str) -> bool {
    let record = std::fs::read_to_string(format!("/run/globalps-testcluster/{number}.json"));
    record.map_or(true, |record| record.contains(OWN))
}

/// Waits until everything that did not exist before is gone.
fn wait_gone(before: &BTreeSet<String>, when: &str) {
    wait(when, Duration::from_millis(200), || {
        let left: Vec<_> = added().difference(before).cloned().collect();
        if !left.is_empty() {
            eprintln!("{when}: {left:#?}");
        }
        Ok(left.is_empty().then_some(()))
    });
}

#[test]
fn clusters_stand_side_by_side_and_leave_nothing_at_any_end() {
    let before = added();

    let first = cluster("bed-first", 1);
    let second = cluster("bed-second", 1);
    assert_ne!(first.api_url(), second.api_url());
    for cluster in [&first, &second] {
        let nodes = cluster.types("get nodes -o name");
        assert_eq!(nodes.trim(), "node/node-1");
    }
    let seen = added();
    assert!(
        seen.difference(&before).count() > 10,
        "the search finds what a cluster adds: {seen:#?}"
    );
    let node = first.node("node-1").unwrap();
    node.power_cut().unwrap();
    assert!(!node.is_running().unwrap());
    node.boot().unwrap();
    node.wait_ready(DEADLINE).unwrap();
    node.reboot().unwrap();
    node.wait_ready(DEADLINE).unwrap();
    first.down().unwrap();
    drop(second);
    wait_gone(&before, "after `down` and after a drop");

    // A program is killed while it starts a cluster, and the next one uses the same directory.
    let dir = kubernetes::target_dir().join("clusters/bed-killed");
    let mut up = Command::new(built(&["testkit"]).unwrap().join("testkit"))
        .args(["cluster", "up", "--nodes", "1", "--dir"])
        .arg(&dir)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    up.kill().unwrap();
    up.wait().unwrap();
    Cluster::up_named("bed-killed", 1).unwrap().down().unwrap();
    wait_gone(&before, "after a killed run");
}
