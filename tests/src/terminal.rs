//! A real pseudo-terminal with a program on it, and somebody who types.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::until;

const DEADLINE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    program: Child,
}

impl Terminal {
    /// Starts the program with the terminal as its standard input, output and error.
    pub fn start(command: &mut Command) -> Result<Self> {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&keyboard)?;
        unlockpt(&keyboard)?;
        let name = ptsname(&keyboard, Vec::new())?;
        let programs_end = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits().cast_signed())
            .open(name.to_str()?)?;
        let keyboard = File::from(keyboard);
        let program = command
            .stdin(programs_end.try_clone()?)
            .stdout(programs_end.try_clone()?)
            .stderr(programs_end)
            .spawn()
            .context("could not start the program")?;
        // It holds the program's end open as long as it lives.
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (shown, mut source) = (Arc::clone(&screen), keyboard.try_clone()?);
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            // An error is how the end of a terminal looks.
            while let Ok(read @ 1..) = source.read(&mut part) {
                shown.lock().unwrap().extend_from_slice(&part[..read]);
            }
        });
        Ok(Self {
            keyboard,
            screen,
            reader,
            program,
        })
    }

    /// Waits until this is on the screen.
    pub fn wait_for(&self, text: &str) -> Result<()> {
        until(&format!("`{text}` on the screen"), DEADLINE, POLL, || {
            Ok(self.shown().contains(text).then_some(()))
        })
    }

    /// Waits until what is typed is not shown.
    pub fn wait_hidden(&self) -> Result<()> {
        until("a terminal without an echo", DEADLINE, POLL, || {
            let modes = tcgetattr(&self.keyboard)?.local_modes;
            // The echo is off, and the line is still the terminal's to edit.
            let hidden = !modes.contains(LocalModes::ECHO) && modes.contains(LocalModes::ICANON);
            Ok(hidden.then_some(()))
        })
    }

    /// Types a line.
    pub fn enter(&mut self, text: &str) -> Result<()> {
        Ok(self.keyboard.write_all(format!("{text}\n").as_bytes())?)
    }

    /// Waits for the program's end: its exit status, and all that was on the screen.
    pub fn end(mut self) -> Result<(Option<i32>, String)> {
        let status = until("the end of the program", DEADLINE, POLL, || {
            Ok(self.program.try_wait()?)
        })?;
        let _ = self.reader.join();
        Ok((
            status.code(),
            String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned(),
        ))
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }
}
