//! User and password from flags, stdin or a prompt, by docker's rules.

use std::io::Read;

use globalps_dockerconfig::{Credential, Secret};

use crate::cli::Credentials;
use crate::error::{Failure, Result};
use crate::terminal::{Printer, prompt};

/// Longer than any registry's token. Prevents reading a large file that is piped in.
const MAX_BYTES: u64 = 64 * 1024;
/// A text may begin with this mark of its encoding, which is not part of the text.
const BYTE_ORDER_MARK: char = '\u{feff}';
const UTF8_HINT: &str = "save it as UTF-8, or paste it at the prompt";

/// User and password from flags and stdin, or from a prompt on a terminal.
pub(crate) fn credential(flags: &Credentials, printer: &Printer) -> Result<Credential> {
    let username = match &flags.username {
        Some(username) => username.clone(),
        None => prompt::text(
            "Username",
            &Failure::new(
                "the user is missing",
                "pass the user with `-u` and the password with `--password-stdin`",
            ),
        )?,
    };
    check_username(&username)?;
    let password = if flags.password_stdin {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| {
                Failure::new(
                    format!("the password could not be read from stdin: {error}"),
                    "pipe it in: `... --password-stdin < FILE`",
                )
            })?;
        from_stdin(bytes)?
    } else if let Some(password) = &flags.password {
        printer.warning("other users of this machine can see a password on the command line; use `--password-stdin` instead");
        check_password(Secret::new(password.as_str()))?
    } else {
        check_password(prompt::password(
            "Password",
            &Failure::new(
                format!("no password for user `{username}`, and no terminal for a prompt"),
                "pipe it in with `--password-stdin`",
            ),
        )?)?
    };
    Ok(Credential {
        username: Secret::new(username),
        password,
    })
}

/// Whether [`credential`] prompts for a password.
pub(crate) fn is_asked(flags: &Credentials) -> bool {
    !flags.password_stdin && flags.password.is_none() && prompt::can_ask()
}

fn check_username(username: &str) -> Result<()> {
    if username.is_empty() {
        return Err(Failure::new(
            "the user name is empty",
            "pass the user with `-u`",
        ));
    }
    if username.contains(':') {
        return Err(Failure::new(
            "a user name can't have a colon in it",
            "the user is the part before the colon; give the password with `--password-stdin`",
        ));
    }
    if username.contains(['\n', '\r']) {
        return Err(Failure::new(
            "a user name can't have a line break in it",
            "pass the user with `-u`",
        ));
    }
    if username.contains(['\0', BYTE_ORDER_MARK]) {
        return Err(Failure::new(
            "the user name has a byte order mark or a zero byte in it",
            "type it; the file or variable that it comes from is not plain UTF-8",
        ));
    }
    Ok(())
}

/// The input without one trailing newline, which `echo` and editors add.
fn from_stdin(bytes: Vec<u8>) -> Result<Secret> {
    const HINT: &str = "pipe in the password and nothing else";
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(Failure::new("the password from stdin is UTF-16", UTF8_HINT));
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Failure::new(
            "the input from stdin is too long for a password",
            HINT,
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new("the password from stdin is not UTF-8", HINT))?;
    let password = Secret::new(text);
    let text = password.expose();
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    check_password(Secret::new(text))
}

/// Rejects a password with several lines, except the JSON key file of a Google service account.
fn check_password(password: Secret) -> Result<Secret> {
    // Windows programs write the mark into files and pipes.
    let mark = BYTE_ORDER_MARK.to_string();
    let password = match password.expose().strip_prefix(mark.as_bytes()) {
        Some(rest) => Secret::new(rest),
        None => password,
    };
    let text = password.expose();
    if text.contains(&0) {
        return Err(Failure::new(
            "the password is UTF-16: it has zero bytes in it",
            UTF8_HINT,
        ));
    }
    if text.is_empty() {
        return Err(Failure::new(
            "the password is empty",
            "check that the file is not empty and the variable is set",
        ));
    }
    let is_key_file = text.trim_ascii_start().starts_with(b"{");
    if text.iter().any(|byte| b"\r\n".contains(byte)) && !is_key_file {
        return Err(Failure::new(
            "the password has a line break in it",
            "only one trailing newline is removed; is there a second or an empty line?",
        ));
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_line_ending_is_dropped_from_stdin() {
        for (text, expected) in [
            ("pass", Ok("pass")),
            ("pass\n", Ok("pass")),
            ("pass\r\n", Ok("pass")),
            ("pass\n\n", Err("the password has a line break in it")),
            (" pass ", Ok(" pass ")),
            ("p:a\ns", Err("the password has a line break in it")),
            ("pa\rss", Err("the password has a line break in it")),
            ("{\n\"key\": 1\n}\n", Ok("{\n\"key\": 1\n}")),
            ("", Err("the password is empty")),
            ("\n", Err("the password is empty")),
            ("\r\n", Err("the password is empty")),
            ("\u{feff}pass\r\n", Ok("pass")),
            ("\u{feff}", Err("the password is empty")),
            ("pa\u{feff}ss", Ok("pa\u{feff}ss")),
            ("\u{feff}{\n}", Ok("{\n}")),
            (
                "p\0a\0s\0s\0",
                Err("the password is UTF-16: it has zero bytes in it"),
            ),
            (
                "\0p\0a\0s\0s",
                Err("the password is UTF-16: it has zero bytes in it"),
            ),
        ] {
            let password = from_stdin(text.as_bytes().to_vec());
            let found = password.as_ref().map(Secret::expose);
            assert_eq!(
                found.map_err(|failure| failure.message.as_str()),
                expected.map(str::as_bytes),
                "{text:?}"
            );
        }
        for marked in [&b"\xff\xfep\0"[..], b"\xfe\xff\0p"] {
            let failure = from_stdin(marked.to_vec()).expect_err("it is UTF-16");
            assert_eq!(failure.message, "the password from stdin is UTF-16");
        }
        assert!(from_stdin(vec![0xff]).is_err());
        assert!(from_stdin(vec![b'x'; 70_000]).is_err());
    }

    #[test]
    fn a_user_name_that_no_registry_could_read_back_is_refused() {
        for (name, good) in [
            ("robot", true),
            ("org+robot", true),
            ("_json_key", true),
            ("", false),
            ("a:b", false),
            ("a\n", false),
            ("\u{feff}a", false),
            ("a\0", false),
        ] {
            assert_eq!(check_username(name).is_ok(), good, "{name:?}");
        }
    }
}
