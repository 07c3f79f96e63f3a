//! OCI image archives with static programs; the same input gives the same bytes.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The images of globalps: entrypoint, user, and the program beside it.
#[rustfmt::skip]
pub const IMAGES: [(&str, &str, Option<&str>); 3] = [
    ("globalps-controller", "65532:65532", None),
    (HUB, "65532:65532", None),
    ("globalps-syncer", "0:0", Some("globalps-credential-provider")),
];
const HUB: &str = "globalps-hub";

/// Content of an image.
pub struct Image<'a> {
    /// A static ELF program; its header determines the architecture.
    pub binary: &'a Path,
    /// File name of the program in the image: `/NAME` is the entrypoint.
    pub name: &'a str,
    /// Additional programs, under their own file names.
    pub beside: &'a [PathBuf],
    /// `UID:GID`.
    pub user: &'a str,
    /// Name and tag of the image in the archive's index.
    pub reference: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Digest of the image's manifest or index, `sha256:` and hex.
    pub digest: String,
    /// Size of indexes, manifests, configurations and layers together, as in a registry.
    pub size: u64,
}

/// Writes the image as a tar of an OCI image layout, through a temporary file in the same directory.
pub fn write(image: &Image, output: &Path) -> Result<Written> {
    let (archive, written) = archive(image, &programs(image)?)
        .with_context(|| format!("could not make an image of `{}`", image.binary.display()))?;
    persist(&archive, output)?;
    Ok(written)
}

/// Writes an archive of each image of globalps to `output`, from the programs in the directory `programs`. An older release has no hub and
/// no program beside the syncer.
pub fn write_all(programs: &Path, output: &Path) -> Result<()> {
    for (name, user, beside) in IMAGES {
        let binary = programs.join(name);
        if name == HUB && !binary.exists() {
            continue;
        }
        let beside = beside.map(|name| programs.join(name));
        let beside = beside.filter(|path| path.exists());
        let reference = format!("{name}:latest");
        let image = Image {
            binary: &binary,
            name,
            beside: beside.as_slice(),
            user,
            reference: &reference,
        };
        let written = write(&image, &output.join(format!("{name}.tar")))?;
        println!("{} {}", written.digest, written.size);
    }
    Ok(())
}

/// Writes one image for several architectures: the archive's index refers to an image index, and that to an image for each. `images`: one
/// for each architecture. The digest is that of the image index.
pub fn write_index(images: &[Image], output: &Path) -> Result<Written> {
    let programs = images.iter().map(programs).collect::<Result<Vec<_>>>()?;
    let each: Vec<_> = images.iter().zip(&programs).collect();
    let (archive, written) = index_archive(&each)
        .with_context(|| format!("could not make the image `{}`", output.display()))?;
    persist(&archive, output)?;
    Ok(written)
}

/// Programs of an image by name, the entrypoint first.
type Programs<'a> = Vec<(&'a str, Vec<u8>)>;

fn programs<'a>(image: &Image<'a>) -> Result<Programs<'a>> {
    let read = |path: &Path| {
        fs::read(path).with_context(|| format!("could not read `{}`", path.display()))
    };
    let mut programs = vec![(image.name, read(image.binary)?)];
    for path in image.beside {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("`{}` has no name", path.display()))?;
        programs.push((name, read(path)?));
    }
    Ok(programs)
}

fn persist(archive: &[u8], output: &Path) -> Result<()> {
    let directory = output.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let temporary = tempfile::NamedTempFile::new_in(directory)?;
    fs::write(&temporary, archive)?;
    temporary
        .persist(output)
        .with_context(|| format!("could not write `{}`", output.display()))?;
    Ok(())
}

fn archive(image: &Image, programs: &[(&str, Vec<u8>)]) -> Result<(Vec<u8>, Written)> {
    let (blobs, _) = blobs(image, programs)?;
    layout(blobs.into(), image.reference)
}

