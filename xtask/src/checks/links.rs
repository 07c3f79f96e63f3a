//! Every relative link of the documentation leads to a file, and to a heading in it; the book has every page.

use globalps_testkit::kubernetes::workspace;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::book::normal;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Markdown files of the repository, relative to its root.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for directory in [
        "",
        "charts/globalps",
        "charts/globalps-crds",
        "docs",
        "docs/adr",
        "tests",
    ] {
        for entry in fs::read_dir(workspace().join(directory)).unwrap() {
            let name = entry.unwrap().file_name();
            let path = Path::new(directory).join(name);
            if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn links(text: &str) -> Vec<&str> {
    let ends = prose(text).flat_map(|line| line.split("](").skip(1));
    ends.filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
        .filter(|link| !link.contains("://"))
        .collect()
}

/// The anchors of the headings, as GitHub and mdBook make them.
pub(super) fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let of = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    headings.map(of).collect()
}

/// What is wrong with a link of this page; `None` if it is valid.
fn broken(page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => normal(&page.parent().unwrap_or(page).join(path)),
    };
    let full = workspace().join(&target);
    if !full.exists() {
        return Some(format!("{}: `{link}` does not exist", page.display()));
    }
    let has_headings = target.extension().is_some_and(|it| it == "md");
    if anchor.is_empty()
        || !has_headings
        || anchors(&fs::read_to_string(full).ok()?).contains(anchor)
    {
        return None;
    }
    Some(format!("{}: no heading for `{link}`", page.display()))
}

#[test]
fn every_link_leads_somewhere() {
    let mut all = Vec::new();
    let mut number = 0;
    for page in pages() {
        let text = fs::read_to_string(workspace().join(&page)).unwrap();
        let links = links(&text);
        number += links.len();
        all.extend(links.iter().filter_map(|link| broken(&page, link)));
    }
    assert!(number > 150, "{number}");
    assert_eq!(all, Vec::<String>::new());
}

#[test]
fn the_book_has_every_page() {
    let text = fs::read_to_string(workspace().join(SUMMARY)).unwrap();
    let listed: BTreeSet<PathBuf> = links(&text)
        .iter()
        .map(|it| normal(&Path::new("docs").join(it)))
        .collect();
    let is_page = |page: &PathBuf| page != Path::new(SUMMARY);
    let there: BTreeSet<PathBuf> = pages().into_iter().filter(is_page).collect();
    assert_eq!(listed, there);
}

#[test]
fn a_link_to_nothing_is_found() {
    let page = Path::new("docs/user-guide.md");
    for (link, is_broken) in [
        ("cli.md", false),
        ("cli.md#add", false),
        ("#add", false),
        ("../README.md#install", false),
        ("nothing.md", true),
        ("cli.md#nothing", true),
        ("#nothing", true),
    ] {
        assert_eq!(broken(page, link).is_some(), is_broken, "{link}");
    }
    let text = "a [b](c.md) and [d](e.md#f)\n```\n[x](y.md)\n```\n[z](https://example.com)";
    assert_eq!(links(text), ["c.md", "e.md#f"]);
    let found = anchors("# A `b`: c\n```\n# no\n```\n## d-e_f");
    assert_eq!(Vec::from_iter(found), ["a-b-c", "d-e_f"]);
}
