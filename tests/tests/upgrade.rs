//! From the previous release to this one and back, in the middle of a rollout each time: every node gets the newest
//! content with one kubelet start, whether the controller or the syncers change first.

mod common;

use common::cluster;
use common::upgrade::World;
use globalps_testkit::release::{Release, install};

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
