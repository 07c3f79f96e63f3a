//! Removes a cluster, after a normal or an abnormal end: its processes, control groups, network, mounts and files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::instance::{self, Claim};
use crate::layout::bridge;
use crate::process::{kill_all, marked};
use crate::{cgroup, mounts, net};

/// A file that marks a directory as that of a test cluster.
const MARK: &str = ".testcluster";

/// Removes the cluster of a directory, or what is left of it. A directory without a cluster is not an error.
pub(crate) fn take_down(dir: &Path, keep_logs: bool) -> Result<()> {
    let Some(instance) = instance::of(dir)? else {
        return remove_files(dir, keep_logs);
    };
    stop(&bridge(instance))?;
    remove_files(dir, keep_logs)?;
    instance::release(instance)
}

/// Marks the directory as a cluster's. Fails if it contains other files, because the removal of the cluster might
/// delete them.
pub(crate) fn adopt(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("could not make `{}`", dir.display()))?;
    if !dir.join(MARK).exists() && fs::read_dir(dir)?.next().is_some() {
        bail!(
            "`{}` contains files and is not the directory of a test cluster: use an empty directory",
            dir.display()
        );
    }
    fs::write(dir.join(MARK), "").context("could not mark the directory")
}

/// Removes leftovers before a new cluster starts.
pub(crate) fn clear(claim: &Claim, dir: &Path) -> Result<()> {
    stop(&bridge(claim.instance))?;
    if let Some(remains) = &claim.remains {
        remove_files(remains, true)?;
    }
    remove_files(dir, false)
}

fn stop(bridge: &str) -> Result<()> {
    kill_all(&format!("the processes of {bridge}"), || {
        let mut pids = cgroup::processes(bridge)?;
        pids.extend(marked(bridge)?.into_iter().map(|process| process.pid));
        Ok(pids)
    })?;
    cgroup::remove(bridge, None)?;
    net::remove(bridge)
}

/// Removes the files that a cluster creates in its directory.
fn remove_files(dir: &Path, keep_logs: bool) -> Result<()> {
    const DIRECTORIES: [&str; 8] = [
        "nodes",
        "pki",
        "etcd",
        "etcd-backup",
        "registry",
        "images",
        "kubectl-cache",
        "logs",
    ];
    const FILES: [&str; 6] = [
        "kubeconfig",
        "admission.json",
        "audit-policy.yaml",
        "state.lock",
        "state.json.new",
        "state.json",
    ];
    if !dir.join(MARK).exists() {
        return Ok(());
    }
    mounts::unmount_below(dir)?;
    for directory in DIRECTORIES {
        let path = dir.join(directory);
        if path.exists() && !(keep_logs && directory == "logs") {
            fs::remove_dir_all(&path)
                .with_context(|| format!("could not remove `{}`", path.display()))?;
        }
    }
    for file in FILES {
        let path = dir.join(file);
        if path.exists() {
            fs::remove_file(&path)
                .with_context(|| format!("could not remove `{}`", path.display()))?;
        }
    }
    if !keep_logs {
        fs::remove_file(dir.join(MARK))?;
        // Fails if the directory contains other files, which stay.
        let _ = fs::remove_dir(dir);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cluster_s_own_directory_loses_files() {
        for (case, before, adopted, after) in [
            ("empty", &[][..], true, &[][..]),
            (
                "a cluster's",
                &[MARK, "state.json", "notes"],
                true,
                &["notes"],
            ),
            ("somebody's", &["images"], false, &["images"]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for name in before {
                fs::write(dir.path().join(name), "").unwrap();
            }
            assert_eq!(adopt(dir.path()).is_ok(), adopted, "{case}");
            remove_files(dir.path(), false).unwrap();
            for name in ["images", "notes", "state.json", MARK] {
                assert_eq!(
                    dir.path().join(name).exists(),
                    after.contains(&name),
                    "{case}: {name}"
                );
            }
        }
    }
}
