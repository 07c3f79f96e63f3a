//! Characters in a user or a password that most likely got there by accident.

use zeroize::Zeroizing;

use super::encoded::BYTE_ORDER_MARK;
use super::entry::Credential;

impl Credential {
    /// Characters that are most likely not part of the user or the password, although nodes send them. The text
    /// contains no part of either.
    pub fn stray_characters(&self) -> Option<String> {
        let parts = [("user", &self.username), ("password", &self.password)];
        let mut found = parts
            .into_iter()
            .filter_map(|(part, secret)| Some(format!("the {part} {}", stray(secret.expose())?)));
        found.next()
    }
}

fn stray(bytes: &[u8]) -> Option<&'static str> {
    let text = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
    // White space between the members of a Google service account's key file is harmless.
    let is_key_file = text.trim_start().starts_with('{');
    if text.contains('\0') {
        Some("contains zero bytes, as text in UTF-16 does")
    } else if text.contains(BYTE_ORDER_MARK) {
        Some("contains a byte order mark (U+FEFF)")
    } else if is_key_file {
        None
    } else if text.ends_with(['\n', '\r']) {
        Some("ends with a line break")
    } else if text.contains(['\n', '\r']) {
        Some("contains a line break")
    } else if text.trim().len() < text.len() {
        Some("begins or ends with white space")
    } else if text.contains(char::is_control) {
        Some("contains a control character")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn what_is_in_a_password_by_accident_is_named() {
        let utf16 =
            |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        let zero = Some("contains zero bytes, as text in UTF-16 does");
        let mark = Some("contains a byte order mark (U+FEFF)");
        let end = Some("ends with a line break");
        let space = Some("begins or ends with white space");
        for (text, expected) in [
            (b"hunter2".to_vec(), None),
            ("p\u{e4}ss word \u{1f433}!".into(), None),
            (b"\xff\xfe".to_vec(), None),
            (b"hunter2\n".to_vec(), end),
            (b"hunter2\r\n".to_vec(), end),
            (b"hunter2\r".to_vec(), end),
            (b"hunter2 \n\n".to_vec(), end),
            (b"hun\nter2".to_vec(), Some("contains a line break")),
            (b"\nhunter2".to_vec(), Some("contains a line break")),
            (b"hunter2 ".to_vec(), space),
            (b"\thunter2".to_vec(), space),
            ("hunter2\u{a0}".into(), space),
            ("hunter2\u{85}".into(), space),
            (
                b"hun\x1bter2".to_vec(),
                Some("contains a control character"),
            ),
            ("\u{feff}hunter2".into(), mark),
            ("hunter2\u{feff}".into(), mark),
            (utf16("hunter2"), zero),
            (utf16("\u{feff}hunter2"), zero),
            (b"hunter2\0\0".to_vec(), zero),
            (b"{\n\"type\": \"service_account\"\n}\n".to_vec(), None),
            ("\u{feff}{\n}".into(), mark),
            (utf16("{}"), zero),
        ] {
            assert_eq!(stray(&text), expected, "{text:?}");
        }
        let of = |user: &str, password: &str| {
            let credential = Credential {
                username: Secret::new(user),
                password: Secret::new(password),
            };
            credential.stray_characters()
        };
        let user = "the user contains a byte order mark (U+FEFF)".to_owned();
        assert_eq!(of("\u{feff}robot", "hunter2\n"), Some(user));
        let password = "the password ends with a line break".to_owned();
        assert_eq!(of("robot", "hunter2\n"), Some(password));
        assert_eq!(of("robot", "hunter2"), None);
    }
}
