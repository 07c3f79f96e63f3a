//! Checks every state in which a power cut can leave a node's files at any moment of a change: the credentials file is
//! intact, and the next syncer brings the node to its assigned state. The same holds for a second and a third power cut
//! during the recovery.
//!
//! The test records the real program on a bare node, computes from the recording every state of the disk that a power
//! cut may leave, starts the same program on each state, and records it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context;
use globalps_provider::{Delivery, ProviderConfig};
use globalps_testkit::bare_node::{Ask, Program};
use globalps_testkit::interrupted::{Recording, Recovery, Scenario};
use globalps_testkit::kubernetes::VERSION;
use globalps_testkit::power_cut::{Op, Tree, crash_states};
use serde_json::{Value, json};

/// The node's own entries, formatted in a way that no program would reproduce.
const OWN: &str = "{ \"auths\": {\"own.example.com\": {\"auth\": \"bzpv\"}},\n  \"credHelpers\": {\"h.example.com\": \"h\"} }\n";

fn scenarios() -> Vec<Scenario> {
    let sync = |name, original| Scenario {
        name,
        original,
        before: None,
        ask: ask(1, Some(1)),
        failures: 0,
        phase: "Synced",
        cuts: 3,
    };
    let rollback = |name, original| Scenario {
        failures: 3,
        phase: "RolledBack",
        ..sync(name, original)
    };
    let restore = |name, original| Scenario {
        before: Some(ask(1, Some(1))),
        ask: ask(2, None),
        phase: "Restored",
        ..sync(name, original)
    };
    vec![
        sync("first sync, existing file", Some(OWN)),
        sync("first sync, no file", None),
        Scenario {
            before: Some(ask(1, Some(1))),
            ask: ask(2, Some(2)),
            ..sync("update", Some(OWN))
        },
        rollback("rollback, existing file", Some(OWN)),
        rollback("rollback, no file", None),
        Scenario {
            ask: by_provider(1, 1),
            ..sync("provider, no file", None)
        },
        Scenario {
            before: Some(ask(1, Some(1))),
            ask: by_provider(2, 2),
            cuts: 2,
            ..sync("switch from the file to the provider", Some(OWN))
        },
        Scenario {
            before: Some(ask(1, Some(1))),
            ask: by_provider(2, 2),
            // Each power cut produces some hundred states; the switch to the provider above produces most.
            cuts: 1,
            ..rollback("switch to the provider, rolled back", Some(OWN))
        },
        Scenario {
            before: Some(by_provider(1, 1)),
            ask: by_provider(2, 2),
            ..sync("provider, rotation", Some(OWN))
        },
        Scenario {
            before: Some(by_provider(1, 1)),
            ask: ask(2, Some(2)),
            ..sync("switch from the provider to the file", Some(OWN))
        },
        Scenario {
            before: Some(by_provider(1, 1)),
            ..restore("provider, restore", Some(OWN))
        },
        restore("restore of a file", Some(OWN)),
        restore("restore of no file", None),
    ]
}

fn ask(generation: i64, revision: Option<i64>) -> Ask {
    Ask {
        generation,
        revision,
        credentials: assigned(revision).to_string(),
        kubelet_version: VERSION,
        ..Ask::default()
    }
}

fn by_provider(generation: i64, revision: i64) -> Ask {
    Ask {
        delivery: Delivery::CredentialProvider(ProviderConfig::default()),
        ..ask(generation, Some(revision))
    }
}

/// The second revision removes a registry, adds one and changes one.
fn assigned(revision: Option<i64>) -> Value {
    let (one, two) = (json!({"auth": "dTox"}), json!({"auth": "dToy"}));
    match revision {
        None => json!({"auths": {}}),
        Some(1) => json!({"auths": {"a.example.com": one, "b.example.com": one}}),
        Some(_) => json!({"auths": {"b.example.com": two, "c.example.com": two}}),
    }
}

/// States of a disk to start from, each with a description of how it came about.
type States = BTreeMap<Tree, String>;

