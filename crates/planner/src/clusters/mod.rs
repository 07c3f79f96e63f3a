//! The plan for many clusters: which cluster gets which revision of a `FleetPullSecret`, and what the hub writes into it. Pure.

mod assignments;
pub mod clock;
pub mod desired;
mod earlier;
pub mod hidden;
pub mod identity;
pub mod input;
pub mod installation;
pub mod known;
pub mod limits;
pub mod member;
pub mod member_report;
pub mod plan;
pub mod progress;
pub mod revision;
pub mod shard;
pub mod target;
pub mod text;
pub mod trust;
