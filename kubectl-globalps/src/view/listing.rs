//! The registries with credentials in force: source, scope, age, and progress. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, GlobalPullSecret, NodePullSecret, SourceStatus};
use globalps_core::names;
use globalps_dockerconfig::{DockerConfig, Entry, Lifetime, Precedence, lifetime, shown_key};
use globalps_provider::{Pattern, Scope, ScopedConfig, parse_scoped};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

use crate::cluster::namespaces::{PartsInForce, SecretSeen};
use crate::secret::additional::{data_of, valid_in};
use crate::secret::history::StoredRevision;
use crate::secret::scope::{EVERY_POD, in_force};
use crate::terminal::layout::{Layout, age_of, laid_out_by, rfc3339};

/// Input of the rows. `None` means hidden from this user, unless a field says otherwise.
pub(crate) struct RegistrySnapshot<'a> {
    pub gps: &'a GlobalPullSecret,
    pub global: Option<&'a Secret>,
    /// Newest first; empty if hidden.
    pub revisions: &'a [StoredRevision],
    pub nodes: Option<&'a [&'a NodePullSecret]>,
    /// The pull secrets in namespaces. Only needed for sources with a scope.
    pub in_namespaces: Option<&'a [SecretSeen]>,
    pub hidden: Vec<String>,
}

/// The controller reports this for credentials that reach no pod.
const NOT_DELIVERABLE: &str = "NotDeliverable";

