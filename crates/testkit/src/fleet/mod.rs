//! A fleet that no machine could run: thousands of Node objects without nodes. For each, a simulated syncer makes the requests of
//! a real one, and sleeps while a real one would restart its kubelet. API server, etcd and controller are real.

mod capacity;
mod hub_capacity;
mod hub_steps;
mod live;
mod member;
mod meter;
mod nodes;
mod objects;
mod observed;
mod rotation;
mod stage;
mod syncers;

pub mod advice;
pub mod clocks;
pub mod clusters;
pub mod delivery_soak;
pub mod exhaustion;
pub mod fit;
pub mod forgers;
pub mod hub_soak;
pub mod hub_stage;
pub mod kills;
pub mod lies;
pub mod members;
pub mod namespaces;
pub mod observe;
pub mod odd_values;
pub mod openshift;
pub mod plugin;
pub mod refused_writes;
pub mod tenant;

use std::time::Duration;

use anyhow::Result;

pub use meter::{Requests, Usage};
pub use observed::Seen;

/// How long a kubelet takes to restart.
pub const RESTART: Duration = Duration::from_millis(500);

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub nodes: usize,
    /// How long to measure the idle controller.
    pub idle: Duration,
    /// Maximum duration of the rotation of one node at a time; the rest is extrapolated.
    pub one_at_a_time: Duration,
}

/// A rotation of all nodes.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// From the write of the additional Secret until the controller reports `Ready`.
    pub time: Duration,
    /// The minimum number of consecutive kubelet restarts that the limit allows.
    pub waves: usize,
    pub requests: Requests,
    /// CPU time of the controller during the rotation.
    pub processor: Duration,
}

/// All results for a fleet of one size.
#[derive(Clone, Debug)]
pub struct Figures {
    pub nodes: usize,
    /// The first rollout, which creates the objects of all nodes.
    pub first: Rotation,
    /// A rotation of a tenth of the nodes at a time.
    pub tenth: Rotation,
    /// A rotation with the credential provider, which restarts nothing.
    pub in_place: Rotation,
    /// Time per node if one node changes at a time, and the number of measured nodes.
    pub one_at_a_time: (Duration, usize),
    /// Requests per second, in a rotation's mix, that this API server processes while all watches are open.
    pub capacity: f64,
    /// The idle controller's requests by verb and resource, and the length of the measurement in minutes.
    pub idle: (Vec<(String, usize)>, f64),
    pub idle_processor: Duration,
    /// The controller after its first start, and at the end.
    pub fresh: Usage,
    pub last: Usage,
}

impl Figures {
    /// The minimum duration of a rotation, which its consecutive restarts and its requests need.
    pub fn floor(&self, rotation: &Rotation) -> Duration {
        let waves = RESTART * u32::try_from(rotation.waves).unwrap_or(u32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let answers = rotation.requests.of_rotation() as f64 / self.capacity;
        waves.max(Duration::from_secs_f64(answers))
    }
}

/// Runs the future to completion.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    runtime.block_on(work)
}

/// Starts a control plane with this many nodes, and takes all measurements.
pub fn measure(options: &Options) -> Result<Figures> {
    let stage = stage::Stage::up(options.nodes)?;
    block_on(rotation::measure(&stage, options))
}
