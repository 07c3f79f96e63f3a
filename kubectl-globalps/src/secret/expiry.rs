//! When a password ends by itself, where it says so. Pure.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use globalps_core::dockerconfig::Credential;
use jiff::Timestamp;
use serde::Deserialize;

#[derive(Deserialize)]
struct Claims {
    /// Of a JSON web token, in seconds.
    exp: Option<f64>,
    /// Of a token of Amazon ECR, in seconds.
    expiration: Option<f64>,
}

/// `None`: never, or it doesn't say.
pub(crate) fn expires(credential: &Credential) -> Option<Timestamp> {
    let password = credential.password.expose();
    let parts: Vec<&[u8]> = password.split(|byte| *byte == b'.').collect();
    let claims = match parts.as_slice() {
        [_, claims, _] => BASE64_URL_SAFE_NO_PAD.decode(claims),
        [all] => BASE64_STANDARD.decode(all),
        _ => return None,
    };
    let claims: Claims = serde_json::from_slice(&claims.ok()?).ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "fractions don't matter")]
    let seconds = claims.exp.or(claims.expiration)? as i64;
    Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::dockerconfig::Secret;

    #[test]
    fn tokens_say_when_they_end_and_passwords_do_not() {
        let token = |claims: &str| format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims));
        for (password, expected) in [
            (token(r#"{"exp":1767225600}"#), Some("2026-01-01T00:00:00Z")),
            (
                BASE64_STANDARD.encode(r#"{"payload":"x","expiration":1767225600}"#),
                Some("2026-01-01T00:00:00Z"),
            ),
            (token("{}"), None),
            (token(r#"{"exp":"soon"}"#), None),
            (token(r#"{"exp":1e300}"#), None),
            ("a.b.c".to_owned(), None),
            ("secret".to_owned(), None),
            (String::new(), None),
        ] {
            let credential = Credential {
                username: Secret::new("u"),
                password: Secret::new(password.clone()),
            };
            let found = expires(&credential).map(|time| time.to_string());
            assert_eq!(found.as_deref(), expected, "{password}");
        }
    }
}
