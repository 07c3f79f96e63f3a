//! Connects to a cluster like kubectl, and reads its state. Makes no judgements.

pub(crate) mod annotate;
pub(crate) mod attempts;
pub(crate) mod client;
mod clock;
pub(crate) mod controller;
pub(crate) mod create;
pub(crate) mod facts;
pub(crate) mod fleet;
pub(crate) mod hypershift;
pub(crate) mod installed;
pub(crate) mod kubeconfig;
pub(crate) mod member;
pub(crate) mod namespaces;
mod overrides;
pub(crate) mod params;
pub(crate) mod proxy;
mod renewal;
pub(crate) mod runtime;
pub(crate) mod served;
pub(crate) mod start;
pub(crate) mod syncers;

pub(crate) use client::Cluster;
pub(crate) use controller::{
    NOT_INSTALLED, Program, deployment, is_installed, must_watch, must_watch_if_known,
    must_watch_to_uninstall, not_installed, not_running, of_credentials, or_not_installed,
};
pub(crate) use facts::{FINALIZERS, Facts, Sight, node_secrets, waits_for};
pub(crate) use installed::{Installed, installed};