fn index_archive(images: &[(&Image, &Programs)]) -> Result<(Vec<u8>, Written)> {
    let (mut all, mut entries, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for (image, programs) in images {
        let (blobs, architecture) = blobs(image, programs)?;
        if seen.contains(&architecture) {
            bail!("two of its images are for {architecture}");
        }
        seen.push(architecture);
        let [.., manifest] = &blobs;
        let mut entry = manifest.descriptor();
        entry["platform"] = json!({"architecture": architecture, "os": "linux"});
        entries.push(entry);
        all.extend(blobs);
    }
    let reference = images.first().context("no architecture")?.0.reference;
    let index = json!({"manifests": entries, "mediaType": INDEX, "schemaVersion": 2});
    all.push(Blob::new(INDEX, index.to_string().into_bytes()));
    layout(all, reference)
}

/// Configuration, layer and manifest of an image, in this order, and its architecture.
fn blobs(image: &Image, programs: &[(&str, Vec<u8>)]) -> Result<([Blob; 3], &'static str)> {
    let mut files = Vec::new();
    let mut architectures = Vec::new();
    for (name, program) in programs {
        files.push((*name, EntryType::Regular, 0o555, program.as_slice()));
        architectures.push(architecture(program).with_context(|| format!("`{name}`"))?);
    }
    architectures.dedup();
    let [architecture] = architectures[..] else {
        bail!("its programs have different architectures: {architectures:?}");
    };
    let layer = tar_of(&files)?;
    // Keys are in alphabetical order, because some builds of serde_json keep the order of the source.
    let config = Blob::new(
        CONFIG,
        json!({
            "architecture": architecture,
            "config": {"Entrypoint": [format!("/{}", image.name)], "User": image.user, "WorkingDir": "/"},
            "created": "1970-01-01T00:00:00Z",
            "os": "linux",
            "rootfs": {"diff_ids": [digest(&layer)], "type": "layers"},
        })
        .to_string()
        .into_bytes(),
    );
    let layer = Blob::new(LAYER, layer);
    let manifest = Blob::new(
        MANIFEST,
        json!({
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
            "mediaType": MANIFEST,
            "schemaVersion": 2,
        })
        .to_string()
        .into_bytes(),
    );
    Ok(([config, layer, manifest], architecture))
}

/// A tar of an image layout whose index refers to the last blob.
fn layout(blobs: Vec<Blob>, reference: &str) -> Result<(Vec<u8>, Written)> {
    let root = blobs.last().context("no blob")?;
    let mut entry = root.descriptor();
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": reference});
    let index = json!({"manifests": [entry], "mediaType": INDEX, "schemaVersion": 2}).to_string();
    let written = Written {
        digest: root.digest.clone(),
        size: blobs.iter().map(|blob| blob.content.len() as u64).sum(),
    };
    let blobs: Vec<_> = blobs
        .into_iter()
        .map(|blob| (blob.path(), blob.content))
        .collect();
    let mut entries = vec![
        ("blobs/", EntryType::Directory, 0o755, &[][..]),
        ("blobs/sha256/", EntryType::Directory, 0o755, &[][..]),
    ];
    for (path, content) in &blobs {
        entries.push((path, EntryType::Regular, 0o444, content));
    }
    entries.push(("index.json", EntryType::Regular, 0o444, index.as_bytes()));
    let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string();
    entries.push(("oci-layout", EntryType::Regular, 0o444, layout.as_bytes()));
    Ok((tar_of(&entries)?, written))
}

struct Blob {
    kind: &'static str,
    content: Vec<u8>,
    digest: String,
}

impl Blob {
    fn new(kind: &'static str, content: Vec<u8>) -> Self {
        let digest = digest(&content);
        Self {
            kind,
            content,
            digest,
        }
    }

    fn descriptor(&self) -> Value {
        json!({"digest": self.digest, "mediaType": self.kind, "size": self.content.len()})
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .fold("sha256:".to_owned(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// A tar whose entries belong to root and have the epoch as their time.
fn tar_of(entries: &[(&str, EntryType, u32, &[u8])]) -> Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (path, kind, mode, content) in entries {
        let mut header = Header::new_ustar();
        header.set_path(path)?;
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content)?;
    }
    Ok(builder.into_inner()?)
}

/// The OCI name of the architecture in the program's ELF header.
fn architecture(program: &[u8]) -> Result<&'static str> {
    if !program.starts_with(b"\x7fELF") || program.len() < 20 {
        bail!("it is not an ELF program");
    }
    match u16::from_le_bytes([program[18], program[19]]) {
        62 => Ok("amd64"),
        183 => Ok("arm64"),
        other => bail!("no image architecture for machine type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn program(machine: u8, body: &str) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
        elf.extend([machine, 0]);
        elf.extend(body.as_bytes());
        elf
    }

    fn one(name: &'static str, program: Vec<u8>) -> [(&'static str, Vec<u8>); 1] {
        [(name, program)]
    }

    fn image<'a>(name: &'a str, user: &'a str) -> Image<'a> {
        Image {
            binary: Path::new("unused"),
            name,
            beside: &[],
            user,
            reference: "app:1",
        }
    }

    fn files(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        tar::Archive::new(archive)
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                assert_eq!(entry.header().mtime().unwrap(), 0);
                assert_eq!(entry.header().uid().unwrap(), 0);
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().display().to_string(), content)
            })
            .collect()
    }

    #[test]
    fn equal_input_gives_equal_bytes_and_other_input_another_digest() {
        let base = archive(&image("app", "0:0"), &one("app", program(62, "x"))).unwrap();
        assert_eq!(
            base,
            archive(&image("app", "0:0"), &one("app", program(62, "x"))).unwrap()
        );
        #[rustfmt::skip]
        let cases = [
            ("program", archive(&image("app", "0:0"), &one("app", program(62, "y")))),
            ("user", archive(&image("app", "1:1"), &one("app", program(62, "x")))),
            ("name", archive(&image("ape", "0:0"), &one("ape", program(62, "x")))),
            ("architecture", archive(&image("app", "0:0"), &one("app", program(183, "x")))),
        ];
        for (case, other) in cases {
            assert_ne!(base.1.digest, other.unwrap().1.digest, "{case}");
        }
    }

    #[test]
    fn every_descriptor_leads_to_a_blob_of_that_digest_and_size() {
        let (bytes, written) =
            archive(&image("app", "65532:65532"), &one("app", program(62, "x"))).unwrap();
        let files = files(&bytes);
        let blob = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().unwrap();
            let path = format!("blobs/{}", name.replace(':', "/"));
            let content = &files.iter().find(|(p, _)| *p == path).unwrap().1;
            assert_eq!(digest(content), name);
            assert_eq!(descriptor["size"], content.len());
            content.clone()
        };
        let index = &files.iter().find(|(p, _)| p == "index.json").unwrap().1;
        let index: Value = serde_json::from_slice(index).unwrap();
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], written.digest);
        assert_eq!(
            entry["annotations"]["org.opencontainers.image.ref.name"],
            "app:1"
        );
        let manifest: Value = serde_json::from_slice(&blob(entry)).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/app"]));
        assert_eq!(config["architecture"], "amd64");
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        let inside: Vec<_> = tar::Archive::new(&layer[..])
            .entries()
            .unwrap()
            .map(|e| {
                let e = e.unwrap();
                (
                    e.path().unwrap().display().to_string(),
                    e.header().mode().unwrap(),
                )
            })
            .collect();
        assert_eq!(inside, [("app".to_owned(), 0o555)]);
    }

    #[test]
    fn other_programs_lie_beside_the_entrypoint_and_match_its_arch() {
        let both = |machine| [("app", program(62, "x")), ("other", program(machine, "y"))];
        let (bytes, written) = archive(&image("app", "0:0"), &both(62)).unwrap();
        let alone = archive(&image("app", "0:0"), &both(62)[..1]).unwrap();
        assert_ne!(written.digest, alone.1.digest);
        let layers = files(&bytes).into_iter().filter_map(|(_, content)| {
            let mut archive = tar::Archive::new(&content[..]);
            let names = archive.entries().ok()?.map(|entry| {
                let entry = entry.ok()?;
                Some((
                    entry.path().ok()?.display().to_string(),
                    entry.header().mode().ok()?,
                ))
            });
            names
                .collect::<Option<Vec<_>>>()
                .filter(|names| !names.is_empty())
        });
        let expected = [("app".to_owned(), 0o555), ("other".to_owned(), 0o555)];
        assert_eq!(layers.collect::<Vec<_>>(), [expected]);
        assert!(archive(&image("app", "0:0"), &both(183)).is_err());
    }

    #[test]
    fn one_index_leads_to_the_image_of_each_architecture() {
        let image = image("app", "0:0");
        let (amd64, arm64) = (
            vec![("app", program(62, "x"))],
            vec![("app", program(183, "y"))],
        );
        let (bytes, written) = index_archive(&[(&image, &amd64), (&image, &arm64)]).unwrap();
        let files = files(&bytes);
        let json = |path: &str| -> Value {
            let (_, content) = files.iter().find(|(p, _)| p == path).unwrap();
            serde_json::from_slice(content).unwrap()
        };
        let blob = |entry: &Value| {
            let digest = entry["digest"].as_str().unwrap();
            json(&format!("blobs/{}", digest.replace(':', "/")))
        };
        let outer = json("index.json");
        assert_eq!(outer["manifests"].as_array().unwrap().len(), 1);
        let entry = &outer["manifests"][0];
        assert_eq!(entry["mediaType"], INDEX);
        assert_eq!(entry["digest"], written.digest);
        let inner = blob(entry);
        let platforms = inner["manifests"].as_array().unwrap().iter().map(|entry| {
            let config = blob(&blob(entry)["config"]);
            assert_eq!(config["architecture"], entry["platform"]["architecture"]);
            entry["platform"].clone()
        });
        let expected = ["amd64", "arm64"].map(|name| json!({"architecture": name, "os": "linux"}));
        assert_eq!(platforms.collect::<Vec<_>>(), expected);
        let single = archive(&image, &amd64).unwrap().1.digest;
        assert_eq!(inner["manifests"][0]["digest"], single);
        assert!(index_archive(&[(&image, &amd64), (&image, &amd64)]).is_err());
    }

    #[test]
    fn an_older_release_has_neither_the_hub_nor_a_program_beside_the_syncer() {
        let directory = tempfile::tempdir().unwrap();
        let (programs, output) = (directory.path().join("in"), directory.path().join("out"));
        fs::create_dir(&programs).unwrap();
        let mut written = Vec::new();
        for built in ["globalps-controller", "globalps-syncer", "globalps-hub"] {
            fs::write(programs.join(built), program(62, built)).unwrap();
            let all = write_all(&programs, &output);
            let archives = fs::read_dir(&output).unwrap().count();
            written.push((all.is_ok(), archives));
        }
        assert_eq!(written, [(false, 1), (true, 2), (true, 3)]);
        let syncer = || fs::read(output.join("globalps-syncer.tar")).unwrap();
        let alone = syncer();
        let provider = programs.join("globalps-credential-provider");
        fs::write(provider, program(62, "x")).unwrap();
        write_all(&programs, &output).unwrap();
        assert_ne!(syncer(), alone);
    }

    #[test]
    fn what_is_no_program_of_a_known_machine_is_refused() {
        for (case, content) in [
            ("script", b"#!/bin/sh\n".to_vec()),
            ("empty", Vec::new()),
            ("other machine", program(3, "")),
        ] {
            assert!(
                archive(&image("app", "0:0"), &one("app", content)).is_err(),
                "{case}"
            );
        }
    }
}
