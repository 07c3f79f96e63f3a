//! Mutation tests: the unit and property tests of its own crate judge each mutant.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use globalps_testkit::kubernetes::target_dir;
use globalps_testkit::programs::cargo;

use crate::run::step;
use crate::tools;

/// Pure code that makes decisions, as a glob on each line.
const DECIDING: &str = ".cargo/mutated-files";

/// Changes these files, which are globs below `root`; none: those with decisions.
pub fn test(root: &Path, files: &[String]) -> Result<()> {
    tools::install("mutants")?;
    let deciding = fs::read_to_string(root.join(DECIDING)).context(DECIDING)?;
    let files = match files {
        [] => globs(&deciding),
        files => files.iter().map(String::as_str).collect(),
    };
    let output = std::path::absolute(target_dir().join("mutants"))?;
    fs::create_dir_all(&output)?;
    let mut mutants = cargo();
    mutants
        .args(["mutants", "--timeout", "300", "--build-timeout", "600"])
        .args(["--no-shuffle", "--output"])
        .arg(&output)
        .args(files.into_iter().flat_map(|file| ["--file", file]))
        .args(["--", "--tests"])
        .env("CARGO_TARGET_DIR", output.join("target"))
        // A failed property is enough.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0");
    step(tools::with_tools(&mut mutants)?)
}

fn globs(list: &str) -> Vec<&str> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use globalps_testkit::kubernetes::workspace;

    use super::*;

    #[test]
    fn every_glob_begins_with_a_directory_or_file_that_exists() {
        let list = fs::read_to_string(workspace().join(DECIDING)).unwrap();
        let globs = globs(&list);
        assert!(globs.len() > 10, "{globs:?}");
        for glob in globs {
            let parts = glob.split('/').take_while(|part| !part.contains('*'));
            let path = workspace().join(parts.collect::<PathBuf>());
            assert!(path.exists(), "{glob}");
        }
    }
}
