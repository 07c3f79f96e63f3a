//! Nodes without power, and nodes that reboot.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fastrand::Rng;

use crate::{Cluster, Node, until};

/// Maximum number of nodes without power at the same time.
const DOWN: usize = 2;

pub(super) struct Power<'a> {
    cluster: &'a Cluster,
    nodes: &'a [Node],
    /// Nodes without power, and when to boot them.
    down: BTreeMap<String, Instant>,
    /// Nodes that are rebooting.
    reboots: BTreeMap<String, JoinHandle<Result<()>>>,
}

impl<'a> Power<'a> {
    pub(super) fn new(cluster: &'a Cluster, nodes: &'a [Node]) -> Self {
        Self {
            cluster,
            nodes,
            down: BTreeMap::new(),
            reboots: BTreeMap::new(),
        }
    }

    pub(super) fn cut(&mut self, random: &mut Rng) -> Result<()> {
        let node = self.one_more(random)?;
        node.power_cut()?;
        // Half of the nodes come back at once, the others after the cluster has noticed.
        let most = if random.bool() { 3 } else { 90 };
        let back = Instant::now() + Duration::from_secs(random.u64(0..most));
        self.down.insert(node.name().to_owned(), back);
        Ok(())
    }

    pub(super) fn reboot(&mut self, random: &mut Rng) -> Result<()> {
        let node = self.one_more(random)?;
        let name = node.name().to_owned();
        let reboot = thread::spawn(move || node.reboot());
        self.reboots.insert(name, reboot);
        Ok(())
    }

    fn one_more(&self, random: &mut Rng) -> Result<Node> {
        let node = self.running(random)?;
        ensure!(
            self.down.len() + self.reboots.len() < DOWN,
            "the maximum number of nodes is already down"
        );
        Ok(node)
    }

    /// A node that runs.
    pub(super) fn running(&self, random: &mut Rng) -> Result<Node> {
        let busy = |node: &&Node| {
            !self.down.contains_key(node.name()) && !self.reboots.contains_key(node.name())
        };
        let running: Vec<&Node> = self.nodes.iter().filter(busy).collect();
        ensure!(!running.is_empty(), "no node runs");
        Ok(running[random.usize(..running.len())].clone())
    }

    /// Boots the nodes whose outage is over.
    pub(super) fn bring_back(&mut self, all: bool) -> Result<()> {
        let now = Instant::now();
        let due: Vec<String> = self
            .down
            .iter()
            .filter(|(_, back)| all || **back <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let node = self.cluster.node(&name)?;
            until(
                "the node's boot",
                Duration::from_mins(1),
                Duration::from_secs(1),
                || Ok((node.is_running()? || node.boot().is_ok()).then_some(())),
            )?;
            self.down.remove(&name);
        }
        let over: Vec<String> = self
            .reboots
            .iter()
            .filter(|(_, reboot)| all || reboot.is_finished())
            .map(|(name, _)| name.clone())
            .collect();
        for name in over {
            let Some(reboot) = self.reboots.remove(&name) else {
                continue;
            };
            let outcome = reboot
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if outcome.is_err() && !self.cluster.node(&name)?.is_running()? {
                self.down.insert(name, now);
            }
        }
        if all && !self.down.is_empty() {
            return self.bring_back(all);
        }
        Ok(())
    }
}
