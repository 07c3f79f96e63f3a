//! The Helm chart of a release: the files of `charts/globalps`, with the images of the release by digest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::run::text;
use crate::dist::archive;

const CHART: &str = "charts/globalps";

/// Name of the archive. `version`: without `v`.
pub fn name(version: &str) -> String {
    format!("globalps-{version}.tgz")
}

/// The archive of the chart in a tree of git. `digests`: of the images, by name.
pub fn package(source: &Path, registry: &str, digests: &BTreeMap<&str, String>) -> Result<Vec<u8>> {
    // Only files of the commit, also where others are ignored by git.
    let listed = text(
        Command::new("git")
            .args(["ls-files", CHART])
            .current_dir(source),
    )?;
    let mut files = Vec::new();
    for path in listed.lines() {
        let mut content = fs::read(source.join(path))?;
        let name = path.trim_start_matches("charts/");
        if name == "globalps/values.yaml" {
            content = values(&String::from_utf8(content)?, registry, digests)?.into_bytes();
        }
        files.push((name, content));
    }
    ensure!(!files.is_empty(), "git knows no file of `{CHART}`");
    let files = files.iter();
    let files: Vec<(&str, u32, &[u8])> = files
        .map(|(name, content)| (*name, 0o644, content.as_slice()))
        .collect();
    archive(&files)
}

/// The values with these images. The comments stay.
fn values(text: &str, registry: &str, digests: &BTreeMap<&str, String>) -> Result<String> {
    let mut text = text.to_owned();
    for (name, digest) in digests {
        let from = format!("{{repository: {name}, tag: \"\", digest: \"\"}}");
        let to = format!("{{repository: {registry}/{name}, tag: \"\", digest: \"{digest}\"}}");
        let (before, after) = text
            .split_once(&from)
            .with_context(|| format!("`{CHART}/values.yaml` does not contain `{from}`"))?;
        text = format!("{before}{to}{after}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_each_image_by_digest_and_an_unknown_image_is_an_error() {
        let text =
            "# Images\ncontroller: {repository: globalps-controller, tag: \"\", digest: \"\"}\n";
        let digests = |name| [(name, "sha256:aa".to_owned())].into();
        assert_eq!(
            values(text, "example.com/x", &digests("globalps-controller")).unwrap(),
            "# Images\ncontroller: {repository: example.com/x/globalps-controller, tag: \"\", digest: \"sha256:aa\"}\n"
        );
        let error = values(text, "example.com/x", &digests("globalps-other")).unwrap_err();
        assert!(error.to_string().contains("globalps-other"), "{error}");
    }
}
