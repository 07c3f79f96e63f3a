//! Turns facts into output: rows, counts, findings, readiness.

pub(crate) mod commands;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod hypershift;
pub(crate) mod listing;
pub(crate) mod members;
pub(crate) mod migration;
pub(crate) mod namespaces;
pub(crate) mod old;
pub(crate) mod status;
pub(crate) mod table;
