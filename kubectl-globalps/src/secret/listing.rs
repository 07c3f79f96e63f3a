//! The registries whose credentials are in force: from where, for whom, since when, and how far they are. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, GlobalPullSecret, NodePullSecret, SourceStatus};
use globalps_core::names;
use globalps_dockerconfig::{
    DockerConfig, Entry, Lifetime, Precedence, lifetime, shown_key, validate_bytes,
};
use globalps_provider::{Scope, ScopedConfig, parse_scoped};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

use crate::cluster::namespaces::{InForce, SecretSeen};
use crate::secret::additional::data_of;
use crate::secret::history::Revision;
use crate::secret::scope::{EVERY_POD, in_force};
use crate::terminal::layout::{Layout, age, laid_out};

/// What the rows depend on. `None`: hidden from this user, except where it says otherwise.
pub(crate) struct Snapshot<'a> {
    pub gps: &'a GlobalPullSecret,
    pub global: Option<&'a Secret>,
    /// The newest first; empty: hidden.
    pub revisions: &'a [Revision],
    pub nodes: Option<&'a [&'a NodePullSecret]>,
    /// The Secrets in namespaces. Needed for sources with a scope only.
    pub in_namespaces: Option<&'a [SecretSeen]>,
    /// What this user may not read.
    pub hidden: Vec<String>,
}

/// A source's credentials that no pod gets, as the controller reports it.
const NOT_DELIVERABLE: &str = "NotDeliverable";

/// `list -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    pub registries: Vec<Row>,
    /// What this user may not read, so that fields are `null` or empty, or rows are missing.
    pub hidden: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Kind {
    Additional,
    Source,
    Original,
    /// No pull secret that is known has it.
    Unknown,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// Canonical name, optionally with a path.
    pub registry: String,
    /// Empty: none, or hidden.
    user: String,
    /// Name of the Secret; of the original, with its namespace.
    source: String,
    kind: Kind,
    /// Who may pull with it; `null`: every pod.
    scope: Option<Scope>,
    /// To nodes: `ConfigFile` or `CredentialProvider`. Otherwise `ImagePullSecrets`, or `None`. `NotDeliverable`: no pod
    /// gets it.
    delivery: &'static str,
    /// Nodes that have it, and that should.
    nodes: Option<usize>,
    nodes_total: Option<usize>,
    /// Namespaces that have it; `null`: hidden, or it is not delivered there.
    namespaces: Option<u32>,
    /// The first revision with this credential, as far as it is known.
    revision: Option<i64>,
    /// An earlier one may have it too.
    or_earlier: bool,
    /// When every node had this revision: RFC 3339; empty: not yet, or unknown.
    since: String,
    /// When the password ends, if it is a token that says so: RFC 3339.
    pub expires: Option<String>,
    #[serde(skip)]
    since_time: Option<Timestamp>,
}

/// A pull secret whose content may be in force for every pod.
struct Candidate {
    kind: Kind,
    name: String,
    config: DockerConfig,
}

impl Listing {
    pub(crate) fn of(snapshot: Snapshot) -> Self {
        let mut registries = match snapshot.global {
            Some(global) => of_content(&snapshot, global),
            None => of_status(&snapshot, |source| source.delivery != NOT_DELIVERABLE),
        };
        let known = |row: &Row| registries.iter().any(|it| it.is_same(row));
        let undelivered = of_status(&snapshot, |source| source.delivery == NOT_DELIVERABLE);
        let unknown = undelivered.into_iter().filter(|row| !known(row));
        let undelivered = unknown.map(|row| Row {
            delivery: NOT_DELIVERABLE,
            nodes: Some(0),
            nodes_total: snapshot.nodes.map(<[_]>::len),
            ..row
        });
        let undelivered: Vec<Row> = undelivered.collect();
        registries.extend(undelivered);
        // Stable: of one registry, the credential for every pod comes first.
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
        let cells = |row: &Row| header.iter().map(|title| row.cell(title, now)).collect();
        let rows: Vec<Vec<String>> = self.registries.iter().map(cells).collect();
        laid_out(&header, &rows, layout, |_, _| None)
    }
}

