//! Checks whether a registry accepts credentials, like a node would, and pushes images.
//!
//! The plugin uses it and, with `spec.verify`, the controller. Each provides its own TLS configuration.

mod challenge;
mod check;
mod endpoint;
mod error;
mod http;
mod name;
mod pull;
mod push;
mod url;

pub use check::{CheckOutcome, Checker};
pub use endpoint::HUB;
pub use error::{Peer, RegistryError, Why};
pub use http::Connection;
pub use name::{public_images, registry_name};
pub use pull::{ImageName, Pull};
pub use push::{Pushed, Repository};
