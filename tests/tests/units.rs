//! Kubelets in units with the names that other distributions use, on real nodes. An agent's unit is restarted, also if
//! a failed `kubelet.service` of an earlier installation exists, and after the kubelet moved to the agent's unit. A
//! server's unit, which also runs a control plane, is not restarted.

mod common;

use std::time::Duration;

use common::{base64, cluster, roll_out};
use globalps_testkit::product::{DEADLINE, Product};
use globalps_testkit::{Node, config_file, until};

const REGISTRY: &str = "units.example.com";
const KUBELET: &str = "kubelet.service";
const POLL: Duration = Duration::from_millis(100);
/// The unit of each node, and whether it may be restarted.
const UNITS: [(&str, bool); 4] = [
    ("k3s-agent.service", true),
    ("rke2-agent.service", true),
    ("k3s.service", false),
    ("microshift.service", false),
];

#[test]
fn an_agents_unit_is_restarted_and_a_servers_is_not() {
    let cluster = cluster("units", 4);
    let nodes = cluster.nodes().unwrap();
    let mut units: Vec<_> = nodes.iter().zip(UNITS).collect();
    for (node, (unit, _)) in &units {
        moved(node, KUBELET, unit);
    }
    let leftover = fails(&nodes[0]);
    let before: Vec<_> = files(&nodes);
    let product = Product::install(&cluster).unwrap();
    let mut invocations: Vec<_> = units
        .iter()
        .map(|(node, (unit, _))| invocation(node, unit))
        .collect();
    for pair in ["robot:first", "robot:second"] {
        roll_out(&product, &[(REGISTRY, pair)]);
        restarted(&units, &mut invocations);
        for (node, (unit, restartable)) in &units {
            let auth = config_file::auth(node, REGISTRY).unwrap();
            assert_eq!(auth, Some(base64(pair)), "{unit}");
            let status = product.node_status(node.name()).unwrap();
            assert_eq!(
                status["reason"] == "RestartNotPossible",
                !restartable,
                "{unit}: {status}"
            );
            if !restartable {
                let message = status["message"].as_str().unwrap_or_default();
                assert!(
                    message.contains(&format!("`{unit}` also runs the control plane")),
                    "{message}"
                );
            }
        }
    }
    // The syncer runs and has seen the kubelet in its first unit.
    let [from, to] = [UNITS[0].0, UNITS[1].0];
    moved(&nodes[0], from, to);
    units[0].1.0 = to;
    invocations[0] = invocation(&nodes[0], to);
    let pair = "robot:third";
    roll_out(&product, &[(REGISTRY, pair)]);
    restarted(&units, &mut invocations);
    let auth = config_file::auth(&nodes[0], REGISTRY).unwrap();
    assert_eq!(auth, Some(base64(pair)), "{to}");
    let status = product.node_status(nodes[0].name()).unwrap();
    assert_ne!(status["reason"], "RestartNotPossible", "{status}");
    product.delete().unwrap();
    product.wait_clean().unwrap();
    restarted(&units, &mut invocations);
    let state = nodes[0].exec(&["systemctl", "is-active", from]).unwrap();
    assert!(!state.status.success(), "its first unit is never started");
    assert_eq!(files(&nodes), before);
    let is_now = invocation(&nodes[0], KUBELET);
    assert_eq!(is_now, leftover, "the leftover unit is never started");
}

/// Leaves the kubelet's first unit failed, like on a node that kubeadm set up before. Returns its invocation.
fn fails(node: &Node) -> String {
    let script = "mkdir -p /etc/systemd/system/kubelet.service.d && \
         printf '[Service]\nExecStart=\nExecStart=/bin/false\nRestart=no\n' \
           > /etc/systemd/system/kubelet.service.d/zz-leftover.conf && \
         systemctl daemon-reload && systemctl start kubelet.service";
    node.exec(&["sh", "-c", script]).unwrap().ok().unwrap();
    until("the leftover unit to fail", DEADLINE, POLL, || {
        let state = node.exec(&["systemctl", "is-failed", KUBELET])?;
        Ok(state.status.success().then_some(()))
    })
    .unwrap();
    invocation(node, KUBELET)
}

/// Moves the node's kubelet from its unit to this one.
fn moved(node: &Node, from: &str, to: &str) {
    let script = format!(
        "cp \"$(systemctl show -p FragmentPath --value {from})\" /etc/systemd/system/{to} && \
         systemctl disable --now {from} && systemctl daemon-reload && systemctl enable --now {to}"
    );
    node.exec(&["sh", "-c", &script]).unwrap().ok().unwrap();
    node.wait_ready(DEADLINE).unwrap();
}

fn files(nodes: &[Node]) -> Vec<Option<config_file::ConfigFile>> {
    let read = |node| config_file::read(node).unwrap();
    nodes.iter().map(read).collect()
}

/// Differs for each start of the unit.
fn invocation(node: &Node, unit: &str) -> String {
    let show = ["systemctl", "show", "-p", "InvocationID", "--value", unit];
    node.exec(&show).unwrap().ok().unwrap()
}

/// Checks that, since the last call, each unit that may be restarted was started again, and no other.
fn restarted(units: &[(&Node, (&str, bool))], invocations: &mut [String]) {
    for ((node, (unit, restartable)), known) in units.iter().zip(invocations) {
        let is_same = || invocation(node, unit) == *known;
        if *restartable {
            let wait = || Ok((!is_same()).then_some(()));
            until(&format!("a start of {unit}"), DEADLINE, POLL, wait).unwrap();
        }
        assert_eq!(is_same(), !restartable, "{unit}");
        *known = invocation(node, unit);
    }
}
