//! Clients of other clusters.

pub(crate) mod bounds;
pub(crate) mod kubeconfig;
pub(crate) mod lean;
pub(crate) mod unreachable;
