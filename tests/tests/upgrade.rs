//! From the previous release to this one and back, in the middle of a rollout each time: every node gets the newest
//! content with one kubelet start, whether the controller or the syncers change first.

mod common;

use common::cluster;
use common::upgrade::{World, content, has};
use globalps_tests::product::{CONFIG, Product, merge};
use globalps_tests::release::{Release, install};
use serde_json::json;

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
    let world = World::new(&cluster);
    let previous = Release::previous().push(&cluster).unwrap();
    let current = Release::current().push(&cluster).unwrap();
    let release = |version| match version {
        Previous => &previous,
        Current => &current,
    };

    install(&cluster, &previous, &previous).unwrap();
    world.first(&previous);
    for (number, (controller, syncer)) in (1..).zip(steps) {
        let step = format!("{name}: controller {controller:?}, syncers {syncer:?}");
        let (controller, syncer) = (release(*controller), release(*syncer));
        world.during_a_rollout(number, &step, syncer, || {
            install(&cluster, controller, syncer).unwrap();
        });
    }

    world.restored();
    // The previous release leaves objects that only this one knows.
    install(&cluster, &current, &current).unwrap();
    world.product.wait_clean().unwrap();
    let left = world.product.get("secrets").unwrap();
    let left: Vec<&str> = left["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|secret| secret["metadata"]["name"].as_str())
        .filter(|name| name.contains("pull-secret"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
