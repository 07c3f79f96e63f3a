//! `make release`: everything that a release has, from one commit, with the same bytes in every directory.

mod chart;
pub mod command;
mod compare;
pub mod dist;
pub mod krew;
mod materials;
mod plugin;
mod programs;
mod provenance;
mod sbom;
mod sign;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use globalps_core::names::NAMESPACE;
use globalps_manifests::{HubInstall, Manifests, openshift, to_yaml};
use serde_json::Value;

use crate::run::{output, quiet, step, text};
use dist::{PLATFORMS, Platform, sum};
use globalps_testkit::image::{IMAGES, Image, write_index};
use globalps_testkit::preflight;
use programs::{Places, TARGET_DIR, is_native, names, steps};
use sign::SUMS;

use crate::tools;

pub use chart::{CHARTS, name as chart_name, package as chart_package};
pub use compare::differences;
pub use sign::{Cosign, names as files};

/// File with the provenance statement.
pub const PROVENANCE: &str = "provenance.intoto.json";

/// What to build.
#[derive(Debug)]
pub struct Release {
    /// Root of the source.
    pub source: PathBuf,
    /// Version without `v`.
    pub version: String,
    /// Registry and path of the images, such as `ghcr.io/globalps`.
    pub registry: String,
    /// URI of the builder, for the provenance.
    pub builder: Option<String>,
    /// Platforms to build for.
    pub platforms: Vec<Platform>,
}

/// The platforms of these names, such as `linux/amd64`. No names: every platform that this machine can build for. macOS needs Apple's
/// SDK. Also returns the names of the platforms that are left out.
pub fn platforms(chosen: &[String], has_apple_sdk: bool) -> Result<(Vec<Platform>, Vec<String>)> {
    let name = |platform: &Platform| format!("{}/{}", platform.os, platform.arch);
    for chosen in chosen {
        ensure!(
            PLATFORMS.iter().any(|platform| name(platform) == *chosen),
            "`{chosen}` is none of the platforms {}",
            PLATFORMS.map(|platform| name(&platform)).join(", ")
        );
    }
    let (built, left): (Vec<Platform>, Vec<Platform>) =
        PLATFORMS.into_iter().partition(|platform| {
            let is_possible = platform.os != "darwin" || has_apple_sdk;
            is_possible && (chosen.is_empty() || chosen.contains(&name(platform)))
        });
    ensure!(
        built.iter().any(|platform| platform.os == "linux"),
        "no Linux platform is chosen, so there would be no image"
    );
    Ok((built, left.iter().map(name).collect()))
}

impl Release {
    /// Builds everything into `output`, which must not exist or is replaced. Prints each step with its time to standard error.
    pub fn build(&self, output: &Path) -> Result<()> {
        let commit = source::commit(&self.source)?;
        let metadata = self.metadata()?;
        source::check_version(&metadata, &self.version)?;
        if output.exists() {
            fs::remove_dir_all(output)?;
        }
        fs::create_dir_all(output)?;
        let cargo_home = cargo_home()?;
        let places = Places {
            source: &self.source,
            cargo_home: &cargo_home,
        };
        for platform in &self.platforms {
            preflight::install_target(platform.target)?;
        }
        for platform in &self.platforms {
            self.programs(platform, places, &commit.epoch)?;
        }
        let target = self.source.join(TARGET_DIR);
        timed(
            "image archives, plugin archives, manifests and chart",
            || {
                let digests = self.images(&target, output)?;
                self.manifests(&digests, output)?;
                for name in CHARTS {
                    let package = chart::package(&self.source, name, &self.registry, &digests)?;
                    fs::write(output.join(chart::name(name, &self.version)), package)?;
                }
                dist::archives(&self.platforms, &target, output).map(drop)
            },
        )?;
        let lock = fs::read_to_string(self.source.join("Cargo.lock"))?;
        let crates = materials::checksums(&lock);
        let licences = materials::licences(&metadata);
        timed("SBOMs", || {
            for platform in &self.platforms {
                self.sboms(platform, &target, output, &crates, &licences)?;
            }
            Ok(())
        })?;
        timed("arm64 programs under QEMU", || self.emulate(&target))?;
        let symbolic = Places {
            source: Path::new("$SOURCE"),
            cargo_home: Path::new("$CARGO_HOME"),
        };
        let steps = self.platforms.iter();
        let inputs = provenance::Inputs {
            version: self.version.clone(),
            commit: commit.hash,
            builder: self.builder.clone(),
            registry: self.registry.clone(),
            steps: steps
                .flat_map(|platform| steps_of(platform, symbolic, &commit.epoch))
                .collect(),
            tools: Self::versions()?,
            lock: sum(lock.as_bytes()),
            crates,
        };
        let statement = provenance::statement(&inputs, &sums(output)?);
        fs::write(output.join(PROVENANCE), pretty(&statement)?)?;
        let lines = sums(output)?
            .into_iter()
            .map(|(name, sum)| format!("{sum}  {name}\n"));
        Ok(fs::write(output.join(SUMS), lines.collect::<String>())?)
    }

