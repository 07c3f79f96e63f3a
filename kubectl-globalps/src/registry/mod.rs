//! Names of registries, and what the shared check of credentials needs here: trust in certificates, messages and hints.

mod advice;
pub(crate) mod archive;
pub(crate) mod name;
mod tls;

pub(crate) use advice::{Purpose, failure, failure_with, missing_flag, suspicion};
pub(crate) use tls::{Trust, checker};