impl Row {
    fn is_same(&self, other: &Self) -> bool {
        (&self.registry, &self.source) == (&other.registry, &other.source)
    }

    fn cell(&self, title: &str, now: Timestamp) -> String {
        const UNKNOWN: &str = "?";
        match title {
            "REGISTRY" => self.registry.clone(),
            "USER" => self.user.clone(),
            "SOURCE" => match (self.kind, self.source.as_str()) {
                (Kind::Original, "") => "original".to_owned(),
                (Kind::Original, name) => format!("original {name}"),
                (Kind::Unknown, _) => UNKNOWN.to_owned(),
                (_, name) => name.to_owned(),
            },
            "SCOPE" => self.scope.as_ref().map_or(EVERY_POD.to_owned(), in_force),
            "REVISION" => match self.revision {
                Some(revision) if self.or_earlier => format!("<={revision}"),
                Some(revision) => revision.to_string(),
                None if self.delivery == NOT_DELIVERABLE => String::new(),
                None => UNKNOWN.to_owned(),
            },
            "AGE" => self
                .since_time
                .map_or(String::new(), |since| age(since, now)),
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
    let bytes = data_of(global, key);
    bytes
        .and_then(|bytes| validate_bytes(bytes).0)
        .unwrap_or_default()
}

fn of_content(snapshot: &Snapshot, global: &Secret) -> Vec<Row> {
    let candidates = candidates(snapshot.gps, global);
    let since = InForce::of(global);
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
        let row = |(key, entry): (Cow<'_, str>, &Entry)| {
            of_scope(snapshot, &since, scoped, &shown_key(&key), entry)
        };
        entries.map(row).collect::<Vec<_>>()
    });
    of_every_pod.into_iter().chain(of_scopes).collect()
}

/// Those whose credentials are for every pod, the one that wins first.
fn candidates(gps: &GlobalPullSecret, global: &Secret) -> Vec<Candidate> {
    let spec = &gps.spec;
    let candidate = |kind, name: &str, key: &str| Candidate {
        kind,
        name: name.to_owned(),
        config: config(global, key),
    };
    let additional = candidate(
        Kind::Additional,
        names::ADDITIONAL_SECRET,
        names::LAST_ADDITIONAL_KEY,
    );
    let sources = spec.sources.iter().map(|source| {
        let key = format!("{}{}", names::LAST_SOURCE_KEY_PREFIX, source.name);
        candidate(Kind::Source, &source.name, &key)
    });
    let of_secret = spec.original.secret_ref.as_ref();
    let of_secret = of_secret.map(|secret| format!("{}/{}", secret.namespace, secret.name));
    let hosted = spec.original.hosted_control_plane.as_ref();
    let hosted = hosted.map(|hosted| format!("{}/{}", hosted.namespace, hosted.name));
    let name = of_secret.or(hosted).unwrap_or_default();
    let original = candidate(Kind::Original, &name, names::LAST_ORIGINAL_KEY);
    let mut all: Vec<Candidate> = std::iter::once(additional).chain(sources).collect();
    match spec.precedence {
        Precedence::Original => all.insert(0, original),
        Precedence::Additional => all.push(original),
    }
    all
}

fn of_every_pod(
    snapshot: &Snapshot,
    since: &InForce,
    candidates: &[Candidate],
    key: &str,
    entry: &Entry,
) -> Row {
    let has_it = |config: &DockerConfig| {
        let own = config.by_canonical_key();
        own.get(key).is_some_and(|own| own.means_the_same(entry))
    };
    let found = candidates.iter().find(|found| has_it(&found.config));
    let kind = found.map_or(Kind::Unknown, |found| found.kind);
    // All of the content for every pod is as it is since then.
    let mut first = since.of_source("").number;
    if kind == Kind::Additional {
        let kept = snapshot.revisions.iter();
        let with_it = kept.take_while(|kept| has_it(&kept.config));
        first = with_it.map(|kept| kept.number).fold(first, i64::min);
    }
    let lacks_it = |kept: &Revision| kept.number == first - 1 && !has_it(&kept.config);
    let is_exact =
        first <= 1 || kind == Kind::Additional && snapshot.revisions.iter().any(lacks_it);
    let images = snapshot.gps.spec.image_pull_secrets.enabled;
    let status = snapshot.gps.status.as_ref();
    let status = status.and_then(|status| status.image_pull_secrets.as_ref());
    Row {
        source: found.map_or(String::new(), |found| found.name.clone()),
        kind,
        namespaces: status.filter(|_| images).map(|status| status.synced),
        or_earlier: !is_exact,
        ..row(snapshot, shown_key(key), entry, first)
    }
}

