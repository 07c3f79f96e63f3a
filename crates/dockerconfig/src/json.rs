//! JSON as Go's `encoding/json` reads it, because both readers of the file use it: strings may contain any bytes, an unpaired
//! surrogate is one character, members may repeat, and 10,000 levels are allowed. Nothing here recurses, so deep input can't
//! overflow the stack.

use zeroize::Zeroizing;

/// Maximum nesting depth in Go.
const MAX_DEPTH: usize = 10_000;

/// Byte offset at which the text stops being JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) offset: usize,
}

/// Validated JSON without surrounding white space.
#[derive(Clone, Copy)]
pub(super) struct Json<'a>(&'a [u8]);

/// A member of an object, and where it is in the object's text.
pub(super) struct Span<'a> {
    pub(super) name: String,
    /// Of its name.
    pub(super) start: usize,
    /// Of its value.
    pub(super) at: usize,
    pub(super) value: Json<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl<'a> Json<'a> {
    /// Parses a text that contains exactly one value.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, SyntaxError> {
        let mut scanner = Scanner { text, at: 0 };
        scanner.space();
        let start = scanner.at;
        scanner.value()?;
        let end = scanner.at;
        scanner.space();
        if scanner.at < text.len() {
            return Err(SyntaxError { offset: scanner.at });
        }
        Ok(Self(&text[start..end]))
    }

    pub(super) fn kind(self) -> Kind {
        match self.0.first() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            _ => Kind::Number,
        }
    }

    /// The members of an object in order, including repeated ones; empty for other values.
    pub(super) fn members(self) -> impl Iterator<Item = (String, Json<'a>)> {
        self.spans().map(|span| (span.name, span.value))
    }

    /// The same, with their places in the text.
    pub(super) fn spans(self) -> impl Iterator<Item = Span<'a>> {
        let mut scanner = Scanner {
            text: if self.kind() == Kind::Object {
                self.0
            } else {
                b""
            },
            at: 1,
        };
        std::iter::from_fn(move || {
            scanner.space();
            if scanner.peek() == Some(b',') {
                scanner.at += 1;
                scanner.space();
            }
            let start = scanner.at;
            scanner.string().ok()?;
            let name = unquote(&scanner.text[start..scanner.at]);
            scanner.space();
            scanner.at += 1;
            scanner.space();
            let value = scanner.at;
            scanner.value().ok()?;
            Some(Span {
                name,
                start,
                at: value,
                value: Json(&scanner.text[value..scanner.at]),
            })
        })
    }

    /// The text as it is written.
    pub(super) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text of a string; `None` for any other type.
    pub(super) fn text(self) -> Option<String> {
        (self.kind() == Kind::String).then(|| unquote(self.0))
    }

    /// The value as text without white space. Invalid UTF-8 becomes U+FFFD, as in Go.
    pub(super) fn compact(self) -> String {
        let mut bytes = Vec::with_capacity(self.0.len());
        let (mut quoted, mut escaped) = (false, false);
        for &byte in self.0 {
            if !quoted && is_space(byte) {
                continue;
            }
            match byte {
                b'"' if !escaped => quoted = !quoted,
                _ => {}
            }
            escaped = quoted && byte == b'\\' && !escaped;
            bytes.push(byte);
        }
        replace_invalid(&bytes)
    }
}

/// An object with these members as compact JSON; the values are JSON text, and may be secret.
pub(super) fn object<K: AsRef<str>, V: AsRef<str>>(
    members: impl IntoIterator<Item = (K, V)>,
) -> Zeroizing<String> {
    let mut text = Zeroizing::new("{".to_owned());
    for (at, (name, value)) in members.into_iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        text.push_str(&quote(name.as_ref()));
        text.push(':');
        text.push_str(value.as_ref());
    }
    text.push('}');
    text
}

