//! The Helm charts of a release: the files of `charts`, with the images of the release by digest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::release::dist::archive;
use crate::run::text;

/// The charts' names.
pub const CHARTS: [&str; 2] = ["globalps-crds", "globalps"];

/// Name of the archive. `version`: without `v`.
pub fn name(chart: &str, version: &str) -> String {
    format!("{chart}-{version}.tgz")
}

/// The archive of a chart in a tree of git. `digests`: of the images, by name.
pub fn package(
    source: &Path,
    chart: &str,
    registry: &str,
    digests: &BTreeMap<&str, String>,
) -> Result<Vec<u8>> {
    // Only files of the commit, even if git ignores others.
    let listed = text(
        Command::new("git")
            .args(["ls-files", &format!("charts/{chart}")])
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
    ensure!(!files.is_empty(), "git knows no file of `charts/{chart}`");
    let files = files.iter();
    let files: Vec<(&str, u32, &[u8])> = files
        .map(|(name, content)| (*name, 0o644, content.as_slice()))
        .collect();
    archive(&files)
}

/// The values with these images. The comments stay.
fn values(text: &str, registry: &str, digests: &BTreeMap<&str, String>) -> Result<String> {
    let of_registry = ("registry: \"\"".to_owned(), format!("registry: {registry}"));
    let of_images = digests.iter().map(|(name, digest)| {
        let name = name.trim_start_matches("globalps-");
        let image =
            |digest: &str| format!("{name}: {{repository: \"\", tag: \"\", digest: \"{digest}\"}}");
        (image(""), image(digest))
    });
    let mut text = text.to_owned();
    for (from, to) in [of_registry].into_iter().chain(of_images) {
        let (before, after) = text
            .split_once(&from)
            .with_context(|| format!("the chart's values.yaml does not contain `{from}`"))?;
        text = format!("{before}{to}{after}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_images_by_digest_and_unknown_ones_are_errors() {
        let text =
            "# Images\nregistry: \"\"\ncontroller: {repository: \"\", tag: \"\", digest: \"\"}\n";
        let digests = |name| [(name, "sha256:aa".to_owned())].into();
        assert_eq!(
            values(text, "example.com/x", &digests("globalps-controller")).unwrap(),
            "# Images\nregistry: example.com/x\ncontroller: {repository: \"\", tag: \"\", digest: \"sha256:aa\"}\n"
        );
        let error = values(text, "example.com/x", &digests("globalps-other")).unwrap_err();
        assert!(error.to_string().contains("other: {repository"), "{error}");
    }
}
