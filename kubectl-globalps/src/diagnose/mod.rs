//! Why pods lack credentials, and what is wrong with an installation: evidence from the cluster (`evidence`), and what is found in it (pure).

pub(crate) mod check;
pub(crate) mod evidence;
pub(crate) mod owner;
pub(crate) mod pull;
pub(crate) mod tried;
pub(crate) mod why;
