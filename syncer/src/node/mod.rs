//! The node: its files, journal, systemd and kubelet. Knows nothing of the cluster.

pub(crate) mod directory_watch;
pub(crate) mod drift;
pub(crate) mod file;
mod forgetting;
pub(crate) mod journal;
pub(crate) mod kubelet;
pub(crate) mod lock;
pub(crate) mod managed;
pub(crate) mod provider;
pub(crate) mod replace;
pub(crate) mod state;
pub(crate) mod systemd;
mod units;
