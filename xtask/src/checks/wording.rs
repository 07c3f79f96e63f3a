//! Keeps phrases of translated English out of the sources and pages that are clean already.

use globalps_testkit::kubernetes::workspace;
use std::fs;
use std::path::{Path, PathBuf};

/// Files and directories that are clean: extend this list.
const CLEAN: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "charts/globalps/README.md",
    "charts/globalps-crds/README.md",
    "charts/globalps/templates",
    "controller/src",
    "crates/core/src",
    "crates/dockerconfig",
    "crates/fake-api/src",
    "crates/manifests/src",
    "crates/planner/src",
    "crates/provider/src",
    "crates/registry/src",
    "crates/runtime/src",
    "credential-provider/src",
    "docs/adr",
    "docs/alternatives.md",
    "docs/api.md",
    "docs/architecture.md",
    "docs/distributions.md",
    "docs/ecosystem.md",
    "docs/many-clusters.md",
    "docs/operations.md",
    "docs/releasing.md",
    "docs/security.md",
    "docs/test-cluster.md",
    "docs/upgrades.md",
    "docs/troubleshooting.md",
    "docs/tutorials.md",
    "docs/compatibility.md",
    "docs/user-guide.md",
    "kubectl-globalps/src",
    "syncer/src",
];

/// They quote the name of a check and its anchor in the troubleshooting page, which links keep.
const EXCEPT: &[&str] = &[
    "docs/troubleshooting.md",
    "kubectl-globalps/src/diagnose/check/tests.rs",
];

/// Each phrase with the field's word for it. An underscore counts as a space, so that names are covered too.
const PHRASES: &[(&str, &str)] = &[
    ("anew", "again"),
    ("are told", "see, get or report"),
    ("everybody", "name who"),
    ("folder", "directory"),
    ("for ever", "forever, permanently"),
    ("goes on", "continues"),
    ("held up", "blocked, delayed"),
    ("hold up", "block, delay"),
    ("holds up", "blocks, delays"),
    ("in the way", "name the obstacle"),
    ("is asked for", "is requested"),
    ("is looked for", "name who searches for it"),
    ("is said", "name who reports it"),
    ("is told", "sees, gets or reports"),
    ("kept out", "excluded"),
    ("newcomer", "new node"),
    ("of ours", "managed"),
    ("on the way back", "rolling back"),
    ("put back", "restored, reverted"),
    ("robbed", "deleted out of band"),
    ("so long", "this long"),
    ("so many", "this many"),
    ("somebody", "another client, another process, the user"),
    ("spoilt", "unparsable"),
    ("taken back", "rolled back"),
    ("taken for", "treated as"),
    ("taken out", "removed"),
    ("the way back", "rollback, restore"),
    ("told apart", "distinguished"),
    ("trouble", "error, reason"),
    ("whoever", "say who"),
];

/// A line without indentation and comment markers, with one space around.
fn normalised(line: &str) -> String {
    let line = line.trim().trim_start_matches(['/', '!']);
    let line = line.trim_end_matches('\\');
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ").to_lowercase()
}

/// The phrases in a text, each with its line and replacement. A phrase may continue on the next line.
fn found(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let lines: Vec<String> = text.lines().map(normalised).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let next = lines.get(at + 1).map_or("", String::as_str);
        let (own, both) = (format!(" {line} "), format!(" {line} {next} "));
        for (phrase, instead) in PHRASES {
            let phrase_in_line = format!(" {phrase} ");
            let is_in_next = format!(" {next} ").contains(&phrase_in_line);
            if own.contains(&phrase_in_line) || both.contains(&phrase_in_line) && !is_in_next {
                found.push((at + 1, *phrase, *instead));
            }
        }
    }
    found
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).expect("a path of the list exists");
    let mut paths: Vec<PathBuf> = entries
        .flat_map(|entry| files(&entry.expect("an entry").path()))
        .filter(|path| path.extension().is_some_and(|it| it == "rs" || it == "md"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn clean_sources_and_pages_stay_clean() {
    let root = workspace();
    let mut all = Vec::new();
    for path in CLEAN.iter().flat_map(|path| files(&root.join(path))) {
        let text = fs::read_to_string(&path).expect("a text");
        let shown = path.strip_prefix(&root).expect("a path below the root");
        if EXCEPT.iter().any(|it| Path::new(it) == shown) {
            continue;
        }
        for (line, phrase, instead) in found(&text) {
            all.push(format!(
                "{}:{line}: \"{phrase}\"; instead: {instead}",
                shown.display()
            ));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_phrase_is_found_in_comments_strings_and_names() {
    for (text, expected) in [
        ("/// Whoever reads this.", &[(1, "whoever")][..]),
        ("    // It is\n    // told.", &[(1, "is told")]),
        ("let text = \"so \\\n    many\";", &[(1, "so many")]),
        ("fn what_goes_on() {}", &[(1, "goes on")]),
        ("// a\n// put back", &[(2, "put back")]),
        ("// for every pod\n// troubleshooting", &[]),
    ] {
        let found: Vec<_> = found(text)
            .into_iter()
            .map(|(line, phrase, _)| (line, phrase))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}
