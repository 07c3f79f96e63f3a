//! `testkit`: clusters of real nodes on one machine, and what runs on them.

use std::process::ExitCode;

fn main() -> ExitCode {
    globalps_testkit::commands::main()
}
