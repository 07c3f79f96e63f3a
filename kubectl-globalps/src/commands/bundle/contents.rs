//! The files of a bundle, its manifest, and the archive. Pure.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::Serialize;
use tar::{Builder, Header};

use super::search::Search;
use crate::error::{Failure, Result};
use crate::terminal::printer::json;

const MANIFEST: &str = "manifest.json";

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Missing {
    pub(super) what: String,
    pub(super) reason: String,
}

#[derive(Serialize)]
struct File<'a> {
    path: &'a str,
    bytes: usize,
}

/// Why objects of a kind are missing if only a part of globalps is installed.
pub(super) const ABSENT: &str = "the cluster does not have this kind";

/// Why a file, or an entry of the manifest, is missing.
const HIDDEN: &str = "it contains a credential of a Secret";

/// `manifest.json`: scripts rely on its shape.
#[derive(Serialize)]
struct Manifest<'a> {
    plugin: &'static str,
    created: String,
    namespace: &'a str,
    files: Vec<File<'a>>,
    missing: Vec<Missing>,
}

#[derive(Default)]
pub(super) struct Contents {
    /// Content by path in the archive.
    files: BTreeMap<String, Vec<u8>>,
    pub(super) missing: Vec<Missing>,
}

impl Contents {
    pub(super) fn text(&mut self, path: impl Into<String>, text: impl Into<Vec<u8>>) {
        self.files.insert(path.into(), text.into());
    }

    pub(super) fn json(&mut self, path: &str, value: &impl Serialize) {
        match json(value) {
            Some(text) => self.text(path, text + "\n"),
            None => self.missing(path, "not printable as JSON"),
        }
    }

    pub(super) fn missing(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.missing.push(Missing {
            what: what.into(),
            reason: reason.into(),
        });
    }

    /// The value; if it could not be read, records it as missing.
    pub(super) fn read<T>(&mut self, what: &str, answer: Result<T>) -> Option<T> {
        answer
            .map_err(|failure| self.missing(what, failure.message))
            .ok()
    }

    /// The missing parts that are worth a line; omits kinds that this cluster does not have.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(|it| it.reason != ABSENT)
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Removes every file that contains a credential according to the search. Returns their paths.
    pub(super) fn omit(&mut self, search: &Search) -> Vec<String> {
        let is_bad = |(path, content): (&String, &Vec<u8>)| {
            (search.finds(content) || search.finds(path.as_bytes())).then(|| path.clone())
        };
        let bad: Vec<String> = self.files.iter().filter_map(is_bad).collect();
        for path in &bad {
            self.files.remove(path);
            self.missing(path, HIDDEN);
        }
        bad
    }

    /// The archive, with all files below the directory `root`. Only their owner can read them.
    pub(super) fn pack(
        &self,
        root: &str,
        namespace: &str,
        now: Timestamp,
        search: &Search,
    ) -> Result<Vec<u8>> {
        let files = self.files.iter();
        let is_found = |text: &str| search.finds(text.as_bytes());
        let missing = self.missing.iter().map(|it| {
            let is_bad = is_found(&it.what) || is_found(&it.reason);
            let (what, reason) = if is_bad {
                ("(hidden)", HIDDEN)
            } else {
                (it.what.as_str(), it.reason.as_str())
            };
            Missing {
                what: what.to_owned(),
                reason: reason.to_owned(),
            }
        });
        // The manifest's own words reveal nothing about a Secret, although a password may equal one of them.
        let manifest = Manifest {
            plugin: env!("CARGO_PKG_VERSION"),
            created: now.to_string(),
            namespace: if is_found(namespace) { "" } else { namespace },
            files: files
                .map(|(path, content)| File {
                    path,
                    bytes: content.len(),
                })
                .collect(),
            missing: missing.collect(),
        };
        let manifest = json(&manifest).ok_or_else(|| {
            Failure::new(
                "the manifest could not be written as JSON",
                "report this as a bug",
            )
        })? + "\n";
        let archive = self.archive(root, &manifest, now);
        archive.map_err(|error| {
            Failure::new(
                format!("the archive could not be built: {error}"),
                "run the command again",
            )
        })
    }

    fn archive(&self, root: &str, manifest: &str, now: Timestamp) -> std::io::Result<Vec<u8>> {
        let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let manifest = (MANIFEST, manifest.as_bytes());
        let files = self.files.iter();
        let files = files.map(|(path, content)| (path.as_str(), content.as_slice()));
        for (path, content) in std::iter::once(manifest).chain(files) {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
            archive.append_data(&mut header, format!("{root}/{path}"), content)?;
        }
        let mut packed = archive.into_inner()?;
        packed.flush()?;
        packed.finish()
    }
}
