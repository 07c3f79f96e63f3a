//! Delivery into namespaces: plans Secrets and references. Pure.

pub(crate) mod clock;
pub(crate) mod digest;
pub(crate) mod identity;
pub(crate) mod input;
pub(crate) mod ownership;
pub(crate) mod plan;
mod references;
mod stage;
pub(crate) mod summary;
pub(crate) mod views;
