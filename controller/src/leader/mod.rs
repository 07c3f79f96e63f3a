//! Leader election by a Lease, and the fencing token without which no write starts.

pub(crate) mod election;
pub(crate) mod fencing;
pub(crate) mod leads;
mod lease;
pub(crate) mod lease_guard;
pub(crate) mod reconciling;
pub(crate) mod terms;
