//! Requests that verify an installed provider against its data. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use globalps_dockerconfig::DockerConfig;
use serde_json::json;
use zeroize::Zeroizing;

use super::answer::{Audience, answer, response};
use super::config::API_VERSION;
use super::content::{ContentError, parse_data};
use super::scope::Scope;

/// Maximum number of registries to examine for an image with a credential.
const CANDIDATES: usize = 8;

/// A `CredentialProviderRequest`, and the response that the data should give.
pub struct Trial {
    /// Whether it is for the provider that gets the pod's token.
    pub is_scoped: bool,
    /// JSON for the program's standard input.
    pub request: Vec<u8>,
    /// Bytes of its standard output, with credentials.
    pub expected: Zeroizing<Vec<u8>>,
}

/// A request for each provider. `data`: the provider's file. `tokens`: both providers are installed.
pub fn trials(data: &[u8], tokens: bool) -> Result<Vec<Trial>, ContentError> {
    let content = parse_data(data)?.content;
    let mut trials = vec![trial(data, &content.config, None)];
    if tokens && let Some(scoped) = content.scoped.first() {
        trials.push(trial(data, &scoped.config, Some(&token(&scoped.scope))));
    }
    Ok(trials)
}

fn trial(data: &[u8], config: &DockerConfig, token: Option<&str>) -> Trial {
    let audience = token.map_or(Audience::EveryPod, |token| Audience::Pod(Some(token)));
    let keys = config.entries().iter().map(|entry| entry.canonical_key());
    let images: Vec<String> = keys.take(CANDIDATES).map(|key| image(&key)).collect();
    let has_credential =
        |image: &&String| answer(data, image, audience).is_ok_and(|tries| !tries.is_empty());
    let image = images.iter().find(has_credential).or(images.first());
    let image = image.cloned().unwrap_or_else(unmatched_image);
    let tries = answer(data, &image, audience).unwrap_or_default();
    let mut request = json!({
        "apiVersion": API_VERSION,
        "kind": "CredentialProviderRequest",
        "image": image,
    });
    if let Some(token) = token {
        request["serviceAccountToken"] = token.into();
    }
    Trial {
        is_scoped: token.is_some(),
        request: request.to_string().into_bytes(),
        expected: Zeroizing::new(response(&tries).0),
    }
}

fn unmatched_image() -> String {
    image("registry.invalid")
}

/// An image that the key matches, unless the pattern is too unusual.
fn image(key: &str) -> String {
    let name: String = key.chars().filter(|c| !"[]?".contains(*c)).collect();
    format!("{}/globalps", name.replace('*', "x").trim_end_matches('/'))
}

/// The claims of a pod that the scope covers. Unsigned: the provider leaves signatures to the kubelet.
fn token(scope: &Scope) -> String {
    let name = |patterns: &[super::Pattern]| {
        let text = patterns.first().map(ToString::to_string);
        text.unwrap_or_else(|| "x".to_owned()).replace('*', "x")
    };
    let claims = json!({"kubernetes.io": {
        "namespace": name(&scope.namespaces),
        "serviceaccount": {"name": name(&scope.service_accounts)},
    }});
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", part("{}"), part(&claims.to_string()), part("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, ScopedConfig, render_data};

    /// The expected response as text, which a working provider returns.
    fn expected(data: &[u8], trial: &Trial) -> String {
        let request: serde_json::Value = serde_json::from_slice(&trial.request).unwrap();
        let token = request["serviceAccountToken"].as_str();
        assert_eq!(token.is_some(), trial.is_scoped);
        let audience = token.map_or(Audience::EveryPod, |token| Audience::Pod(Some(token)));
        let tries = answer(data, request["image"].as_str().unwrap(), audience).unwrap();
        let expected = String::from_utf8_lossy(&trial.expected).into_owned();
        assert_eq!(String::from_utf8_lossy(&response(&tries).0), expected);
        expected
    }

    #[test]
    fn each_provider_is_tried_with_an_image_that_has_a_credential() {
        let config = |key: &str| {
            // No image can be derived from the unusual pattern.
            let text =
                json!({"auths": {"[ab].io": {"auth": "dTpw"}, key: {"auth": "dTpw"}}}).to_string();
            globalps_dockerconfig::parse(text.as_bytes()).unwrap()
        };
        let scope = |namespace: &str| Scope {
            namespaces: vec![namespace.to_owned().try_into().unwrap()],
            service_accounts: Vec::new(),
        };
        for key in [
            "quay.io",
            "https://index.docker.io/v1/",
            "*.example.com:5000/a/",
            "r.example.com/a/b",
        ] {
            let content = Content {
                config: config(key),
                scoped: vec![ScopedConfig {
                    source: "s".to_owned(),
                    scope: scope("team-*"),
                    config: config(key),
                }],
                ..Content::default()
            };
            let data = render_data(7, &content);
            let both = trials(&data, true).unwrap();
            assert_eq!(
                both.iter().map(|one| one.is_scoped).collect::<Vec<_>>(),
                [false, true]
            );
            for trial in both {
                let expected = expected(&data, &trial);
                assert!(expected.contains(r#""username":"u""#), "{key}: {expected}");
            }
            assert_eq!(trials(&data, false).unwrap().len(), 1);
        }
        let data = render_data(7, &Content::default());
        let none = trials(&data, true).unwrap();
        assert_eq!(none.len(), 1);
        assert!(expected(&data, &none[0]).contains(r#""auth":{}"#));
        assert!(trials(b"{", true).is_err());
    }
}