    fn metadata(&self) -> Result<Value> {
        let mut cargo = Command::new("cargo");
        cargo.args(["metadata", "--locked", "--format-version=1"]);
        Ok(serde_json::from_slice(&output(
            cargo.current_dir(&self.source),
        )?)?)
    }

    fn programs(&self, platform: &Platform, places: Places, epoch: &str) -> Result<()> {
        let name = format!("programs for {}/{}", platform.os, platform.arch);
        // A failed build must not leave older programs to be packed.
        for program in names(platform) {
            let _ = fs::remove_file(built(&self.source.join(TARGET_DIR), platform, program));
        }
        timed(&name, || {
            for build in steps_of(platform, places, epoch) {
                let mut cargo = tool("cargo")?;
                cargo.args(build.arguments).envs(build.environment);
                step(cargo.current_dir(&self.source).env_remove("RUSTFLAGS"))?;
            }
            Ok(())
        })
    }

    /// Writes the image archives. Returns the digest of each image by name.
    fn images(&self, target: &Path, output: &Path) -> Result<BTreeMap<&'static str, String>> {
        let linux = self.platforms.iter().filter(|found| found.os == "linux");
        let linux: Vec<&Platform> = linux.collect();
        let mut digests = BTreeMap::new();
        for (name, user, beside) in IMAGES {
            let reference = format!("{}/{name}:{}", self.registry, self.version);
            let paths = |program: &str| -> Vec<PathBuf> {
                let platforms = linux.iter();
                platforms
                    .map(|platform| built(target, platform, program))
                    .collect()
            };
            let binaries = paths(name);
            let beside: Vec<Vec<PathBuf>> = match beside {
                Some(beside) => paths(beside).into_iter().map(|path| vec![path]).collect(),
                None => vec![Vec::new(); linux.len()],
            };
            let images: Vec<Image> = binaries
                .iter()
                .zip(&beside)
                .map(|(binary, beside)| Image {
                    binary,
                    name,
                    beside,
                    user,
                    reference: &reference,
                })
                .collect();
            let written = write_index(&images, &output.join(format!("{name}.tar")))?;
            digests.insert(name, written.digest);
        }
        Ok(digests)
    }

    /// Writes the manifests, with the images' digests.
    fn manifests(&self, digests: &BTreeMap<&str, String>, output: &Path) -> Result<()> {
        let image = |name: &str| format!("{}/{name}@{}", self.registry, digests[name]);
        let (controller, syncer) = (image("globalps-controller"), image("globalps-syncer"));
        let (crds, rest): (Vec<Value>, Vec<Value>) = Manifests::of_images(controller, syncer)
            .objects()
            .into_iter()
            .partition(|object| object["kind"] == "CustomResourceDefinition");
        let hub = HubInstall {
            image: image("globalps-hub"),
            namespaces: Vec::new(),
            trusted_namespaces: Vec::new(),
            shards: 1,
        };
        for (name, objects) in [
            ("crds.yaml", crds),
            ("install.yaml", rest),
            ("hub.yaml", hub.objects()),
            ("openshift.yaml", openshift(NAMESPACE)),
        ] {
            let text = format!("# globalps {}\n{}", self.version, to_yaml(&objects));
            fs::write(output.join(name), text)?;
        }
        Ok(())
    }

    /// Writes the SBOM of each program, which fails unless `cargo auditable` embedded the list of its dependencies.
    fn sboms(
        &self,
        platform: &Platform,
        target: &Path,
        directory: &Path,
        checksums: &BTreeMap<materials::Crate, String>,
        licences: &BTreeMap<materials::Crate, String>,
    ) -> Result<()> {
        for program in names(platform) {
            let mut convert = tool("auditable2cdx")?;
            convert.arg(built(target, platform, program));
            let embedded = serde_json::from_slice(&output(&mut convert)?)?;
            let sbom = sbom::complete(embedded, checksums, licences)
                .with_context(|| format!("the SBOM of {program}"))?;
            let program = program.trim_end_matches(".exe");
            let name = format!("{program}-{}-{}.cdx.json", platform.os, platform.arch);
            fs::write(directory.join(name), pretty(&sbom)?)?;
        }
        Ok(())
    }

    /// Runs each program for arm64 once.
    fn emulate(&self, target: &Path) -> Result<()> {
        let arm64 = self.platforms.iter();
        for platform in arm64.filter(|found| (found.os, found.arch) == ("linux", "arm64")) {
            for program in names(platform) {
                let mut emulated = Command::new("qemu-aarch64-static");
                emulated.arg(built(target, platform, program));
                quiet(emulated.arg("--help")).context(
                    "the arm64 programs run under QEMU once: on Debian, as root, run `apt-get install --yes qemu-user-static`",
                )?;
            }
        }
        Ok(())
    }

    /// Versions of the compilers, linkers and tools that the programs depend on.
    fn versions() -> Result<BTreeMap<String, String>> {
        let mut versions = BTreeMap::new();
        for (name, program, arguments) in [
            ("rustc", "rustc", &["-vV"][..]),
            ("cargo", "cargo", &["-V"]),
            ("musl-gcc", "musl-gcc", &["--version"]),
            ("zig", "python3", &["-m", "ziglang", "version"]),
        ] {
            let version = text(tool(program)?.args(arguments))?;
            let lines = if name == "rustc" { 9 } else { 1 };
            let lines: Vec<&str> = version.lines().take(lines).collect();
            versions.insert(name.to_owned(), lines.join("; "));
        }
        let mut list = tool("cargo")?;
        list.args(["install", "--list", "--root"])
            .arg(tools::directory()?);
        let installed = text(&mut list)?;
        for line in installed.lines().filter_map(|line| line.strip_suffix(':')) {
            if let Some((name, version)) = line.split_once(' ') {
                versions.insert(name.to_owned(), version.to_owned());
            }
        }
        Ok(versions)
    }
}

