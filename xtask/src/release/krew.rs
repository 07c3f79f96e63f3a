//! krew's rules for a manifest (`krew.googlecontainertools.github.com/v1alpha2`), and how it installs a plugin.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::release::dist::{PLATFORMS, sum};

const API: &str = "krew.googlecontainertools.github.com/v1alpha2";

/// Every rule that the manifest in `file` breaks: rules of krew itself, of its validation tool, and of its index.
pub fn violations(manifest: &Value, file: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, words: &str| {
        if !holds {
            found.push(words.to_owned());
        }
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let only = |value: &Value, known: &[&str]| {
        let fields = value.as_object();
        fields.is_some_and(|fields| fields.keys().all(|key| known.contains(&key.as_str())))
    };
    rule(manifest["apiVersion"] == API, "apiVersion is wrong");
    rule(manifest["kind"] == "Plugin", "kind is not Plugin");
    rule(
        only(manifest, &["apiVersion", "kind", "metadata", "spec"]),
        "a field that krew does not know",
    );
    let name = text(&manifest["metadata"]["name"]);
    rule(
        !name.is_empty() && name.chars().all(is_word),
        "the name has characters other than a-z, 0-9 and -",
    );
    rule(!name.starts_with("kube"), "the name begins with kube");
    rule(
        file == format!("{name}.yaml"),
        "the file is not named after the plugin",
    );
    let spec = &manifest["spec"];
    rule(
        only(
            spec,
            &[
                "version",
                "homepage",
                "shortDescription",
                "description",
                "caveats",
                "platforms",
            ],
        ),
        "a field of spec that krew does not know",
    );
    let short = text(&spec["shortDescription"]);
    rule(
        !short.is_empty() && !short.contains('\n') && short.len() <= 50 && !short.ends_with('.'),
        "shortDescription is not one short line",
    );
    rule(
        is_version(&text(&spec["version"])),
        "version is not vMAJOR.MINOR.PATCH",
    );
    rule(
        text(&spec["homepage"]).starts_with("https://"),
        "there is no homepage",
    );
    let platforms = spec["platforms"].as_array().cloned().unwrap_or_default();
    rule(!platforms.is_empty(), "there is no platform");
    for platform in &platforms {
        rule(
            only(platform, &["uri", "sha256", "selector", "files", "bin"]),
            "a field of a platform that krew does not know",
        );
        let uri = text(&platform["uri"]);
        rule(uri.starts_with("https://"), "uri is not https");
        rule(
            uri.ends_with(".tar.gz") || uri.ends_with(".zip"),
            "uri is neither .tar.gz nor .zip",
        );
        let hex = text(&platform["sha256"]);
        rule(
            hex.len() == 64 && hex.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')),
            "sha256 is not a SHA-256 in hex",
        );
        rule(
            is_inside(&text(&platform["bin"])),
            "bin is not a file of the plugin",
        );
        let files = platform["files"].as_array().cloned().unwrap_or_default();
        rule(!files.is_empty(), "files is empty");
        for file in &files {
            rule(
                only(file, &["from", "to"]),
                "a field of files that krew does not know",
            );
            rule(
                is_inside(&text(&file["from"])),
                "from is not a file of the archive",
            );
            rule(!text(&file["to"]).is_empty(), "to is empty");
        }
        rule(
            files.iter().any(|file| file["from"] == "LICENSE"),
            "there is no LICENSE",
        );
        let windows = matches(&platform["selector"], "windows", "amd64");
        rule(
            text(&platform["bin"]).ends_with(".exe") == windows,
            "bin ends with .exe on Windows only",
        );
        let matched = PLATFORMS
            .iter()
            .filter(|known| matches(&platform["selector"], known.os, known.arch));
        rule(
            matched.count() == 1,
            "a selector does not match one platform",
        );
    }
    for known in PLATFORMS {
        let number = platforms
            .iter()
            .filter(|platform| matches(&platform["selector"], known.os, known.arch))
            .count();
        rule(number <= 1, "two selectors match one platform");
    }
    found
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text
        .strip_prefix('v')
        .unwrap_or_default()
        .split('.')
        .collect();
    let is_number = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    parts.len() == 3 && parts.iter().all(is_number)
}

/// A relative path that stays inside its directory.
fn is_inside(path: &str) -> bool {
    let parts = Path::new(path).components();
    !path.is_empty()
        && parts
            .into_iter()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// Whether all labels in the selector match. A selector without labels matches nothing.
fn matches(selector: &Value, os: &str, arch: &str) -> bool {
    let labels = selector["matchLabels"].as_object();
    labels.is_some_and(|labels| {
        !labels.is_empty()
            && labels.iter().all(|(name, value)| match name.as_str() {
                "os" => value == os,
                "arch" => value == arch,
                _ => false,
            })
    })
}

/// Installs the plugin for a platform below `home`, as krew does: checks and unpacks the archive, moves files according
/// to `files`, and links the program. `archive` replaces the download. Returns the directory for `PATH`.
pub fn install(
    manifest: &Value,
    (os, arch): (&str, &str),
    archive: &Path,
    home: &Path,
) -> Result<PathBuf> {
    let platforms = manifest["spec"]["platforms"].as_array();
    let platform = platforms
        .into_iter()
        .flatten()
        .find(|platform| matches(&platform["selector"], os, arch))
        .with_context(|| format!("nothing for {os}/{arch}"))?;
    let bytes = fs::read(archive)?;
    ensure!(platform["sha256"] == sum(&bytes).as_str(), "another sha256");
    let name = manifest["metadata"]["name"].as_str().context("a name")?;
    let version = manifest["spec"]["version"].as_str().context("a version")?;
    let (unpacked, store) = (
        home.join("unpacked"),
        home.join("store").join(name).join(version),
    );
    tar::Archive::new(GzDecoder::new(bytes.as_slice())).unpack(&unpacked)?;
    fs::create_dir_all(&store)?;
    for file in platform["files"].as_array().into_iter().flatten() {
        let from = unpacked.join(file["from"].as_str().context("from")?);
        let to = store.join(file["to"].as_str().context("to")?);
        let target = to.join(from.file_name().context("a file")?);
        fs::rename(&from, target)
            .with_context(|| format!("could not move `{}`", from.display()))?;
    }
    let program = store.join(platform["bin"].as_str().context("bin")?);
    ensure!(program.is_file(), "`{}` is not a file", program.display());
    let bin = home.join("bin");
    fs::create_dir_all(&bin)?;
    symlink(
        &program,
        bin.join(format!("kubectl-{}", name.replace('-', "_"))),
    )?;
    Ok(bin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::dist;
    use serde_json::json;

    /// The manifest when every platform has been built.
    fn complete() -> Value {
        let sums = PLATFORMS
            .iter()
            .map(|platform| (platform.archive(), "0".repeat(64)))
            .collect();
        dist::manifest(&dist::template().unwrap(), "v1.2.3", &sums).unwrap()
    }

    #[test]
    fn the_manifest_keeps_every_rule_for_every_platform() {
        let manifest = complete();
        assert_eq!(violations(&manifest, "globalps.yaml"), Vec::<String>::new());
        assert_eq!(
            manifest["spec"]["platforms"].as_array().unwrap().len(),
            PLATFORMS.len()
        );
        assert_eq!(manifest["spec"]["version"], "v1.2.3");
        for platform in PLATFORMS {
            let found = manifest["spec"]["platforms"].as_array().unwrap().iter();
            let uri = found
                .filter(|entry| matches(&entry["selector"], platform.os, platform.arch))
                .map(|entry| entry["uri"].as_str().unwrap().to_owned());
            let uri: Vec<String> = uri.collect();
            let end = format!("/v1.2.3/{}", platform.archive());
            assert!(uri.len() == 1 && uri[0].ends_with(&end), "{uri:?}");
        }
    }

    #[test]
    fn a_platform_that_was_not_built_is_left_out() {
        let sums = [(PLATFORMS[0].archive(), "0".repeat(64))].into();
        let manifest = dist::manifest(&dist::template().unwrap(), "v1.2.3", &sums).unwrap();
        assert_eq!(manifest["spec"]["platforms"].as_array().unwrap().len(), 1);
        assert_eq!(violations(&manifest, "globalps.yaml"), Vec::<String>::new());
    }

    #[test]
    fn each_rule_is_seen_to_be_broken() {
        let platform = |field: &str, value: Value| {
            let mut manifest = complete();
            manifest["spec"]["platforms"][0][field] = value;
            manifest
        };
        let with = |pointer: &str, value: Value| {
            let mut manifest = complete();
            *manifest.pointer_mut(pointer).unwrap() = value;
            manifest
        };
        #[rustfmt::skip]
        let cases = [
            (with("/apiVersion", json!("v1")), "apiVersion is wrong"),
            (with("/kind", json!("Plug")), "kind is not Plugin"),
            (with("/metadata/name", json!("global_ps")), "the name has characters other than a-z, 0-9 and -"),
            (with("/metadata/name", json!("other")), "the file is not named after the plugin"),
            (with("/spec/version", json!("1.2.3")), "version is not vMAJOR.MINOR.PATCH"),
            (with("/spec/shortDescription", json!("a\nb")), "shortDescription is not one short line"),
            (with("/spec/platforms", json!([])), "there is no platform"),
            (platform("uri", json!("http://x/a.tar.gz")), "uri is not https"),
            (platform("uri", json!("https://x/a.deb")), "uri is neither .tar.gz nor .zip"),
            (platform("sha256", json!("00")), "sha256 is not a SHA-256 in hex"),
            (platform("bin", json!("../x")), "bin is not a file of the plugin"),
            (platform("bin", json!("x.exe")), "bin ends with .exe on Windows only"),
            (platform("files", json!([])), "files is empty"),
            (platform("files", json!([{"from": "x", "to": "."}])), "there is no LICENSE"),
            (platform("selector", json!({})), "a selector does not match one platform"),
            (platform("selector", json!({"matchLabels": {"os": "linux"}})), "a selector does not match one platform"),
            (platform("selector", json!({"matchLabels": {"os": "linux", "arch": "arm64"}})), "two selectors match one platform"),
            (platform("checksum", json!("0")), "a field of a platform that krew does not know"),
        ];
        for (manifest, expected) in cases {
            let found = violations(&manifest, "globalps.yaml");
            assert!(
                found.iter().any(|words| words == expected),
                "{expected}: {found:?}"
            );
        }
    }
}
