//! What a power cut leaves on a disk: records the operations of a running program, and computes every state in which a
//! file system may be after a power cut between any two of them.

mod disk;
mod pending;
mod trace;
mod tree;

pub use disk::{CrashStates, Disk, Op, crash_states};
pub use trace::{SYSCALLS, operations};
pub use tree::{Attributes, Tree};
