//! Pulls by pods inside and outside of scopes. Content and images often share registries and paths.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use globalps_dockerconfig::{DockerConfig, parse};
use globalps_provider::{Content, Pattern, PodIdentity, Scope, ScopedConfig, render_data};
use serde_json::json;

use super::draw::Draw;
use super::places::Places;
use super::{document, images, keys};
use crate::oracle::Pull;

/// Content, a pull, and the pod that the provider may see in the request.
#[derive(Clone)]
pub struct PullCase {
    pub content: Content,
    pub asked: Pull,
    /// `None` if there is no token, or one without a pod.
    pub pod: Option<PodIdentity>,
}

/// Names that are prefixes of each other, or nearly.
const NAMES: [&str; 9] = [
    "team-a",
    "team-a",
    "team-a",
    "team-a-b",
    "team-ab",
    "team",
    "my-team-a",
    "a",
    "default",
];
const PATTERNS: [&str; 14] = [
    "team-a", "team-a", "team-a", "team-a-*", "team-*", "team*", "*", "*-a", "*team-a*", "t*m-a",
    "**", "team-a-b", "a", "default",
];

/// The case with this number.
pub fn pull_case(number: u64) -> PullCase {
    // A different sequence than that of the cases of files.
    let mut draw = Draw::new(number ^ 0x7072_6f76_6964_6572);
    let places = Places::draw(&mut draw);
    let mut all_keys = Vec::new();
    let config = config(&mut draw, &places, &mut all_keys);
    let scoped = (0..draw.below(4))
        .map(|at| ScopedConfig {
            source: format!("source-{at}"),
            scope: scope(&mut draw),
            config: self::config(&mut draw, &places, &mut all_keys),
        })
        .collect();
    let content = Content {
        config,
        scoped,
        ..Content::default()
    };
    let image = images::image(&mut draw, &all_keys, &places);
    let namespace = draw.pick(&NAMES).to_owned();
    let service_account = match draw.below(10) {
        0 => "",
        _ => draw.pick(&NAMES),
    };
    let mut pod = (!service_account.is_empty()).then(|| PodIdentity {
        namespace: namespace.clone(),
        service_account: service_account.to_owned(),
    });
    let mut token = None;
    if draw.one_in(8) {
        (token, pod) = odd_token(&mut draw, pod);
    }
    let asked = Pull {
        data: render_data(number.cast_signed(), &content),
        image,
        namespace,
        service_account: service_account.to_owned(),
        token,
    };
    PullCase {
        content,
        asked,
        pod,
    }
}

fn config(draw: &mut Draw, places: &Places, all_keys: &mut Vec<String>) -> DockerConfig {
    let keys = keys::keys(draw, places);
    let document = document::document(draw, &keys, places);
    all_keys.extend(keys);
    // A file that can't be parsed has nothing to deliver.
    let config = parse(&document).unwrap_or_default();
    if config.is_kubelet_readable() {
        return config;
    }
    // No revision has such content, but a node might still receive it in rendered form.
    parse(&config.render()).unwrap_or_default()
}

fn scope(draw: &mut Draw) -> Scope {
    let mut patterns = |most: usize| -> Vec<Pattern> {
        let number = draw.below(most + 1);
        let texts = (0..number).map(|_| draw.pick(&PATTERNS).to_owned());
        texts.filter_map(|text| text.try_into().ok()).collect()
    };
    Scope {
        namespaces: patterns(3),
        service_accounts: patterns(2),
    }
}

/// A token that the API server did not issue for this pod, and the pod that it claims to be for.
fn odd_token(draw: &mut Draw, pod: Option<PodIdentity>) -> (Option<String>, Option<PodIdentity>) {
    // A kubelet requests no token for a static pod.
    if pod.is_none() {
        return (None, None);
    }
    let of = |claims: serde_json::Value| {
        let part = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!(
            "{}.{}.c2ln",
            part("{}".to_owned()),
            part(claims.to_string())
        )
    };
    let (namespace, name) = (draw.pick(&NAMES), draw.pick(&NAMES));
    let claims = |namespace: &str, name: &str| {
        of(json!({"kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name}}}))
    };
    let other = PodIdentity {
        namespace: namespace.to_owned(),
        service_account: name.to_owned(),
    };
    match draw.below(7) {
        0 => (Some(claims(namespace, name)), Some(other)),
        1 => (Some(String::new()), None),
        2 => (Some("token".to_owned()), None),
        3 => (Some(of(json!({}))), None),
        4 => (Some(claims(namespace, "")), None),
        5 => (Some(claims("", name)), None),
        _ => (Some(format!("{}.more", claims(namespace, name))), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_always_makes_the_same_pull() {
        for number in [0, 1, 4_242, u64::MAX] {
            let (one, other) = (pull_case(number), pull_case(number));
            assert_eq!(one.asked.data, other.asked.data);
            assert_eq!(one.asked.image, other.asked.image);
            assert_eq!(one.asked.token, other.asked.token);
        }
        assert_ne!(pull_case(1).asked.data, pull_case(2).asked.data);
    }
}
