//! Odd values in fields of objects that others may write.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use globalps_core::names::{CONTROLLER_NAMESPACE, GLOBAL_SECRET, LEASE};
use serde_json::{Value, json};

use super::kubectl::kubectl;
use crate::fleet::odd_values::fields::{ANNOTATION, LABEL, at_path, paths, replaced, values};
use crate::product::NAMESPACE;
use crate::{Cluster, until};

/// How long to try values until the API server accepts one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Objects that other clients may write, except fields whose meaning is up to them: a node's label or condition may
/// keep pods away.
static TARGETS: [Target; 6] = [
    Target {
        kind: "NodePullSecret",
        namespace: NAMESPACE,
        name: "",
        is_odd: |path| path.starts_with("/status/"),
    },
    Target {
        kind: "Node",
        namespace: "",
        name: "",
        is_odd: |path| {
            path.starts_with("/metadata/annotations/")
                || path == LABEL
                || path.starts_with("/status/conditions/") && path.ends_with("Time")
        },
    },
    Target {
        kind: "Namespace",
        namespace: "",
        name: NAMESPACE,
        is_odd: |path| path.starts_with("/metadata/annotations/") || path == LABEL,
    },
    Target {
        kind: "Secret",
        namespace: NAMESPACE,
        name: GLOBAL_SECRET,
        is_odd: |path| path.starts_with("/metadata/annotations/"),
    },
    Target {
        kind: "GlobalPullSecret",
        namespace: NAMESPACE,
        name: GLOBAL_SECRET,
        is_odd: |path| path.starts_with("/status/"),
    },
    Target {
        kind: "Lease",
        namespace: CONTROLLER_NAMESPACE,
        name: LEASE,
        // With another holder, another process leads.
        is_odd: |path| path.starts_with("/spec/") && path != "/spec/holderIdentity",
    },
];

struct Target {
    kind: &'static str,
    namespace: &'static str,
    /// Empty for a node, whose name varies.
    name: &'static str,
    is_odd: fn(&str) -> bool,
}

impl Target {
    fn paths(&self, object: &Value) -> Vec<String> {
        let mut found = paths(object, self.kind);
        found.extend([ANNOTATION, LABEL].map(str::to_owned));
        let conditions = object["status"]["conditions"]
            .as_array()
            .map_or(0, Vec::len);
        for at in 0..conditions {
            for time in ["lastHeartbeatTime", "lastTransitionTime"] {
                found.insert(format!("/status/conditions/{at}/{time}"));
            }
        }
        found.retain(|path| (self.is_odd)(path));
        found.into_iter().collect()
    }
}

pub(super) struct Oddities<'a> {
    cluster: &'a Cluster,
    left: Vec<Odd>,
}

/// An odd value that was written.
struct Odd {
    target: &'static Target,
    name: String,
    path: String,
    before: Value,
    /// The value as the API server stored it.
    odd: Value,
}

impl<'a> Oddities<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            left: Vec::new(),
        }
    }

    /// Writes an odd value to an object, such as one of this node, that the API server accepts. Returns a description.
    pub(super) fn put(&mut self, random: &mut Rng, node: &str) -> Result<String> {
        let target = &TARGETS[random.usize(..TARGETS.len())];
        let at = random.u16(..);
        let mut values = values();
        // The API server's response, and thus the audit log, shows a Secret that it can't decode.
        values.retain(|value| target.kind != "Secret" || value.is_string());
        random.shuffle(&mut values);
        let name = if target.name.is_empty() {
            node
        } else {
            target.name
        };
        let object = self.get(target, name)?;
        let paths = target.paths(&object);
        let path = paths
            .get(usize::from(at) % paths.len().max(1))
            .context("no field")?;
        let begun = Instant::now();
        for value in values {
            let patch = replaced(&object, path, value.clone());
            match self.patch(target, name, path, &patch) {
                Ok(odd) => {
                    self.left.push(Odd {
                        target,
                        name: name.to_owned(),
                        path: path.clone(),
                        before: at_path(&object, path),
                        odd,
                    });
                    let value: String = value.to_string().chars().take(40).collect();
                    return Ok(format!(": {} `{name}` {path} = {value}", target.kind));
                }
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => {}
            }
        }
        bail!(
            "the API server accepts no odd value in {} {path}",
            target.kind
        )
    }

    /// Reverts the odd values that no other client has replaced.
    pub(super) fn take_back(&mut self) -> Result<()> {
        let (deadline, poll) = (Duration::from_secs(30), Duration::from_secs(1));
        while let Some(odd) = self.left.pop() {
            let what = format!("{} `{}` {} as before", odd.target.kind, odd.name, odd.path);
            until(&what, deadline, poll, || Ok(self.restore(&odd).ok()))?;
        }
        Ok(())
    }

    fn restore(&self, odd: &Odd) -> Result<()> {
        let now = self.get(odd.target, &odd.name)?;
        if now.is_null() || at_path(&now, &odd.path) != odd.odd || odd.odd == odd.before {
            return Ok(());
        }
        let patch = replaced(&now, &odd.path, odd.before.clone());
        self.patch(odd.target, &odd.name, &odd.path, &patch)?;
        Ok(())
    }

    /// Without the values of a Secret; null if the object does not exist.
    fn get(&self, target: &Target, name: &str) -> Result<Value> {
        let what = format!("{}/{name}", target.kind.to_lowercase());
        let mut object = self.cluster.get(target.namespace, &what)?;
        if let Some(fields) = object.as_object_mut() {
            fields.remove("data");
        }
        Ok(object)
    }

    /// Returns the value that the API server stored at the path.
    fn patch(&self, target: &Target, name: &str, path: &str, patch: &Value) -> Result<Value> {
        let what = format!("{}/{name}", target.kind.to_lowercase());
        // Prints only this part of the object, because another part may be a credential.
        let part = path.split('/').nth(1).context("an empty path")?;
        let (patch, output) = (patch.to_string(), format!("jsonpath={{.{part}}}"));
        let mut args = vec!["patch", &what, "--type=merge", "-p", &patch, "-o", &output];
        if !target.namespace.is_empty() {
            args.extend(["-n", target.namespace]);
        }
        if part == "status" {
            args.push("--subresource=status");
        }
        let printed = kubectl(self.cluster, &args)?;
        let stored = serde_json::from_str(&printed).unwrap_or_default();
        let stored: Value = json!({part: Value::clone(&stored)});
        Ok(at_path(&stored, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_values_keep_no_pod_and_no_leader_away() {
        let object = json!({
            "metadata": {"labels": {"kubernetes.io/os": "linux"}, "annotations": {"a/b": "c"}},
            "spec": {"holderIdentity": "a", "renewTime": "b", "unschedulable": true, "revision": 1},
            "status": {"phase": "Synced", "conditions": [{"status": "True"}, {"status": "True"}]},
        });
        for target in &TARGETS {
            let found = target.paths(&object);
            let has = |path: &str| found.iter().any(|it| it == path);
            let (is_node, is_lease) = (target.kind == "Node", target.kind == "Lease");
            assert!(!found.is_empty(), "{}", target.kind);
            assert_eq!(has("/spec/renewTime"), is_lease, "{found:?}");
            assert_eq!(has("/spec/revision"), is_lease, "{found:?}");
            assert!(!has("/spec/holderIdentity"), "{found:?}");
            assert!(!has("/metadata/labels/kubernetes.io~1os"), "{found:?}");
            if is_node {
                assert!(has("/status/conditions/1/lastHeartbeatTime") && has(LABEL));
                assert!(has("/metadata/annotations/a~1b") && !has("/status/phase"));
            }
        }
    }
}
