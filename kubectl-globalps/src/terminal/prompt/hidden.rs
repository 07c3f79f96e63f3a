//! A line from a terminal without echo. Ctrl-C ends the program, so it must not do so while the echo is off: for that
//! time it ends the line instead, and the terminal still edits lines.

use std::io::{self, BufRead, Write as _};
use std::os::fd::AsFd;

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcsetattr};

use crate::terminal::escapes::plain;

/// A special code that no key has.
const NO_KEY: u8 = if cfg!(any(target_os = "linux", target_os = "android")) {
    0
} else {
    0xff
};

/// `None`: Ctrl-C, and a program around this one ignores that signal.
pub(super) fn line(question: &str) -> io::Result<Option<String>> {
    let mut output = io::stderr();
    output.write_all(format!("{}: ", plain(question)).as_bytes())?;
    let terminal = io::stdin();
    let answer = read(&terminal, &mut terminal.lock());
    // The echo of the line's end is missing.
    output.write_all(b"\n")?;
    let answer = answer?;
    if answer.is_none() {
        kill_process(getpid(), Signal::INT)?;
    }
    Ok(answer)
}

/// `None`: Ctrl-C or Ctrl-\. The terminal is as before in any case.
fn read(terminal: &impl AsFd, input: &mut impl BufRead) -> io::Result<Option<String>> {
    let before = tcgetattr(terminal)?;
    let interrupts =
        [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT].map(|index| before.special_codes[index]);
    tcsetattr(terminal, OptionalActions::Flush, &hidden(&before))?;
    let line = until_end(input, interrupts);
    tcsetattr(terminal, OptionalActions::Flush, &before)?;
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

/// The line without its end; `None`: one of these keys ended it.
fn until_end(input: &mut impl BufRead, interrupts: [u8; 2]) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let Some(byte) = input.fill_buf()?.first().copied() else {
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
            let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
            grantpt(&keyboard).expect("granted");
            unlockpt(&keyboard).expect("unlocked");
            let path = ptsname(&keyboard, Vec::new()).expect("a name");
            let terminal = path.to_str().ok().and_then(|path| {
                let mut options = File::options();
                options.read(true).write(true).open(path).ok()
            });
            let terminal = terminal.expect("a terminal");
            let before = tcgetattr(&terminal).expect("modes");
            let reader = terminal.try_clone().expect("a terminal");
            let reading = std::thread::spawn(move || {
                let mut input = BufReader::new(reader.try_clone()?);
                read(&reader, &mut input)
            });
            let modes = || tcgetattr(&terminal).expect("modes");
            let deadline = Instant::now() + Duration::from_secs(10);
            while modes().local_modes.contains(LocalModes::ECHO) {
                assert!(Instant::now() < deadline, "the echo stays");
                std::thread::sleep(Duration::from_millis(1));
            }
            rustix::io::write(&keyboard, typed.as_bytes()).expect("typed");
            let found = reading.join().expect("an end").expect("a line");
            assert_eq!(found.as_deref(), expected, "{typed:?}");
            let after = modes();
            assert_eq!(after.local_modes, before.local_modes, "{typed:?}");
            let intr = SpecialCodeIndex::VINTR;
            assert_eq!(after.special_codes[intr], before.special_codes[intr]);
        }
    }
}
