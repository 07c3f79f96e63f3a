//! The source of a release: a commit, without changes, with the version of the release.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::run::text;

/// A tree at a commit.
#[derive(Debug, PartialEq, Eq)]
pub struct Commit {
    /// SHA-1 in hex.
    pub hash: String,
    /// Time of the commit, in seconds since 1970.
    pub epoch: String,
}

/// The commit of a tree without changes.
pub fn commit(source: &Path) -> Result<Commit> {
    let git = |arguments: &[&str]| text(Command::new("git").args(arguments).current_dir(source));
    clean(&git(&["status", "--porcelain"])?)?;
    Ok(Commit {
        hash: git(&["rev-parse", "HEAD"])?,
        epoch: git(&["show", "--no-patch", "--format=%ct", "HEAD"])?,
    })
}

/// `status`: output of `git status --porcelain`.
fn clean(status: &str) -> Result<()> {
    let changes: Vec<&str> = status.lines().map(str::trim).collect();
    if let Some(first) = changes.first() {
        bail!(
            "the tree has {} changes that are not committed, such as `{first}`: commit or stash them, because a release is built from a commit",
            changes.len()
        );
    }
    Ok(())
}

/// Checks that the version of the release, without `v`, is that of the crates. `metadata`: output of `cargo metadata`.
pub fn check_version(metadata: &Value, version: &str) -> Result<()> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut own = packages.filter(|package| package["source"].is_null());
    let found = own.find_map(|package| package["version"].as_str());
    let found = found.context("no crate of this workspace in `cargo metadata`")?;
    ensure!(
        found == version,
        "VERSION is {version}, and the version in Cargo.toml is {found}: run `make release VERSION={found}`, or change \
         `version` in Cargo.toml, run `cargo check && make generate` and commit"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn a_tree_with_changes_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.arg("-C").arg(source);
            git.args(["-c", "user.name=me", "-c", "user.email=me@example.com"]);
            text(git.args(arguments)).unwrap()
        };
        git(&["init", "--quiet"]);
        fs::write(source.join("file"), "1").unwrap();
        git(&["add", "file"]);
        git(&["commit", "--quiet", "--message=one"]);
        let found = commit(source).unwrap();
        assert_eq!(found.hash.len(), 40);
        assert!(found.epoch.parse::<u64>().unwrap() > 1_000_000_000);
        for (name, content) in [("file", "2"), ("other", "1")] {
            fs::write(source.join(name), content).unwrap();
            let error = commit(source).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{name}`: commit or stash")),
                "{error}"
            );
            git(&["stash", "--quiet", "--include-untracked"]);
        }
        assert_eq!(commit(source).unwrap(), found);
    }

    #[test]
    fn another_version_than_that_of_the_crates_is_rejected() {
        let metadata = json!({"packages": [
            {"name": "a", "version": "9.0.0", "source": "registry"},
            {"name": "own", "version": "0.1.0", "source": null},
        ]});
        check_version(&metadata, "0.1.0").unwrap();
        let error = check_version(&metadata, "0.2.0").unwrap_err().to_string();
        assert!(error.contains("`make release VERSION=0.1.0`"), "{error}");
    }
}
