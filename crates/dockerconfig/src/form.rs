//! Content that is not a credentials file but contains one, so that the error can name the change that is needed.

use super::encoded::{BYTE_ORDER_MARK, is_base64_of_object};

/// The actual form of content that is not a credentials file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum FileForm {
    #[error("it contains a byte order mark (U+FEFF), so nodes reject it")]
    ByteOrderMark,
    #[error("it is UTF-16, and nodes read only UTF-8")]
    Utf16,
    #[error("it is base64 or a string instead of a JSON object: it was encoded twice")]
    EncodedTwice,
    #[error("it is a Kubernetes manifest, not the credentials file in it")]
    Manifest,
}

impl FileForm {
    /// The form of content that is not JSON from this offset on.
    pub(super) fn of(bytes: &[u8], offset: usize) -> Option<Self> {
        if is_utf16(bytes) {
            Some(Self::Utf16)
        } else if bytes[offset..].starts_with(BYTE_ORDER_MARK.to_string().as_bytes()) {
            Some(Self::ByteOrderMark)
        } else if is_base64_of_object(bytes) {
            Some(Self::EncodedTwice)
        } else if is_yaml_manifest(bytes) {
            Some(Self::Manifest)
        } else {
            None
        }
    }

    /// How to get a credentials file from it, in the imperative.
    pub fn hint(self) -> &'static str {
        match self {
            Self::ByteOrderMark | Self::Utf16 => "save it as UTF-8 without a byte order mark",
            Self::EncodedTwice => {
                "encode it once: `data` of a Secret is base64, `stringData` is the text itself"
            }
            Self::Manifest => "use the content of its key `.dockerconfigjson`",
        }
    }
}

/// A byte order mark of UTF-16, or every second byte at the start is 0.
fn is_utf16(bytes: &[u8]) -> bool {
    let are_zero = |first: usize| {
        let start = bytes.iter().skip(first).step_by(2).take(4);
        start.len() == 4 && start.copied().all(|byte| byte == 0)
    };
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") || are_zero(0) != are_zero(1)
}

fn is_yaml_manifest(bytes: &[u8]) -> bool {
    let has = |name: &[u8]| {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        lines.any(|line| line.starts_with(name))
    };
    has(b"apiVersion:") && has(b"kind:")
}
