//! Files that are generated from the code, and lie in the repository because people read them there.

mod api_reference;
mod chart;
mod manifests;
mod reasons;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use globalps_testkit::{faults, map, reference_cases};

/// Each file below `root`, the repository, and its content.
fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let read = |name: &str| {
        let path = root.join(name);
        fs::read_to_string(&path).with_context(|| format!("could not read `{}`", path.display()))
    };
    let mut files = Vec::new();
    let manifests = manifests::files();
    let crds = ["crds.yaml", "hub.yaml"].map(|wanted| {
        let mut found = manifests.iter().filter(|(name, _)| *name == wanted);
        found.next().map_or("", |(_, text)| text)
    });
    files.push(("docs/api.md".to_owned(), api_reference::page(&crds)?));
    let mut shared = Vec::new();
    for name in chart::SHARED {
        shared.push((name, read(&format!("manifests/monitoring/{name}"))?));
    }
    let charts = chart::files(&shared).into_iter();
    files.extend(charts.map(|(name, text)| (format!("charts/{name}"), text)));
    let manifests = manifests.into_iter();
    files.extend(manifests.map(|(name, text)| (format!("manifests/{name}"), text)));
    files.push(("docs/faults.md".to_owned(), faults::document()));
    let cases = reference_cases::document();
    files.push(("docs/reference-cases.md".to_owned(), cases));
    let tests = "tests/README.md";
    files.push((tests.to_owned(), map::readme(&read(tests)?)?));
    for page in reasons::PAGES {
        files.push((page.to_owned(), reasons::page(&read(page)?)?));
    }
    let files = files.into_iter();
    Ok(files.map(|(name, text)| (name.into(), text)).collect())
}

/// The files whose content differs from the code.
fn outdated(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = files(root)?;
    files.retain(|(name, text)| fs::read_to_string(root.join(name)).ok().as_ref() != Some(text));
    Ok(files)
}

/// Fails and names the files that `generate` would change.
pub fn check(root: &Path) -> Result<()> {
    let outdated = outdated(root)?;
    let names: Vec<String> = outdated
        .iter()
        .map(|(name, _)| format!("`{}`", name.display()))
        .collect();
    ensure!(
        names.is_empty(),
        "{} differ from the code: run `make generate`",
        names.join(", ")
    );
    Ok(())
}

/// Writes what differs. The plugin alone knows its commands, so its own tests write their reference and help.
pub fn write(root: &Path) -> Result<()> {
    for (name, text) in outdated(root)? {
        let path = root.join(&name);
        fs::create_dir_all(path.parent().context("no parent directory")?)?;
        fs::write(path, text)?;
        println!("{}", name.display());
    }
    let status = Command::new("cargo")
        .args(["test", "--quiet", "--package", "kubectl-globalps"])
        .args(["--", "the_help_of_every_command", "the_reference_is_that"])
        .env("UPDATE_DOCS", "1")
        .current_dir(root)
        .status()?;
    ensure!(status.success(), "the plugin's pages were not written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use globalps_testkit::kubernetes::workspace;

    use super::*;

    #[test]
    fn what_is_committed_is_what_the_code_says() {
        let root = workspace();
        check(&root).unwrap();
    }

    #[test]
    fn a_file_that_differs_is_named() {
        let root = workspace();
        let copy = tempfile::tempdir().unwrap();
        for (name, text) in files(&root).unwrap() {
            let path = copy.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let monitoring = copy.path().join("manifests/monitoring");
        fs::create_dir_all(&monitoring).unwrap();
        for name in chart::SHARED {
            let from = root.join("manifests/monitoring").join(name);
            fs::copy(from, monitoring.join(name)).unwrap();
        }
        check(copy.path()).unwrap();
        fs::write(copy.path().join("docs/api.md"), "old").unwrap();
        let error = check(copy.path()).unwrap_err().to_string();
        assert_eq!(
            error,
            "`docs/api.md` differ from the code: run `make generate`"
        );
    }
}
