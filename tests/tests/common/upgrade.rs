//! A change of the release in the middle of a rollout: every node gets the newest content with one kubelet start.

use std::fs;
use std::time::Duration;

use globalps_testkit::product::Product;
use globalps_testkit::release::{Pushed, syncers_are};
use globalps_testkit::{Cluster, Node, config_file, wait};

use super::{base64, docker_config};

const POLL: Duration = Duration::from_millis(100);
const REGISTRY: &str = "upgrade.example.com";
const OWN_FILE: &str =
    "{\n\t\"auths\": { \"own.example.com\": { \"auth\": \"b3duOm93bg==\" } }\n}\n";

type Files = Vec<Option<config_file::ConfigFile>>;

/// A cluster of three nodes; the second one has a credentials file of its own.
pub struct World<'a> {
    pub cluster: &'a Cluster,
    pub product: Product<'a>,
    nodes: Vec<Node>,
    before: Files,
}

impl<'a> World<'a> {
    pub fn new(cluster: &'a Cluster) -> Self {
        let nodes = cluster.nodes().unwrap();
        fs::write(nodes[1].kubelet_dir().join("config.json"), OWN_FILE).unwrap();
        Self {
            cluster,
            product: Product::attach(cluster),
            before: files(&nodes),
            nodes,
        }
    }

    /// Creates the additional Secret, with content 0 and the release that is installed.
    pub fn first(&self, release: &Pushed) {
        self.product.apply(&content(0)).unwrap();
        self.product.wait_synced().unwrap();
        self.everything_is_in_place(0, release);
    }

    /// Rolls out the content with this number, and changes the release before every node has it. Then every node gets
    /// it with one kubelet start, and all syncers are of the release `syncer`. `step`: a description to print.
    pub fn during_a_rollout(
        &self,
        number: usize,
        step: &str,
        syncer: &Pushed,
        change: impl FnOnce(),
    ) {
        let starts = self.kubelet_starts();
        self.product.apply(&content(number)).unwrap();
        let done = wait("the first node with the new content", POLL, || {
            Ok(Some(self.with_content(number)).filter(|&done| done > 0))
        });
        assert!(done < self.nodes.len(), "the rollout is in flight");
        change();
        let then = self.with_content(number);
        println!(
            "{step}: {done} nodes had the content before the change, {then} when the controller had changed"
        );

        self.product.wait_synced().unwrap();
        self.everything_is_in_place(number, syncer);
        let now = self.kubelet_starts();
        let more: Vec<usize> = now.iter().zip(starts).map(|(now, was)| now - was).collect();
        assert_eq!(more, [1, 1, 1], "{step}");
    }

    /// Deletes the additional Secret, and returns when the nodes have their original files.
    pub fn restored(&self) {
        self.product.delete().unwrap();
        wait("the same bytes, mode and owner", POLL, || {
            Ok((files(&self.nodes) == self.before).then_some(()))
        });
    }

    fn with_content(&self, number: usize) -> usize {
        let nodes = self.nodes.iter();
        nodes.filter(|node| has(node, number)).count()
    }

    fn kubelet_starts(&self) -> Vec<usize> {
        self.product.starts(&self.nodes).unwrap()
    }

    /// Checks that every node has the content and is `Synced` with its revision, and that all syncers are of this release.
    fn everything_is_in_place(&self, number: usize, syncer: &Pushed) {
        wait("all syncers of the release", POLL, || {
            Ok(syncers_are(self.cluster, syncer)?.then_some(()))
        });
        let revision = self.product.status().unwrap()["revision"].clone();
        for node in &self.nodes {
            let what = format!("{} at revision {revision}", node.name());
            wait(&what, POLL, || {
                let status = self.product.node_status(node.name())?;
                Ok((status["phase"] == "Synced" && status["revision"] == revision).then_some(()))
            });
            assert!(has(node, number), "{}", node.name());
        }
        let own = config_file::auth(&self.nodes[1], "own.example.com").unwrap();
        assert_eq!(own, Some(base64("own:own")), "the node's own entry");
    }
}

pub fn content(number: usize) -> String {
    docker_config(&[(REGISTRY, &format!("u:upgrade-s3cret-{number}"))])
}

pub fn has(node: &Node, number: usize) -> bool {
    let expected = base64(&format!("u:upgrade-s3cret-{number}"));
    config_file::auth(node, REGISTRY).unwrap() == Some(expected)
}

fn files(nodes: &[Node]) -> Files {
    nodes
        .iter()
        .map(|node| config_file::read(node).unwrap())
        .collect()
}
