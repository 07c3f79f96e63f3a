//! Expiries for unit tests.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "only tests use it"
)]

use globalps_dockerconfig::DockerConfig;
use globalps_provider::Content;
use jiff::Timestamp;
use k8s_openapi::ByteString;

use super::super::secret::Global;
use super::super::source::Data;
use super::Expiries;

/// When a credential expires, in seconds since 1970.
pub const AT: i64 = 1_800_000_000;
/// In seconds.
pub const HOUR: i64 = 3600;
/// In seconds.
pub const DAY: i64 = 24 * HOUR;

/// `second`: since 1970.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn base64(text: &str) -> String {
    let bytes = ByteString(text.as_bytes().to_vec());
    let value = serde_json::to_value(bytes).unwrap();
    value.as_str().unwrap().to_owned()
}

pub(super) fn file(entries: &[(&str, &str)]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|(key, auth)| format!(r#""{key}":{{"auth":"{}"}}"#, base64(auth)))
        .collect();
    format!(r#"{{"auths":{{{}}}}}"#, entries.join(","))
}

pub(super) fn config(entries: &[(&str, &str)]) -> DockerConfig {
    globalps_dockerconfig::parse(file(entries).as_bytes()).unwrap()
}

/// A user with a JSON web token.
pub(super) fn token(claims: &str) -> String {
    let payload = base64(claims).replace('+', "-").replace('/', "_");
    format!("u:e30.{}.c2ln", payload.trim_end_matches('='))
}

/// Registries with the time at which their credentials expire, and the lifetime; 0: unknown.
pub fn expiries(entries: &[(&str, i64, i64)]) -> Expiries {
    let entries: Vec<(&str, String)> = entries
        .iter()
        .map(|(registry, exp, lasts)| {
            let issued = match lasts {
                0 => String::new(),
                lasts => format!(r#","iat":{}"#, exp - lasts),
            };
            (*registry, token(&format!(r#"{{"exp":{exp}{issued}}}"#)))
        })
        .collect();
    let entries: Vec<(&str, &str)> = entries.iter().map(|(key, auth)| (*key, &**auth)).collect();
    Expiries::of(Some(&Global {
        content: Some(Content {
            config: config(&entries),
            ..Content::default()
        }),
        last_additional: Some(Data(Some(file(&entries).into_bytes()))),
        ..Global::default()
    }))
}
