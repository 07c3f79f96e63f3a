//! Plans which node gets which revision next. Pure.

mod abandoned;
pub mod absence;
mod assignments;
pub mod clock;
mod course;
pub mod forget;
pub mod input;
pub mod labels;
pub mod members;
mod node;
mod observed;
pub mod plan;
#[cfg(test)]
pub(crate) mod plan_properties;
mod progress;
pub mod provider_paths;
mod received;
mod selection;
pub mod state;
pub mod syncers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod unsupported;
mod written;
