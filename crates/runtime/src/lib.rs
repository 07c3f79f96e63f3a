//! The code that all programs of globalps need to work with a Kubernetes API server.

pub mod backoff;
pub mod bounds;
pub mod list_events;
pub mod list_watch;
pub mod memory;
pub mod object_watch;
#[cfg(feature = "process")]
pub mod process;
pub mod request;