/// A program that finds the tools of this clone.
fn tool(name: &str) -> Result<Command> {
    let mut command = Command::new(name);
    tools::with_tools(&mut command)?;
    Ok(command)
}

fn steps_of(platform: &Platform, places: Places, epoch: &str) -> Vec<programs::Step> {
    steps(platform, is_native(platform), places, epoch)
}

/// Path of a built program.
fn built(target: &Path, platform: &Platform, program: &str) -> PathBuf {
    target.join(platform.target).join("release").join(program)
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cargo"))
}

/// SHA-256 of each file in a directory, in hex.
fn sums(directory: &Path) -> Result<BTreeMap<String, String>> {
    let names = files(directory)?.into_iter();
    names
        .map(|name| {
            let sum = sum(&fs::read(directory.join(&name))?);
            Ok((name, sum))
        })
        .collect()
}

fn pretty(value: &Value) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

fn timed<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = work().with_context(|| format!("could not build the {name}"))?;
    eprintln!("{name}: {} s", start.elapsed().as_secs());
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_that_need_what_this_machine_lacks_are_named() {
        let names = |platforms: &[Platform]| -> Vec<String> {
            let name = |platform: &Platform| format!("{}/{}", platform.os, platform.arch);
            platforms.iter().map(name).collect()
        };
        let (built, left) = platforms(&[], false).unwrap();
        assert_eq!(
            names(&built),
            ["linux/amd64", "linux/arm64", "windows/amd64"]
        );
        assert_eq!(left, ["darwin/amd64", "darwin/arm64"]);
        assert_eq!(platforms(&[], true).unwrap().1, Vec::<String>::new());
        let (built, left) = platforms(&["linux/amd64".to_owned()], true).unwrap();
        assert_eq!(names(&built), ["linux/amd64"]);
        assert_eq!(left.len(), 4);
        platforms(&["windows/amd64".to_owned()], true).unwrap_err();
        let error = platforms(&["linux/x".to_owned()], true).unwrap_err();
        assert!(error.to_string().contains("linux/arm64"), "{error}");
    }

    #[test]
    fn every_image_of_the_manifests_has_a_digest() {
        let directory = tempfile::tempdir().unwrap();
        let release = Release {
            source: PathBuf::new(),
            version: "1.2.3".to_owned(),
            registry: "example.com/x".to_owned(),
            builder: None,
            platforms: Vec::new(),
        };
        let digests = IMAGES.map(|(name, ..)| (name, format!("sha256:{name}")));
        let output = directory.path();
        release.manifests(&digests.into(), output).unwrap();
        let install = fs::read_to_string(output.join("install.yaml")).unwrap();
        for image in [
            "image: example.com/x/globalps-controller@sha256:globalps-controller",
            "--syncer-image=example.com/x/globalps-syncer@sha256:globalps-syncer",
        ] {
            assert!(install.contains(image), "{image}");
        }
        let hub = fs::read_to_string(output.join("hub.yaml")).unwrap();
        assert!(hub.contains("image: example.com/x/globalps-hub@sha256:globalps-hub"));
        assert!(!files(output).unwrap().contains(&SUMS.to_owned()));
    }
}
