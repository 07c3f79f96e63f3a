//! Other clusters than this one.

pub(crate) mod kubeconfig;
pub(crate) mod unreachable;
