//! What may go wrong on a node while it changes: one table, run by the test `faults` and told in `docs/faults.md`.

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

/// One row. Whatever happens: the file is whole and means the old or the new content at every moment, what is not ours
/// stays in it, the kubelet runs in the end, and the next content is taken.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub what: &'static str,
    pub moment: &'static str,
    pub fault: Fault,
    /// Phase and reason that must be told while the fault lasts, where it lasts.
    pub told: Option<(&'static str, &'static str)>,
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
    what: "",
    moment: "",
    fault: Fault::Before("true"),
    told: None,
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
const BUS_BACK: &str = "systemctl start dbus.socket dbus.service";
const UNIT_BACK: &str = "rm -f /etc/systemd/system/kubelet.service; \
    mv /root/kubelet.service /etc/systemd/system/kubelet.service; systemctl daemon-reload";

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

const FAILS: &str =
    unit!(r#"ExecStartPre=/bin/sh -c "! grep -q $NEW /var/lib/kubelet/config.json""#);

pub const ROWS: &[Row] = &[
    kill("before its first rename: the journal", "rename", 1),
    kill("before its second rename", "rename", 2),
    kill("before its third rename", "rename", 3),
    kill("before its fourth rename", "rename", 4),
    kill("before its first fsync", "fsync", 1),
    kill("before its second fsync", "fsync", 2),
    kill("before its third fsync", "fsync", 3),
    kill("before its fourth fsync", "fsync", 4),
    kill("before its fifth fsync", "fsync", 5),
    kill("before its sixth fsync", "fsync", 6),
    kill("before its seventh fsync", "fsync", 7),
    kill("before its eighth fsync", "fsync", 8),
    kill("before it asks systemd whether it may", "connect", 1),
    kill(
        "before it asks which start the kubelet runs by",
        "connect",
        2,
    ),
    kill("before it asks for the restart", "connect", 3),
    kill("at its first word to the bus", "sendmsg", 1),
    kill("at its sixth word to the bus", "sendmsg", 6),
    kill("at its tenth word to the bus", "sendmsg", 10),
    kill("at its sixteenth word to the bus", "sendmsg", 16),
    kill("at its twenty-second word to the bus", "sendmsg", 22),
    Row {
        what: "the kubelet does not start with the new content, and the syncer is killed",
        moment: "on the way back, before its sixth rename",
        fault: Fault::BeforeAndKill(FAILS, "rename", 6),
        heal: UNBREAK_AND_START,
        ends: "Synced or RolledBack",
        ..ROW
    },
    Row {
        what: "the kubelet does not start with the new content, and the syncer is killed",
        moment: "on the way back, before its eleventh fsync",
        fault: Fault::BeforeAndKill(FAILS, "fsync", 11),
        heal: UNBREAK_AND_START,
        ends: "Synced or RolledBack",
        ..ROW
    },
    Row {
        what: "the disk is full",
        told: Some(("Failed", "DiskFull")),
        ..errno("", "all the time", Fault::Errno("fchmod", "ENOSPC", "1+"))
    },
    Row {
        what: "the disk can only be read",
        told: Some(("Failed", "ReadOnlyDisk")),
        ..errno("", "all the time", Fault::Errno("rename", "EROFS", "1+"))
    },
    errno(
        "a rename fails",
        "once, the second",
        Fault::Errno("rename", "EIO", "2"),
    ),
    errno(
        "a sync fails",
        "once, that of the temporary file",
        Fault::Errno("fsync", "EIO", "3"),
    ),
    errno(
        "a sync fails",
        "once, that of the folder after the rename",
        Fault::Errno("fsync", "EIO", "4"),
    ),
    errno(
        "a sync fails",
        "once, the sixth",
        Fault::Errno("fsync", "EIO", "6"),
    ),
    kubelet(
        "the kubelet does not start",
        Fault::Before(FAILS),
        "RolledBack",
    ),
    kubelet(
        "the kubelet is killed 5 s after it has come up",
        Fault::Before(unit!(
            r#"ExecStartPost=/bin/sh -c "if grep -q $NEW /var/lib/kubelet/config.json; then systemd-run --on-active=5 pkill -9 -x kubelet; fi""#
        )),
        "RolledBack",
    ),
    kubelet(
        "the kubelet hangs for 6 s as it is stopped",
        Fault::Before(unit!("ExecStop=/bin/sleep 6")),
        "Synced",
    ),
    kubelet(
        "the kubelet fails at its first start only",
        Fault::Before(unit!(
            r#"ExecStartPre=/bin/sh -c "test -e /run/fault || { touch /run/fault; exit 1; }""#
        )),
        "Synced",
    ),
    Row {
        what: "the kubelet's unit may start once in ten minutes",
        moment: "all the time",
        fault: Fault::Before(
            "mkdir -p /etc/systemd/system/kubelet.service.d; printf '%s\\n' '[Unit]' \
             'StartLimitIntervalSec=600' 'StartLimitBurst=1' > /etc/systemd/system/kubelet.service.d/fault.conf; \
             systemctl daemon-reload",
        ),
        heal: UNBREAK,
        ..ROW
    },
    Row {
        what: "the kubelet's unit is masked",
        moment: "before",
        fault: Fault::Before(
            "mv /etc/systemd/system/kubelet.service /root/kubelet.service; \
             ln -s /dev/null /etc/systemd/system/kubelet.service; systemctl daemon-reload",
        ),
        told: Some(("Failed", "KubeletUnit")),
        heal: UNIT_BACK,
        ..ROW
    },
    Row {
        what: "the kubelet's unit is not there",
        moment: "before",
        fault: Fault::Before(
            "mv /etc/systemd/system/kubelet.service /root/kubelet.service; systemctl daemon-reload",
        ),
        told: Some(("Failed", "KubeletUnit")),
        heal: UNIT_BACK,
        ..ROW
    },
    Row {
        what: "somebody else restarts the kubelet",
        moment: "at the same time",
        fault: Fault::During(200, "systemctl restart --no-block kubelet.service"),
        ..ROW
    },
    Row {
        what: "somebody else stops the kubelet",
        moment: "just before",
        fault: Fault::Before("systemctl stop --no-block kubelet.service"),
        ..ROW
    },
    Row {
        what: "the bus is stopped",
        moment: "before",
        fault: Fault::Before("systemctl stop dbus.socket dbus.service"),
        told: Some(("Failed", "SystemBusAway")),
        heal: BUS_BACK,
        ..ROW
    },
    Row {
        what: "the bus and its socket are gone",
        moment: "before",
        fault: Fault::Before(
            "systemctl stop dbus.socket dbus.service; rm -f /run/dbus/system_bus_socket",
        ),
        told: Some(("Failed", "SystemBusAway")),
        heal: BUS_BACK,
        ..ROW
    },
    Row {
        what: "the bus and its socket are gone, and the syncer is started anew",
        moment: "before",
        fault: Fault::Before(
            "systemctl stop dbus.socket dbus.service; rm -f /run/dbus/system_bus_socket; \
             pkill -9 -x globalps-syncer",
        ),
        told: Some(("Synced", "RestartNotPossible")),
        heal: BUS_BACK,
        ..ROW
    },
    Row {
        what: "the bus hangs",
        moment: "before",
        fault: Fault::Before("pkill -STOP -x dbus-daemon"),
        told: Some(("Failed", "SystemBusAway")),
        heal: "pkill -CONT -x dbus-daemon",
        ..ROW
    },
    Row {
        what: "the bus hangs",
        moment: "150 ms after the grant",
        fault: Fault::During(
            250,
            "pkill -STOP -x dbus-daemon; sleep 12; pkill -CONT -x dbus-daemon",
        ),
        ..ROW
    },
    Row {
        what: "the bus is restarted",
        moment: "in the middle",
        fault: Fault::During(200, "systemctl restart dbus.service"),
        ..ROW
    },
    Row {
        what: "the power is cut",
        moment: "100 ms after the Secret was applied",
        fault: Fault::PowerCut(100),
        ..ROW
    },
    Row {
        what: "the power is cut",
        moment: "200 ms after the Secret was applied",
        fault: Fault::PowerCut(200),
        ..ROW
    },
    Row {
        what: "the power is cut",
        moment: "350 ms after the Secret was applied",
        fault: Fault::PowerCut(350),
        ..ROW
    },
    Row {
        what: "the power is cut",
        moment: "600 ms after the Secret was applied",
        fault: Fault::PowerCut(600),
        ..ROW
    },
    Row {
        what: "the node is rebooted",
        moment: "200 ms after the Secret was applied",
        fault: Fault::Reboot(200),
        ..ROW
    },
    Row {
        what: "the file is immutable",
        moment: "before",
        fault: Fault::Before("chattr +i /var/lib/kubelet/config.json"),
        told: Some(("Failed", "ImmutableFile")),
        heal: "chattr -i /var/lib/kubelet/config.json",
        ..ROW
    },
    Row {
        what: "a symbolic link is in the file's place",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet; cp -p config.json kept; ln -s kept link; mv -T link config.json",
        ),
        told: Some(("Failed", "NotARegularFile")),
        heal: "cd /var/lib/kubelet; mv kept config.json",
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "a directory is in the file's place",
        moment: "before",
        fault: Fault::Before(
            // Exchanged in one step (renameat2), or the syncer would have the file back in between.
            "cd /var/lib/kubelet; mkdir kept; \
             perl -e 'my ($a, $b) = (\"kept\", \"config.json\"); exit !!syscall(316, -100, $a, -100, $b, 2)'",
        ),
        told: Some(("Failed", "NotARegularFile")),
        heal: "cd /var/lib/kubelet; rmdir config.json; mv -T kept config.json",
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "a FIFO is in the file's place",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet; cp -p config.json kept; mkfifo pipe; mv -T pipe config.json",
        ),
        told: Some(("Failed", "NotARegularFile")),
        heal: "cd /var/lib/kubelet; mv kept config.json",
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "the file is no credentials file any more",
        moment: "before",
        fault: Fault::Before("echo '{' > /var/lib/kubelet/config.json"),
        told: Some(("Synced", "FileSetAside")),
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "the syncer's state is damaged, and it is started anew",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet/.globalps; cp state.json /root; echo '{' > state.json; \
             pkill -9 -x globalps-syncer",
        ),
        told: Some(("Failed", "StateDamaged")),
        heal: "cp /root/state.json /var/lib/kubelet/.globalps",
        ..ROW
    },
    Row {
        what: "the syncer's state is a newer one's, and it is started anew",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet/.globalps; cp state.json /root; \
             echo '{\"version\":99}' > state.json; pkill -9 -x globalps-syncer",
        ),
        told: Some(("Failed", "StateTooNew")),
        heal: "cp /root/state.json /var/lib/kubelet/.globalps",
        ..ROW
    },
    Row {
        what: "two syncers are at work",
        moment: "all the time",
        fault: Fault::Before(
            "p=$(pgrep -x globalps-syncer); env -i $(tr '\\0' '\\n' < /proc/$p/environ) /usr/bin/nsenter -t $p \
             -m -n -u -i $(tr '\\0' ' ' < /proc/$p/cmdline) > /run/second.log 2>&1 & sleep 1; \
             test $(pgrep -x -c globalps-syncer) = 2",
        ),
        heal: "kill $(pgrep -x -n globalps-syncer)",
        is_once: true,
        ..ROW
    },
    Row {
        what: "the API server is away",
        moment: "from the grant on",
        is_once: true,
        is_api_away: true,
        ..ROW
    },
    Row {
        what: "the API server is away, and the kubelet does not start with the new content",
        moment: "from the grant on",
        fault: Fault::Before(FAILS),
        heal: UNBREAK,
        ends: "RolledBack",
        is_api_away: true,
        ..ROW
    },
    Row {
        what: "the API server is away, and the syncer is killed",
        moment: "from the grant on, before its third rename",
        fault: Fault::Kill("rename", 3),
        is_once: true,
        is_api_away: true,
        ..ROW
    },
];

/// The table for people.
pub fn document() -> String {
    let mut text = "# What may go wrong on a node, and what comes of it\n\n\
        Made from the table in `tests/src/faults.rs` by `UPDATE_DOCS=1 cargo test -p globalps-tests --lib faults`; \
        the test `faults` runs each row on a real node, with\na real systemd and a real kubelet, while a rotation is \
        rolled out. In every row, at every moment, the file is whole and means the old or the new content (but where \
        the test itself\nputs something else in its place), entries that are not ours stay in it, the kubelet runs in \
        the end, and the next content is taken.\n\n\
        | fault | when | told meanwhile | ends as | kubelet starts |\n|---|---|---|---|---|\n"
        .to_owned();
    for row in ROWS {
        let told = row.told.map_or_else(String::new, |(phase, reason)| {
            format!("`{phase}`, `{reason}`")
        });
        let starts = if row.is_once { "1" } else { "" };
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {told} | {} | {starts} |",
            row.what, row.moment, row.ends
        );
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
        assert!(ROWS.len() >= 40, "{}", ROWS.len());
    }
}
