//! Nodes that a cleanup finishes without, because they are unreachable or can't be restored. The annotation is a permission: the controller still restores a node
//! that is back before the cleanup ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use globalps_core::api::{Kubelet, NodePullSecret};
use globalps_core::names;
use kube::ResourceExt as _;

use crate::cluster::annotate::annotate;
use crate::cluster::{Cluster, Facts};
use crate::error::{Failure, Result, guide};
use crate::terminal::printer::Printer;
use crate::view::status::{Status, is_restoring, left};

#[derive(Debug, Default)]
pub(crate) struct Skipped {
    nodes: BTreeSet<String>,
    /// The annotation was set on their objects, but the watch still shows this value of before.
    annotated: BTreeMap<String, Option<String>>,
    config_file: String,
}

impl Skipped {
    /// Says before the question which nodes can't be restored now. An error where that can't be known.
    pub(crate) fn announce(cluster: &Cluster<'_>, facts: &Facts) -> Result<()> {
        if facts.nodes.is_none() {
            return Err(Failure::new(
                "this user may not list Nodes, so it is unknown which ones are unreachable",
                "`kubectl globalps check` shows the permissions of this user",
            ));
        }
        let mut skipped = Self::default();
        skipped.observe(facts, &Status::of(facts, cluster.now()));
        if let Some(stays) = skipped.stays() {
            cluster.printer().warning(format_args!(
                "nodes that can't be restored will be skipped: {stays}"
            ));
        }
        Ok(())
    }

    /// Adds the nodes that can't be restored now, and drops those that can. A node whose object is gone stays what it was.
    fn observe(&mut self, facts: &Facts, status: &Status) {
        if let Some(gps) = facts.gps() {
            self.config_file.clone_from(&gps.spec.kubelet.config_file);
        }
        for row in &status.nodes {
            // An excluded node has a row without it.
            if facts.node_secrets.get(&row.name).is_some() {
                self.nodes.remove(&row.name);
            }
        }
        let left = left(facts, status).into_iter();
        self.nodes.extend(left.map(|row| row.name.clone()));
    }

    /// Lets the controller finish without the nodes that can't be restored now, once the nodes restore their own files.
    pub(crate) async fn skip(
        &mut self,
        cluster: &Cluster<'_>,
        facts: &Facts,
        status: &Status,
    ) -> Result<()> {
        if !is_restoring(facts) {
            return Ok(());
        }
        self.observe(facts, status);
        let nodes = self.without_annotation(facts);
        let annotation = (names::ABANDON_ANNOTATION, "true");
        let namespace = cluster.namespace.as_str();
        let objects: Vec<(&str, &str)> = nodes.iter().map(|node| (namespace, &**node)).collect();
        annotate::<NodePullSecret>(cluster, &objects, annotation, |_, result| match result {
            // The cleanup was faster.
            Err(failure) if failure.is(404) => Ok(()),
            result => result,
        })
        .await?;
        self.was_annotated(facts, nodes);
        Ok(())
    }

    /// How many nodes the cleanup finishes without.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    fn was_annotated(&mut self, facts: &Facts, nodes: Vec<String>) {
        let before = nodes.into_iter().map(|name| {
            let value = annotation(facts, &name);
            (name, value)
        });
        self.annotated.extend(before);
    }

    /// Also those whose annotation was set, but is gone: the controller ends the permission with its cleanup.
    fn without_annotation(&mut self, facts: &Facts) -> Vec<String> {
        self.annotated
            .retain(|name, before| annotation(facts, name) == *before);
        let is_missing = |name: &&String| {
            !self.annotated.contains_key(*name)
                && facts.node_secrets.get(name).is_some()
                && annotation(facts, name).is_none_or(|value| value != "true")
        };
        self.nodes.iter().filter(is_missing).cloned().collect()
    }

    /// At the end.
    pub(crate) fn report(&self, printer: &Printer) {
        if let Some(stays) = self.stays() {
            printer.warning(format_args!(
                "nodes were skipped and keep their credentials: {stays}"
            ));
            let guide = guide("restore-one-node-by-hand");
            printer.hint(format_args!(
                "to clean up such a node, run `globalps-syncer restore` on it, as {guide} shows"
            ));
        }
    }

    /// The nodes, and what is left on each; `None`: there are none.
    fn stays(&self) -> Option<String> {
        let nodes: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        let default = Kubelet::default().config_file;
        let file = match self.config_file.as_str() {
            "" => default.as_str(),
            file => file,
        };
        let directory = Path::new(file).with_file_name(names::STATE_DIR);
        (!nodes.is_empty()).then(|| {
            format!(
                "`{}`; the managed entries of `{file}` and the directory `{}` stay on each of them",
                nodes.join("`, `"),
                directory.display()
            )
        })
    }
}

