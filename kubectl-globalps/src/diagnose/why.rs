//! Why pods can't pull their images: the facts about each pod, the likely cause, and the command that fixes it. Pure.

mod adding;
mod answer;
mod cause;
mod commands;
mod facts;
mod failing;
mod groups;
mod named;
mod not_synced;
mod of_node;
mod of_pod;
mod other;
mod waiting;

pub(crate) use adding::{Adding, Live};
pub(crate) use answer::{Explained, PodAnswer};
pub(crate) use cause::{Evidence, Tested};
pub(crate) use commands::CommandTarget;
pub(crate) use facts::{Lag, PodSeen};
pub(crate) use failing::{Failing, SANDBOX, Said, Use, failing};
pub(crate) use groups::Groups;
pub(crate) use named::is_same_image;
pub(crate) use other::not_an_image;
pub(crate) use waiting::{Added, Waiting, summary, untouched};
