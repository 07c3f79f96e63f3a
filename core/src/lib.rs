//! What two or more programs of globalps must agree on: the names of shared objects, the custom
//! resources, what a registry credentials file means, which node may change next, and the manifests.
//!
//! Nothing here does I/O: plain data in, plain data out.

// Tables of cases are long, and their tuples are as wide as the sentence needs.
#![cfg_attr(test, allow(clippy::too_many_lines, clippy::type_complexity))]

pub mod api;
pub mod dockerconfig;
#[cfg(feature = "kubeconfig")]
pub mod kubeconfig;
pub mod manifests;
pub mod names;
pub mod namespaces;
pub mod phase;
pub mod provider;
pub mod references;
pub mod rollout;
