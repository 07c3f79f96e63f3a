//! Other releases of Kubernetes, built from the Go module proxy. Each takes about ten minutes the first time on two CPUs.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::kubernetes::version_flags;

const PROGRAMS: [&str; 4] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
];

/// Builds the programs of a release such as `v1.34.4` into `directory`, unless they exist.
pub(crate) fn build(version: &str, directory: &Path) -> Result<()> {
    let flags = version_flags(version);
    build_programs(
        directory,
        &PROGRAMS,
        &flags,
        "k8s.io/kubernetes/cmd",
        || go_mod(directory, version),
    )
}

/// Builds those programs below the package `parent` that `directory` lacks. `go_mod`: the module in which to build
/// them, which needs no checksums. A lock makes other processes wait for the build.
pub(crate) fn build_programs(
    directory: &Path,
    programs: &[&str],
    flags: &str,
    parent: &str,
    go_mod: impl FnOnce() -> Result<String>,
) -> Result<()> {
    fs::create_dir_all(directory)?;
    let lock = File::create(directory.join(".lock"))?;
    lock.lock()?;
    let missing = programs
        .iter()
        .filter(|program| !directory.join(program).exists());
    let missing: Vec<&str> = missing.copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::write(directory.join("go.mod"), go_mod()?)?;
    for program in missing {
        eprintln!(
            "building {program} into `{}` (a few minutes the first time)",
            directory.display()
        );
        let half = directory.join("half");
        let status = go(directory)
            .args(["build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o"])
            .arg(&half)
            .arg(format!("{parent}/{program}"))
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit())
            .status()?;
        ensure!(
            status.success(),
            "`go build` of {program} for `{}` failed",
            directory.display()
        );
        fs::rename(half, directory.join(program))?;
    }
    Ok(())
}

/// A file with the go.mod of that release in `directory`, for go's flag `-modfile`. Go adds to it and its checksums.
pub(crate) fn mod_file(directory: &Path, version: &str) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{version}.mod"));
    if !path.exists() {
        let mut file = NamedTempFile::new_in(directory)?;
        file.write_all(go_mod(directory, version)?.as_bytes())?;
        // Another process may have created the file first, and go may have added to it.
        if let Err(error) = file.persist_noclobber(&path) {
            ensure!(path.exists(), error);
        }
    }
    Ok(path)
}

/// Writes a go.mod: the Kubernetes module refers to its staging modules by directory, but they are published as modules too.
fn go_mod(directory: &Path, version: &str) -> Result<String> {
    let module = format!("k8s.io/kubernetes@{version}");
    let Output { status, stdout, .. } = go(directory)
        .args(["mod", "download", "-json", &module])
        .output()?;
    ensure!(status.success(), "`go mod download` of {module} failed");
    let found: Value = serde_json::from_slice(&stdout)?;
    let theirs = fs::read_to_string(found["GoMod"].as_str().context("no go.mod")?)?;
    let language = theirs
        .lines()
        .find(|line| line.starts_with("go "))
        .context("no Go version")?;
    let parts = version.replacen("v1.", "v0.", 1);
    let mut text = format!("module older\n\n{language}\n\nrequire k8s.io/kubernetes {version}\n\n");
    for line in theirs.lines().filter(|line| line.contains("=> ./staging/")) {
        let part = line
            .trim_start_matches("replace ")
            .split_whitespace()
            .next();
        let part = part.context("no module")?;
        writeln!(text, "replace {part} => {part} {parts}")?;
    }
    Ok(text)
}

fn go(directory: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(directory)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null());
    go
}
