//! Computes from the API server's audit log how many nodes were in flight at the same time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const CONTROLLER: &str = "system:serviceaccount:globalps-system:globalps-controller";
const SYNCER: &str = "system:serviceaccount:kube-system:global-pull-secret-syncer";
const PROVIDER: &str = "CredentialProvider";
/// A Node younger than this without content gets the fleet's revision outside the limits.
const NEW_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The observations in the audit log about the `NodePullSecret`s.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of nodes that had an assignment by the controller and had not responded to it.
    pub most: usize,
    /// These nodes, and the `resourceVersion` at that moment.
    pub at: (Vec<String>, u64),
    /// Number of specs that the controller wrote, and of statuses that the nodes wrote.
    pub assignments: usize,
    pub statuses: usize,
}

/// One write to a `NodePullSecret` that the API server accepted.
struct Change {
    /// Orders the changes of all nodes.
    version: u64,
    node: String,
    is_spec: bool,
    by_controller: bool,
    /// Whether the node's syncer wrote it. A status by any other client is an odd value.
    by_node: bool,
    /// Whether the Node was new at that moment.
    is_new: bool,
    /// The object after the write; `None`: it was deleted.
    object: Option<Value>,
}

/// Reads `audit.log` and its rotated files in the same directory. `created`: when each Node was created.
pub fn read(audit_log: &Path, created: &BTreeMap<String, Timestamp>) -> Result<Limits> {
    let mut changes = Vec::new();
    for part in parts(audit_log)? {
        for line in BufReader::new(File::open(&part)?).lines() {
            let line = line?;
            if !line.contains("\"nodepullsecrets\"") {
                continue;
            }
            // A kill of the API server can truncate a line. The events after it contain everything relevant.
            let Ok(event) = serde_json::from_str(&line) else {
                continue;
            };
            let latest = changes.last().map_or(0, |change: &Change| change.version);
            changes.extend(change(&event, latest, created));
        }
    }
    changes.sort_by_key(|change| change.version);
    Ok(replay(&changes))
}

/// Rotated files have a time in their name.
fn parts(audit_log: &Path) -> Result<Vec<PathBuf>> {
    let directory = audit_log.parent().context("no parent directory")?;
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("audit-") {
            parts.push(path);
        }
    }
    parts.sort();
    parts.push(audit_log.to_owned());
    Ok(parts)
}

/// `latest` is used as the version of a deletion, whose response has none.
fn change(event: &Value, latest: u64, created: &BTreeMap<String, Timestamp>) -> Option<Change> {
    let target = &event["objectRef"];
    let taken = event["responseStatus"]["code"].as_u64()? < 300;
    let is_of_node = target["resource"] == "nodepullsecrets" && target["apiGroup"] == "globalps.io";
    if !taken || !is_of_node || event["stage"] != "ResponseComplete" {
        return None;
    }
    let verb = event["verb"].as_str()?;
    if !["create", "update", "patch", "delete"].contains(&verb) {
        return None;
    }
    let object = &event["responseObject"];
    let version = object["metadata"]["resourceVersion"].as_str();
    let version = version.and_then(|version| version.parse().ok());
    let node = target["name"].as_str()?.to_owned();
    let time: Timestamp = event["stageTimestamp"].as_str()?.parse().ok()?;
    let created = created.get(&node);
    Some(Change {
        version: version.unwrap_or(latest),
        is_new: created.is_some_and(|created| time.duration_since(*created) < NEW_FOR),
        node,
        is_spec: target["subresource"].is_null(),
        by_controller: event["user"]["username"] == CONTROLLER,
        by_node: event["user"]["username"] == SYNCER,
        object: (verb != "delete").then(|| object.clone()),
    })
}

/// The state of a node.
struct Seen<'a> {
    object: &'a Value,
    /// Whether the controller wrote its spec.
    by_controller: bool,
    is_new: bool,
    /// Whether its assignment needs no restart, and therefore counts towards no limit.
    in_place: bool,
    /// Whether its assignment had finished when another client changed its status. The node is then not in flight,
    /// whatever the status says.
    was_over: bool,
}

impl<'a> Seen<'a> {
    fn after(
        change: &Change,
        object: &'a Value,
        before: Option<&Seen<'_>>,
        providers: &Providers,
    ) -> Self {
        let is_same = |field: &str, part: &str| {
            before.is_some_and(|it| it.object[field][part] == object[field][part])
        };
        let same_spec = before.is_some_and(|before| before.object["spec"] == object["spec"]);
        let is_assigned = change.is_spec && !same_spec;
        let was_over = if change.is_spec {
            before.is_some_and(|it| it.was_over) && is_same("metadata", "generation")
        } else {
            !change.by_node && before.is_some_and(|it| !it.is_in_flight())
        };
        Self {
            object,
            by_controller: if is_assigned {
                change.by_controller
            } else {
                before.is_some_and(|it| it.by_controller)
            },
            is_new: change.is_new,
            in_place: if is_assigned {
                providers.takes_in_place(object)
            } else {
                before.is_some_and(|it| it.in_place)
            },
            was_over,
        }
    }

