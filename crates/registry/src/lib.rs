//! Asks a registry whether it accepts credentials, as a node would, and pushes images.
//!
//! Used by the plugin and, with `spec.verify`, by the controller. Each brings its own trust in certificates.

mod challenge;
mod check;
mod endpoint;
mod error;
mod http;
mod name;
mod pull;
mod push;
mod url;

pub use check::{Checker, Verdict};
pub use endpoint::HUB;
pub use error::{Peer, RegistryError, Why};
pub use http::Connection;
pub use name::{public_images, registry_name};
pub use pull::{ImageName, Pull};
pub use push::{Pushed, Repository};
