//! The plan for many clusters: which one gets which revision of a `FleetPullSecret`, and what is written into it. Pure.

pub(crate) mod identity;
pub(crate) mod input;
pub(crate) mod installation;
pub(crate) mod member;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod revision;
pub(crate) mod shard;
