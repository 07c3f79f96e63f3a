//! Runs a program on its own terminal, and reads what a user would see.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::secrecy::Search;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A pseudo-terminal with a program. Dropping this kills the program with all its children.
pub struct Terminal {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    child: Child,
    shown: Vec<u8>,
}

impl Terminal {
    /// Starts the program with this as its controlling terminal, so that Ctrl-C reaches it. Its environment is this
    /// process's plus the command's; `env_clear` on the command has no effect, because it cannot be detected.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Result<Self> {
        Self::start_with(Command::new("setsid"), command, columns, rows)
    }

    /// Like [`Self::start`], with only `TERM` and the command's environment.
    pub fn start_alone(command: &Command, columns: u16, rows: u16) -> Result<Self> {
        let mut session = Command::new("setsid");
        session.env_clear();
        Self::start_with(session, command, columns, rows)
    }

    fn start_with(
        mut session: Command,
        command: &Command,
        columns: u16,
        rows: u16,
    ) -> Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let size = Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&controller, size)?;
        let path = ptsname(&controller, Vec::new())?;
        let screen = File::options()
            .read(true)
            .write(true)
            .open(path.to_str()?)?;
        session
            .args(["--ctty", "--wait"])
            .arg(command.get_program())
            .args(command.get_args())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(screen.try_clone()?))
            .stdout(Stdio::from(screen.try_clone()?))
            .stderr(Stdio::from(screen));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        let child = session.spawn().context("could not run setsid")?;
        // The command holds the program's end of the terminal, and reading ends only when that is closed.
        drop(session);
        let keyboard = File::from(controller);
        let mut reader = keyboard.try_clone()?;
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of a terminal is an error, EIO.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            keyboard,
            output,
            child,
            shown: Vec::new(),
        })
    }

    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.keyboard.write_all(keys.as_bytes())?;
        Ok(())
    }

    /// Waits until the text appears. Returns all output up to then.
    pub fn wait_for(&mut self, text: &str, deadline: Duration) -> Result<String> {
        let end = Instant::now() + deadline;
        while !self.shown().contains(text) {
            match self
                .output
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(bytes) => self.shown.extend(bytes),
                Err(RecvTimeoutError::Timeout) => bail!("`{text}` was not shown: {}", self.shown()),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the program exited without `{text}`: {}", self.shown())
                }
            }
        }
        Ok(self.shown())
    }

    /// Waits until the terminal's echo is off.
    pub fn wait_hidden(&self, deadline: Duration) -> Result<()> {
        crate::until(
            "a terminal without an echo",
            deadline,
            Duration::from_millis(5),
            || {
                let modes = tcgetattr(&self.keyboard)?.local_modes;
                // The echo is off, but the terminal still edits lines.
                let hidden =
                    !modes.contains(LocalModes::ECHO) && modes.contains(LocalModes::ICANON);
                Ok(hidden.then_some(()))
            },
        )
    }

    /// Waits until the program exits. Returns its exit status and all output.
    pub fn end(mut self, deadline: Duration) -> Result<(Option<i32>, String)> {
        let end = Instant::now() + deadline;
        loop {
            match self
                .output
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(bytes) => self.shown.extend(bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the program does not exit: {}", self.shown())
                }
            }
        }
        let status = self.child.wait()?;
        Search::for_all().bytes("what a terminal showed", &self.shown)?;
        Ok((status.code(), self.shown()))
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An ended process has been waited for, and its id may be reused.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // It leads a session, and thus a process group, except in its first moments.
        if let Ok(Some(leader)) = self.child.id().try_into().map(Pid::from_raw) {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_is_dropped_runs_no_more() {
        let script = "trap '' HUP; sleep 600 & echo \"child $! of $$.\"; wait";
        let mut terminal = Terminal::start(&shell(script), 80, 24).unwrap();
        let shown = terminal.wait_for(".", SOON).unwrap();
        let numbers = shown.split(|c: char| !c.is_ascii_digit());
        let pids: Vec<&str> = numbers.filter(|word| !word.is_empty()).collect();
        assert_eq!(pids.len(), 2, "{shown}");
        drop(terminal);
        for pid in pids {
            let ended = || {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
                // The process may not have been waited for yet.
                Ok(status
                    .map_or(true, |status| status.contains("State:\tZ"))
                    .then_some(()))
            };
            crate::until("its end", SOON, Duration::from_millis(10), ended).unwrap();
        }
    }

    #[test]
    fn who_starts_alone_has_only_what_is_named() {
        let mut command = shell("env | grep -v '^PWD=\\|^SHLVL=\\|^_=' | sort");
        command.env("PATH", "/usr/bin:/bin");
        let terminal = Terminal::start_alone(&command, 80, 24).unwrap();
        let (code, shown) = terminal.end(SOON).unwrap();
        assert_eq!(code, Some(0));
        assert_eq!(shown, "PATH=/usr/bin:/bin\r\nTERM=xterm-256color\r\n");
    }
}
