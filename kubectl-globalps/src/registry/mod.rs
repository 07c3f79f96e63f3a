//! Asks a registry whether it takes credentials, as a node would, before any node has them.

mod advice;
mod challenge;
mod check;
mod endpoint;
mod error;
mod http;
pub(crate) mod name;
mod pull;
mod tls;

pub(crate) use advice::Purpose;
pub(crate) use check::{Checker, Verdict};
pub(crate) use endpoint::HUB;
pub(crate) use error::RegistryError;
pub(crate) use pull::{ImageName, Pull};
pub(crate) use tls::Trust;
