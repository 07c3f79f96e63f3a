//! A running program, and the lines that it prints.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Deadline for each line.
const DEADLINE: Duration = Duration::from_secs(60);

/// A program that is killed when this is dropped.
pub(super) struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    /// Reads its standard output and its standard error.
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (sender, lines) = channel();
        read(child.stdout.take().context("no output")?, sender.clone());
        read(child.stderr.take().context("no errors")?, sender);
        Ok(Self { child, lines })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for this many lines with this text.
    pub(super) fn wait_for(&mut self, text: &str, number: usize) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        let mut found = 0;
        while found < number {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.with_context(|| format!("{found} of {number} lines with `{text}`"))?;
            found += usize::from(line.contains(text));
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ignores a program that has exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
}
