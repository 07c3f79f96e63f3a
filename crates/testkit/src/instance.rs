//! The clusters on this machine. Each has a number that determines its bridge and addresses. A lock protects the
//! allocation of numbers, and a record per number names the cluster's directory and owner.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::layout::INSTANCES;
use crate::pki::write_private;
use crate::process::started;
use crate::wait::{DEADLINE, until};

/// Cleared by a reboot of the machine, like everything that the records describe.
const RECORDS: &str = "/run/globalps-testcluster";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    dir: PathBuf,
    /// The process that removes the cluster when it ends; `None` if the cluster was left running.
    owner: Option<Owner>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    started: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) instance: u8,
    /// Directory of a killed cluster that had this number and must be removed first.
    pub(crate) remains: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Owned { pid: u32 },
    Kept,
    Abandoned,
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Take(Claim),
    HeldBy(u32),
    Full,
}

/// Allocates a number for the directory, or reuses its current one. If a live process owns the directory's cluster
/// (usually the reaper of a killed test), waits up to a minute for that process to end.
pub(crate) fn claim(dir: &Path, owner: u32) -> Result<Claim> {
    let start = started(owner).context("the reaper has exited")?;
    let record = Record {
        dir: dir.to_owned(),
        owner: Some(Owner {
            pid: owner,
            started: start,
        }),
    };
    let what = format!("the other process that uses `{}` to exit", dir.display());
    until(&what, DEADLINE, Duration::from_millis(200), || {
        let _lock = lock()?;
        match choose(dir, &in_use()?) {
            Choice::Take(claim) => {
                write(claim.instance, &record)?;
                Ok(Some(claim))
            }
            Choice::HeldBy(_) => Ok(None),
            Choice::Full => bail!(
                "all {INSTANCES} clusters that fit on one machine are in use: `{RECORDS}` has their directories, and `testkit cluster down --dir DIR` ends one"
            ),
        }
    })
}

/// From now on no process owns the cluster.
pub(crate) fn keep(instance: u8, dir: &Path) -> Result<()> {
    let _lock = lock()?;
    write(
        instance,
        &Record {
            dir: dir.to_owned(),
            owner: None,
        },
    )
}

/// The number of the directory's cluster, if it has one.
pub(crate) fn of(dir: &Path) -> Result<Option<u8>> {
    let _lock = lock()?;
    Ok(in_use()?
        .into_iter()
        .find(|(_, record, _)| record.dir == dir)
        .map(|(instance, _, _)| instance))
}

/// Whether the process owns the directory's cluster.
pub(crate) fn is_owner(dir: &Path, pid: u32) -> Result<bool> {
    let _lock = lock()?;
    Ok(in_use()?
        .iter()
        .any(|(_, record, usage)| record.dir == dir && *usage == Use::Owned { pid }))
}

pub(crate) fn release(instance: u8) -> Result<()> {
    let _lock = lock()?;
    match fs::remove_file(path(instance)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

fn choose(dir: &Path, records: &[(u8, Record, Use)]) -> Choice {
    let own = records.iter().find(|(_, record, _)| record.dir == dir);
    if let Some((instance, _, usage)) = own {
        return match *usage {
            Use::Owned { pid } => Choice::HeldBy(pid),
            Use::Kept | Use::Abandoned => Choice::Take(Claim {
                instance: *instance,
                remains: None,
            }),
        };
    }
    for instance in 0..INSTANCES {
        match records.iter().find(|(number, _, _)| *number == instance) {
            None => {
                return Choice::Take(Claim {
                    instance,
                    remains: None,
                });
            }
            Some((_, record, Use::Abandoned)) => {
                return Choice::Take(Claim {
                    instance,
                    remains: Some(record.dir.clone()),
                });
            }
            Some(_) => {}
        }
    }
    Choice::Full
}

fn in_use() -> Result<Vec<(u8, Record, Use)>> {
    let mut records = Vec::new();
    for instance in 0..INSTANCES {
        let Ok(text) = fs::read_to_string(path(instance)) else {
            continue;
        };
        let record: Record = serde_json::from_str(&text)
            .with_context(|| format!("`{}` is not a record", path(instance).display()))?;
        let usage = match &record.owner {
            Some(owner) if started(owner.pid) == Some(owner.started) => {
                Use::Owned { pid: owner.pid }
            }
            None if record.dir.join("state.json").exists() => Use::Kept,
            _ => Use::Abandoned,
        };
        records.push((instance, record, usage));
    }
    Ok(records)
}

fn path(instance: u8) -> PathBuf {
    Path::new(RECORDS).join(format!("{instance}.json"))
}

fn lock() -> Result<File> {
    fs::create_dir_all(RECORDS)?;
    let lock = File::create(Path::new(RECORDS).join("lock"))?;
    lock.lock()?;
    Ok(lock)
}

fn write(instance: u8, record: &Record) -> Result<()> {
    write_private(&path(instance), &serde_json::to_string(record)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(instance: u8, dir: &str, usage: Use) -> (u8, Record, Use) {
        let record = Record {
            dir: dir.into(),
            owner: None,
        };
        (instance, record, usage)
    }

    fn take(instance: u8, remains: Option<&str>) -> Choice {
        Choice::Take(Claim {
            instance,
            remains: remains.map(PathBuf::from),
        })
    }

    #[test]
    fn a_number_is_chosen_so_that_no_two_clusters_share_one() {
        let owned = Use::Owned { pid: 7 };
        let full: Vec<_> = (0..INSTANCES)
            .map(|i| record(i, &format!("/{i}"), owned))
            .collect();
        #[rustfmt::skip]
        let cases = [
            ("the first is free", vec![], take(0, None)),
            ("others run", vec![record(0, "/a", owned), record(1, "/b", Use::Kept)], take(2, None)),
            ("a gap is filled", vec![record(1, "/a", owned)], take(0, None)),
            ("a killed cluster makes room", vec![record(0, "/a", Use::Abandoned)], take(0, Some("/a"))),
            ("its own number again, kept", vec![record(3, "/me", Use::Kept)], take(3, None)),
            (
                "its own number again, killed",
                vec![
                    record(0, "/a", Use::Abandoned),
                    record(5, "/me", Use::Abandoned),
                ],
                take(5, None),
            ),
            ("its own, in use", vec![record(3, "/me", owned)], Choice::HeldBy(7)),
            ("none is left", full, Choice::Full),
        ];
        for (case, records, choice) in cases {
            assert_eq!(choose(Path::new("/me"), &records), choice, "{case}");
        }
    }
}
