//! When the credentials in force expire. Pure.

use std::collections::BTreeMap;

use globalps_core::names::ADDITIONAL_SECRET;
use globalps_dockerconfig::{DockerConfig, Entry, shown_key};
use jiff::{SignedDuration, Timestamp};

use super::secret::Global;
use super::source::Data;

/// How far a credential is from its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExpiryStage {
    /// Three days are left.
    Soon,
    /// At most one hour is left.
    WithinAnHour,
    /// The credential has expired.
    Expired,
}

/// The stages, and how long before the expiry each begins.
const STAGES: [(ExpiryStage, SignedDuration); 3] = [
    (ExpiryStage::Soon, SignedDuration::from_hours(3 * 24)),
    (ExpiryStage::WithinAnHour, SignedDuration::from_hours(1)),
    (ExpiryStage::Expired, SignedDuration::ZERO),
];

/// A credential with a known time of expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// When the registry begins to reject it.
    pub at: Timestamp,
    /// `None`: unknown.
    issued: Option<Timestamp>,
    /// Without a user or password that the key may contain.
    pub registry: String,
    /// The Secret that it comes from; `None`: the original.
    pub source: Option<String>,
}

impl Expiring {
    /// The stages with the time at which each begins. A credential that lasts for less than twice the time before its expiry at
    /// which a stage begins skips the stage: otherwise one that is renewed every few hours would always be about to expire.
    fn stages(&self) -> impl Iterator<Item = (ExpiryStage, Timestamp)> {
        let lasts = self.issued.map(|issued| self.at.duration_since(issued));
        STAGES
            .into_iter()
            .filter(move |(_, before)| lasts.is_none_or(|lasts| lasts >= *before * 2))
            .map(|(stage, before)| (stage, self.at - before))
    }

    /// `None`: it does not expire soon.
    fn stage(&self, now: Timestamp) -> Option<ExpiryStage> {
        let begun = self.stages().filter(|(_, begins)| *begins <= now);
        begun.map(|(stage, _)| stage).max()
    }
}

/// The credentials in force that contain the time of their expiry, in order of this time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiries(Vec<Expiring>);

impl Expiries {
    /// This reads every credential, so compute it once per content. Credentials of which only the lifetime is known are not
    /// part of it: when they were issued is unknown.
    pub fn of(global: Option<&Global>) -> Self {
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
    pub fn earliest(&self) -> Option<Timestamp> {
        self.0.first().map(|expiring| expiring.at)
    }

    /// The credentials that expire soon or have expired, in order of time.
    pub fn due(&self, now: Timestamp) -> Vec<(ExpiryStage, &Expiring)> {
        let due = self.0.iter();
        due.filter_map(|expiring| Some((expiring.stage(now)?, expiring)))
            .collect()
    }

    /// The next time after `now` at which a credential enters a stage.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
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
    // One after the other, because parsing takes many times the size in memory.
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

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
