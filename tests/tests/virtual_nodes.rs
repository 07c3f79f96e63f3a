//! Two Nodes without a machine that are kept Ready, like a virtual kubelet does. Nothing waits for them.

mod common;

use std::thread::sleep;
use std::time::{Duration, Instant};

use common::roll_out;
use globalps_testkit::product::Product;
use globalps_testkit::{virtual_nodes, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(200);
/// A kubelet is restarted at most every ten seconds.
const PAUSE: Duration = Duration::from_secs(11);
/// The two rotations run under different loads. Waiting for a node that can't change takes two minutes.
const MARGIN: Duration = Duration::from_mins(1);

#[test]
fn nobody_waits_for_virtual_nodes() {
    let cluster = common::cluster("virtual-nodes", 2);
    let product = Product::install(&cluster).unwrap();
    let alone = rotation(&product, "one");
    let alone = alone.min(rotation(&product, "two"));
    virtual_nodes::with_two(&cluster, || {
        wait("two unsupported nodes", POLL, || {
            let counts = product.status()?["counts"].clone();
            Ok((counts["unsupported"] == 2 && counts["total"] == 2).then_some(()))
        });
        let together = rotation(&product, "three").min(rotation(&product, "four"));
        println!("alone {alone:?}, with virtual nodes {together:?}");
        assert!(together < alone + MARGIN, "{alone:?} {together:?}");

        // The pod of the tainted one is Pending; that of the labeled one does not exist.
        let pods = cluster.get("kube-system", "pods").unwrap();
        let pods = pods["items"].as_array().unwrap();
        let on = |node: &str| {
            pods.iter()
                .filter(|pod| pod["spec"]["nodeName"] == node)
                .count()
        };
        assert_eq!(on("by-label"), 0);
        let (status, reason, message) = product.condition("SyncersHealthy").unwrap();
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("True", "AllRunning"),
            "{message}"
        );
        assert!(
            message.contains("by-taint") && message.contains("by-label"),
            "{message}"
        );

        let ran = product.ends("status -o json", 0);
        let status: Value = serde_json::from_str(&ran.stdout).unwrap();
        let expected = json!({
            "total": 2, "synced": 2, "progressing": 0, "failed": 0, "unreachable": 0, "unsupported": 2,
        });
        assert_eq!(status["counts"], expected);
        for (name, mark) in [("by-label", "label"), ("by-taint", "taint")] {
            let rows = status["nodes"].as_array().unwrap();
            let row = rows.iter().find(|row| row["name"] == name).unwrap();
            assert_eq!(
                (&row["phase"], &row["reason"]),
                (&json!("Unsupported"), &json!("VirtualNode"))
            );
            assert!(row["message"].as_str().unwrap().contains(mark), "{row}");
        }
        let ran = product.ends("check", 0);
        assert!(ran.stdout.contains("by-label, by-taint"), "{ran:?}");
        product.ends("remove --all --yes --wait", 0);
        product.wait_clean()
    })
    .unwrap();
}

/// Duration of a rotation, without the pause between two restarts of a kubelet.
fn rotation(product: &Product, password: &str) -> Duration {
    sleep(PAUSE);
    let begun = Instant::now();
    let login = format!("u:{password}");
    roll_out(product, &[("r.example.com", &login)]);
    begun.elapsed()
}
