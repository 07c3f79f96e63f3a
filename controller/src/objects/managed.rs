//! The objects of the agents, as the controller wrote them and as the API server has them, and a rate limiter
//! for reverts. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use globalps_core::api::ProviderPaths;
use globalps_core::backoff::doubled;
use globalps_manifests::Agent;
use kube::api::{ObjectMeta, PartialObjectMeta};
use tokio::time::Instant;

use super::views::{AgentTemplate, DaemonSetView};

/// Number of reverts without a backoff.
const BURST: u32 = 5;
/// First and longest backoff after the burst; it doubles with each revert.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// The backoff is reset after this time without a revert.
const RESET_AFTER: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagedKind {
    ServiceAccount,
    Role,
    RoleBinding,
    DaemonSet,
}

impl ManagedKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

/// An object of an agent that the controller manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManagedObject {
    pub(crate) agent: Agent,
    pub(crate) kind: ManagedKind,
}

impl ManagedObject {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::of(&Agent::ALL)
    }

    /// Those of these agents.
    pub(crate) fn of(agents: &[Agent]) -> impl Iterator<Item = Self> {
        agents.iter().flat_map(|&agent| {
            [
                ManagedKind::ServiceAccount,
                ManagedKind::Role,
                ManagedKind::RoleBinding,
                ManagedKind::DaemonSet,
            ]
            .map(|kind| Self { agent, kind })
        })
    }
}

impl fmt::Display for ManagedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind.as_str(), self.agent.name())
    }
}

/// One value for each managed object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerObject<T> {
    pub(super) syncer: PerKind<T>,
    pub(super) restorer: PerKind<T>,
    pub(super) observer: PerKind<T>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PerKind<T> {
    pub(super) service_account: T,
    pub(super) role: T,
    pub(super) role_binding: T,
    pub(super) daemon_set: T,
}

impl<T> PerObject<T> {
    pub(crate) fn of(mut value: impl FnMut(ManagedObject) -> T) -> Self {
        let mut of_agent = |agent| {
            let mut of_kind = |kind| value(ManagedObject { agent, kind });
            PerKind {
                service_account: of_kind(ManagedKind::ServiceAccount),
                role: of_kind(ManagedKind::Role),
                role_binding: of_kind(ManagedKind::RoleBinding),
                daemon_set: of_kind(ManagedKind::DaemonSet),
            }
        };
        Self {
            syncer: of_agent(Agent::Syncer),
            restorer: of_agent(Agent::Restorer),
            observer: of_agent(Agent::Observer),
        }
    }

    pub(crate) fn get(&self, object: ManagedObject) -> &T {
        let of_agent = match object.agent {
            Agent::Syncer => &self.syncer,
            Agent::Restorer => &self.restorer,
            Agent::Observer => &self.observer,
        };
        match object.kind {
            ManagedKind::ServiceAccount => &of_agent.service_account,
            ManagedKind::Role => &of_agent.role,
            ManagedKind::RoleBinding => &of_agent.role_binding,
            ManagedKind::DaemonSet => &of_agent.daemon_set,
        }
    }

    pub(crate) fn get_mut(&mut self, object: ManagedObject) -> &mut T {
        let of_agent = match object.agent {
            Agent::Syncer => &mut self.syncer,
            Agent::Restorer => &mut self.restorer,
            Agent::Observer => &mut self.observer,
        };
        match object.kind {
            ManagedKind::ServiceAccount => &mut of_agent.service_account,
            ManagedKind::Role => &mut of_agent.role,
            ManagedKind::RoleBinding => &mut of_agent.role_binding,
            ManagedKind::DaemonSet => &mut of_agent.daemon_set,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ManagedObject, &T)> {
        ManagedObject::all().map(|object| (object, self.get(object)))
    }
}

/// A managed object as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveObject {
    pub(crate) version: u64,
    pub(crate) fingerprint: Fingerprint,
    /// Finalizers keep it, but nothing works with it any more: no pods are made for it, and its tokens are invalid.
    pub(crate) is_being_deleted: bool,
    /// Only for a `DaemonSet`.
    pub(crate) template: Option<AgentTemplate>,
    /// The credential provider directories that the pods of a `DaemonSet` mount.
    pub(crate) provider: Option<ProviderPaths>,
    /// `HyperShift`'s `DaemonSet`.
    pub(crate) is_hypershifts: bool,
}

/// Identifies an object and its spec: changes when the object is recreated or its spec is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    uid: String,
    /// `metadata.generation`; the `resourceVersion` if objects of this kind have no generation, because every change matters
    /// then.
    generation: i64,
}

impl Fingerprint {
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }
}

impl LiveObject {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let version: u64 = metadata
            .resource_version
            .as_deref()
            .and_then(|version| version.parse().ok())
            .unwrap_or_default();
        Self {
            version,
            fingerprint: Fingerprint {
                uid: metadata.uid.clone().unwrap_or_default(),
                generation: metadata
                    .generation
                    .unwrap_or_else(|| i64::try_from(version).unwrap_or_default()),
            },
            is_being_deleted: metadata.deletion_timestamp.is_some(),
            template: None,
            provider: None,
            is_hypershifts: false,
        }
    }
}

