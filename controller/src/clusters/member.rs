//! The observed state of a member cluster, the next write into it, and its status. Pure.

use std::sync::Arc;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecretStatus, Counts, GlobalPullSecret, GlobalPullSecretStatus,
    MESSAGE_LIMIT, condition,
};
use globalps_core::names::{
    DATA_KEY, FLEET_ANNOTATION, RETRY_ANNOTATION, REVISION_ANNOTATION, SECRET_TYPE,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::installation::Installation;
use crate::content::source::Data;

/// Reason and message of a status.
pub(crate) type Reason = (&'static str, String);

/// Desired state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// No desired state is known: the hub reads the cluster and writes nothing.
    Nothing,
    Revision(Release),
    Removed,
}

/// A revision to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) number: i64,
    pub(crate) content: Arc<Data>,
    /// What to install; `None`: the hub does not install globalps.
    pub(crate) install: Option<Arc<Installation>>,
    /// With each new value, the cluster's globalps retries its failed nodes. Empty: no retry requested.
    pub(crate) retry: String,
}

/// The target Secret in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetView {
    pub(crate) uid: String,
    /// Its `resourceVersion`.
    pub(crate) version: String,
    type_: String,
    is_immutable: bool,
    /// `NAMESPACE/NAME` of the `FleetPullSecret` that wrote it.
    fleet: Option<String>,
    revision: Option<i64>,
    retry: String,
    content: Arc<Data>,
    /// It has other keys besides the hub's.
    has_other_keys: bool,
    /// Another field manager that owns the content.
    other_manager: Option<String>,
    /// Another client owns the content, and the hub no longer does.
    is_taken_over: bool,
}

impl TargetView {
    /// `manager`: the hub's field manager. `wanted`: if it has the same content, both share it, to save memory.
    pub(crate) fn new(secret: &Secret, manager: &str, wanted: &Wanted) -> Self {
        let content = Data::of(secret, DATA_KEY);
        let content = match wanted {
            Wanted::Revision(release) if *release.content == content => {
                Arc::clone(&release.content)
            }
            _ => Arc::new(content),
        };
        let annotations = secret.annotations();
        let owns_content = |fields: &serde_json::Value| {
            fields
                .pointer("/f:data")
                .is_some_and(|data| data.get(format!("f:{DATA_KEY}")).is_some())
        };
        let owners = secret.managed_fields().iter().filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|it| owns_content(&it.0))
        });
        let (own, others): (Vec<_>, Vec<_>) =
            owners.partition(|entry| entry.manager.as_deref() == Some(manager));
        Self {
            uid: secret.uid().unwrap_or_default(),
            version: secret.resource_version().unwrap_or_default(),
            type_: secret.type_.clone().unwrap_or_default(),
            is_immutable: secret.immutable == Some(true),
            fleet: annotations.get(FLEET_ANNOTATION).cloned(),
            revision: annotations
                .get(REVISION_ANNOTATION)
                .and_then(|number| number.parse().ok()),
            retry: annotations
                .get(RETRY_ANNOTATION)
                .cloned()
                .unwrap_or_default(),
            content,
            has_other_keys: secret.data.as_ref().is_some_and(|data| data.len() > 1),
            is_taken_over: own.is_empty() && !others.is_empty(),
            other_manager: others
                .first()
                .map(|it| it.manager.clone().unwrap_or_default()),
        }
    }

    /// Whether content and annotations match.
    fn has(&self, fleet: &str, release: &Release) -> bool {
        self.fleet.as_deref() == Some(fleet)
            && self.revision == Some(release.number)
            && self.retry == release.retry
            && self.content == release.content
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Keep,
    Apply(Release),
    /// Deletes the Secret with this uid and `resourceVersion`.
    Delete(String, String),
    /// The hub must not change the Secret.
    Refuse(Reason),
}

