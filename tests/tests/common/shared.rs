//! A cluster that the tests of a file share, one at a time. So each behaviour is a test of its own, without the half
//! minute that a cluster and an installation take.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use globalps_tests::product::{CONFIG, DEADLINE, Product};
use globalps_tests::secrecy::Search;
use globalps_tests::{Cluster, Node, until};

use super::cluster;

/// Started by the first test that asks for it; it ends with the test program.
pub struct Shared {
    name: &'static str,
    nodes: u8,
    state: Mutex<State>,
}

struct State {
    /// `None` at first, and after a test that failed.
    cluster: Option<Cluster>,
    started: u32,
}

impl Shared {
    pub const fn new(name: &'static str, nodes: u8) -> Self {
        let state = State {
            cluster: None,
            started: 0,
        };
        Self {
            name,
            nodes,
            state: Mutex::new(state),
        }
    }

    /// Runs a test with globalps installed, the default configuration and nothing in force. A test that fails, or that
    /// adds nodes, takes the cluster with it: the next test has a new one.
    pub fn run(&self, test: impl FnOnce(&Cluster, &Product, &[Node])) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = state.cluster.take().unwrap_or_else(|| {
            state.started += 1;
            // Under the same name the logs of the one before would go.
            let cluster = cluster(&format!("{}-{}", self.name, state.started), self.nodes);
            Product::install(&cluster).unwrap();
            cluster
        });
        let product = Product::attach(&cluster);
        test(&cluster, &product, &cluster.nodes().unwrap());
        if cluster.nodes().unwrap().len() == usize::from(self.nodes) {
            Search::for_all().cluster(&cluster).unwrap();
            reset(&cluster, &product);
            state.cluster = Some(cluster);
        }
    }
}

/// Everything goes, then the configuration: the controller creates the default one.
fn reset(cluster: &Cluster, product: &Product) {
    for node in cluster.nodes().unwrap() {
        node.wait_ready(DEADLINE).unwrap();
    }
    product.delete().unwrap();
    product.wait_clean().unwrap();
    cluster
        .kubectl(&["delete", CONFIG, "--namespace=kube-system"])
        .unwrap();
    until(
        "the default GlobalPullSecret",
        DEADLINE,
        Duration::from_millis(100),
        || Ok((!product.get(CONFIG)?.is_null()).then_some(())),
    )
    .unwrap();
}