impl<K> From<PartialObjectMeta<K>> for LiveObject {
    fn from(object: PartialObjectMeta<K>) -> Self {
        Self::of(&object.metadata)
    }
}

impl From<DaemonSetView> for LiveObject {
    fn from(daemon_set: DaemonSetView) -> Self {
        Self {
            template: Some(daemon_set.template()),
            provider: daemon_set.provider_paths(),
            is_hypershifts: daemon_set.is_hypershifts(),
            ..Self::of(&daemon_set.metadata)
        }
    }
}

/// `None`: the object does not exist, or is being deleted.
pub(crate) type Fingerprints = PerObject<Option<Fingerprint>>;

/// The managed objects as the controller wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Generation of the configuration from which they were created.
    pub(crate) generation: i64,
    /// The credential provider directories in the pods.
    pub(crate) provider: Option<ProviderPaths>,
    /// Of the syncers' nodes.
    pub(crate) node_selector: BTreeMap<String, String>,
    /// The pods kept their template, whatever the configuration says.
    pub(crate) kept: bool,
    pub(crate) fingerprints: Fingerprints,
    /// Those whose last write failed.
    pub(crate) refused: Vec<ManagedObject>,
}

/// Objects that another client changed or deleted since the controller wrote them.
pub(crate) fn out_of_band_changes(
    written: &Fingerprints,
    found: &Fingerprints,
) -> Vec<(ManagedObject, &'static str)> {
    let changes =
        written
            .iter()
            .filter_map(|(object, written)| match (written, found.get(object)) {
                (Some(_), None) => Some((object, "deleted")),
                (Some(written), Some(found)) if written != found => Some((object, "changed")),
                _ => None,
            });
    changes.collect()
}

/// Limits the reverts of one object, so that a conflict with another client does not load the API server.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    reverts: u32,
    last: Option<Instant>,
}

impl RateLimiter {
    /// Time until the next revert is allowed.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        let Some(last) = self.last.filter(|_| self.reverts >= BURST) else {
            return Duration::ZERO;
        };
        let since = now.duration_since(last);
        if since >= RESET_AFTER {
            return Duration::ZERO;
        }
        let (first, longest) = BACKOFF;
        doubled(first, longest, self.reverts - BURST, 1.0).saturating_sub(since)
    }

    pub(crate) fn reverted(&mut self, now: Instant) {
        let is_reset = self
            .last
            .is_some_and(|last| now.duration_since(last) >= RESET_AFTER);
        self.reverts = if is_reset { 1 } else { self.reverts + 1 };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(uid: &str, version: u32, generation: Option<i64>) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            generation,
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_changed_spec_is_noticed_and_a_changed_status_is_not() {
        let fingerprint = |uid, version, generation| {
            Some(LiveObject::of(&metadata(uid, version, generation)).fingerprint)
        };
        let written = PerObject::of(|object| match object.kind {
            ManagedKind::ServiceAccount => fingerprint("a", 1, None),
            ManagedKind::Role => fingerprint("b", 2, None),
            ManagedKind::RoleBinding => fingerprint("c", 3, None),
            ManagedKind::DaemonSet => fingerprint("d", 4, Some(1)),
        });
        for (sentence, kind, found, expected) in [
            (
                "a status of the DaemonSet",
                ManagedKind::DaemonSet,
                fingerprint("d", 9, Some(1)),
                None,
            ),
            (
                "another spec of the DaemonSet",
                ManagedKind::DaemonSet,
                fingerprint("d", 9, Some(2)),
                Some("changed"),
            ),
            (
                "a recreated DaemonSet",
                ManagedKind::DaemonSet,
                fingerprint("e", 9, Some(1)),
                Some("changed"),
            ),
            (
                "other rules",
                ManagedKind::Role,
                fingerprint("b", 9, None),
                Some("changed"),
            ),
            (
                "no account",
                ManagedKind::ServiceAccount,
                None,
                Some("deleted"),
            ),
        ] {
            for agent in Agent::ALL {
                let object = ManagedObject { agent, kind };
                let mut live = written.clone();
                live.get_mut(object).clone_from(&found);
                let expected: Vec<_> = expected.map(|done| (object, done)).into_iter().collect();
                let changes = out_of_band_changes(&written, &live);
                assert_eq!(changes, expected, "{sentence} of {agent:?}");
            }
        }
    }

    #[test]
    fn repeated_reverts_back_off() {
        let mut limiter = RateLimiter::default();
        let mut now = Instant::now();
        let begun = now;
        let mut reverts = 0;
        while now.duration_since(begun) < Duration::from_hours(1) {
            let delay = limiter.delay(now);
            if delay.is_zero() {
                limiter.reverted(now);
                reverts += 1;
                now += Duration::from_millis(10);
            }
            now += delay;
        }
        assert!((60..=72).contains(&reverts), "{reverts} reverts in an hour");
        assert_eq!(limiter.delay(now + RESET_AFTER), Duration::ZERO);
        limiter.reverted(now + RESET_AFTER);
        assert_eq!(limiter.delay(now + RESET_AFTER), Duration::ZERO);
    }
}
