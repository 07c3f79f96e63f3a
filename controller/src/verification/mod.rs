//! Which registries to ask whether they accept the credentials, when, and what follows from their responses. Pure.

mod address;
mod ledger;
mod outcome;

pub(crate) use address::is_allowed;
pub(crate) use ledger::{Ledger, Question, Verified};
pub(crate) use outcome::Outcome;
