//! What the controller exposes about itself: probes, metrics, counted API requests.

pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod metrics;
#[cfg(test)]
mod monitoring_tests;
pub(crate) mod probes;
