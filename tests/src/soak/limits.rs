//! Computes from the API server's audit log how many nodes were in flight at the same time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const CONTROLLER: &str = "system:serviceaccount:globalps-system:globalps-controller";
/// A Node younger than this without content gets the fleet's revision outside the limits.
const NEW_FOR: SignedDuration = SignedDuration::from_mins(10);

/// What the audit log says about the `NodePullSecret`s.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of nodes with an assignment from the controller that had not responded to it.
    pub most: usize,
    /// These nodes, and the `resourceVersion` at that moment.
    pub at: (Vec<String>, u64),
    /// Specs that the controller wrote, and statuses that the nodes wrote.
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
    /// The Node was new at that moment.
    is_new: bool,
    /// The whole object after the write; `None`: it was deleted.
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
            // A kill of the API server can cut a line off. The events after it contain everything that matters.
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

/// `latest` stands in for the version of a deletion, whose response has none.
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
        object: (verb != "delete").then(|| object.clone()),
    })
}

fn replay(changes: &[Change]) -> Limits {
    let mut limits = Limits::default();
    // The object, whether the controller wrote its spec, and whether its Node is new.
    let mut nodes: BTreeMap<&str, (&Value, bool, bool)> = BTreeMap::new();
    for change in changes {
        let Some(object) = &change.object else {
            nodes.remove(change.node.as_str());
            continue;
        };
        let before = nodes.get(change.node.as_str());
        let same_spec = before.is_some_and(|(before, ..)| before["spec"] == object["spec"]);
        let by_controller = if change.is_spec && !same_spec {
            change.by_controller
        } else {
            before.is_some_and(|(_, by_controller, _)| *by_controller)
        };
        nodes.insert(&change.node, (object, by_controller, change.is_new));
        if change.is_spec && change.by_controller {
            limits.assignments += 1;
        } else if !change.is_spec {
            limits.statuses += 1;
        }
        let open: Vec<String> = nodes
            .iter()
            .filter(|(_, (object, by_controller, is_new))| {
                *by_controller && is_in_flight(object, *is_new)
            })
            .map(|(node, _)| (*node).to_owned())
            .collect();
        if open.len() > limits.most {
            limits.most = open.len();
            limits.at = (open, change.version);
        }
    }
    limits
}

/// It has an assignment and may be applying it: its status is of an earlier assignment or says that it is in progress.
/// A new node without content counts towards no limit.
fn is_in_flight(object: &Value, is_new: bool) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    let revision = |of: &Value| of["revision"].as_i64().unwrap_or_default();
    let is_restore = spec["restore"] == true;
    let is_bootstrapping = is_new && revision(status) == 0 && !is_restore;
    if is_bootstrapping || !is_restore && revision(spec) == 0 {
        return false;
    }
    let is_withdrawn = spec["withdrawn"] == true;
    let observed = status["observedGeneration"].as_i64().unwrap_or_default();
    if object["metadata"]["generation"] != observed {
        return !is_withdrawn;
    }
    let is_over = match status["phase"].as_str().unwrap_or_default() {
        "Synced" => {
            let is_same = |field: &str| status[field] == spec[field];
            !is_restore && is_same("revision") && is_same("revisionId")
        }
        "Restored" => is_restore,
        // Its content was replaced before the node fetched it: the node is unchanged, and its next assignment follows.
        "Syncing" => status["reason"] == "Superseded",
        phase => ["RolledBack", "Failed", "ForeignOwner"].contains(&phase),
    };
    !is_over
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assign(version: u64, node: &str, revision: i64, observed: i64) -> Change {
        object(version, node, true, revision, observed, "Synced")
    }

    fn object(
        version: u64,
        node: &str,
        is_spec: bool,
        revision: i64,
        observed: i64,
        phase: &str,
    ) -> Change {
        let object = json!({
            "metadata": {"generation": revision},
            "spec": {"revision": revision},
            "status": {"observedGeneration": observed, "revision": observed, "phase": phase},
        });
        Change {
            version,
            node: node.to_owned(),
            is_spec,
            by_controller: is_spec,
            is_new: false,
            object: Some(object),
        }
    }

    #[test]
    fn nodes_count_from_their_grant_until_they_have_answered_for_it() {
        let answer = |version, node| object(version, node, false, 2, 2, "Synced");
        let at_work = |version, node| object(version, node, false, 2, 2, "Syncing");
        let superseded = |version, node| {
            let mut change = at_work(version, node);
            let object = change.object.as_mut().expect("an object");
            object["status"]["reason"] = json!("Superseded");
            change
        };
        let new = |version, node| Change {
            is_new: true,
            ..assign(version, node, 2, 0)
        };
        let deleted = |version, node: &str| Change {
            object: None,
            ..assign(version, node, 2, 1)
        };
        for (sentence, changes, most) in [
            (
                "one after the other",
                vec![
                    assign(1, "a", 2, 1),
                    answer(2, "a"),
                    assign(3, "b", 2, 1),
                    answer(4, "b"),
                ],
                1,
            ),
            (
                "both at once",
                vec![
                    assign(1, "a", 2, 1),
                    assign(2, "b", 2, 1),
                    answer(3, "a"),
                    answer(4, "b"),
                ],
                2,
            ),
            (
                "a node that is still changing",
                vec![assign(1, "a", 2, 1), at_work(2, "a"), assign(3, "b", 2, 1)],
                2,
            ),
            (
                "a node whose content was replaced before it fetched it",
                vec![
                    assign(1, "a", 2, 1),
                    superseded(2, "a"),
                    assign(3, "b", 2, 1),
                ],
                1,
            ),
            (
                "a deleted node",
                vec![assign(1, "a", 2, 1), deleted(2, "a"), assign(3, "b", 2, 1)],
                1,
            ),
            (
                "new nodes that have nothing",
                vec![new(1, "a"), new(2, "b")],
                0,
            ),
            (
                "other nodes that have nothing",
                vec![assign(1, "a", 2, 0), assign(2, "b", 2, 0)],
                2,
            ),
        ] {
            assert_eq!(replay(&changes).most, most, "{sentence}");
        }
    }
}
