//! Updates of nodes in place: a stand-in of the Machine Config Daemon never finds our bytes where it compares, and the credentials
//! are back right after its end. `UPDATES=200` runs 200 updates, with programs killed in between; `SEED` repeats a run.

mod common;

use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{base64, cluster, docker_config};
use globalps_core::names::SYNCER;
use globalps_testkit::config_file::{self, ConfigFile};
use globalps_testkit::machine_config_daemon::MachineConfigDaemon;
use globalps_testkit::product::{DEADLINE, Product};
use globalps_testkit::{Cluster, Node, until, wait};

const POLL: Duration = Duration::from_millis(10);
const REGISTRY: &str = "added.example.com";
/// Longest pause of the daemon between two steps.
const PAUSE: Duration = Duration::from_millis(700);
const SOON: Duration = Duration::from_secs(1);
/// The entries are back after the end of an update, where nobody killed a program: within 0.1 s on an idle machine.
const AT_MOST: Duration = Duration::from_secs(10);
/// The same after a kill: a standby takes over.
const AFTER_A_KILL: Duration = Duration::from_secs(90);

#[test]
fn an_update_in_place_finds_its_own_bytes_and_the_credentials_come_back() {
    let cluster = cluster("in-place", 2);
    let product = Product::install(&cluster).unwrap();
    let nodes = cluster.nodes().unwrap();
    let seed = number("SEED").unwrap_or(1);
    let mut daemon = MachineConfigDaemon::new(&cluster, &nodes[0], seed.into()).unwrap();
    daemon.write(&file(0, 0o644)).unwrap();
    product.apply(&content(0)).unwrap();
    product.wait_synced().unwrap();

    an_update_is_shown_and_no_failure(&product, &nodes[0], &mut daemon);
    updates_at_random_moments(&cluster, &product, &nodes, &mut daemon);
    a_removal_in_the_middle_leaves_the_daemons_file(&product, &nodes[0], &mut daemon);
}

fn number(variable: &str) -> Option<u32> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}

/// What the platform renders. Every third time it is the same as before.
fn file(number: u32, mode: u32) -> ConfigFile {
    let password = format!("own:{}", number / 3);
    ConfigFile {
        bytes: format!(
            "{{ \"auths\": {{\"own.example.com\": {{\"auth\": \"{}\"}}}} }}\n",
            base64(&password)
        )
        .into_bytes(),
        mode,
        owner: (0, 0),
    }
}

fn content(number: u32) -> String {
    docker_config(&[(REGISTRY, &format!("u:{number}"))])
}

/// How long after `since` the node's file has the content.
fn wait_back(node: &Node, number: u32, since: Instant, within: Duration) -> Duration {
    let wanted = Some(base64(&format!("u:{number}")));
    until("the credentials", within, POLL, || {
        Ok((config_file::auth(node, REGISTRY)? == wanted).then_some(()))
    })
    .unwrap();
    since.elapsed()
}

fn an_update_is_shown_and_no_failure(
    product: &Product,
    node: &Node,
    daemon: &mut MachineConfigDaemon,
) {
    let starts = product.kubelet_starts(node).unwrap();
    daemon.begin().unwrap();
    let status = product.wait_phase(node, "SteppedAside").unwrap();
    assert_eq!(status["reason"], "UpdatedInPlace");
    daemon.compare(&file(0, 0o644)).unwrap();
    wait("the name of the node", POLL, || {
        let (_, _, message) = product.condition("Ready")?;
        Ok(message
            .contains(&format!("being updated: {}", node.name()))
            .then_some(()))
    });
    assert_eq!(product.condition("Degraded").unwrap().0, "False");
    assert_eq!(product.condition("Ready").unwrap().0, "True");
    let waited = product.ends("status --wait --timeout 1m", 0);
    let sentence = format!(
        "only nodes are left that are being updated: {}",
        node.name()
    );
    assert!(waited.stderr.contains(&sentence), "{waited:?}");
    let checked = product.plugin(&["check"], "").unwrap();
    assert!(checked.stdout.contains("node-update"), "{checked:?}");
    assert_eq!(
        product.kubelet_starts(node).unwrap(),
        starts,
        "stepping aside"
    );
    daemon.write(&file(0, 0o644)).unwrap();
    sleep(SOON);
    daemon.compare(&file(0, 0o644)).unwrap();
    let ended = daemon.end().unwrap();
    let took = wait_back(node, 0, ended, DEADLINE);
    println!("back {} ms after the first update", took.as_millis());
    product.wait_node_synced(node.name()).unwrap();
    let more = product.kubelet_starts(node).unwrap() - starts;
    assert_eq!(more, 1, "the content in force changed once");
}

