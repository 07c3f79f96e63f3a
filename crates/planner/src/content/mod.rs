//! Merges the pull secrets into the one that the nodes get. Pure.

pub mod combine;
mod delivered;
pub mod digest;
pub mod expiry;
pub mod history;
pub mod resolve;
pub mod scope;
pub mod secret;
pub mod since;
pub mod source;
