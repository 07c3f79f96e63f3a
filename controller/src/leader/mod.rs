//! Who leads: the election by a Lease, and the fencing token that every write needs.

pub(crate) mod election;
pub(crate) mod fencing;
