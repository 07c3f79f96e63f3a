//! Many clusters from one: the hub on a management cluster, with Cluster API's own manager, and member clusters with real nodes.

mod common;

use std::time::{Duration, Instant};

use common::{base64, cluster, docker_config};
use globalps_tests::broken_kubelet::{break_kubelet, mend_kubelet};
use globalps_tests::capi::Capi;
use globalps_tests::hub::{Hub, fleet, member_secret, source};
use globalps_tests::product::{DEADLINE, Product};
use globalps_tests::{Cluster, config_file, until};
use serde_json::json;

const POLL: Duration = Duration::from_millis(20);
const FLEET: &str = "clusters";
const NAME: &str = "shared";
const REGISTRY: &str = "fleet.example.com";

#[test]
fn a_rollout_goes_through_the_clusters_and_halts_where_a_node_fails() {
    let management = cluster("hub-management", 1);
    let hub = Hub::install(&management, &[FLEET]).unwrap();
    let capi = Capi::start(&management).unwrap();
    let members: Vec<(String, Cluster)> = (1..=3)
        .map(|number| {
            let member = cluster(&format!("hub-member-{number}"), 1);
            Product::install(&member).unwrap();
            let name = format!("member-{number}");
            let labels = [
                ("env", "prod"),
                ("canary", if number == 1 { "yes" } else { "no" }),
            ];
            capi.register(&member, FLEET, &name, &labels).unwrap();
            (name, member)
        })
        .collect();
    let spec = json!({
        "clusterSelector": {"matchLabels": {"env": "prod"}},
        "rollout": {"canary": {"clusterSelector": {"matchLabels": {"canary": "yes"}}}},
    });
    hub.apply(&[
        source(FLEET, NAME, &content("0ne")),
        fleet(FLEET, NAME, &spec),
    ])
    .unwrap();
    let message = hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    assert_eq!(message, "revision 1 is in force in 3 of 3 clusters");
    for (name, member) in &members {
        assert_nodes_have(member, "0ne");
        let status = hub.wait_phase((FLEET, NAME, name), ("Synced", "")).unwrap();
        assert_eq!(status["nodes"]["synced"], 1, "{status:#}");
    }
    // A kubelet is restarted again only after 10 seconds, which is no part of the way that is measured.
    std::thread::sleep(Duration::from_secs(11));
    rotate(&hub, &members, "tw0");
    a_node_that_fails_halts_the_fleet(&hub, &members);
    removed(&hub, &members);
}

fn content(password: &str) -> String {
    docker_config(&[(REGISTRY, &format!("robot:{password}-s3cret"))])
}

fn wanted(password: &str) -> String {
    base64(&format!("robot:{password}-s3cret"))
}

fn assert_nodes_have(member: &Cluster, password: &str) {
    for node in member.nodes().unwrap() {
        let found = config_file::auth(&node, REGISTRY).unwrap();
        assert_eq!(found, Some(wanted(password)), "{}", node.name());
    }
}

fn has_secret(member: &Cluster, password: &str) -> bool {
    let secret = member_secret(member).unwrap();
    secret["data"][".dockerconfigjson"] == base64(&content(password))
}

/// Prints how long a change of the source takes.
fn rotate(hub: &Hub, members: &[(String, Cluster)], password: &str) {
    let begun = Instant::now();
    hub.apply(&[source(FLEET, NAME, &content(password))])
        .unwrap();
    let mut arrived: Vec<f32> = Vec::new();
    let mut missing: Vec<&Cluster> = members.iter().map(|(_, member)| member).collect();
    until("the Secret is in every member", DEADLINE, POLL, || {
        missing.retain(|member| {
            let has = has_secret(member, password);
            if has {
                arrived.push(begun.elapsed().as_secs_f32());
            }
            !has
        });
        Ok(missing.is_empty().then_some(()))
    })
    .unwrap();
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    println!(
        "the source, changed: the first cluster has it after {:.2} s, the last after {:.2} s, every node of all after {:.2} s",
        arrived[0],
        arrived[arrived.len() - 1],
        begun.elapsed().as_secs_f32()
    );
    for (_, member) in members {
        assert_nodes_have(member, password);
    }
}

fn a_node_that_fails_halts_the_fleet(hub: &Hub, members: &[(String, Cluster)]) {
    let (canary, member) = &members[0];
    let node = member.nodes().unwrap().remove(0);
    break_kubelet(&node, "breaks.example.com").unwrap();
    let breaking = docker_config(&[
        (REGISTRY, "robot:thr33-s3cret"),
        ("breaks.example.com", "robot:thr33-s3cret"),
    ]);
    hub.apply(&[source(FLEET, NAME, &breaking)]).unwrap();
    let message = hub
        .wait_ready(FLEET, NAME, ("False", "ClustersFailed"))
        .unwrap();
    assert!(
        message.contains(&format!("`{FLEET}/{canary}`")),
        "{message}"
    );
    assert!(message.contains(node.name()), "{message}");
    for (name, member) in &members[1..] {
        assert!(has_secret(member, "tw0"), "{name} is untouched");
        assert_nodes_have(member, "tw0");
    }
    // The hub asks once more, once the node is mended.
    mend_kubelet(&node).unwrap();
    hub.fleet_command(&["retry", NAME, "-n", FLEET, "--wait"])
        .unwrap();
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    for (_, member) in members {
        assert_nodes_have(member, "thr33");
    }
}

fn removed(hub: &Hub, members: &[(String, Cluster)]) {
    let what = [
        "delete",
        "fleetpullsecret",
        NAME,
        "-n",
        FLEET,
        "--timeout=120s",
    ];
    hub.management().kubectl(&what).unwrap();
    for (name, member) in members {
        assert!(member_secret(member).unwrap().is_null(), "{name}");
    }
    let left = ["get", "clusterpullsecrets", "-A", "-o", "name"];
    assert_eq!(hub.management().kubectl(&left).unwrap(), "");
}
