//! Delivery into namespaces: plans Secrets and references. Pure.

pub mod clock;
pub mod digest;
pub mod identity;
pub mod input;
pub mod ownership;
pub mod plan;
mod references;
mod stage;
pub mod summary;
pub mod views;
