//! Clients of other clusters.

mod bounds;
pub(crate) mod kubeconfig;
pub(crate) mod lean;
pub(crate) mod unreachable;
