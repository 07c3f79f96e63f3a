//! The objects of an installation: previewed, applied, and deleted without a trace.

pub(crate) mod delivery;
pub(crate) mod installer;
pub(crate) mod leftovers;
pub(crate) mod namespace_access;
pub(crate) mod object_changes;
pub(crate) mod objects;
pub(crate) mod operator_access;
pub(crate) mod preview;
pub(crate) mod settings;
pub(crate) mod uninstall_preview;
pub(crate) mod unreadable_configuration;
