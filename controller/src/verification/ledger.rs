//! Which registry is asked when. Pure: the caller has the clock and draws the jitter.

use std::collections::BTreeMap;
use std::time::Duration;

use globalps_dockerconfig::{Credential, DockerConfig, shown_key};
use globalps_provider::Content;
use globalps_registry::registry_name;
use tokio::time::Instant;

use super::outcome::Outcome;

/// Number of registries that are asked at the same time.
const CONCURRENT: usize = 4;
/// A rejection is checked once more after this time: registries and the servers behind them have bad moments.
const CONFIRM_AFTER: Duration = Duration::from_secs(30);
/// New credentials are checked within this time.
const SOON: Duration = Duration::from_secs(5);
/// A registry that could not be asked is tried again after this time, if the interval is not shorter.
const RETRY_AFTER: Duration = Duration::from_mins(5);
/// Rejections in a row after which credentials count as rejected.
const REJECTIONS: u8 = 2;
/// Number of registries that are asked at all. Each pull secret has far fewer, and a source with more must not cause requests
/// without end.
const MOST: usize = 1000;

/// Source, empty for the part that is for every pod, and registry.
type Key = (String, String);

/// The registry to check, and the credentials.
pub(crate) struct Question {
    pub(crate) credential: Credential,
    key: Key,
    /// Distinguishes this credential from later ones with the same key.
    serial: u64,
}

impl Question {
    pub(crate) fn registry(&self) -> &str {
        &self.key.1
    }
}

struct LedgerEntry {
    credential: Credential,
    serial: u64,
    is_asked: bool,
    due: Instant,
    rejections: u8,
    /// `None`: not known yet.
    known: Option<Outcome>,
}

/// Every registry of the content, with what is known about its credentials.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<Key, LedgerEntry>,
    serial: u64,
}

/// The state of all registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Source, registry and HTTP status.
    pub(crate) rejected: Vec<(String, String, u16)>,
    /// Registry and reason.
    pub(crate) unknown: Vec<(String, &'static str)>,
    pub(crate) accepted: usize,
    /// Every registry has been asked as often as needed.
    pub(crate) is_complete: bool,
}

impl Ledger {
    /// Credentials that did not change keep what is known about them. `jitter`: a random duration up to the given one.
    pub(crate) fn set_content(
        &mut self,
        content: &Content,
        now: Instant,
        jitter: impl Fn(Duration) -> Duration,
    ) {
        let mut known = std::mem::take(&mut self.entries);
        let parts = content.parts();
        for (key, credential) in parts.flat_map(|(source, config)| credentials(source, config)) {
            if self.entries.len() == MOST {
                break;
            }
            let old = known
                .remove(&key)
                .filter(|old| old.credential == *credential);
            let entry = old.unwrap_or_else(|| {
                self.serial += 1;
                LedgerEntry {
                    credential: credential.clone(),
                    serial: self.serial,
                    is_asked: false,
                    due: now + jitter(SOON),
                    rejections: 0,
                    known: None,
                }
            });
            self.entries.insert(key, entry);
        }
    }

    /// Every registry is asked by then.
    pub(crate) fn limit(&mut self, latest: Instant) {
        for entry in self.entries.values_mut() {
            entry.due = entry.due.min(latest);
        }
    }

    /// The next question, if one is due and not too many are open; it is open until [`Self::settle`].
    pub(crate) fn ask(&mut self, now: Instant) -> Option<Question> {
        self.next().filter(|due| *due <= now)?;
        let waiting = self.entries.iter_mut().filter(|(_, entry)| !entry.is_asked);
        let (key, entry) = waiting.min_by_key(|(_, entry)| entry.due)?;
        entry.is_asked = true;
        Some(Question {
            credential: entry.credential.clone(),
            key: key.clone(),
            serial: entry.serial,
        })
    }

    /// When [`Self::ask`] may have a question without a further [`Self::settle`].
    pub(crate) fn next(&self) -> Option<Instant> {
        let open = self.entries.values().filter(|entry| entry.is_asked).count();
        let waiting = self.entries.values().filter(|entry| !entry.is_asked);
        let next = waiting.map(|entry| entry.due).min()?;
        (open < CONCURRENT).then_some(next)
    }

