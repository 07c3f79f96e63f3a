//! A cluster ends with the process that started it, however that ends. The reaper is a child of that
//! process, in a process group of its own; the end of the pipe between them is the order to take down.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::instance;
use crate::teardown::take_down;

const ARMED: &[u8] = b"armed";

pub(crate) struct Reaper(Child);

impl Reaper {
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let program = program()?;
        let child = Command::new(&program)
            .arg("reap")
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("could not start `{}`", program.display()))?;
        Ok(Self(child))
    }

    /// From now on the reaper takes the cluster down when this process ends.
    pub(crate) fn arm(&mut self) -> Result<()> {
        let order = self.0.stdin.as_mut().context("the reaper has no pipe")?;
        Ok(order.write_all(ARMED)?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends the reaper without its taking anything down.
    pub(crate) fn dismiss(mut self) -> Result<()> {
        let mut order = self.0.stdin.take().context("the reaper has no pipe")?;
        order.write_all(b"dismissed")?;
        drop(order);
        self.0.wait()?;
        Ok(())
    }
}

/// What `testcluster reap` does: waits for the end of its standard input, then takes the cluster down if
/// that was the last word, and the cluster is still the one it was started for.
pub fn reap(dir: &Path) -> Result<()> {
    let mut order = Vec::new();
    std::io::stdin().read_to_end(&mut order)?;
    if order == ARMED && instance::is_owner(dir, std::process::id())? {
        take_down(dir, true)?;
    }
    Ok(())
}

/// `testcluster`, which cargo builds beside every test of this package.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    if own.file_name().is_some_and(|name| name == "testcluster") {
        return Ok(own);
    }
    // A program is beside it, and a test one folder below.
    let mut folders = own.ancestors().skip(1).take(2);
    match folders.find_map(|folder| Some(folder.join("testcluster")).filter(|path| path.exists())) {
        Some(program) => Ok(program),
        None => bail!(
            "no `testcluster` beside `{}`: run `cargo build -p globalps-tests`",
            own.display()
        ),
    }
}
