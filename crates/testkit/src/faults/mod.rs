//! Faults on a node during a change: one table, which the test `faults` runs and `docs/faults.md` shows.

mod provider;
mod rotation;

use std::fmt::Write as _;

/// What happens to a node, and when.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Kills the syncer when it enters this system call for the nth time after the assignment.
    Kill(&'static str, u32),
    /// Makes calls of this system call fail with this error: only the nth, or all from the nth, in the syntax of strace's `when`.
    Errno(&'static str, &'static str, &'static str),
    /// A command that runs before the assignment.
    Before(&'static str),
    /// A command that runs this many milliseconds after the Secret was applied.
    During(u64, &'static str),
    /// A command that runs before the assignment; then the syncer is killed at a system call.
    BeforeAndKill(&'static str, &'static str, u32),
    PowerCut(u64),
    Reboot(u64),
}

/// The change that is in progress when the fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The node applies new content.
    Rotation,
    /// The node switches from the credentials file to the credential provider.
    In,
    /// The node switches back.
    Out,
}

/// One row. The following holds in every row: at every moment the file is intact, and has the old or the new content;
/// it keeps entries that globalps does not manage; in the end the kubelet runs, and the next content is applied. During
/// a switch of the delivery, the running kubelet has the content at every moment, from the file or from the provider.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub way: Way,
    pub what: &'static str,
    pub moment: &'static str,
    pub fault: Fault,
    /// Phase and reason that must be reported while the fault lasts.
    pub reported: Option<(&'static str, &'static str)>,
    /// A command that ends the fault.
    pub heal: &'static str,
    /// Final phase.
    pub ends: &'static str,
    /// Whether the fault itself replaces the file.
    pub is_replaced: bool,
    /// Whether the kubelet starts exactly once.
    pub is_once: bool,
    /// Whether the API server is unavailable from the assignment on. These rows run together.
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

/// A row in which the kubelet's unit has this section while the file has the new content.
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
/// Also starts the kubelet, because no syncer starts without one.
const UNBREAK_AND_START: &str = "rm -f /etc/systemd/system/kubelet.service.d/fault.conf; systemctl daemon-reload; \
    systemctl reset-failed kubelet.service; systemctl start kubelet.service";

/// `$NEW` stands for text that only the new content contains.
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

/// All rows, grouped by change.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    rotation::ROWS.iter().chain(provider::ROWS)
}

/// The table as Markdown.
pub fn document() -> String {
    let mut text = "# Faults on a node, and their outcome\n\n\
        Generated from the tables in `crates/testkit/src/faults/` by `make generate`. \
        The test `faults` runs each row on a real node with\na real systemd and a real kubelet. In every row, the file is \
        intact and has the old or the new content at every moment, except where the fault itself replaces the file.\n\
        Entries that globalps does not manage stay in the file, the kubelet runs in the end, and the next content is \
        applied. Where only an\nadmin can repair the fault, the final phase is the one after that. The limits of the rollout are off, so \
        the tables do not say what halts one.\n"
        .to_owned();
    for (way, title, more) in [
        (Way::Rotation, "New content is rolled out", ""),
        (
            Way::In,
            "The node switches to the credential provider",
            "The running kubelet has the content at every moment, from the file or from its provider.\n\n",
        ),
        (
            Way::Out,
            "The node switches back to the credentials file",
            "As in the previous table.\n\n",
        ),
    ] {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "\n## {title}\n\n{more}| fault | when | reported meanwhile | final phase | kubelet starts |\n|---|---|---|---|---|\n"
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
    fn there_are_forty_rows_and_more() {
        assert!(rows().count() >= 40, "{}", rows().count());
    }
}
