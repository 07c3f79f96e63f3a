//! The objects that the controller writes, and the calls that write them.

pub(crate) mod agents;
pub(crate) mod apply;
pub(crate) mod helm;
pub(crate) mod managed;
pub(crate) mod namespaced;
pub(crate) mod operators;
pub(crate) mod pods;
pub(crate) mod recreate;
pub(crate) mod refusals;
mod request;
mod stored;
pub(crate) mod views;
