//! Keeps phrases of translated English out of the sources and pages that are clean already.

use std::fs;
use std::path::{Path, PathBuf};

/// Files and directories that are clean: extend this list.
const CLEAN: &[&str] = &[
    "core/benches",
    "core/fuzz/dockerconfig.rs",
    "core/src/api.rs",
    "core/src/api/image_pull_secrets.rs",
    "core/src/api/kubelet.rs",
    "core/src/api/operators.rs",
    "core/src/api/source.rs",
    "core/src/dockerconfig",
    "core/src/kubeconfig.rs",
    "core/src/lib.rs",
    "core/src/manifests",
    "core/src/names.rs",
    "core/src/namespaces.rs",
    "core/src/phase.rs",
    "core/src/provider",
    "core/src/references.rs",
    "core/src/rollout",
    "credential-provider/src",
    "controller/src/cache",
    "controller/src/content",
    "controller/src/leader",
    "controller/src/lib.rs",
    "controller/src/main.rs",
    "controller/src/namespaces",
    "controller/src/nodes",
    "controller/src/objects",
    "controller/src/operators",
    "controller/src/process",
    "controller/src/report",
    "controller/src/run",
    "controller/src/targets",
    "controller/src/telemetry",
    "kubectl-globalps/src/additional.rs",
    "kubectl-globalps/src/annotate.rs",
    "kubectl-globalps/src/auth_file.rs",
    "kubectl-globalps/src/changes.rs",
    "kubectl-globalps/src/cli",
    "kubectl-globalps/src/cli.rs",
    "kubectl-globalps/src/client.rs",
    "kubectl-globalps/src/columns.rs",
    "kubectl-globalps/src/command_tests.rs",
    "kubectl-globalps/src/commands",
    "kubectl-globalps/src/completion.rs",
    "kubectl-globalps/src/controller.rs",
    "kubectl-globalps/src/credential_helper.rs",
    "kubectl-globalps/src/effects.rs",
    "kubectl-globalps/src/error.rs",
    "kubectl-globalps/src/escapes.rs",
    "kubectl-globalps/src/facts",
    "kubectl-globalps/src/facts.rs",
    "kubectl-globalps/src/fake_api.rs",
    "kubectl-globalps/src/findings.rs",
    "kubectl-globalps/src/fleet",
    "kubectl-globalps/src/fleet.rs",
    "kubectl-globalps/src/follow.rs",
    "kubectl-globalps/src/following.rs",
    "kubectl-globalps/src/history.rs",
    "kubectl-globalps/src/hypershift.rs",
    "kubectl-globalps/src/kubeconfig.rs",
    "kubectl-globalps/src/logins.rs",
    "kubectl-globalps/src/main.rs",
    "kubectl-globalps/src/manifest.rs",
    "kubectl-globalps/src/migration.rs",
    "kubectl-globalps/src/namespaces",
    "kubectl-globalps/src/namespaces.rs",
    "kubectl-globalps/src/password.rs",
    "kubectl-globalps/src/permission.rs",
    "kubectl-globalps/src/printer.rs",
    "kubectl-globalps/src/prompt.rs",
    "kubectl-globalps/src/proxy.rs",
    "kubectl-globalps/src/pull.rs",
    "kubectl-globalps/src/reference.rs",
    "kubectl-globalps/src/registry",
    "kubectl-globalps/src/registry_name.rs",
    "kubectl-globalps/src/scope.rs",
    "kubectl-globalps/src/skipped.rs",
    "kubectl-globalps/src/status",
    "kubectl-globalps/src/status.rs",
    "kubectl-globalps/src/status_tests.rs",
    "kubectl-globalps/src/syncers.rs",
    "kubectl-globalps/src/table.rs",
    "kubectl-globalps/src/usage.rs",
    "kubectl-globalps/src/check.rs",
    "kubectl-globalps/src/check/namespaces.rs",
    "kubectl-globalps/src/check/nodes.rs",
    "kubectl-globalps/src/check/operators.rs",
    "kubectl-globalps/src/check/permissions.rs",
    "kubectl-globalps/src/check/provider.rs",
    "kubectl-globalps/src/check/registries.rs",
    "syncer/src",
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for path in CLEAN.iter().flat_map(|path| files(&root.join(path))) {
        let text = fs::read_to_string(&path).expect("a text");
        let shown = path.strip_prefix(&root).expect("a path below the root");
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
