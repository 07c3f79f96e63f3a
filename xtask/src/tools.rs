//! Programs that the recipes of the Makefile need and install themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use globalps_testkit::kubernetes::target_dir;
use globalps_testkit::programs::cargo;

use crate::run::step;

/// How a tool gets onto this machine.
enum How {
    /// `cargo install` of this crate and version, optimized, into [`directory`].
    Here(&'static str, &'static str),
    /// Like `Here`, with these features, in a directory that all clones of this repository share. Not optimized, so
    /// that the build takes a minute instead of ten.
    Shared(&'static str, &'static str, &'static [&'static str]),
    /// A line for the shell in [`directory`], and what else to do if it fails.
    Shell(&'static str, &'static str),
}
use How::{Here, Shared, Shell};

/// The tools by the name that `make` has for them.
const TOOLS: [(&str, How); 9] = [
    ("deny", Shared("cargo-deny", "0.20.2", &[])),
    ("mdbook", Shared("mdbook", "0.5.2", &["search"])),
    ("mutants", Here("cargo-mutants", "27.1.0")),
    // The tool that records the dependencies inside each program, and the tool that reads them.
    ("auditable", Here("cargo-auditable", "0.7.7")),
    ("auditable", Here("auditable2cdx", "0.1.0")),
    // The linker for other platforms.
    ("zig", Here("cargo-zigbuild", "0.24.1")),
    (
        "zig",
        Shell(
            "test -d python/ziglang || python3 -m pip install -q --target python ziglang==0.17.1",
            "could not install zig, perhaps because pip is missing: as root, run `apt-get install --yes python3-pip`",
        ),
    ),
    // Stands in for Amazon's API.
    (
        "moto",
        Shell(
            "test -x moto/bin/moto_server || { python3 -m venv moto && moto/bin/pip install -q 'moto[server]==5.2.5'; }",
            "could not install moto, perhaps because venv is missing: as root, run `apt-get install --yes python3-venv`",
        ),
    ),
    // Runs programs for arm64.
    (
        "qemu",
        Shell(
            "command -v qemu-aarch64-static >/dev/null || apt-get install --yes --quiet=2 --no-install-recommends qemu-user-static",
            "QEMU for arm64 is missing: as root, run `apt-get update && apt-get install --yes qemu-user-static`",
        ),
    ),
];

/// Installs a tool unless it exists. Returns the directory in which cargo installed its programs.
pub fn install(name: &str) -> Result<PathBuf> {
    let (directory, mut bin) = (directory()?, None);
    for (_, how) in TOOLS.iter().filter(|(tool, _)| *tool == name) {
        let root = match how {
            Shared(..) => cache()?.join("tools"),
            Here(..) | Shell(..) => directory.clone(),
        };
        how.install(&root)?;
        bin = Some(root.join("bin"));
    }
    bin.with_context(|| {
        let names: BTreeSet<&str> = TOOLS.iter().map(|(tool, _)| *tool).collect();
        format!("`{name}` is none of the tools {names:?}")
    })
}

impl How {
    fn install(&self, root: &Path) -> Result<()> {
        let (name, version) = match self {
            Here(name, version) | Shared(name, version, _) => (name, version),
            Shell(line, otherwise) => {
                std::fs::create_dir_all(root)?;
                let mut shell = Command::new("sh");
                let installed = step(shell.args(["-ec", line]).current_dir(root));
                return installed.context(*otherwise);
            }
        };
        let installed = std::fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
        if has(&installed, name, version) && root.join("bin").join(name).exists() {
            return Ok(());
        }
        let mut install = cargo();
        install.args(["install", "--quiet", "--locked", "--root"]);
        install.arg(root);
        if let Shared(_, _, features) = self {
            install.args(["--debug", "--config", "profile.dev.debug=false"]);
            install.args(["--no-default-features", "--features"]);
            install.arg(features.join(","));
        }
        step(install.arg(format!("{name}@{version}")))
    }
}

/// Whether cargo's list of what it installed has this version of the crate.
fn has(installed: &str, name: &str, version: &str) -> bool {
    let start = format!("\"{name} {version} (");
    installed.lines().any(|line| line.starts_with(&start))
}

/// The tools of this clone: programs in `bin`, Python's packages in `python`.
pub fn directory() -> Result<PathBuf> {
    Ok(std::path::absolute(target_dir().join("tools"))?)
}

/// Directory for files that take minutes to build and don't depend on this tree: other clones use them too.
pub fn cache() -> Result<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = of("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(of("HOME")?).join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("globalps"))
}

/// Lets a program, and what it runs, find the tools of this clone.
pub fn with_tools(command: &mut Command) -> Result<&mut Command> {
    let directory = directory()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(directory.join("bin")).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path)?;
    Ok(command
        .env("PATH", path)
        .env("PYTHONPATH", directory.join("python")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_of_a_tool_is_not_the_tool() {
        let installed = "[v1]\n\"mdbook 0.5.2 (registry+https://example.com)\" = [\"mdbook\"]\n";
        assert!(has(installed, "mdbook", "0.5.2"));
        for (name, version) in [("mdbook", "0.5"), ("book", "0.5.2"), ("mdbook", "0.5.20")] {
            assert!(!has(installed, name, version), "{name} {version}");
        }
    }

    #[test]
    fn a_tool_that_cannot_be_installed_is_an_error_that_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let failed = Shell("exit 3", "install it").install(directory.path());
        let error = failed.unwrap_err();
        assert_eq!(error.to_string(), "install it");
        Shell("true", "").install(directory.path()).unwrap();
        let error = install("unknown").unwrap_err().to_string();
        assert!(error.contains("\"mdbook\", \"moto\""), "{error}");
    }
}
