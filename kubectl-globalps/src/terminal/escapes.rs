//! Escapes untrusted text for a terminal: control characters are shown instead of sent. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Keeps newlines and tabs; shows an escape character as `\x1b`.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    shown(text, |character| !"\n\t".contains(character))
}

/// Like [`plain`], for text that must stay on one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    shown(text, |_| true)
}

/// Joins texts, one line each. Untrusted text, such as a runtime's message or a user's name, can't begin a line of its own.
pub(crate) fn lines(all: &[String]) -> String {
    let all: Vec<_> = all.iter().map(|text| line(text)).collect();
    all.join("\n")
}

/// Like [`plain`], but keeps this program's own colors. Untrusted text must have passed through [`line`] before.
pub(crate) fn painted(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut shown = plain(pieces.next().unwrap_or_default()).into_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit() && c != ';');
        let (code, rest) = piece.split_at(end.unwrap_or(piece.len()));
        if rest.starts_with('m') {
            shown.extend(["\x1b[", code]);
        } else {
            shown.extend(["\\x1b[", code]);
        }
        shown.push_str(&plain(rest));
    }
    shown
}

/// Escapes control characters in JSON. `serde_json` leaves those above U+007E unescaped.
pub(crate) fn json(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if character.is_control() && character > '~' {
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

fn shown(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |character: char| character.is_control() && is_escaped(character);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for character in text.chars() {
        if is_bad(character) {
            // Writing to a string can't fail.
            let _ = write!(shown, "\\x{:02x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown() {
        for (text, of_lines, of_line) in [
            ("naïve `a`…", "naïve `a`…", "naïve `a`…"),
            ("a\n\tb", "a\n\tb", "a\\x0a\\x09b"),
            ("\x1b]0;x\x07", "\\x1b]0;x\\x07", "\\x1b]0;x\\x07"),
            (
                "a\rb\u{9b}2J\x7f",
                "a\\x0db\\x9b2J\\x7f",
                "a\\x0db\\x9b2J\\x7f",
            ),
        ] {
            assert_eq!(
                (plain(text).as_ref(), line(text).as_ref()),
                (of_lines, of_line)
            );
        }
    }

    #[test]
    fn colors_stay_and_nothing_else_does() {
        for (text, expected) in [
            ("\x1b[32mok\x1b[0m\n", "\x1b[32mok\x1b[0m\n"),
            ("\x1b[38;5;10mok\x1b[39m", "\x1b[38;5;10mok\x1b[39m"),
            ("\x1b[2J\x1b[31", "\\x1b[2J\\x1b[31"),
            ("\x1b]52;c;x\x07\x1b", "\\x1b]52;c;x\\x07\\x1b"),
        ] {
            assert_eq!(painted(text), expected);
        }
    }

    #[test]
    fn json_means_the_same() {
        let text = serde_json::json!({"a": "\x1b[2J\u{9b}2J\x7fü"});
        let shown = json(&format!("{text:#}"));
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n'),
            "{shown:?}"
        );
        let back: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(back, text);
    }

    #[test]
    fn yaml_means_the_same() {
        let value = serde_json::json!({"a": "\x1b[2J\u{9b}2J\x7fü"});
        let text = serde_saphyr::to_string(&value).expect("YAML");
        let shown = plain(&text);
        let back: serde_json::Value = serde_saphyr::from_str(&shown).expect("YAML");
        assert_eq!(back, value, "{shown:?}");
    }
}
