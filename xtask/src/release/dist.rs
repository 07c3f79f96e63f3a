//! Archives of the plugin, one per platform, and the krew manifest that refers to them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use globalps_testkit::kubernetes::workspace;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::plugin;

/// A platform that krew supports, and the Rust target of its program.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    pub os: &'static str,
    pub arch: &'static str,
    pub target: &'static str,
}

pub const PLATFORMS: [Platform; 5] = [
    Platform {
        os: "linux",
        arch: "amd64",
        target: "x86_64-unknown-linux-musl",
    },
    Platform {
        os: "linux",
        arch: "arm64",
        target: "aarch64-unknown-linux-musl",
    },
    Platform {
        os: "darwin",
        arch: "amd64",
        target: "x86_64-apple-darwin",
    },
    Platform {
        os: "darwin",
        arch: "arm64",
        target: "aarch64-apple-darwin",
    },
    Platform {
        os: "windows",
        arch: "amd64",
        target: "x86_64-pc-windows-gnu",
    },
];

impl Platform {
    pub fn program(&self) -> &'static str {
        match self.os {
            "windows" => "kubectl-globalps.exe",
            _ => "kubectl-globalps",
        }
    }

    pub fn archive(&self) -> String {
        format!("kubectl-globalps-{}-{}.tar.gz", self.os, self.arch)
    }

    /// Path of the built program, below cargo's target directory.
    pub(super) fn built(&self, target: &Path) -> PathBuf {
        target
            .join(self.target)
            .join("release")
            .join(self.program())
    }
}

/// The template of the manifest.
pub fn template() -> Result<String> {
    fs::read_to_string(workspace().join(".krew.yaml")).context("could not read `.krew.yaml`")
}

/// Builds the plugin for other platforms below `target`, and writes `target/dist`.
pub fn run(target: &Path) -> Result<()> {
    let output = target.join("dist");
    if output.exists() {
        fs::remove_dir_all(&output)?;
    }
    plugin::build(target)?;
    let written = write(target, &output)?;
    for platform in PLATFORMS {
        let name = platform.archive();
        let is_there = written.contains(&name);
        let word = if is_there { "written" } else { "not built" };
        println!("{name}: {word}");
    }
    Ok(())
}

/// Writes what [`archives`] writes, and `checksums.txt`. Returns the archives' names.
pub fn write(target: &Path, output: &Path) -> Result<Vec<String>> {
    let sums = archives(&PLATFORMS, target, output)?;
    let lines = sums.iter().map(|(name, sum)| format!("{sum}  {name}\n"));
    fs::write(output.join("checksums.txt"), lines.collect::<String>())?;
    Ok(sums.into_keys().collect())
}

/// Writes an archive for each of these platforms whose program was built below `target`, and `globalps.yaml`. Returns the SHA-256 of each
/// archive by name, in hex.
pub fn archives(
    platforms: &[Platform],
    target: &Path,
    output: &Path,
) -> Result<BTreeMap<String, String>> {
    fs::create_dir_all(output)?;
    let license = fs::read(workspace().join("LICENSE"))?;
    let mut sums = BTreeMap::new();
    for platform in platforms {
        let path = platform.built(target);
        let Ok(program) = fs::read(&path) else {
            continue;
        };
        let archive = archive(&[
            (platform.program(), 0o755, &program),
            ("LICENSE", 0o644, &license),
        ])?;
        fs::write(output.join(platform.archive()), &archive)?;
        sums.insert(platform.archive(), sum(&archive));
    }
    ensure!(
        !sums.is_empty(),
        "no program was built below `{}`",
        target.display()
    );
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    let manifest = manifest(&template()?, &version, &sums)?;
    let text = serde_saphyr::to_string(&manifest)?;
    fs::write(output.join("globalps.yaml"), text)?;
    Ok(sums)
}

/// SHA-256 in hex.
pub fn sum(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A reproducible archive of these files: name, mode and content of each.
pub(crate) fn archive(files: &[(&str, u32, &[u8])]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (name, mode, content) in files {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, *content)?;
    }
    let mut gzip = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    gzip.write_all(&tar.into_inner()?)?;
    Ok(gzip.finish()?)
}

/// Fills in the template, with the platforms that have an archive. `sums`: SHA-256 of each archive.
pub fn manifest(template: &str, version: &str, sums: &BTreeMap<String, String>) -> Result<Value> {
    let mut text = String::new();
    for line in template.replace("{{ .TagName }}", version).lines() {
        if let Some((indent, rest)) = line.split_once("{{addURIAndSha \"") {
            let (uri, _) = rest.split_once('"').context("a quoted URI")?;
            let name = uri.rsplit('/').next().unwrap_or_default();
            let sum = sums.get(name).map_or("", String::as_str);
            text.push_str(&format!("{indent}uri: {uri}\n{indent}sha256: \"{sum}\"\n"));
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    let mut manifest: Value = serde_saphyr::from_str(&text).context("the template is not YAML")?;
    let platforms = manifest["spec"]["platforms"]
        .as_array_mut()
        .context("no list of platforms")?;
    platforms.retain(|platform| platform["sha256"] != "");
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_a_build_for_another_platform_are_not_packed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, output) = (
            directory.path().join("target"),
            directory.path().join("out"),
        );
        for platform in &PLATFORMS[..2] {
            let program = platform.built(&target);
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::write(program, "program").unwrap();
        }
        let packed = |platforms: &[Platform]| {
            let sums = archives(platforms, &target, &output).unwrap();
            sums.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(
            packed(&PLATFORMS[..1]),
            ["kubectl-globalps-linux-amd64.tar.gz"]
        );
        assert_eq!(packed(&PLATFORMS).len(), 2);
    }
}
