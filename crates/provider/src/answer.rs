//! Which credentials the provider returns for an image, and to whom. Pure.

use std::collections::BTreeMap;

use globalps_dockerconfig::{
    DockerConfig, Entry, ImageError, Try, attempts, combine, host_labels, may_serve,
};
use serde::Serialize;

use super::config::{API_VERSION, MOST_LABELS};
use super::content::{Content, ContentError, RawData, ScopedConfig};
use super::scope::PodIdentity;
use super::token::pod_identity;

/// The audience of an answer. The kubelet runs one provider without a token, for content for every pod, and one with the pod's
/// token, for content with a scope. The first one's answer never depends on a token, so it applies to the whole node.
#[derive(Clone, Copy, Debug)]
pub enum Audience<'a> {
    /// Every pod on the node: content without a scope.
    EveryPod,
    /// The pod's token; `None`: a static pod, which has no service account.
    Pod(Option<&'a str>),
}

/// Why there is no answer although a credential may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum ProviderError {
    #[error("the data file is unusable: {0}")]
    Data(#[from] ContentError),
    #[error("invalid image name: {0}")]
    Image(#[from] ImageError),
    #[error("the kubelet passed no service account token")]
    NoToken,
    #[error("the token has no claims for namespace and service account")]
    NoClaims,
}

/// The credentials for an image, by their key in the kubelet's keyring. `data` is the provider's file. Those that [`response`]
/// leaves out come last.
pub fn answer(data: &[u8], image: &str, audience: Audience<'_>) -> Result<Vec<Try>, ProviderError> {
    let may_serve = may_serve(image)?;
    let data = RawData::read(data)?;
    let config = match audience {
        Audience::EveryPod => data.config_with(&may_serve)?,
        Audience::Pod(_) if data.scoped.is_empty() => return Ok(Vec::new()),
        Audience::Pod(token) => {
            let token = token
                .filter(|token| !token.is_empty())
                .ok_or(ProviderError::NoToken)?;
            let pod = pod_identity(token).ok_or(ProviderError::NoClaims)?;
            let covering = data.scoped.iter().filter(|raw| raw.scope.covers(&pod));
            let configs: Result<Vec<_>, _> =
                covering.map(|raw| raw.config_with(&may_serve)).collect();
            combine(&configs?.iter().collect::<Vec<_>>()).config()
        }
    };
    let (text, other) = split(&config);
    let mut tries = attempts(&[&text], image)?;
    tries.extend(attempts(&[&other], image)?);
    Ok(tries.into_iter().map(|(_, attempt)| attempt).collect())
}

/// One credential that the kubelet tries, and its origin.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Source whose scope covers the pod; `None`: for every pod.
    pub source: Option<String>,
    /// The try, with its key in the answer, which the kubelet matches again.
    pub attempt: Try,
}

/// Whether the kubelet runs the provider for an image, judging by the image's host.
pub fn is_asked(image: &str) -> Result<bool, ImageError> {
    Ok(host_labels(image)? <= MOST_LABELS)
}

/// The credentials that a kubelet tries for this pod and image, in order, with delivery by the provider. `None`: a pod
/// without a service account.
pub fn offers(
    content: &Content,
    image: &str,
    pod: Option<&PodIdentity>,
) -> Result<Vec<Offer>, ImageError> {
    if !is_asked(image)? {
        return Ok(Vec::new());
    }
    let covers = |scoped: &&ScopedConfig| pod.is_some_and(|pod| scoped.scope.covers(pod));
    let covering: Vec<&ScopedConfig> = content.scoped.iter().filter(covers).collect();
    let configs: Vec<_> = covering.iter().map(|scoped| &scoped.config).collect();
    let combined = combine(&configs);
    let (scoped, _) = split(&combined.config());
    let (all, _) = split(&content.config);
    let source_of = |key: &str| {
        let scoped = covering.get(combined.file_of(key)?)?;
        Some(scoped.source.clone())
    };
    let tries = attempts(&[&scoped, &all], image)?;
    let offers = tries.into_iter().map(|(config, attempt)| Offer {
        source: (config == 0).then(|| source_of(&attempt.key)).flatten(),
        attempt,
    });
    Ok(offers.collect())
}

