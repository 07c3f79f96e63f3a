//! Tests that the plugin accepts the commands that the documentation prints.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::Cli;

/// Other programs in the documentation, whose commands are not parsed here. `make ecosystem` runs those of Helm, `make
/// release-check` those of `cosign`.
const OTHERS: &[&str] = &[
    "cargo",
    "cosign",
    "ctr",
    "echo",
    "grep",
    "helm",
    "kubectl",
    "make",
    "mkdir",
    "sha256sum",
    "skopeo",
    "target/debug/testkit",
    "/tmp/syncer/globalps-syncer",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Lines with a prompt in the `console` blocks of a page, without continuation lines.
fn commands(page: &str) -> Vec<String> {
    let (mut is_console, mut found) = (false, Vec::new());
    for line in page.replace("\\\n", " ").lines().map(str::trim) {
        match line.strip_prefix("```") {
            Some(kind) => is_console = kind == "console",
            None if is_console => found.extend(line.strip_prefix("$ ").map(str::to_owned)),
            None => {}
        }
    }
    found
}

/// The programs in a line with their arguments, without redirections and comments.
pub(crate) fn programs(line: &str) -> Vec<Vec<String>> {
    let (mut quote, mut word, mut is_word) = (None, String::new(), false);
    let mut all = vec![Vec::new()];
    let mut words: Vec<String> = Vec::new();
    for character in line.chars().chain([' ']) {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(character), true),
            (None, ' ') => {
                if is_word || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            _ => word.push(character),
        }
    }
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "#" => break,
            "|" | "&&" => all.push(Vec::new()),
            "<" | ">" => drop(words.next()),
            _ => all
                .last_mut()
                .into_iter()
                .for_each(|program| program.push(word.clone())),
        }
    }
    all
}

#[test]
fn a_line_of_a_shell_is_taken_apart() {
    let line =
        "kubectl get x -o 'a b' | kubectl globalps add --from-file - < token > out # and so on";
    let expected = [
        vec!["kubectl", "get", "x", "-o", "a b"],
        vec!["kubectl", "globalps", "add", "--from-file", "-"],
    ];
    assert_eq!(programs(line), expected);
    assert_eq!(
        commands("```console\n$ a \\\n  b\noutput\n```\n$ c\n"),
        ["a    b"]
    );
}

/// A key in k9s runs a program, or a shell line that shows a program's output.
#[test]
fn commands_of_the_keys_for_k9s_are_accepted() {
    let page = fs::read_to_string(root().join("docs/user-guide.md")).expect("a page");
    let (_, after) = page.split_once("```yaml\nplugins:\n").expect("plugins");
    let (text, _) = after.split_once("```").expect("an end");
    let plugins: Value = serde_saphyr::from_str(text).expect("YAML");
    let plugins = plugins.as_object().expect("plugins by name");
    let mut commands = Vec::new();
    for (name, plugin) in plugins {
        let all = plugin["args"].as_array().expect("a list").iter();
        let args: Vec<&str> = all.map(|arg| arg.as_str().expect("a text")).collect();
        let program = match (plugin["command"].as_str(), args.as_slice()) {
            (Some("sh"), ["-c", line]) => programs(&line.replace(" 2>&1", "")).remove(0),
            (Some("kubectl"), args) => ["kubectl"]
                .iter()
                .chain(args)
                .map(ToString::to_string)
                .collect(),
            other => unreachable!("{name}: {other:?}"),
        };
        let given = program.strip_prefix(["kubectl", "globalps"].map(str::to_owned).as_slice());
        let words = ["kubectl-globalps".to_owned()]
            .into_iter()
            .chain(given.expect(name).to_vec());
        Cli::of(words.map(OsString::from)).expect(name);
        for field in ["shortCut", "description"] {
            assert!(plugin[field].is_string(), "{name}: {field}");
        }
        let scopes = plugin["scopes"].as_array().map(Vec::len);
        assert_eq!(
            (scopes, plugin["background"].as_bool()),
            (Some(1), Some(false)),
            "{name}"
        );
        commands.push(program.join(" "));
    }
    let expected = [
        "kubectl globalps status --watch --context $CONTEXT",
        "kubectl globalps why $NAME -n $NAMESPACE --context $CONTEXT",
    ];
    assert_eq!(commands, expected);
}

#[test]
fn every_command_in_the_documentation_is_accepted() {
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "charts/globalps/README.md"]
        .map(|page| root().join(page))
        .into();
    let docs = fs::read_dir(root().join("docs")).expect("docs/");
    pages.extend(docs.map(|entry| entry.expect("an entry").path()));
    pages.retain(|page| page.extension().is_some_and(|kind| kind == "md"));
    let makefile = fs::read_to_string(root().join("Makefile")).expect("Makefile");
    let (mut own, mut wrong) = (0, Vec::new());
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        let at = page.file_name().unwrap_or_default().to_string_lossy();
        for program in commands(&text).iter().flat_map(|line| programs(line)) {
            let words: Vec<&str> = program.iter().map(String::as_str).collect();
            match words[..] {
                ["kubectl", "globalps", ref args @ ..] => {
                    own += 1;
                    let words = ["kubectl-globalps"].iter().chain(args).map(OsString::from);
                    if let Err(error) = Cli::of(words) {
                        wrong.push(format!("{at}: {}: {error}", program.join(" ")));
                    }
                }
                ["make", target, ..] if !makefile.contains(&format!("\n{target}:")) => {
                    wrong.push(format!("{at}: the Makefile has no target `{target}`"));
                }
                [other, ..] if !OTHERS.contains(&other) => {
                    wrong.push(format!("{at}: `{other}` is not a known program"));
                }
                _ => {}
            }
        }
    }
    assert!(own > 20, "only {own} commands of the plugin were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
