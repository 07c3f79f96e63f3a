//! Following a rollout: watches change the facts, and a table or lines show them, until a goal, a deadline or Ctrl-C.

pub(crate) mod clusters;
pub(crate) mod live;
pub(crate) mod nodes;
mod outage;
pub(crate) mod running;
pub(crate) mod skipped;
