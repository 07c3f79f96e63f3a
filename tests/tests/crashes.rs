//! A controller or a syncer that is killed at any moment continues after its restart.

mod common;

use std::time::Duration;

use common::{base64, cluster, docker_config};
use globalps_testkit::product::{DEADLINE, Product};
use globalps_testkit::{Cluster, Node, config_file, wait};

/// Milliseconds from a rotation to a kill. A rotation of two nodes takes about two seconds.
const MOMENTS: [u64; 8] = [0, 60, 120, 250, 500, 900, 1300, 1800];

#[test]
fn whatever_is_killed_every_node_gets_the_newest_content() {
    let cluster = cluster("crashes", 2);
    let product = Product::install(&cluster).unwrap();
    let nodes = cluster.nodes().unwrap();
    product.apply(&content(0)).unwrap();
    product.wait_synced().unwrap();

    let mut round = 0;
    for victim in ["globalps-controller", "globalps-syncer"] {
        for moment in MOMENTS {
            round += 1;
            // Containers that were killed earlier first wait for the kubelet's backoff; a kill without a running
            // process would prove nothing. There are two controllers, and as many syncers as nodes.
            wait_running(&nodes, victim, nodes.len());
            let starts = product.starts(&nodes).unwrap();
            product.apply(&content(round)).unwrap();
            std::thread::sleep(Duration::from_millis(moment));
            let killed = kill(&nodes, victim);
            product
                .wait_synced()
                .unwrap_or_else(|error| panic!("{victim} killed after {moment} ms: {error:#}"));
            for (node, before) in nodes.iter().zip(starts) {
                let name = format!("{}, {victim} killed after {moment} ms", node.name());
                is_as_it_should_be(node, round, &name);
                let more = product.kubelet_starts(node).unwrap() - before;
                assert_eq!(more, 1, "{name}: kubelet starts");
            }
            assert!(killed > 0, "{victim} ran on some node");
        }
    }
    a_node_whose_power_is_cut_comes_back_to_the_newest_content(
        &cluster,
        &product,
        &nodes[1],
        round + 1,
    );

    product.delete().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill(&nodes, "globalps-controller");
    kill(&nodes, "globalps-syncer");
    product.wait_clean().unwrap();
    for node in &nodes {
        assert_eq!(config_file::read(node).unwrap(), None, "{}", node.name());
    }
}

fn content(round: u32) -> String {
    docker_config(&[("killed.example.com", &format!("u:{round}"))])
}

fn is_as_it_should_be(node: &Node, round: u32, name: &str) {
    let expected = Some(base64(&format!("u:{round}")));
    assert_eq!(
        config_file::auth(node, "killed.example.com").unwrap(),
        expected,
        "{name}"
    );
    node.exec(&["systemctl", "is-active", "kubelet.service"])
        .unwrap()
        .ok()
        .unwrap();
    let directory = node.kubelet_dir();
    let strays: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.contains("config.json") && file != "config.json")
        .collect();
    assert!(strays.is_empty(), "{name}: {strays:?}");
}

/// Sends SIGKILL to every process with that name on the nodes; returns their number.
fn kill(nodes: &[Node], program: &str) -> usize {
    on_each(nodes, program, "kill -9 $p && echo killed")
}

fn wait_running(nodes: &[Node], program: &str, number: usize) {
    wait(
        &format!("{number} {program} running"),
        Duration::from_millis(100),
        || Ok((on_each(nodes, program, "echo there") == number).then_some(())),
    );
}

/// Runs a command for each process `$p` with that name on the nodes; returns the number of output lines.
fn on_each(nodes: &[Node], program: &str, command: &str) -> usize {
    // The kernel truncates names to 15 bytes.
    let script = format!(
        "for p in $(pgrep -x {}); do {command}; done",
        &program[..15]
    );
    nodes
        .iter()
        .map(|node| {
            node.exec(&["sh", "-c", &script])
                .unwrap()
                .stdout
                .lines()
                .count()
        })
        .sum()
}

fn a_node_whose_power_is_cut_comes_back_to_the_newest_content(
    cluster: &Cluster,
    product: &Product,
    node: &Node,
    round: u32,
) {
    product.apply(&content(round)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    node.power_cut().unwrap();
    node.boot().unwrap();
    node.wait_ready(DEADLINE).unwrap();
    // While it is down, the rollout completes without it.
    product.wait_node_synced(node.name()).unwrap();
    for node in cluster.nodes().unwrap() {
        is_as_it_should_be(&node, round, &format!("{}, after a power cut", node.name()));
    }
}
