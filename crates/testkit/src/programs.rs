//! Programs of this repository, in the state of this checkout.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::kubernetes::{target_dir, workspace};

/// Path of a program that `make image` builds, static as it is shipped.
pub fn release_path(name: &str) -> PathBuf {
    target_dir()
        .join("x86_64-unknown-linux-musl/release")
        .join(name)
}

/// Like [`release_path`], as an absolute path, because some tests run the program in another directory. Fails if it is not built.
pub fn shipped(name: &str) -> Result<PathBuf> {
    let path = std::path::absolute(release_path(name))?;
    ensure!(
        path.exists(),
        "`{}` is missing: run `make image`",
        path.display()
    );
    Ok(path)
}

/// The cargo that runs this process, in the root of the repository.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Cargo's variables for this process's package would make it rebuild other packages.
    let of_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command.current_dir(workspace());
    command
}

/// Builds these programs, and returns their directory.
pub fn built(names: &[&str]) -> Result<PathBuf> {
    let target = std::path::absolute(target_dir())?;
    let status = cargo()
        // Selects features like the tests, for the whole workspace, so that each dependency is compiled once.
        .args(["build", "--quiet", "--locked", "--workspace"])
        .args(names.iter().flat_map(|name| ["--bin", name]))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .context("could not run cargo")?;
    let names = names.join("`, `");
    ensure!(status.success(), "`{names}` could not be built ({status})");
    Ok(target.join("debug"))
}