/// `list -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    pub registries: Vec<RegistryRow>,
    /// What this user may not read. Fields are `null` or empty, or rows are missing, because of it.
    pub hidden: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum SourceKind {
    Additional,
    Source,
    Original,
    /// No known pull secret contains it.
    #[default]
    Unknown,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegistryRow {
    /// Canonical name, optionally with a path.
    pub registry: String,
    /// Empty if there is none, or it is hidden.
    user: String,
    /// Name of the Secret; for the original pull secret, with its namespace.
    source: String,
    kind: SourceKind,
    /// The pods that may use it; `null`: every pod.
    scope: Option<Scope>,
    /// `ConfigFile` or `CredentialProvider` on nodes; `ImagePullSecrets` or `None` otherwise; `NotDeliverable` if it
    /// reaches no pod.
    delivery: &'static str,
    /// Nodes that have it, and nodes that should have it.
    nodes: Option<usize>,
    nodes_total: Option<usize>,
    /// Namespaces that have it; `null` if hidden, or if it is not delivered to namespaces.
    namespaces: Option<u32>,
    /// The first known revision with this credential.
    revision: Option<i64>,
    /// An earlier revision may have had it too.
    or_earlier: bool,
    /// When every node had this revision, in RFC 3339; empty if not yet, or unknown.
    since: String,
    /// When the password expires, in RFC 3339, if it is a token with an expiry.
    pub expires: Option<String>,
    #[serde(skip)]
    since_time: Option<Timestamp>,
}

/// A pull secret whose content for every pod may be in force.
struct Candidate {
    kind: SourceKind,
    name: String,
    config: DockerConfig,
}

impl Listing {
    pub(crate) fn of(snapshot: RegistrySnapshot) -> Self {
        let mut registries = match snapshot.global {
            Some(global) => of_content(&snapshot, global),
            None => of_status(&snapshot, |source| source.delivery != NOT_DELIVERABLE),
        };
        let known = |row: &RegistryRow| registries.iter().any(|it| it.is_same(row));
        let undelivered = of_status(&snapshot, |source| source.delivery == NOT_DELIVERABLE);
        let unknown = undelivered.into_iter().filter(|row| !known(row));
        let undelivered = unknown.map(|row| RegistryRow {
            delivery: NOT_DELIVERABLE,
            nodes: Some(0),
            nodes_total: snapshot.nodes.map(<[_]>::len),
            ..row
        });
        let undelivered: Vec<RegistryRow> = undelivered.collect();
        registries.extend(undelivered);
        // A stable sort: for each registry, the credential for every pod stays first.
        registries.sort_by(|a, b| a.registry.cmp(&b.registry));
        Self {
            registries,
            hidden: snapshot.hidden,
        }
    }

    pub(crate) fn table(&self, now: Timestamp, layout: Layout) -> String {
        let has_namespaces = self.registries.iter().any(|row| row.namespaces.is_some());
        let mut rows = self.registries.iter();
        let has_undelivered = rows.any(|row| row.delivery == NOT_DELIVERABLE);
        let all = [
            ("REGISTRY", true),
            ("USER", true),
            ("SOURCE", true),
            ("SCOPE", true),
            ("REVISION", true),
            ("AGE", true),
            ("NODES", true),
            ("NAMESPACES", has_namespaces),
            ("DELIVERY", layout.wide || has_undelivered),
            ("EXPIRES", layout.wide),
        ];
        let shown = all.iter().filter(|(_, is_shown)| *is_shown);
        let header: Vec<&str> = shown.map(|(title, _)| *title).collect();
        let cell = |row: &RegistryRow, title: &str| row.cell(title, now);
        laid_out_by(&header, &self.registries, layout, cell, |_, _| None)
    }
}

impl RegistryRow {
    fn is_same(&self, other: &Self) -> bool {
        (&self.registry, &self.source) == (&other.registry, &other.source)
    }

    fn cell(&self, title: &str, now: Timestamp) -> String {
        const UNKNOWN: &str = "?";
        match title {
            "REGISTRY" => self.registry.clone(),
            "USER" => self.user.clone(),
            "SOURCE" => match (self.kind, self.source.as_str()) {
                (SourceKind::Original, "") => "original".to_owned(),
                (SourceKind::Original, name) => format!("original {name}"),
                (SourceKind::Unknown, _) => UNKNOWN.to_owned(),
                (_, name) => name.to_owned(),
            },
            "SCOPE" => self.scope.as_ref().map_or(EVERY_POD.to_owned(), in_force),
            "REVISION" => match self.revision {
                Some(revision) if self.or_earlier => format!("<={revision}"),
                Some(revision) => revision.to_string(),
                None if self.delivery == NOT_DELIVERABLE => String::new(),
                None => UNKNOWN.to_owned(),
            },
            "AGE" => age_of(self.since_time, now),
            "NODES" => match self.nodes.zip(self.nodes_total) {
                Some((nodes, total)) => format!("{nodes}/{total}"),
                None => UNKNOWN.to_owned(),
            },
            "NAMESPACES" => self
                .namespaces
                .map_or(UNKNOWN.to_owned(), |number| number.to_string()),
            "DELIVERY" => self.delivery.to_owned(),
            _ => self.expires.clone().unwrap_or_default(),
        }
    }
}

fn config(global: &Secret, key: &str) -> DockerConfig {
    valid_in(global, key).unwrap_or_default()
}

fn of_content(snapshot: &RegistrySnapshot, global: &Secret) -> Vec<RegistryRow> {
    let candidates = candidates(snapshot.gps, global);
    let since = PartsInForce::of(global);
    let merged = config(global, names::DATA_KEY);
    let of_every_pod = merged
        .by_canonical_key()
        .into_iter()
        .map(|(key, entry)| of_every_pod(snapshot, &since, &candidates, &key, entry))
        .collect::<Vec<_>>();
    let scoped = data_of(global, names::SCOPED_KEY).and_then(|bytes| parse_scoped(bytes).ok());
    let scoped = scoped.unwrap_or_default();
    let of_scopes = scoped.iter().flat_map(|scoped| {
        let entries = scoped.config.by_canonical_key().into_iter();
        let row = |(key, entry): (std::borrow::Cow<'_, str>, &Entry)| {
            of_scope(snapshot, &since, scoped, &shown_key(&key), entry)
        };
        entries.map(row).collect::<Vec<_>>()
    });
    of_every_pod.into_iter().chain(of_scopes).collect()
}

/// The pull secrets for every pod, in order of precedence.
fn candidates(gps: &GlobalPullSecret, global: &Secret) -> Vec<Candidate> {
    let spec = &gps.spec;
    let candidate = |kind, name: &str, key: &str| Candidate {
        kind,
        name: name.to_owned(),
        config: config(global, key),
    };
    let additional = candidate(
        SourceKind::Additional,
        names::ADDITIONAL_SECRET,
        names::LAST_ADDITIONAL_KEY,
    );
    let sources = spec.sources.iter().map(|source| {
        let key = format!("{}{}", names::LAST_SOURCE_KEY_PREFIX, source.name);
        candidate(SourceKind::Source, &source.name, &key)
    });
    let of_secret = spec.original.secret_ref.as_ref();
    let of_secret = of_secret.map(|secret| format!("{}/{}", secret.namespace, secret.name));
    let hosted = spec.original.hosted_control_plane.as_ref();
    let hosted = hosted.map(|hosted| format!("{}/{}", hosted.namespace, hosted.name));
    let name = of_secret.or(hosted).unwrap_or_default();
    let original = candidate(SourceKind::Original, &name, names::LAST_ORIGINAL_KEY);
    let mut all: Vec<Candidate> = std::iter::once(additional).chain(sources).collect();
    match spec.precedence {
        Precedence::Original => all.insert(0, original),
        Precedence::Additional => all.push(original),
    }
    all
}

fn of_every_pod(
    snapshot: &RegistrySnapshot,
    since: &PartsInForce,
    candidates: &[Candidate],
    key: &str,
    entry: &Entry,
) -> RegistryRow {
    let has_it = |config: &DockerConfig| {
        let own = config.by_canonical_key();
        own.get(key).is_some_and(|own| own.means_the_same(entry))
    };
    let found = candidates.iter().find(|found| has_it(&found.config));
    let kind = found.map_or(SourceKind::Unknown, |found| found.kind);
    // The content for every pod has been unchanged since this revision.
    let mut first = since.of_source("").number;
    if kind == SourceKind::Additional {
        let kept = snapshot.revisions.iter();
        let with_it = kept.take_while(|kept| has_it(&kept.config));
        first = with_it.map(|kept| kept.number).fold(first, i64::min);
    }
    let lacks_it = |kept: &StoredRevision| kept.number == first - 1 && !has_it(&kept.config);
    let is_exact =
        first <= 1 || kind == SourceKind::Additional && snapshot.revisions.iter().any(lacks_it);
    let images = snapshot.gps.spec.image_pull_secrets.enabled;
    let status = snapshot.gps.status.as_ref();
    let status = status.and_then(|status| status.image_pull_secrets.as_ref());
    RegistryRow {
        source: found.map_or(String::new(), |found| found.name.clone()),
        kind,
        namespaces: status.filter(|_| images).map(|status| status.synced),
        or_earlier: !is_exact,
        ..row(snapshot, shown_key(key), entry, first)
    }
}

fn of_scope(
    snapshot: &RegistrySnapshot,
    since: &PartsInForce,
    scoped: &ScopedConfig,
    registry: &str,
    entry: &Entry,
) -> RegistryRow {
    let ScopedConfig { source, scope, .. } = scoped;
    let first = since.of_source(source).number;
    let images = snapshot.gps.spec.image_pull_secrets.enabled;
    let with_it = snapshot.in_namespaces.filter(|_| images).map(|all| {
        let have = all
            .iter()
            .filter(|seen| seen.is_ours && since.has_source(&seen.content, source));
        u32::try_from(have.count()).unwrap_or(u32::MAX)
    });
    let by_provider = |status: &str| status == "CredentialProvider";
    let nodes = snapshot.nodes.map(|nodes| {
        let has_it = |node: &&&NodePullSecret| {
            let status = node.status.as_ref();
            status.is_some_and(|status| status.revision >= first && by_provider(&status.delivery))
        };
        nodes.iter().filter(has_it).count()
    });
    let row = row(snapshot, registry.to_owned(), entry, first);
    RegistryRow {
        source: source.clone(),
        kind: SourceKind::Source,
        scope: Some(scope.clone()),
        // A node's credentials file is for every pod.
        delivery: match row.delivery {
            "ConfigFile" if images => "ImagePullSecrets",
            "ConfigFile" => "None",
            other => other,
        },
        nodes,
        namespaces: with_it,
        or_earlier: first > 1,
        ..row
    }
}

/// The fields that every credential in force has.
fn row(snapshot: &RegistrySnapshot, registry: String, entry: &Entry, first: i64) -> RegistryRow {
    let credential = entry.credential().ok().flatten();
    let user = credential.map(|known| String::from_utf8_lossy(known.username.expose()));
    let spec = &snapshot.gps.spec;
    let mut kept = snapshot.revisions.iter();
    let kept = kept.find(|kept| kept.number == first);
    let since_time = kept.and_then(|kept| kept.rolled_out);
    let revision = |node: &&NodePullSecret| node.status.as_ref().map_or(0, |it| it.revision);
    let nodes = snapshot.nodes;
    let expires = match credential.and_then(|it| lifetime(&registry, it)) {
        Some(Lifetime::Until(time)) => Some(time.to_string()),
        _ => None,
    };
    RegistryRow {
        registry,
        user: user.unwrap_or_default().into_owned(),
        delivery: match spec.kubelet.delivery {
            DeliveryType::ConfigFile => "ConfigFile",
            DeliveryType::CredentialProvider => "CredentialProvider",
            DeliveryType::None if spec.image_pull_secrets.enabled => "ImagePullSecrets",
            DeliveryType::None => "None",
            DeliveryType::Observe => "Observe",
            DeliveryType::OpenShift => "OpenShift",
        },
        nodes: nodes.map(|all| all.iter().filter(|node| revision(node) >= first).count()),
        nodes_total: nodes.map(<[_]>::len),
        revision: Some(first),
        or_earlier: true,
        since: rfc3339(since_time),
        expires,
        since_time,
        ..RegistryRow::default()
    }
}

/// Rows from the status: without the content, only the registries of the sources are known.
fn of_status(
    snapshot: &RegistrySnapshot,
    is_wanted: fn(&&SourceStatus) -> bool,
) -> Vec<RegistryRow> {
    let status = snapshot.gps.status.as_ref();
    let sources = status.into_iter().flat_map(|status| &status.sources);
    let sources = sources.filter(is_wanted);
    let known: BTreeMap<&str, _> = snapshot
        .gps
        .spec
        .sources
        .iter()
        .map(|source| (source.name.as_str(), source.scope.as_ref()))
        .collect();
    let of_source = sources.flat_map(|source| {
        let scope = known.get(source.name.as_str()).copied().flatten();
        let scope = scope.map(|scope| Scope {
            namespaces: patterns(&scope.namespaces),
            service_accounts: patterns(&scope.service_accounts),
        });
        source.registries.iter().map(move |registry| RegistryRow {
            registry: registry.clone(),
            source: source.name.clone(),
            kind: SourceKind::Source,
            scope: scope.clone(),
            ..RegistryRow::default()
        })
    });
    of_source.collect()
}

fn patterns(names: &[String]) -> Vec<Pattern> {
    let patterns = names.iter().map(|name| name.clone().try_into());
    patterns.filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests;