    /// Closes a question. The response about an earlier credential changes nothing.
    pub(crate) fn settle(
        &mut self,
        question: &Question,
        outcome: Outcome,
        now: Instant,
        interval: Duration,
        jitter: impl Fn(Duration) -> Duration,
    ) {
        let Some(entry) = self.entries.get_mut(&question.key) else {
            return;
        };
        if entry.serial != question.serial {
            return;
        }
        entry.is_asked = false;
        let mut pause = interval;
        match outcome {
            Outcome::Accepted => {
                entry.rejections = 0;
                entry.known = Some(outcome);
            }
            Outcome::Rejected(_) => {
                entry.rejections = entry.rejections.saturating_add(1).min(REJECTIONS);
                if entry.rejections == REJECTIONS {
                    entry.known = Some(outcome);
                } else {
                    pause = interval.min(CONFIRM_AFTER);
                }
            }
            Outcome::Unknown(_) => {
                // Rejected credentials stay so until the registry accepts them.
                if !matches!(entry.known, Some(Outcome::Rejected(_))) {
                    entry.known = Some(outcome);
                }
                pause = interval.min(RETRY_AFTER);
            }
        }
        entry.due = now + jitter(pause);
    }

    /// `None`: there is nothing to verify.
    pub(crate) fn verified(&self) -> Option<Verified> {
        if self.entries.is_empty() {
            return None;
        }
        let mut verified = Verified {
            is_complete: true,
            ..Verified::default()
        };
        for ((source, registry), entry) in &self.entries {
            match entry.known {
                None => verified.is_complete = false,
                Some(Outcome::Accepted) => verified.accepted += 1,
                Some(Outcome::Rejected(status)) => {
                    let rejected = (source.clone(), registry.clone(), status);
                    verified.rejected.push(rejected);
                }
                Some(Outcome::Unknown(reason)) => {
                    verified.unknown.push((registry.clone(), reason));
                }
            }
        }
        Some(verified)
    }
}

