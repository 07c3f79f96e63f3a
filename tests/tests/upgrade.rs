//! From the previous release to this one and back, in the middle of a rollout each time: every node gets the newest
//! content with one kubelet start, whether the controller or the syncers change first.

mod common;

use std::fs;
use std::time::Duration;

use common::{base64, cluster, docker_config};
use globalps_tests::product::{CONFIG, DEADLINE, Product, merge};
use globalps_tests::release::{Pushed, Release, install, syncers_are};
use globalps_tests::{Cluster, Node, config_file, until};
use serde_json::json;

const POLL: Duration = Duration::from_millis(100);
const REGISTRY: &str = "upgrade.example.com";
const OWN_FILE: &str =
    "{\n\t\"auths\": { \"own.example.com\": { \"auth\": \"b3duOm93bg==\" } }\n}\n";

#[derive(Clone, Copy, Debug)]
enum Version {
    Previous,
    Current,
}
use Version::{Current, Previous};

#[test]
fn the_controller_may_change_first_on_the_way_there_and_back() {
    every_step_takes_one_kubelet_start_and_loses_nothing(
        "upgrade-controller",
        &[
            (Current, Previous),
            (Current, Current),
            (Previous, Current),
            (Previous, Previous),
        ],
    );
}

#[test]
fn the_syncers_may_change_first_on_the_way_there_and_back() {
    every_step_takes_one_kubelet_start_and_loses_nothing(
        "upgrade-syncers",
        &[
            (Previous, Current),
            (Current, Current),
            (Current, Previous),
            (Previous, Previous),
        ],
    );
}

/// As docs/upgrades.md says: the API server drops them with the older custom resource, and the rest stays in force.
#[test]
fn settings_that_the_previous_release_does_not_know_are_gone_and_the_others_stay() {
    let cluster = cluster("upgrade-settings", 1);
    let nodes = cluster.nodes().unwrap();
    let previous = Release::previous().push(&cluster).unwrap();
    let current = Release::current().push(&cluster).unwrap();
    let product = Product::attach(&cluster);
    let spec = || product.get(CONFIG).unwrap()["spec"].clone();
    let in_force = |number| {
        product.apply(&content(number)).unwrap();
        product.wait_synced().unwrap();
        assert!(has(&nodes[0], number), "{number}");
    };

    install(&cluster, &current, &current).unwrap();
    in_force(0);
    let settings = json!({"spec": {"historyLimit": 3, "verify": {"interval": "1h"}, "rollout": {"cordoned": "Skip"}}});
    merge(&cluster, CONFIG, &settings).unwrap();
    assert_eq!(spec()["verify"]["interval"], "1h");
    in_force(1);

    install(&cluster, &previous, &previous).unwrap();
    in_force(2);
    let found = spec();
    assert_eq!(found["historyLimit"], 3, "{found}");
    assert!(found["verify"].is_null(), "{found}");
    assert!(found["rollout"]["cordoned"].is_null(), "{found}");

    install(&cluster, &current, &current).unwrap();
    in_force(3);
    let found = spec();
    assert_eq!(found["historyLimit"], 3, "{found}");
    assert!(found["verify"].is_null(), "{found}");
    assert_ne!(found["rollout"]["cordoned"], "Skip", "{found}");
}

/// Starts with the previous release. Each step is the version of the controller and that of the syncers.
fn every_step_takes_one_kubelet_start_and_loses_nothing(name: &str, steps: &[(Version, Version)]) {
    let cluster = cluster(name, 3);
    let nodes = cluster.nodes().unwrap();
    fs::write(nodes[1].kubelet_dir().join("config.json"), OWN_FILE).unwrap();
    let before = files(&nodes);
    let previous = Release::previous().push(&cluster).unwrap();
    let current = Release::current().push(&cluster).unwrap();
    let release = |version| match version {
        Previous => &previous,
        Current => &current,
    };
    let product = Product::attach(&cluster);

    install(&cluster, &previous, &previous).unwrap();
    product.apply(&content(0)).unwrap();
    product.wait_synced().unwrap();
    everything_is_in_place(&cluster, &product, &nodes, 0, &previous);
    for (number, (controller, syncer)) in (1..).zip(steps) {
        let starts = kubelet_starts(&product, &nodes);
        product.apply(&content(number)).unwrap();
        let done = until(
            "the first node with the new content",
            DEADLINE,
            POLL,
            || {
                let done = nodes.iter().filter(|node| has(node, number)).count();
                Ok((done > 0).then_some(done))
            },
        )
        .unwrap();
        assert!(done < nodes.len(), "the rollout is in flight");
        install(&cluster, release(*controller), release(*syncer)).unwrap();
        let synced = nodes.iter().filter(|node| has(node, number)).count();
        println!(
            "{name}: controller {controller:?}, syncers {syncer:?}: {done} nodes had the content before the change, \
             {synced} when the controller had changed"
        );

        product.wait_synced().unwrap();
        everything_is_in_place(&cluster, &product, &nodes, number, release(*syncer));
        let more: Vec<usize> = kubelet_starts(&product, &nodes)
            .iter()
            .zip(starts)
            .map(|(now, before)| now - before)
            .collect();
        assert_eq!(more, [1, 1, 1], "{controller:?}, {syncer:?}");
    }

    product.delete().unwrap();
    until("the same bytes, mode and owner", DEADLINE, POLL, || {
        Ok((files(&nodes) == before).then_some(()))
    })
    .unwrap();
    // The previous release leaves objects that only this one knows.
    install(&cluster, &current, &current).unwrap();
    product.wait_clean().unwrap();
    let left = product.get("secrets").unwrap();
    let left: Vec<&str> = left["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|secret| secret["metadata"]["name"].as_str())
        .filter(|name| name.contains("pull-secret"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

fn content(number: usize) -> String {
    docker_config(&[(REGISTRY, &format!("u:upgrade-s3cret-{number}"))])
}

fn has(node: &Node, number: usize) -> bool {
    let expected = base64(&format!("u:upgrade-s3cret-{number}"));
    config_file::auth(node, REGISTRY).unwrap() == Some(expected)
}

fn files(nodes: &[Node]) -> Vec<Option<config_file::ConfigFile>> {
    nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect()
}

fn kubelet_starts(product: &Product, nodes: &[Node]) -> Vec<usize> {
    nodes
        .iter()
        .map(|node| product.kubelet_starts(node).unwrap())
        .collect()
}

/// Every node has the content and is `Synced` at its revision, and all syncers are of this release.
fn everything_is_in_place(
    cluster: &Cluster,
    product: &Product,
    nodes: &[Node],
    number: usize,
    syncer: &Pushed,
) {
    until("all syncers of the release", DEADLINE, POLL, || {
        Ok(syncers_are(cluster, syncer)?.then_some(()))
    })
    .unwrap();
    let revision = product.status().unwrap()["revision"].clone();
    for node in nodes {
        let what = format!("{} at revision {revision}", node.name());
        until(&what, DEADLINE, POLL, || {
            let status = product.node_status(node.name())?;
            Ok((status["phase"] == "Synced" && status["revision"] == revision).then_some(()))
        })
        .unwrap();
        assert!(has(node, number), "{}", node.name());
    }
    let own = config_file::auth(&nodes[1], "own.example.com").unwrap();
    assert_eq!(own, Some(base64("own:own")), "the node's own entry");
}