/// What to write into the cluster. `fleet`: `NAMESPACE/NAME` of the `FleetPullSecret`.
pub(crate) fn action(target: Option<&TargetView>, wanted: &Wanted, fleet: &str) -> Action {
    let refuse = |reason, message| Action::Refuse((reason, message));
    match (wanted, target) {
        (Wanted::Removed, Some(target))
            if target.fleet.as_deref() == Some(fleet) && !target.is_taken_over =>
        {
            if target.has_other_keys {
                return refuse(
                    "KeysOfOthers",
                    format!(
                        "the Secret has keys of other clients, and its type requires `{DATA_KEY}`: delete the Secret in the cluster"
                    ),
                );
            }
            Action::Delete(target.uid.clone(), target.version.clone())
        }
        // A Secret that another client or fleet owns now stays.
        (Wanted::Nothing | Wanted::Removed, _) => Action::Keep,
        (Wanted::Revision(release), None) => Action::Apply(release.clone()),
        (Wanted::Revision(release), Some(target)) => {
            let is_same = target.content == release.content;
            if let Some(other) = target.fleet.as_deref().filter(|other| *other != fleet) {
                return refuse(
                    "Conflict",
                    format!(
                        "FleetPullSecret `{other}`, possibly of another hub, writes the Secret"
                    ),
                );
            }
            if let (Some(other), false) = (&target.other_manager, is_same) {
                return refuse(
                    "Conflict",
                    format!(
                        "`{other}` owns the Secret's content: delete the Secret in the cluster, or exclude the cluster"
                    ),
                );
            }
            if target.type_ != SECRET_TYPE {
                return refuse(
                    "WrongType",
                    format!(
                        "the Secret has the type `{}`, which can't be changed: delete the Secret in the cluster",
                        target.type_
                    ),
                );
            }
            if target.has(fleet, release) {
                return Action::Keep;
            }
            if target.is_immutable && !is_same {
                return refuse(
                    "Immutable",
                    "the Secret is immutable: delete it in the cluster".to_owned(),
                );
            }
            Action::Apply(release.clone())
        }
    }
}

/// What the cluster's own globalps reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Answer {
    /// Not known yet.
    #[default]
    Unknown,
    /// It is not installed.
    NoGlobalps,
    /// It is installed, but its status is missing or outdated.
    Silent,
    Said(Box<Said>),
}

/// The relevant part of a `GlobalPullSecret`'s status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    /// `resourceVersion` of the additional Secret that it refers to.
    about: String,
    is_ready: bool,
    reason: String,
    message: String,
    counts: Counts,
}

impl Said {
    /// `None`: its status is outdated.
    pub(crate) fn of(object: &GlobalPullSecret) -> Option<Self> {
        let generation = object.metadata.generation.unwrap_or_default();
        let status: &GlobalPullSecretStatus = object.status.as_ref()?;
        if status.observed_generation != generation {
            return None;
        }
        let mut conditions = status.conditions.iter();
        let ready = conditions.find(|it| it.type_ == condition::READY)?;
        Some(Self {
            about: status.observed_additional.clone(),
            is_ready: ready.status == "True",
            reason: ready.reason.clone(),
            message: ready.message.clone(),
            counts: storable(status.counts),
        })
    }
}

/// A member can report any number, but the CRD accepts only signed 32-bit numbers.
fn storable(counts: Counts) -> Counts {
    let most = |count: u32| count.min(i32::MAX.unsigned_abs());
    Counts {
        total: most(counts.total),
        synced: most(counts.synced),
        progressing: most(counts.progressing),
        failed: most(counts.failed),
        unreachable: most(counts.unreachable),
    }
}

impl Said {
    /// Whether it refers to this `resourceVersion` of the target.
    pub(crate) fn is_about(&self, version: &str) -> bool {
        self.about == version
    }
}

/// Observed state of a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// `None`: it is reachable.
    pub(crate) unreachable: Option<Reason>,
    pub(crate) target: Option<TargetView>,
    pub(crate) answer: Answer,
    /// The hub has installed globalps, but it does not run yet.
    pub(crate) is_installing: bool,
    /// Why the hub did not write, or the cluster rejected the write.
    pub(crate) refused: Option<Reason>,
}

/// When a cluster counts as done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) require_nodes: bool,
    /// The cluster's globalps reports on the target.
    pub(crate) is_additional: bool,
}

