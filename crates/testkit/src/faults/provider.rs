//! Faults while a node switches to the credential provider, and back to the credentials file.

use super::{Fault, ROW, Row, Way, errno, kill, kubelet, unit};

pub(super) const ROWS: &[Row] = &[
    way_in(kill("before its second rename", "rename", 2)),
    way_in(kill("before its fourth rename", "rename", 4)),
    way_in(kill("before its sixth rename", "rename", 6)),
    way_in(kill("before its seventh rename", "rename", 7)),
    way_in(kill("before its eighth rename", "rename", 8)),
    way_in(kill("before its ninth rename", "rename", 9)),
    way_out(kill("before its second rename", "rename", 2)),
    way_out(kill("before its third rename", "rename", 3)),
    way_out(kill("before its fourth rename", "rename", 4)),
    way_out(kill("before its first unlink", "unlink", 1)),
    way_out(kill("before its second unlink", "unlink", 2)),
    way_out(kill("before its third unlink", "unlink", 3)),
    way_in(power_cut("300 ms after the switch was requested", 300)),
    way_in(power_cut("700 ms after the switch was requested", 700)),
    way_in(kubelet(
        "the kubelet does not start with a credential provider",
        Fault::Before(unit!(
            r#"ExecStartPre=/bin/sh -c "! grep -q image-credential /var/lib/kubelet/kubeadm-flags.env""#
        )),
        "RolledBack",
    )),
    way_in(kubelet(
        "only the kubelet's first start fails",
        Fault::Before(unit!(
            r#"ExecStartPre=/bin/sh -c "test -e /run/fault || { touch /run/fault; exit 1; }""#
        )),
        "Synced",
    )),
    way_in(Row {
        what: "the disk is full",
        reported: Some(("Failed", "DiskFull")),
        ..errno("", "throughout", Fault::Errno("fchmod", "ENOSPC", "1+"))
    }),
    way_in(errno(
        "a rename fails",
        "only the fourth",
        Fault::Errno("rename", "EIO", "4"),
    )),
    way_out(power_cut("300 ms after the switch was requested", 300)),
    way_out(power_cut("700 ms after the switch was requested", 700)),
    way_out(kubelet(
        "the kubelet does not start without its credential provider",
        Fault::Before(unit!(
            r#"ExecStartPre=/bin/sh -c "grep -q image-credential /var/lib/kubelet/kubeadm-flags.env""#
        )),
        "RolledBack",
    )),
    way_out(kubelet(
        "only the kubelet's first start fails",
        Fault::Before(unit!(
            r#"ExecStartPre=/bin/sh -c "test -e /run/fault || { touch /run/fault; exit 1; }""#
        )),
        "Synced",
    )),
    way_out(errno(
        "a rename fails",
        "only the second",
        Fault::Errno("rename", "EIO", "2"),
    )),
    way_out(Row {
        what: "the file with the kubelet's flags is immutable",
        moment: "before",
        fault: Fault::Before("chattr +i /var/lib/kubelet/kubeadm-flags.env"),
        reported: Some(("Failed", "ImmutableFile")),
        heal: "chattr -i /var/lib/kubelet/kubeadm-flags.env",
        ..ROW
    }),
];

const fn way_in(row: Row) -> Row {
    Row {
        way: Way::In,
        ..row
    }
}

const fn way_out(row: Row) -> Row {
    Row {
        way: Way::Out,
        ..row
    }
}

const fn power_cut(moment: &'static str, millis: u64) -> Row {
    Row {
        what: "the power is cut",
        moment,
        fault: Fault::PowerCut(millis),
        ..ROW
    }
}
