//! The plan for many clusters: which cluster gets which revision of a `FleetPullSecret`, and what the hub writes into it. Pure.

mod assignments;
pub(crate) mod clock;
pub(crate) mod desired;
mod earlier;
pub(crate) mod hidden;
pub(crate) mod identity;
pub(crate) mod input;
pub(crate) mod installation;
pub(crate) mod known;
pub(crate) mod limits;
pub(crate) mod member;
pub(crate) mod member_report;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod revision;
pub(crate) mod shard;
pub(crate) mod target;
pub(crate) mod text;
pub(crate) mod trust;