/// Phase, reason, message and nodes. The caller sets the other fields.
pub(crate) fn status(
    facts: &Facts,
    wanted: &Wanted,
    fleet: &str,
    terms: Terms,
) -> ClusterPullSecretStatus {
    let said = match &facts.answer {
        Answer::Said(said) => Some(&**said),
        _ => None,
    };
    let (phase, reason, message) = phase(facts, wanted, fleet, terms, said);
    ClusterPullSecretStatus {
        phase,
        reason: shown(reason, 64),
        message: shown(&message, MESSAGE_LIMIT),
        nodes: said.map(|said| said.counts),
        ..ClusterPullSecretStatus::default()
    }
}

fn phase<'a>(
    facts: &'a Facts,
    wanted: &Wanted,
    fleet: &str,
    terms: Terms,
    said: Option<&'a Said>,
) -> (ClusterPhase, &'a str, String) {
    let none = |phase| (phase, "", String::new());
    if let Some((reason, message)) = &facts.unreachable {
        return (ClusterPhase::Unreachable, reason, message.clone());
    }
    if let Some((reason, message)) = &facts.refused {
        return (ClusterPhase::Blocked, reason, message.clone());
    }
    let release = match wanted {
        Wanted::Nothing => return none(ClusterPhase::Pending),
        Wanted::Removed => {
            let is_gone = action(facts.target.as_ref(), wanted, fleet) == Action::Keep;
            return none(if is_gone {
                ClusterPhase::Removed
            } else {
                ClusterPhase::Removing
            });
        }
        Wanted::Revision(release) => release,
    };
    let installing = (
        ClusterPhase::Syncing,
        "Installing",
        "the hub has installed globalps, and its controller has not started yet".to_owned(),
    );
    if facts.is_installing {
        return installing;
    }
    let target = facts.target.as_ref();
    let Some(target) = target.filter(|target| target.has(fleet, release)) else {
        return none(ClusterPhase::Syncing);
    };
    if !terms.require_nodes || !terms.is_additional {
        return none(ClusterPhase::Synced);
    }
    let Some(said) = said else {
        return match facts.answer {
            _ if release.install.is_some() => installing,
            Answer::NoGlobalps => (
                ClusterPhase::Blocked,
                "NoGlobalps",
                "the cluster has the Secret, but no node uses it because globalps is not installed; \
                 with `spec.requireNodes: false` the Secret alone is enough"
                    .to_owned(),
            ),
            _ => none(ClusterPhase::Syncing),
        };
    };
    if !said.is_about(&target.version) {
        return none(ClusterPhase::Syncing);
    }
    let phase = match said.reason.as_str() {
        _ if said.is_ready => return none(ClusterPhase::Synced),
        "NodesFailed" | "AdditionalInvalid" | "TakenBack" => ClusterPhase::Failed,
        "NodesBlocked" | "NoNodes" | "NoDelivery" | "Held" => ClusterPhase::Blocked,
        _ => ClusterPhase::Syncing,
    };
    (phase, &said.reason, said.message.clone())
}

