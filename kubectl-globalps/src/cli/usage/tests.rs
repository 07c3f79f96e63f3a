use super::*;
use crate::cli::Cli;
use clap::Arg;

fn explained(line: &str) -> Option<String> {
    let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
    let failure = failure(&Cli::of(words.map(OsString::from)).expect_err(line))?;
    Some(format!("{}\n{}", failure.message, failure.hint))
}

#[test]
fn an_invalid_command_line_gets_one_sentence_and_a_hint() {
    #[rustfmt::skip]
    let cases = [
        ("stats", "unrecognized subcommand `stats`\ndid you mean `status`? See `kubectl globalps --help`"),
        (
            "status --wach",
            "unexpected argument `--wach` found\ndid you mean `--watch`? See `kubectl globalps status --help`",
        ),
        (
            "status --wait --watch",
            "the argument `--wait` cannot be used with `--watch`\nsee `kubectl globalps status --help`",
        ),
        (
            "status -o xml",
            "invalid value `xml` for `--output <FORMAT>` [possible values: table, wide, json, yaml, kyaml, name, jsonpath=..., go-template=...]\ndid you mean `yaml`? See `kubectl globalps status --help`",
        ),
        (
            "undo --to-revision last",
            "invalid value `last` for `--to-revision <REVISION>`: must be the number of a revision, for example `3`\nsee `kubectl globalps undo --help`",
        ),
        ("remove", "`REGISTRY` or `--registry <REGISTRY>` or `--all` is missing\nsee `kubectl globalps remove --help`"),
        (
            "add --registry quay.io --password-stdin",
            "`--username <USER>` is missing\nsee `kubectl globalps add --help`",
        ),
        (
            "fleet add team quay.io",
            "there is an unexpected argument\npass registries with `--registry`; see `kubectl globalps fleet add --help`",
        ),
        (
            "why default web",
            "there is an unexpected argument\nname a pod as NAMESPACE/NAME; see `kubectl globalps why --help`",
        ),
        ("history hunter2", "there is an unexpected argument\nsee `kubectl globalps history --help`"),
        ("add quay.io -u u -p --Hunter2", "there is an unexpected argument\nsee `kubectl globalps add --help`"),
        ("history -- -hunter2", "there is an unexpected argument\nsee `kubectl globalps history --help`"),
        (
            "remove --password=hunter2",
            "unexpected argument `--password` found\ndid you mean `--as`? See `kubectl globalps remove --help`",
        ),
        (
            "add quay.io -u u --password-stdin=hunter2",
            "`--password-stdin` takes no value\nsee `kubectl globalps add --help`",
        ),
        (
            "fleet join m --member-kubeconfig k --server-for-hub http://u:hunter2@m:1",
            "invalid value `http://m:1` for `--server-for-hub <URL>`: must be `https://HOST:PORT`\nsee `kubectl globalps fleet join --help`",
        ),
        (
            "add quay.io -u u -p",
            "a value is required for `--password <PASSWORD>` but none was supplied\nsee `kubectl globalps add --help`",
        ),
        (
            "add quay.io --authfile f -u u",
            "the argument `--authfile <FILE>` cannot be used with `--username <USER>`\nsee `kubectl globalps add --help`",
        ),
        (
            "status --watch --watch",
            "the argument `--watch` cannot be used multiple times\nsee `kubectl globalps status --help`",
        ),
        (
            "remove --all --registry a b",
            "the argument `--all` cannot be used with `--registry <REGISTRY>` or `[REGISTRY]...`\nsee `kubectl globalps remove --help`",
        ),
        (
            "status --output=",
            "a value is required for `--output <FORMAT>` but none was supplied [possible values: table, wide, json, yaml, kyaml, name, jsonpath=..., go-template=...]\nsee `kubectl globalps status --help`",
        ),
        (
            "fleet -n x",
            "`kubectl globalps fleet` needs a subcommand: install, status, diff, pause, resume, retry, accept, undo, remove, add, join\nsee `kubectl globalps fleet --help`",
        ),
        (
            "install --deliver-to-namespaces=It's --controller-image c --syncer-image s",
            "invalid value `It's` for `--deliver-to-namespaces[=<SECRET_NAME>]`: must be the name of a Secret, for example `global-pull-secret`\nsee `kubectl globalps install --help`",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(explained(line).as_deref(), Some(expected), "{line}");
    }
}

/// No flag of the plugin produces these kinds of errors today.
#[test]
fn numbers_of_values_are_named() {
    let command = clap::Command::new("c")
        .arg(Arg::new("two").long("two").num_args(2))
        .arg(Arg::new("some").long("some").num_args(2..=3))
        .arg(Arg::new("is").long("is").num_args(1).require_equals(true));
    for (line, expected) in [
        ("--two 1", "`--two <two> <two>` needs 2 values; given: 1"),
        (
            "--some 1",
            "`--some <some> <some>...` needs at least 2 values; given: 1",
        ),
        ("--is 1", "`--is=<is>` takes its value after `=`"),
    ] {
        let words = std::iter::once("c").chain(line.split_whitespace());
        let error = command.clone().try_get_matches_from(words);
        assert_eq!(message(&error.expect_err(line)), expected, "{line}");
    }
}

#[test]
fn unknown_formats_list_known_ones_bad_templates_their_place() {
    for (line, expected) in [
        (
            "check -o name",
            "invalid value `name` for `--output <FORMAT>` [possible values: text, json, yaml, kyaml, jsonpath=..., go-template=...]\nsee `kubectl globalps check --help`",
        ),
        (
            "status -o jsonpath",
            "invalid value `jsonpath` for `--output <FORMAT>` [possible values: table, wide, json, yaml, kyaml, name, jsonpath=..., go-template=...]\ndid you mean `jsonpath=...`? See `kubectl globalps status --help`",
        ),
        (
            "status -o jsonpath=",
            "invalid value `jsonpath=` for `--output <FORMAT>`: the template is empty\nsee `kubectl globalps status --help`",
        ),
        (
            "status -o jsonpath={.nodes",
            "invalid value `jsonpath={.nodes` for `--output <FORMAT>`: character 1: `{` without `}` on the same line\nsee `kubectl globalps status --help`",
        ),
        (
            "status -o jsonpath-file=/none",
            "invalid value `jsonpath-file=/none` for `--output <FORMAT>`: the file could not be read: No such file or directory (os error 2)\nsee `kubectl globalps status --help`",
        ),
    ] {
        assert_eq!(explained(line).as_deref(), Some(expected), "{line}");
    }
}

#[test]
fn a_mistyped_command_suggests_the_nearest() {
    for (line, expected) in [
        ("staus", "did you mean `status`?"),
        ("lst", "did you mean `list`?"),
        ("fleet staus", "did you mean `status`?"),
        ("pase", "did you mean `pause`?"),
        ("create", "did you mean `add`?"),
        ("describe", "did you mean `status`?"),
        ("upgrade", "did you mean `install`?"),
        (
            "install --images-pull-secret x",
            "did you mean `--pull-secret`?",
        ),
        (
            "install --image-pull-secrets",
            "did you mean `--deliver-to-namespaces`?",
        ),
        (
            "install --image-pull-secret x",
            "did you mean `--pull-secret`?",
        ),
    ] {
        let found = explained(line).unwrap_or_default();
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn the_distance_counts_changes() {
    for (from, to, expected) in [
        ("", "abc", 3),
        ("status", "status", 0),
        ("staus", "status", 1),
        ("staus", "pause", 3),
        ("sattus", "status", 1),
        ("lits", "list", 1),
    ] {
        assert_eq!(distance(from, to), expected, "{from} {to}");
        assert_eq!(distance(to, from), expected, "{to} {from}");
    }
}

#[test]
fn help_is_no_error() {
    for line in [
        "--help",
        "status --help",
        "help",
        "help status",
        "--version",
        "",
    ] {
        assert_eq!(explained(line), None, "{line}");
    }
}
