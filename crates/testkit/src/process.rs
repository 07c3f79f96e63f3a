//! Finds the processes of a cluster by a variable in their environment, so that /proc is the only record and no PID
//! file can be wrong.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::layout::Layout;
use crate::wait::{DEADLINE, until};

/// Value: the bridge's name, a slash, the component's name.
const MARK: &str = "GLOBALPS_TESTCLUSTER";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) component: String,
}

/// Runs a command to its end. Returns standard output; an error contains standard error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not run {}", name(command)))?;
    if !output.status.success() {
        bail!(
            "{} failed ({}): {}",
            line(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn name(command: &Command) -> String {
    format!("`{}`", command.get_program().to_string_lossy())
}

fn line(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    format!("`{}`", words.join(" "))
}

/// Starts a process that outlives this one, and returns its id. Its output goes into the component's log.
pub(crate) fn spawn(layout: &Layout, component: &str, command: &mut Command) -> Result<u32> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(layout.log(component))
        .with_context(|| format!("could not open the log of {component}"))?;
    let mut child = command
        .env(MARK, format!("{}/{component}", layout.bridge()))
        // Components are Go programs. By default, garbage collection takes a third of an API server's processor time.
        // An API server with hundreds of large Secrets would need 5 GB, so above 2 GiB it is collected as often as needed.
        .env("GOGC", "400")
        .env("GOMEMLIMIT", "2GiB")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C signals a whole process group, but only the reaper may end these processes.
        .process_group(0)
        .spawn()
        .with_context(|| format!("could not start {component} ({})", name(command)))?;
    let pid = child.id();
    std::thread::spawn(move || child.wait());
    // `spawn` may return a moment before the new environment is visible.
    until(
        &format!("the mark of {component}"),
        DEADLINE,
        Duration::from_millis(1),
        || {
            let readable = fs::read(format!("/proc/{pid}/environ")).is_ok_and(|e| !e.is_empty());
            Ok((readable || parent(pid).is_none()).then_some(pid))
        },
    )
}

/// Every live process with the variable of the cluster on this bridge.
pub(crate) fn marked(bridge: &str) -> Result<Vec<Running>> {
    let mut found = Vec::new();
    for pid in pids()? {
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        let Some(component) = component_of(&environ, bridge) else {
            continue;
        };
        if let Some(parent) = parent(pid) {
            found.push(Running {
                pid,
                parent,
                component,
            });
        }
    }
    Ok(found)
}

fn component_of(environ: &[u8], bridge: &str) -> Option<String> {
    environ.split(|byte| *byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        let (owner, component) = entry
            .strip_prefix(MARK)?
            .strip_prefix('=')?
            .split_once('/')?;
        (owner == bridge).then(|| component.to_owned())
    })
}

pub(crate) fn pids() -> Result<Vec<u32>> {
    Ok(fs::read_dir("/proc")
        .context("could not list /proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

/// The parent of a live process; `None` for a zombie.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let (state, parent, _) = stat(pid)?;
    (state != 'Z').then_some(parent)
}

/// Start time of the process, in clock ticks since boot: together with the process id it identifies a process uniquely.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let (state, _, start) = stat(pid)?;
    (state != 'Z').then_some(start)
}

fn stat(pid: u32) -> Option<(char, u32, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<(char, u32, u64)> {
    // The command name is in parentheses and may itself contain parentheses.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some((state, parent, start))
}

pub(crate) fn kill(pid: u32) {
    // Ignores a process that is already gone.
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills the processes that `find` returns until it returns none, and none of them holds a port any more: an exiting
/// process loses its environment, by which it is found, before it closes its files.
pub(crate) fn kill_all(what: &str, mut find: impl FnMut() -> Result<Vec<u32>>) -> Result<()> {
    let mut killed = BTreeSet::new();
    until(
        &format!("{what} to exit"),
        DEADLINE,
        Duration::from_millis(20),
        || {
            let pids = find()?;
            pids.iter().copied().for_each(kill);
            killed.extend(&pids);
            killed.retain(|pid| has_files(*pid));
            Ok((pids.is_empty() && killed.is_empty()).then_some(()))
        },
    )
}

/// A zombie has none; its last thread closes them.
fn has_files(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    parent(pid).is_some() || threads > 1
}

/// The last lines of a log, for an error message.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_by_its_own_bridge_only() {
        for (environ, bridge, component) in [
            (
                &b"A=b\0GLOBALPS_TESTCLUSTER=gps1/etcd\0"[..],
                "gps1",
                Some("etcd"),
            ),
            (b"GLOBALPS_TESTCLUSTER=gps1/node-2", "gps1", Some("node-2")),
            (b"GLOBALPS_TESTCLUSTER=gps10/etcd\0", "gps1", None),
            (b"GLOBALPS_TESTCLUSTER_X=gps1/etcd\0", "gps1", None),
            (b"X=GLOBALPS_TESTCLUSTER=gps1/etcd\0", "gps1", None),
            (b"", "gps1", None),
        ] {
            assert_eq!(component_of(environ, bridge).as_deref(), component);
        }
    }

    #[test]
    fn a_process_name_may_hold_parentheses() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 99";
        let text = format!("77 (a) R (b)) Z {rest}");
        assert_eq!(parse_stat(&text), Some(('Z', 1, 4242)));
        assert_eq!(parse_stat("77 (a"), None);
    }
}
