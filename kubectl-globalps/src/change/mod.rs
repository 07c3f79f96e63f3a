//! A change of a pull secret: what it does, shown and confirmed before it is written.

pub(crate) mod forget;
pub(crate) mod logins;
pub(crate) mod preview;
pub(crate) mod restarts;
pub(crate) mod restore_configuration;
pub(crate) mod restore_intent;
pub(crate) mod source;
pub(crate) mod source_state;
pub(crate) mod waiting_pods;
