//! JSON as text, including text that no JSON library would write.

use super::draw::Draw;
use super::kind::Kind;

/// Placeholder for an escaped lone surrogate, or for a pair escaped in an unusual way.
pub(super) const SURROGATE: &str = "\u{e000}";
/// Placeholder for bytes that are not UTF-8.
pub(super) const INVALID_UTF8: &str = "\u{e001}";

const SURROGATES: [&str; 9] = [
    "\\ud800",
    "\\udc00",
    "\\uDFFF",
    "\\ud800\\ud800",
    "\\udc00\\ud800",
    "\\ud800\\u0041",
    "\\ud83d\\ude00",
    "\\ud800\\n",
    "\\ud83d\u{1f433}",
];

const NO_UTF8: [&[u8]; 8] = [
    b"\xff",
    b"\x80",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xe2\x82",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xc3",
];

/// The text as a JSON string: mostly literal, sometimes with unnecessary escapes.
pub(super) fn string(draw: &mut Draw, text: &str) -> String {
    // Share of the characters to escape: none, some or all.
    let share = match draw.below(40) {
        0 => 1,
        1 => 3,
        _ => usize::MAX,
    };
    if share != usize::MAX && !text.is_empty() {
        draw.note(Kind::JsonEscapes);
    }
    let mut out = String::from("\"");
    for character in text.chars() {
        let special = character == '"' || character == '\\' || character < ' ';
        if character.to_string() == SURROGATE {
            out.push_str(draw.pick(&SURROGATES));
        } else if special || (share != usize::MAX && draw.one_in(share)) {
            escape(draw, character, &mut out);
        } else {
            out.push(character);
        }
    }
    out.push('"');
    out
}

fn escape(draw: &mut Draw, character: char, out: &mut String) {
    let short = match character {
        '"' => Some("\\\""),
        '\\' => Some("\\\\"),
        '/' => Some("\\/"),
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        '\t' => Some("\\t"),
        _ => None,
    };
    match short {
        Some(short) if draw.one_in(2) => out.push_str(short),
        _ => {
            let upper = draw.one_in(2);
            for unit in character.encode_utf16(&mut [0; 2]) {
                let escape = if upper {
                    format!("\\u{unit:04X}")
                } else {
                    format!("\\u{unit:04x}")
                };
                out.push_str(&escape);
            }
        }
    }
}

/// A member name that Go's decoder may match with the field, because it ignores case.
pub(super) fn field(draw: &mut Draw, name: &str) -> String {
    let name = match draw.below(40) {
        0 => {
            draw.note(Kind::FieldCase);
            let case = |letter: char| {
                if draw.one_in(2) {
                    letter.to_ascii_uppercase()
                } else {
                    letter.to_ascii_lowercase()
                }
            };
            name.chars().map(case).collect()
        }
        1 if name.contains(['s', 'k']) => {
            draw.note(Kind::FieldFolded);
            name.replace('s', "\u{17f}").replace('k', "\u{212a}")
        }
        2 if draw.one_in(4) => {
            draw.note(Kind::FieldAlmost);
            let mut name = name.to_owned();
            let piece = draw.pick(&[
                " ",
                "\0",
                "_",
                "s",
                "\u{131}",
                "\u{200b}",
                INVALID_UTF8,
                SURROGATE,
            ]);
            draw.insert(&mut name, piece);
            name
        }
        _ => name.to_owned(),
    };
    string(draw, &name)
}

/// White space that JSON allows between tokens; mostly none.
pub(super) fn space(draw: &mut Draw) -> &'static str {
    match draw.below(30) {
        0 => {
            draw.note(Kind::JsonSpace);
            draw.pick(&[" ", "\n", "\t", "\r\n", " \t\n  "])
        }
        _ => "",
    }
}

/// An object with these members, which are JSON already, each `"name":value`.
pub(super) fn object(draw: &mut Draw, members: &[String]) -> String {
    let mut out = String::from("{");
    for (at, member) in members.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(space(draw));
        out.push_str(member);
    }
    out.push_str(space(draw));
    out.push('}');
    out
}

/// A member of an object; its name is JSON already.
pub(super) fn member(draw: &mut Draw, name: &str, value: &str) -> String {
    let (before, after) = (space(draw), space(draw));
    format!("{name}{before}:{after}{value}")
}

/// The bytes of the text, with the placeholders replaced.
pub(super) fn bytes(draw: &mut Draw, text: &str) -> Vec<u8> {
    let mut parts = text.split(INVALID_UTF8);
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        out.extend_from_slice(draw.pick(&NO_UTF8));
        out.extend_from_slice(part.as_bytes());
    }
    out
}

/// A valid JSON value of a type that the field does not have.
pub(super) fn other_type(draw: &mut Draw) -> &'static str {
    draw.pick(&[
        "1",
        "0",
        "-0.0",
        "1e999",
        "12345678901234567890123",
        "true",
        "false",
        "[]",
        "[\"a\"]",
        "{}",
        "{\"a\":1}",
        "[null]",
    ])
}

/// Nested arrays or objects; Go's decoder allows a depth of 10,000.
pub(super) fn nested(depth: usize, objects: bool) -> String {
    if objects {
        format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
    } else {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }
}
