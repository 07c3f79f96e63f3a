//! Properties for any content, image and pod: a scope is a boundary, the provider's answer is what core computes, and damaged
//! data yields nothing.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use globalps_dockerconfig::{Credential, DockerConfig, Entry, Secret, Try, attempts};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use super::*;

const NAMES: [&str; 6] = ["team-a", "team-a-b", "team-ab", "team", "my-team-a", "x"];
const PATTERNS: [&str; 9] = [
    "team-a", "team-a-*", "team-*", "*", "*-a", "t*a", "**b", "team", "x",
];
/// In the order of the file: the kubelet's order of equivalent keys is random anyway.
const KEYS: [&str; 9] = [
    "*.io/org",
    "docker.io",
    "docker.io/org",
    "https://index.docker.io/v1/",
    "https://quay.io/org",
    "other.example.com",
    "quay.io",
    "quay.io/org",
    "quay.io:5000",
];
const IMAGES: [&str; 6] = [
    "quay.io/org/app",
    "quay.io/other",
    "quay.io:5000/org/app:1",
    "org/app",
    "nginx",
    "nothing.example.com/app",
];

fn names(most: usize) -> impl Strategy<Value = Vec<Pattern>> {
    let pattern = select(&PATTERNS[..]).prop_map(|text| Pattern::try_from(text.to_owned()));
    prop::collection::vec(pattern, 0..=most)
        .prop_map(|patterns| patterns.into_iter().flatten().collect())
}

/// Entries whose user names their source and key; a few are not UTF-8.
fn config(source: &'static str) -> impl Strategy<Value = DockerConfig> {
    let keys = prop::sample::subsequence(&KEYS[..], 0..=KEYS.len());
    (keys, any::<bool>()).prop_map(move |(keys, is_odd)| {
        let entry = |(at, key): (usize, &str)| {
            let mut password = b"p".to_vec();
            password.extend((is_odd && at == 1).then_some(0xff));
            let credential = Credential {
                // A user can't contain a colon.
                username: Secret::new(format!("{source} {key}").replace(':', ";")),
                password: Secret::new(password),
            };
            Entry::from_credential(key, &credential)
        };
        DockerConfig::new(keys.into_iter().enumerate().map(entry).collect())
    })
}

fn scoped(source: &'static str) -> impl Strategy<Value = ScopedConfig> {
    (names(3), names(2), config(source)).prop_map(move |(namespaces, service_accounts, config)| {
        let scope = Scope {
            namespaces,
            service_accounts,
        };
        ScopedConfig {
            source: source.to_owned(),
            scope,
            config,
        }
    })
}

fn content() -> impl Strategy<Value = Content> {
    let all = (config("all"), scoped("one"), scoped("two"), scoped("three"));
    (all, 0..=3usize).prop_map(|((config, one, two, three), number)| Content {
        config,
        scoped: [one, two, three].into_iter().take(number).collect(),
        delivery: Delivery::default(),
    })
}

fn pod() -> impl Strategy<Value = PodIdentity> {
    (select(&NAMES[..]), select(&NAMES[..])).prop_map(|(namespace, account)| PodIdentity {
        namespace: namespace.to_owned(),
        service_account: account.to_owned(),
    })
}

fn token(payload: &str) -> String {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", part("{}"), part(payload), part("s"))
}

fn token_of(pod: &PodIdentity) -> String {
    let PodIdentity {
        namespace,
        service_account,
    } = pod;
    token(&format!(
        r#"{{"kubernetes.io":{{"namespace":"{namespace}","serviceaccount":{{"name":"{service_account}"}}}}}}"#
    ))
}

/// Whether a pattern covers a name, by an independent algorithm: each `*` tries each length.
fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(rest) => (0..=name.len()).any(|at| covers(rest, &name[at..])),
        None => match pattern.chars().next() {
            Some(first) => name
                .strip_prefix(first)
                .is_some_and(|name| covers(&pattern[1..], name)),
            None => name.is_empty(),
        },
    }
}

fn is_inside(scope: &Scope, pod: &PodIdentity) -> bool {
    let any = |patterns: &[Pattern], name: &str| {
        patterns
            .iter()
            .any(|pattern| covers(&pattern.to_string(), name))
    };
    any(&scope.namespaces, &pod.namespace)
        && (scope.service_accounts.is_empty() || any(&scope.service_accounts, &pod.service_account))
}

fn users<'a>(tries: impl IntoIterator<Item = &'a Try>) -> Vec<String> {
    let users = tries
        .into_iter()
        .map(|attempt| attempt.credential.username.expose());
    users
        .map(|user| String::from_utf8_lossy(user).into_owned())
        .collect()
}

