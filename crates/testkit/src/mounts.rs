//! The root of a node is an overlay on the machine's own root, so nothing is downloaded.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// One line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) target: PathBuf,
    pub(crate) kind: String,
    pub(crate) super_options: String,
}

pub(crate) fn all() -> Result<Vec<Mount>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("could not read mountinfo")?;
    Ok(parse(&text))
}

fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            Some(Mount {
                target: unescape(before.split(' ').nth(4)?),
                kind: after.next()?.to_owned(),
                super_options: after.nth(1).unwrap_or_default().to_owned(),
            })
        })
        .collect()
}

/// Decodes the kernel's escapes: blanks, tabs, newlines and backslashes are three octal digits.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'\\')
            .then(|| text.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

pub(crate) fn overlay(upper: &Path, work: &Path, target: &Path) -> Result<()> {
    let options = format!(
        "lowerdir=/,upperdir={},workdir={}",
        upper.display(),
        work.display()
    );
    mount(
        "overlay",
        target,
        "overlay",
        MountFlags::empty(),
        CString::new(options)?.as_c_str(),
    )
    .with_context(|| format!("could not mount an overlay of / at `{}`", target.display()))
}

pub(crate) fn is_mounted(target: &Path) -> Result<bool> {
    Ok(all()?.iter().any(|mount| mount.target == target))
}

/// Unmounts everything below the directory, the newest mount first.
pub(crate) fn unmount_below(dir: &Path) -> Result<()> {
    let below = all()?;
    for mount in below.iter().rev().filter(|m| m.target.starts_with(dir)) {
        unmount(&mount.target, UnmountFlags::empty())
            .or_else(|_| unmount(&mount.target, UnmountFlags::DETACH))
            .with_context(|| format!("could not unmount `{}`", mount.target.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_with_its_escapes_and_optional_fields() {
        let text = "36 35 98:0 /m /mnt/a\\040b rw,noatime master:1 shared:2 - ext4 /dev/root rw,errors=continue\n\
                    40 35 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    41 35 0:32 / /x\\134y rw - overlay overlay rw,upperdir=/u\n\
                    nonsense\n";
        let expected = [
            ("/mnt/a b", "ext4", "rw,errors=continue"),
            ("/sys/fs/cgroup/cpu", "cgroup", "rw,cpu"),
            ("/x\\y", "overlay", "rw,upperdir=/u"),
        ];
        let found = parse(text);
        assert_eq!(found.len(), expected.len());
        for (mount, (target, kind, options)) in found.iter().zip(expected) {
            assert_eq!(mount.target, Path::new(target));
            assert_eq!(mount.kind, kind);
            assert_eq!(mount.super_options, options);
        }
    }

    #[test]
    fn a_backslash_that_is_no_escape_stays() {
        for (escaped, plain) in [
            ("a\\b", "a\\b"),
            ("\\04", "\\04"),
            ("\\011", "\t"),
            ("ö\\040", "ö "),
        ] {
            assert_eq!(unescape(escaped), Path::new(plain));
        }
    }
}
