use super::*;
use clap::CommandFactory as _;
use clap::error::ErrorKind;
use std::ffi::OsString;

pub(super) fn parse(line: &str) -> Result<Cli, clap::Error> {
    let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
    Cli::of(words.map(OsString::from))
}

/// Checks the kind of each line's error; `None`: no error.
pub(super) fn assert_kinds(cases: &[(&str, Option<ErrorKind>)]) {
    for (line, expected) in cases {
        let found = parse(line).err();
        assert_eq!(found.as_ref().map(clap::Error::kind), *expected, "{line}");
        let status = found.map_or(2, |error| error.exit_code());
        assert_eq!(status, 2, "{line}");
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn flags_go_together_as_kubectl_users_expect() {
    #[rustfmt::skip]
    let cases = [
        ("status --wait -o json", None),
        ("status --node a --node b -l x=y,!z --no-headers", None),
        ("status --wait --watch", Some(ErrorKind::ArgumentConflict)),
        ("status -o xml", Some(ErrorKind::InvalidValue)),
        ("remove --registry a --registry b --yes", None),
        ("remove --all", None),
        ("remove --all --skip-unreachable --wait", None),
        ("remove --registry a --skip-unreachable", Some(ErrorKind::ArgumentConflict)),
        ("remove --registry a --source s", None),
        ("remove --all --source s --yes", None),
        ("remove --source s", Some(ErrorKind::MissingRequiredArgument)),
        ("remove --all --source s --skip-unreachable", Some(ErrorKind::ArgumentConflict)),
        ("uninstall --skip-unreachable --yes", None),
        ("remove", Some(ErrorKind::MissingRequiredArgument)),
        ("remove --all --registry a", Some(ErrorKind::ArgumentConflict)),
        ("install --controller-image c --syncer-image s --original a/b", None),
        ("install --apply --source a --source b --hosted-control-plane a/b --kubeconfig-secret k", None),
        ("install --apply --hosted-control-plane a/b", Some(ErrorKind::MissingRequiredArgument)),
        (
            "install --apply --hosted-control-plane a/b --kubeconfig-secret k --original a/b",
            Some(ErrorKind::ArgumentConflict),
        ),
        ("install --controller-image c -f f", None),
        ("install -f f --delivery None", Some(ErrorKind::ArgumentConflict)),
        ("delete a --yes", None),
        ("ls -o json", None),
        ("doctor", None),
        ("suspend", None),
        ("rollback --yes", None),
        ("install --controller-image c --syncer-image s --original a", Some(ErrorKind::ValueValidation)),
        ("diff -f -", None),
        ("explain i --pod a/b", None),
        ("explain i --service-account b", None),
        ("explain i --pod a/b/c", Some(ErrorKind::ValueValidation)),
        ("explain i --pod a --authfile f", Some(ErrorKind::ArgumentConflict)),
        ("diff --color=sometimes", Some(ErrorKind::InvalidValue)),
        ("--context c status -n kube-system -v", None),
        ("--context c status --pull-secret-namespace ns -v", None),
        ("status -v=6 --as u --as-group a --as-group b -s https://x", None),
        ("retry", None),
        ("retry node-1 node-2 --wait --timeout 5m", None),
        ("pause", None),
        ("pause --wait", Some(ErrorKind::UnknownArgument)),
        ("resume --wait", None),
        ("history -o yaml", None),
        ("history -o wide", None),
        ("history -o text", Some(ErrorKind::InvalidValue)),
        ("undo --to-revision 3 --yes --dry-run=server", None),
        ("undo --to-revision last", Some(ErrorKind::ValueValidation)),
        ("stats", Some(ErrorKind::InvalidSubcommand)),
    ];
    assert_kinds(&cases);
}

#[test]
fn registries_and_levels_are_accepted_in_every_usual_form() {
    assert_kinds(&[
        ("remove quay.io ghcr.io/org --yes --dry-run=server", None),
        ("remove quay.io --all", Some(ErrorKind::ArgumentConflict)),
        ("remove a --registry b", Some(ErrorKind::ArgumentConflict)),
        (
            "remove a --skip-unreachable",
            Some(ErrorKind::ArgumentConflict),
        ),
        ("add quay.io ghcr.io -u u --password-stdin", None),
        ("add a --registry b -u u", Some(ErrorKind::ArgumentConflict)),
        (
            "add a --authfile f --all",
            Some(ErrorKind::ArgumentConflict),
        ),
        ("status -v 6", None),
        ("-v6 status", None),
        ("--v=6 status", None),
        ("-v status --v 6", None),
        ("status -v -- 6", Some(ErrorKind::UnknownArgument)),
        ("status -v 999", Some(ErrorKind::ValueValidation)),
    ]);
}

#[test]
fn flags_about_namespaces_go_together() {
    #[rustfmt::skip]
    let cases = [
        ("status --namespaces -o name", None),
        ("status --namespaces --wait", Some(ErrorKind::ArgumentConflict)),
        ("migrate imagepullsecret-patcher --dry-run", None),
        ("migrate imagepullsecret-patcher --secret-name s --yes", None),
        ("migrate other", Some(ErrorKind::InvalidValue)),
        ("migrate", Some(ErrorKind::MissingRequiredArgument)),
        ("install --apply --deliver-to-namespaces", None),
        ("install --apply --deliver-to-namespaces=x --attach service-accounts --delivery none", None),
        ("install --apply --deliver-to-namespaces=A", Some(ErrorKind::ValueValidation)),
        ("install --apply --attach admission", Some(ErrorKind::MissingRequiredArgument)),
    ];
    assert_kinds(&cases);
}

#[test]
fn every_command_takes_the_flags_of_kubectl() {
    for command in [
        "status",
        "diff",
        "remove --all",
        "uninstall",
        "version",
        "check",
        "retry",
        "pause",
        "resume",
        "history",
        "undo",
        "add --registry r",
        "install --apply",
        "migrate imagepullsecret-patcher",
        "explain i",
    ] {
        for flag in [
            "--kubeconfig f",
            "--context c",
            "--cluster c",
            "--user u",
            "-n kube-system",
            "--namespace kube-system",
            "--pull-secret-namespace ns",
            "-s https://x",
            "--server https://x",
            "--token t",
            "--as u",
            "--as-group g --as-group h",
            "--as-uid 1",
            "--as-user-extra k=v --as-user-extra k=w",
            "--proxy-url http://p:1",
            "--certificate-authority f",
            "--client-certificate f",
            "--client-key f",
            "--insecure-skip-tls-verify",
            "--tls-server-name n",
            "--request-timeout 5s",
        ] {
            let line = format!("{command} {flag}");
            assert!(parse(&line).is_ok(), "{line}");
        }
    }
}

#[test]
fn help_shows_kubectls_command_and_examples_before_flags() {
    let all = Cli::command();
    let lines = all.get_subcommands().flat_map(|command| {
        let name = command.get_name();
        [format!("{name} --help"), format!("{name} -h")]
    });
    for line in lines.chain(["--help".to_owned()]) {
        let help = parse(&line).expect_err("help").to_string();
        let usage = help.find("Usage: kubectl globalps");
        let examples = help.find("Examples:");
        assert!(examples.is_some() && examples < usage, "{line}: {help}");
    }
}