/// Sanitizes text from another cluster for a status: removes control characters and limits the length.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let text = text.chars().filter(|c| !c.is_control());
    text.take(most).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const FLEET: &str = "ns/shared";
    const MANAGER: &str = "globalps-hub-1";

    fn content(text: &str) -> Arc<Data> {
        Arc::new(Data(Some(text.as_bytes().to_vec())))
    }

    fn wanted(number: i64, text: &str, retry: &str) -> Wanted {
        Wanted::Revision(Release {
            number,
            content: content(text),
            install: None,
            retry: retry.to_owned(),
        })
    }

    /// The Secret with content `A` as the hub writes it, with these changes.
    fn target(changes: &Value) -> TargetView {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {
                "name": "additional-pull-secret", "uid": "u", "resourceVersion": "7",
                "annotations": {"globalps.io/fleet": FLEET, "globalps.io/revision": "1"},
                "managedFields": [owner(MANAGER)],
            },
            "data": {".dockerconfigjson": "QQ=="},
        });
        merge(&mut secret, changes);
        TargetView::new(
            &serde_json::from_value(secret).unwrap(),
            MANAGER,
            &Wanted::Nothing,
        )
    }

    fn owner(manager: &str) -> Value {
        json!({"manager": manager, "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}}})
    }

    fn merge(into: &mut Value, changes: &Value) {
        for (key, value) in changes.as_object().into_iter().flatten() {
            if value.is_object() && into[key].is_object() {
                merge(&mut into[key], value);
            } else {
                into[key] = value.clone();
            }
        }
    }

    fn in_one_line(action: &Action) -> String {
        match action {
            Action::Keep => "keep".to_owned(),
            Action::Apply(release) => format!("apply {}", release.number),
            Action::Delete(uid, version) => format!("delete {uid} {version}"),
            Action::Refuse((reason, _)) => format!("refuse {reason}"),
        }
    }

    #[test]
    fn the_hub_writes_and_removes_only_its_own_secret() {
        let foreign = json!({"metadata": {
            "annotations": null, "managedFields": [owner("kubectl")],
        }});
        let of_two = json!({"metadata": {
            "annotations": null, "managedFields": [owner(MANAGER), owner("kubectl")],
        }});
        let of_both = [owner(MANAGER), owner("kubectl")];
        let other_fleet = json!({"metadata": {"annotations": {"globalps.io/fleet": "ns/other"}}});
        let a = || wanted(1, "A", "");
        let b = || wanted(2, "B", "");
        for (case, target, wanted, expected) in [
            ("no Secret", None, a(), "apply 1"),
            ("the wanted Secret", Some(target(&json!({}))), a(), "keep"),
            ("another revision", Some(target(&json!({}))), b(), "apply 2"),
            (
                "the same content in another revision",
                Some(target(&json!({}))),
                wanted(2, "A", ""),
                "apply 2",
            ),
            (
                "a retry",
                Some(target(&json!({}))),
                wanted(1, "A", "1"),
                "apply 1",
            ),
            (
                "a user's Secret",
                Some(target(&foreign)),
                b(),
                "refuse Conflict",
            ),
            (
                "a user's Secret with the same content",
                Some(target(&foreign)),
                a(),
                "apply 1",
            ),
            (
                "a forced change by a user",
                Some(target(&of_two)),
                b(),
                "refuse Conflict",
            ),
            (
                "another fleet's Secret",
                Some(target(&other_fleet)),
                a(),
                "refuse Conflict",
            ),
            (
                "another type",
                Some(target(&json!({"type": "Opaque"}))),
                a(),
                "refuse WrongType",
            ),
            (
                "immutable",
                Some(target(&json!({"immutable": true}))),
                b(),
                "refuse Immutable",
            ),
            (
                "immutable, with the wanted content",
                Some(target(&json!({"immutable": true}))),
                a(),
                "keep",
            ),
            (
                "nothing is wanted",
                Some(target(&json!({}))),
                Wanted::Nothing,
                "keep",
            ),
            (
                "removed",
                Some(target(&json!({}))),
                Wanted::Removed,
                "delete u 7",
            ),
            (
                "removed, with keys of others",
                Some(target(&json!({"data": {"ours": "QQ=="}}))),
                Wanted::Removed,
                "refuse KeysOfOthers",
            ),
            ("removed already", None, Wanted::Removed, "keep"),
            (
                "a user owns the Secret now",
                Some(target(&foreign)),
                Wanted::Removed,
                "keep",
            ),
            (
                "a user forced other content",
                Some(target(
                    &json!({"metadata": {"managedFields": [owner("kubectl")]}}),
                )),
                Wanted::Removed,
                "keep",
            ),
            (
                "a user owns the same content too",
                Some(target(&json!({"metadata": {"managedFields": of_both}}))),
                Wanted::Removed,
                "delete u 7",
            ),
            (
                "another fleet owns the Secret now",
                Some(target(&other_fleet)),
                Wanted::Removed,
                "keep",
            ),
        ] {
            let found = action(target.as_ref(), &wanted, FLEET);
            assert_eq!(in_one_line(&found), expected, "{case}");
        }
    }

    fn said(about: &str, status: &str, reason: &str) -> Answer {
        let object = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
            "metadata": {"name": "global-pull-secret", "generation": 1}, "spec": {},
            "status": {
                "observedGeneration": 1, "observedAdditional": about, "counts": {"total": 3, "synced": 2},
                "conditions": [{
                    "type": "Ready", "status": status, "reason": reason, "message": "node-1:\u{1b}[31m no",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        });
        let object = serde_json::from_value(object).unwrap();
        Answer::Said(Box::new(Said::of(&object).unwrap()))
    }

    #[test]
    fn counts_of_a_member_are_limited_to_what_the_status_accepts() {
        let counts: Counts = serde_json::from_value(json!({
            "total": u32::MAX, "synced": 3, "progressing": u32::MAX, "failed": u32::MAX, "unreachable": u32::MAX,
        }))
        .unwrap();
        let most = i32::MAX;
        let expected = json!({
            "total": most, "synced": 3, "progressing": most, "failed": most, "unreachable": most,
        });
        assert_eq!(serde_json::to_value(storable(counts)).unwrap(), expected);
    }

    #[test]
    fn a_cluster_is_done_when_its_own_globalps_reports_the_content_in_force() {
        let has = || Some(target(&json!({})));
        let nodes = Terms {
            require_nodes: true,
            is_additional: true,
        };
        let secret = Terms {
            require_nodes: false,
            is_additional: true,
        };
        let other = Terms {
            require_nodes: true,
            is_additional: false,
        };
        let a = || wanted(1, "A", "");
        for (case, target, answer, wanted, terms, expected) in [
            (
                "nothing assigned",
                None,
                Answer::Unknown,
                Wanted::Nothing,
                nodes,
                "Pending ",
            ),
            ("not written", None, Answer::Silent, a(), nodes, "Syncing "),
            (
                "nothing reported",
                has(),
                Answer::Silent,
                a(),
                nodes,
                "Syncing ",
            ),
            (
                "about an older Secret",
                has(),
                said("6", "True", "Synced"),
                a(),
                nodes,
                "Syncing ",
            ),
            (
                "ready",
                has(),
                said("7", "True", "Synced"),
                a(),
                nodes,
                "Synced ",
            ),
            (
                "ready with the previous revision",
                has(),
                said("7", "True", "Synced"),
                wanted(2, "B", ""),
                nodes,
                "Syncing ",
            ),
            (
                "in progress",
                has(),
                said("7", "False", "RollingOut"),
                a(),
                nodes,
                "Syncing RollingOut",
            ),
            (
                "a node failed",
                has(),
                said("7", "False", "NodesFailed"),
                a(),
                nodes,
                "Failed NodesFailed",
            ),
            (
                "it rejects the content",
                has(),
                said("7", "False", "AdditionalInvalid"),
                a(),
                nodes,
                "Failed AdditionalInvalid",
            ),
            (
                "it rolled it back",
                has(),
                said("7", "False", "TakenBack"),
                a(),
                nodes,
                "Failed TakenBack",
            ),
            (
                "a full disk",
                has(),
                said("7", "False", "NodesBlocked"),
                a(),
                nodes,
                "Blocked NodesBlocked",
            ),
            (
                "no globalps",
                has(),
                Answer::NoGlobalps,
                a(),
                nodes,
                "Blocked NoGlobalps",
            ),
            (
                "no globalps, and it is not required",
                has(),
                Answer::NoGlobalps,
                a(),
                secret,
                "Synced ",
            ),
            (
                "a Secret that globalps does not report on",
                has(),
                Answer::Unknown,
                a(),
                other,
                "Synced ",
            ),
            (
                "removing",
                has(),
                Answer::Silent,
                Wanted::Removed,
                nodes,
                "Removing ",
            ),
            (
                "removed",
                None,
                Answer::Silent,
                Wanted::Removed,
                nodes,
                "Removed ",
            ),
        ] {
            let facts = Facts {
                target,
                answer,
                ..Facts::default()
            };
            let status = status(&facts, &wanted, FLEET, terms);
            let found = format!("{} {}", status.phase, status.reason);
            assert_eq!(found, expected, "{case}");
            assert!(!status.message.contains('\u{1b}'), "{case}");
        }
        let mut facts = Facts {
            target: has(),
            answer: said("7", "True", "Synced"),
            refused: Some(("Conflict", "another owner".to_owned())),
            ..Facts::default()
        };
        let phase = |facts: &Facts| status(facts, &a(), FLEET, nodes).phase;
        assert_eq!(phase(&facts), ClusterPhase::Blocked);
        facts.unreachable = Some(("Timeout", "no response".to_owned()));
        assert_eq!(phase(&facts), ClusterPhase::Unreachable);
        assert_eq!(status(&facts, &a(), FLEET, nodes).nodes.unwrap().synced, 2);
    }
}
