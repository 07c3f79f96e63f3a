//! What may go wrong on a node while it changes: one table, run by the test `faults` and listed in `docs/faults.md`.

mod provider;
mod rotation;

use std::fmt::Write as _;

/// What is done to a node, and when.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The syncer is killed as it enters the system call of this name for the nth time after the grant.
    Kill(&'static str, u32),
    /// System calls of this name fail so, from the nth on or the nth only, as strace's `when` says.
    Errno(&'static str, &'static str, &'static str),
    /// A command before the grant.
    Before(&'static str),
    /// A command so many milliseconds after the Secret was applied.
    During(u64, &'static str),
    /// A command before the grant, and the syncer is killed at a system call too.
    BeforeAndKill(&'static str, &'static str, u32),
    PowerCut(u64),
    Reboot(u64),
}

/// What the node is asked to do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To take new content.
    Rotation,
    /// To go over from the credentials file to the credential provider.
    In,
    /// To go back.
    Out,
}

/// One row. Whatever happens: the file is whole and means the old or the new content at every moment, what is not ours
/// stays in it, the kubelet runs in the end, and the next content is taken. On the way in and out the kubelet has the content
/// at every moment, from the file or from its provider.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub way: Way,
    pub what: &'static str,
    pub moment: &'static str,
    pub fault: Fault,
    /// Phase and reason that must be reported while the fault lasts, where it lasts.
    pub reported: Option<(&'static str, &'static str)>,
    /// A command that ends the fault.
    pub heal: &'static str,
    /// Phase in the end.
    pub ends: &'static str,
    /// The test itself puts something else in the file's place.
    pub is_replaced: bool,
    /// The kubelet is started once and no more.
    pub is_once: bool,
    /// All the while the API server is away, from the grant on. Such rows are run together.
    pub is_api_away: bool,
}

const ROW: Row = Row {
    way: Way::Rotation,
    what: "",
    moment: "",
    fault: Fault::Before("true"),
    reported: None,
    heal: "",
    ends: "Synced",
    is_replaced: false,
    is_once: false,
    is_api_away: false,
};

const fn kill(moment: &'static str, call: &'static str, nth: u32) -> Row {
    Row {
        what: "the syncer is killed",
        moment,
        fault: Fault::Kill(call, nth),
        is_once: true,
        ..ROW
    }
}

const fn errno(what: &'static str, moment: &'static str, fault: Fault) -> Row {
    Row {
        what,
        moment,
        fault,
        heal: "pkill -x strace || true",
        ..ROW
    }
}

/// The kubelet's unit gets this section while the content that is rolled out is in the file.
const fn kubelet(what: &'static str, fault: Fault, ends: &'static str) -> Row {
    Row {
        what,
        moment: "with the new content",
        fault,
        heal: UNBREAK,
        ends,
        ..ROW
    }
}

const UNBREAK: &str = "rm -f /etc/systemd/system/kubelet.service.d/fault.conf; systemctl daemon-reload; \
    rm -f /run/fault";
/// Nobody starts a syncer again while there is no kubelet.
const UNBREAK_AND_START: &str = "rm -f /etc/systemd/system/kubelet.service.d/fault.conf; systemctl daemon-reload; \
    systemctl reset-failed kubelet.service; systemctl start kubelet.service";

/// `$NEW` stands for what only the new content has.
macro_rules! unit {
    ($section:literal) => {
        concat!(
            "mkdir -p /etc/systemd/system/kubelet.service.d; printf '%s\\n' '[Service]' '",
            $section,
            "' > /etc/systemd/system/kubelet.service.d/fault.conf; systemctl daemon-reload"
        )
    };
}
use unit;

const FAILS: &str =
    unit!(r#"ExecStartPre=/bin/sh -c "! grep -q $NEW /var/lib/kubelet/config.json""#);

/// All of them, a kind of way after the other.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    rotation::ROWS.iter().chain(provider::ROWS)
}

/// The table for people.
pub fn document() -> String {
    let mut text = "# What may go wrong on a node, and what comes of it\n\n\
        Made from the tables in `tests/src/faults/` by `UPDATE_DOCS=1 cargo test -p globalps-tests --lib faults`; \
        the test `faults` runs each row on a real node, with\na real systemd and a real kubelet. In every row, at every \
        moment, the file is whole and means the old or the new content (but where the test itself puts something else \
        in its\nplace), entries that are not ours stay in it, the kubelet runs in the end, and the next content is \
        taken.\n"
        .to_owned();
    for (way, title, more) in [
        (Way::Rotation, "New content is rolled out", ""),
        (
            Way::In,
            "The node gets the credential provider",
            "At every moment the kubelet that runs has the content, from the file or from its provider.\n\n",
        ),
        (
            Way::Out,
            "The node goes back to the credentials file",
            "Likewise.\n\n",
        ),
    ] {
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "\n## {title}\n\n{more}| fault | when | reported meanwhile | ends as | kubelet starts |\n|---|---|---|---|---|\n"
        );
        for row in rows().filter(|row| row.way == way) {
            let reported = row.reported.map_or_else(String::new, |(phase, reason)| {
                format!("`{phase}`, `{reason}`")
            });
            let starts = if row.is_once { "1" } else { "" };
            let _ = writeln!(
                text,
                "| {} | {} | {reported} | {} | {starts} |",
                row.what, row.moment, row.ends
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_of_faults_is_the_one_that_is_tested() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/faults.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), document());
    }

    #[test]
    fn there_are_forty_rows_and_more() {
        assert!(rows().count() >= 40, "{}", rows().count());
    }
}