fn of_scope(
    snapshot: &Snapshot,
    since: &InForce,
    scoped: &ScopedConfig,
    registry: &str,
    entry: &Entry,
) -> Row {
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
    Row {
        source: source.clone(),
        kind: Kind::Source,
        scope: Some(scope.clone()),
        // The file of a node is for every pod.
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

/// What every credential in force has.
fn row(snapshot: &Snapshot, registry: String, entry: &Entry, first: i64) -> Row {
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
    Row {
        registry,
        user: user.unwrap_or_default().into_owned(),
        source: String::new(),
        kind: Kind::Unknown,
        scope: None,
        delivery: match spec.kubelet.delivery {
            DeliveryType::ConfigFile => "ConfigFile",
            DeliveryType::CredentialProvider => "CredentialProvider",
            DeliveryType::None if spec.image_pull_secrets.enabled => "ImagePullSecrets",
            DeliveryType::None => "None",
        },
        nodes: nodes.map(|all| all.iter().filter(|node| revision(node) >= first).count()),
        nodes_total: nodes.map(<[_]>::len),
        namespaces: None,
        revision: Some(first),
        or_earlier: true,
        since: since_time.map_or(String::new(), |time| {
            time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        }),
        expires,
        since_time,
    }
}

/// Without the content, the registries of sources are known, and nothing more of them.
fn of_status(snapshot: &Snapshot, is_wanted: fn(&&SourceStatus) -> bool) -> Vec<Row> {
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
        source.registries.iter().map(move |registry| Row {
            registry: registry.clone(),
            user: String::new(),
            source: source.name.clone(),
            kind: Kind::Source,
            scope: scope.clone(),
            delivery: "",
            nodes: None,
            nodes_total: None,
            namespaces: None,
            revision: None,
            or_earlier: false,
            since: String::new(),
            expires: None,
            since_time: None,
        })
    });
    of_source.collect()
}

