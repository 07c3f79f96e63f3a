//! Faults while a node applies new content.

use super::{FAILS, Fault, ROW, Row, UNBREAK, UNBREAK_AND_START, errno, kill, kubelet, unit};

const BUS_BACK: &str = "systemctl start dbus.socket dbus.service";
const UNIT_BACK: &str = "rm -f /etc/systemd/system/kubelet.service; \
    mv /root/kubelet.service /etc/systemd/system/kubelet.service; systemctl daemon-reload";

pub(super) const ROWS: &[Row] = &[
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
    kill(
        "before it asks systemd whether the kubelet is still in its unit",
        "connect",
        1,
    ),
    kill(
        "before it checks with systemd that a restart is possible",
        "connect",
        2,
    ),
    kill("before it reads the kubelet's `InvocationID`", "connect", 3),
    kill("before it requests the restart", "connect", 4),
    kill("at its first message to the bus", "sendmsg", 1),
    kill("at its sixth message to the bus", "sendmsg", 6),
    kill("at its tenth message to the bus", "sendmsg", 10),
    kill("at its sixteenth message to the bus", "sendmsg", 16),
    kill("at its twenty-second message to the bus", "sendmsg", 22),
    kill("at its thirty-fourth message to the bus", "sendmsg", 34),
    Row {
        what: "the kubelet does not start with the new content, and the syncer is killed",
        moment: "during the rollback, before its sixth rename",
        fault: Fault::BeforeAndKill(FAILS, "rename", 6),
        heal: UNBREAK_AND_START,
        ends: "Synced or RolledBack",
        ..ROW
    },
    Row {
        what: "the kubelet does not start with the new content, and the syncer is killed",
        moment: "during the rollback, before its eleventh fsync",
        fault: Fault::BeforeAndKill(FAILS, "fsync", 11),
        heal: UNBREAK_AND_START,
        ends: "Synced or RolledBack",
        ..ROW
    },
    Row {
        what: "the disk is full",
        reported: Some(("Failed", "DiskFull")),
        ..errno("", "throughout", Fault::Errno("fchmod", "ENOSPC", "1+"))
    },
    Row {
        what: "the disk is read-only",
        reported: Some(("Failed", "ReadOnlyDisk")),
        ..errno("", "throughout", Fault::Errno("rename", "EROFS", "1+"))
    },
    errno(
        "a rename fails",
        "only the second",
        Fault::Errno("rename", "EIO", "2"),
    ),
    errno(
        "an fsync fails",
        "only that of the temporary file",
        Fault::Errno("fsync", "EIO", "3"),
    ),
    errno(
        "an fsync fails",
        "only that of the directory after the rename",
        Fault::Errno("fsync", "EIO", "4"),
    ),
    errno(
        "an fsync fails",
        "only the sixth",
        Fault::Errno("fsync", "EIO", "6"),
    ),
    kubelet(
        "the kubelet does not start",
        Fault::Before(FAILS),
        "RolledBack",
    ),
    kubelet(
        "the kubelet is killed 5 s after it started",
        Fault::Before(unit!(
            r#"ExecStartPost=/bin/sh -c "if grep -q $NEW /var/lib/kubelet/config.json; then systemd-run --on-active=5 --timer-property=AccuracySec=100ms pkill -9 -x kubelet; fi""#
        )),
        "RolledBack",
    ),
    kubelet(
        "the kubelet takes 6 s to stop",
        Fault::Before(unit!("ExecStop=/bin/sleep 6")),
        "Synced",
    ),
    kubelet(
        "only the kubelet's first start fails",
        Fault::Before(unit!(
            r#"ExecStartPre=/bin/sh -c "test -e /run/fault || { touch /run/fault; exit 1; }""#
        )),
        "Synced",
    ),
    Row {
        what: "systemd allows one start of the kubelet's unit in ten minutes",
        moment: "throughout",
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
        reported: Some(("Failed", "KubeletUnit")),
        heal: UNIT_BACK,
        ..ROW
    },
    Row {
        what: "the kubelet's unit does not exist",
        moment: "before",
        fault: Fault::Before(
            "mv /etc/systemd/system/kubelet.service /root/kubelet.service; systemctl daemon-reload",
        ),
        reported: Some(("Failed", "KubeletUnit")),
        heal: UNIT_BACK,
        ..ROW
    },
    Row {
        what: "another process restarts the kubelet",
        moment: "at the same time",
        fault: Fault::During(200, "systemctl restart --no-block kubelet.service"),
        ..ROW
    },
    Row {
        what: "another process stops the kubelet",
        moment: "just before",
        // A node that waits longer than its heartbeats are valid would get no assignment.
        fault: Fault::Before(
            "systemctl stop --no-block kubelet.service; \
             systemd-run --on-active=12 --timer-property=AccuracySec=100ms \
             systemctl start kubelet.service",
        ),
        ..ROW
    },
    Row {
        what: "the system bus is stopped",
        moment: "before",
        fault: Fault::Before("systemctl stop dbus.socket dbus.service"),
        reported: Some(("Failed", "SystemBusUnavailable")),
        heal: BUS_BACK,
        ..ROW
    },
    Row {
        what: "the system bus and its socket are gone",
        moment: "before",
        fault: Fault::Before(
            "systemctl stop dbus.socket dbus.service; rm -f /run/dbus/system_bus_socket",
        ),
        reported: Some(("Failed", "SystemBusUnavailable")),
        heal: BUS_BACK,
        ..ROW
    },
    Row {
        what: "the system bus and its socket are gone, and the syncer restarts",
        moment: "before",
        fault: Fault::Before(
            "systemctl stop dbus.socket dbus.service; rm -f /run/dbus/system_bus_socket; \
             pkill -9 -x globalps-syncer",
        ),
        reported: Some(("Synced", "RestartNotPossible")),
        heal: BUS_BACK,
        ..ROW
    },
    Row {
        what: "the system bus hangs",
        moment: "before",
        fault: Fault::Before("pkill -STOP -x dbus-daemon"),
        reported: Some(("Failed", "SystemBusUnavailable")),
        heal: "pkill -CONT -x dbus-daemon",
        ..ROW
    },
    Row {
        what: "the system bus hangs",
        moment: "150 ms after the assignment",
        fault: Fault::During(
            250,
            "pkill -STOP -x dbus-daemon; sleep 12; pkill -CONT -x dbus-daemon",
        ),
        ..ROW
    },
    Row {
        what: "the system bus is restarted",
        moment: "during the change",
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
        reported: Some(("Failed", "ImmutableFile")),
        heal: "chattr -i /var/lib/kubelet/config.json",
        ..ROW
    },
    Row {
        what: "the file is replaced by a symbolic link",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet; cp -p config.json kept; ln -s kept link; mv -T link config.json",
        ),
        reported: Some(("Failed", "NotARegularFile")),
        heal: "cd /var/lib/kubelet; mv kept config.json",
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "the file is replaced by a directory",
        moment: "before",
        fault: Fault::Before(
            // Exchanges them atomically (renameat2). Otherwise the syncer would restore the file in between.
            "cd /var/lib/kubelet; mkdir kept; \
             perl -e 'my ($a, $b) = (\"kept\", \"config.json\"); exit !!syscall(316, -100, $a, -100, $b, 2)'",
        ),
        reported: Some(("Failed", "NotARegularFile")),
        heal: "cd /var/lib/kubelet; rmdir config.json; mv -T kept config.json",
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "the file is replaced by a FIFO",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet; cp -p config.json kept; mkfifo pipe; mv -T pipe config.json",
        ),
        reported: Some(("Failed", "NotARegularFile")),
        heal: "cd /var/lib/kubelet; mv kept config.json",
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "the file's content is not a credentials file",
        moment: "before",
        fault: Fault::Before("echo '{' > /var/lib/kubelet/config.json"),
        reported: Some(("Synced", "FileQuarantined")),
        is_replaced: true,
        ..ROW
    },
    Row {
        what: "the syncer's state is damaged, and the syncer restarts",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet/.globalps; cp state.json /root; echo '{' > state.json; \
             pkill -9 -x globalps-syncer",
        ),
        reported: Some(("Failed", "StateDamaged")),
        heal: "cp /root/state.json /var/lib/kubelet/.globalps",
        ..ROW
    },
    Row {
        what: "a newer version wrote the syncer's state, and the syncer restarts",
        moment: "before",
        fault: Fault::Before(
            "cd /var/lib/kubelet/.globalps; cp state.json /root; \
             echo '{\"version\":99}' > state.json; pkill -9 -x globalps-syncer",
        ),
        reported: Some(("Failed", "StateTooNew")),
        heal: "cp /root/state.json /var/lib/kubelet/.globalps",
        ..ROW
    },
    Row {
        what: "two syncers run",
        moment: "throughout",
        fault: Fault::Before(
            // A readiness probe has the same process name.
            "p=$(pgrep -x -o globalps-syncer); env -i $(tr '\\0' '\\n' < /proc/$p/environ) /usr/bin/nsenter -t $p \
             -m -n -u -i $(tr '\\0' ' ' < /proc/$p/cmdline) > /run/second.log 2>&1 & \
             q=$!; echo $q > /run/second.pid; \
             for i in $(seq 50); do test $(cat /proc/$q/comm) = globalps-syncer && break; sleep 0.2; done; \
             test $(cat /proc/$q/comm) = globalps-syncer",
        ),
        heal: "kill $(cat /run/second.pid)",
        is_once: true,
        ..ROW
    },
    Row {
        what: "the API server is unavailable",
        moment: "from the assignment on",
        is_once: true,
        is_api_away: true,
        ..ROW
    },
    Row {
        what: "the API server is unavailable, and the kubelet does not start with the new content",
        moment: "from the assignment on",
        fault: Fault::Before(FAILS),
        heal: UNBREAK,
        ends: "RolledBack",
        is_api_away: true,
        ..ROW
    },
    Row {
        what: "the API server is unavailable, and the syncer is killed",
        moment: "from the assignment on, before its third rename",
        fault: Fault::Kill("rename", 3),
        is_once: true,
        is_api_away: true,
        ..ROW
    },
];