/// The credentials that can be checked: entries for one registry, with a user or a password.
fn credentials<'a>(
    source: &'a str,
    config: &'a DockerConfig,
) -> impl Iterator<Item = (Key, &'a Credential)> {
    config.entries().iter().filter_map(move |entry| {
        let credential = entry.credential().ok().flatten()?;
        let is_empty =
            credential.username.expose().is_empty() && credential.password.expose().is_empty();
        let registry = shown_key(&registry_name(entry.key()));
        let is_pattern = registry.contains(['*', '?']) || registry.is_empty();
        (!is_empty && !is_pattern).then(|| ((source.to_owned(), registry), credential))
    })
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::parse;
    use globalps_provider::{Scope, ScopedConfig};

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn config(entries: &[(&str, &str)]) -> DockerConfig {
        let entries: Vec<String> = entries
            .iter()
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
            .collect();
        parse(format!(r#"{{"auths":{{{}}}}}"#, entries.join(",")).as_bytes()).unwrap()
    }

    fn content(entries: &[(&str, &str)]) -> Content {
        Content {
            config: config(entries),
            ..Content::default()
        }
    }

    fn none(_: Duration) -> Duration {
        Duration::ZERO
    }

    fn all(duration: Duration) -> Duration {
        duration
    }

    fn rejected(ledger: &Ledger) -> Vec<String> {
        let verified = ledger.verified().unwrap();
        let names = verified.rejected.into_iter();
        names.map(|(_, registry, _)| registry).collect()
    }

    #[test]
    fn a_rejection_counts_from_the_second_one_until_an_acceptance() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.set_content(&content(&[("quay.io", "dTpw")]), now, none);
        let mut at = now;
        for (outcome, expected, pause) in [
            (Outcome::Rejected(401), false, CONFIRM_AFTER),
            (Outcome::Accepted, false, HOUR),
            (Outcome::Rejected(401), false, CONFIRM_AFTER),
            (Outcome::Unknown("no response"), false, RETRY_AFTER),
            (Outcome::Rejected(403), true, HOUR),
            (Outcome::Unknown("no response"), true, RETRY_AFTER),
            (Outcome::Rejected(401), true, HOUR),
            (Outcome::Accepted, false, HOUR),
        ] {
            let question = ledger.ask(at).unwrap();
            assert!(ledger.ask(at).is_none(), "it is asked once");
            ledger.settle(&question, outcome, at, HOUR, all);
            assert_eq!(!rejected(&ledger).is_empty(), expected, "{outcome:?}");
            assert_eq!(ledger.next(), Some(at + pause), "{outcome:?}");
            assert!(ledger.ask(at).is_none(), "not before it is due");
            at += pause;
        }
        assert_eq!(ledger.verified().unwrap().accepted, 1);
    }

    #[test]
    fn a_short_interval_is_not_exceeded() {
        let now = Instant::now();
        let interval = Duration::from_secs(20);
        for outcome in [Outcome::Rejected(401), Outcome::Unknown("no response")] {
            let mut ledger = Ledger::default();
            ledger.set_content(&content(&[("quay.io", "dTpw")]), now, none);
            let question = ledger.ask(now).unwrap();
            ledger.settle(&question, outcome, now, interval, all);
            assert_eq!(ledger.next(), Some(now + interval));
        }
    }

    #[test]
    fn other_credentials_are_checked_soon_and_the_rest_stays_known() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.set_content(&content(&[("a.io", "dTpw"), ("b.io", "dTpw")]), now, none);
        let first = ledger.ask(now).unwrap();
        ledger.settle(&first, Outcome::Accepted, now, HOUR, all);
        let late = ledger.ask(now).unwrap();
        assert_eq!((first.registry(), late.registry()), ("a.io", "b.io"));
        let before = ledger.verified().unwrap();
        assert_eq!((before.accepted, before.is_complete), (1, false));

        ledger.set_content(&content(&[("a.io", "dTpw"), ("b.io", "djp3")]), now, all);
        assert_eq!(ledger.next(), Some(now + SOON));
        ledger.settle(&late, Outcome::Rejected(401), now, HOUR, all);
        ledger.settle(&late, Outcome::Rejected(401), now, HOUR, all);
        assert_eq!(rejected(&ledger), [""; 0], "it was about the old password");
        let again = ledger.ask(now + SOON).unwrap();
        assert_eq!(again.credential.as_text(), Some(("v", "w")));

        ledger.set_content(&content(&[]), now, none);
        ledger.settle(&again, Outcome::Accepted, now, HOUR, all);
        assert_eq!(ledger.verified(), None);
    }

    #[test]
    fn only_what_names_one_registry_is_asked_and_few_at_a_time() {
        let now = Instant::now();
        let mut with_scope = content(&[
            ("https://index.docker.io/v1/", "dTpw"),
            ("*.azurecr.io", "dTpw"),
            ("empty.io", "Og=="),
        ]);
        with_scope.scoped.push(ScopedConfig {
            source: "team-a".to_owned(),
            scope: Scope::default(),
            config: config(&[("docker.io/org", "dTpw")]),
        });
        let mut ledger = Ledger::default();
        ledger.set_content(&with_scope, now, none);
        let asked: Vec<String> = std::iter::from_fn(|| ledger.ask(now))
            .map(|question| question.registry().to_owned())
            .collect();
        assert_eq!(asked, ["docker.io", "docker.io/org"]);

        let names: Vec<String> = (0..MOST + 9).map(|n| format!("r{n}.io")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "dTpw")).collect();
        let mut ledger = Ledger::default();
        ledger.set_content(&content(&many), now, none);
        assert_eq!(ledger.entries.len(), MOST);
        let open: Vec<_> = std::iter::from_fn(|| ledger.ask(now)).collect();
        assert_eq!((open.len(), ledger.next()), (CONCURRENT, None));
        ledger.settle(&open[0], Outcome::Accepted, now, HOUR, all);
        assert!(ledger.ask(now).is_some());
    }
}
