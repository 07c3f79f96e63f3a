//! When the credentials in force expire. Pure.

use std::collections::BTreeMap;

use globalps_core::names::ADDITIONAL_SECRET;
use globalps_dockerconfig::{DockerConfig, Entry, shown_key};
use jiff::{SignedDuration, Timestamp};

use super::secret::Global;
use super::source::Data;

/// How far a credential is from its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Soon,
    WithinAnHour,
    Expired,
}

/// The stages, and how long before the expiry each begins.
const STAGES: [(Stage, SignedDuration); 3] = [
    (Stage::Soon, SignedDuration::from_hours(3 * 24)),
    (Stage::WithinAnHour, SignedDuration::from_hours(1)),
    (Stage::Expired, SignedDuration::ZERO),
];

/// A credential with a known time of expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiring {
    pub(crate) at: Timestamp,
    /// `None`: unknown.
    issued: Option<Timestamp>,
    /// Without a user or password that the key may contain.
    pub(crate) registry: String,
    /// The Secret that it comes from; `None`: the original.
    pub(crate) source: Option<String>,
}

impl Expiring {
    /// The stages with the time at which each begins. A credential that lasts for less than twice the time before its expiry at
    /// which a stage begins skips the stage: otherwise one that is renewed every few hours would always be about to expire.
    fn stages(&self) -> impl Iterator<Item = (Stage, Timestamp)> {
        let lasts = self.issued.map(|issued| self.at.duration_since(issued));
        STAGES
            .into_iter()
            .filter(move |(_, before)| lasts.is_none_or(|lasts| lasts >= *before * 2))
            .map(|(stage, before)| (stage, self.at - before))
    }

    /// `None`: it does not expire soon.
    fn stage(&self, now: Timestamp) -> Option<Stage> {
        let begun = self.stages().filter(|(_, begins)| *begins <= now);
        begun.map(|(stage, _)| stage).max()
    }
}

/// The credentials in force that contain the time of their expiry, in order of this time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiries(Vec<Expiring>);

impl Expiries {
    /// This reads every credential, so compute it once per content. Credentials of which only the lifetime is known are not
    /// part of it: when they were issued is unknown.
    pub(crate) fn of(global: Option<&Global>) -> Self {
        let Some((global, content)) =
            global.and_then(|global| Some((global, global.content.as_ref()?)))
        else {
            return Self::default();
        };
        let for_every_pod = of_config(&content.config);
        let mut sources = sources(global, &for_every_pod);
        let for_every_pod = for_every_pod.into_iter().map(|(key, _, mut expiring)| {
            expiring.source = sources.remove(&key);
            expiring
        });
        let mut all: Vec<Expiring> = for_every_pod.collect();
        for scoped in &content.scoped {
            all.extend(
                of_config(&scoped.config)
                    .into_iter()
                    .map(|(_, _, expiring)| Expiring {
                        source: Some(scoped.source.clone()),
                        ..expiring
                    }),
            );
        }
        all.sort_by(|one, other| (one.at, &one.registry).cmp(&(other.at, &other.registry)));
        Self(all)
    }

    /// The earliest expiry, which may be in the past.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        self.0.first().map(|expiring| expiring.at)
    }

    /// The credentials that expire soon or have expired, in order of time.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<(Stage, &Expiring)> {
        let due = self.0.iter();
        due.filter_map(|expiring| Some((expiring.stage(now)?, expiring)))
            .collect()
    }

    /// The next time after `now` at which a credential enters a stage.
    pub(crate) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let times = self.0.iter().flat_map(Expiring::stages);
        times
            .map(|(_, begins)| begins)
            .filter(|begins| *begins > now)
            .min()
    }
}

/// Canonical key, entry, and time.
fn of_config(config: &DockerConfig) -> Vec<(String, &Entry, Expiring)> {
    let expiring = |key: &str, entry: &Entry| {
        let credential = entry.credential().ok()??;
        let expiry = globalps_dockerconfig::expiry(key, credential)?;
        Some(Expiring {
            at: expiry.at,
            issued: expiry.issued,
            registry: shown_key(key),
            source: None,
        })
    };
    let entries = config.by_canonical_key().into_iter();
    entries
        .filter_map(|(key, entry)| {
            let expiring = expiring(&key, entry)?;
            Some((key.into_owned(), entry, expiring))
        })
        .collect()
}

/// The Secrets that the entries come from, by canonical key; one of the original is missing.
fn sources(global: &Global, entries: &[(String, &Entry, Expiring)]) -> BTreeMap<String, String> {
    let additional = global.last_additional.iter();
    let additional = additional.map(|data| (ADDITIONAL_SECRET, data));
    let others = global.last_sources.iter();
    let others = others
        .filter(|(name, _)| !global.last_scopes.contains_key(*name))
        .map(|(name, data)| (name.as_str(), data));
    let mut found = BTreeMap::new();
    if entries.is_empty() {
        return found;
    }
    // One after the other, because parsing takes many times the size.
    for (name, Data(bytes)) in additional.chain(others) {
        let Some(Ok(config)) = bytes.as_deref().map(globalps_dockerconfig::parse) else {
            continue;
        };
        let known = config.by_canonical_key();
        for (key, entry, _) in entries {
            let is_there = known
                .get(key.as_str())
                .is_some_and(|known| known.means_the_same(entry));
            if is_there && !found.contains_key(key) {
                found.insert(key.clone(), name.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use globalps_provider::{Content, Scope, ScopedConfig};
    use k8s_openapi::ByteString;

    use super::*;

    pub(crate) const AT: i64 = 1_800_000_000;
    pub(crate) const HOUR: i64 = 3600;
    pub(crate) const DAY: i64 = 24 * HOUR;

    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn base64(text: &str) -> String {
        let bytes = ByteString(text.as_bytes().to_vec());
        let value = serde_json::to_value(bytes).unwrap();
        value.as_str().unwrap().to_owned()
    }

    fn file(entries: &[(&str, &str)]) -> String {
        let entries: Vec<String> = entries
            .iter()
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{}"}}"#, base64(auth)))
            .collect();
        format!(r#"{{"auths":{{{}}}}}"#, entries.join(","))
    }

    fn config(entries: &[(&str, &str)]) -> DockerConfig {
        globalps_dockerconfig::parse(file(entries).as_bytes()).unwrap()
    }

    /// A user with a JSON web token.
    fn token(claims: &str) -> String {
        let payload = base64(claims).replace('+', "-").replace('/', "_");
        format!("u:e30.{}.c2ln", payload.trim_end_matches('='))
    }

    fn until(second: i64) -> String {
        token(&format!(r#"{{"exp":{second}}}"#))
    }

    /// Registries with the time at which their credentials expire, and the lifetime; 0: unknown.
    pub(crate) fn expiries(entries: &[(&str, i64, i64)]) -> Expiries {
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
        let entries: Vec<(&str, &str)> =
            entries.iter().map(|(key, auth)| (*key, &**auth)).collect();
        Expiries::of(Some(&Global {
            content: Some(Content {
                config: config(&entries),
                ..Content::default()
            }),
            last_additional: Some(Data(Some(file(&entries).into_bytes()))),
            ..Global::default()
        }))
    }

    #[test]
    fn a_credential_passes_through_three_stages() {
        use Stage::{Expired, Soon, WithinAnHour};
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
            let found: Vec<Stage> = expiries
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
    fn each_credential_names_its_secret_and_unknown_times_are_left_out() {
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
}
