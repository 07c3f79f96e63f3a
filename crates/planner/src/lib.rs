//! The decisions about nodes, namespaces, operators and clusters, from snapshots of their state. Pure. See
//! `docs/architecture.md`.

#![cfg_attr(
    test,
    expect(clippy::too_many_lines, reason = "tables of cases are long")
)]

pub mod clusters;
pub mod content;
pub mod namespaces;
pub mod nodes;
pub mod openshift;
pub mod operators;
#[cfg(any(test, feature = "testing"))]
pub mod properties;
pub mod refused;
pub mod targets;
