//! How content takes effect on the node.

pub(crate) mod config_file;
pub(crate) mod credential_provider;
mod restart;
pub(crate) mod transaction;
pub(crate) mod writes;