fn updates_at_random_moments(
    cluster: &Cluster,
    product: &Product,
    nodes: &[Node],
    daemon: &mut MachineConfigDaemon,
) {
    let asked = number("UPDATES");
    let updates = asked.unwrap_or(10);
    let begun = Instant::now();
    let starts = product.kubelet_starts(&nodes[0]).unwrap();
    let (mut rotations, mut kills, mut longest) = (0, 0, Duration::ZERO);
    for number in 1..=updates {
        if daemon.once_in(3) {
            rotations += 1;
            product.apply(&content(rotations)).unwrap();
        }
        sleep(daemon.moment(PAUSE));
        let mut is_killed = false;
        if asked.is_some() && daemon.once_in(4) {
            let victim = &nodes[usize::from(daemon.once_in(2))];
            is_killed = kill(cluster, victim, daemon.once_in(3));
            kills += u32::from(is_killed);
        }
        let mode = if daemon.once_in(3) { 0o644 } else { 0o600 };
        let ended = daemon.update(&file(number, mode), PAUSE).unwrap();
        let within = if is_killed { AFTER_A_KILL } else { DEADLINE };
        let took = wait_back(&nodes[0], rotations, ended, within);
        if !is_killed {
            longest = longest.max(took);
        }
    }
    product.wait_synced().unwrap();
    let more = product.kubelet_starts(&nodes[0]).unwrap() - starts;
    println!(
        "{updates} updates, {rotations} rotations and {kills} kills in {} s: no mismatch, back within {} ms, {more} kubelet starts",
        begun.elapsed().as_secs(),
        longest.as_millis(),
    );
    assert!(longest < AT_MOST || asked.is_some(), "{longest:?}");
    // Each update and each rotation changes the content in force once, and restarts are shared.
    let most = usize::try_from(updates + rotations).unwrap();
    assert!(more <= most, "{more} kubelet starts");
    let drifts = product.node_status(nodes[0].name()).unwrap()["drifts"].clone();
    // A syncer that was dead during the whole update can't know of it.
    assert!(
        drifts == 0 || kills > 0,
        "an update is no conflict: {drifts}"
    );
}

/// Kills a program on the node. Its pod is deleted as well: the kubelet would start it again later each time.
fn kill(cluster: &Cluster, node: &Node, is_controller: bool) -> bool {
    // The name of a process has at most 15 characters.
    let (namespace, program, labels) = if is_controller {
        ("globalps-system", "globalps-contro", String::new())
    } else {
        (
            "kube-system",
            "globalps-syncer",
            format!("-l name={SYNCER} "),
        )
    };
    let killed = node.exec(&["pkill", "-KILL", "-x", program]).unwrap();
    let on_node = format!("--field-selector=spec.nodeName={}", node.name());
    cluster.types(&format!(
        "delete pods -n {namespace} {labels}{on_node} --wait=false --grace-period=1"
    ));
    killed.status.success()
}

fn a_removal_in_the_middle_leaves_the_daemons_file(
    product: &Product,
    node: &Node,
    daemon: &mut MachineConfigDaemon,
) {
    let theirs = file(1000, 0o640);
    daemon.begin().unwrap();
    daemon.write(&theirs).unwrap();
    product.delete().unwrap();
    product.wait_clean().unwrap();
    daemon.compare(&theirs).unwrap();
    daemon.end().unwrap();
    sleep(SOON);
    daemon.compare(&theirs).unwrap();
    assert!(!node.kubelet_dir().join(".globalps").exists());
}