/// The value on the node's object.
fn annotation(facts: &Facts, node: &str) -> Option<String> {
    let annotations = facts.node_secrets.get(node)?.annotations();
    annotations.get(names::ABANDON_ANNOTATION).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::api::{
        GlobalPullSecret, GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec,
    };
    use jiff::Timestamp;

    use crate::cluster::facts::{Lost, NodeFacts};

    /// Nodes by name; `!`: no heartbeat, `+`: has the annotation, `-`: it is excluded, and has no object any more.
    fn facts(nodes: &str) -> Facts {
        let mut facts = Facts {
            installed: true,
            ..Facts::default()
        };
        let mut spec = GlobalPullSecretSpec::default();
        "/etc/cri/auth.json".clone_into(&mut spec.kubelet.config_file);
        let gps = GlobalPullSecret::new(names::GLOBAL_SECRET, spec);
        facts.global.insert(names::GLOBAL_SECRET, gps);
        for word in nodes.split_whitespace() {
            let name = word.trim_end_matches(['!', '+', '-']);
            let spec = NodePullSecretSpec {
                restore: true,
                ..NodePullSecretSpec::default()
            };
            let mut object = NodePullSecret::new(name, spec);
            if word.contains('+') {
                let annotation = (names::ABANDON_ANNOTATION.to_owned(), "true".to_owned());
                object.annotations_mut().extend([annotation]);
            }
            if !word.contains('-') {
                facts.node_secrets.insert(name, object);
            }
            let node = NodeFacts {
                excluded: word.contains('-'),
                virtual_by: None,
                not_ready: word
                    .contains('!')
                    .then_some((Timestamp::UNIX_EPOCH, Lost::Yes)),
            };
            facts.nodes.get_or_insert_default().insert(name, node);
        }
        facts
    }

    /// It ends with its cleanup, also with one that ended just now.
    #[test]
    fn a_permission_that_ended_is_given_again() {
        let mut skipped = Skipped::default();
        for (case, value, expected) in [
            ("not given", None, "b"),
            ("not shown yet", None, ""),
            ("given", Some("true"), ""),
            ("ended", Some("false"), "b"),
            ("not shown yet", Some("false"), ""),
            ("given", Some("true"), ""),
            ("ended again", Some("false"), "b"),
            ("shown together", None, "b"),
        ] {
            let mut facts = facts("b!");
            let mut object = facts.node_secrets.get("b").cloned().expect("one");
            let value = value.map(|value| (names::ABANDON_ANNOTATION.to_owned(), value.to_owned()));
            object.annotations_mut().extend(value);
            facts.node_secrets.insert("b", object);
            skipped.observe(&facts, &Status::of(&facts, Timestamp::UNIX_EPOCH));
            let missing = skipped.without_annotation(&facts);
            assert_eq!(missing.join(" "), expected, "{case}");
            skipped.was_annotated(&facts, missing);
        }
    }

    #[test]
    fn unreachable_nodes_are_skipped_until_they_are_back() {
        let mut skipped = Skipped::default();
        for (nodes, expected, to_annotate) in [
            ("a b! c!+", "b c", "b"),
            ("a b!+ c+", "b", ""),
            ("b! d!", "b d", "b d"),
            ("d", "b", ""),
            ("b-", "b", ""),
            ("", "b", ""),
        ] {
            let facts = facts(nodes);
            let status = Status::of(&facts, Timestamp::UNIX_EPOCH);
            skipped.observe(&facts, &status);
            let names: Vec<&str> = skipped.nodes.iter().map(String::as_str).collect();
            assert_eq!(names.join(" "), expected, "{nodes}");
            let missing = skipped.without_annotation(&facts);
            assert_eq!(missing.join(" "), to_annotate, "{nodes}");
        }
        assert_eq!(
            skipped.stays().as_deref(),
            Some(
                "`b`; the managed entries of `/etc/cri/auth.json` and the directory `/etc/cri/.globalps` stay on each of them"
            )
        );
        assert_eq!(Skipped::default().stays(), None);
    }
}
