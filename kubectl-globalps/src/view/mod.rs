//! Turns facts into output: rows, counts, findings, readiness.

pub(crate) mod check;
pub(crate) mod fleet;
pub(crate) mod follow;
pub(crate) mod following;
pub(crate) mod old;
pub(crate) mod outage;
pub(crate) mod owner;
pub(crate) mod running;
pub(crate) mod skipped;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod why;
