//! What unit tests share: a fake API server and registry, and the pages that are generated from the command line.

pub(crate) mod examples;
pub(crate) mod fake_api;
pub(crate) mod fake_objects;
pub(crate) mod fake_registry;
pub(crate) mod printed;
mod reference;
