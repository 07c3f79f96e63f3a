//! What the plugin says on a narrow terminal. No cluster is asked.

use std::process::Command;
use std::time::Duration;

use globalps_tests::product::Product;
use globalps_tests::terminal::Terminal;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_message_is_broken_between_words_and_a_command_in_it_nowhere() {
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
