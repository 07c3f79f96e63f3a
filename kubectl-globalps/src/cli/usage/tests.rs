use super::message;
use crate::cli::Cli;
use std::ffi::OsString;

fn explained(line: &str) -> String {
    let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
    let error = Cli::of(words.map(OsString::from)).expect_err(line);
    error.to_string()
}

#[test]
fn an_invalid_command_line_gets_a_reason_and_a_way_out() {
    #[rustfmt::skip]
    let cases = [
        (
            "status --wach",
            "error: unexpected argument '--wach' found\n\n  tip: a similar argument exists: '--watch'\n\nUsage: kubectl globalps status --watch\n\nFor more information, try '--help'.\n",
        ),
        (
            "undo --to-revision last",
            "error: invalid value 'last' for '--to-revision <REVISION>': must be the number of a revision, for example `3`\n\nFor more information, try '--help'.\n",
        ),
        (
            "remove",
            "error: the following required arguments were not provided:\n  <REGISTRY|--registry <REGISTRY>|--all>\n\nUsage: kubectl globalps remove <REGISTRY|--registry <REGISTRY>|--all>\n\nFor more information, try '--help'.\n",
        ),
        (
            "status -n x",
            "error: `-n` is the namespace of pods and FleetPullSecrets, and says nothing to `status`\n\nhint: leave it out; another namespace of the pull secrets is `--pull-secret-namespace NAME`",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(explained(line), expected);
    }
}

#[test]
fn what_can_be_a_password_is_not_repeated() {
    for (line, shown) in [
        ("history hunter2", "'***'"),
        ("history -- -hunter2", "'***'"),
        ("add quay.io -u u -p --Hunter2", "'***'"),
        ("remove --password=hunter2", "'--password'"),
        (
            "add quay.io -u u --password-stdin=hunter2",
            "'***' for '--password-stdin'",
        ),
        (
            "fleet join m --member-kubeconfig k --server-for-hub http://u:hunter2@m:1",
            "'http://m:1'",
        ),
        (
            "fleet add team hunter2",
            "tip: pass registries with `--registry`",
        ),
        ("why default hunter2", "tip: name a pod as NAMESPACE/NAME"),
    ] {
        let found = explained(line);
        assert!(found.contains(shown), "{line}: {found}");
        assert!(!found.contains("unter2"), "{line}: {found}");
    }
}

#[test]
fn unknown_formats_list_known_ones_bad_templates_their_place() {
    for (line, expected) in [
        (
            "check -o name",
            "[possible values: text, json, yaml, kyaml, jsonpath=..., go-template=...]",
        ),
        (
            "status -o jsonpath",
            "tip: a similar value exists: 'jsonpath=...'",
        ),
        ("status -o jsonpath=", ": the template is empty\n"),
        (
            "status -o jsonpath={.nodes",
            ": character 1: `{` without `}` on the same line\n",
        ),
        (
            "status -o jsonpath-file=/none",
            ": the file could not be read: No such file or directory (os error 2)\n",
        ),
    ] {
        let found = explained(line);
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn a_name_of_another_program_suggests_the_one_that_is_meant() {
    for (line, expected) in [
        ("staus", "'status'"),
        ("create", "a similar subcommand exists: 'add'"),
        ("describe", "a similar subcommand exists: 'status'"),
        ("upgrade", "a similar subcommand exists: 'install'"),
        (
            "install --images-pull-secret x",
            "a similar argument exists: '--pull-secret'",
        ),
        (
            "install --image-pull-secrets",
            "a similar argument exists: '--deliver-to-namespaces'",
        ),
    ] {
        let found = explained(line);
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn a_flag_or_command_is_only_suggested_where_it_exists() {
    for (line, wrong) in [
        ("add --namespaces", "--deliver-to-namespaces"),
        ("fleet logs", "bundle"),
    ] {
        let found = explained(line);
        assert!(!found.contains(wrong), "{line}: {found}");
    }
}

#[test]
fn help_is_no_error() {
    for (line, is_error) in [
        ("--help", false),
        ("status --help", false),
        ("help", false),
        ("help status", false),
        ("--version", false),
        ("", false),
        ("staus", true),
        ("status --staus", true),
    ] {
        let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
        let error = Cli::of(words.map(OsString::from)).expect_err(line);
        assert_eq!(message(&error).is_some(), is_error, "{line}");
    }
}
