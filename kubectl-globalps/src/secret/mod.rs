//! The additional pull secret and the effects of its changes. Pure.

pub(crate) mod additional;
pub(crate) mod changes;
pub(crate) mod effects;
pub(crate) mod findings;
pub(crate) mod history;
pub(crate) mod migration;
pub(crate) mod openshift;
pub(crate) mod pace;
pub(crate) mod scope;
