//! Plans which node gets which revision next. Pure.

mod abandoned;
pub(crate) mod absence;
mod assignments;
mod bootstrap;
pub(crate) mod clock;
pub(crate) mod forget;
mod hold;
pub(crate) mod input;
pub(crate) mod labels;
pub(crate) mod members;
mod node;
mod outcome;
pub(crate) mod plan;
#[cfg(test)]
pub(crate) mod plan_properties;
mod progress;
pub(crate) mod provider_paths;
mod received;
mod revision;
mod selection;
pub(crate) mod syncers;
pub(crate) mod unsupported;
