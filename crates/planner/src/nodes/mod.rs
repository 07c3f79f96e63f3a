//! Plans which node gets which revision next. Pure.

mod abandoned;
pub mod absence;
mod assignments;
pub mod clock;
pub mod forget;
mod hold;
pub mod input;
pub mod labels;
pub mod members;
mod node;
mod outcome;
mod output;
pub mod plan;
#[cfg(test)]
pub(crate) mod plan_properties;
mod progress;
pub mod provider_paths;
mod reach;
mod received;
mod restore;
mod selection;
pub mod state;
pub mod syncers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod unsupported;
