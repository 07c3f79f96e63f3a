//! A cluster that the tests of a file share, one test at a time. Each behaviour can be a test of its own, without the
//! half minute that a cluster and an installation take.

use std::sync::{Mutex, PoisonError};

use globalps_testkit::product::{CONFIG, DEADLINE, Product};
use globalps_testkit::secrecy::Search;
use globalps_testkit::{Cluster, Node};

use super::cluster;

/// A cluster, globalps on it, and its nodes.
pub type Fleet<'a> = (&'a Cluster, &'a Product<'a>, &'a [Node]);

/// Started by the first test; removed when the test program ends.
pub struct Shared {
    name: &'static str,
    nodes: u8,
    state: Mutex<State>,
}

struct State {
    /// `None` before the first test, and after a failed one.
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

    /// Runs a test with globalps installed, the default configuration and no content in effect. A test that fails, adds
    /// nodes or leaves one down also ends the cluster: the next test gets a new one.
    pub fn run(&self, test: impl FnOnce(Fleet)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = state.cluster.take().unwrap_or_else(|| {
            state.started += 1;
            // A new name, because the same name would overwrite the logs of the previous cluster.
            let cluster = cluster(&format!("{}-{}", self.name, state.started), self.nodes);
            Product::install(&cluster).unwrap();
            cluster
        });
        let product = Product::attach(&cluster);
        test((&cluster, &product, &cluster.nodes().unwrap()));
        Search::for_all().cluster(&cluster).unwrap();
        let nodes = cluster.nodes().unwrap();
        let up = nodes.iter().filter(|node| node.is_running().unwrap());
        if nodes.len() == usize::from(self.nodes) && up.count() == nodes.len() {
            reset(&cluster, &product);
            state.cluster = Some(cluster);
        }
    }
}

/// Deletes everything, including the configuration: the controller creates the default one when needed.
fn reset(cluster: &Cluster, product: &Product) {
    for node in cluster.nodes().unwrap() {
        node.wait_ready(DEADLINE).unwrap();
    }
    product.delete().unwrap();
    product.wait_clean().unwrap();
    cluster.types(&format!(
        "delete {CONFIG} --namespace=kube-system --ignore-not-found"
    ));
}

/// Turns each function into a `#[test]` of the same name, in the module `on_a_shared_cluster`.
#[allow(unused_macros, reason = "not every test file needs it")]
macro_rules! tests_on {
    ($shared:ident, $($test:ident;)*) => {
        mod on_a_shared_cluster {
            $(
                #[test]
                fn $test() {
                    super::$shared.run(super::$test);
                }
            )*
        }
    };
}
#[allow(unused_imports, reason = "not every test file needs it")]
pub(crate) use tests_on;
