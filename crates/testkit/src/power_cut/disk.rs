//! A model of a file system that guarantees only what POSIX does: after a power cut, data that was not synced may be
//! there completely, partly or not at all, in any order.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use super::pending::{Body, Change, Id, Names, changed, newest, possible_bytes, possible_names};
use super::tree::{Attributes, Tree};

/// An operation of a program below one directory. Paths are relative to it; the directory itself is the empty path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Create(String, Attributes),
    MakeDirectory(String, Attributes),
    Write {
        path: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate(String, usize),
    SetMode(String, u32),
    SetOwner(String, Option<u32>, Option<u32>),
    SetXattr(String, String, Vec<u8>),
    /// fsync of a file or a directory.
    Sync(String),
    /// fdatasync of a file: without its attributes.
    SyncData(String),
    Rename(String, String),
    /// Both names exist, and change places.
    Exchange(String, String),
    Unlink(String),
    RemoveDirectory(String),
}

/// The states in which a power cut may leave the disk.
pub struct CrashStates {
    /// Number of states: one for each moment and each outcome of the data that was not synced.
    pub all: usize,
    /// The distinct states, each with the number of operations after which it first occurs.
    pub distinct: BTreeMap<Tree, usize>,
}

/// Every state in which the directory may be after a power cut before, between or after the operations. Everything in
/// `before` is older and synced.
pub fn crash_states(before: &Tree, ops: &[Op]) -> Result<CrashStates> {
    let mut disk = Disk::new(before);
    let mut states = CrashStates {
        all: 0,
        distinct: BTreeMap::new(),
    };
    for done in 0..=ops.len() {
        if let Some(op) = done.checked_sub(1).map(|last| &ops[last]) {
            disk.apply(op)
                .with_context(|| format!("operation {done}, {op:?}"))?;
        }
        for state in disk.possible() {
            states.all += 1;
            states.distinct.entry(state).or_insert(done);
        }
    }
    Ok(states)
}

const ROOT: Id = 0;

/// Each field has the state that is certainly on the disk, and later changes that may be lost.
struct Node {
    body: Body,
    attributes: Attributes,
    attributes_since: Vec<Attributes>,
}

pub struct Disk(Vec<Node>);

impl Disk {
    /// A disk on which everything is synced.
    pub fn new(tree: &Tree) -> Self {
        let mut disk = Self(Vec::new());
        disk.add(tree);
        disk
    }

    fn add(&mut self, tree: &Tree) -> Id {
        let id = self.0.len();
        let (body, attributes) = match tree {
            Tree::File { bytes, attributes } => (Body::file(bytes.clone()), attributes),
            Tree::Directory { attributes, .. } => (Body::directory(), attributes),
        };
        self.0.push(Node {
            body,
            attributes: attributes.clone(),
            attributes_since: Vec::new(),
        });
        for (name, below) in tree.entries().into_iter().flatten() {
            let child = self.add(below);
            if let Body::Directory { names, .. } = &mut self.0[id].body {
                names.insert(name.clone(), child);
            }
        }
        id
    }