/// The keyring that the kubelet builds from the provider's answer.
fn keyring(tries: &[Try]) -> DockerConfig {
    let sendable = tries
        .iter()
        .filter(|attempt| attempt.credential.as_text().is_some());
    let entry = |attempt: &Try| Entry::from_credential(&attempt.key, &attempt.credential);
    DockerConfig::new(sendable.map(entry).collect())
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(13),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_pod_outside_of_a_scope_gets_none_of_its_credentials(
        content in content(),
        image in select(&IMAGES[..]),
        pod in pod(),
    ) {
        let data = render_data(1, &content);
        let given = answer(&data, image, Audience::Pod(Some(&token_of(&pod)))).unwrap();
        let inside: BTreeSet<&str> = content
            .scoped
            .iter()
            .filter(|scoped| is_inside(&scoped.scope, &pod))
            .map(|scoped| &*scoped.source)
            .collect();
        for user in users(&given) {
            let source = user.split(' ').next().unwrap();
            prop_assert!(inside.contains(source), "{user} for {pod:?}");
        }
        for user in users(&answer(&data, image, Audience::EveryPod).unwrap()) {
            prop_assert!(user.starts_with("all "), "{user} for every pod");
        }
    }

    #[test]
    fn a_scoped_credential_requires_a_token_of_a_covered_pod(
        content in content(),
        image in select(&IMAGES[..]),
        pod in pod(),
        cut in 0..200usize,
    ) {
        let data = render_data(1, &content);
        let whole = token_of(&pod);
        let payload = |text: &str| token(text);
        for token in [
            None,
            Some(String::new()),
            Some(whole[..cut.min(whole.len() - 1)].to_owned()).filter(|token| token.matches('.').count() < 2),
            Some(format!("{whole}.x")),
            Some(payload("{}")),
            Some(payload(r#"{"sub":"system:serviceaccount:team-a:x"}"#)),
            Some(payload(r#"{"kubernetes.io":{"namespace":"team-a"}}"#)),
            Some(payload(r#"{"kubernetes.io":{"namespace":"","serviceaccount":{"name":"x"}}}"#)),
            Some(payload(r#"{"kubernetes.io":{"namespace":"team-a","serviceaccount":{"name":""}}}"#)),
        ] {
            match answer(&data, image, Audience::Pod(token.as_deref())) {
                Ok(given) => prop_assert!(given.is_empty() && content.scoped.is_empty()),
                Err(error) => prop_assert!(
                    matches!(error, ProviderError::NoToken | ProviderError::NoClaims)
                ),
            }
        }
        let static_pod = offers(&content, image, None).unwrap();
        prop_assert!(static_pod.iter().all(|offer| offer.source.is_none()));
    }

    #[test]
    fn the_two_answers_combined_equal_the_offers(
        content in content(),
        image in select(&IMAGES[..]),
        pod in pod(),
    ) {
        let data = render_data(1, &content);
        let all = answer(&data, image, Audience::EveryPod).unwrap();
        let scoped = answer(&data, image, Audience::Pod(Some(&token_of(&pod)))).unwrap();
        let keyring = attempts(&[&keyring(&scoped), &keyring(&all)], image).unwrap();
        let offers = offers(&content, image, Some(&pod)).unwrap();
        let from = offers.iter().map(|offer| usize::from(offer.source.is_none()));
        prop_assert_eq!(
            users(keyring.iter().map(|(_, attempt)| attempt)),
            users(offers.iter().map(|offer| &offer.attempt))
        );
        prop_assert!(from.eq(keyring.iter().map(|(at, _)| *at)));
        for offer in &offers {
            let source = offer.source.as_deref().unwrap_or("all");
            let users = users([&offer.attempt]);
            prop_assert!(users[0].starts_with(source), "{users:?} from {source}");
        }
    }

    #[test]
    fn content_round_trips_through_the_file(content in content()) {
        let read = parse_data(&render_data(7, &content)).unwrap();
        prop_assert_eq!(read.revision, 7);
        prop_assert!(read.content.means_the_same(&content));
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn truncated_data_yields_nothing(content in content(), pod in pod()) {
        let data = render_data(1, &content);
        let token = token_of(&pod);
        for end in 0..data.len() {
            for audience in [Audience::EveryPod, Audience::Pod(Some(&token))] {
                let error = answer(&data[..end], IMAGES[0], audience).unwrap_err();
                prop_assert_eq!(error, ProviderError::Data(ContentError::Damaged));
            }
        }
    }

    #[test]
    fn data_with_a_changed_byte_yields_nothing(
        content in content(),
        pod in pod(),
        difference in 1..=u8::MAX,
    ) {
        let data = render_data(1, &content);
        let token = token_of(&pod);
        for at in 0..data.len() {
            let mut changed = data.clone();
            changed[at] ^= difference;
            for audience in [Audience::EveryPod, Audience::Pod(Some(&token))] {
                let given = answer(&changed, IMAGES[0], audience);
                prop_assert!(matches!(given, Err(ProviderError::Data(_))), "{at}");
            }
        }
    }
}
