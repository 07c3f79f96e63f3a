use globalps_provider::{Content, Scope, ScopedConfig};

use super::testing::{AT, DAY, HOUR, at, config, expiries, file, token};
use super::*;

fn until(second: i64) -> String {
    token(&format!(r#"{{"exp":{second}}}"#))
}

#[test]
fn a_credential_passes_through_three_stages() {
    use ExpiryStage::{Expired, Soon, WithinAnHour};
    // Lifetime, time from the expiry, stage, and time from the expiry until the next change.
    for (lasts, now, stage, next) in [
        (0, -30 * DAY, None, Some(-3 * DAY)),
        (0, -3 * DAY - 1, None, Some(-3 * DAY)),
        (0, -3 * DAY, Some(Soon), Some(-HOUR)),
        (0, -HOUR - 1, Some(Soon), Some(-HOUR)),
        (0, -HOUR, Some(WithinAnHour), Some(0)),
        (0, -1, Some(WithinAnHour), Some(0)),
        (0, 0, Some(Expired), None),
        (0, 9999 * DAY, Some(Expired), None),
        (30 * DAY, -3 * DAY, Some(Soon), Some(-HOUR)),
        (6 * DAY, -3 * DAY, Some(Soon), Some(-HOUR)),
        (6 * DAY - 1, -3 * DAY, None, Some(-HOUR)),
        (12 * HOUR, -12 * HOUR, None, Some(-HOUR)),
        (12 * HOUR, -HOUR, Some(WithinAnHour), Some(0)),
        (2 * HOUR, -HOUR, Some(WithinAnHour), Some(0)),
        (2 * HOUR - 1, -HOUR, None, Some(0)),
        (300, -1, None, Some(0)),
        (300, 0, Some(Expired), None),
    ] {
        let expiries = expiries(&[("r.io", AT, lasts)]);
        let found: Vec<ExpiryStage> = expiries
            .due(at(AT + now))
            .into_iter()
            .map(|(stage, _)| stage)
            .collect();
        assert_eq!(found, Vec::from_iter(stage), "{lasts} {now}");
        let found = expiries.next_change(at(AT + now));
        assert_eq!(found, next.map(|next| at(AT + next)), "{lasts} {now}");
    }
}

#[test]
fn the_next_change_is_that_of_any_credential() {
    let expiries = expiries(&[("late", AT + DAY, 0), ("early", AT, 0), ("x", AT + 1, 0)]);
    assert_eq!(expiries.earliest(), Some(at(AT)));
    let due = |now| {
        let due = expiries.due(at(now)).into_iter();
        due.map(|(_, expiring)| expiring.registry.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(due(AT - 3 * DAY), ["early"]);
    assert_eq!(due(AT + DAY), ["early", "x", "late"]);
    for (now, next) in [
        (AT - 3 * DAY, AT - 3 * DAY + 1),
        (AT - 3 * DAY + 1, AT - 2 * DAY),
        (AT - 2 * DAY, AT - HOUR),
        (AT + 1, AT + DAY - HOUR),
    ] {
        assert_eq!(expiries.next_change(at(now)), Some(at(next)), "{now}");
    }
    let none = Expiries::of(None);
    assert_eq!((none.earliest(), none.next_change(at(0))), (None, None));
}

#[test]
fn credentials_name_their_secret_and_omit_unknown_times() {
    let (a, b, c, d) = (until(AT), until(AT + 1), until(AT + 2), until(AT + 3));
    let ecr = "1.dkr.ecr.eu-west-1.amazonaws.com";
    let global = Global {
        content: Some(Content {
            config: config(&[
                ("a", &a),
                ("b", &b),
                ("c", &c),
                ("plain", "u:p"),
                (ecr, "AWS:p"),
                ("gcr.io", "oauth2accesstoken:p"),
            ]),
            scoped: vec![ScopedConfig {
                source: "team-d".to_owned(),
                scope: Scope::default(),
                config: config(&[("a", &d)]),
            }],
            ..Content::default()
        }),
        last_additional: Some(Data(Some(file(&[("https://a/v1/", &a)]).into_bytes()))),
        last_original: Some(Data(Some(file(&[("a", &d), ("c", &c)]).into_bytes()))),
        last_sources: BTreeMap::from([
            // Shadowed by the additional Secret in `a`.
            (
                "team-b".to_owned(),
                Data(Some(file(&[("a", &d), ("b", &b)]).into_bytes())),
            ),
            (
                "team-d".to_owned(),
                Data(Some(file(&[("c", &c)]).into_bytes())),
            ),
        ]),
        last_scopes: BTreeMap::from([("team-d".to_owned(), Scope::default())]),
        ..Global::default()
    };
    let found: Vec<(String, Option<String>)> = Expiries::of(Some(&global))
        .0
        .into_iter()
        .map(|expiring| (expiring.registry, expiring.source))
        .collect();
    let named =
        |registry: &str, source: Option<&str>| (registry.to_owned(), source.map(str::to_owned));
    assert_eq!(
        found,
        [
            named("a", Some(ADDITIONAL_SECRET)),
            named("b", Some("team-b")),
            named("c", None),
            named("a", Some("team-d")),
        ]
    );
}

/// Without optimization this takes some hundred milliseconds; a reconcile parses the same content anyway.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn the_largest_content_is_read_in_a_bounded_time() {
    let claims = format!(r#"{{"exp":{AT},"sub":"{}"}}"#, "s".repeat(300));
    let token = token(&claims);
    let keys: Vec<String> = (0..1700).map(|at| format!("r{at}.example.com")).collect();
    let entries: Vec<(&str, &str)> = keys.iter().map(|key| (&**key, &*token)).collect();
    let bytes = file(&entries);
    assert!(bytes.len() > 1_000_000, "{}", bytes.len());
    let content = Content {
        config: globalps_dockerconfig::parse(bytes.as_bytes()).unwrap(),
        ..Content::default()
    };
    let global = Global {
        content: Some(content),
        last_additional: Some(Data(Some(bytes.into_bytes()))),
        ..Global::default()
    };
    let begun = std::time::Instant::now();
    assert_eq!(Expiries::of(Some(&global)).0.len(), 1700);
    let took = begun.elapsed();
    assert!(took.as_secs() < 5, "{took:?}");
}
