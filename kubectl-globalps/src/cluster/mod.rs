//! The cluster: connections as kubectl makes them, and what is read of it. No judgement here.

pub(crate) mod annotate;
pub(crate) mod client;
mod clock;
pub(crate) mod controller;
pub(crate) mod facts;
pub(crate) mod hypershift;
pub(crate) mod installed;
pub(crate) mod kubeconfig;
pub(crate) mod namespaces;
mod overrides;
pub(crate) mod params;
pub(crate) mod proxy;
mod renewal;
pub(crate) mod start;
pub(crate) mod syncers;
