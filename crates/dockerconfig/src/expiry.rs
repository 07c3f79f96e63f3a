//! How long a credential lasts, as far as it says so itself. Nothing is verified: a wrong time only causes a wrong warning.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::entry::Credential;

/// Maximum length of a token that is read, in bytes.
const TOKEN_LIMIT: usize = 16 * 1024;
/// From 2015 to 2100, in seconds since 1970. Other times are errors of the issuer, such as milliseconds.
const PLAUSIBLE: std::ops::Range<f64> = 1_420_070_400.0..4_102_444_800.0;

/// How long a credential lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until this time, which the token contains.
    Until(Timestamp),
    /// This many hours after it was issued; when that was is unknown.
    Hours(u8),
    /// The token is valid for the CI job that it was issued for, or for hours.
    Job,
}

/// When a credential expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// When the registry begins to reject it.
    pub at: Timestamp,
    /// When it was issued, before `at`; `None`: unknown.
    pub issued: Option<Timestamp>,
}

/// Amazon ECR's passwords last this long.
const ECR_HOURS: u8 = 12;

/// Tokens of a GitHub installation, such as `GITHUB_TOKEN` of a workflow, and of a GitLab job.
const JOB_TOKENS: [&str; 2] = ["ghs_", "glcbt-"];
/// Prefix of a user's token that a GitHub App issues.
const GITHUB_USER_TOKEN: &str = "ghu_";
/// GitHub's personal access tokens, and those of OAuth apps.
const GITHUB_LASTING: [&str; 3] = ["ghp_", "github_pat_", "gho_"];
const GOOGLE_TOKEN: &str = "ya29.";

#[derive(Deserialize)]
struct Claims {
    exp: f64,
    /// Anything else than a number is ignored, so that it doesn't hide `exp`.
    #[serde(default)]
    iat: Value,
}

#[derive(Deserialize)]
struct EcrToken {
    expiration: f64,
}

/// How long the credential of this registry (a key of `auths`) lasts; `None`: it doesn't say, or it lasts until it is revoked.
pub fn lifetime(registry: &str, credential: &Credential) -> Option<Lifetime> {
    if let Some(expiry) = expiry(registry, credential) {
        return Some(Lifetime::Until(expiry.at));
    }
    let password = credential.password.expose();
    let is = |prefixes: &[&str]| {
        let mut prefixes = prefixes.iter();
        prefixes.any(|prefix| password.starts_with(prefix.as_bytes()))
    };
    match credential.username.expose() {
        b"AWS" if is_ecr(registry) => Some(Lifetime::Hours(ECR_HOURS)),
        b"oauth2accesstoken" | b"_dcgcloud_token" => Some(Lifetime::Hours(1)),
        b"00000000-0000-0000-0000-000000000000" => Some(Lifetime::Hours(3)),
        b"gitlab-ci-token" => Some(Lifetime::Job),
        // Any user is allowed with the others; this one is also used with tokens that last.
        b"x-access-token" if !is(&GITHUB_LASTING) => Some(Lifetime::Job),
        _ if is(&JOB_TOKENS) => Some(Lifetime::Job),
        _ if is(&[GITHUB_USER_TOKEN]) => Some(Lifetime::Hours(8)),
        _ if is(&[GOOGLE_TOKEN]) => Some(Lifetime::Hours(1)),
        _ => None,
    }
}

/// When the credential of this registry (a key of `auths`) expires; `None`: it contains no time.
pub fn expiry(registry: &str, credential: &Credential) -> Option<Expiry> {
    let password = credential.password.expose();
    if let Some(expiry) = jwt_expiry(password) {
        return Some(expiry);
    }
    if credential.username.expose() != b"AWS" || !is_ecr(registry) {
        return None;
    }
    let at = ecr_expiry(password)?;
    Some(Expiry {
        at,
        issued: Some(at - SignedDuration::from_hours(i64::from(ECR_HOURS))),
    })
}

