//! Definitions that several globalps programs share: names of objects, custom resources, the catalogue of reasons, and
//! the rollout's rules.
//!
//! Nothing here does I/O: plain data in, plain data out.

#[expect(missing_docs, reason = "its sentences are those of `kubectl explain`")]
pub mod api;
pub mod backoff;
pub mod checksum;
pub mod decode;
pub mod hypershift;
#[cfg(feature = "kubeconfig")]
pub mod kubeconfig;
pub mod labels;
pub mod machine_config;
pub mod names;
pub mod namespaces;
pub mod phase;
pub mod reasons;
pub mod references;
pub mod rollout;
pub mod state;
pub mod virtual_nodes;
