//! The part of a kubelet that runs credential providers. It reads its flags from kubeadm's file, fails to start if the
//! files that they name are missing or invalid, and runs the program for each pull.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use globalps_core::names::KUBEADM_FLAGS_FILE;
use globalps_provider::{BIN_DIR_FLAG, CONFIG_FLAG, FLAGS_VARIABLE};
use serde_json::{Value, json};

/// Path of the credentials file's directory on the node. A syncer sees the directory under another path.
const HOST_DIRECTORY: &str = "/node/kubelet";

/// Path of the credentials file on the node, as configured for the syncer.
pub(super) fn host_config_file() -> String {
    format!("{HOST_DIRECTORY}/config.json")
}

/// Path of kubeadm's flags file on the node.
pub(super) fn host_flags_file() -> String {
    format!("{HOST_DIRECTORY}/{KUBEADM_FLAGS_FILE}")
}

/// Path of kubeadm's flags file on this machine.
fn flags_file(config_file: &Path) -> PathBuf {
    config_file.with_file_name(KUBEADM_FLAGS_FILE)
}

/// The flags in kubeadm's file.
pub(super) fn flags(config_file: &Path) -> String {
    let text = fs::read_to_string(flags_file(config_file)).unwrap_or_default();
    let value = |line: &str| {
        let rest = line.strip_prefix(FLAGS_VARIABLE)?.strip_prefix('=')?;
        Some(rest.trim().trim_matches('"').to_owned())
    };
    text.lines().find_map(value).unwrap_or_default()
}

/// Translates a path on the node, or an argument with one, to this machine.
fn here(text: &str, directory: &Path) -> String {
    text.replace(HOST_DIRECTORY, &directory.display().to_string())
}

fn flag(flags: &str, name: &str, directory: &Path) -> Option<PathBuf> {
    let mut values = flags
        .split_whitespace()
        .filter_map(|word| word.strip_prefix(name));
    let value = values.next_back()?.strip_prefix('=')?;
    Some(PathBuf::from(here(value, directory)))
}

/// Program and arguments of each provider. Fails if a kubelet would not start.
fn providers(flags: &str, directory: &Path) -> Result<Vec<(PathBuf, Vec<String>)>> {
    let Some(config) = flag(flags, CONFIG_FLAG, directory) else {
        let is_alone = flag(flags, BIN_DIR_FLAG, directory).is_some();
        ensure!(!is_alone, "no configuration of the provider programs");
        return Ok(Vec::new());
    };
    let bin_dir =
        flag(flags, BIN_DIR_FLAG, directory).context("no directory for the provider programs")?;
    let files = if config.is_dir() {
        let entries: std::io::Result<Vec<_>> = fs::read_dir(&config)?.collect();
        entries?.iter().map(fs::DirEntry::path).collect()
    } else {
        vec![config]
    };
    let mut found = Vec::new();
    for file in files {
        let config: Value = serde_saphyr::from_str(&fs::read_to_string(file)?)?;
        for provider in config["providers"].as_array().context("no providers")? {
            let program = bin_dir.join(provider["name"].as_str().context("no name")?);
            ensure!(program.is_file(), "`{}` does not exist", program.display());
            let arguments = provider["args"].as_array().into_iter().flatten();
            let arguments = arguments.filter_map(|text| Some(here(text.as_str()?, directory)));
            found.push((program, arguments.collect()));
        }
    }
    Ok(found)
}

/// Whether a kubelet starts with these flags.
pub(super) fn starts_with(flags: &str, directory: &Path) -> bool {
    providers(flags, directory).is_ok()
}

/// What the providers of a kubelet with these flags return for the image, as one object.
pub(super) fn provided(flags: &str, directory: &Path, image: &str) -> Result<Value> {
    let mut all = json!({});
    for (program, arguments) in providers(flags, directory)? {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let request = json!({
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderRequest", "image": image,
        });
        let mut stdin = child.stdin.take().context("no standard input")?;
        let _ = write!(stdin, "{request}");
        drop(stdin);
        let response: Value = serde_json::from_slice(&child.wait_with_output()?.stdout)?;
        for (key, value) in response["auth"].as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
    }
    Ok(all)
}
