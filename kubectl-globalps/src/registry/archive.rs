//! OCI image archives. Pure, apart from reading the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use hyper::body::Bytes;
use serde::Deserialize;
use tar::Archive as Tar;

use crate::error::{Failure, Result};

/// Larger than any image of globalps.
const LARGEST: u64 = 1 << 30;
/// The archive's index may refer to the index of an image; deeper nesting is not an image.
const DEEPEST: usize = 2;
const BLOBS: &str = "blobs/";
const NAME: &str = "org.opencontainers.image.ref.name";

/// One image, possibly for several architectures.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ImageArchive {
    /// For example `globalps-controller`.
    pub name: String,
    /// `latest`, or the tag of a release.
    pub tag: String,
    /// Digest of the last manifest.
    pub digest: String,
    /// Digest and content of each blob.
    pub blobs: Vec<(String, Bytes)>,
    /// Ordered so that each manifest follows those that it references.
    pub manifests: Vec<Manifest>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub digest: String,
    pub media_type: String,
    pub content: Bytes,
}

/// The references in an index or a manifest.
#[derive(Deserialize)]
struct ManifestReferences {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl ImageArchive {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bad = |why: String| {
            Failure::new(
                format!("`{}` is no OCI image archive: {why}", path.display()),
                "`make image` writes them to `target/images`, and a release has them",
            )
        };
        let file = File::open(path).map_err(|error| bad(error.to_string()))?;
        let files = files(file).map_err(|error| bad(error.to_string()))?;
        Self::of(&files).map_err(bad)
    }

    fn of(files: &BTreeMap<String, Bytes>) -> Result<Self, String> {
        let index = files.get("index.json").ok_or("it has no `index.json`")?;
        let index = parsed(index)?;
        let [root] = &index.manifests[..] else {
            return Err(format!("it has {} images", index.manifests.len()));
        };
        let reference = root.annotations.get(NAME).ok_or("its image has no name")?;
        let name = reference.rsplit('/').next().unwrap_or_default();
        let (name, tag) = name.split_once(':').unwrap_or((name, "latest"));
        let mut image = Self {
            name: name.to_owned(),
            tag: tag.to_owned(),
            digest: root.digest.clone(),
            blobs: Vec::new(),
            manifests: Vec::new(),
        };
        image.add(files, root, 0)?;
        Ok(image)
    }

    fn add(
        &mut self,
        files: &BTreeMap<String, Bytes>,
        descriptor: &Descriptor,
        depth: usize,
    ) -> Result<(), String> {
        let content = blob(files, &descriptor.digest)?;
        let named = parsed(&content)?;
        if depth >= DEEPEST {
            return Err("its indexes are nested".to_owned());
        }
        for manifest in &named.manifests {
            self.add(files, manifest, depth + 1)?;
        }
        for blob_of in named.config.iter().chain(&named.layers) {
            let is_known = self
                .blobs
                .iter()
                .any(|(digest, _)| *digest == blob_of.digest);
            if !is_known {
                let content = blob(files, &blob_of.digest)?;
                self.blobs.push((blob_of.digest.clone(), content));
            }
        }
        self.manifests.push(Manifest {
            digest: descriptor.digest.clone(),
            media_type: descriptor.media_type.clone(),
            content,
        });
        Ok(())
    }
}

fn files(archive: impl std::io::Read) -> std::io::Result<BTreeMap<String, Bytes>> {
    let mut files = BTreeMap::new();
    let mut left = LARGEST;
    for entry in Tar::new(archive).entries()? {
        let entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path()?.to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.take(left + 1).read_to_end(&mut content)?;
        let read = u64::try_from(content.len()).unwrap_or(u64::MAX);
        left = left
            .checked_sub(read)
            .ok_or_else(|| std::io::Error::other("it is larger than 1 GiB"))?;
        let path = path.trim_start_matches("./").to_owned();
        files.insert(path, content.into());
    }
    Ok(files)
}

fn parsed(content: &[u8]) -> Result<ManifestReferences, String> {
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

/// Accepts only digests that are plain file names, because they become part of a registry's URL.
fn blob(files: &BTreeMap<String, Bytes>, digest: &str) -> Result<Bytes, String> {
    let is_hex = |hex: &str| !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = digest.split_once(':');
    let (algorithm, hex) = hash
        .filter(|(algorithm, hex)| ["sha256", "sha512"].contains(algorithm) && is_hex(hex))
        .ok_or_else(|| format!("`{}` is no digest", digest.escape_debug()))?;
    let content = files.get(&format!("{BLOBS}{algorithm}/{hex}"));
    content
        .cloned()
        .ok_or_else(|| format!("blob `{digest}` is missing"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn archive(files: &[(&str, Value)]) -> BTreeMap<String, Bytes> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let content = content.to_string();
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            builder
                .append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        super::files(&*builder.into_inner().unwrap()).unwrap()
    }

    fn descriptor(digest: &str) -> Value {
        json!({"mediaType": "m", "digest": format!("sha256:{digest}"), "size": 1})
    }

    fn root(digest: &str) -> Value {
        let mut root = descriptor(digest);
        root["annotations"] = json!({NAME: "registry.example.com/globalps-hub:1.2"});
        json!({"manifests": [root]})
    }

    fn manifest(config: &str, layer: &str) -> Value {
        json!({"config": descriptor(config), "layers": [descriptor(layer)]})
    }

    #[test]
    fn manifests_come_after_what_they_name_and_each_blob_once() {
        let files = archive(&[
            ("./index.json", root("aa")),
            (
                "blobs/sha256/aa",
                json!({"manifests": [descriptor("b1"), descriptor("b2")]}),
            ),
            ("blobs/sha256/b1", manifest("c1", "dd")),
            ("blobs/sha256/b2", manifest("c2", "dd")),
            ("blobs/sha256/c1", json!(1)),
            ("blobs/sha256/c2", json!(2)),
            ("blobs/sha256/dd", json!(3)),
        ]);
        let image = ImageArchive::of(&files).unwrap();
        let order = image.manifests.iter().map(|it| it.digest.as_str());
        assert_eq!(
            order.collect::<Vec<_>>(),
            ["sha256:b1", "sha256:b2", "sha256:aa"]
        );
        let blobs = image.blobs.iter().map(|(digest, _)| digest.as_str());
        assert_eq!(
            blobs.collect::<Vec<_>>(),
            ["sha256:c1", "sha256:dd", "sha256:c2"]
        );
        assert_eq!((&*image.name, &*image.tag), ("globalps-hub", "1.2"));
        assert_eq!(image.digest, "sha256:aa");
    }

    #[test]
    fn what_is_no_image_is_refused_with_the_reason() {
        let nested = json!({"manifests": [descriptor("aa")]});
        for (files, why) in [
            (vec![], "no `index.json`"),
            (vec![("index.json", json!({"manifests": []}))], "0 images"),
            (
                vec![("index.json", json!({"manifests": [descriptor("aa")]}))],
                "no name",
            ),
            (vec![("index.json", root("aa"))], "`sha256:aa` is missing"),
            (vec![("index.json", root("../aa"))], "is no digest"),
            (
                vec![("index.json", root("aa")), ("blobs/sha256/aa", nested)],
                "nested",
            ),
        ] {
            let error = ImageArchive::of(&archive(&files)).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
