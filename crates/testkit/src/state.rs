//! The state file in a cluster's directory, which lets another process attach.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::pki::write_private;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) instance: u8,
    /// Set when every node has been Ready once.
    pub(crate) complete: bool,
    pub(crate) nodes: Vec<NodeState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    /// Counted from 1; determines the node's addresses.
    pub(crate) index: u8,
}

impl State {
    /// The next node, one above the highest number: no number is used twice.
    pub(crate) fn next_node(&self) -> NodeState {
        let index = self.nodes.iter().map(|node| node.index).max().unwrap_or(0) + 1;
        NodeState {
            name: format!("node-{index}"),
            index,
        }
    }

    /// Loads the state; `None` if the directory has no cluster.
    pub(crate) fn load(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join("state.json");
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .with_context(|| format!("`{}` is not a cluster's state", path.display())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("could not read `{}`", path.display())),
        }
    }

    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        // Renamed into place, so that no reader sees a partial file.
        let temporary = dir.join("state.json.new");
        write_private(&temporary, &serde_json::to_string_pretty(self)?)?;
        fs::rename(temporary, dir.join("state.json")).context("could not write state.json")
    }

    /// Changes the state of a running cluster. A lock allows one process at a time.
    pub(crate) fn update<T>(dir: &Path, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let lock = File::create(dir.join("state.lock"))?;
        lock.lock()?;
        let mut state = Self::load(dir)?.context("the cluster is gone")?;
        let result = change(&mut state)?;
        state.save(dir)?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(State::load(dir.path()).unwrap(), None);
        let mut state = State {
            instance: 3,
            complete: false,
            nodes: Vec::new(),
        };
        for _ in 0..3 {
            state.nodes.push(state.next_node());
        }
        state.save(dir.path()).unwrap();
        assert_eq!(State::load(dir.path()).unwrap(), Some(state));
    }

    #[test]
    fn a_node_number_is_never_used_twice() {
        let node = |index| NodeState {
            name: format!("node-{index}"),
            index,
        };
        for (nodes, next) in [(vec![], 1), (vec![node(1), node(2)], 3), (vec![node(4)], 5)] {
            let state = State {
                instance: 0,
                complete: true,
                nodes,
            };
            assert_eq!(state.next_node(), node(next));
        }
    }

    #[test]
    fn a_state_that_is_not_json_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("state.json"), "{").unwrap();
        let error = State::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("state.json"), "{error}");
    }
}
