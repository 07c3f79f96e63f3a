//! Runs a program to its end.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::secrecy::{self, Search};

/// Result of a program.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program to its end with this standard input. Fails if its output contains a credential.
pub fn run(command: &mut Command, input: &str) -> Result<Ran> {
    let is = |wanted: &str| command.get_args().any(|word| word == wanted);
    if is("--password-stdin") {
        secrecy::remember(input.trim_end());
    }
    // Only this command is requested to show credentials.
    let shows_secrets = (is("yaml") || is("json"))
        && command
            .get_args()
            .any(|word| word.to_string_lossy().starts_with("--dry-run"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!(
                "could not run {}",
                Path::new(command.get_program()).display()
            )
        })?;
    let mut pipe = child.stdin.take().context("no pipe")?;
    if let Err(error) = pipe.write_all(input.as_bytes())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        bail!("could not write standard input: {error}");
    }
    drop(pipe);
    let output = child.wait_with_output()?;
    let program = command.get_program().to_string_lossy();
    let all = Search::for_all();
    if !shows_secrets {
        all.bytes(&format!("the output of `{program}`"), &output.stdout)?;
    }
    all.bytes(&format!("the messages of `{program}`"), &output.stderr)?;
    Ok(Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a program whose output shows progress.
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

/// The program and its first argument.
pub fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let first = command.get_args().next();
    first.map_or_else(
        || program.clone(),
        |first| format!("{program} {}", first.to_string_lossy()),
    )
}
