//! Delivery into namespaces: plans Secrets and references. Pure.

pub mod clock;
pub mod digest;
pub mod identity;
pub mod input;
pub mod ownership;
pub mod plan;
pub mod report;
mod stage;
pub mod views;
