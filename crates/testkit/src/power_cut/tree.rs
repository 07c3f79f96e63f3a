//! The whole content of a directory as a value, read from a disk or written to it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::XattrFlags;

/// A regular file, or a directory with all its entries. Omits times.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree {
    File {
        bytes: Vec<u8>,
        attributes: Attributes,
    },
    Directory {
        entries: BTreeMap<String, Tree>,
        attributes: Attributes,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Attributes that programs set. Omits security labels, because a machine may label every new file.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Whether an extended attribute is compared.
pub(super) fn is_of_programs(xattr: &str) -> bool {
    xattr.starts_with("user.")
}

impl Tree {
    /// Reads a directory, except the entries with these names. Fails on anything that is neither a file nor a
    /// directory.
    pub fn read(path: &Path, without: &[&str]) -> Result<Self> {
        let what = || format!("could not read `{}`", path.display());
        let meta = fs::symlink_metadata(path).with_context(what)?;
        let attributes = Attributes {
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            xattrs: xattrs(path).with_context(what)?,
        };
        if !meta.is_dir() {
            ensure!(meta.is_file(), "`{}` is a special file", path.display());
            let bytes = fs::read(path).with_context(what)?;
            return Ok(Self::File { bytes, attributes });
        }
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir(path).with_context(what)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !without.contains(&&*name) {
                entries.insert(name, Self::read(&entry.path(), &[])?);
            }
        }
        Ok(Self::Directory {
            entries,
            attributes,
        })
    }

    /// Writes the tree. An existing directory keeps its other entries.
    pub fn write(&self, path: &Path) -> Result<()> {
        let attributes = match self {
            Self::File { bytes, attributes } => {
                fs::write(path, bytes)?;
                attributes
            }
            Self::Directory {
                entries,
                attributes,
            } => {
                fs::create_dir_all(path)?;
                for (name, tree) in entries {
                    tree.write(&path.join(name))?;
                }
                attributes
            }
        };
        for (name, value) in &attributes.xattrs {
            rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())?;
        }
        chown(path, Some(attributes.uid), Some(attributes.gid))?;
        Ok(fs::set_permissions(
            path,
            Permissions::from_mode(attributes.mode),
        )?)
    }

    /// The tree at this relative path.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('/')
            .try_fold(self, |tree, name| tree.entries()?.get(name))
    }

    /// The entries, if this is a directory.
    pub fn entries(&self) -> Option<&BTreeMap<String, Self>> {
        match self {
            Self::File { .. } => None,
            Self::Directory { entries, .. } => Some(entries),
        }
    }

    /// Relative paths of everything in it.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (name, tree) in self.entries().into_iter().flatten() {
            names.push(name.clone());
            names.extend(tree.names().iter().map(|below| format!("{name}/{below}")));
        }
        names
    }
}

/// One short line: for a file, its size and mode.
impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { bytes, attributes } => {
                write!(f, "{} bytes {:o}", bytes.len(), attributes.mode)
            }
            Self::Directory { entries, .. } => f.debug_map().entries(entries).finish(),
        }
    }
}

fn xattrs(path: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Err(rustix::io::Errno::NOTSUP) => 0,
        length => length?,
    };
    let mut found = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0) {
        let name = String::from_utf8_lossy(name).into_owned();
        if is_of_programs(&name) {
            let mut value = vec![0; 64 << 10];
            let length = rustix::fs::lgetxattr(path, &name, &mut value)?;
            found.insert(name, value[..length].to_vec());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_was_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir_all(from.join("d")).unwrap();
        fs::write(from.join("d/f"), b"x\0").unwrap();
        fs::set_permissions(from.join("d/f"), Permissions::from_mode(0o640)).unwrap();
        fs::write(from.join("left out"), "").unwrap();
        let tree = Tree::read(&from, &["left out"]).unwrap();
        assert_eq!(tree.names(), ["d", "d/f"]);
        assert_eq!(format!("{:?}", tree.at("d/f").unwrap()), "2 bytes 640");
        assert!(tree.at("d/none").is_none());
        let to = directory.path().join("to");
        tree.write(&to).unwrap();
        assert!(Tree::read(&to, &[]).unwrap() == tree);
    }
}
