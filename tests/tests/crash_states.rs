//! Whatever a power cut leaves of a node's files, at any moment of a change: the credentials file is whole, and the next
//! syncer brings the node to what it is asked for.
//!
//! The real program is recorded on a node without a cluster, every state of the disk that a cut may leave is made from
//! the recording, and the same program is started on each.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use globalps_tests::bare_node::{Ask, BareNode, KUBELETS_OWN, Program};
use globalps_tests::power_cut::{
    Attributes, CrashStates, Disk, Op, Tree, crash_states, operations,
};
use serde_json::{Value, json};

const FILE: &str = "config.json";
/// For one run of the syncer, which takes some 100 ms, or 3 s where restarts fail.
const DEADLINE: Duration = Duration::from_secs(30);
/// The node's own entry, in a form that nobody would write again in just this way.
const OWN: &str = "{ \"auths\": {\"own.example.com\": {\"auth\": \"bzpv\"}},\n  \"credHelpers\": {\"h.example.com\": \"h\"} }\n";

struct Scenario {
    name: &'static str,
    /// The file before globalps.
    original: Option<&'static str>,
    /// What was in force before.
    before: Option<Ask>,
    ask: Ask,
    /// Restarts of the kubelet that fail, but not after the cut.
    failures: usize,
    /// Phase that the change ends with where nothing is cut.
    phase: &'static str,
}

fn scenarios() -> Vec<Scenario> {
    let sync = |name, original| Scenario {
        name,
        original,
        before: None,
        ask: ask(1, Some(1)),
        failures: 0,
        phase: "Synced",
    };
    let restore = |name, original| Scenario {
        before: Some(ask(1, Some(1))),
        ask: ask(2, None),
        phase: "Restored",
        ..sync(name, original)
    };
    vec![
        sync("first sync, onto a file", Some(OWN)),
        sync("first sync, no file", None),
        Scenario {
            before: Some(ask(1, Some(1))),
            ask: ask(2, Some(2)),
            ..sync("update", Some(OWN))
        },
        Scenario {
            failures: 3,
            phase: "RolledBack",
            ..sync("rollback, onto a file", Some(OWN))
        },
        Scenario {
            failures: 3,
            phase: "RolledBack",
            ..sync("rollback, no file", None)
        },
        restore("restore of a file", Some(OWN)),
        restore("restore of no file", None),
    ]
}

fn ask(generation: i64, revision: Option<i64>) -> Ask {
    Ask {
        generation,
        revision,
        credentials: granted(revision).to_string(),
    }
}

/// Each revision takes a registry away, adds one and changes one.
fn granted(revision: Option<i64>) -> Value {
    match revision {
        None => json!({"auths": {}}),
        Some(1) => {
            json!({"auths": {"a.example.com": {"auth": "dTox"}, "b.example.com": {"auth": "dTox"}}})
        }
        Some(_) => {
            json!({"auths": {"b.example.com": {"auth": "dToy"}, "c.example.com": {"auth": "dToy"}}})
        }
    }
}

/// A change as it went without a cut.
struct Recording {
    scenario: Scenario,
    original: Option<Tree>,
    before: Tree,
    after: Tree,
    ops: Vec<Op>,
}

/// Contents of a credentials file that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Old,
    New,
}

impl Recording {
    fn make(program: &Program, scenario: Scenario) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().canonicalize()?;
        let file = path.join(FILE);
        if let Some(original) = scenario.original {
            fs::write(&file, original)?;
            fs::set_permissions(&file, Permissions::from_mode(0o640))?;
        }
        let original = content(&path)?.at(FILE).cloned();
        if let Some(before) = &scenario.before {
            let told =
                BareNode::start(&path, before, 0)?.run(program, None, DEADLINE, || Ok(()))?;
            ensure!(told.phase == "Synced", "{told:?}");
        }
        let before = content(&path)?;
        let trace = tempfile::NamedTempFile::new()?;
        let node = BareNode::start(&path, &scenario.ask, scenario.failures)?;
        let told = node.run(program, Some(trace.path()), DEADLINE, || Ok(()))?;
        ensure!(told.phase == scenario.phase, "{told:?}");
        let after = content(&path)?;
        let ops = operations(&fs::read_to_string(trace.path())?, &path)?;
        let mut disk = Disk::new(&before);
        ops.iter().try_for_each(|op| disk.apply(op))?;
        ensure!(
            disk.now() == after,
            "the recording is not complete: {:?}, and not {after:?}",
            disk.now()
        );
        Ok(Self {
            scenario,
            original,
            before,
            after,
            ops,
        })
    }

    /// Whether these are the bytes from before the change, or from after it. An error for any others.
    fn whole(&self, bytes: Option<&[u8]>) -> Result<Whole> {
        if bytes == bytes_of(self.before.at(FILE)) {
            return Ok(Whole::Old);
        }
        let is_new = match (self.scenario.ask.revision, bytes) {
            (None, _) => bytes == bytes_of(self.original.as_ref()),
            (Some(_), None) => false,
            (Some(revision), Some(bytes)) => serde_json::from_slice::<Value>(bytes)
                .is_ok_and(|value| value == self.wanted(revision)),
        };
        ensure!(
            is_new,
            "{FILE} is neither the old nor the new one: {:?}",
            bytes.map(String::from_utf8_lossy)
        );
        Ok(Whole::New)
    }

    /// The node's own, and what is granted.
    fn wanted(&self, revision: i64) -> Value {
        let own = self.scenario.original.unwrap_or("{\"auths\": {}}");
        let mut value: Value = serde_json::from_str(own).unwrap();
        for (registry, entry) in granted(Some(revision))["auths"].as_object().unwrap() {
            value["auths"][registry] = entry.clone();
        }
        value
    }

    /// The file in a tree, whole and with its mode and owner.
    fn whole_in(&self, tree: &Tree) -> Result<Whole> {
        let file = tree.at(FILE);
        let whole = self.whole(bytes_of(file))?;
        if let Some(Tree::File { attributes, .. }) = file {
            let expected = match self.original.as_ref().or(self.before.at(FILE)) {
                Some(Tree::File { attributes, .. }) => attributes.clone(),
                _ => Attributes {
                    mode: 0o600,
                    ..Attributes::default()
                },
            };
            ensure!(*attributes == expected, "{FILE} has {attributes:?}");
        }
        Ok(whole)
    }

    /// Starts a node with what the cut left, and its syncer; the phase that this ends with.
    fn recover(&self, program: &Program, left: &Tree) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        left.write(path)?;
        let node = BareNode::start(path, &self.scenario.ask, 0)?;
        let file = path.join(FILE);
        let look = || self.whole(fs::read(&file).ok().as_deref()).map(|_| ());
        let told = node.run(program, None, DEADLINE, look)?;
        let tree = content(path)?;
        let whole = self.whole_in(&tree)?;
        let is_end = match &*told.phase {
            "Synced" => self.scenario.ask.revision.is_some() && whole == Whole::New,
            "Restored" => tree.at(FILE) == self.original.as_ref(),
            // The restarts had failed, and that was on the disk: it is not tried again by itself.
            "RolledBack" => self.scenario.failures > 0 && whole == Whole::Old,
            _ => false,
        };
        ensure!(is_end, "{told:?}, and the file is the {whole:?} one");
        ensure!(
            others(&tree) == others(&self.after),
            "left behind: {:?}",
            tree.names()
        );
        let restarts = node.restarts();
        ensure!(restarts <= 1, "{restarts} restarts of the kubelet");
        let read = node.kubelet_read();
        ensure!(
            read.as_deref() == bytes_of(tree.at(FILE)),
            "the kubelet runs with another file"
        );
        Ok(told.phase)
    }
}

