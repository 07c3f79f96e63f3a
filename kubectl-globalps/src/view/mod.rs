//! From facts to what a user sees: rows, counts, findings, readiness.

pub(crate) mod check;
pub(crate) mod fleet;
pub(crate) mod old;
pub(crate) mod owner;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod why;
