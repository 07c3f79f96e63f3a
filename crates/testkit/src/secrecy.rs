//! Checks that no credential is disclosed. Records what tests give to the product, and searches the output of every
//! program when it ends and, at the end of a cluster, everything that the cluster logged or left readable by others.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use aho_corasick::AhoCorasick;
use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use globalps_core::names::STATE_DIR;
use serde_json::Value;

use crate::{Cluster, Node, objects};

/// Shorter texts occur in a log by chance.
const SHORTEST: usize = 8;
/// The same limit for base64, which is part of no word.
const SHORTEST_BASE64: usize = 7;

/// Shared by all tests of this process, so that each test also checks the others' credentials.
static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Records a login whose password must not appear anywhere, alone or with the user.
pub fn remember_login(user: &str, password: &str) {
    remember(password);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.extend(forms_of_login(user, password));
}

/// Like [`remember_login`], for a password or a token alone.
pub fn remember(secret: &str) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.extend(forms(secret));
}

/// Like [`remember_login`], for everything in a credentials file, if it can be parsed.
pub fn remember_file(content: &str) {
    let file: Value = serde_json::from_str(content).unwrap_or_default();
    for entry in file["auths"]
        .as_object()
        .into_iter()
        .flat_map(|all| all.values())
    {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        remember_login(text("username"), text("password"));
        let decoded = BASE64_STANDARD.decode(text("auth")).unwrap_or_default();
        let decoded = String::from_utf8_lossy(&decoded);
        if let Some((user, password)) = decoded.split_once(':') {
            remember_login(user, password);
        }
    }
}

/// Forms in which a text may appear: literally, and inside longer text in base64.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = inside_base64(secret);
    forms.push(secret.to_owned());
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

/// The login as the `auth` of a credentials file, and as such a file in a Secret's data.
fn forms_of_login(user: &str, password: &str) -> Vec<String> {
    let auth = BASE64_STANDARD_NO_PAD.encode(format!("{user}:{password}"));
    if password.is_empty() || auth.len() < SHORTEST_BASE64 {
        return Vec::new();
    }
    let mut forms = inside_base64(&auth);
    forms.push(auth);
    forms
}

/// The base64 characters that do not depend on the surrounding text, for each of the three possible offsets.
fn inside_base64(text: &str) -> Vec<String> {
    (0..3)
        .map(|before| {
            let bytes = [&vec![0; before][..], text.as_bytes()].concat();
            let encoded = BASE64_STANDARD_NO_PAD.encode(&bytes);
            let start = (before * 8).div_ceil(6);
            let end = (bytes.len() * 8) / 6;
            encoded.get(start..end).unwrap_or_default().to_owned()
        })
        .collect()
}

/// The texts to search for.
pub struct Search(AhoCorasick);

