//! Control groups of nodes. Each node has its own: in a shared one, the systemd of one node would see the services of
//! another node and wait for them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::mounts;
use crate::wait::{DEADLINE, until};

const PARENT: &str = "globalps-testcluster";

/// Creates the node's group in every hierarchy. Returns the files into which a process writes its id to join.
pub(crate) fn create(bridge: &str, node: &str) -> Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for (root, unified) in hierarchies()? {
        let mut dir = root;
        for name in [PARENT, bridge, node] {
            if unified {
                delegate(&dir);
            }
            let child = dir.join(name);
            match fs::create_dir(&child) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                    return Err(e)
                        .with_context(|| format!("could not create `{}`", child.display()));
                }
                _ => {}
            }
            if !unified {
                inherit_cpuset(&dir, &child)?;
            }
            dir = child;
        }
        entries.push(dir.join("cgroup.procs"));
    }
    Ok(entries)
}

fn hierarchies() -> Result<Vec<(PathBuf, bool)>> {
    Ok(mounts::all()?
        .into_iter()
        .filter(|mount| mount.target.starts_with("/sys/fs/cgroup"))
        .filter_map(|mount| match mount.kind.as_str() {
            "cgroup" => Some((mount.target, false)),
            "cgroup2" => Some((mount.target, true)),
            _ => None,
        })
        .collect())
}

/// Enables the controllers for the children of a v2 group. Some machines cannot delegate all of them; a node works
/// without those.
fn delegate(dir: &Path) {
    let controllers = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// A v1 cpuset accepts no process until its CPUs and memory nodes are set.
fn inherit_cpuset(parent: &Path, child: &Path) -> Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        if child.join(name).exists() && fs::read_to_string(child.join(name))?.trim().is_empty() {
            fs::write(child.join(name), fs::read_to_string(parent.join(name))?)?;
        }
    }
    Ok(())
}

/// The processes in the cluster's groups, even if their parents are gone.
pub(crate) fn processes(bridge: &str) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for (root, _) in hierarchies()? {
        collect(&root.join(PARENT).join(bridge), &mut pids);
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn collect(dir: &Path, pids: &mut Vec<u32>) {
    let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
    for child in children(dir) {
        collect(&child, pids);
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes the groups of one node, or of all nodes. Waits, because processes that just died may still hold them.
pub(crate) fn remove(bridge: &str, node: Option<&str>) -> Result<()> {
    until(
        &format!("the removal of the control groups of {bridge}"),
        DEADLINE,
        Duration::from_millis(20),
        || {
            let mut gone = true;
            for (root, _) in hierarchies()? {
                let cluster = root.join(PARENT).join(bridge);
                gone &= remove_tree(&node.map_or(cluster.clone(), |node| cluster.join(node)));
                if node.is_none() {
                    // Fails while another cluster runs.
                    let _ = fs::remove_dir(root.join(PARENT));
                }
            }
            Ok(gone.then_some(()))
        },
    )
}

fn remove_tree(dir: &Path) -> bool {
    for child in children(dir) {
        remove_tree(&child);
    }
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(e) => e.kind() == ErrorKind::NotFound,
    }
}
