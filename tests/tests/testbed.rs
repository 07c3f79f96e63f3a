//! The test cluster leaves nothing behind, whatever ends it, and several stand side by side.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::cluster;
use globalps_tests::{Cluster, Options, kubernetes, until};

/// What a cluster adds to the machine: bridges, rules, mounts, processes.
fn added() -> Vec<String> {
    let dir = kubernetes::target_dir().join("clusters");
    let lines = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut added = lines("ip", &["-brief", "link"]);
    added.retain(|line| line.contains("gps"));
    added.extend(
        lines("iptables", &["-t", "nat", "-S"])
            .into_iter()
            .filter(|rule| rule.contains("DNAT")),
    );
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    added.extend(
        mounts
            .lines()
            .filter(|mount| mount.contains(&*dir.to_string_lossy()))
            .map(str::to_owned),
    );
    for process in [
        "etcd",
        "kube-apiserver",
        "systemd-nspawn",
        "kubelet",
        "containerd-shim",
    ] {
        added.extend(
            lines("pgrep", &["-a", process])
                .into_iter()
                .filter(|line| line.contains(&*dir.to_string_lossy())),
        );
    }
    added.sort();
    added
}

#[test]
fn clusters_stand_side_by_side_and_leave_nothing_however_they_end() {
    let before = added();

    let first = cluster("bed-first", 1);
    let second = cluster("bed-second", 1);
    assert_ne!(first.api_url(), second.api_url());
    for cluster in [&first, &second] {
        let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"]).unwrap();
        assert_eq!(nodes.trim(), "node/node-1");
    }
    assert_ne!(added(), before, "what would be left behind is seen");
    let node = first.node("node-1").unwrap();
    node.power_cut().unwrap();
    assert!(!node.is_running().unwrap());
    node.boot().unwrap();
    node.wait_ready(Duration::from_secs(60)).unwrap();
    node.reboot().unwrap();
    node.wait_ready(Duration::from_secs(60)).unwrap();
    first.down().unwrap();
    drop(second);
    assert_eq!(added(), before, "after `down` and after a drop");

    // A program that is killed while it brings a cluster up, and the next one in the same place.
    let dir = kubernetes::target_dir().join("clusters/bed-killed");
    let mut up = Command::new(env!("CARGO_BIN_EXE_testcluster"))
        .args(["up", "--nodes", "1", "--dir"])
        .arg(&dir)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    up.kill().unwrap();
    up.wait().unwrap();
    Cluster::up(&Options { dir, nodes: 1 })
        .unwrap()
        .down()
        .unwrap();
    until(
        "nothing is left of a killed run",
        Duration::from_secs(20),
        Duration::from_millis(200),
        || Ok((added() == before).then_some(())),
    )
    .unwrap();
}