impl Search {
    /// Searches for everything recorded, in every form.
    pub fn for_all() -> Self {
        Self::of(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).iter())
    }

    /// Searches for these texts literally.
    pub fn for_some(secrets: &[&str]) -> Self {
        Self::of(secrets)
    }

    /// Searches for this login in every form in which a node's journal and a Secret may contain it.
    pub fn for_login(user: &str, password: &str) -> Self {
        Self::of([forms(password), forms_of_login(user, password)].concat())
    }

    fn of(texts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self(AhoCorasick::new(texts).expect("less than a gigabyte of credentials"))
    }

    /// Fails if the bytes contain one of the texts. The error names the place, but not the text.
    pub fn bytes(&self, place: &str, bytes: &[u8]) -> Result<()> {
        let Some(found) = self.0.find(bytes) else {
            return Ok(());
        };
        let before = &bytes[..found.start()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        bail!("a credential is shown in {place}, line {line}")
    }

    /// Searches the node's credentials file and every file of globalps there, with any permissions.
    pub fn state_of(&self, node: &Node) -> Result<()> {
        let state = node.kubelet_dir().join(STATE_DIR);
        let files = fs::read_dir(&state).into_iter().flatten().flatten();
        let files = files.map(|entry| entry.path());
        for path in files.chain([node.kubelet_dir().join("config.json")]) {
            // The file is absent, or a directory of programs.
            let bytes = fs::read(&path).unwrap_or_default();
            self.bytes(&path.display().to_string(), &bytes)?;
        }
        Ok(())
    }

    /// Searches all Secrets of the cluster.
    pub fn secrets(&self, cluster: &Cluster) -> Result<()> {
        let all = cluster.kubectl(&["get", "secrets", "-A", "-o", "json"])?;
        self.bytes("the Secrets", all.as_bytes())
    }

    /// Searches the logs of the control plane, the nodes and the pods, the audit log, all objects except Secrets, the
    /// arguments of processes, and the nodes' world-readable files.
    pub fn cluster(&self, cluster: &Cluster) -> Result<()> {
        self.logs_and_files(cluster)?;
        self.objects(cluster)
    }

    /// Like [`Self::cluster`], at the end of a cluster, whose API server may be gone.
    pub(crate) fn last(&self, cluster: &Cluster) -> Result<()> {
        if self.0.patterns_len() == 0 {
            return Ok(());
        }
        self.logs_and_files(cluster)?;
        if !objects::is_ready(cluster.layout()) {
            eprintln!("the API server does not respond: objects were not searched for credentials");
            return Ok(());
        }
        self.objects(cluster)
    }

    fn logs_and_files(&self, cluster: &Cluster) -> Result<()> {
        let mut places = 0;
        for entry in fs::read_dir(cluster.logs())? {
            let path = entry?.path();
            self.bytes(&path.display().to_string(), &fs::read(&path)?)?;
            places += 1;
        }
        ensure!(places > 4, "there are only {places} logs");
        for node in cluster.nodes()? {
            self.node(&node).with_context(|| node.name().to_owned())?;
        }
        for process in fs::read_dir("/proc")? {
            let path = process?.path().join("cmdline");
            if let Ok(arguments) = fs::read(&path) {
                self.bytes(&path.display().to_string(), &arguments)?;
            }
        }
        Ok(())
    }

    fn node(&self, node: &Node) -> Result<()> {
        if node.is_running()? {
            let all = "cat /var/log/pods/*/*/*.log 2>/dev/null || true";
            let logs = node.exec(&["sh", "-c", all])?;
            self.bytes("the logs of pods", logs.stdout.as_bytes())?;
        }
        for directory in node.own_directories() {
            self.files(&directory)?;
        }
        Ok(())
    }

    /// Searches the world-readable files below a directory, as far as its subdirectories are world-accessible.
    fn files(&self, directory: &Path) -> Result<()> {
        const LARGEST: u64 = 8 << 20;
        // Files and directories may be deleted meanwhile.
        let Ok(entries) = fs::read_dir(directory) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            if meta.is_dir() && meta.mode() & 0o005 == 0o005 {
                self.files(&path)?;
            }
            if meta.is_file() && meta.mode() & 0o004 != 0 && meta.len() < LARGEST {
                let bytes = fs::read(&path).unwrap_or_default();
                self.bytes(&path.display().to_string(), &bytes)?;
            }
        }
        Ok(())
    }

    fn objects(&self, cluster: &Cluster) -> Result<()> {
        let all = |kinds: &str| cluster.kubectl(&["get", kinds, "--all-namespaces", "-o", "yaml"]);
        let (builtin, own) = (
            "events,pods,daemonsets,deployments,configmaps,leases,roles,rolebindings,serviceaccounts",
            "globalpullsecrets,nodepullsecrets",
        );
        self.bytes(builtin, all(builtin)?.as_bytes())?;
        match all(own) {
            Ok(text) => self.bytes(own, text.as_bytes()),
            // The resource type is not installed, or no longer.
            Err(error) if is_unknown(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn is_unknown(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    text.contains("have a resource type") || text.contains("could not find the requested resource")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A credentials file with this user and password, and a Secret with this file.
    fn file(pair: &str) -> (String, String) {
        let file = format!(
            r#"{{"auths":{{"r":{{"auth":"{}"}}}}}}"#,
            BASE64_STANDARD.encode(pair)
        );
        let secret = format!("data: {}", BASE64_STANDARD.encode(&file));
        (file, secret)
    }

    #[test]
    fn a_credential_is_found_in_every_form_in_which_it_may_be_shown() {
        let login = forms_of_login("robot", "hunter2-s3cret");
        let alone = forms("hunter2-s3cret");
        let all = Search::of(login.into_iter().chain(alone));
        let (in_file, in_secret) = file("robot:hunter2-s3cret");
        for shown in [
            "password=hunter2-s3cret".to_owned(),
            in_file,
            in_secret,
            format!(
                " {}",
                file("robot:hunter2-s3cret").1.replace("data: ", "data:")
            ),
            BASE64_STANDARD.encode("x hunter2-s3cret x"),
            BASE64_STANDARD.encode("other:hunter2-s3cret"),
            format!("\n\n{}", BASE64_STANDARD.encode("password hunter2-s3cret")),
        ] {
            let error = all.bytes("a log", shown.as_bytes()).expect_err(&shown);
            let text = format!("{error:#}");
            assert!(
                text.starts_with("a credential is shown in a log, line "),
                "{text}"
            );
            assert!(!text.contains("hunter2"), "{text}");
        }
        for shown in ["", "robot", "hunter2", "s3cret", "***"] {
            all.bytes("a log", shown.as_bytes()).unwrap();
        }
        let (other, in_secret) = file("robot:another-s3cret");
        all.bytes("a log", other.as_bytes()).unwrap();
        all.bytes("a log", in_secret.as_bytes()).unwrap();
    }

    #[test]
    fn what_may_stand_anywhere_by_chance_is_not_looked_for() {
        assert_eq!(forms("short"), [] as [&str; 0]);
        assert_eq!(forms_of_login("u", "p"), [] as [&str; 0]);
        assert_eq!(forms_of_login("somebody", ""), [] as [&str; 0]);
        let short = forms_of_login("u", "one");
        assert!(short.contains(&"dTpvbmU".to_owned()), "{short:?}");
        let (_, in_secret) = file("u:one");
        Search::of(short)
            .bytes("a log", in_secret.as_bytes())
            .unwrap_err();
    }

    #[test]
    fn a_credentials_file_is_remembered_in_each_of_its_ways() {
        remember_file(
            r#"{"auths":{"a":{"auth":"dXNlcjppbi1hdXRoLXMzY3JldA=="},"b":{"username":"u","password":"in-field-s3cret"}}}"#,
        );
        remember_file("no file at all");
        for shown in [
            "in-auth-s3cret",
            "in-field-s3cret",
            "dTppbi1maWVsZC1zM2NyZXQ",
        ] {
            Search::for_all()
                .bytes("a log", shown.as_bytes())
                .unwrap_err();
        }
    }
}
