//! Programs that the tasks run.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use globalps_testkit::run::shown;
pub use globalps_testkit::run::step;

/// Standard output of a program. The error contains its standard error.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = shown(command);
    let ran = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not run `{name}`"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        bail!("`{name}` failed ({}): {}", ran.status, said.trim());
    }
    Ok(ran.stdout)
}

/// Standard output as text, without spaces around it.
pub fn text(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8(output(command)?)?.trim().to_owned())
}

/// Runs a program and drops its output unless it fails.
pub fn quiet(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}
