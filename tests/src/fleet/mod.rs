//! A fleet that no machine could hold: thousands of Node objects without a node, and a syncer for each that asks the API
//! server what a real one asks, and waits where a real one restarts its kubelet. API server, etcd and controller are real.

mod capacity;
mod hub_capacity;
mod hub_steps;
mod member;
mod member_api;
mod meter;
mod nodes;
mod rotation;
mod stage;
mod syncers;

pub mod clusters;
pub mod delivery_soak;
pub mod fit;
pub mod hub_soak;
pub mod hub_stage;
pub mod kills;
pub mod lies;
pub mod members;
pub mod namespaces;
pub mod plugin;

use std::time::Duration;

use anyhow::Result;

pub use meter::{Requests, Usage};

/// What a kubelet needs to come back.
pub const RESTART: Duration = Duration::from_millis(500);

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub nodes: usize,
    /// How long nothing is done, to see what the controller does then.
    pub idle: Duration,
    /// A rotation of one node at a time is followed for so long at most; the rest of it is computed.
    pub one_at_a_time: Duration,
}

/// A rotation of all nodes.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// From the write of the additional Secret until the controller says `Ready`.
    pub time: Duration,
    /// The least number of restarts of a kubelet, one after the other, that the limit allows.
    pub waves: usize,
    pub requests: Requests,
    /// What the controller used meanwhile.
    pub processor: Duration,
}

/// All that is known about a fleet of one size.
#[derive(Clone, Debug)]
pub struct Figures {
    pub nodes: usize,
    /// The very first one, with which the objects of all nodes come to be.
    pub first: Rotation,
    /// A tenth of the nodes at a time.
    pub tenth: Rotation,
    /// By the credential provider, which restarts nothing.
    pub in_place: Rotation,
    /// Time a node, one at a time, and how many of them it was seen on.
    pub one_at_a_time: (Duration, usize),
    /// Requests a second of a rotation's mix that this API server answers while all the watches are open.
    pub capacity: f64,
    /// Requests of the controller while nothing happened, by verb and resource, and in how many minutes.
    pub idle: (Vec<(String, usize)>, f64),
    pub idle_processor: Duration,
    /// Of the controller, after its first start, and after everything.
    pub fresh: Usage,
    pub last: Usage,
}

impl Figures {
    /// No rotation could be faster: there are so many restarts one after the other, and so many requests to be answered.
    pub fn floor(&self, rotation: &Rotation) -> Duration {
        let waves = RESTART * u32::try_from(rotation.waves).unwrap_or(u32::MAX);
        #[allow(clippy::cast_precision_loss)]
        let answers = rotation.requests.of_rotation() as f64 / self.capacity;
        waves.max(Duration::from_secs_f64(answers))
    }
}

/// Brings a control plane up, with that many nodes, and takes all the figures.
pub fn measure(options: &Options) -> Result<Figures> {
    let stage = stage::Stage::up(options.nodes)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(rotation::measure(&stage, options))
}
