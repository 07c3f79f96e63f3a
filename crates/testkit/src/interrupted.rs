//! A change of a node's credentials that a power cut interrupts: records the change without a cut, and checks the
//! recovery from every state that a cut may leave.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use globalps_provider::{CONFIG_FLAG, Delivery};
use serde_json::Value;

use crate::bare_node::{Ask, BareNode, Failures, KUBELETS_OWN, Program, Reported};
use crate::power_cut::{Attributes, Disk, Op, Tree, operations};
use crate::wait::DEADLINE;

const FILE: &str = "config.json";
const FLAGS_FILE: &str = "kubeadm-flags.env";
/// A syncer that is killed leaves it.
const LOCK_FILE: &str = globalps_core::names::LOCK_FILE;
/// kubeadm's format.
const FLAGS: &str = "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///x\"\n";
/// Files of the credential provider.
const PROVIDER_FILES: [&str; 5] = [
    ".globalps/bin",
    ".globalps/bin/globalps-credential-provider",
    ".globalps/bin/globalps-credential-provider-scoped",
    ".globalps/credentials.json",
    ".globalps/globalps-credential-provider.yaml",
];
/// A registry in every content.
const REGISTRY: &str = "b.example.com";

/// A change, and how it ends without a power cut.
pub struct Scenario {
    pub name: &'static str,
    /// The file before globalps.
    pub original: Option<&'static str>,
    /// The assignment before the change.
    pub before: Option<Ask>,
    pub ask: Ask,
    /// Kubelet restarts that fail, but not after a cut.
    pub failures: usize,
    pub phase: &'static str,
    /// Number of power cuts, each during the recovery from the previous one.
    pub cuts: u8,
}

/// A scenario as recorded without a power cut.
pub struct Recording {
    pub scenario: Scenario,
    /// All files before and after the change.
    pub before: Tree,
    pub after: Tree,
    pub ops: Vec<Op>,
    original: Option<Tree>,
    original_flags: Option<Tree>,
}

/// A node that booted after a power cut and reached the expected state.
pub struct Recovery {
    pub phase: String,
    /// The operations on the disk.
    pub ops: Vec<Op>,
}

/// Which content an intact credentials file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Old,
    New,
}

