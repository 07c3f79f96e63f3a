//! Signatures by cosign, with a key and without a transparency log.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::PROVENANCE;
use crate::run::{output, quiet};

/// Ending of a file with the signature of another.
pub const SIGNATURE: &str = ".sigstore.json";
/// The provenance statement in a signed envelope.
pub const ATTESTATION: &str = "provenance.sigstore.json";
/// Checksums of all files that are not signatures.
pub const SUMS: &str = "SHA256SUMS";

/// cosign. It reads the key's password from the variable `COSIGN_PASSWORD`.
#[derive(Clone, Debug)]
pub struct Cosign {
    pub program: PathBuf,
    /// The key was made by [`Cosign::make_key`], without a password.
    pub is_test: bool,
}

/// Whether a file of a release gets its own signature: everything that people run or install, and the checksums, which cover the rest.
pub fn is_signed(name: &str) -> bool {
    name == SUMS || name.ends_with(".tar") || name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

impl Cosign {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        if self.is_test {
            command.env("COSIGN_PASSWORD", "");
        }
        command
    }

    /// Makes a key pair: `cosign.key` and `cosign.pub` in `directory`.
    pub fn make_key(&self, directory: &Path) -> Result<PathBuf> {
        let mut command = self.command(&["generate-key-pair"]);
        quiet(command.current_dir(directory))?;
        Ok(directory.join("cosign.key"))
    }

    /// Signs the files in `directory`. `key`: a file, or a URI that cosign knows, such as `env://NAME`. Returns the names of the signed
    /// files.
    pub fn sign(&self, directory: &Path, key: &str) -> Result<BTreeSet<String>> {
        let temporary = tempfile::tempdir()?;
        // Without services and their certificates. Otherwise cosign would fetch both, and use the public transparency log.
        let (services, trusted) = (
            temporary.path().join("services.json"),
            temporary.path().join("trusted.json"),
        );
        for (kind, file) in [("signing-config", &services), ("trusted-root", &trusted)] {
            quiet(self.command(&[kind, "create", "--out"]).arg(file))?;
        }
        let command = |action: &str, bundle: &str| {
            let mut command = self.command(&[action, "--yes", "--key", key, "--signing-config"]);
            command.arg(&services).arg("--trusted-root").arg(&trusted);
            command.arg("--bundle").arg(directory.join(bundle));
            command
        };
        let mut signed = BTreeSet::new();
        for name in names(directory)?.into_iter().filter(|name| is_signed(name)) {
            let mut sign = command("sign-blob", &format!("{name}{SIGNATURE}"));
            quiet(sign.arg(directory.join(&name)))
                .with_context(|| format!("could not sign `{name}`"))?;
            signed.insert(name);
        }
        let mut attest = command("attest-blob", ATTESTATION);
        attest.arg("--statement").arg(directory.join(PROVENANCE));
        quiet(&mut attest).context("could not sign the provenance statement")?;
        let mut public = self.command(&["public-key", "--key", key]);
        fs::write(directory.join("cosign.pub"), output(&mut public)?)?;
        Ok(signed)
    }

    /// Verifies the signature of a file, as `docs/releasing.md` shows. `key`: the public key.
    pub fn verify(&self, file: &Path, signature: &Path, key: &Path) -> Result<()> {
        let mut verify = self.command(&["verify-blob", "--insecure-ignore-tlog", "--key"]);
        verify.arg(key).arg("--bundle").arg(signature);
        quiet(verify.arg(file))
    }

    /// Verifies that the signed provenance statement is about a file.
    pub fn verify_provenance(&self, file: &Path, attestation: &Path, key: &Path) -> Result<()> {
        let mut verify = self.command(&[
            "verify-blob-attestation",
            "--insecure-ignore-tlog",
            "--type=slsaprovenance1",
            "--key",
        ]);
        verify.arg(key).arg("--bundle").arg(attestation);
        quiet(verify.arg(file))
    }

    /// Verifies each signed file, and shows that a changed byte breaks both its signature and its provenance. Returns the number of files.
    pub fn prove(&self, directory: &Path, key: &Path) -> Result<usize> {
        let temporary = tempfile::tempdir()?;
        let signed = names(directory)?
            .into_iter()
            .filter(|name| is_signed(name))
            .collect::<Vec<_>>();
        let attestation = directory.join(ATTESTATION);
        for name in &signed {
            let (file, changed) = (directory.join(name), temporary.path().join(name));
            let signature = directory.join(format!("{name}{SIGNATURE}"));
            self.verify(&file, &signature, key)
                .with_context(|| format!("the signature of `{name}`"))?;
            let mut content = fs::read(&file)?;
            let middle = content.len() / 2;
            let byte = content.get_mut(middle).context("an empty file")?;
            *byte ^= 1;
            fs::write(&changed, content)?;
            ensure!(
                self.verify(&changed, &signature, key).is_err(),
                "`{name}` has a changed byte, and its signature is still accepted"
            );
            // The statement is older than the checksums, which contain its own.
            if name != SUMS {
                self.verify_provenance(&file, &attestation, key)
                    .with_context(|| format!("the provenance of `{name}`"))?;
                ensure!(
                    self.verify_provenance(&changed, &attestation, key).is_err(),
                    "`{name}` has a changed byte, and its provenance is still accepted"
                );
            }
            fs::remove_file(changed)?;
        }
        ensure!(!signed.is_empty(), "nothing is signed");
        Ok(signed.len())
    }
}

/// Names of the files in a directory, sorted.
pub fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)
        .with_context(|| format!("could not read `{}`", directory.display()))?
    {
        let name = entry?.file_name().into_string();
        names.push(name.ok().context("a file name that is not UTF-8")?);
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_run_and_the_checksums_are_signed() {
        for name in [
            "SHA256SUMS",
            "globalps-syncer.tar",
            "kubectl-globalps-linux-amd64.tar.gz",
            "globalps-0.1.0.tgz",
        ] {
            assert!(is_signed(name), "{name}");
        }
        for name in ["install.yaml", "globalps-syncer.tar.sigstore.json"] {
            assert!(!is_signed(name), "{name}");
        }
    }
}
