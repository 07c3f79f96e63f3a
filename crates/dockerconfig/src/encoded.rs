//! Base64 as Go reads it, and text that was encoded once more than its reader decodes.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::json::{Json, Kind};

/// Editors and shells of Windows write it at the start of a text.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Maximum number of times that a text is decoded to recognize it.
const MAX_TIMES: usize = 4;

/// Like Go, skips line breaks and ignores unused bits at the end. The error is the offset of the first byte that is not base64.
pub(super) fn decode_base64(text: &str, padded: bool) -> Result<Zeroizing<Vec<u8>>, usize> {
    let padding = if padded {
        DecodePaddingMode::RequireCanonical
    } else {
        DecodePaddingMode::RequireNone
    };
    let engine = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(padding),
    );
    let joined = Zeroizing::new(text.replace(['\r', '\n'], ""));
    engine
        .decode(joined.as_bytes())
        .map(Zeroizing::new)
        .map_err(|_| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte);
            text.bytes()
                .position(|byte| !allowed(byte))
                .unwrap_or(text.len())
        })
}

/// Whether a JSON string contains an object, as text or in base64.
pub(super) fn is_encoded_object(value: Json) -> bool {
    let text = value.text().map(Zeroizing::new);
    text.is_some_and(|text| is_object(&text) || is_base64_of_object(text.as_bytes()))
}

/// Whether the text is base64 of a JSON object.
pub(super) fn is_base64_of_object(text: &[u8]) -> bool {
    is_base64_of(text, is_object)
}

/// Whether the text is base64 of `user:password`.
pub(super) fn is_base64_of_pair(text: &[u8]) -> bool {
    is_base64_of(text, |text| text.contains(':'))
}

fn is_object(text: &str) -> bool {
    Json::parse(text.as_bytes()).is_ok_and(|value| value.kind() == Kind::Object)
}

/// Whether the text, decoded once or more, yields readable text that `is_wanted` accepts. Random bytes don't count.
fn is_base64_of(text: &[u8], is_wanted: impl Fn(&str) -> bool) -> bool {
    let mut text = Zeroizing::new(text.to_vec());
    for _ in 0..MAX_TIMES {
        let Ok(encoded) = str::from_utf8(text.trim_ascii()) else {
            return false;
        };
        let Ok(decoded) = decode_base64(encoded, encoded.ends_with('=')) else {
            return false;
        };
        let is_control = |character: char| character.is_control() && !character.is_whitespace();
        match str::from_utf8(&decoded) {
            Ok(plain) if !plain.contains(is_control) && is_wanted(plain) => return true,
            _ => text = decoded,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_base64_of_readable_text_counts_as_encoded_twice() {
        for (text, object, pair) in [
            // `{"a":"b"}`
            ("eyJhIjoiYiJ9", true, true),
            ("eyJhIjoi\r\nYiJ9\n", true, true),
            ("ZXlKaElqb2lZaUo5", true, true),
            // `robot:secret`, and without padding.
            ("cm9ib3Q6c2VjcmV0", false, true),
            ("dTpwYQ==", false, true),
            ("dTpwYQ", false, true),
            (" dTpwYQ== ", false, true),
            // `{{ .Values.auths }}`
            ("e3sgLlZhbHVlcy5hdXRocyB9fQ==", false, false),
            // `user`, and bytes with a colon that are not text.
            ("dXNlcg==", false, false),
            ("/zr/", false, false),
            ("ADo=", false, false),
            ("user:password", false, false),
            ("pants", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_base64_of_object(text.as_bytes()), object, "{text:?}");
            assert_eq!(is_base64_of_pair(text.as_bytes()), pair, "{text:?}");
        }
    }
}