impl Recording {
    pub fn make(program: &Program, scenario: Scenario) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().canonicalize()?;
        let file = path.join(FILE);
        if let Some(original) = scenario.original {
            fs::write(&file, original)?;
            fs::set_permissions(&file, Permissions::from_mode(0o640))?;
        }
        fs::write(path.join(FLAGS_FILE), FLAGS)?;
        let original = content(&path)?.at(FILE).cloned();
        let original_flags = content(&path)?.at(FLAGS_FILE).cloned();
        if let Some(before) = &scenario.before {
            let reported = BareNode::start(&path, before, 0, Failures::NONE)?.run(
                program,
                None,
                DEADLINE,
                || Ok(()),
            )?;
            ensure!(reported.phase == "Synced", "{reported:?}");
        }
        let before = content(&path)?;
        let node = BareNode::start(
            &path,
            &scenario.ask,
            1,
            Failures(scenario.failures, "failed"),
        )?;
        let (reported, ops) = recorded(&node, program, &path, || Ok(()))?;
        ensure!(reported.phase == scenario.phase, "{reported:?}");
        let after = content(&path)?;
        let mut disk = Disk::new(&before);
        ops.iter().try_for_each(|op| disk.apply(op))?;
        ensure!(
            disk.now() == after,
            "the recording is incomplete: {:?} instead of {after:?}",
            disk.now()
        );
        Ok(Self {
            scenario,
            before,
            after,
            ops,
            original,
            original_flags,
        })
    }

    /// The phase of a node that starts without any part of the change: all restarts succeed now.
    pub fn phase_from_the_beginning(&self) -> &'static str {
        match self.scenario.ask.revision {
            None => "Restored",
            Some(_) => "Synced",
        }
    }

    /// Fails unless the file after a power cut, or its absence, is that before or after the change, with its mode and
    /// owner.
    pub fn check_file(&self, left: &Tree) -> Result<()> {
        self.whole_in(left).map(|_| ())
    }

    /// Boots a node with the files that the power cuts left. Fails unless all of this holds:
    ///
    /// - at every moment the file is intact;
    /// - in the end the node has its assigned content and reports it. One exception: a change whose restarts had failed may
    ///   be rolled back if the cut left the failure on the disk, because the syncer does not retry it by itself;
    /// - the kubelet restarted at most once, and runs with the current file;
    /// - no files exist that would not exist without a cut;
    /// - the node can be restored to its state before globalps, then and also immediately after the boot.
    pub fn recover(&self, program: &Program, left: &Tree, cuts: u8) -> Result<Recovery> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().canonicalize()?;
        left.write(&path)?;
        let file = path.join(FILE);
        let node = BareNode::start(&path, &self.scenario.ask, 1 + cuts, Failures::NONE)?;
        let keeps_credential =
            self.scenario.before.is_some() && self.scenario.ask.revision.is_some();
        let look = || {
            ensure!(
                !keeps_credential || node.has_credential(REGISTRY)?,
                "the node lost a credential"
            );
            self.whole(fs::read(&file).ok().as_deref()).map(|_| ())
        };
        let (reported, ops) = recorded(&node, program, &path, look)?;
        let tree = content(&path)?;
        let whole = self.whole_in(&tree)?;
        let is_end = match &*reported.phase {
            "Synced" => {
                self.scenario.ask.revision.is_some() && self.is_new(bytes_of(tree.at(FILE)))
            }
            "Restored" => self.is_original(&tree),
            "RolledBack" => self.scenario.failures > 0 && whole == Whole::Old,
            _ => false,
        };
        ensure!(
            is_end,
            "the status is {reported:?}, but the file has the {whole:?} content"
        );
        // What would have failed without the cut may be in effect now, with all its files.
        let expected = if reported.phase == self.scenario.phase {
            others(&self.after)
        } else {
            self.others_in_force()
        };
        has_settled(&node, &tree, &expected, 1)?;
        drop(node);
        if self.scenario.ask.revision.is_some() {
            self.restore_node(program, &path, 1)
                .context("restore afterwards")?;
            let directory = tempfile::tempdir()?;
            left.write(directory.path())?;
            // The interrupted change is finished first.
            self.restore_node(program, directory.path(), 2)
                .context("restore immediately")?;
        }
        Ok(Recovery {
            phase: reported.phase,
            ops,
        })
    }

    fn others_in_force(&self) -> Vec<String> {
        let provider: &[&str] = match self.scenario.ask.delivery {
            Delivery::ConfigFile => &[],
            Delivery::CredentialProvider(_) => &PROVIDER_FILES,
        };
        let mut names: Vec<&str> = provider.to_vec();
        names.extend([".globalps", ".globalps/state.json", FLAGS_FILE]);
        names.sort_unstable();
        names.into_iter().map(str::to_owned).collect()
    }

    fn is_original(&self, tree: &Tree) -> bool {
        tree.at(LOCK_FILE).is_none()
            && tree.at(FILE) == self.original.as_ref()
            && tree.at(FLAGS_FILE) == self.original_flags.as_ref()
    }

    fn restore_node(&self, program: &Program, path: &Path, most_restarts: usize) -> Result<()> {
        let ask = Ask {
            generation: self.scenario.ask.generation + 1,
            revision: None,
            ..self.scenario.ask.clone()
        };
        let node = BareNode::start(path, &ask, u8::MAX, Failures::NONE)?;
        let reported = node.run(program, None, DEADLINE, || Ok(()))?;
        let tree = content(path)?;
        let is_back = reported.phase == "Restored" && self.is_original(&tree);
        ensure!(
            is_back,
            "the status is {reported:?}, and the files are {tree:?}"
        );
        has_settled(&node, &tree, &[FLAGS_FILE.to_owned()], most_restarts)
    }

    /// Whether these bytes are from before or after the change. Fails for any other bytes.
    fn whole(&self, bytes: Option<&[u8]>) -> Result<Whole> {
        if bytes == bytes_of(self.before.at(FILE)) {
            return Ok(Whole::Old);
        }
        let is_new = self.is_new(bytes);
        let shown = bytes.map(|bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
        ensure!(
            is_new,
            "`{FILE}` has neither the old nor the new content: {shown:?}"
        );
        Ok(Whole::New)
    }

    fn is_new(&self, bytes: Option<&[u8]>) -> bool {
        match (&self.scenario.ask, bytes) {
            (ask, _) if ask.revision.is_none() || ask.delivery != Delivery::ConfigFile => {
                bytes == bytes_of(self.original.as_ref())
            }
            (_, None) => false,
            (ask, Some(bytes)) => {
                let value = serde_json::from_slice(bytes).ok();
                value.is_some_and(|value: Value| value == self.merged(ask))
            }
        }
    }

    /// The node's own entries merged with the assigned ones.
    fn merged(&self, ask: &Ask) -> Value {
        let own = self.scenario.original.unwrap_or(r#"{"auths":{}}"#);
        let mut value: Value = serde_json::from_str(own).unwrap();
        let granted: Value = serde_json::from_str(&ask.credentials).unwrap();
        for (registry, entry) in granted["auths"].as_object().unwrap() {
            value["auths"][registry] = entry.clone();
        }
        value
    }

    fn whole_in(&self, tree: &Tree) -> Result<Whole> {
        let file = tree.at(FILE);
        let whole = self.whole(bytes_of(file))?;
        if let Some(Tree::File { attributes, .. }) = file {
            // With managed entries in it, only its owner can read the file.
            let expected = match &self.original {
                Some(Tree::File { attributes, .. }) if file == self.original.as_ref() => {
                    attributes.clone()
                }
                _ => Attributes {
                    mode: 0o600,
                    ..Attributes::default()
                },
            };
            ensure!(*attributes == expected, "`{FILE}` has {attributes:?}");
        }
        Ok(whole)
    }
}

/// Runs the syncer under strace.
fn recorded(
    node: &BareNode,
    program: &Program,
    path: &Path,
    look: impl FnMut() -> Result<()>,
) -> Result<(Reported, Vec<Op>)> {
    let trace = tempfile::NamedTempFile::new()?;
    let reported = node.run(program, Some(trace.path()), DEADLINE, look)?;
    let ops = operations(&fs::read_to_string(trace.path())?, path)?;
    Ok((reported, ops))
}

fn has_settled(
    node: &BareNode,
    tree: &Tree,
    expected: &[String],
    most_restarts: usize,
) -> Result<()> {
    let found = others(tree);
    ensure!(
        found == expected,
        "the files are {found:?}, not {expected:?}"
    );
    let restarts = node.restarts();
    ensure!(
        restarts <= most_restarts,
        "{restarts} restarts of the kubelet"
    );
    let flags = bytes_of(tree.at(FLAGS_FILE)).unwrap_or_default();
    let has_provider = String::from_utf8_lossy(flags).contains(CONFIG_FLAG);
    ensure!(
        node.has_provider() == has_provider,
        "the kubelet runs with other flags"
    );
    if has_provider {
        // The kubelet rereads the file, so it notices removed entries by itself.
        let provided = node.provided(&format!("{REGISTRY}/image"))?;
        ensure!(provided.get(REGISTRY).is_some(), "{provided}");
    } else {
        let is_read = node.kubelet_read().as_deref() == bytes_of(tree.at(FILE));
        ensure!(is_read, "the kubelet runs with another file");
    }
    Ok(())
}

fn content(directory: &Path) -> Result<Tree> {
    Tree::read(directory, &[KUBELETS_OWN])
}

fn bytes_of(tree: Option<&Tree>) -> Option<&[u8]> {
    match tree {
        Some(Tree::File { bytes, .. }) => Some(bytes),
        _ => None,
    }
}

/// Everything except the credentials file and the lock.
fn others(tree: &Tree) -> Vec<String> {
    let names = tree.names().into_iter();
    names
        .filter(|name| name != FILE && name != LOCK_FILE)
        .collect()
}
