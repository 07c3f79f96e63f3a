//! Probes, metrics and the instrumented client.

pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod metrics;
#[cfg(test)]
mod monitoring_tests;
pub(crate) mod probes;
