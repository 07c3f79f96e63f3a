//! Registries: their names, and what the plugin adds to the shared check: trusted certificates, messages and hints.

mod advice;
pub(crate) mod archive;
pub(crate) mod name;
mod tls;

pub(crate) use advice::{Purpose, failure, failure_with, missing_flag, suspicion};
pub(crate) use tls::{Trust, checker};