#[test]
fn after_a_power_cut_the_next_syncer_finishes_the_change() {
    let program = Program::shipped().unwrap();
    let begun = Instant::now();
    let recordings = in_parallel(scenarios(), |scenario| {
        let name = scenario.name;
        Recording::make(&program, scenario).context(name).unwrap()
    });
    println!("recorded in {:.1} s", begun.elapsed().as_secs_f32());
    let mut failures = Vec::new();
    for recording in &recordings {
        failures.extend(check(&program, recording));
    }
    assert!(
        failures.is_empty(),
        "{} failures, the first are:\n\n{}",
        failures.len(),
        failures[..failures.len().min(3)].join("\n\n")
    );
}

/// Checks the change with one additional power cut at a time. Returns the failures.
fn check(program: &Program, recording: &Recording) -> Vec<String> {
    println!("{}", recording.scenario.name);
    let mut failures = Vec::new();
    let mut tried = BTreeSet::new();
    let (mut all, mut states) = after_cut("", &recording.before, &recording.ops);
    let mut operations = recording.ops.len();
    for cuts in 1..=recording.scenario.cuts {
        println!(
            "  cut {cuts}: {operations} operations, {all} crash states, {} new ones",
            states.len()
        );
        if states.is_empty() || !failures.is_empty() {
            break;
        }
        let ends = recover_all(program, recording, (&states, cuts), &mut failures);
        for (state, expected) in [
            (&recording.before, recording.phase_from_the_beginning()),
            (&recording.after, recording.scenario.phase),
        ] {
            if let Some(end) = ends.get(state)
                && end.phase != expected
            {
                failures.push(format!("{state:?} ended {}, not {expected}", end.phase));
            }
        }
        tried.extend(states.keys().cloned());
        (operations, all) = (0, 0);
        let mut next = States::new();
        for (state, end) in &ends {
            let (more, left) = after_cut(&format!("{}, ", states[*state]), state, &end.ops);
            all += more;
            operations += end.ops.len();
            next.extend(left.into_iter().filter(|(left, _)| !tried.contains(left)));
        }
        states = next;
    }
    for failure in &mut failures {
        *failure = format!("{}, {failure}", recording.scenario.name);
    }
    failures
}

/// Number of states after a power cut, and the distinct ones.
fn after_cut(earlier: &str, before: &Tree, ops: &[Op]) -> (usize, States) {
    let states = crash_states(before, ops).unwrap();
    let how = |done: usize| {
        let last = done.checked_sub(1).map(|last| format!("{:?}", ops[last]));
        let last: String = last.unwrap_or_default().chars().take(60).collect();
        format!("{earlier}cut after {done} operations ({last})")
    };
    let distinct = states.distinct.into_iter();
    let distinct = distinct.map(|(tree, done)| (tree, how(done))).collect();
    (states.all, distinct)
}

/// The result of each recovery. Failed recoveries are added to the failures.
fn recover_all<'a>(
    program: &Program,
    recording: &Recording,
    (states, cuts): (&'a States, u8),
    failures: &mut Vec<String>,
) -> BTreeMap<&'a Tree, Recovery> {
    let begun = Instant::now();
    let ends = in_parallel(states.iter().collect(), |(state, how)| {
        let end = recording
            .check_file(state)
            .context("before anything is started")
            .and_then(|()| recording.recover(program, state, cuts))
            .map_err(|error| format!("{how}, which leaves {state:?}: {error:#}"));
        (state, end)
    });
    let mut ended = BTreeMap::new();
    for (state, end) in ends {
        match end {
            Ok(end) => {
                ended.insert(state, end);
            }
            Err(failure) => failures.push(failure),
        }
    }
    let phases: BTreeSet<_> = ended.values().map(|end| &*end.phase).collect();
    for phase in phases {
        let number = ended.values().filter(|end| end.phase == phase).count();
        println!("    {phase}: {number}");
    }
    println!("    in {:.1} s", begun.elapsed().as_secs_f32());
    ended
}

/// Returns the results in the order in which they become available.
fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let (items, results) = (Mutex::new(items.into_iter()), Mutex::new(Vec::new()));
    // A worker mostly waits, for a response or for the syncer's interval between two restarts.
    let workers = 8 * std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let next = || items.lock().unwrap().next();
                while let Some(item) = next() {
                    let result = work(item);
                    results.lock().unwrap().push(result);
                }
            });
        }
    });
    results.into_inner().unwrap()
}
