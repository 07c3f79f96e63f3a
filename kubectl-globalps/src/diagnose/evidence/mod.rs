//! Reads what the findings are about.

pub(crate) mod cluster;
pub(crate) mod delivered;
pub(crate) mod facts;
pub(crate) mod image;
pub(crate) mod keyrings;
pub(crate) mod namespaces;
pub(crate) mod pod;
pub(crate) mod pods;
pub(crate) mod registries;
