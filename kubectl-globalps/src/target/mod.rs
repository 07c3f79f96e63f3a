//! What a command acts on: the pull secrets of a cluster, a member cluster, and the wait for their rollout.

pub(crate) mod clusters;
pub(crate) mod fleet_history;
pub(crate) mod history;
pub(crate) mod member;
pub(crate) mod openshift;
pub(crate) mod pull_secret;
pub(crate) mod wait;
pub(crate) mod wait_clusters;
