//! The kubelet's request.

use std::borrow::Cow;
use std::io::{self, Read};

use globalps_provider::API_VERSION;
use serde::Deserialize;
use zeroize::Zeroizing;

/// A token has some KiB, and annotations of a service account at most 256 KiB.
const MAX_BYTES: u64 = 1024 * 1024;
const KIND: &str = "CredentialProviderRequest";

#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("it is not a {KIND} in JSON")]
    Form,
    #[error("its API version must be {API_VERSION}")]
    Version,
}

/// A `CredentialProviderRequest`. It holds a token, so there is no `Debug`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    #[serde(borrow)]
    image: Cow<'a, str>,
    #[serde(borrow, default)]
    service_account_token: Option<Cow<'a, str>>,
}

/// The fields that identify the format.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Type<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// Reads the bytes of a request.
pub(crate) fn read(input: &mut dyn Read) -> Result<Zeroizing<Vec<u8>>, RequestError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(8 * 1024));
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(RequestError::TooLarge);
    }
    Ok(bytes)
}

impl<'a> Request<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, RequestError> {
        let is_of: Type = serde_json::from_slice(bytes).map_err(|_| RequestError::Form)?;
        if is_of.kind != KIND {
            return Err(RequestError::Form);
        }
        if is_of.api_version != API_VERSION {
            return Err(RequestError::Version);
        }
        serde_json::from_slice(bytes).map_err(|_| RequestError::Form)
    }

    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.service_account_token.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_version_1_are_accepted() {
        let of = |version: &str, kind: &str, rest: &str| {
            let version = format!("credentialprovider.kubelet.k8s.io/{version}");
            format!(r#"{{"kind":"{kind}","apiVersion":"{version}",{rest}}}"#)
        };
        let text = of(
            "v1",
            KIND,
            r#""image":"a\/b","serviceAccountToken":"t","new":{}"#,
        );
        let request = Request::parse(text.as_bytes()).ok().unwrap();
        assert_eq!((request.image(), request.token()), ("a/b", Some("t")));
        let text = of("v1", KIND, r#""image":"a","serviceAccountToken":null"#);
        let request = Request::parse(text.as_bytes()).ok().unwrap();
        assert_eq!((request.image(), request.token()), ("a", None));
        for (text, expected) in [
            (of("v2", KIND, r#""image":"a""#), "its API version"),
            (of("v1beta1", KIND, r#""image":["b"]"#), "its API version"),
            (of("v1", "Response", r#""image":"a""#), "not a"),
            (of("v1", KIND, r#""image":1"#), "not a"),
            (of("v1", KIND, r#""picture":"a""#), "not a"),
            (
                of("v1", KIND, r#""image":"a","serviceAccountToken":7"#),
                "not a",
            ),
            (String::new(), "not a"),
            ("[]".to_owned(), "not a"),
            ("\0\u{fffd}".to_owned(), "not a"),
        ] {
            let error = Request::parse(text.as_bytes()).err().unwrap().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_endless_request_is_rejected() {
        assert!(matches!(
            read(&mut io::repeat(b' ')),
            Err(RequestError::TooLarge)
        ));
        assert_eq!(read(&mut &b"text"[..]).unwrap().as_slice(), b"text");
    }
}