/// A string as JSON text.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Replaces each invalid UTF-8 byte with one U+FFFD.
fn replace_invalid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Decodes a string literal. An unpaired surrogate becomes U+FFFD.
fn unquote(literal: &[u8]) -> String {
    let inner = &literal[1..literal.len() - 1];
    if !inner.contains(&b'\\') {
        return replace_invalid(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        text.push_str(&replace_invalid(&rest[..at]));
        rest = &rest[at..];
        let (character, length) = escape(rest);
        text.push(character);
        rest = &rest[length..];
    }
    text.push_str(&replace_invalid(rest));
    text
}

/// Decodes the escape at the start of the text; returns the character and the length of the escape.
fn escape(text: &[u8]) -> (char, usize) {
    match text[1] {
        b'b' => ('\u{8}', 2),
        b'f' => ('\u{c}', 2),
        b'n' => ('\n', 2),
        b'r' => ('\r', 2),
        b't' => ('\t', 2),
        b'u' => {
            let first = hex4(text).unwrap_or_default();
            if let Some(character) = char::from_u32(first) {
                return (character, 6);
            }
            // A high surrogate counts only if the low surrogate follows immediately.
            match (first, hex4(&text[6..])) {
                (0xd800..0xdc00, Some(second @ 0xdc00..0xe000)) => {
                    let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    (
                        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                        12,
                    )
                }
                _ => (char::REPLACEMENT_CHARACTER, 6),
            }
        }
        other => (char::from(other), 2),
    }
}

/// The number of the `\uXXXX` at the start of the text.
fn hex4(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn fail<T>(&self) -> Result<T, SyntaxError> {
        Err(SyntaxError { offset: self.at })
    }

    fn expect(&mut self, wanted: &[u8]) -> Result<(), SyntaxError> {
        for byte in wanted {
            if self.peek() != Some(*byte) {
                return self.fail();
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Skips one value.
    fn value(&mut self) -> Result<(), SyntaxError> {
        // The closing byte of each open container.
        let mut open: Vec<u8> = Vec::new();
        loop {
            // A value starts here, unless the container that was just opened is empty.
            match self.peek() {
                Some(byte @ (b'{' | b'[')) => {
                    if open.len() == MAX_DEPTH {
                        return self.fail();
                    }
                    self.at += 1;
                    self.space();
                    // In ASCII, `]` and `}` come two positions after `[` and `{`.
                    let closing = byte + 2;
                    open.push(closing);
                    if self.peek() != Some(closing) {
                        if byte == b'{' {
                            self.name()?;
                        }
                        continue;
                    }
                    self.at += 1;
                    open.pop();
                }
                Some(b'"') => self.string()?,
                Some(b't') => self.expect(b"true")?,
                Some(b'f') => self.expect(b"false")?,
                Some(b'n') => self.expect(b"null")?,
                _ => self.number()?,
            }
            // A value ended: close the containers that end here, then continue with the next value.
            loop {
                let Some(closing) = open.last().copied() else {
                    return Ok(());
                };
                self.space();
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        self.space();
                        if closing == b'}' {
                            self.name()?;
                        }
                        break;
                    }
                    Some(byte) if byte == closing => {
                        self.at += 1;
                        open.pop();
                    }
                    _ => return self.fail(),
                }
            }
        }
    }

    /// A member's name and colon.
    fn name(&mut self) -> Result<(), SyntaxError> {
        self.string()?;
        self.space();
        self.expect(b":")?;
        self.space();
        Ok(())
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        self.expect(b"\"")?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                            self.at += 1;
                        }
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                                    return self.fail();
                                }
                                self.at += 1;
                            }
                        }
                        _ => return self.fail(),
                    }
                }
                Some(0x20..) => self.at += 1,
                _ => return self.fail(),
            }
        }
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            self.fail()
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_json_is_accepted() {
        for text in [
            &b" null "[..],
            b"-0.1e+5",
            b"1e999",
            b"\"\\ud800\"",
            b"\"\xff\xfe\"",
            b"[]",
            b"{}",
            b"[[],{}, [1 , 2]]",
            br#"{"a":1,"a":{"b":[null,true,false]}}"#,
        ] {
            assert!(
                Json::parse(text).is_ok(),
                "{}",
                String::from_utf8_lossy(text)
            );
        }
        for (text, offset) in [
            (&b""[..], 0),
            (b"   ", 3),
            (b"\xef\xbb\xbf{}", 0),
            (b"{} x", 3),
            (b"{,}", 1),
            (b"[1,]", 3),
            (b"{\"a\":1,}", 7),
            (b"{\"a\"}", 4),
            (b"{a:1}", 1),
            (b"01", 1),
            (b"-", 1),
            (b"1.", 2),
            (b"nul", 3),
            (b"\"\\x\"", 2),
            (b"\"\\u12g4\"", 5),
            (b"\"a\nb\"", 2),
            (b"\"a", 2),
            (b"[}", 1),
        ] {
            assert_eq!(
                Json::parse(text).err(),
                Some(SyntaxError { offset }),
                "{}",
                String::from_utf8_lossy(text)
            );
        }
    }

    #[test]
    fn nesting_is_limited_and_never_overflows_the_stack() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(Json::parse(&nested(MAX_DEPTH)).is_ok());
        assert!(Json::parse(&nested(MAX_DEPTH + 1)).is_err());
        assert!(Json::parse(&vec![b'['; 1 << 20]).is_err());
    }

    #[test]
    fn strings_decode_as_in_go() {
        for (text, expected) in [
            (&br#""a\/b\n\u0041""#[..], "a/b\nA"),
            (br#""\ud83d\ude00""#, "\u{1f600}"),
            (br#""\ud800x""#, "\u{fffd}x"),
            (br#""\ud800\ud800\udc00""#, "\u{fffd}\u{10000}"),
            (br#""\udc00""#, "\u{fffd}"),
            (b"\"\xe2\x82x\"", "\u{fffd}\u{fffd}x"),
        ] {
            assert_eq!(Json::parse(text).unwrap().text().unwrap(), expected);
        }
    }

    #[test]
    fn members_keep_their_order_and_repeat() {
        let json = Json::parse(br#" { "b" : [ 1 , " x " ] , "a":{} , "b":null } "#).unwrap();
        let members: Vec<_> = json
            .members()
            .map(|(name, value)| (name, value.compact()))
            .collect();
        let expected = [("b", r#"[1," x "]"#), ("a", "{}"), ("b", "null")];
        assert_eq!(
            members,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