    fn is_in_flight(&self) -> bool {
        !self.was_over && is_in_flight(self.object, self.is_new)
    }
}

fn replay(changes: &[Change]) -> Limits {
    let providers = Providers::of(changes);
    let mut limits = Limits::default();
    let mut nodes: BTreeMap<&str, Seen> = BTreeMap::new();
    for change in changes {
        let Some(object) = &change.object else {
            nodes.remove(change.node.as_str());
            continue;
        };
        let before = nodes.get(change.node.as_str());
        let seen = Seen::after(change, object, before, &providers);
        nodes.insert(&change.node, seen);
        if change.is_spec && change.by_controller {
            limits.assignments += 1;
        } else if change.by_node {
            limits.statuses += 1;
        }
        let open: Vec<String> = nodes
            .iter()
            .filter(|(_, seen)| seen.by_controller && !seen.in_place && seen.is_in_flight())
            .map(|(node, _)| (*node).to_owned())
            .collect();
        if open.len() > limits.most {
            limits.most = open.len();
            limits.at = (open, change.version);
        }
    }
    limits
}

/// Number and id of a revision.
type Revision = (i64, String);

fn revision(of: &Value) -> Revision {
    let id = of["revisionId"].as_str().unwrap_or_default();
    (of["revision"].as_i64().unwrap_or_default(), id.to_owned())
}

/// The order of the assigned revisions, and which of them are delivered by the credential provider.
#[derive(Default)]
struct Providers {
    order: BTreeMap<Revision, usize>,
    /// Each revision, with the first of the uninterrupted sequence of revisions that the provider delivers. A node with
    /// one of that sequence changes in place.
    since: BTreeMap<Revision, usize>,
}

impl Providers {
    fn of(changes: &[Change]) -> Self {
        let (mut revisions, mut found) = (Vec::new(), Self::default());
        let mut delivered: BTreeMap<Revision, bool> = BTreeMap::new();
        for change in changes {
            let object = change.object.as_ref().unwrap_or(&Value::Null);
            let (spec, status) = (&object["spec"], &object["status"]);
            if change.by_controller && !found.order.contains_key(&revision(spec)) {
                found.order.insert(revision(spec), revisions.len());
                revisions.push(revision(spec));
            }
            if change.by_node && status["phase"] == "Synced" {
                // A node that doesn't support the provider keeps the file.
                *delivered.entry(revision(status)).or_default() |= status["delivery"] == PROVIDER;
            }
        }
        let mut first = None;
        for (at, revision) in revisions.into_iter().enumerate() {
            match delivered.get(&revision) {
                Some(true) => {
                    let first = *first.get_or_insert(at);
                    found.since.insert(revision, first);
                }
                Some(false) => first = None,
                // No node ever had the revision, so only a canary was assigned it.
                None => {}
            }
        }
        found
    }

    fn takes_in_place(&self, object: &Value) -> bool {
        let (spec, status) = (&object["spec"], &object["status"]);
        let first = self.since.get(&revision(spec));
        let has = self.order.get(&revision(status));
        let is_in_sequence = first.is_some_and(|first| has.is_some_and(|has| has >= first));
        status["delivery"] == PROVIDER && spec["restore"] != true && is_in_sequence
    }
}

/// Whether the node has an assignment and may be applying it: its status is about an earlier assignment, or reports
/// progress. A new node without content counts towards no limit.
fn is_in_flight(object: &Value, is_new: bool) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    let revision = |of: &Value| of["revision"].as_i64().unwrap_or_default();
    let is_restore = spec["restore"] == true;
    let is_bootstrapping = is_new && revision(status) == 0 && !is_restore;
    if is_bootstrapping || !is_restore && revision(spec) == 0 {
        return false;
    }
    let is_revoked = spec["revoked"] == true;
    let observed = status["observedGeneration"].as_i64().unwrap_or_default();
    let is_same = |field: &str| status[field] == spec[field];
    let has_it =
        status["phase"] == "Synced" && !is_restore && is_same("revision") && is_same("revisionId");
    if object["metadata"]["generation"] != observed {
        // A node whose object was deleted is assigned the content that it already has.
        return !is_revoked && !has_it;
    }
    let is_over = match status["phase"].as_str().unwrap_or_default() {
        "Synced" => has_it,
        "Restored" => is_restore,
        // The content was replaced before the node fetched it: the node is unchanged, and its next assignment follows.
        "Syncing" => status["reason"] == "Superseded",
        phase => ["RolledBack", "Failed", "ForeignOwner"].contains(&phase),
    };
    !is_over
}

#[cfg(test)]
mod tests;
