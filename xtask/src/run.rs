//! Programs that the tasks run.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a program whose output is progress.
pub fn step(command: &mut Command) -> Result<()> {
    let name = shown(command);
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("could not run `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

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

/// Program and first argument.
fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let first = command.get_args().next();
    first.map_or_else(
        || program.clone(),
        |first| format!("{program} {}", first.to_string_lossy()),
    )
}
