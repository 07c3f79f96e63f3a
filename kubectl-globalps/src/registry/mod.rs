//! Names of registries, and what the shared check of credentials needs here: trust in certificates, messages and hints.

mod advice;
pub(crate) mod name;
mod tls;

pub(crate) use advice::{Purpose, failure, missing_flag};
pub(crate) use tls::{Trust, checker};
