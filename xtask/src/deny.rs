//! cargo-deny with deny.toml. Advisories need the RustSec database. Where it can't be fetched, that is reported, and everything else is
//! checked all the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::run::{step, text};
use crate::tools;

/// `db-path` of deny.toml.
const DATABASES: &str = "target/advisory-db";
const ADDRESS: &str = "https://github.com/RustSec/advisory-db";

/// Checks the dependencies of the repository at `root`. `advisories`: a clone of the RustSec database, in place of its own address.
pub fn check(root: &Path, advisories: Option<&Path>) -> Result<()> {
    let program = tools::install("deny")?.join("cargo-deny");
    let deny = |flags: &[&str]| {
        let mut deny = Command::new(&program);
        deny.args(["--log-level", "error", "--locked"]).args(flags);
        deny.current_dir(root);
        deny
    };
    step(&mut deny(&["check", "licenses", "bans", "sources"]))?;
    if fetched(&program, root, advisories)? {
        println!("advisories: RustSec database of {}", date(root)?);
        return step(&mut deny(&["--offline", "check", "advisories"]));
    }
    println!(
        "advisories: not checked, because the RustSec database could not be fetched; to check them, run `make deny ADVISORIES=DIRECTORY` \
         with a clone of it"
    );
    Ok(())
}

fn fetched(program: &Path, root: &Path, advisories: Option<&Path>) -> Result<bool> {
    let mut fetch = Command::new("timeout");
    fetch.arg("120").arg(program);
    fetch.args(["--log-level", "off", "--locked", "fetch", "db"]);
    if let Some(clone) = advisories {
        let clone = std::path::absolute(clone)?;
        fetch
            .env("GIT_CONFIG_COUNT", "1")
            .env(
                "GIT_CONFIG_KEY_0",
                format!("url.{}.insteadOf", clone.display()),
            )
            .env("GIT_CONFIG_VALUE_0", ADDRESS);
    }
    let fetch = fetch.current_dir(root).stdin(Stdio::null());
    let status = fetch.stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.context("could not run `timeout`")?.success())
}

/// Date of the database's newest commit.
fn date(root: &Path) -> Result<String> {
    let entries = fs::read_dir(root.join(DATABASES))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let clone: PathBuf = paths
        .find(|path| path.join(".git").exists())
        .with_context(|| format!("there is no clone in `{DATABASES}`"))?;
    let mut log = Command::new("git");
    text(log.arg("-C").arg(clone).args(["log", "-1", "--format=%cs"]))
}