/// `exp` and `iat` of a JSON web token.
fn jwt_expiry(token: &[u8]) -> Option<Expiry> {
    if token.len() > TOKEN_LIMIT {
        return None;
    }
    let mut parts = token.split(|byte| *byte == b'.');
    let payload = parts.nth(1)?;
    if parts.count() != 1 {
        return None;
    }
    let payload = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?);
    let Claims { exp, iat } = serde_json::from_slice(&payload).ok()?;
    let at = time(exp)?;
    let issued = iat.as_f64().and_then(time).filter(|issued| *issued < at);
    Some(Expiry { at, issued })
}

/// `expiration` of a password of Amazon ECR: base64 of JSON.
fn ecr_expiry(password: &[u8]) -> Option<Timestamp> {
    if password.len() > TOKEN_LIMIT {
        return None;
    }
    let token = Zeroizing::new(BASE64_STANDARD.decode(password).ok()?);
    time(serde_json::from_slice::<EcrToken>(&token).ok()?.expiration)
}

fn time(seconds: f64) -> Option<Timestamp> {
    if !PLAUSIBLE.contains(&seconds) {
        return None;
    }
    let duration = SignedDuration::try_from_secs_f64(seconds.trunc()).ok()?;
    Timestamp::from_duration(duration).ok()
}