    /// Applies an operation. Fails if the file does not exist or the operation could not have succeeded.
    pub fn apply(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Create(path, attributes) => self.make(path, Body::file(Vec::new()), attributes),
            Op::MakeDirectory(path, attributes) => self.make(path, Body::directory(), attributes),
            Op::Write {
                path,
                offset,
                bytes,
            } => self.change(path, Change::Write(*offset, bytes.clone())),
            Op::Truncate(path, length) => self.change(path, Change::Truncate(*length)),
            Op::SetMode(path, mode) => self.set(path, |attributes| attributes.mode = *mode),
            Op::SetOwner(path, uid, gid) => self.set(path, |attributes| {
                attributes.uid = uid.unwrap_or(attributes.uid);
                attributes.gid = gid.unwrap_or(attributes.gid);
            }),
            Op::SetXattr(path, name, value) => self.set(path, |attributes| {
                attributes.xattrs.insert(name.clone(), value.clone());
            }),
            Op::Sync(path) | Op::SyncData(path) => {
                let id = self.find(path)?;
                let node = &mut self.0[id];
                if matches!(op, Op::Sync(_)) {
                    node.attributes = node.newest_attributes().clone();
                    node.attributes_since.clear();
                }
                node.body.sync();
                Ok(())
            }
            Op::Rename(from, to) => {
                let id = self.find(from)?;
                let (parent, from) = self.parent(from)?;
                let (new_parent, to) = self.parent(to)?;
                ensure!(
                    parent == new_parent,
                    "a rename into another directory is not modelled"
                );
                self.names(parent, vec![(from, None), (to, Some(id))])
            }
            Op::Exchange(one, other) => {
                let (first, second) = (self.find(one)?, self.find(other)?);
                let (parent, one) = self.parent(one)?;
                let (other_parent, other) = self.parent(other)?;
                ensure!(
                    parent == other_parent,
                    "an exchange between directories is not modelled"
                );
                self.names(parent, vec![(one, Some(second)), (other, Some(first))])
            }
            Op::Unlink(path) | Op::RemoveDirectory(path) => {
                self.find(path)?;
                let (parent, name) = self.parent(path)?;
                self.names(parent, vec![(name, None)])
            }
        }
    }

    fn make(&mut self, path: &str, body: Body, attributes: &Attributes) -> Result<()> {
        ensure!(self.find(path).is_err(), "`{path}` already exists");
        self.0.push(Node {
            body,
            attributes: attributes.clone(),
            attributes_since: Vec::new(),
        });
        let (parent, name) = self.parent(path)?;
        self.names(parent, vec![(name, Some(self.0.len() - 1))])
    }

    fn names(&mut self, directory: Id, change: Names) -> Result<()> {
        let Body::Directory { since, .. } = &mut self.0[directory].body else {
            bail!("not a directory");
        };
        since.push(change);
        Ok(())
    }

    fn change(&mut self, path: &str, change: Change) -> Result<()> {
        let id = self.find(path)?;
        let Body::File { since, .. } = &mut self.0[id].body else {
            bail!("`{path}` is a directory");
        };
        since.push(change);
        Ok(())
    }

    fn set(&mut self, path: &str, change: impl FnOnce(&mut Attributes)) -> Result<()> {
        let id = self.find(path)?;
        let node = &mut self.0[id];
        let mut attributes = node.newest_attributes().clone();
        change(&mut attributes);
        node.attributes_since.push(attributes);
        Ok(())
    }

    fn parent(&self, path: &str) -> Result<(Id, String)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent)?, name.to_owned()))
    }

    /// The node at a path in the view of the running system, which includes all changes.
    fn find(&self, path: &str) -> Result<Id> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |id, name| match &self.0[id].body {
                Body::Directory { names, since } => newest(names, since).remove(name),
                Body::File { .. } => None,
            })
            .with_context(|| format!("`{path}` does not exist"))
    }

    /// The directory in the view of the running system.
    pub fn now(&self) -> Tree {
        self.tree(ROOT)
    }

    fn tree(&self, id: Id) -> Tree {
        let node = &self.0[id];
        let attributes = node.newest_attributes().clone();
        match &node.body {
            Body::File { bytes, since } => Tree::File {
                bytes: changed(bytes, since),
                attributes,
            },
            Body::Directory { names, since } => Tree::Directory {
                entries: newest(names, since)
                    .into_iter()
                    .map(|(name, id)| (name, self.tree(id)))
                    .collect(),
                attributes,
            },
        }
    }

    /// Every state in which a power cut at this moment may leave the disk.
    pub fn possible(&self) -> Vec<Tree> {
        self.possible_of(ROOT)
    }

    fn possible_of(&self, id: Id) -> Vec<Tree> {
        let node = &self.0[id];
        let mut trees = Vec::new();
        for attributes in node.possible_attributes() {
            match &node.body {
                Body::File { bytes, since } => {
                    trees.extend(possible_bytes(bytes, since).into_iter().map(|bytes| {
                        Tree::File {
                            bytes,
                            attributes: attributes.clone(),
                        }
                    }));
                }
                Body::Directory { names, since } => {
                    for names in possible_names(names, since) {
                        trees.extend(self.possible_entries(&names).into_iter().map(|entries| {
                            Tree::Directory {
                                entries,
                                attributes: attributes.clone(),
                            }
                        }));
                    }
                }
            }
        }
        trees
    }

    /// All combinations of the possible states of each entry.
    fn possible_entries(&self, names: &BTreeMap<String, Id>) -> Vec<BTreeMap<String, Tree>> {
        names
            .iter()
            .fold(vec![BTreeMap::new()], |states, (name, id)| {
                let trees = self.possible_of(*id);
                let with = |state: &BTreeMap<String, Tree>, tree: &Tree| {
                    let mut state = state.clone();
                    state.insert(name.clone(), tree.clone());
                    state
                };
                states
                    .iter()
                    .flat_map(|state| trees.iter().map(|tree| with(state, tree)))
                    .collect()
            })
    }
}

impl Node {
    fn newest_attributes(&self) -> &Attributes {
        self.attributes_since.last().unwrap_or(&self.attributes)
    }

    fn possible_attributes(&self) -> BTreeSet<&Attributes> {
        self.attributes_since
            .iter()
            .chain([&self.attributes])
            .collect()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
