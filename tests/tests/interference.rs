//! Interference by other clients in a healthy fleet: they write the spec of a node's object, delete its Node, or
//! configure a syncer image that doesn't exist.

mod common;

use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use common::shared::{Fleet, Shared, tests_on};
use common::{base64, docker_config};
use globalps_testkit::product::{DEADLINE, Product, merge};
use globalps_testkit::{Access, Node, config_file, until, wait};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const REGISTRY: &str = "interference.example.com";
const MAX_REVISION: i64 = (1 << 53) - 1;

static SHARED: Shared = Shared::new("interference", 4);

tests_on! { SHARED,
    nobodys_number_is_believed_or_raised_to;
    a_node_that_is_deleted_right_after_a_change_gets_it;
    a_syncer_image_that_cannot_be_pulled_stops_only_its_own_node;
}

fn content(password: &str) -> String {
    docker_config(&[(REGISTRY, &format!("u:{password}"))])
}

/// Rolls out this password to every node. Returns the revision.
fn in_force(product: &Product, password: &str) -> i64 {
    product.apply(&content(password)).unwrap();
    product.wait_synced().unwrap();
    product.revision().unwrap()
}

fn all_have(nodes: &[Node], password: &str) -> bool {
    let wanted = Some(base64(&format!("u:{password}")));
    let has = |node: &Node| config_file::auth(node, REGISTRY).unwrap() == wanted;
    nodes.iter().all(has)
}

fn nobodys_number_is_believed_or_raised_to((cluster, product, nodes): Fleet) {
    let before = in_force(product, "one");
    let what = format!("nodepullsecret/{}", nodes[0].name());
    for number in [99, MAX_REVISION] {
        merge(cluster, &what, &json!({"spec": {"revision": number}})).unwrap();
        wait("the spec as it was", POLL, || {
            let object = product.get(&what)?;
            Ok((object["spec"]["revision"] == before).then_some(()))
        });
        assert_eq!(product.revision().unwrap(), before, "{number}");
    }
    assert_eq!(in_force(product, "two"), before + 1);
}

fn a_node_that_is_deleted_right_after_a_change_gets_it((cluster, product, nodes): Fleet) {
    let before = in_force(product, "before");
    let deleted = &nodes[0];
    product.apply(&content("after")).unwrap();
    sleep(Duration::from_millis(250));
    cluster.types(&format!("delete node {}", deleted.name()));
    deleted
        .exec(&["systemctl", "restart", "kubelet.service"])
        .unwrap();
    product.ends("status --wait --timeout 4m", 0);
    // Each new kubelet registers its node, but the wait may have ended before this one did so.
    wait("its object with the revision", POLL, || {
        let object = product.get(&format!("nodepullsecret/{}", deleted.name()));
        Ok(object
            .is_ok_and(|object| {
                object["spec"]["revision"] == before + 1
                    && object["status"]["revision"] == before + 1
                    && object["status"]["phase"] == "Synced"
            })
            .then_some(()))
    });
    product.wait_synced().unwrap();
    assert!(all_have(nodes, "after"));
    let counts = &product.status().unwrap()["counts"];
    let ran = product.types("status -o json", "");
    let shown: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(counts["synced"], nodes.len(), "{counts}");
    let rows = shown["nodes"].as_array().unwrap();
    assert_eq!(counts["total"], rows.len(), "{shown}");
    assert!(rows.iter().all(|row| row["phase"] == "Synced"), "{shown}");
}

fn a_syncer_image_that_cannot_be_pulled_stops_only_its_own_node((cluster, product, nodes): Fleet) {
    in_force(product, "before");
    wait_settled(product, nodes.len());
    let registry = cluster.registry().address(Access::Open);
    let controller = format!("{registry}/globalps-controller:test");
    let syncer = format!("{registry}/globalps-syncer:typo");
    let images = ["--controller-image", &controller, "--syncer-image", &syncer];
    let ran = product
        .plugin(&[&["install", "--apply"][..], &images].concat(), "")
        .unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let broken = wait("a pod without its image", POLL, || {
        let pods = product.get("pods")?;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let waits = |pod: &&Value| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("Pull"))
        };
        let pod = pods.iter().find(waits);
        Ok(pod.map(|pod| {
            pod["spec"]["nodeName"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        }))
    });
    product.apply(&content("after")).unwrap();
    let working: Vec<Node> = nodes
        .iter()
        .filter(|it| it.name() != broken)
        .cloned()
        .collect();
    // Every node waits a minute for a syncer of the new template.
    until("the nodes whose syncers work", DEADLINE * 2, POLL, || {
        Ok(all_have(&working, "after").then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", product.status()));
    println!("broken: {broken}");
    let message = wait("SyncersHealthy=False", POLL, || {
        let (status, _, message) = product.condition("SyncersHealthy")?;
        Ok((status == "False").then_some(message))
    });
    assert!(message.contains(&broken), "{message}");
    product.install_again(&[]).unwrap();
    wait("the node whose syncer works again", POLL, || {
        Ok(all_have(nodes, "after").then_some(()))
    });
}

/// A restarted kubelet reports young pods as not ready, and a DaemonSet replaces such pods without a limit.
fn wait_settled(product: &Product, nodes: usize) {
    const SETTLED: SignedDuration = SignedDuration::from_secs(15);
    let is_settled = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        let ready = conditions?.iter().find(|it| it["type"] == "Ready")?;
        let since: Timestamp = ready["lastTransitionTime"].as_str()?.parse().ok()?;
        let age = Timestamp::now().duration_since(since);
        (ready["status"] == "True").then_some(age >= SETTLED)
    };
    wait("settled syncers", POLL, || {
        let pods = product.get("pods")?;
        let pods = pods["items"].as_array().context("a list")?;
        let syncers = pods.iter().filter(|pod| {
            let owner = &pod["metadata"]["ownerReferences"][0]["name"];
            owner == "global-pull-secret-syncer"
        });
        let settled = syncers.filter(|pod| is_settled(pod) == Some(true));
        Ok((settled.count() == nodes).then_some(()))
    });
}