/// The entries that a response can represent, and the others: JSON can't represent text that is not UTF-8.
fn split(config: &DockerConfig) -> (DockerConfig, DockerConfig) {
    let is_text = |entry: &Entry| {
        let credential = entry.credential().ok().flatten();
        credential.is_none_or(|credential| credential.as_text().is_some())
    };
    let (text, other) = config.entries().iter().cloned().partition(is_text);
    (DockerConfig::new(text), DockerConfig::new(other))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    api_version: &'static str,
    kind: &'static str,
    cache_key_type: &'static str,
    cache_duration: &'static str,
    auth: BTreeMap<&'a str, Auth<'a>>,
}

#[derive(Serialize)]
struct Auth<'a> {
    username: &'a str,
    password: &'a str,
}

/// The `CredentialProviderResponse` with these credentials, and the keys of those left out because they are not UTF-8. The
/// kubelet caches nothing of it, so new content takes effect at the next pull.
pub fn response(tries: &[Try]) -> (Vec<u8>, Vec<&str>) {
    let mut auth = BTreeMap::new();
    let mut left_out = Vec::new();
    for Try { key, credential } in tries {
        match credential.as_text() {
            Some((username, password)) => {
                auth.entry(key.as_str())
                    .or_insert(Auth { username, password });
            }
            None => left_out.push(key.as_str()),
        }
    }
    let response = Response {
        api_version: API_VERSION,
        kind: "CredentialProviderResponse",
        cache_key_type: "Image",
        cache_duration: "0s",
        auth,
    };
    (serde_json::to_vec(&response).unwrap_or_default(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scope, render_data};
    use globalps_dockerconfig::{Credential, Secret, parse};

    fn attempt(key: &str, password: &[u8]) -> Try {
        Try {
            key: key.to_owned(),
            credential: Credential {
                username: Secret::new("u"),
                password: Secret::new(password),
            },
        }
    }

    fn for_namespace_a(source: &str, text: &str) -> ScopedConfig {
        ScopedConfig {
            source: source.to_owned(),
            scope: Scope {
                namespaces: vec!["a".to_owned().try_into().unwrap()],
                service_accounts: Vec::new(),
            },
            config: parse(text.as_bytes()).unwrap(),
        }
    }

    /// The token of [`pod_in_a`].
    const TOKEN: &str = "e30.eyJrdWJlcm5ldGVzLmlvIjp7Im5hbWVzcGFjZSI6ImEiLCJzZXJ2aWNlYWNjb3VudCI6eyJuYW1lIjoiZGVmYXVsdCJ9fX0.c2ln";

    fn pod_in_a() -> PodIdentity {
        PodIdentity {
            namespace: "a".to_owned(),
            service_account: "default".to_owned(),
        }
    }

    /// Key and user of each.
    fn users(tries: &[Try]) -> Vec<(&str, &str)> {
        let tries = tries.iter();
        tries
            .filter_map(|attempt| Some((&*attempt.key, attempt.credential.as_text()?.0)))
            .collect()
    }

    #[test]
    fn a_response_has_utf8_credentials_and_the_rest_is_reported() {
        let tries = [
            attempt("b", b"\"p\"\n"),
            attempt("a", "é".as_bytes()),
            attempt("raw", b"\xff"),
        ];
        let (bytes, left_out) = response(&tries);
        let expected = concat!(
            r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","#,
            r#""cacheKeyType":"Image","cacheDuration":"0s","auth":{"#,
            r#""a":{"username":"u","password":"é"},"b":{"username":"u","password":"\"p\"\n"}}}"#,
        );
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        assert_eq!(left_out, ["raw"]);
        let (bytes, left_out) = response(&[]);
        assert!(bytes.ends_with(br#""auth":{}}"#));
        assert!(left_out.is_empty());
    }

    #[test]
    fn a_static_pod_is_no_error_without_scopes() {
        let data = |scoped| {
            let content = Content {
                scoped,
                ..Content::default()
            };
            let data = render_data(1, &content);
            answer(&data, "quay.io/org/app", Audience::Pod(None)).map(|tries| tries.len())
        };
        assert_eq!(data(Vec::new()), Ok(0));
        let scoped = for_namespace_a("one", r#"{"auths":{"quay.io":{"auth":"MTpw"}}}"#);
        assert_eq!(data(vec![scoped]), Err(ProviderError::NoToken));
    }

    #[test]
    fn the_earlier_source_wins_however_its_keys_are_written() {
        let one = r#"{"auths":{"https://quay.io":{"auth":"MTpw"},"quay.io/":{"auth":"Mjpw"}}}"#;
        let two = r#"{"auths":{"quay.io":{"auth":"Mzpw"},"quay.io/org":{"auth":"NDpw"}}}"#;
        let content = Content {
            scoped: vec![for_namespace_a("one", one), for_namespace_a("two", two)],
            ..Content::default()
        };
        let offers = offers(&content, "quay.io/org/app", Some(&pod_in_a())).unwrap();
        let given: Vec<_> = offers
            .iter()
            .map(|offer| (offer.source.as_deref(), &*offer.attempt.key))
            .collect();
        let expected = [(Some("two"), "quay.io/org"), (Some("one"), "quay.io")];
        assert_eq!(given, expected);
    }

    #[test]
    fn a_pod_gets_the_merged_sources_however_keys_are_written() {
        for (sources, image, expected) in [
            // The answer reads only the entries that may serve the image.
            (
                &[r#""https://quay.io/v1":{"auth":"MTpw"}"#][..],
                "quay.io/org/app",
                &[("quay.io", "1")][..],
            ),
            (
                &[
                    r#""https://quay.io/v1":{"auth":"MTpw"}"#,
                    r#""quay.io":{"auth":"Mjpw"}"#,
                ],
                "quay.io/org/app",
                &[("quay.io", "1")],
            ),
            // The provider's file is sorted.
            (
                &[r#""quay.io/v1/":{"auth":"MTpw"},"quay.io/":{"auth":"Mjpw"}"#],
                "quay.io/org/app",
                &[("quay.io", "2")],
            ),
            (
                &[r#""quay.io/org#a":{"auth":"MTpw"},"quay.io/or%67":{"auth":"Mjpw"}"#],
                "quay.io/org/app",
                &[("quay.io/org", "2")],
            ),
            // Only the first `/v1` belongs to the API.
            (
                &[r#""quay.io/v1/v1/org":{"auth":"MTpw"}"#],
                "quay.io/v1/org/app",
                &[("quay.io/v1/v1/org", "1")],
            ),
            (
                &[r#""registry-1.docker.io/v1/v1/org":{"auth":"MTpw"}"#],
                "registry-1.docker.io/v1/org/app",
                &[("registry-1.docker.io/v1/v1/org", "1")],
            ),
            (
                &[r#""registry-1.docker.io/v1/v1/org":{"auth":"MTpw"}"#],
                "registry-1.docker.io/org/app",
                &[],
            ),
            (
                &[r#""https://registry-1.docker.io/v1":{"auth":"MTpw"}"#],
                "registry-1.docker.io/v1/app",
                &[("registry-1.docker.io", "1")],
            ),
        ] {
            let scoped = sources
                .iter()
                .map(|auths| for_namespace_a("source", &format!(r#"{{"auths":{{{auths}}}}}"#)));
            let content = Content {
                scoped: scoped.collect(),
                ..Content::default()
            };
            let data = render_data(1, &content);
            let given = answer(&data, image, Audience::Pod(Some(TOKEN))).unwrap();
            assert_eq!(users(&given), expected, "{sources:?} for {image}");
            let offers = offers(&content, image, Some(&pod_in_a())).unwrap();
            let offered: Vec<Try> = offers.into_iter().map(|offer| offer.attempt).collect();
            assert_eq!(users(&offered), expected, "{sources:?} for {image}");
        }
    }

    #[test]
    fn the_provider_is_not_run_for_a_host_with_too_many_labels() {
        for (image, expected) in [
            ("a.b.c.d.e.f.g.h/x", true),
            ("a.b.c.d.e.f.g.h:443/x", true),
            ("a.b.c.d.e.f.g.h.i/x", false),
            ("nginx", true),
        ] {
            assert_eq!(is_asked(image), Ok(expected), "{image}");
        }
    }

    #[test]
    fn credentials_left_out_come_last() {
        let text = r#"{"auths":{"quay.io/org":{"auth":"dTr//w=="},"quay.io":{"auth":"dTpw"}}}"#;
        let content = Content {
            config: parse(text.as_bytes()).unwrap(),
            ..Content::default()
        };
        let data = render_data(1, &content);
        let tries = answer(&data, "quay.io/org/app", Audience::EveryPod).unwrap();
        let keys: Vec<_> = tries.iter().map(|attempt| &*attempt.key).collect();
        assert_eq!(keys, ["quay.io", "quay.io/org"]);
        assert_eq!(response(&tries).1, ["quay.io/org"]);
    }
}
