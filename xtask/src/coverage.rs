//! Which lines of a crate its own tests cover.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result};
use globalps_testkit::programs::cargo;

use crate::run::{step, text};

/// Prints the coverage of each file of `name`, a directory in `crates/` of the repository at `root`.
pub fn report(root: &Path, name: &str) -> Result<()> {
    let output = root.join("target/coverage");
    step(Command::new("rustup").args(["--quiet", "component", "add", "llvm-tools"]))?;
    fs::create_dir_all(&output)?;
    for profile in profiles(&output)? {
        fs::remove_file(profile)?;
    }
    let mut tests = cargo();
    tests
        .args(["test", "--quiet", "--lib", "--package"])
        .arg(format!("globalps-{name}"))
        .arg("--target-dir")
        .arg(&output)
        .env("RUSTFLAGS", "-Cinstrument-coverage")
        .env("LLVM_PROFILE_FILE", output.join("%p.profraw"));
    step(&mut tests)?;
    let libraries = text(Command::new("rustc").args(["--print", "target-libdir"]))?;
    let llvm = |program| Command::new(Path::new(&libraries).join("../bin").join(program));
    let all = output.join("all.profdata");
    let mut merge = llvm("llvm-profdata");
    step(
        merge
            .args(["merge", "-o"])
            .arg(&all)
            .args(profiles(&output)?),
    )?;
    let program = newest_program(&output.join("debug/deps"), &format!("globalps_{name}-"))?;
    let mut report = llvm("llvm-cov");
    report.args(["report", "-instr-profile"]).arg(&all);
    let source = root.join("crates").join(name).join("src");
    println!("{}", text(report.arg(program).arg(source))?);
    Ok(())
}

fn paths(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn profiles(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = paths(directory)?;
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "profraw"));
    Ok(paths)
}

/// The newest file whose name begins so and has no extension.
fn newest_program(directory: &Path, start: &str) -> Result<PathBuf> {
    let is_program = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && !name.contains('.')
    };
    let programs = paths(directory)?.into_iter().filter(is_program);
    let time = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified());
    programs
        .max_by_key(|path| time(path).unwrap_or(SystemTime::UNIX_EPOCH))
        .with_context(|| format!("no test program `{start}` in `{}`", directory.display()))
}
