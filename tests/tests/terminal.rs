//! The plugin's messages on a narrow terminal, and without a cluster.

use std::process::Command;
use std::time::Duration;

use globalps_testkit::product::{Product, run};
use globalps_testkit::terminal::Terminal;

const SOON: Duration = globalps_testkit::DEADLINE;

#[test]
fn a_message_breaks_between_words_and_its_command_nowhere() {
    for (columns, expected) in [
        (
            40,
            "\
error: kubeconfig `/nowhere` could not
be read: No such file or directory (os
error 2)

hint: check with `kubectl config view`;
choose with `--kubeconfig` and
`--context`
",
        ),
        (
            15,
            "\
error:
kubeconfig
`/nowhere`
could not be
read: No such
file or
directory (os
error 2)

hint: check
with
`kubectl config view`;
choose with
`--kubeconfig`
and `--context`
",
        ),
    ] {
        let mut command = Command::new(Product::plugin_path());
        command
            .args(["status", "--kubeconfig", "/nowhere"])
            .env("NO_COLOR", "1");
        let terminal = Terminal::start(&command, columns, 24).unwrap();
        let (code, shown) = terminal.end(SOON).unwrap();
        assert_eq!(code, Some(2), "{shown}");
        assert_eq!(shown.replace("\r\n", "\n"), expected, "{columns} columns");
    }
}

#[test]
fn an_api_server_that_is_away_is_named() {
    let mut command = Command::new(Product::plugin_path());
    command
        .args(["history", "--server", "https://127.0.0.1:1"])
        .env_remove("HOME")
        .env_remove("KUBECONFIG");
    let ran = run(&mut command, "").unwrap();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let said = "Connection refused (os error 111) (API server `https://127.0.0.1:1`)\n\nhint: ";
    assert!(ran.stderr.contains(said), "{ran:?}");
}

#[test]
fn validate_says_that_it_reads_what_is_typed() {
    let mut command = Command::new(Product::plugin_path());
    command.arg("validate").env("NO_COLOR", "1");
    let mut terminal = Terminal::start(&command, 120, 24).unwrap();
    terminal
        .wait_for("from stdin; Ctrl-D on an empty line ends it", SOON)
        .unwrap();
    terminal
        .press("{\"auths\":{\"quay.io\":{\"auth\":\"dTpw\"}}}\n\u{4}")
        .unwrap();
    let (code, shown) = terminal.end(SOON).unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("valid: 1 registry"), "{shown}");
}
