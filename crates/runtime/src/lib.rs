//! What every program of globalps needs to run beside a Kubernetes API server.

pub mod backoff;
pub mod bounds;
pub mod list_events;
pub mod list_watch;
pub mod memory;
pub mod object_watch;
#[cfg(feature = "process")]
pub mod process;
pub mod request;