/// Whether the registry is Amazon's: other registries may have an account with the name `AWS`.
fn is_ecr(registry: &str) -> bool {
    let host = registry
        .trim_start_matches("https://")
        .split(['/', ':'])
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let ends_with = |ends: &[&str]| ends.iter().any(|end| host.ends_with(end));
    let contains = |parts: &[&str]| parts.iter().any(|part| host.contains(part));
    ["public.ecr.aws", "ecr-public.aws.com"].contains(&host.as_str())
        || ends_with(&[".amazonaws.com", ".amazonaws.com.cn"])
            && contains(&[".dkr.ecr.", ".dkr.ecr-fips."])
        // Dual-stack.
        || ends_with(&[".on.aws", ".on.amazonwebservices.com.cn"])
            && contains(&[".dkr-ecr.", ".dkr-ecr-fips."])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    const ECR: &str = "123456789012.dkr.ecr.eu-west-1.amazonaws.com";
    const AZURE: &str = "00000000-0000-0000-0000-000000000000";

    fn jwt(payload: &str) -> String {
        format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(payload))
    }

    fn until(seconds: i64) -> Option<Lifetime> {
        Timestamp::from_second(seconds).ok().map(Lifetime::Until)
    }

    #[test]
    fn a_credential_lasts_as_long_as_it_says() {
        let hours = |hours| Some(Lifetime::Hours(hours));
        let job = Some(Lifetime::Job);
        let ecr = BASE64_STANDARD.encode(r#"{"payload":"p","expiration":1800000000}"#);
        let absurd = BASE64_STANDARD.encode(r#"{"expiration":1}"#);
        let good = jwt(r#"{"exp":1800000000}"#);
        let long = jwt(&format!(
            r#"{{"exp":1800000000,"a":"{}"}}"#,
            "a".repeat(TOKEN_LIMIT)
        ));
        #[rustfmt::skip]
        let cases = [
            ("r.io", "u", "password".to_owned(), None),
            ("r.io", "u", good.clone(), until(1_800_000_000)),
            ("r.io", "u", jwt(r#"{"exp":1800000000.9}"#), until(1_800_000_000)),
            ("r.io", "u", jwt(r#"{"exp":1420070400}"#), until(1_420_070_400)),
            ("r.io", "u", jwt(r#"{"exp":1420070399}"#), None),
            ("r.io", "u", jwt(r#"{"exp":4102444800}"#), None),
            ("r.io", "u", jwt(r#"{"exp":1800000000000}"#), None),
            ("r.io", "u", jwt(r#"{"exp":-1}"#), None),
            ("r.io", "u", jwt(r#"{"exp":1e400}"#), None),
            ("r.io", "u", jwt(r#"{"exp":"1800000000"}"#), None),
            ("r.io", "u", jwt("{}"), None),
            ("r.io", "u", format!("{good}.more"), None),
            ("r.io", "u", "a.b.c".to_owned(), None),
            ("r.io", "u", long, None),
            (ECR, "AWS", "password".to_owned(), hours(12)),
            (ECR, "AWS", ecr.clone(), until(1_800_000_000)),
            (ECR, "AWS", absurd, hours(12)),
            (ECR, "robot", ecr.clone(), None),
            ("https://1.dkr.ecr.cn-north-1.amazonaws.com.cn/v1/", "AWS", "p".to_owned(), hours(12)),
            ("public.ecr.aws", "AWS", "p".to_owned(), hours(12)),
            ("123456789012.dkr-ecr.eu-west-1.on.aws", "AWS", ecr.clone(), until(1_800_000_000)),
            ("https://1.dkr-ecr-fips.us-east-1.on.aws/v2/", "AWS", "p".to_owned(), hours(12)),
            ("1.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn", "AWS", "p".to_owned(), hours(12)),
            ("ecr-public.aws.com", "AWS", "p".to_owned(), hours(12)),
            ("1.dkr-ecr.eu.on.aws.example.com", "AWS", "p".to_owned(), None),
            ("1.lambda-url.eu-west-1.on.aws", "AWS", "p".to_owned(), None),
            ("harbor.example.com", "AWS", ecr, None),
            ("1.dkr.ecr.eu.amazonaws.com.example.com", "AWS", "p".to_owned(), None),
            ("gcr.io", "oauth2accesstoken", "p".to_owned(), hours(1)),
            ("gcr.io", "robot", "ya29.a0".to_owned(), hours(1)),
            ("registry.gitlab.example.com", "gitlab-ci-token", "p".to_owned(), job),
            ("https://r.io:5050/v2/", "deploy", "glcbt-64_p".to_owned(), job),
            ("r.io", "gitlab+deploy-token-1", "gldt-p".to_owned(), None),
            ("r.io", "deploy", "glpat-p".to_owned(), None),
            ("ghcr.io", "octocat", "ghs_p".to_owned(), job),
            ("ghcr.io", "x-access-token", "ghs_p".to_owned(), job),
            ("ghcr.io", "x-access-token", "v1.p".to_owned(), job),
            ("ghcr.io", "x-access-token", "ghp_p".to_owned(), None),
            ("ghcr.io", "x-access-token", "github_pat_p".to_owned(), None),
            ("ghcr.io", "octocat", "ghu_p".to_owned(), hours(8)),
            ("ghcr.io", "octocat", "gho_p".to_owned(), None),
            ("ghcr.io", "octocat", "ghp_p".to_owned(), None),
            ("ghcr.io", "octocat", format!("ghs_1_{good}"), until(1_800_000_000)),
            ("a.azurecr.io", AZURE, "p".to_owned(), hours(3)),
            ("a.azurecr.io", AZURE, good, until(1_800_000_000)),
        ];
        for (registry, user, password, expected) in cases {
            let credential = Credential {
                username: Secret::new(user),
                password: Secret::new(password.as_str()),
            };
            let found = lifetime(registry, &credential);
            assert_eq!(found, expected, "{registry} {user} {password}");
        }
    }

    #[test]
    fn the_time_of_issue_is_from_the_token_or_a_fixed_lifetime() {
        let at = |second| Timestamp::from_second(second).ok();
        let ecr = BASE64_STANDARD.encode(r#"{"payload":"p","expiration":1800000000}"#);
        #[rustfmt::skip]
        let cases = [
            ("r.io", "u", jwt(r#"{"exp":1800000000}"#), Some(None)),
            ("r.io", "u", jwt(r#"{"exp":1800000000,"iat":1700000000}"#), Some(at(1_700_000_000))),
            ("r.io", "u", jwt(r#"{"exp":1800000000,"iat":1800000000}"#), Some(None)),
            ("r.io", "u", jwt(r#"{"exp":1800000000,"iat":"1700000000"}"#), Some(None)),
            ("r.io", "u", jwt(r#"{"exp":1800000000,"iat":7}"#), Some(None)),
            (ECR, "AWS", ecr, Some(at(1_800_000_000 - 12 * 3600))),
            (ECR, "AWS", "p".to_owned(), None),
            ("gcr.io", "oauth2accesstoken", "p".to_owned(), None),
        ];
        for (registry, user, password, expected) in cases {
            let credential = Credential {
                username: Secret::new(user),
                password: Secret::new(password.as_str()),
            };
            let found = expiry(registry, &credential).map(|expiry| expiry.issued);
            assert_eq!(found, expected, "{registry} {user} {password}");
        }
    }
}
