//! `globalps-syncer restore` on a real node, with a real systemd and kubelet.

mod common;

use std::fs;
use std::time::Duration;

use common::{cluster, roll_out};
use globalps_core::names::SYNCER_BINARY;
use globalps_testkit::product::Product;
use globalps_testkit::programs::shipped;
use globalps_testkit::{Node, Output, config_file, wait};

const OWN: &str = r#"{ "auths": {"own.example.com": {"auth": "bzpv"}} }"#;

#[test]
fn a_restore_by_hand_touches_only_the_unit_of_the_nodes_kubelet() {
    let cluster = cluster("by-hand", 1);
    let product = Product::install(&cluster).unwrap();
    let node = &cluster.nodes().unwrap()[0];
    let file = node.kubelet_dir().join("config.json");
    fs::write(&file, OWN).unwrap();
    let before = config_file::read(node).unwrap();
    roll_out(&product, &[("by-hand.example.com", "u:by-h4nd")]);
    no_memory_is_dumped_or_read(node);
    install_binary(node);

    let ran = restore(node, "kubelet.service");
    assert!(
        ran.stdout.contains("a syncer is running on it"),
        "{}",
        ran.stdout
    );
    assert_eq!(ran.status.code(), Some(2));

    // Without a kubelet, nothing restarts the syncer's container.
    let end = "systemctl stop kubelet.service && pkill -9 -x globalps-syncer && \
               while pgrep -x globalps-syncer; do sleep 0.1; done";
    node.exec(&["sh", "-c", end]).unwrap().ok().unwrap();
    let synced = config_file::read(node).unwrap();
    let ran = restore(node, "systemd-journald.service");
    let said = &ran.stdout;
    assert!(
        said.contains("`systemd-journald.service` does not run a kubelet")
            && said.contains("journald`"),
        "{said}"
    );
    assert_eq!(ran.status.code(), Some(2));
    assert_eq!(config_file::read(node).unwrap(), synced);

    // The unit has another name, but runs a kubelet.
    let alias = "cp /etc/systemd/system/kubelet.service /run/systemd/system/own-agent.service 2>/dev/null || \
                 cp $(systemctl show -p FragmentPath --value kubelet.service) /run/systemd/system/own-agent.service; \
                 systemctl daemon-reload";
    node.exec(&["sh", "-c", alias]).unwrap().ok().unwrap();
    let ran = restore(node, "own-agent.service");
    assert!(
        ran.stdout.contains("this node is restored"),
        "{}",
        ran.stdout
    );
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(config_file::read(node).unwrap(), before);
    assert!(!node.kubelet_dir().join(".globalps").exists());
    let start = "systemctl is-active own-agent.service && systemctl stop own-agent.service && \
                 systemctl start kubelet.service";
    node.exec(&["sh", "-c", start]).unwrap().ok().unwrap();
    // The restarted syncer follows its assignment again.
    wait("the entries", Duration::from_millis(100), || {
        Ok(config_file::auth(node, "by-hand.example.com")?.map(drop))
    });
    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(config_file::read(node).unwrap(), before);
}

/// In `/proc`, the files of a dumpable process belong to its own user, which is not root for the controller.
fn no_memory_is_dumped_or_read(node: &Node) {
    // A readiness probe of the syncer has the same process name and ends soon, so the oldest process is the syncer.
    for program in ["globalps-contro", "-o globalps-syncer"] {
        let look = format!(
            "for p in $(pgrep -x {program}); do stat -c %u /proc/$p/status; grep 'Max core' /proc/$p/limits; done"
        );
        let seen = node.exec(&["sh", "-c", &look]).unwrap().ok().unwrap();
        let mut lines = seen.lines().peekable();
        assert!(lines.peek().is_some(), "no {program}");
        while let (Some(user), Some(limit)) = (lines.next(), lines.next()) {
            assert_eq!(user, "0", "{program}: {seen}");
            let limits: Vec<_> = limit.split_whitespace().skip(4).take(2).collect();
            assert_eq!(limits, ["0", "0"], "{program}: {seen}");
        }
    }
}

/// Copies the program from the image to the node, as an admin would.
fn install_binary(node: &Node) {
    let to = node.root().join("root").join(SYNCER_BINARY);
    fs::copy(shipped(SYNCER_BINARY).unwrap(), to).unwrap();
}

fn restore(node: &Node, unit: &str) -> Output {
    let program = format!("/root/{SYNCER_BINARY}");
    node.exec(&[&program, "restore", "--unit", unit]).unwrap()
}