fn patterns(names: &[String]) -> Vec<globalps_provider::Pattern> {
    let names = names.iter().cloned();
    names.filter_map(|name| name.try_into().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::history::sorted;
    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    const ID: &str = "00000000000000ab";

    /// `"a:dTpw b:dTpx"` as the value of a Secret.
    fn auths(text: &str) -> Value {
        let words = text.split_whitespace();
        let auths: serde_json::Map<String, Value> = words
            .filter_map(|word| word.split_once(':'))
            .map(|(key, auth)| (key.to_owned(), json!({ "auth": auth })))
            .collect();
        json!(ByteString(
            json!({ "auths": auths }).to_string().into_bytes()
        ))
    }

    /// `data`: by key. `since`: the revision of each part.
    fn secret(revision: &str, since: &Value, data: &[(&str, Value)]) -> Secret {
        let data: serde_json::Map<String, Value> = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"annotations": {
                names::REVISION_ANNOTATION: revision,
                names::ROLLED_OUT_ANNOTATION: format!("2026-01-01T00:0{revision}:00Z"),
                names::CONTENT_SINCE_ANNOTATION: since.to_string(),
            }},
            "data": data,
        }))
        .expect("a Secret")
    }

    fn gps(spec: Value) -> GlobalPullSecret {
        let mut gps = GlobalPullSecret::new("g", serde_json::from_value(spec).expect("a spec"));
        let status = json!({
            "imagePullSecrets": {"secretName": "s", "total": 9, "synced": 7},
            "sources": [{"name": "team", "valid": true, "registries": ["ghcr.io"], "total": 1}],
        });
        gps.status = serde_json::from_value(status).expect("a status");
        gps
    }

    fn node(revision: i64, delivery: &str) -> NodePullSecret {
        serde_json::from_value(json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "metadata": {"name": "n"},
            "spec": {}, "status": {"revision": revision, "delivery": delivery, "phase": "Synced"},
        }))
        .expect("a NodePullSecret")
    }

    fn table(listing: &Listing, wide: bool) -> String {
        let layout = Layout {
            wide,
            ..Layout::default()
        };
        listing.table("2026-01-01T00:15:00Z".parse().expect("a time"), layout)
    }

    /// Revision 5: `u:p` is `dTpw`, `u:q` is `dTpx`, `v:p` is `djpw`.
    fn global() -> Secret {
        let scoped = r#"[{"source":"team","scope":{"namespaces":["team-*"],"serviceAccounts":["builder"]},
            "config":{"auths":{"ghcr.io":{"auth":"djpw"}}}}]"#;
        secret(
            "5",
            &json!({"": format!("5-{ID}"), "team": format!("2-{ID}")}),
            &[
                (
                    names::DATA_KEY,
                    auths("docker.io:djpw quay.io:dTpw new.io:dTpw more.io:dTpx old.io:dTpw"),
                ),
                (
                    names::LAST_ADDITIONAL_KEY,
                    auths("quay.io:dTpw new.io:dTpw docker.io:dTpw"),
                ),
                (
                    names::LAST_ORIGINAL_KEY,
                    auths("docker.io:djpw quay.io:dTpx"),
                ),
                ("last-good-source.more", auths("more.io:dTpx quay.io:dTpw")),
                ("last-good-source.team", auths("ghcr.io:djpw")),
                (
                    names::SCOPED_KEY,
                    json!(ByteString(scoped.as_bytes().to_vec())),
                ),
            ],
        )
    }

    fn spec() -> Value {
        json!({
            "original": {"secretRef": {"namespace": "openshift-config", "name": "pull-secret"}},
            "sources": [{"name": "team", "scope": {"namespaces": ["team-*"]}}, {"name": "more"}],
            "kubelet": {"delivery": "CredentialProvider"}, "imagePullSecrets": {"enabled": true},
        })
    }

    #[test]
    fn each_registry_has_its_user_source_scope_revision_and_how_far_it_is() {
        let global = global();
        let kept = |revision: &str, content: &str| {
            secret(revision, &json!({}), &[(names::DATA_KEY, auths(content))])
        };
        let slots = [
            kept("4", "quay.io:dTpw"),
            kept("3", "quay.io:dTpw old.io:dTpw"),
            kept("2", "quay.io:dTpx new.io:dTpw"),
        ];
        let nodes = [
            node(5, "CredentialProvider"),
            node(4, "CredentialProvider"),
            node(3, "ConfigFile"),
        ];
        let nodes: Vec<&NodePullSecret> = nodes.iter().collect();
        let seen = |is_ours, content: &str| SecretSeen {
            is_ours,
            content: content.replace('#', &format!("-{ID}")),
            written: None,
        };
        let in_namespaces = [
            seen(true, "5#,team@2#"),
            seen(true, "5#,team@1#"),
            seen(true, "5#,team@2"),
            seen(true, "5#"),
            seen(false, "5#,team@2#"),
        ];
        let gps = gps(spec());
        let listing = Listing::of(Snapshot {
            gps: &gps,
            global: Some(&global),
            revisions: &sorted(slots, Some(&global)),
            nodes: Some(&nodes),
            in_namespaces: Some(&in_namespaces),
            hidden: Vec::new(),
        });
        assert_eq!(
            table(&listing, false),
            "\
REGISTRY    USER   SOURCE                                  SCOPE                                       REVISION   AGE   NODES   NAMESPACES
docker.io   v      original openshift-config/pull-secret   every pod                                   <=5        10m   1/3     7
ghcr.io     v      team                                    pods of team-* (service accounts builder)   <=2        13m   2/3     1
more.io     u      more                                    every pod                                   <=5        10m   1/3     7
new.io      u      additional-pull-secret                  every pod                                   5          10m   1/3     7
old.io      u      ?                                       every pod                                   <=5        10m   1/3     7
quay.io     u      additional-pull-secret                  every pod                                   3          12m   3/3     7"
        );
        let text = json!(listing).to_string();
        assert!(!text.contains("dTpw") && !text.contains("djpw"), "{text}");
    }

    #[test]
    fn what_is_hidden_is_unknown_and_sources_are_known_from_the_status() {
        let gps = gps(spec());
        let hidden = Listing::of(Snapshot {
            gps: &gps,
            global: None,
            revisions: &[],
            nodes: None,
            in_namespaces: None,
            hidden: vec!["x".to_owned()],
        });
        assert_eq!(
            table(&hidden, false),
            "\
REGISTRY   USER   SOURCE   SCOPE            REVISION   AGE   NODES
ghcr.io           team     pods of team-*   ?                ?"
        );
        assert_eq!(json!(hidden)["hidden"], json!(["x"]));
        let token = "dTplMzAuZXlKbGVIQWlPakUzTmpjeU1qVTJNREI5LmMybG4=";
        let data = auths(&format!("quay.io:{token}"));
        let global = secret(
            "1",
            &json!({}),
            &[
                (names::DATA_KEY, data.clone()),
                (names::LAST_ADDITIONAL_KEY, data),
            ],
        );
        let gps = self::gps(json!({}));
        let wide = Listing::of(Snapshot {
            gps: &gps,
            global: Some(&global),
            revisions: &[],
            nodes: Some(&[]),
            in_namespaces: None,
            hidden: Vec::new(),
        });
        assert_eq!(
            table(&wide, true),
            "\
REGISTRY   USER   SOURCE                   SCOPE       REVISION   AGE   NODES   DELIVERY     EXPIRES
quay.io    u      additional-pull-secret   every pod   1                0/0     ConfigFile   2026-01-01T00:00:00Z"
        );
    }

    #[test]
    fn a_source_that_no_pod_gets_is_listed_with_its_state() {
        let mut gps = gps(json!({
            "sources": [{"name": "team", "scope": {"namespaces": ["team-a"]}}, {"name": "more"}],
        }));
        let status = gps.status.as_mut().expect("a status");
        status.sources[0].delivery = NOT_DELIVERABLE.to_owned();
        let global = secret("1", &json!({}), &[(names::DATA_KEY, auths("quay.io:dTpw"))]);
        let node = node(1, "ConfigFile");
        for content in [Some(&global), None] {
            let listing = Listing::of(Snapshot {
                gps: &gps,
                global: content,
                revisions: &[],
                nodes: Some(&[&node]),
                in_namespaces: None,
                hidden: Vec::new(),
            });
            let row = json!(listing)["registries"][0].clone();
            assert_eq!(
                (
                    &row["registry"],
                    &row["source"],
                    &row["delivery"],
                    &row["nodes"]
                ),
                (
                    &json!("ghcr.io"),
                    &json!("team"),
                    &json!("NotDeliverable"),
                    &json!(0)
                )
            );
            let text = table(&listing, false);
            assert!(text.contains("   0/1     NotDeliverable"), "{text}");
            assert_eq!(text.matches("ghcr.io").count(), 1, "{text}");
        }
    }

    #[test]
    fn times_have_seconds_as_those_of_other_commands() {
        let data = auths("quay.io:dTpw");
        let mut global = secret("1", &json!({}), &[(names::DATA_KEY, data)]);
        let annotations = global.metadata.annotations.as_mut().expect("some");
        let time = "2026-01-01T07:15:56.683212867Z".to_owned();
        annotations.insert(names::ROLLED_OUT_ANNOTATION.to_owned(), time);
        global.data.as_mut().expect("data").insert(
            names::LAST_ADDITIONAL_KEY.to_owned(),
            ByteString(br#"{"auths":{"quay.io":{"auth":"dTpw"}}}"#.to_vec()),
        );
        let listing = Listing::of(Snapshot {
            gps: &gps(json!({})),
            global: Some(&global),
            revisions: &sorted([], Some(&global)),
            nodes: Some(&[]),
            in_namespaces: None,
            hidden: Vec::new(),
        });
        let since = json!(listing)["registries"][0]["since"].clone();
        assert_eq!(since, "2026-01-01T07:15:56Z");
    }
}
