//! Merges the pull secrets into the one that the nodes get. Pure.

pub(crate) mod combine;
mod delivered;
pub(crate) mod digest;
pub(crate) mod expiry;
pub(crate) mod history;
pub(crate) mod resolve;
pub(crate) mod scope;
pub(crate) mod secret;
pub(crate) mod since;
pub(crate) mod source;
