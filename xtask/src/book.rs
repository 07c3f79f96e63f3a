//! The documentation as a book: mdBook builds it from a copy of every page, and every link in the result leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::run::step;
use crate::tools;

/// Files and directories of the repository that are pages, or that pages link to.
const PARTS: [&str; 14] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "charts/globalps-crds/README.md",
    "charts/globalps/README.md",
    "deny.toml",
    "docs",
    "kustomize",
    "manifests",
    "tests/README.md",
    "tests/tests",
];
const SUMMARY: &str = "docs/SUMMARY.md";

/// Builds the book of the repository at `root` into `root/target/book`. Returns the number of links.
pub fn build(root: &Path) -> Result<usize> {
    // `src` and `build-dir` of book.toml.
    let (source, output) = (root.join("target/book-source"), root.join("target/book"));
    for directory in [&source, &output] {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
    }
    fs::create_dir_all(&source)?;
    let copied = Command::new("cp")
        .args(["--recursive", "--parents"])
        .args(PARTS)
        .arg(std::path::absolute(&source)?)
        .current_dir(root)
        .status()?;
    ensure!(copied.success(), "`cp` failed");
    let summary = fs::read_to_string(root.join(SUMMARY))?;
    fs::write(source.join("SUMMARY.md"), from_root(&summary))?;
    let mdbook = tools::install("mdbook")?.join("mdbook");
    step(Command::new(mdbook).arg("build").arg(root))?;
    let (number, broken) = check(&output)?;
    ensure!(
        broken.is_empty(),
        "links that lead nowhere:\n{}",
        broken.join("\n")
    );
    Ok(number)
}

/// The summary with links relative to the root of the repository instead of `docs`.
fn from_root(summary: &str) -> String {
    let mut parts = summary.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("](");
        match part.strip_prefix("../") {
            Some(outside) => text.push_str(outside),
            None => text.extend(["docs/", part]),
        }
    }
    text
}

/// The number of links in a directory of HTML pages, and those that lead nowhere.
fn check(directory: &Path) -> Result<(usize, Vec<String>)> {
    let (mut number, mut broken) = (0, Vec::new());
    for page in pages(directory)? {
        let text = fs::read_to_string(&page)?;
        let links = links(&text);
        number += links.len();
        let here = page.strip_prefix(directory).unwrap_or(&page).display();
        let broken_here = links.iter().filter(|link| !leads_somewhere(&page, link));
        broken.extend(broken_here.map(|link| format!("{here}: {link}")));
    }
    Ok((number, broken))
}

/// All pages but the one that repeats them all and the one for missing pages.
fn pages(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            pages.extend(self::pages(&path)?);
        } else if name.ends_with(".html") && !["print.html", "404.html"].contains(&name.as_str()) {
            pages.push(path);
        }
    }
    Ok(pages)
}

/// Values of the attributes that are links inside the book.
fn links(html: &str) -> BTreeSet<&str> {
    let values = [" href=\"", " src=\""]
        .into_iter()
        .flat_map(|start| html.split(start).skip(1));
    values
        .filter_map(|rest| rest.split_once('"'))
        .map(|(link, _)| link)
        .filter(|link| !link.is_empty() && !link.contains(':'))
        .collect()
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => normal(&page.with_file_name("").join(path)),
    };
    let has_ids = target.extension().is_some_and(|it| it == "html");
    if anchor.is_empty() || !has_ids {
        return target.exists();
    }
    fs::read_to_string(target).is_ok_and(|text| text.contains(&format!(" id=\"{anchor}\"")))
}

/// The path without `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("manifests/a.yaml", "");
        write("print.html", r#"<a href="nowhere.html">"#);
        write("docs/a.html", r#"<h1 class="x" id="one">"#);
        write(
            "docs/b/c.html",
            r##"<a href="../a.html"> <a class="x" href="../a.html#one"> <a href="../../manifests/a.yaml"> <a href="https://example.com">
                <a href="#two"> <a href="../a.html#two"> <img src="d.svg"> <i id="three"> <a href="#three">"##,
        );
        let (number, broken) = check(directory.path()).unwrap();
        assert_eq!(number, 7);
        let expected = ["#two", "../a.html#two", "d.svg"].map(|it| format!("docs/b/c.html: {it}"));
        assert_eq!(broken, expected);
    }

    #[test]
    fn the_summary_is_relative_to_the_root() {
        let summary = "- [A](a.md)\n- [B](../charts/b.md)\n\n# C\n\n- [1. D](adr/d.md)\n";
        let expected = "- [A](docs/a.md)\n- [B](charts/b.md)\n\n# C\n\n- [1. D](docs/adr/d.md)\n";
        assert_eq!(from_root(summary), expected);
    }
}
