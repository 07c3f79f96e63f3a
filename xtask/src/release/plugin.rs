//! The plugin for every platform that this machine can build for: zig links those of other platforms.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use globalps_testkit::programs::cargo;

use super::dist::{PLATFORMS, Platform};
use super::programs::is_native;
use crate::run::step;
use crate::tools;

/// Whether there is Apple's SDK, which programs for macOS need.
pub fn has_apple_sdk() -> bool {
    std::env::var_os("SDKROOT").is_some_and(|root| !root.is_empty())
}

/// Builds the plugin below `target`. Prints what could not be built.
pub fn build(target: &Path) -> Result<()> {
    let native = |platform: &&Platform| is_native(platform);
    for platform in PLATFORMS.iter().filter(native) {
        step(&mut plugin("build", platform.target, target))?;
    }
    let has_sdk = has_apple_sdk();
    let possible = |platform: &&Platform| has_sdk || platform.os != "darwin";
    let foreign = PLATFORMS.iter().filter(|platform| !native(platform));
    for platform in foreign.filter(possible) {
        // A failed build must not ship an older program.
        let _ = fs::remove_file(platform.built(target));
        if by_zig(platform.target, target).is_err() {
            println!("could not build for {}", platform.target);
        }
    }
    if !has_apple_sdk() {
        println!("not built for darwin: set SDKROOT to the directory of Apple's SDK");
    }
    Ok(())
}

/// The command that builds it.
fn plugin(command: &str, target: &str, directory: &Path) -> Command {
    let mut build = cargo();
    build.args([command, "--release", "--locked", "-p", "kubectl-globalps"]);
    build
        .args(["--target", target, "--target-dir"])
        .arg(directory);
    build
}

fn by_zig(target: &str, directory: &Path) -> Result<()> {
    step(Command::new("rustup").args(["--quiet", "target", "add", target]))?;
    // zig's linker does not support the linker flags for musl in .cargo/config.toml, which these flags replace.
    let flags = match target.ends_with("-musl") {
        true => "-C force-unwind-tables=no",
        false => "",
    };
    let mut build = plugin("zigbuild", target, directory);
    step(tools::with_tools(build.env("RUSTFLAGS", flags))?)
}
