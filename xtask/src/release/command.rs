//! Builds a release, and shows that another clone gives the same bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use globalps_testkit::kubernetes;

use super::{Cosign, Release, differences, files, platforms, plugin};

#[derive(Subcommand)]
pub enum Action {
    /// Build images, plugin, manifests, SBOMs, provenance and checksums, and sign them
    Build {
        #[command(flatten)]
        what: What,
        /// Private key of cosign: a file, or a URI such as `env://NAME`. Its password is in COSIGN_PASSWORD. Without it nothing is signed
        #[arg(long, env)]
        key: Option<String>,
    },
    /// Build two clones in different directories and compare every file; sign one with a new key, verify it, and show that a changed byte
    /// breaks each signature
    Check {
        #[command(flatten)]
        what: What,
        /// Directory for the clones, outside this tree, because cargo reads the configuration of every parent directory. It is kept, and
        /// another check with it takes less time [default: a temporary one]
        #[arg(long, env = "CLONES")]
        directory: Option<PathBuf>,
    },
}

#[derive(Args)]
pub struct What {
    /// Version, as in Cargo.toml
    #[arg(long, env, default_value = "")]
    version: String,
    /// Registry and path of the images
    #[arg(long, env, default_value = "ghcr.io/globalps")]
    registry: String,
    /// URI of the builder in the provenance
    #[arg(long, env)]
    builder: Option<String>,
    /// Build for these platforms only, such as `linux/amd64`; several with spaces
    #[arg(long, env = "PLATFORMS", value_delimiter = ' ')]
    platform: Vec<String>,
}

impl What {
    fn of(&self, source: PathBuf) -> Result<Release> {
        let has_apple_sdk = plugin::has_apple_sdk();
        let (platforms, left) = platforms(&self.platform, has_apple_sdk)?;
        for name in left {
            let why = if name.starts_with("darwin") && !has_apple_sdk {
                ": set SDKROOT to the directory of Apple's SDK"
            } else {
                ""
            };
            eprintln!("not built for {name}{why}");
        }
        Ok(Release {
            source: source.canonicalize()?,
            version: self.version.trim_start_matches('v').to_owned(),
            registry: self.registry.clone(),
            builder: self.builder.clone(),
            platforms,
        })
    }

    fn directory(&self) -> String {
        format!("target/release-{}", self.version.trim_start_matches('v'))
    }
}

/// Builds it, or shows that another clone gives the same bytes.
pub fn run(action: Action) -> Result<()> {
    match action {
        Action::Build { what, key } => build(&what, key.as_deref()),
        Action::Check { what, directory } => check(&what, directory),
    }
}

fn cosign(is_test: bool) -> Result<Cosign> {
    let program = kubernetes::build_cosign()?;
    Ok(Cosign { program, is_test })
}

fn build(what: &What, key: Option<&str>) -> Result<()> {
    let output = PathBuf::from(what.directory());
    what.of(PathBuf::from("."))?.build(&output)?;
    if let Some(key) = key {
        let signed = cosign(false)?.sign(&output, key)?;
        eprintln!("signed: {} files", signed.len());
    } else {
        eprintln!("not signed: set KEY to cosign's private key");
    }
    list(&output)
}

fn check(what: &What, directory: Option<PathBuf>) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let root = directory.unwrap_or_else(|| temporary.path().to_owned());
    let here = std::env::current_dir()?;
    // Both clones have the same commit, even if another commit is made while the first one is built.
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output()?;
    ensure!(head.status.success(), "`{}` has no commit", here.display());
    let commit = String::from_utf8(head.stdout)?;
    let mut outputs = Vec::new();
    for place in ["one", "another/place"] {
        let clone = root.join(place);
        let mut clone_or_update = Command::new("sh");
        clone_or_update.args([
            "-ec",
            "test -d \"$2\" || git clone --quiet \"$1\" \"$2\"; cd \"$2\"; git fetch --quiet \"$1\" HEAD; git reset --quiet --hard \"$3\"",
            "sh",
        ]);
        let clone_or_update = clone_or_update.arg(&here).arg(&clone).arg(commit.trim());
        let status = clone_or_update.status()?;
        ensure!(status.success(), "could not clone to `{}`", clone.display());
        let output = clone.join(what.directory());
        what.of(clone)?.build(&output)?;
        outputs.push(output);
    }
    let different = differences(&outputs[0], &outputs[1])?;
    ensure!(
        different.is_empty(),
        "the clones differ:\n{}",
        different.join("\n")
    );
    let number = files(&outputs[0])?.len();
    eprintln!("two clones give the same {number} files");
    let (cosign, keys) = (cosign(true)?, tempfile::tempdir()?);
    let key = cosign.make_key(keys.path())?;
    let key = key.to_str().context("a path that is not UTF-8")?;
    cosign.sign(&outputs[0], key)?;
    let verified = cosign.prove(&outputs[0], &outputs[0].join("cosign.pub"))?;
    eprintln!("{verified} signatures are valid, and a changed byte breaks each of them");
    list(&outputs[0])
}

/// Prints each file with its size.
fn list(directory: &Path) -> Result<()> {
    for name in files(directory)? {
        let size = fs::metadata(directory.join(&name))?.len();
        println!("{size:>10} {}", directory.join(name).display());
    }
    Ok(())
}
