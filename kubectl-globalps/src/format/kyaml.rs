//! KYAML as `kubectl -o kyaml` prints it: YAML in flow style, with every string quoted. Pure.

use serde_json::Value;

/// A document with its start marker.
pub(crate) fn document(value: &Value) -> String {
    let mut text = "---\n".to_owned();
    write(value, 0, &mut text);
    text.push('\n');
    text
}

fn write(value: &Value, depth: usize, to: &mut String) {
    match value {
        Value::String(text) => quote(text, depth + 1, to),
        Value::Array(items) if items.is_empty() => to.push_str("[]"),
        // Brackets of nested lists and objects share a line.
        Value::Array(items) if items.iter().all(|it| it.is_array() || it.is_object()) => {
            for (at, item) in items.iter().enumerate() {
                to.push_str(if at == 0 { "[" } else { ", " });
                write(item, depth, to);
            }
            to.push(']');
        }
        Value::Array(items) => {
            to.push_str("[\n");
            for item in items {
                indent(depth + 1, to);
                write(item, depth + 1, to);
                to.push_str(",\n");
            }
            indent(depth, to);
            to.push(']');
        }
        Value::Object(fields) if fields.is_empty() => to.push_str("{}"),
        Value::Object(fields) => {
            to.push_str("{\n");
            for (key, value) in fields {
                indent(depth + 1, to);
                if is_clear(key) {
                    to.push_str(key);
                } else {
                    quote_on_one_line(key, to);
                }
                to.push_str(": ");
                write(value, depth + 1, to);
                to.push_str(",\n");
            }
            indent(depth, to);
            to.push('}');
        }
        other => to.push_str(&other.to_string()),
    }
}

fn indent(depth: usize, to: &mut String) {
    to.push_str(&"  ".repeat(depth));
}

/// Each line of the string is on a line of its own that ends with a backslash.
fn quote(text: &str, depth: usize, to: &mut String) {
    if !text.contains('\n') {
        to.push('"');
        text.chars().for_each(|next| push(next, to));
        to.push('"');
        return;
    }
    to.push_str("\"\\\n");
    for line in text.split_inclusive('\n') {
        indent(depth, to);
        // YAML drops leading white space of a line, except after a backslash.
        let is_indented = line.starts_with(|c: char| c.is_whitespace() && c != '\n');
        to.push(if is_indented { '\\' } else { ' ' });
        line.trim_end_matches('\n')
            .chars()
            .for_each(|next| push(next, to));
        to.push_str(if line.ends_with('\n') {
            "\\n\\\n"
        } else {
            "\\\n"
        });
    }
    indent(depth, to);
    to.push('"');
}

fn quote_on_one_line(text: &str, to: &mut String) {
    to.push('"');
    for next in text.chars() {
        match next {
            '\n' => to.push_str("\\n"),
            '\t' => to.push_str("\\t"),
            next => push(next, to),
        }
    }
    to.push('"');
}

fn push(next: char, to: &mut String) {
    let escaped = match next {
        '"' | '\\' => Some(next),
        '\0' => Some('0'),
        '\x07' => Some('a'),
        '\x08' => Some('b'),
        '\x0b' => Some('v'),
        '\x0c' => Some('f'),
        '\r' => Some('r'),
        '\x1b' => Some('e'),
        '\u{85}' => Some('N'),
        '\u{a0}' => Some('_'),
        '\u{2028}' => Some('L'),
        '\u{2029}' => Some('P'),
        _ => None,
    };
    let number = u32::from(next);
    let shown = match (escaped, number) {
        (Some(letter), _) => format!("\\{letter}"),
        _ if next == '\t' || is_printable(next) => next.to_string(),
        (_, ..0x80) => format!("\\x{number:02x}"),
        (_, ..0x1_0000) => format!("\\u{number:04x}"),
        _ => format!("\\U{number:08x}"),
    };
    to.push_str(&shown);
}

/// A letter, mark, number, symbol or the space, by the standard library's definition: only these are not escaped inside a string.
fn is_printable(next: char) -> bool {
    let text: String = ['a', next].iter().collect();
    next == '\'' || text.escape_debug().eq(text.chars())
}

/// Whether every YAML parser reads the unquoted key as a string.
fn is_clear(key: &str) -> bool {
    const WORDS: [&str; 11] = [
        "null", "true", "false", "t", "f", "y", "yes", "n", "no", "on", "off",
    ];
    let is_inside = |at: usize| at > 0 && at + 1 < key.chars().count();
    let mut characters = key.chars().enumerate();
    let has_plain_characters = characters.all(|(at, next)| {
        next.is_alphanumeric() || next == '_' || (is_inside(at) && "-./".contains(next))
    });
    has_plain_characters
        && !key.is_empty()
        && !WORDS.contains(&key.to_lowercase().as_str())
        && !is_number(&key.replace('_', ""))
        && !is_date(key)
}

/// A number in any notation of YAML or Go. Signs and colons are excluded already.
fn is_number(text: &str) -> bool {
    let lower = text.to_lowercase();
    let of_base = |prefix: &str, radix: u32| {
        let digits = lower.strip_prefix(prefix);
        digits.is_some_and(|digits| i64::from_str_radix(digits, radix).is_ok())
    };
    text.parse::<f64>().is_ok() || of_base("0x", 16) || of_base("0o", 8) || of_base("0b", 2)
}

/// For example `2026-1-2`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let lengths = year.len() == 4 && month.len() <= 2 && day.len() <= 2;
    let date = (year.parse(), month.parse(), day.parse());
    let (Ok(year), Ok(month), Ok(day)) = date else {
        return false;
    };
    lengths && jiff::civil::Date::new(year, month, day).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubectl prints: `tests/tests/output.rs` compares it with kubectl itself.
    const CASES: [&str; 2] = [
        include_str!("cases/kyaml.json"),
        include_str!("cases/kyaml.yaml"),
    ];

    #[test]
    fn documents_are_those_of_kubectl() {
        let [value, expected] = CASES;
        let value: Value = serde_json::from_str(value).expect("JSON");
        assert_eq!(document(&value), expected);
    }

    #[test]
    fn a_document_means_the_value() {
        let [value, text] = CASES;
        let value: Value = serde_json::from_str(value).expect("JSON");
        let back: Value = serde_saphyr::from_str(text).expect("YAML");
        assert_eq!(back, value);
    }

    /// kubectl fails on some of them, or prints different ones.
    #[test]
    fn no_control_character_is_left() {
        let value = Value::from("a\u{7f}\u{80}\u{85}\u{feff}\u{e000}");
        let text = document(&value);
        assert_eq!(text, "---\n\"a\\x7f\\u0080\\N\\ufeff\\ue000\"\n");
    }
}
