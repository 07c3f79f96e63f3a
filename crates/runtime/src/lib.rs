//! What every program of globalps needs to run beside a Kubernetes API server.

pub mod backoff;