fn content(folder: &Path) -> Result<Tree> {
    Tree::read(folder, &[KUBELETS_OWN])
}

fn bytes_of(tree: Option<&Tree>) -> Option<&[u8]> {
    match tree {
        Some(Tree::File { bytes, .. }) => Some(bytes),
        _ => None,
    }
}

fn others(tree: &Tree) -> Vec<String> {
    let names = tree.names().into_iter();
    names.filter(|name| name != FILE).collect()
}

#[test]
fn whatever_a_power_cut_leaves_the_file_is_whole_and_the_next_syncer_finishes_the_change() {
    let program = Program::build().unwrap();
    let begun = Instant::now();
    eprintln!("built");
    let recordings: Vec<(Recording, CrashStates)> = std::thread::scope(|scope| {
        let program = &program;
        let threads: Vec<_> = scenarios()
            .into_iter()
            .map(|scenario| {
                scope.spawn(move || {
                    let name = scenario.name;
                    let recording = Recording::make(program, scenario).context(name)?;
                    let states = crash_states(&recording.before, &recording.ops).context(name)?;
                    anyhow::Ok((recording, states))
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect::<Result<_>>().unwrap()
    });
    eprintln!("recorded {:?}", begun.elapsed());
    let mut failures = Vec::new();
    for (recording, states) in &recordings {
        let begun = Instant::now();
        let ends = recover_all(&program, recording, states);
        let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
        for (state, end) in &ends {
            match end {
                Ok(phase) => *phases.entry(phase).or_default() += 1,
                Err(error) => failures.push(describe(recording, states, state, error)),
            }
        }
        println!(
            "{}: {} operations, {} crash states, {} distinct, recovered in {:.1} s: {phases:?}",
            recording.scenario.name,
            recording.ops.len(),
            states.all,
            states.distinct.len(),
            begun.elapsed().as_secs_f32(),
        );
        for (state, expected) in [
            // All restarts work now, so what was not begun is not rolled back.
            (&recording.before, recording.phase_of_a_whole_run()),
            (&recording.after, recording.scenario.phase),
        ] {
            match ends.get(state) {
                Some(Ok(phase)) if phase != expected => {
                    failures.push(format!(
                        "{}: {phase}, not {expected}",
                        recording.scenario.name
                    ));
                }
                Some(_) => {}
                None => failures.push("the first or the last state was not tried".to_owned()),
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures, the first of them:\n\n{}",
        failures.len(),
        failures[..failures.len().min(3)].join("\n\n")
    );
}

impl Recording {
    fn phase_of_a_whole_run(&self) -> &'static str {
        if self.scenario.ask.revision.is_none() {
            "Restored"
        } else {
            "Synced"
        }
    }
}

/// The phase that each state ends with, or what went wrong.
fn recover_all<'a>(
    program: &Program,
    recording: &Recording,
    states: &'a CrashStates,
) -> BTreeMap<&'a Tree, Result<String>> {
    let waiting = Mutex::new(states.distinct.keys());
    let ends = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(state) = waiting.lock().unwrap().next() else {
                        break;
                    };
                    let end = recording
                        .whole_in(state)
                        .context("before anything is started")
                        .and_then(|_| recording.recover(program, state));
                    ends.lock().unwrap().insert(state, end);
                }
            });
        }
    });
    ends.into_inner().unwrap()
}

fn describe(
    recording: &Recording,
    states: &CrashStates,
    state: &Tree,
    error: &anyhow::Error,
) -> String {
    let done = states.distinct[state];
    let last = done.checked_sub(1).map(|last| &recording.ops[last]);
    format!(
        "{}, cut after {done} operations, the last of them {last:.200?}, which leaves {state:?}: {error:#}",
        recording.scenario.name
    )
}
