//! `list --where-old`: the places that still have replaced content. Pure.

use globalps_core::api::{GlobalPullSecret, NodePullSecret, Phase, condition};
use globalps_core::names;
use globalps_core::reasons::Reason;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::namespaces::{PartsInForce, SecretSeen};
use crate::secret::additional::data_of;
use crate::secret::history::revision_of;
use crate::terminal::layout::{Layout, laid_out_by};

/// Input of the places. `None`: hidden from this user.
pub(crate) struct WhereOldSnapshot<'a> {
    pub gps: Option<&'a GlobalPullSecret>,
    /// `global-pull-secret`.
    pub global: Option<&'a Secret>,
    pub additional: Option<&'a Secret>,
    /// The Secrets with earlier content.
    pub secrets: &'a [Secret],
    /// Each node with its displayed phase.
    pub nodes: &'a [(NodePullSecret, Phase)],
    /// The pull secret of each namespace.
    pub in_namespaces: &'a [(String, SecretSeen)],
    pub hidden: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum PlaceKind {
    Node,
    Namespace,
    Secret,
}

/// `list --where-old -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WhereOld {
    /// Content up to this revision is old.
    pub up_to: i64,
    /// The request to forget old content, from the controller's condition; `null` if there is none.
    pub request: Option<Request>,
    pub places: Vec<Place>,
    /// What this user may not read, so that places are missing.
    pub hidden: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Request {
    pub status: String,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    pub kind: PlaceKind,
    pub name: String,
    /// For a node `InForce`, `Journal`, `Quarantined`, `OwnEntries` or `Unknown`; for a namespace `PullSecret`; for a
    /// Secret `History`, `NewNodes` or `LastApplied`.
    #[serde(rename = "where")]
    pub where_: &'static str,
    /// `null` if unknown.
    pub revision: Option<i64>,
    /// Phase of a node; empty for other places.
    pub phase: String,
}

impl WhereOld {
    pub(crate) fn of(snapshot: WhereOldSnapshot) -> Self {
        let in_force = snapshot.global.map_or(0, revision_of);
        let reported = snapshot.gps.and_then(|gps| gps.status.as_ref());
        let in_force = in_force.max(reported.map_or(0, |status| status.revision));
        let asked = snapshot
            .gps
            .map(|gps| names::forget_up_to(gps.annotations()));
        let asked = asked.flatten().and_then(Result::ok);
        let up_to = asked.unwrap_or(in_force - 1).clamp(0, in_force.max(0));
        let secrets = snapshot.secrets.iter();
        let secrets = secrets.filter_map(|secret| of_secret(secret, up_to));
        let copy = snapshot.additional.filter(|it| has_older_copy(it));
        let copy = copy.map(|secret| Place {
            kind: PlaceKind::Secret,
            name: secret.name_any(),
            where_: "LastApplied",
            revision: None,
            phase: String::new(),
        });
        let nodes = snapshot.nodes.iter();
        let nodes = nodes.flat_map(|(node, phase)| of_node(node, phase, up_to));
        let present = snapshot.global.map(PartsInForce::of);
        let namespaces = snapshot.in_namespaces.iter().filter_map(|(name, secret)| {
            let is_present = present.as_ref()?.is_in(&secret.content);
            (secret.is_ours && !is_present).then(|| Place {
                kind: PlaceKind::Namespace,
                name: name.clone(),
                where_: "PullSecret",
                revision: None,
                phase: String::new(),
            })
        });
        let request = reported.into_iter().flat_map(|status| &status.conditions);
        let request = request.filter(|it| it.type_ == condition::OLD_FORGOTTEN);
        Self {
            up_to,
            request: request.map(Request::of).next(),
            places: secrets.chain(copy).chain(namespaces).chain(nodes).collect(),
            hidden: snapshot.hidden,
        }
    }

    pub(crate) fn table(&self, layout: Layout) -> String {
        let header = ["KIND", "NAME", "WHERE", "REVISION", "PHASE"];
        let cell = |place: &Place, title: &str| match title {
            "KIND" => format!("{:?}", place.kind),
            "NAME" => place.name.clone(),
            "WHERE" => place.where_.to_owned(),
            "REVISION" => place
                .revision
                .map_or(String::new(), |number| number.to_string()),
            _ => place.phase.clone(),
        };
        laid_out_by(&header, &self.places, layout, cell, |_, _| None)
    }
}

impl Request {
    fn of(condition: &Condition) -> Self {
        Self {
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        }
    }
}

fn of_secret(secret: &Secret, up_to: i64) -> Option<Place> {
    let number = revision_of(secret);
    let is_of_history = secret.name_any().starts_with(names::HISTORY_SECRET_PREFIX);
    (number <= up_to).then(|| Place {
        kind: PlaceKind::Secret,
        name: secret.name_any(),
        where_: if is_of_history { "History" } else { "NewNodes" },
        revision: Some(number),
        phase: String::new(),
    })
}

/// `kubectl apply` stores the applied content in an annotation. It stays there when another program changes the Secret
/// later.
fn has_older_copy(secret: &Secret) -> bool {
    let copy = secret.annotations().get(names::LAST_APPLIED_ANNOTATION);
    let copy = copy.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(copy) = copy else { return false };
    let written = serde_json::from_value::<Secret>(copy).unwrap_or_default();
    let in_text = written.string_data.as_ref();
    let in_text = in_text.and_then(|data| data.get(names::DATA_KEY));
    let written = data_of(&written, names::DATA_KEY).or(in_text.map(String::as_bytes));
    written.is_some_and(|written| data_of(secret, names::DATA_KEY) != Some(written))
}

