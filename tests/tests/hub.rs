//! Many clusters with a hub: the hub on a management cluster, with Cluster API's own manager, and member clusters with
//! real nodes.

mod common;

use std::time::{Duration, Instant};

use common::{base64, cluster, docker_config};
use globalps_testkit::broken_kubelet::{break_kubelet, mend_kubelet};
use globalps_testkit::capi::{Capi, MANIFEST, resource_set};
use globalps_testkit::hub::{Hub, fleet, member_has, member_secret, source};
use globalps_testkit::product::{NAMESPACE, Product};
use globalps_testkit::watch::{Changes, median, seconds_between};
use globalps_testkit::{Cluster, Node, config_file, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(20);
const FLEET: &str = "clusters";
const NAME: &str = "shared";
const REGISTRY: &str = "fleet.example.com";
/// Name of the sources, and names of the resulting Secrets in a member.
const BY_HUB: &str = "by-hub";
const BY_SET: &str = "by-set";
const ROUNDS: usize = 7;

#[test]
fn a_rollout_through_clusters_halts_where_a_node_fails() {
    let management = cluster("hub-management", 1);
    let hub = Hub::install(&management, &[FLEET]).unwrap();
    let capi = Capi::start(&management).unwrap();
    let members: Vec<(String, Cluster)> = (1..=3)
        .map(|number| {
            let member = cluster(&format!("hub-member-{number}"), 1);
            Product::install(&member).unwrap();
            let name = format!("member-{number}");
            let first = if number == 1 { "yes" } else { "no" };
            let labels = [("env", "prod"), ("canary", first)];
            capi.register(&member, FLEET, &name, &labels).unwrap();
            (name, member)
        })
        .collect();
    hub.apply(&[
        source(FLEET, NAME, &content("0ne")),
        fleet(FLEET, NAME, &spec()),
    ])
    .unwrap();
    let message = hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    assert_eq!(message, "revision 1 is in force in 3 of 3 clusters");
    for (name, member) in &members {
        assert_nodes_have(member, "0ne");
        let status = hub.wait_phase((FLEET, NAME, name), ("Synced", "")).unwrap();
        assert_eq!(status["nodes"]["synced"], 1, "{status:#}");
    }
    a_member_is_shown_down_to_its_nodes(&hub, &members[0]);
    // The syncer restarts a kubelet again only after 10 seconds; this wait must not count.
    std::thread::sleep(Duration::from_secs(11));
    rotate(&hub, &members, "tw0");
    a_node_that_fails_halts_the_fleet(&hub, &members);
    what_was_in_force_comes_back(&hub, &members);
    beside_a_cluster_resource_set(&hub, &members[0].1);
    removed(&hub, &members);
}

/// Uses Cluster API's kubeconfig, and one that the user names.
fn a_member_is_shown_down_to_its_nodes(hub: &Hub, (name, member): &(String, Cluster)) {
    let node = member.nodes().unwrap()[0].name().to_owned();
    let status = ["status", NAME, name, "-n", FLEET, "--nodes"];
    let shown = hub.fleet_command(&[&status[..], &["-o", "json"]].concat());
    let shown: Value = serde_json::from_str(&shown.unwrap()).unwrap();
    let of_member = &shown["clusters"][0]["status"];
    assert_eq!(of_member["ready"], true, "{shown:#}");
    assert_eq!(of_member["nodes"][0]["name"], node, "{shown:#}");
    let file = member.kubeconfig();
    let own = ["--member-kubeconfig", file.to_str().unwrap()];
    let table = hub.fleet_command(&[&status[..], &own].concat()).unwrap();
    assert!(table.contains(&format!("{FLEET}/{name}")), "{table}");
    assert!(table.contains(&node), "{table}");
    let same = hub.fleet_command(&["diff", NAME, name, "-n", FLEET, "-o", "json"]);
    let same: Value = serde_json::from_str(&same.unwrap()).unwrap();
    assert_eq!(same["revision"], 1, "{same:#}");
    assert_eq!(same["changes"], json!([]), "{same:#}");
}

/// Selects all members; the label makes the first one the canary.
fn spec() -> Value {
    json!({
        "clusterSelector": {"matchLabels": {"env": "prod"}},
        "rollout": {"canary": {"clusterSelector": {"matchLabels": {"canary": "yes"}}}},
    })
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
    member_has(member, &content(password)).unwrap()
}

/// Prints how long a change of the source takes.
fn rotate(hub: &Hub, members: &[(String, Cluster)], password: &str) {
    let begun = Instant::now();
    hub.apply(&[source(FLEET, NAME, &content(password))])
        .unwrap();
    let mut arrived: Vec<f32> = Vec::new();
    let mut missing: Vec<&Cluster> = members.iter().map(|(_, member)| member).collect();
    wait("the Secret to be in every member", POLL, || {
        missing.retain(|member| {
            let has = has_secret(member, password);
            if has {
                arrived.push(begun.elapsed().as_secs_f32());
            }
            !has
        });
        Ok(missing.is_empty().then_some(()))
    });
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

/// One node of this member halts the fleet: its kubelet does not start while its file contains this registry.
fn halt(hub: &Hub, (name, member): &(String, Cluster), password: &str, breaks: &str) -> Node {
    let node = member.nodes().unwrap().remove(0);
    break_kubelet(&node, breaks).unwrap();
    let login = format!("robot:{password}-s3cret");
    let breaking = docker_config(&[(REGISTRY, &login), (breaks, &login)]);
    hub.apply(&[source(FLEET, NAME, &breaking)]).unwrap();
    let message = hub
        .wait_ready(FLEET, NAME, ("False", "ClustersFailed"))
        .unwrap();
    assert!(message.contains(&format!("`{FLEET}/{name}`")), "{message}");
    assert!(message.contains(node.name()), "{message}");
    node
}

fn a_node_that_fails_halts_the_fleet(hub: &Hub, members: &[(String, Cluster)]) {
    let node = halt(hub, &members[0], "thr33", "breaks.example.com");
    for (name, member) in &members[1..] {
        assert!(has_secret(member, "tw0"), "{name} is untouched");
        assert_nodes_have(member, "tw0");
    }
    // The hub retries once, after the node is repaired.
    mend_kubelet(&node).unwrap();
    hub.fleet_command(&["retry", NAME, "-n", FLEET, "--wait"])
        .unwrap();
    hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    for (_, member) in members {
        assert_nodes_have(member, "thr33");
    }
}

/// The first member already has the change when a node of the second one fails. The node recovers by itself, because
/// its kubelet starts with the previous content.
fn what_was_in_force_comes_back(hub: &Hub, members: &[(String, Cluster)]) {
    let breaks = "breaks-too.example.com";
    let node = halt(hub, &members[1], "f0ur", breaks);
    assert_nodes_have(&members[0].1, "f0ur");
    let begun = Instant::now();
    hub.fleet_command(&["undo", NAME, "-n", FLEET, "--yes", "--wait"])
        .unwrap();
    let message = hub.wait_ready(FLEET, NAME, ("True", "Synced")).unwrap();
    println!(
        "a halted rollout, undone: every node of all clusters has the previous content after {:.2} s",
        begun.elapsed().as_secs_f32()
    );
    assert_eq!(message, "revision 5 is in force in 3 of 3 clusters");
    for (name, member) in members {
        assert_nodes_have(member, "thr33");
        for node in member.nodes().unwrap() {
            let left = config_file::auth(&node, breaks).unwrap();
            assert_eq!(left, None, "{name}");
        }
    }
    mend_kubelet(&node).unwrap();
}

/// Makes the same changes at the same time through a fleet of the hub and through Cluster API, into two Secrets of the
/// fleet's first cluster. Prints how long each takes, from the source on the management cluster to the Secret in the
/// member.
fn beside_a_cluster_resource_set(hub: &Hub, member: &Cluster) {
    let watch = |cluster, namespace, name| Changes::of_secret(cluster, namespace, name).unwrap();
    let there = |name| watch(hub.management(), FLEET, name);
    let here = |name| watch(member, NAMESPACE, name);
    let sources = (there(BY_HUB), there(BY_SET));
    let secrets = (here(BY_HUB), here(BY_SET));
    let mut fleet_spec = spec();
    fleet_spec["target"] = json!({"namespace": NAMESPACE, "name": BY_HUB});
    let (mut by_hub, mut by_set) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let config = content(&format!("r0und-{round}"));
        let manifest = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": BY_SET, "namespace": NAMESPACE},
            "data": {".dockerconfigjson": base64(&config)},
        });
        let labels = json!({"canary": "yes"});
        let [set_source, set] = resource_set(FLEET, BY_SET, &labels, &manifest);
        let text = base64(set_source["stringData"][MANIFEST].as_str().unwrap());
        let fleet = fleet(FLEET, BY_HUB, &fleet_spec);
        hub.apply(&[source(FLEET, BY_HUB, &config), set_source, fleet, set])
            .unwrap();
        let has = |secret: &Value| secret["data"][".dockerconfigjson"] == base64(&config);
        let has_text = |secret: &Value| secret["data"][MANIFEST] == text;
        let from = sources.0.wait("the hub's source", has).unwrap();
        let to = secrets.0.wait("the hub's Secret", has).unwrap();
        by_hub.push(seconds_between(from, to));
        let from = sources.1.wait("the set's source", has_text).unwrap();
        let to = secrets.1.wait("the set's Secret", has).unwrap();
        by_set.push(seconds_between(from, to));
        // The next rollout begins at the first cluster again. Cluster API reconciles at most once a second.
        hub.wait_ready(FLEET, BY_HUB, ("True", "Synced")).unwrap();
        std::thread::sleep(Duration::from_secs(2));
    }
    // Excludes the first change, which also opens the connections.
    let (by_hub, by_set) = (by_hub.split_off(1), by_set.split_off(1));
    println!("by the hub, s: {by_hub:.3?}; by a ClusterResourceSet, s: {by_set:.3?}");
    println!(
        "medians: {:.3} s by the hub, {:.3} s by a ClusterResourceSet",
        median(by_hub),
        median(by_set)
    );
    let delete = |what| ["delete", what, BY_HUB, "-n", FLEET, "--timeout=60s"];
    hub.management()
        .kubectl(&delete("fleetpullsecret"))
        .unwrap();
}

fn removed(hub: &Hub, members: &[(String, Cluster)]) {
    hub.management().types(&format!(
        "delete fleetpullsecret {NAME} -n {FLEET} --timeout=120s"
    ));
    for (name, member) in members {
        assert!(member_secret(member).unwrap().is_null(), "{name}");
    }
    let left = ["get", "clusterpullsecrets", "-A", "-o", "name"];
    assert_eq!(hub.management().kubectl(&left).unwrap(), "");
}
