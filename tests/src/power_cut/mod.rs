//! What a power cut leaves on a disk: the operations of a program, recorded as it runs, and every state of the disk
//! that a file system may come up with after a cut between any two of them.

mod disk;
mod pending;
mod trace;
mod tree;

pub use disk::{CrashStates, Disk, Op, crash_states};
pub use trace::{SYSCALLS, operations};
pub use tree::{Attributes, Tree};
