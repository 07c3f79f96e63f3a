//! Reads a line from a terminal without echo. While the echo is off, Ctrl-C must not end the program: it ends the line
//! instead. The terminal still edits lines. SIGTERM restores the echo before it ends the program.

use std::io::{self, BufRead, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcsetattr};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::terminal::escapes::plain;

/// A value that no key produces.
const NO_KEY: u8 = if cfg!(any(target_os = "linux", target_os = "android")) {
    0
} else {
    0xff
};

/// Exit status that a shell reports after SIGINT or SIGTERM.
const INTERRUPTED: i32 = 128 + 2;
const TERMINATED: i32 = 128 + 15;

/// The terminal whose echo is off, with its previous modes.
#[derive(Clone, Default)]
struct Silenced(Arc<Mutex<Option<(OwnedFd, Termios)>>>);

impl Silenced {
    /// `None`: the echo is on.
    fn set(&self, terminal: Option<(OwnedFd, Termios)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = terminal;
    }

    /// Installs a permanent handler: SIGTERM restores the echo and calls `end`, which ends the program. A signal
    /// handler can't be removed.
    fn on_term(&self, end: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // Needs a thread of its own, because the command's thread blocks on the keyboard.
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let mut term = {
            let _entered = runtime.enter();
            signal(SignalKind::terminate())?
        };
        let silenced = self.clone();
        std::thread::spawn(move || {
            runtime.block_on(term.recv());
            let terminal = silenced.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((terminal, before)) = &*terminal {
                let _ = tcsetattr(terminal, OptionalActions::Flush, before);
                let _ = io::stderr().write_all(b"\n");
            }
            end();
        });
        Ok(())
    }
}

#[expect(clippy::exit, reason = "a signal ends the program")]
fn exit(code: i32) -> ! {
    std::process::exit(code)
}

/// Reads a line; Ctrl-C ends the program.
pub(super) fn line(question: &str) -> io::Result<String> {
    let silenced = Silenced::default();
    silenced.on_term(|| exit(TERMINATED))?;
    let mut output = io::stderr();
    output.write_all(format!("{}: ", plain(question)).as_bytes())?;
    let terminal = io::stdin();
    let answer = read(&terminal, &mut terminal.lock(), &silenced);
    // The newline that the user typed was not echoed.
    output.write_all(b"\n")?;
    if let Some(answer) = answer? {
        return Ok(answer);
    }
    kill_process(getpid(), Signal::INT)?;
    // The process may have been started with the signal ignored.
    exit(INTERRUPTED)
}

/// `None` after Ctrl-C or Ctrl-\. Restores the terminal's modes in any case.
fn read(
    terminal: &impl AsFd,
    input: &mut impl BufRead,
    silenced: &Silenced,
) -> io::Result<Option<String>> {
    let before = tcgetattr(terminal)?;
    let interrupts =
        [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT].map(|index| before.special_codes[index]);
    let own = terminal.as_fd().try_clone_to_owned()?;
    silenced.set(Some((own, before.clone())));
    tcsetattr(terminal, OptionalActions::Flush, &hidden(&before))?;
    let line = until_end(input, interrupts);
    tcsetattr(terminal, OptionalActions::Flush, &before)?;
    silenced.set(None);
    line?
        .map(|line| String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into()))
        .transpose()
}

fn hidden(before: &Termios) -> Termios {
    let mut hidden = before.clone();
    hidden.local_modes -= LocalModes::ECHO;
    for (signal, end) in [
        (SpecialCodeIndex::VINTR, SpecialCodeIndex::VEOL),
        (SpecialCodeIndex::VQUIT, SpecialCodeIndex::VEOL2),
    ] {
        hidden.special_codes[end] = before.special_codes[signal];
        hidden.special_codes[signal] = NO_KEY;
    }
    hidden
}

/// Reads up to the newline, which is dropped; `None` if one of the interrupt keys ended the line.
fn until_end(input: &mut impl BufRead, interrupts: [u8; 2]) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let byte = match input.fill_buf() {
            // For example, another thread handled a signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?.first().copied(),
        };
        let Some(byte) = byte else {
            return Ok(Some(line));
        };
        input.consume(1);
        match byte {
            b'\n' => {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(line));
            }
            byte if byte != NO_KEY && interrupts.contains(&byte) => return Ok(None),
            byte => line.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::fs::File;
    use std::io::BufReader;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn the_echo_is_back_however_the_line_ends() {
        for (typed, expected) in [
            ("pass\n", Some("pass")),
            ("pasx\u{7f}s\n", Some("pass")),
            ("\u{4}", Some("")),
            ("pa\u{3}", None),
            ("\u{1c}", None),
        ] {
            let (keyboard, terminal) = pair();
            let modes = || tcgetattr(&terminal).expect("modes");
            let before = modes();
            let reading = reading(&terminal, Silenced::default());
            rustix::io::write(&keyboard, typed.as_bytes()).expect("typed");
            let found = reading.join().expect("an end").expect("a line");
            assert_eq!(found.as_deref(), expected, "{typed:?}");
            let after = modes();
            assert_eq!(after.local_modes, before.local_modes, "{typed:?}");
            let intr = SpecialCodeIndex::VINTR;
            assert_eq!(after.special_codes[intr], before.special_codes[intr]);
        }
    }

    #[test]
    fn the_echo_is_back_when_the_program_is_terminated() {
        let (keyboard, terminal) = pair();
        let modes = || tcgetattr(&terminal).expect("modes");
        let before = modes();
        let silenced = Silenced::default();
        let (ended, end) = mpsc::channel();
        let sent = silenced.on_term(move || ended.send(()).unwrap_or_default());
        sent.expect("a handler");
        let reading = reading(&terminal, silenced);
        kill_process(getpid(), Signal::TERM).expect("sent");
        end.recv_timeout(Duration::from_secs(10)).expect("an end");
        assert_eq!(modes().local_modes, before.local_modes);
        rustix::io::write(&keyboard, b"\n").expect("typed");
        reading.join().expect("an end").expect("a line");
    }

    /// A pseudo-terminal: keyboard and terminal.
    fn pair() -> (OwnedFd, File) {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keyboard).expect("granted");
        unlockpt(&keyboard).expect("unlocked");
        let path = ptsname(&keyboard, Vec::new()).expect("a name");
        let terminal = path.to_str().ok().and_then(|path| {
            let mut options = File::options();
            options.read(true).write(true).open(path).ok()
        });
        (keyboard, terminal.expect("a terminal"))
    }

    /// Reads in a thread. Returns once the echo is off.
    fn reading(
        terminal: &File,
        silenced: Silenced,
    ) -> std::thread::JoinHandle<io::Result<Option<String>>> {
        let reader = terminal.try_clone().expect("a terminal");
        let reading = std::thread::spawn(move || {
            let mut input = BufReader::new(reader.try_clone()?);
            read(&reader, &mut input, &silenced)
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        let has_echo = || {
            let modes = tcgetattr(terminal).expect("modes");
            modes.local_modes.contains(LocalModes::ECHO)
        };
        while has_echo() {
            assert!(Instant::now() < deadline, "the echo stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        reading
    }
}
