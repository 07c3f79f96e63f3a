//! The previous release: its images and, if needed, its plugin. A commit is built once on this machine.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use globalps_testkit::image;
use globalps_testkit::programs::cargo;

use crate::run::{output, quiet, step, text};
use crate::tools;

const PLUGIN: &str = "kubectl-globalps";
/// Before the first release: a commit that has today's format of revisions, by its message.
const FIRST: &str = "HEAD^{/^Words of the API}";

#[derive(clap::Args)]
pub struct Args {
    /// Build the plugin too, in target/previous-chart, for upgrades by Helm and by plugin
    #[arg(long)]
    plugin: bool,
    /// Tag or commit of the previous release [default: the newest tag before this commit]
    #[arg(long, env = "PREVIOUS")]
    commit: Option<String>,
}

/// Builds it, for the repository at `root`, and links `target/previous` or `target/previous-chart` there.
pub fn build(root: &Path, args: &Args) -> Result<()> {
    let commit = match &args.commit {
        Some(commit) => commit.clone(),
        None => previous(root)?,
    };
    quiet(git(root).args(["cat-file", "-e", &format!("{commit}^{{commit}}")])).with_context(
        || format!("the commit of the previous release, {commit}, is missing: run `git fetch --unshallow --tags`"),
    )?;
    let (name, plugin, link) = match args.plugin {
        true => (format!("{commit}-{PLUGIN}"), Some(PLUGIN), "previous-chart"),
        false => (commit.clone(), None, "previous"),
    };
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let older = tools::cache()?.join("older").join(&musl).join(name);
    if !older.join("built").exists() {
        compile(root, &commit, plugin, &musl, &older)?;
    }
    let link = root.join("target").join(link);
    if link.symlink_metadata().is_ok() {
        fs::remove_dir_all(&link)?;
    }
    Ok(symlink(older, link)?)
}

fn previous(root: &Path) -> Result<String> {
    text(git(root).args(["describe", "--tags", "--abbrev=0", "HEAD^"]))
        .or_else(|_| text(git(root).args(["rev-parse", "--short=9", FIRST])))
}

fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(root);
    git
}

/// Builds the images of the commit in the directory `older`, beside its source and the plugin. Dependencies take most of the time, so they
/// are copied from this tree's target directory. The target directories are separate, because cargo would confuse the programs of two
/// trees in one.
fn compile(
    root: &Path,
    commit: &str,
    plugin: Option<&str>,
    musl: &str,
    older: &Path,
) -> Result<()> {
    let (source, target) = (older.join("source"), older.join("target"));
    if older.exists() {
        fs::remove_dir_all(older)?;
    }
    fs::create_dir_all(target.join(musl))?;
    extract(&output(git(root).args(["archive", commit]))?, &source)?;
    for entry in fs::read_dir(root.join(".cargo"))? {
        let script = entry?.path();
        if script.extension().is_some_and(|kind| kind == "ld") {
            let name = script.file_name().unwrap_or_default();
            fs::copy(&script, source.join(".cargo").join(name))?;
        }
    }
    for release in [Path::new("release"), &Path::new(musl).join("release")] {
        let mut copy = Command::new("cp");
        copy.arg("--archive").arg(root.join("target").join(release));
        step(copy.arg(target.join(release)))?;
    }
    let mut own = Command::new("find");
    own.arg(&target).args(["-name", "*globalps*", "-prune"]);
    step(own.args(["-exec", "rm", "-r", "{}", "+"]))?;
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--target", musl]);
    build.arg("--target-dir").arg(&target);
    build.arg("--manifest-path").arg(source.join("Cargo.toml"));
    let provider = Some("credential-provider").filter(|it| source.join(it).exists());
    let provider = provider.map(|name| format!("globalps-{name}"));
    let packages = ["globalps-controller", "globalps-syncer"].into_iter();
    for package in packages.chain(plugin).chain(provider.as_deref()) {
        build.args(["-p", package]);
    }
    step(&mut build)?;
    let programs = target.join(musl).join("release");
    image::write_all(&programs, &older.join("images"))?;
    if let Some(plugin) = plugin {
        fs::copy(programs.join(plugin), older.join(plugin))?;
    }
    fs::remove_dir_all(&target)?;
    File::create(older.join("built"))?;
    Ok(())
}

/// The files get the current time, because cargo rebuilds files that are newer than its last build.
fn extract(archive: &[u8], directory: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_mtime(false);
    archive.unpack(directory).context("the commit's files")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn files_of_the_commit_are_as_new_as_a_build() {
        let mut header = tar::Header::new_ustar();
        header.set_size(0);
        header.set_mode(0o755);
        header.set_mtime(1);
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_data(&mut header, "a/b", &[][..]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        extract(&archive.into_inner().unwrap(), directory.path()).unwrap();
        let file = fs::metadata(directory.path().join("a/b")).unwrap();
        let hour = Duration::from_hours(1);
        assert!(file.modified().unwrap() > SystemTime::now() - hour);
    }
}
