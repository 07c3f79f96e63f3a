//! Removes a cluster when the process that started it ends, for whatever reason. The reaper is a child of that process,
//! in its own process group. When the pipe between them closes, it removes the cluster.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::instance;
use crate::teardown::take_down;

const NAME: &str = "testkit";
const ARMED: &[u8] = b"armed";

pub(crate) struct Reaper(Child);

impl Reaper {
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let program = program()?;
        let child = Command::new(&program)
            .args(["cluster", "reap"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("could not start `{}`", program.display()))?;
        Ok(Self(child))
    }

    /// Makes the reaper remove the cluster when this process ends.
    pub(crate) fn arm(&mut self) -> Result<()> {
        let order = self.0.stdin.as_mut().context("the reaper has no pipe")?;
        Ok(order.write_all(ARMED)?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends the reaper; the cluster stays.
    pub(crate) fn dismiss(mut self) -> Result<()> {
        let mut order = self.0.stdin.take().context("the reaper has no pipe")?;
        order.write_all(b"dismissed")?;
        drop(order);
        self.0.wait()?;
        Ok(())
    }
}

/// Implements `testkit cluster reap`: waits for the end of standard input. Then removes the cluster if the reaper was armed
/// and this process still owns the cluster.
pub fn reap(dir: &Path) -> Result<()> {
    let mut order = Vec::new();
    std::io::stdin().read_to_end(&mut order)?;
    if order == ARMED && instance::is_owner(dir, std::process::id())? {
        take_down(dir, true)?;
    }
    Ok(())
}

/// The program `testkit`, which may be this program.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    // Next to a program, or in the parent directory of a test.
    let mut paths = own.ancestors().skip(1).take(2).map(|it| it.join(NAME));
    paths.find(|path| path.exists()).with_context(|| {
        let own = own.display();
        format!("no `{NAME}` next to `{own}`: run `cargo build --bin {NAME}`")
    })
}