fn of_node(node: &NodePullSecret, phase: &Phase, up_to: i64) -> Vec<Place> {
    let place = |where_, revision| Place {
        kind: PlaceKind::Node,
        name: node.name_any(),
        where_,
        revision,
        phase: phase.to_string(),
    };
    let Some(status) = &node.status else {
        let was_assigned = (1..=up_to).contains(&node.spec.revision);
        let unknown = was_assigned.then(|| place("Unknown", Some(node.spec.revision)));
        return unknown.into_iter().collect();
    };
    if status.phase == Phase::Unreadable {
        return vec![place("Unknown", None)];
    }
    let reason = |reason: Reason| status.reason == reason;
    let is_old = (1..=up_to).contains(&status.revision);
    let has_journal = !status.restored && status.forgotten_revision < up_to;
    let places = [
        is_old.then(|| place("InForce", Some(status.revision))),
        // The journal has the content from before the last change, but not its revision.
        (has_journal && !is_old).then(|| place("Journal", None)),
        reason(Reason::StateLost).then(|| place("OwnEntries", None)),
        reason(Reason::FileQuarantined).then(|| place("Quarantined", None)),
    ];
    places.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use globalps_core::api::{NodePullSecretSpec, NodePullSecretStatus};
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn secret(name: &str, revision: i64) -> Secret {
        serde_json::from_value(json!({"metadata": {"name": name, "annotations": {
            names::REVISION_ANNOTATION: revision.to_string(),
            names::REVISION_ID_ANNOTATION: "00000000000000ab",
        }}}))
        .unwrap()
    }

    fn gps(revision: i64, forget: Option<&str>) -> GlobalPullSecret {
        serde_json::from_value(json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
            "metadata": {
                "name": "g",
                "annotations": forget.map(|it| json!({names::FORGET_ANNOTATION: it})),
            },
            "spec": {},
            "status": {"revision": revision, "conditions": [{
                "type": condition::OLD_FORGOTTEN, "status": "False", "reason": "NodesHaveOld",
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap()
    }

    fn node(name: &str, status: Option<(i64, i64, &str)>) -> (NodePullSecret, Phase) {
        let mut node = NodePullSecret::new(name, NodePullSecretSpec::default());
        node.spec.revision = 2;
        node.status = status.map(
            |(revision, forgotten_revision, reason)| NodePullSecretStatus {
                revision,
                forgotten_revision,
                restored: revision == 0,
                reason: reason.to_owned(),
                phase: Phase::Synced,
                ..NodePullSecretStatus::default()
            },
        );
        (node, Phase::Synced)
    }

    fn places(found: &WhereOld) -> String {
        let words = found.places.iter().map(|place| {
            let number = place.revision.map_or(String::new(), |it| format!("@{it}"));
            format!("{}:{}{number}", place.name, place.where_)
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_place_of_earlier_content_is_named_and_no_credential() {
        let nodes = [
            node("new", Some((3, 2, ""))),
            node("journal", Some((3, 0, ""))),
            node("old", Some((2, 0, ""))),
            node("none", Some((0, 0, ""))),
            node("lost", Some((3, 2, "StateLost"))),
            node("aside", Some((3, 2, "FileQuarantined"))),
            node("silent", None),
        ];
        let secrets = [
            secret("additional-pull-secret-history-0", 1),
            secret("additional-pull-secret-history-1", 3),
            secret(names::ROLLED_OUT_SECRET, 2),
        ];
        let seen = |number: i64| SecretSeen {
            is_ours: true,
            content: format!("{number}-00000000000000ab"),
            written: None,
        };
        let in_namespaces = [("a".to_owned(), seen(2)), ("b".to_owned(), seen(3))];
        let global = secret(names::GLOBAL_SECRET, 3);
        for (forget, expected) in [(None, 2), (Some("2"), 2), (Some("9"), 3), (Some("x"), 2)] {
            let gps = gps(3, forget);
            let found = WhereOld::of(WhereOldSnapshot {
                gps: Some(&gps),
                global: Some(&global),
                additional: None,
                secrets: &secrets,
                nodes: &nodes,
                in_namespaces: &in_namespaces,
                hidden: Vec::new(),
            });
            assert_eq!(found.up_to, expected, "{forget:?}");
            if expected == 2 {
                assert_eq!(
                    places(&found),
                    "additional-pull-secret-history-0:History@1 global-pull-secret-rolled-out:NewNodes@2 a:PullSecret \
                     journal:Journal old:InForce@2 lost:OwnEntries aside:Quarantined silent:Unknown@2"
                );
            }
            assert_eq!(found.request.as_ref().unwrap().reason, "NodesHaveOld");
        }
    }

    #[test]
    fn the_copy_of_kubectl_apply_counts_if_it_is_another_one() {
        let content = |text: &str| ByteString(text.as_bytes().to_vec());
        for (copy, expected) in [
            (json!({"data": {names::DATA_KEY: content("old")}}), true),
            (json!({"data": {names::DATA_KEY: content("new")}}), false),
            (json!({"stringData": {names::DATA_KEY: "old"}}), true),
            (json!({"data": {}}), false),
            (json!("?"), false),
        ] {
            let mut secret = secret("s", 1);
            secret.data = Some([(names::DATA_KEY.to_owned(), content("new"))].into());
            let annotation = (names::LAST_APPLIED_ANNOTATION.to_owned(), copy.to_string());
            secret.annotations_mut().extend([annotation]);
            assert_eq!(has_older_copy(&secret), expected, "{copy}");
        }
    }
}
